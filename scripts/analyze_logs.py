#!/usr/bin/env python3
"""Analyze the sessions of multi-GPU training: comparison, communication, report."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from trackers.analysis import session_logs
from trackers.cli import scripts

if __name__ == "__main__":
    scripts.run(session_logs.NAME, session_logs.main)
