#!/usr/bin/env python3
"""Extract a benchmark's result from a training log: ``benchmark_{platform}_{timestamp}.json``."""

import sys
from pathlib import Path

HOME = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(HOME), str(HOME / "plugins/trackers-console-logs")]

from trackers_console_logs import benchmark  # noqa: E402

from trackers.cli.scripts import run  # noqa: E402

if __name__ == "__main__":
    run(benchmark.EXTRACT, benchmark.extract)
