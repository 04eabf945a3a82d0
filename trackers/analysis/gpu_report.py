"""GPU metrics of a run from any source: W&B's agent, MLflow, trackio, and this package's own samples.

GB are 1e9 bytes, as everywhere here. Averages are weighted by time; the total's maximum is the maximum of the sum
over time. What wasn't sampled is absent, never 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from trackers.analysis.gpu_series import (
    COMPUTE,
    MEMORY,
    MEMORY_FRACTION,
    POWER,
    TEMPERATURE,
    GpuSeries,
    Point,
    Stats,
    average,
    field_of,
)
from trackers.errors import NotFound
from trackers.records import Metrics, Record

GB = 1e9
GIB = float(1 << 30)
ENERGY = "energyJoules"

_MLFLOW = re.compile(r"system/gpu_(\d+)_(\w+)")
_TRACKIO = re.compile(r"gpu/(\d+)/(\w+)")
_OURS: dict[str, tuple[str, float]] = {
    # mlflow/system_metrics/metrics/gpu_monitor.py
    "utilization_percentage": (COMPUTE, 1),
    "memory_usage_megabytes": (MEMORY, 1e6),
    "memory_usage_percentage": (MEMORY_FRACTION, 1),
    "power_usage_watts": (POWER, 1),
    # trackio/gpu.py
    "utilization": (COMPUTE, 1),
    "allocated_memory": (MEMORY, GIB),
    "memory_usage": (MEMORY_FRACTION, 100),
    "power": (POWER, 1),
    "temp": (TEMPERATURE, 1),
    "energy_consumed": (ENERGY, 1),
}
"""The vendors' own names, and the factor to W&B's units."""


class GpuReport(msgspec.Struct):
    """One GPU, or all. memory: bytes; memory_percent; utilization: %; power: W; temperature: °C. energy_j: in all;
    integrated from the power where no counter was sampled (``energy_from``: "counter" or "power")."""

    memory: Stats | None = None
    memory_percent: Stats | None = None
    utilization: Stats | None = None
    power: Stats | None = None
    temperature: Stats | None = None
    energy_j: float | None = None
    energy_from: str = ""


class GpuReports(msgspec.Struct):
    """gpus: by number, with the node's where there are several. total: over all of them; None for a single one
    and where none was seen by itself. summed: what the trainer logged over all GPUs (``gpu/…``), by name."""

    gpus: dict[str, GpuReport] = {}
    total: GpuReport | None = None
    logged: dict[str, Stats] = {}


def gpu_report(records: Iterable[Record], run: str = "this run") -> GpuReports:
    """Figures of a run's GPUs.

    Raises:
        NotFound: it has none; the message says what to check.
    """
    gpus = GpuSeries().gather(_renamed(records))
    found = GpuReports(gpus={name: _one(gpus, name) for name in gpus.names})
    found.logged = {name: _stats(points) for name, points in sorted(gpus.others.items())}
    if not found.gpus and not found.logged:
        raise NotFound(
            f"no GPU metrics found in {run}: was it sampled (trackers doctor shows whether GPUs are seen, "
            "nvidia-ml-py or amdsmi must be installed)? `trackers keys` lists what it has"
        )
    if len(found.gpus) > 1:
        found.total = GpuReport(memory=gpus.total(MEMORY), power=gpus.total(POWER))
        energies = [report.energy_j for report in found.gpus.values() if report.energy_j is not None]
        found.total.energy_j = sum(energies) if len(energies) == len(found.gpus) else None
        found.total.energy_from = "power" if any(r.energy_from == "power" for r in found.gpus.values()) else "counter"
    return found


def sampled(name: str) -> tuple[str, str, float] | None:
    """Which GPU and which of W&B's fields a metric's name says, whoever sampled it, and the factor to W&B's unit."""
    match = _MLFLOW.fullmatch(name) or _TRACKIO.fullmatch(name)
    if match is not None:
        return (match[1], *_OURS[match[2]]) if match[2] in _OURS else None
    found = field_of(name)
    return (*found, 1.0) if found is not None else None


def _renamed(records: Iterable[Record]) -> Iterator[Record]:
    """Samples under W&B's names, whoever took them; everything else as it is."""
    for record in records:
        if not isinstance(record, Metrics):
            continue
        values: dict[str, Any] = {}
        for name, value in record.values.items():
            match = _MLFLOW.fullmatch(name) or _TRACKIO.fullmatch(name)
            if match is None:
                values[name] = value
            elif match[2] in _OURS:
                field, factor = _OURS[match[2]]
                values[f"system.gpu.{match[1]}.{field}"] = value * factor
        if values:
            yield Metrics(step=record.step, time=record.time, values=values)


def _one(gpus: GpuSeries, name: str) -> GpuReport:
    fields = gpus.series[name]
    report = GpuReport(
        memory=gpus.stats(name, MEMORY),
        memory_percent=gpus.stats(name, MEMORY_FRACTION),
        utilization=gpus.stats(name, COMPUTE),
        power=gpus.stats(name, POWER),
        temperature=gpus.stats(name, TEMPERATURE),
    )
    report.energy_j, report.energy_from = energy(fields)
    return report


def energy(fields: Mapping[str, Sequence[Point]]) -> tuple[float | None, str]:
    """Joules of one GPU by its series: from its counter, else from its power; and which. None and "" without either."""
    if fields.get(ENERGY):
        return counted(fields[ENERGY]), "counter"
    points = sorted(fields.get(POWER, ()))
    return (average(points) * (points[-1][0] - points[0][0]), "power") if len(points) > 1 else (None, "")


def counted(points: Iterable[Point]) -> float:
    """What a counter of joules came to: it begins anew where a job was restarted."""
    total = last = 0.0
    for _, value in sorted(points):
        total += value - last if value >= last else value
        last = value
    return total


def _stats(points: list[Point]) -> Stats:
    from trackers.analysis.gpu_series import stats

    return stats(points)
