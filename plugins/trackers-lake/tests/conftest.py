"""Which tests are collected: those with Spark, other engines and an S3 server are in ``make lake-check``, which sets
TRACKERS_LAKE."""

from __future__ import annotations

import os

collect_ignore = [] if "TRACKERS_LAKE" in os.environ else ["test_lake_engines.py", "test_lake_server.py"]
