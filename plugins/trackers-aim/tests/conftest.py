"""Which tests are collected: those with Aim's own client are in ``make test-clients``, which sets TRACKERS_CLIENTS."""

from __future__ import annotations

import os

os.environ["AIM_ANALYTICS"] = "0"
NEED_AIM = ["test_aim_contents.py", "test_aim_copies.py", "test_aim_reader_client.py", "test_aim_tracker.py"]
collect_ignore = [] if "TRACKERS_CLIENTS" in os.environ else NEED_AIM
