"""Which tests are collected: those of DVC itself are in ``make test-clients``, which sets TRACKERS_CLIENTS."""

from __future__ import annotations

import os

os.environ["DVC_NO_ANALYTICS"] = "1"
collect_ignore = [] if "TRACKERS_CLIENTS" in os.environ else ["test_dvclive_client.py"]
