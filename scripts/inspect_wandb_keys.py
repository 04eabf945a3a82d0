#!/usr/bin/env python3
"""List every metric of a W&B run."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from trackers.analysis import wandb_keys
from trackers.cli import scripts

if __name__ == "__main__":
    scripts.run(wandb_keys.NAME, wandb_keys.main)
