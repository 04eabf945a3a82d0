#!/usr/bin/env python3
"""Extract a benchmark's result from a training log: ``benchmark_{platform}_{timestamp}.json``."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from trackers.cli.scripts import primus, run

if __name__ == "__main__":
    run(primus.EXTRACT, primus.extract)
