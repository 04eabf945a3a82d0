#!/usr/bin/env python3
"""Compare the GPU metrics of several W&B runs."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from trackers.cli.scripts import run, wandb_runs

if __name__ == "__main__":
    run(wandb_runs.COMPARE, wandb_runs.compare)
