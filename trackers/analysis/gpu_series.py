"""Metrics of single GPUs over time: series from samples, averages weighted by time, totals over all GPUs.

A value that wasn't sampled is absent, never 0. Any number of GPUs; those of several nodes are told apart.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

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
                            self._take(name, record.time, float(value), others)
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

    def _take(self, name: str, time: float, value: float, others: str) -> None:
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
    """The GPU and the field of a sample's name; None of what is none, and of extremes (``.max``)."""
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
    weights = [(times[min(place + 1, len(times) - 1)] - times[max(place - 1, 0)]) / 2 for place in range(len(times))]
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
    found: list[Point] = []
    for place, (time, number, value) in enumerate(steps):
        last[number] = value
        together = place + 1 < len(steps) and steps[place + 1][0] == time
        if len(last) == len(series) and not together:
            found.append((time, math.fsum(last.values())))
    return found


def as_json(found: Mapping[str, Stats | None]) -> dict[str, dict[str, float]]:
    """Figures by name for machines; what wasn't sampled is left out."""
    return {name: msgspec.structs.asdict(one) for name, one in found.items() if one is not None}


def _numbers(name: str) -> list[tuple[int, int | str]]:
    return [(0, int(part)) if part.isdigit() else (1, part) for part in re.split(r"(\d+)", name) if part]
