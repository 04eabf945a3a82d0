"""W&B's dialect: scripts that say ``import wandb`` run unchanged against this package.

``import trackers as wandb`` needs this package only for W&B's own names (:mod:`trackers.as_wandb.names`).
:func:`install_as_wandb` and ``python -m trackers.as_wandb script.py`` answer ``import wandb`` itself.
"""

from __future__ import annotations

from trackers.as_wandb.replacement import install_as_wandb, uninstall

__all__ = ["install_as_wandb", "uninstall"]
