"""Which tests are collected: the one with an S3 server is in ``make test-clients``, which sets TRACKERS_CLIENTS."""

from __future__ import annotations

import os

collect_ignore = [] if "TRACKERS_CLIENTS" in os.environ else ["test_sweep_bucket.py"]
