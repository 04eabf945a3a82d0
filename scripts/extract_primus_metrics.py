#!/usr/bin/env python3
"""Extract a benchmark's result from a training log: ``benchmark_{platform}_{timestamp}.json``."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from trackers.analysis import benchmark_log
from trackers.cli.scripts import main

if __name__ == "__main__":
    main.run(benchmark_log.NAME, benchmark_log.main)
