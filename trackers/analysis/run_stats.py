"""Statistics of a run for comparisons, small enough to be cached for thousands of runs."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Sequence
from typing import Any

import msgspec

from trackers import records
from trackers.analysis.speed import ResourceUse, speed, use
from trackers.benchmark.speed import Speed
from trackers.metrics import roles
from trackers.metrics.groups import group_of
from trackers.readers.columns import STEPLESS, Block
from trackers.readers.reader import SourceRun
from trackers.records import Config, Define, Environment, Finish, Info, Record, Start, Summary, plain_name

LOG_NAMES = "log.names."
"""Prefix of a console log's own names of metrics (docs/console-logs.md); these aren't settings."""
VERSION = 5
LONGEST = 2000
"""Results that are longer texts are cut: a comparison shows a line of them."""


class MetricStats(msgspec.Struct, array_like=True):
    """One metric's whole series. count: its values, nans of them NaN. last: as logged last; may be NaN.

    low, high, mean: of what isn't NaN (infinities count); None where all is. The steps: of the first value that is
    so low or high; None without steps.
    """

    count: int = 0
    nans: int = 0
    first_step: int | None = None
    last_step: int | None = None
    last: float | None = None
    low: float | None = None
    low_step: int | None = None
    high: float | None = None
    high_step: int | None = None
    mean: float | None = None


class RunStats(msgspec.Struct, kw_only=True):
    """One run.

    source, id, name, project, group, tags, notes, created, status, note: as :class:`SourceRun` has them.
    config: flat, nested names joined with ".". summary: results that are numbers, truth values or texts, by name
    without ``final/``. folds: by metric. goals: "min" or "max" by metric, where ``define_metric`` said so.
    steps: the last step of training. loss: the metric that is training's loss, "" where none is; iterations: steps at
    which it was logged. avg_mfu: the mean of what was measured: markers (-100, 0) and NaN are none. attempts: starts.
    gpus: how many trained it, None where nothing says.
    """

    source: str
    id: str
    name: str = ""
    project: str = ""
    group: str | None = None
    tags: list[str] = []
    notes: str | None = None
    created: float = 0.0
    status: str = ""
    note: str = ""
    config: dict[str, Any] = {}
    summary: dict[str, Any] = {}
    folds: dict[str, MetricStats] = {}
    goals: dict[str, str] = {}
    steps: int | None = None
    loss: str = ""
    iterations: int = 0
    avg_mfu: float | None = None
    attempts: int = 1
    gpus: int | None = None
    gpu_name: str = ""
    speed: Speed = msgspec.field(default_factory=Speed)
    use: ResourceUse = msgspec.field(default_factory=ResourceUse)

    def direction(self, name: str) -> str | None:
        """Which of a metric's values are better: as defined, else by its name; None where neither says."""
        return self.goals.get(name) or roles.direction(name)

    def value(self, name: str, what: str, mode: str | None = None) -> Any:
        """A figure of a metric: final, best, last, min or max; None where the run has none.

        ``final`` is the result of that name. Asking for any figure of ``final/x`` gives the result ``x``.

        Args:
            mode: "min" or "max": which is best; default :meth:`direction`'s.
        """
        if name.startswith(records.SUMMARY_PREFIX) or what == "final":
            return self.summary.get(plain_name(name))
        fold = self.folds.get(name)
        if fold is None:
            return None
        if what == "best":
            what = mode or self.direction(name) or ""
        return {"min": fold.low, "max": fold.high, "last": fold.last}.get(what)


def facts(run: SourceRun, blocks: Sequence[Block], others: Sequence[Record], status: str = "") -> RunStats:
    """Fold a run's metrics and other records.

    Args:
        status: where no record says how the run ended.
    """
    found = RunStats(**{name: getattr(run, name) for name in _SHARED})
    found.status = status or run.status
    config: dict[str, Any] = {}
    begun: dict[int, float] = {}
    machine: dict[str, Any] = {}
    world = 0
    for record in others:
        if isinstance(record, Config):
            records.merge(config, record.values)
        elif isinstance(record, Summary):
            found.summary.update({plain_name(name): _short(value) for name, value in record.values.items()})
        elif isinstance(record, Info):
            for field in ("name", "group", "tags", "notes"):
                if getattr(record, field) is not None:
                    setattr(found, field, getattr(record, field))
        elif isinstance(record, Start) and record.rank is not None:
            begun[record.attempt] = min(begun.get(record.attempt, record.time), record.time)
            found.attempts = max(found.attempts, record.attempt)
            world = max(world, record.world_size)
        elif isinstance(record, Environment):
            records.merge(machine, record.values)
        elif isinstance(record, Finish):
            found.status = record.status
    found.summary = {name: value for name, value in found.summary.items() if value is not None}
    found.config = {
        name: _short(value) for name, value in records.flatten(config, ".") if not name.startswith(LOG_NAMES)
    }
    found.folds = folds(blocks)
    found.goals = _goals([record for record in others if isinstance(record, Define)], list(found.folds))
    text = roles.said(found.config, roles.GPU_NAMES, (str,)) or machine.get("gpu")
    found.gpu_name = str(text) if isinstance(text, str) else ""
    found.gpus = _gpus(found, world)
    starts = sorted(set(begun.values()))
    found.speed = speed(blocks, starts, found.config, found.summary, found.gpus)
    found.use = use(blocks, starts, found.config, found.summary)
    found.steps = found.speed.last_step
    found.loss, found.iterations = _loss(blocks)
    found.avg_mfu = _mfu(blocks)
    return found


_SHARED = ("source", "id", "name", "project", "group", "tags", "notes", "created", "note")


def folds(blocks: Sequence[Block]) -> dict[str, MetricStats]:
    """Each metric's fold, in the order of first appearance."""
    import numpy as np

    found: dict[str, MetricStats] = {}
    newest: dict[str, int] = {}
    ends: dict[str, list[tuple[float, int]]] = {}
    totals: dict[str, list[tuple[float, int]]] = {}
    for block in sorted(blocks, key=lambda block: int(block.rows[0])):
        stepped = block.steps != STEPLESS
        steps = block.steps[stepped]
        first, last = (int(steps.min()), int(steps.max())) if len(steps) else (None, None)
        end = int(np.argmax(block.rows))
        absent = np.isnan(block.values)
        nans = absent.sum(axis=0).tolist()
        if any(nans):
            lows = np.where(absent, np.inf, block.values).min(axis=0)
            highs = np.where(absent, -np.inf, block.values).max(axis=0)
            low_at = (block.values == lows).argmax(axis=0).tolist()
            high_at = (block.values == highs).argmax(axis=0).tolist()
        else:
            low_at, high_at = block.values.argmin(axis=0).tolist(), block.values.argmax(axis=0).tolist()
        with np.errstate(over="ignore", invalid="ignore"):
            sums = (np.nansum(block.values, axis=0) if any(nans) else block.values.sum(axis=0)).tolist()
        size = len(block.rows)
        for place, name in enumerate(block.names):
            fold = found.setdefault(name, MetricStats())
            fold.count += size
            fold.nans += nans[place]
            if first is not None and last is not None:
                fold.first_step = first if fold.first_step is None else min(fold.first_step, first)
                fold.last_step = last if fold.last_step is None else max(fold.last_step, last)
            if int(block.rows[end]) > newest.get(name, -1):
                newest[name] = int(block.rows[end])
                fold.last = float(block.values[end, place])
            if nans[place] < size:
                _extremes(fold, ends.setdefault(name, []), block, place, low_at[place], high_at[place])
                totals.setdefault(name, []).append((sums[place], size - nans[place]))
    for name, parts in totals.items():
        total = sum(part for part, _ in parts)
        found[name].mean = total / sum(count for _, count in parts)
    return found


def _extremes(
    fold: MetricStats, ends: list[tuple[float, int]], block: Block, place: int, low_at: int, high_at: int
) -> None:
    """Take a block's smallest and largest value, if they are: of equal ones the first logged.

    Args:
        ends: the smallest and the largest so far, each with its row; empty at first.
    """
    low, high = ((float(block.values[at, place]), int(block.rows[at])) for at in (low_at, high_at))
    if not ends or low < ends[0]:
        fold.low, fold.low_step = low[0], _step(block, low_at)
    if not ends or (-high[0], high[1]) < (-ends[1][0], ends[1][1]):
        fold.high, fold.high_step = high[0], _step(block, high_at)
    kept = ends or [low, high]
    ends[:] = [min(low, kept[0]), min(high, kept[1], key=lambda end: (-end[0], end[1]))]


def _step(block: Block, at: int) -> int | None:
    step = int(block.steps[at])
    return None if step == STEPLESS else step


def _loss(blocks: Sequence[Block]) -> tuple[str, int]:
    """Training's loss, and at how many steps it was logged: of several names the one that is logged at the most steps,
    since an evaluation may repeat it under another."""
    import numpy as np

    counts = {name: len(np.unique(np.concatenate([steps for steps, _ in parts])))
              for name in roles.LOSSES if (parts := _values(blocks, name))}  # fmt: skip
    name = max(counts, key=lambda name: (counts[name], -roles.LOSSES.index(name)), default="")
    return name, counts.get(name, 0)


def _mfu(blocks: Sequence[Block]) -> float | None:
    import numpy as np

    for name in roles.MFUS:
        parts = _values(blocks, name)
        values = np.concatenate([values for _, values in parts]) if parts else np.zeros(0)
        values = values[np.isfinite(values) & (values > 0)]
        if len(values):
            return float(values.mean())
    return None


def _values(blocks: Sequence[Block], name: str) -> list[tuple[Any, Any]]:
    """Steps and values of a metric, where it was logged with a step."""
    found = []
    for block in blocks:
        if name in block.names:
            there = block.steps != STEPLESS
            found.append((block.steps[there], block.values[there, block.names.index(name)]))
    return found


def _goals(defined: list[Define], names: list[str]) -> dict[str, str]:
    goals: dict[str, str] = {}
    for define in defined:
        words = {"minimize": "min", "maximize": "max"}
        goal = words.get(define.goal or "") or next((word for word in define.summary if word in ("min", "max")), None)
        if goal is not None:
            goals.update(dict.fromkeys(fnmatch.filter([*names, define.name], define.name), goal))
    return goals


def _gpus(found: RunStats, world: int) -> int | None:
    said = roles.setting(found.config, roles.GPU_COUNTS)
    if said is not None and said >= 1 and math.isfinite(said):
        return int(said)
    sampled = {_one(name) for name in found.folds if _is_gpu(name)}
    on_gpus = sampled or found.gpu_name or any(group_of(name) == "gpu" for name in found.folds)
    return max(world, len(sampled)) or None if on_gpus or world > 1 else None


def _is_gpu(name: str) -> bool:
    role = roles.role_of(name)
    return role is not None and role.kind == roles.ONE_GPU_UTILISATION


def _one(name: str) -> str:
    return name.removesuffix("_utilization_percentage").rpartition(".")[0] or name


def _short(value: Any) -> Any:
    """A setting or result as a comparison can hold it: a number, a truth value or a text; None for nothing."""
    if value is None or isinstance(value, (bool, int, float)):
        if isinstance(value, int) and value.bit_length() > 63:  # msgpack has no larger integers
            return float(value) if value.bit_length() < 1000 else str(value.bit_length()) + " bits"
        return value
    if isinstance(value, str):
        known = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
        return known.get(value, value[:LONGEST])
    return msgspec.json.encode(records.name_floats(value)).decode()[:LONGEST]
