"""The best runs by a metric."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from trackers import records
from trackers.analysis.comparison import differing_settings
from trackers.analysis.run_stats import RunStats
from trackers.analysis.where import RunFilter
from trackers.errors import NotFound, UsageError
from trackers.records import plain_name

MODES = ("min", "max")


class Ranked(msgspec.Struct):
    """run: its facts. value: its best. step: where it had it; None for results. config: what differs among all."""

    run: RunStats
    value: float
    step: int | None
    config: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        run = {name: getattr(self.run, name) for name in ("source", "id", "name", "project", "group", "tags", "status")}
        found = {**run, "value": self.value, "step": self.step, "config": self.config}
        return dict(records.name_floats(found))


def best(
    runs: Sequence[RunStats], metric: str, mode: str | None = None, where: str | None = None, top: int | None = 1
) -> list[Ranked]:
    """Runs in order of a metric, the best first.

    Args:
        metric: a result (``final/best_val_loss``), or a logged metric, of which each run's best value counts.
        mode: "min" or "max"; None: as ``define_metric`` said, else by the name.
        where: a condition on runs (:mod:`trackers.analysis.where`).
        top: so many; None: all.

    Raises:
        UsageError: a mode that isn't known or can't be told, a condition that can't be read.
        NotFound: no run fulfils the condition, or none of them has a number under that name.
    """
    if mode not in (None, *MODES):
        raise UsageError(f"unknown mode {mode!r}: known are {', '.join(MODES)}")
    chosen = [run for run in runs if condition(run)] if where and (condition := RunFilter(where)) else list(runs)
    if not chosen:
        raise NotFound(f"none of {len(runs)} runs fulfils {where!r}{_unknown(runs, where)}" if where else "no runs")
    if not any(metric in run.folds or plain_name(metric) in run.summary for run in chosen):
        raise NotFound(_nothing(chosen, metric))
    mode = mode or next((word for run in chosen if (word := run.direction(plain_name(metric)))), None)
    if mode is None:
        raise UsageError(f"is a small or a large {metric!r} better? Give --mode min or --mode max")
    found = [(value, step, run) for run in chosen for value, step in _value(run, metric, mode)]
    if not found:
        raise NotFound(_nothing(chosen, metric))
    found.sort(key=lambda entry: entry[0], reverse=mode == "max")
    settings = differing_settings([run.config for _, _, run in found])
    return [
        Ranked(run, value, step, {name: run.config[name] for name in settings if name in run.config})
        for value, step, run in found[:top]
    ]


def _value(run: RunStats, metric: str, mode: str) -> list[tuple[float, int | None]]:
    """The run's value and its step, if it has a number that isn't NaN."""
    fold = run.folds.get(metric)
    if fold is not None:
        value, step = (fold.low, fold.low_step) if mode == "min" else (fold.high, fold.high_step)
    else:
        value, step = run.summary.get(plain_name(metric)), None
    known = isinstance(value, (int, float)) and not isinstance(value, bool) and value == value
    return [(value, step)] if known and value is not None else []


def _unknown(runs: Sequence[RunStats], where: str) -> str:
    """Of a condition that nobody fulfils, the first setting that no run has, and what there is instead."""
    settings = sorted({name for run in runs for name in run.config})
    for name in re.findall(r"\bconfig\.([A-Za-z_][\w.]*)", where):
        if name not in settings:
            near = difflib.get_close_matches(name, settings, n=3, cutoff=0.4) or settings[:10]
            return f": no run has the setting {name!r}; there is {', '.join(near) or 'none'}"
    return ""


def _nothing(runs: Sequence[RunStats], metric: str) -> str:
    names = sorted({name for run in runs for name in (*run.folds, *(f"final/{result}" for result in run.summary))})
    if metric in names:
        return f"{metric!r} is nowhere a number in {len(runs)} runs"
    near = difflib.get_close_matches(metric, names, n=3, cutoff=0.4) or names[:10]
    return f"no run of {len(runs)} has {metric!r}; there is {', '.join(near) or 'no metric at all'}"
