#!/usr/bin/env python3
"""Print a W&B run's GPU metrics, as its trainer logged them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from trackers.cli.scripts import run, wandb_runs

if __name__ == "__main__":
    run(wandb_runs.HISTORY, wandb_runs.history)
