"""The figures of a metric and the quantities of a run that are compared, and which values of them are better."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from trackers import records
from trackers.analysis.run_stats import RunStats

SPEEDS = ("steps_per_s", "samples_per_s", "tokens_per_s")

FIGURES = ("final", "best", "last", "min", "max")
"""Figures of a metric. final: the result of its name. best: by ``define_metric``, else by its name."""

QUANTITIES = (
    ("steps/s", "steps_per_s"), ("clock", "speed_basis"), ("wall steps/s", "wall_steps_per_s"),
    ("samples/s", "samples_per_s"), ("tokens/s", "tokens_per_s"), ("GPUs", "gpus"),
    ("GPU", "gpu_name"), ("GPU utilisation %", "gpu_percent"), ("peak memory per GPU GB", "memory_gb"),
    ("memory kind", "memory_kind"), ("energy J", "energy_j"), ("speed-up", "speedup"),
    ("efficiency %", "efficiency_percent"),
)  # fmt: skip

TITLES = {name: title for title, name in QUANTITIES}
"""Headers of quantities by their names in JSON, SQL and conditions."""

_MORE_IS_BETTER = (*SPEEDS, "wall_steps_per_s", "gpu_percent", "speedup", "efficiency_percent")


def better(quantity: str) -> str | None:
    """Whether small ("min") or large ("max") values of a quantity are better; None where neither are."""
    return "max" if quantity in _MORE_IS_BETTER else "min" if quantity == "energy_j" else None


def best_of(values: Sequence[Any], goal: str | None) -> set[int]:
    """Indices of the best values; empty if no value is better, or all are the same."""
    if goal is None:
        return set()
    numbers = {index: number for index, value in enumerate(values) if (number := records.finite(value)) is not None}
    if len(set(numbers.values())) < 2:
        return set()
    best = min(numbers.values()) if goal == "min" else max(numbers.values())
    return {index for index, number in numbers.items() if number == best}


def goals_of(runs: Sequence[RunStats], keys: Sequence[str]) -> dict[str, str]:
    """Which of these metrics have better values, and whether these are small ("min") or large ("max") ones."""
    goals = {key: next((goal for run in runs if (goal := run.direction(records.plain_name(key)))), "") for key in keys}
    return {key: goal for key, goal in goals.items() if goal}


def speedup(samples_per_s: float | None, baseline: float | None) -> float | None:
    """How many times as fast; None where either is unknown or zero."""
    if not samples_per_s or not baseline or not math.isfinite(samples_per_s) or not math.isfinite(baseline):
        return None
    return samples_per_s / baseline


def efficiency(times: float | None, gpus: float | None, baseline_gpus: float | None = 1) -> float | None:
    """Speed-up ÷ GPUs × 100; with a baseline of several GPUs, by how many times as many there are."""
    if times is None or not gpus or not baseline_gpus:
        return None
    return times / (gpus / baseline_gpus) * 100


def is_ranked(figure: str, goal: str | None) -> bool:
    """Whether the best of a metric's figures says which run is best: not the largest loss of each."""
    return goal is not None and figure in ("final", "best", "last", goal)


def titled(key: str, figure: str) -> str:
    """What a table calls a figure of a metric; a result is called by its own name."""
    return key if key.startswith("final/") else f"{key} {figure}"
