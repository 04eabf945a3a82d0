"""A run's speed, by the definitions of :mod:`trackers.benchmark.speed`, and what it used: GPUs, memory, energy."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from trackers.analysis import gpu_report
from trackers.analysis.gpu_series import POWER
from trackers.analysis.statistics import durations, weighted
from trackers.benchmark.speed import (
    FIRST_STEP,
    KINDS,
    WINDOWED,
    Counted,
    Meter,
    PositiveMean,
    Rate,
    Speed,
    StepTimes,
    figures,
    marks_of,
)
from trackers.metrics import roles
from trackers.readers.columns import STEPLESS, Block
from trackers.records import finite

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
) -> Speed:
    """A run's speed.

    Args:
        starts: when each attempt began. config: flat. summary: results by name. gpus: how many trained it.
    """
    return figures(meter(blocks, starts), config, summary, gpus)


def meter(blocks: Sequence[Block], starts: Sequence[float]) -> Meter:
    """What :class:`Meter` takes record by record, of whole columns; records of one step may be parted anyhow."""
    found = Meter()
    starts = [*starts]
    for attempt, step, time, marks in _marks(blocks, starts):
        breaks = found.clock.breaks
        found.clock.add(attempt, step, time, marks)
        if found.clock.breaks > breaks:
            starts.append(time)
    starts.sort()
    named = _named(blocks)
    alone = {number: int(step) for number, step, _, _ in _points(named.get(FIRST_STEP, []), starts)}
    beside: dict[tuple[int, int], float] = {}
    rated = []
    for name in sorted(named):
        role = roles.role_of(name)
        kind = role.kind if role is not None else ""
        if role is None or kind not in KINDS:
            continue
        points = _points(named[name], starts, role.factor)
        if kind == roles.STEP_TIME:
            timed = found.timed[name] = StepTimes()
            for attempt, step, _, value in points:
                timed.add(attempt, step, value, alone.get(attempt))
                beside.setdefault((attempt, step), timed.weight_s)
        elif kind == roles.BATCH:
            batches = found.batches[name] = PositiveMean()
            for _, _, _, value in points:
                batches.add(value)
        elif kind in (roles.SAMPLES_COUNTED, roles.TOKENS_COUNTED):
            counted = found.counted.setdefault(kind, {})[name] = Counted()
            for attempt, step, _, value in points:
                counted.add(attempt, step, value)
        else:
            rated.append((kind, name, points))
    for kind, name, points in rated:
        rate = found.rates.setdefault(kind, {})[name] = Rate()
        for attempt, step, time, value in points:
            near = None if name.startswith(WINDOWED) else beside.get((attempt, step))
            rate.add(attempt, time, value, near)
    return found


def _named(blocks: Sequence[Block]) -> dict[str, list[tuple[Any, Any, Any]]]:
    """Times, steps and values of the metrics that say something about speed, where they were logged with a step."""
    found: dict[str, list[tuple[Any, Any, Any]]] = {}
    for block in blocks:
        for place, name in enumerate(block.names):
            role = roles.role_of(name)
            if name == FIRST_STEP or (role is not None and role.kind in KINDS):
                there = block.steps != STEPLESS
                found.setdefault(name, []).append((block.times[there], block.steps[there], block.values[there, place]))
    return found


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


def _marks(blocks: Sequence[Block], starts: Sequence[float]) -> list[tuple[int, int, float, int]]:
    """Attempt, step and time of each record, and what it says of the time."""
    import numpy as np

    parts: list[tuple[Any, Any, Any]] = []
    for block in blocks:
        marks, there = marks_of(block.names), block.steps != STEPLESS
        if marks and there.any():
            parts.append((block.times[there], block.steps[there], np.full(int(there.sum()), marks, np.int64)))
    return [(attempt, step, time, int(marks)) for attempt, step, time, marks in _points(parts, starts)]


def use(
    blocks: Sequence[Block], starts: Sequence[float], config: Mapping[str, Any], summary: Mapping[str, Any]
) -> ResourceUse:
    """What a run used of its GPUs; arguments as for :func:`speed`."""
    named = dict(_by_role(blocks))
    found = ResourceUse()
    for kind in (roles.GPU_UTILISATION, roles.ONE_GPU_UTILISATION):
        means = [weighted(p.values, _weights(p.times, starts)) for p in named.get(kind, [])]
        known = [value for value in means if value is not None]
        if known:
            found.gpu_percent = math.fsum(known) / len(known)
            break
    for kind, word in ((roles.DEVICE_MEMORY, "device"), (roles.ONE_DEVICE_MEMORY, "device"),
                       (roles.TORCH_MEMORY, "torch"), (roles.RESERVED_MEMORY, "reserved")):  # fmt: skip
        peaks = [peak for points in named.get(kind, []) if (peak := _peak(points.values)) is not None]
        if peaks:
            found.memory_gb, found.memory_kind = max(peaks), word
            break
    else:
        found.memory_gb, found.memory_kind = _stated_memory(config, summary)
    kwh = [float(value) for name, value in summary.items()
           if name.startswith("energy/") and name.endswith("total_kwh") and _number(value)]  # fmt: skip
    counted = [last for points in named.get(roles.ENERGY, []) if (last := _last(points.values)) is not None]
    if kwh:
        found.energy_j = math.fsum(kwh) * J_PER_KWH
    elif counted:
        found.energy_j = math.fsum(counted)
    else:
        found.energy_j = _energy_of_each(blocks)
    return found


def _energy_of_each(blocks: Sequence[Block]) -> float | None:
    """All GPUs' joules by what was sampled of each: W&B's agent, MLflow and trackio give no total."""
    import numpy as np

    gpus: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for block in blocks:
        for place, name in enumerate(block.names):
            sample = gpu_report.sampled(name)
            if sample is None:
                continue
            gpu, field, factor = sample
            points = gpus.setdefault(gpu, {}).setdefault(field, [])
            if field in (gpu_report.ENERGY, POWER):
                there = np.isfinite(block.values[:, place])
                values = block.values[there, place] * factor
                points += zip(block.times[there].tolist(), values.tolist(), strict=True)
    parts = [gpu_report.energy(fields)[0] for fields in gpus.values()]
    known = [part for part in parts if part is not None]
    return math.fsum(known) if known and len(known) == len(parts) else None


def _by_role(blocks: Sequence[Block]) -> Iterator[tuple[str, list[_Points]]]:
    """The series that say something about speed or use, in SI units, by what they say."""
    import numpy as np

    found: dict[str, dict[str, list[tuple[Any, Any, Any]]]] = {}
    for block in blocks:
        for place, name in enumerate(block.names):
            role = roles.role_of(name)
            if role is not None:
                values = block.values[:, place] * role.factor
                found.setdefault(role.kind, {}).setdefault(name, []).append((block.times, block.steps, values))
    for kind, names in found.items():
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
    """Memory that a benchmark result states, and its kind; its ``gb`` are GiB where it says so."""
    factor = roles.GIB if summary.get("unit") == "GiB" else 1.0
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


def _last(values: Any) -> float | None:
    import numpy as np

    finite = values[np.isfinite(values)]
    return float(finite[-1]) if len(finite) else None
