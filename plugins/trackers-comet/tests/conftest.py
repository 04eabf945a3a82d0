"""Which tests are collected: those of Comet's own client are in ``make test-clients``, which sets TRACKERS_CLIENTS."""

from __future__ import annotations

import os

os.environ["COMET_ERROR_TRACKING_ENABLE"] = "0"
collect_ignore = [] if "TRACKERS_CLIENTS" in os.environ else ["test_comet_client.py"]
