#!/usr/bin/env python3
"""Analyze the sessions of multi-GPU training: comparison, communication, report."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from trackers.cli.scripts import analyze_logs, run

if __name__ == "__main__":
    run(analyze_logs.NAME, analyze_logs.main)
