#!/usr/bin/env python3
"""Print a W&B run's GPU metrics, by W&B's system metrics: memory, utilisation, power, temperature."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from trackers.analysis import wandb_gpu
from trackers.cli import scripts

if __name__ == "__main__":
    scripts.run(wandb_gpu.SYSTEM, wandb_gpu.system)
