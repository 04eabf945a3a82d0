#!/usr/bin/env python3
"""Compare benchmark results: winner, hardware, configuration, throughput, step times, memory."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from trackers.analysis import benchmark_compare
from trackers.cli import scripts

if __name__ == "__main__":
    scripts.run(benchmark_compare.NAME, benchmark_compare.main)
