#!/usr/bin/env python3
"""List every metric of a W&B run."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from trackers.cli.scripts import inspect_wandb_keys, main

if __name__ == "__main__":
    main.run(inspect_wandb_keys.NAME, inspect_wandb_keys.main)
