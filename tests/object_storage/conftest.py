"""Which tests are collected: those with an S3 server are in ``make test-clients``, which sets TRACKERS_CLIENTS."""

from __future__ import annotations

import os

collect_ignore = [] if "TRACKERS_CLIENTS" in os.environ else ["test_faults.py", "test_server.py"]
