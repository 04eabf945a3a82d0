"""How fast a run trained and what it used: steps, samples and tokens per second, GPUs, memory, energy.

Speed is what was measured: time per step where the run logged it, else the wall clock between the first and the last
step of each attempt. Means are weighted by time, so that they are all samples over all seconds. The first value of an
attempt isn't counted where there are others: that step compiles and warms up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from trackers.analysis import gpu_report
from trackers.analysis.gpu_series import POWER
from trackers.analysis.statistics import durations, weighted
from trackers.naming import roles
from trackers.naming.groups import group_of
from trackers.readers.columns import STEPLESS, Block

TOLERANCE = 0.02
"""Two figures of the same thing that differ by less agree."""
J_PER_KWH = 3.6e6
MEASURED, WALL_CLOCK, STATED = "measured step time", "wall clock", "stated result"


class Speed(msgspec.Struct):
    """None where it can't be known. basis: what steps_per_s is made of. batch: samples of one step, of all GPUs.

    last_step: the last that training logged. seconds: training time between the first and the last step, pauses
    between attempts left out. remarks: what a reader must know.
    """

    steps_per_s: float | None = None
    samples_per_s: float | None = None
    tokens_per_s: float | None = None
    basis: str = ""
    batch: float | None = None
    length: float | None = None
    last_step: int | None = None
    seconds: float | None = None
    remarks: list[str] = []


class Use(msgspec.Struct):
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
    found = Speed()
    named = dict(_by_role(blocks))
    clock = _clock(blocks, starts)
    found.last_step, found.seconds = clock.last_step, clock.seconds or None
    per_step = _step_time(named.get(roles.STEP_TIME, []), starts)
    # A result of a benchmark has left its warm-up out already; its series has nothing more to leave out.
    stated = _positive(summary.get("avg_step_time_seconds"))
    if stated is not None:
        found.steps_per_s, found.basis = 1 / stated, STATED
    elif per_step is not None:
        found.steps_per_s, found.basis = 1 / per_step, MEASURED
    elif (stated := _positive(summary.get("steps_per_second"))) is not None:
        found.steps_per_s, found.basis = stated, STATED
    elif clock.seconds > 0 and clock.steps > 0:
        found.steps_per_s, found.basis = clock.steps / clock.seconds, WALL_CLOCK
    found.batch = _batch(named, config, gpus, found)
    found.length = roles.setting(config, roles.LENGTHS)
    found.samples_per_s = _rate(named, (roles.SAMPLES, roles.SAMPLES_PER_GPU, roles.SAMPLES_COUNTED), starts, gpus)
    if found.samples_per_s is None and found.batch is not None and found.steps_per_s is not None:
        found.samples_per_s = found.batch * found.steps_per_s
    if found.samples_per_s is None:
        found.samples_per_s = _stated(summary, ("samples_per_second", "samples_per_sec", "train_samples_per_second"))
    _tokens(found, named, starts, summary, gpus)
    return found


def use(blocks: Sequence[Block], starts: Sequence[float], config: Mapping[str, Any], summary: Mapping[str, Any]) -> Use:
    """What a run used of its GPUs; arguments as for :func:`speed`."""
    named = dict(_by_role(blocks))
    found = Use()
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


class _Clock(NamedTuple):
    last_step: int | None
    steps: int
    seconds: float


def _clock(blocks: Sequence[Block], starts: Sequence[float]) -> _Clock:
    """The last step of training, and the steps and seconds between the first and last record of each attempt."""
    import numpy as np

    chosen = [block for block in blocks if any(group_of(name) in ("training", "validation") for name in block.names)]
    pairs = [(block.times[mask], block.steps[mask])
             for block in chosen if (mask := block.steps != STEPLESS).any()]  # fmt: skip
    if not pairs:
        return _Clock(None, 0, 0.0)
    times = np.concatenate([time for time, _ in pairs])
    steps = np.concatenate([step for _, step in pairs])
    attempt = _attempts(times, starts)
    taken, seconds = 0, 0.0
    for number in np.unique(attempt):
        mask = attempt == number
        first, last = int(times[mask].argmin()), int(times[mask].argmax())
        if steps[mask][last] > steps[mask][first]:
            taken += int(steps[mask][last] - steps[mask][first])
            seconds += float(times[mask][last] - times[mask][first])
    return _Clock(int(steps.max()), taken, seconds)


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


def _step_time(series: Sequence[_Points], starts: Sequence[float]) -> float | None:
    """Seconds of a step: each value speaks for the steps since the one before it."""
    import numpy as np

    if not series:
        return None
    points = max(series, key=lambda points: len(points.times))  # one name is logged more closely than the others
    attempt = _attempts(points.times, starts)
    fresh = np.concatenate([[True], attempt[1:] != attempt[:-1]])
    counts = np.maximum(np.diff(points.steps, prepend=points.steps[:1]), 1).astype(np.float64)
    counts[fresh] = 1.0
    usable = np.isfinite(points.values) & (points.values > 0)
    if (usable & ~fresh).any():
        counts[fresh] = 0.0
    return weighted(np.where(usable, points.values, np.nan), counts)


def _rate(
    named: Mapping[str, list[_Points]], kinds: tuple[str, str, str], starts: Sequence[float], gpus: int | None
) -> float | None:
    """All samples over all seconds: from rates, from rates per GPU, or from a counter."""
    direct, per_gpu, counted = kinds
    for kind, factor in ((direct, 1.0), (per_gpu, float(gpus) if gpus else None)):
        if factor is not None and named.get(kind):
            points = named[kind][0]
            found = weighted(points.values, _weights(points.times, starts, warm=True))
            if found is not None:
                return found * factor
    for points in named.get(counted, []):
        total, seconds = _counted(points, starts)
        if seconds > 0 and total > 0:
            return total / seconds
    return None


def _counted(points: _Points, starts: Sequence[float]) -> tuple[float, float]:
    import numpy as np

    attempt = _attempts(points.times, starts)
    same = attempt[1:] == attempt[:-1]
    grown = np.diff(points.values)
    passed = np.diff(points.times)
    counts = same & np.isfinite(grown) & (grown >= 0)
    return float(grown[counts].sum()), float(passed[counts].sum())


def _attempts(times: Any, starts: Sequence[float]) -> Any:
    """The number of the attempt that each time lies in; 0 before the first start."""
    import numpy as np

    return np.searchsorted(np.asarray(starts, np.float64), times, side="right")


def _weights(times: Any, starts: Sequence[float], warm: bool = False) -> Any:
    """What each value counts: the seconds it speaks for; all the same where times don't differ.

    Args:
        warm: leave out the first value of each attempt where there are others.
    """
    import numpy as np

    seconds = durations(times, starts)
    if warm and len(times) > 1:
        attempt = _attempts(times, starts)
        fresh = np.concatenate([[True], attempt[1:] != attempt[:-1]])
        if (seconds[~fresh] > 0).any():
            seconds = np.where(fresh, 0.0, seconds)
    return seconds if (seconds > 0).any() else np.ones(len(times))


def _batch(
    named: Mapping[str, list[_Points]], config: Mapping[str, Any], gpus: int | None, found: Speed
) -> float | None:
    for points in named.get(roles.BATCH, []):
        logged = weighted(points.values, points.values > 0)
        if logged:
            return logged
    said = roles.setting(config, roles.BATCHES)
    if said is not None:
        return said if said > 0 else None
    accumulated = roles.setting(config, ("gradient_accumulation_steps", "grad_accum", "accumulate_grad_batches")) or 1.0
    each = roles.setting(config, ("per_device_train_batch_size",))
    if each is not None and gpus:
        return each * accumulated * gpus
    batch = roles.setting(config, ("batch_size",))
    if batch is None or batch <= 0:
        return None
    if gpus is not None and gpus > 1:
        found.remarks.append(
            f"batch_size={batch:g} on {gpus} GPUs may be of each or of all: log global_batch_size to have samples/s"
        )
        return None
    return batch * accumulated


def _tokens(
    found: Speed,
    named: Mapping[str, list[_Points]],
    starts: Sequence[float],
    summary: Mapping[str, Any],
    gpus: int | None,
) -> None:
    """Tokens per second: as logged, else batch × length × steps/s, else as stated; a contradiction is remarked."""
    found.tokens_per_s = _rate(named, (roles.TOKENS, roles.TOKENS_PER_GPU, roles.TOKENS_COUNTED), starts, gpus)
    stated = _stated(summary, ("tokens_per_second", "tokens_per_sec"))
    if found.tokens_per_s is None and found.length and found.batch and found.steps_per_s:
        found.tokens_per_s = found.batch * found.length * found.steps_per_s
        if stated is not None and abs(stated - found.tokens_per_s) > TOLERANCE * stated:
            found.remarks.append(
                f"it states {stated:,.0f} tokens/s, but {found.batch:g} × {found.length:g} × {found.steps_per_s:.4g} "
                f"steps/s = {found.tokens_per_s:,.0f}: that is used (a length of "
                f"{stated / found.batch / found.steps_per_s:,.0f} would explain the other)"
            )
    if found.tokens_per_s is None:
        found.tokens_per_s = stated


def _stated(summary: Mapping[str, Any], names: tuple[str, ...]) -> float | None:
    return next((value for name in names if (value := _positive(summary.get(name))) is not None), None)


def _stated_memory(config: Mapping[str, Any], summary: Mapping[str, Any]) -> tuple[float | None, str]:
    """Document 0's result: its ``gb`` are GiB where it says so."""
    factor = roles.GIB if summary.get("unit") == "GiB" else 1.0
    for name in ("peak_memory_allocated_gb", "avg_memory_allocated_gb"):
        value = _positive(summary.get(name))
        if value is not None:
            return value * factor, str(summary.get("kind") or "")
    return None, ""


def _positive(value: Any) -> float | None:
    return float(value) if _number(value) and 0 < value < math.inf else None


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _peak(values: Any) -> float | None:
    import numpy as np

    finite = values[np.isfinite(values)]
    return float(finite.max()) if len(finite) else None


def _last(values: Any) -> float | None:
    import numpy as np

    finite = values[np.isfinite(values)]
    return float(finite[-1]) if len(finite) else None
