"""Which tests are collected: those with Aim itself are in ``make test-clients``, which sets TRACKERS_CLIENTS."""

from __future__ import annotations

import os

os.environ["AIM_ANALYTICS"] = "0"
collect_ignore = [] if "TRACKERS_CLIENTS" in os.environ else ["test_client.py"]
