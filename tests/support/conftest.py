"""Which tests are collected: those that ask a package index are in ``make setup-check``, which sets TRACKERS_INDEX."""

from __future__ import annotations

import os

collect_ignore = [] if "TRACKERS_INDEX" in os.environ else ["test_setup_from_index.py"]
