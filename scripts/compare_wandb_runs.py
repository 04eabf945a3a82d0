#!/usr/bin/env python3
"""Compare the GPU metrics of several W&B runs."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from trackers.cli.scripts import compare_wandb_runs, main

if __name__ == "__main__":
    main.run(compare_wandb_runs.NAME, compare_wandb_runs.main)
