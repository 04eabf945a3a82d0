"""Groups of metrics: each name belongs to exactly one, by the name alone.

The rules, the first that fits:

- final: names below ``final/``, as results are.
- gpu: below ``gpu/``, ``system.gpu.``, ``system/gpu_`` (MLflow), ``gpu.0.``, and what ends in ``/gpu`` (``power/gpu``);
  device memory by its driver's word (``hip mem usage``) or Megatron's (``memory/mem-allocated-gigabytes``).
- system: what else lies below ``system``, ``cpu``, ``disk``, ``network``, ``proc`` or ``host``, and W&B's own
  columns (``_step``, ``_runtime``, ``_timestamp``).
- validation: names with one of the words val, valid, validation, eval, evaluation, test in them.
- training: all others. A rate per GPU (``throughput per GPU (TFLOP/s/GPU)``) is one of training's.

Settings that say where training ends, whichever program chose their names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from trackers.records import finite

GROUPS = ("training", "validation", "gpu", "system", "final")
"""All groups, in the order in which they are shown."""

TITLES = {"training": "Training", "validation": "Validation", "gpu": "GPU", "system": "System", "final": "Final"}

_GPU = re.compile(
    r"(system[./])?(gpus?|cuda|rocm|nvidia|nvml|amdsmi)([./_:]|\d|$)"
    r"|.*[./]gpu$"
    r"|(hip|rocm|cuda|gpu|device)[ _-]mem"
    r"|mem usages?$"
    r"|memory/mem-",
    re.IGNORECASE,
)
_SYSTEM = re.compile(r"(system|cpu|disk|network|proc|process|host)([./_]|$)|_(step|runtime|timestamp|wandb)$", re.I)
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_VALIDATION = frozenset({"val", "valid", "validation", "eval", "evaluation", "test"})


def group_of(name: str) -> str:
    """The group of a metric's name, one of :data:`GROUPS`."""
    if name.startswith("final/"):
        return "final"
    if _GPU.match(name):
        return "gpu"
    if _SYSTEM.match(name):
        return "system"
    if any(word.lower() in _VALIDATION for word in _WORDS.findall(name)):
        return "validation"
    return "training"


def grouped(names: Iterable[str]) -> dict[str, list[str]]:
    """Names by group, each once, sorted; groups without names are there, empty."""
    groups: dict[str, list[str]] = {group: [] for group in GROUPS}
    for name in sorted(set(names)):
        groups[group_of(name)].append(name)
    return groups


STEPS = ("train_iters", "max_iters", "max_steps", "total_steps", "num_steps", "train_steps", "num_train_steps",
         "num_training_steps", "max_train_steps", "training_steps", "total_iters", "total_iterations",
         "num_iterations", "n_steps", "max_iter", "steps", "iterations")  # fmt: skip
"""The first that is there counts."""
TOTAL = "total_steps"
"""Name under which a training loop records the total, if no setting gives it."""


def steps(config: Mapping[str, Any]) -> int | None:
    """The step at which training ends, by a nested configuration, or a flat one (``trainer.max_steps``); None where it
    doesn't say."""
    numbers: dict[str, float] = {}
    for name, value in _leaves(config):
        number = finite(value)
        if number is not None and number > 0:
            numbers.setdefault(name, value)
    return next((int(numbers[name]) for name in STEPS if name in numbers), None)


def _leaves(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from _leaves(value)
        else:
            yield str(name).rpartition(".")[2], value
