"""Which tests are collected: those with Spark, other engines and an S3 server are in ``make lake-check``, which sets
TRACKERS_LAKE."""

from __future__ import annotations

import os

NEEDS_MORE = ["test_lake_engines.py", "test_lake_questions.py", "test_lake_server.py"]
collect_ignore = [] if "TRACKERS_LAKE" in os.environ else NEEDS_MORE
