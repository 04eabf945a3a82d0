"""Which tests are collected: those that ask a package index for gigabytes are in ``make first-try``."""

from __future__ import annotations

import os

collect_ignore = [] if "TRACKERS_INDEX" in os.environ else ["test_first_try.py"]
