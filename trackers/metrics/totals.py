"""Settings that say where training ends, whichever program chose their names."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

STEPS = ("train_iters", "max_iters", "max_steps", "total_steps", "num_steps", "train_steps", "num_train_steps",
         "num_training_steps", "max_train_steps", "training_steps", "total_iters", "total_iterations",
         "num_iterations", "n_steps", "max_iter", "steps", "iterations")  # fmt: skip
"""The first that is there counts."""
TOTAL = "total_steps"
"""What a training loop records, where none of them is set."""


def steps(config: Mapping[str, Any]) -> int | None:
    """The step at which training ends, by a nested configuration, or a flat one (``trainer.max_steps``); None where it
    doesn't say."""
    found: dict[str, float] = {}
    for name, value in _leaves(config):
        if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value > 0:
            found.setdefault(name, value)
    return next((int(found[name]) for name in STEPS if name in found), None)


def _leaves(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from _leaves(value)
        else:
            yield str(name).rpartition(".")[2], value
