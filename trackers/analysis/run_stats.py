"""Statistics of a run for comparisons, small enough to be cached for thousands of runs.

Speed is by the definitions of :mod:`trackers.benchmark.speed`, with what the run used: GPUs, memory, energy.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from trackers import records
from trackers.analysis import gpu_report
from trackers.analysis.gpu_report import POWER
from trackers.analysis.statistics import durations, weighted
from trackers.benchmark.speed import (
    FIRST_STEP,
    KINDS,
    TRAINED,
    BatchMean,
    Counted,
    Meter,
    Speed,
    StepTimes,
    figures,
    flags_of,
    training_gpus,
)
from trackers.metrics import roles
from trackers.metrics.definitions import Definitions
from trackers.metrics.groups import group_of
from trackers.readers.columns import STEPLESS, Block
from trackers.readers.reader import SourceRun
from trackers.records import Config, Define, Environment, Finish, Info, Record, Start, Summary, finite, plain_name

J_PER_KWH = 3.6e6


class ResourceUse(msgspec.Struct):
    """gpu_percent: utilisation, averaged over time and GPUs. memory_gb: the peak of one GPU, GB of 1e9 bytes.

    memory_kind: "device" (all that is in use there), "torch" (what PyTorch allocated) or "reserved" (what it held for
    that); "" unknown. energy_j: of all GPUs; None where one of them doesn't tell its part.
    """

    gpu_percent: float | None = None
    memory_gb: float | None = None
    memory_kind: str = ""
    energy_j: float | None = None


class _Points(NamedTuple):
    """A series in the order of time; steps are :data:`STEPLESS` where there are none."""

    times: Any
    steps: Any
    values: Any


def speed(
    blocks: Sequence[Block],
    starts: Sequence[float],
    config: Mapping[str, Any],
    summary: Mapping[str, Any],
    gpus: int | None,
    worlds: Sequence[int] = (),
) -> Speed:
    """A run's speed.

    Args:
        starts: when each attempt began; worlds: on how many ranks each, 0 if unknown. config: flat. summary: results by
            name. gpus: how many trained it.
    """
    return figures(meter(blocks, starts, worlds), config, summary, gpus)


def meter(blocks: Sequence[Block], starts: Sequence[float], worlds: Sequence[int] = ()) -> Meter:
    """A :class:`Meter` filled from columns instead of records; records of one step may be in several blocks."""
    result = Meter(worlds=sorted(set(worlds)))
    began, starts = starts, [*starts]

    def world(time: float) -> int:
        return worlds[max(0, bisect.bisect_right(began, time) - 1)] if worlds else 0

    for attempt, step, time, flags in _flagged_points(blocks, starts):
        breaks = result.clock.breaks
        result.clock.add(attempt, step, time, flags)
        if result.clock.breaks > breaks:
            starts.append(time)
    starts.sort()
    named = _speed_series(blocks)
    first_steps = {number: int(step) for number, step, _, _ in _points(named.get(FIRST_STEP, []), starts)}
    beside: dict[tuple[int, int], dict[str, float]] = {}
    rated = []
    for name in sorted(named):
        role = roles.role_of(name)
        kind = role.kind if role is not None else ""
        if role is None or kind not in KINDS:
            continue
        points = _points(named[name], starts, role.factor)
        if kind == roles.STEP_TIME:
            timed = result.timed[name] = StepTimes()
            for attempt, step, _, value in points:
                timed.add(attempt, step, value, first_steps.get(attempt))
                beside.setdefault((attempt, step), {})[name] = timed.weight_s
        elif kind == roles.BATCH:
            batches = result.batches[name] = BatchMean()
            for attempt, step, _, value in points:
                batches.add(attempt, step, value)
        elif kind in (roles.SAMPLES_COUNTED, roles.TOKENS_COUNTED):
            counted = result.counted.setdefault(kind, {})[name] = Counted()
            for attempt, step, _, value in points:
                counted.add(attempt, step, value)
        else:
            rated.append((kind, name, points))
    for kind, name, points in rated:
        for attempt, step, time, value in points:
            result.rate(kind, name, attempt, step, time, value, world(time), beside.get((attempt, step), {}))
    if result.changed:
        for attempt, step, time, flags in _flagged_points(blocks, starts):
            if flags & TRAINED:
                result.work(attempt, step, time, world(time), beside.get((attempt, step), {}))
    return result


def _speed_series(blocks: Sequence[Block]) -> dict[str, list[tuple[Any, Any, Any]]]:
    """Times, steps and values of the metrics that say something about speed, where they were logged with a step."""
    parts: dict[str, list[tuple[Any, Any, Any]]] = {}
    for block in blocks:
        for column, name in enumerate(block.names):
            role = roles.role_of(name)
            if name == FIRST_STEP or (role is not None and role.kind in KINDS):
                stepped = block.steps != STEPLESS
                parts.setdefault(name, []).append(
                    (block.times[stepped], block.steps[stepped], block.values[stepped, column])
                )
    return parts


def _points(
    parts: Sequence[tuple[Any, Any, Any]], starts: Sequence[float], factor: float = 1.0
) -> list[tuple[int, int, float, float]]:
    """Attempt, step, time and value of each point of a series, in the order of time."""
    import numpy as np

    if not parts:
        return []
    times, steps, values = (np.concatenate([part[k] for part in parts]) for k in range(3))
    order = np.lexsort((steps, times))  # MLflow's milliseconds hold many steps, not in their order
    times = times[order]
    columns = (_attempts(times, starts), steps[order], times, values[order] * factor if factor != 1 else values[order])
    return list(zip(*(column.tolist() for column in columns), strict=True))


def _flagged_points(blocks: Sequence[Block], starts: Sequence[float]) -> list[tuple[int, int, float, int]]:
    """Attempt, step and time of each record, and what it says of the time."""
    import numpy as np

    parts: list[tuple[Any, Any, Any]] = []
    for block in blocks:
        flags, stepped = flags_of(block.names), block.steps != STEPLESS
        if flags and stepped.any():
            parts.append((block.times[stepped], block.steps[stepped], np.full(int(stepped.sum()), flags, np.int64)))
    return [(attempt, step, time, int(flags)) for attempt, step, time, flags in _points(parts, starts)]


def use(
    blocks: Sequence[Block], starts: Sequence[float], config: Mapping[str, Any], summary: Mapping[str, Any]
) -> ResourceUse:
    """What a run used of its GPUs; arguments as for :func:`speed`."""
    named = dict(_by_role(blocks))
    usage = ResourceUse()
    for kind in (roles.GPU_UTILISATION, roles.ONE_GPU_UTILISATION):
        means = [weighted(p.values, _weights(p.times, starts)) for p in named.get(kind, [])]
        known = [value for value in means if value is not None]
        if known:
            usage.gpu_percent = math.fsum(known) / len(known)
            break
    for kind, word in ((roles.DEVICE_MEMORY, "device"), (roles.ONE_DEVICE_MEMORY, "device"),
                       (roles.TORCH_MEMORY, "torch"), (roles.RESERVED_MEMORY, "reserved")):  # fmt: skip
        peaks = [peak for points in named.get(kind, []) if (peak := _peak(points.values)) is not None]
        if peaks:
            usage.memory_gb, usage.memory_kind = max(peaks), word
            break
    else:
        usage.memory_gb, usage.memory_kind = _stated_memory(config, summary)
    kwh = [float(value) for name, value in summary.items()
           if name.startswith("energy/") and name.endswith("total_kwh") and _number(value)]  # fmt: skip
    counted = [last for points in named.get(roles.ENERGY, []) if (last := _last_finite(points.values)) is not None]
    if kwh:
        usage.energy_j = math.fsum(kwh) * J_PER_KWH
    elif counted:
        usage.energy_j = math.fsum(counted)
    else:
        usage.energy_j = _energy_of_each(blocks)
    return usage


def _energy_of_each(blocks: Sequence[Block]) -> float | None:
    """All GPUs' joules by what was sampled of each: W&B's agent, MLflow and trackio give no total."""
    import numpy as np

    gpus: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for block in blocks:
        for column, name in enumerate(block.names):
            sample = gpu_report.sampled(name)
            if sample is None:
                continue
            gpu, field, factor = sample
            points = gpus.setdefault(gpu, {}).setdefault(field, [])
            if field in (gpu_report.ENERGY, POWER):
                finite = np.isfinite(block.values[:, column])
                values = block.values[finite, column] * factor
                points += zip(block.times[finite].tolist(), values.tolist(), strict=True)
    parts = [gpu_report.energy(fields)[0] for fields in gpus.values()]
    known = [part for part in parts if part is not None]
    return math.fsum(known) if known and len(known) == len(parts) else None


def _by_role(blocks: Sequence[Block]) -> Iterator[tuple[str, list[_Points]]]:
    """The series that say something about speed or use, in SI units, by what they say."""
    import numpy as np

    by_kind: dict[str, dict[str, list[tuple[Any, Any, Any]]]] = {}
    for block in blocks:
        for column, name in enumerate(block.names):
            role = roles.role_of(name)
            if role is not None:
                values = block.values[:, column] * role.factor
                by_kind.setdefault(role.kind, {}).setdefault(name, []).append((block.times, block.steps, values))
    for kind, names in by_kind.items():
        series = []
        for parts in names.values():
            times, steps, values = (np.concatenate([part[k] for part in parts]) for k in range(3))
            order = np.lexsort((steps, times))  # MLflow's milliseconds hold many steps, not in their order
            series.append(_Points(times[order], steps[order], values[order]))
        yield kind, series


def _attempts(times: Any, starts: Sequence[float]) -> Any:
    """The number of the attempt that each time lies in; 0 before the first start."""
    import numpy as np

    return np.searchsorted(np.asarray(starts, np.float64), times, side="right")


def _weights(times: Any, starts: Sequence[float]) -> Any:
    """What each value counts: the seconds it speaks for; all the same where times don't differ."""
    import numpy as np

    seconds = durations(times, starts)
    return seconds if (seconds > 0).any() else np.ones(len(times))


def _stated_memory(config: Mapping[str, Any], summary: Mapping[str, Any]) -> tuple[float | None, str]:
    """Memory that a benchmark result states, and its kind; its ``gb`` are GiB unless it says GB."""
    factor = 1.0 if summary.get("unit") == "GB" else roles.GIB
    for name in ("peak_memory_allocated_gb", "avg_memory_allocated_gb"):
        value = _positive(summary.get(name))
        if value is not None:
            return value * factor, str(summary.get("kind") or "")
    return None, ""


def _positive(value: Any) -> float | None:
    return float(value) if _number(value) and 0 < value < math.inf else None


def _number(value: Any) -> bool:
    return finite(value) is not None


def _peak(values: Any) -> float | None:
    import numpy as np

    finite = values[np.isfinite(values)]
    return float(finite.max()) if len(finite) else None


def _last_finite(values: Any) -> float | None:
    import numpy as np

    finite = values[np.isfinite(values)]
    return float(finite[-1]) if len(finite) else None


LOG_NAMES = "log.names."
"""Prefix of a console log's own names of metrics (docs/console-logs.md); these aren't settings."""
VERSION = 7
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


class RunKey(msgspec.Struct, kw_only=True):
    """The part of a run's :class:`RunStats` that tells which run it is. The rest isn't decoded, its ``folds`` only
    when they are asked for."""

    source: str
    id: str
    project: str = ""
    created: float = 0.0
    status: str = ""
    raw: msgspec.Raw = msgspec.field(name="folds", default=msgspec.Raw(b"\x80"))

    @property
    def folds(self) -> dict[str, Any]:
        """The metrics by name."""
        return msgspec.msgpack.decode(self.raw, type=dict[str, Any])


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
    stats = RunStats(**{name: getattr(run, name) for name in _SHARED})
    stats.status = status or run.status
    config: dict[str, Any] = {}
    begun: dict[int, float] = {}
    worlds: dict[int, int] = {}
    machine: dict[str, Any] = {}
    world = 0
    for record in others:
        match record:
            case Config():
                records.merge(config, record.values, record.whole)
            case Summary():
                records.take_results(stats.summary, record)
                stats.summary.update((plain_name(name), _comparable(value)) for name, value in record.values.items())
            case Info():
                for name, value in record.changes().items():
                    setattr(stats, name, value)
            case Start() if record.rank is not None:
                begun[record.attempt] = min(begun.get(record.attempt, record.time), record.time)
                stats.attempts = max(stats.attempts, record.attempt)
                world = max(world, record.world_size)
                worlds[record.attempt] = record.world_size or worlds.get(record.attempt, 0)
            case Environment():
                records.merge(machine, record.values)
            case Finish():
                stats.status = record.status
    stats.summary = {name: value for name, value in stats.summary.items() if value is not None}
    stats.config = {
        name: _comparable(value) for name, value in records.flatten(config, ".") if not name.startswith(LOG_NAMES)
    }
    stats.folds = folds(blocks)
    stats.goals = _goals([record for record in others if isinstance(record, Define)], list(stats.folds))
    text = roles.first_setting(stats.config, roles.GPU_NAMES, (str,)) or machine.get("gpu")
    stats.gpu_name = str(text) if isinstance(text, str) else ""
    stats.gpus = _gpus(stats, world, machine)
    of_start = {time: worlds[attempt] for attempt, time in sorted(begun.items())}
    starts = sorted(of_start)
    ranks = [of_start[time] for time in starts]
    stats.speed = speed(blocks, starts, stats.config, stats.summary, stats.gpus, ranks)
    stats.use = use(blocks, starts, stats.config, stats.summary)
    stats.steps = stats.speed.last_step
    stats.loss, stats.iterations = _loss(blocks)
    stats.avg_mfu = _mfu(blocks)
    return stats


_SHARED = ("source", "id", "name", "project", "group", "tags", "notes", "created", "note")


def folds(blocks: Sequence[Block]) -> dict[str, MetricStats]:
    """Each metric's fold, in the order of first appearance."""
    import numpy as np

    metrics: dict[str, MetricStats] = {}
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
        for column, name in enumerate(block.names):
            fold = metrics.setdefault(name, MetricStats())
            fold.count += size
            fold.nans += nans[column]
            if first is not None and last is not None:
                fold.first_step = first if fold.first_step is None else min(fold.first_step, first)
                fold.last_step = last if fold.last_step is None else max(fold.last_step, last)
            if int(block.rows[end]) > newest.get(name, -1):
                newest[name] = int(block.rows[end])
                fold.last = float(block.values[end, column])
            if nans[column] < size:
                _extremes(fold, ends.setdefault(name, []), block, column, low_at[column], high_at[column])
                totals.setdefault(name, []).append((sums[column], size - nans[column]))
    for name, parts in totals.items():
        total = sum(part for part, _ in parts)
        metrics[name].mean = total / sum(count for _, count in parts)
    return metrics


def _extremes(
    fold: MetricStats, ends: list[tuple[float, int]], block: Block, column: int, low_at: int, high_at: int
) -> None:
    """Take a block's smallest and largest value, if they are: of equal ones the first logged.

    Args:
        ends: the smallest and the largest so far, each with its row; empty at first.
    """
    low, high = ((float(block.values[at, column]), int(block.rows[at])) for at in (low_at, high_at))
    if not ends or low < ends[0]:
        fold.low, fold.low_step = low[0], _step(block, low_at)
    if not ends or (-high[0], high[1]) < (-ends[1][0], ends[1][1]):
        fold.high, fold.high_step = high[0], _step(block, high_at)
    extremes = ends or [low, high]
    ends[:] = [min(low, extremes[0]), min(high, extremes[1], key=lambda end: (-end[0], end[1]))]


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
    parts = []
    for block in blocks:
        if name in block.names:
            stepped = block.steps != STEPLESS
            parts.append((block.steps[stepped], block.values[stepped, block.names.index(name)]))
    return parts


def _goals(defined: list[Define], names: list[str]) -> dict[str, str]:
    """Whether the largest or the smallest value of a metric is the best, as its definition says it."""
    definitions = Definitions()
    for define in defined:
        definitions.define(define)
    goals: dict[str, str] = {}
    for name in dict.fromkeys((*names, *(define.name for define in defined))):
        found = definitions.known(name)
        if found is not None:
            ends = [word for word in found.summary if word in ("min", "max")]
            goal = {"minimize": "min", "maximize": "max"}.get(found.goal or "") or (ends[0] if len(ends) == 1 else "")
            goals |= {name: goal} if goal else {}
    return goals


def _gpus(stats: RunStats, world: int, machine: Mapping[str, Any]) -> int | None:
    cards = machine.get("gpus")
    named = sum(isinstance(card, dict) for card in cards.values()) if isinstance(cards, dict) else 0
    sampled = {
        name.removesuffix("_utilization_percentage").rpartition(".")[0] or name for name in stats.folds if _is_gpu(name)
    }
    on_gpus = bool(stats.gpu_name) or any(group_of(name) == "gpu" for name in stats.folds)
    return training_gpus(stats.config, world, max(named, len(sampled)), on_gpus)


def _is_gpu(name: str) -> bool:
    role = roles.role_of(name)
    return role is not None and role.kind == roles.ONE_GPU_UTILISATION


def _comparable(value: Any) -> Any:
    """A setting or result as a comparison can hold it: a number, a truth value or a text; None for nothing."""
    if value is None or isinstance(value, (bool, int, float)):
        if isinstance(value, int) and value.bit_length() > 63:  # msgpack has no larger integers
            return float(value) if value.bit_length() < 1000 else str(value.bit_length()) + " bits"
        return value
    if isinstance(value, str):
        return records.FLOAT_NAMES.get(value, value[:LONGEST])
    return msgspec.json.encode(records.name_floats(value)).decode()[:LONGEST]
