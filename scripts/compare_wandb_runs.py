#!/usr/bin/env python3
"""Compare the GPU metrics of several W&B runs."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from trackers.analysis import wandb_compare
from trackers.cli import scripts

if __name__ == "__main__":
    scripts.run(wandb_compare.NAME, wandb_compare.main)
