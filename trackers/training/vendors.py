"""The vendors' own packages inside training: where something answers imports of their names, it steps aside."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

own: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext
"""Within this context ``import wandb`` gives the installed package; ``install_as_wandb`` changes it."""
