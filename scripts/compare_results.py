#!/usr/bin/env python3
"""Compare benchmark results: winner, hardware, configuration, throughput, step times, memory."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from trackers.cli.scripts import compare_results, run

if __name__ == "__main__":
    run(compare_results.NAME, compare_results.main)
