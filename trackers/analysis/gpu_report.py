"""GPU metrics of a run from any source: W&B's agent, MLflow, trackio, and this package's own samples.

GB are 1e9 bytes, as everywhere here. Averages are weighted by time; the total's maximum is the maximum of the sum
over time. What wasn't sampled is absent, never 0. Any number of GPUs; those of several nodes are told apart.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from trackers.errors import NotFound
from trackers.records import Metrics, Record

Point = tuple[float, float]
"""Time (Unix seconds) and value."""

_GPU = re.compile(
    r"system[./](?P<node>node\d+\.)?gpu\.(?!process\.)(?P<gpu>[^.]+)\.(?P<field>\w+?)(?P<end>\.max|\.min)?"
)
MEMORY, MEMORY_FRACTION, COMPUTE, POWER, TEMPERATURE = (
    "memoryAllocatedBytes",
    "memoryAllocated",
    "gpu",
    "powerWatts",
    "temp",
)
"""W&B's fields, bytes, % of the GPU's memory, %, W and °C. Its ``memory`` is % of the memory's bandwidth."""


class Stats(msgspec.Struct):
    """current: the last sample. average: weighted by time. maximum: of samples, or of what a sampler saw between."""

    current: float
    average: float
    maximum: float


class GpuSeries:
    """Series by GPU and field. ``others``: series of other metrics, by name (``gpu/compute_util_avg``)."""

    def __init__(self) -> None:
        self.series: dict[str, dict[str, list[Point]]] = {}
        self.others: dict[str, list[Point]] = {}
        self._peaks: dict[tuple[str, str], float] = {}

    def gather(self, records: Iterable[Record], *, others: str = "gpu/") -> GpuSeries:
        """Take samples in; ``others``: what names of other metrics begin with."""
        for record in records:
            if isinstance(record, Metrics):
                for name, value in record.values.items():
                    with contextlib.suppress(OverflowError):  # an integer beyond all doubles samples nothing
                        if math.isfinite(value):
                            self._add(name, record.time, float(value), others)
        return self

    @property
    def names(self) -> list[str]:
        """GPUs in the order of their numbers, node by node."""
        return sorted(self.series, key=_numbers)

    def stats(self, gpu: str, field: str) -> Stats | None:
        """A GPU's figures of a field; None where it wasn't sampled."""
        points = self.series[gpu].get(field)
        return stats(points, self._peaks.get((gpu, field))) if points else None

    def total(self, field: str) -> Stats | None:
        """The figures of the sum over all GPUs that have the field: its maximum is of the sum, over time."""
        all_points = [fields[field] for fields in self.series.values() if field in fields]
        return stats(summed(all_points)) if all_points else None

    def _add(self, name: str, time: float, value: float, others: str) -> None:
        match = _GPU.fullmatch(name)
        if match is None:
            if name.startswith(others):
                self.others.setdefault(name, []).append((time, value))
            return
        gpu = f"{match['node'] or ''}{match['gpu']}"
        if match["end"] is None:
            self.series.setdefault(gpu, {}).setdefault(match["field"], []).append((time, value))
        elif match["end"] == ".max":
            key = gpu, match["field"]
            self._peaks[key] = max(value, self._peaks.get(key, value))


def field_of(name: str) -> tuple[str, str] | None:
    """The GPU and the field of a sample's name; None for other names, and for extremes (``.max``)."""
    match = _GPU.fullmatch(name)
    return None if match is None or match["end"] else (f"{match['node'] or ''}{match['gpu']}", match["field"])


def stats(points: Sequence[Point], peak: float | None = None) -> Stats:
    """The figures of one series; it isn't empty."""
    ordered = sorted(points, key=lambda point: point[0])
    highest = max(value for _, value in ordered)
    return Stats(ordered[-1][1], average(ordered), highest if peak is None else max(highest, peak))


def average(points: Sequence[Point]) -> float:
    """The mean over time of points in order: each stands for half the time to its neighbours."""
    times = [time for time, _ in points]
    weights = [(times[min(index + 1, len(times) - 1)] - times[max(index - 1, 0)]) / 2 for index in range(len(times))]
    whole = math.fsum(weights)
    if whole <= 0:
        return math.fsum(value for _, value in points) / len(points)
    return math.fsum(weight * value for weight, (_, value) in zip(weights, points, strict=True)) / whole


def summed(series: Sequence[Sequence[Point]]) -> list[Point]:
    """The sum of series over time: at each time of any of them, of their last values, once all have one."""
    steps = sorted(
        ((time, number, value) for number, points in enumerate(series) for time, value in points),
        key=lambda step: step[0],
    )
    last: dict[int, float] = {}
    sums: list[Point] = []
    for index, (time, number, value) in enumerate(steps):
        last[number] = value
        same_time = index + 1 < len(steps) and steps[index + 1][0] == time
        if len(last) == len(series) and not same_time:
            sums.append((time, math.fsum(last.values())))
    return sums


def as_json(figures: Mapping[str, Stats | None]) -> dict[str, dict[str, float]]:
    """Figures by name for machines; one that is None is left out."""
    return {name: msgspec.structs.asdict(stats) for name, stats in figures.items() if stats is not None}


def _numbers(name: str) -> list[tuple[int, int | str]]:
    return [(0, int(part)) if part.isdigit() else (1, part) for part in re.split(r"(\d+)", name) if part]


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
    reports = GpuReports(gpus={name: _report(gpus, name) for name in gpus.names})
    reports.logged = {name: stats(points) for name, points in sorted(gpus.others.items())}
    if not reports.gpus and not reports.logged:
        raise NotFound(
            f"no GPU metrics found in {run}: was it sampled (trackers doctor shows whether GPUs are seen, "
            "nvidia-ml-py or amdsmi must be installed)? `trackers keys` lists what it has"
        )
    if len(reports.gpus) > 1:
        reports.total = GpuReport(memory=gpus.total(MEMORY), power=gpus.total(POWER))
        energies = [report.energy_j for report in reports.gpus.values() if report.energy_j is not None]
        reports.total.energy_j = sum(energies) if len(energies) == len(reports.gpus) else None
        reports.total.energy_from = (
            "power" if any(r.energy_from == "power" for r in reports.gpus.values()) else "counter"
        )
    return reports


def sampled(name: str) -> tuple[str, str, float] | None:
    """Which GPU and which of W&B's fields a metric's name says, whoever sampled it, and the factor to W&B's unit."""
    match = _MLFLOW.fullmatch(name) or _TRACKIO.fullmatch(name)
    if match is not None:
        return (match[1], *_OURS[match[2]]) if match[2] in _OURS else None
    field = field_of(name)
    return (*field, 1.0) if field is not None else None


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


def _report(gpus: GpuSeries, name: str) -> GpuReport:
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
