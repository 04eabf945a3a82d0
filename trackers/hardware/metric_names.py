"""Samples as metrics: their names, their units, and one number over a time for samples taken now and then.

``gpu/*`` sums up the job's GPUs; ``system.*`` are W&B's names for single GPUs and the host. GB and MB are 1e9 and 1e6
bytes everywhere. Percent are 0 to 100, clocks MHz, energy J, power W, temperatures °C.

A ``Window`` takes time-weighted means, minima, maxima and last values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from trackers.hardware.gpus.base import Gpu, Reading
from trackers.hardware.host import HostReading
from trackers.metrics.gpu_details import COUNTS


class SampleMean(msgspec.Struct):
    """Summary of one name's samples. weight_s: the time that they cover."""

    mean: float
    minimum: float
    maximum: float
    last: float
    weight_s: float


class Window:
    """Folds samples until it is closed. A name that a sample lacks has no part in that sample's time."""

    def __init__(self) -> None:
        self._folds: dict[str, SampleMean] = {}
        self.samples = 0

    def add(self, values: Mapping[str, float], weight_s: float) -> None:
        """Take one sample, which speaks for ``weight_s`` seconds, more than 0."""
        self.samples += 1
        for name, value in values.items():
            fold = self._folds.get(name)
            if fold is None:
                self._folds[name] = SampleMean(value, value, value, value, weight_s)
                continue
            total_s = fold.weight_s + weight_s
            # As a step from the mean so far, which stays between minimum and maximum whatever the weights.
            mean = fold.mean + (value - fold.mean) * (weight_s / total_s)
            fold.minimum, fold.maximum = min(fold.minimum, value), max(fold.maximum, value)
            fold.mean = min(max(mean, fold.minimum), fold.maximum)
            fold.last, fold.weight_s = value, total_s

    def close(self) -> dict[str, SampleMean]:
        """What was folded, by name; the window is then empty."""
        folds, self._folds, self.samples = self._folds, {}, 0
        return folds


GB = 1e9
MB = 1e6
MHZ = 1e6

JOB = "gpu/"
MACHINE = "system."
ENERGY_TOTAL = "gpu/energy_total_j"

COUNTED = frozenset(
    {ENERGY_TOTAL, "energyJoules", "disk.in", "disk.out", "network.sent", "network.recv"}
    | {"gpu/memory_total_gb", "enforcedPowerLimitWatts"}
    | COUNTS
)
"""Counters and constants, by the end of their names: of these the last value counts, not the mean."""
RANGED = frozenset(
    {"gpu/compute_util_avg", "gpu/memory_util_avg", "gpu/memory_used_avg_gb", "gpu/memory_used_total_gb"}
    | {"gpu/power_total_w", "gpu/temp_max_c", "gpu", "memoryAllocatedBytes", "powerWatts", "temp"}
    | {"cpu", "memory_percent"}
)
"""Of these the smallest and the largest value are recorded too, as ``<name>.min`` and ``<name>.max``."""


def job_values(readings: Sequence[Reading], energy_j: float | None) -> dict[str, float]:
    """All the job's GPUs in one: means over those that tell, sums only where each tells its part."""
    values = {
        "gpu/compute_util_avg": _mean(readings, lambda r: r.compute_frac, 100),
        "gpu/memory_util_avg": _mean(readings, lambda r: r.memory_busy_frac, 100),
        "gpu/memory_used_avg_gb": _mean(readings, lambda r: r.memory_used_bytes, 1 / GB),
        "gpu/memory_used_total_gb": _sum(readings, lambda r: r.memory_used_bytes, 1 / GB),
        "gpu/memory_total_gb": _sum(readings, lambda r: r.memory_total_bytes, 1 / GB),
        "gpu/power_total_w": _sum(readings, lambda r: r.power_w, 1),
        "gpu/temp_max_c": max((r.temp_c for r in readings if r.temp_c is not None), default=None),
        "gpu/sm_active_avg": _mean(readings, lambda r: r.details.get("smActive"), 1),
        "gpu/tensor_active_avg": _mean(readings, lambda r: r.details.get("pipeTensorActive"), 1),
        "gpu/memory_active_avg": _mean(readings, lambda r: r.details.get("dramActive"), 1),
        ENERGY_TOTAL: energy_j,
    }
    return {name: value for name, value in values.items() if value is not None}


def gpu_properties(
    readings: Sequence[Reading], label: Callable[[Gpu], str], node: int | None = None
) -> dict[str, dict[str, object]]:
    """Properties of each GPU, by its label: ``name``, ``vendor``, ``memory_total_bytes``, ``architecture``, ``cores``,
    ``cuda`` (its driver's newest version), ``uuid`` and ``bus`` (its address), those that it reports.

    Args:
        node: the machine's number, before the label, where there are several.
    """
    described = {}
    for reading in readings:
        gpu = reading.gpu
        values: dict[str, object] = {
            "name": gpu.name,
            "vendor": gpu.vendor,
            "memory_total_bytes": reading.memory_total_bytes or 0,
            "architecture": gpu.architecture,
            "cores": gpu.cores,
            "cuda": gpu.cuda,
            "uuid": gpu.uuid,
            "bus": "{:08X}:{:02X}:{:02X}.0".format(*gpu.bus) if gpu.bus else "",
        }
        described[label(gpu) if node is None else f"node{node}.{label(gpu)}"] = {k: v for k, v in values.items() if v}
    return described


def gpu_values(reading: Reading, energy_j: float | None, prefix: str) -> dict[str, float]:
    """One GPU, by W&B's names after ``prefix`` ("system.gpu.0.")."""
    used, total = reading.memory_used_bytes, reading.memory_total_bytes
    power, limit = reading.power_w, reading.power_limit_w
    values: dict[str, float | None] = {
        "gpu": _scaled(reading.compute_frac, 100),
        "memory": _scaled(reading.memory_busy_frac, 100),
        "memoryAllocated": None if used is None or not total else used / total * 100,
        "memoryAllocatedBytes": used,
        "temp": reading.temp_c,
        "powerWatts": reading.power_w,
        "powerPercent": power / limit * 100 if power is not None and limit else None,
        "enforcedPowerLimitWatts": reading.power_limit_w,
        "smClock": _scaled(reading.sm_clock_hz, 1 / MHZ),
        "memoryClock": _scaled(reading.memory_clock_hz, 1 / MHZ),
        "energyJoules": energy_j,
    }
    return {prefix + name: value for name, value in (values | reading.details).items() if value is not None}


def user_values(reading: Reading, job: Callable[[int], bool | None], prefix: str) -> dict[str, float]:
    """How many processes use a GPU, and their memory in bytes.

    Args:
        job: whether a process is the training job's; None where that can't be known, as in a container whose driver
            counts processes as the host does. Then only their number is recorded.
    """
    if reading.users is None:
        return {}
    values = {"processes": len(reading.users)}
    belongs = {pid: job(pid) for pid in reading.users}
    if None not in belongs.values():
        ours = {pid: used for pid, used in reading.users.items() if belongs[pid]}
        values["otherProcesses"] = len(reading.users) - len(ours)
        others = {pid: used for pid, used in reading.users.items() if not belongs[pid]}
        for name, memory in (("jobMemoryBytes", ours), ("otherMemoryBytes", others)):
            known = [used for used in memory.values() if used is not None]
            if len(known) == len(memory):  # a sum without a part would be too small
                values[name] = sum(known)
    return {prefix + name: float(value) for name, value in values.items()}


def host_values(host: HostReading, prefix: str = MACHINE) -> dict[str, float]:
    """The host, by W&B's names after ``prefix``. ``proc.cpu`` is 100 for each core that training keeps busy."""
    values: dict[str, float | None] = {
        "cpu": _scaled(host.cpu_frac, 100),
        "memory_percent": _scaled(host.memory_frac, 100),
        "memory_used_gb": _scaled(host.memory_used_bytes, 1 / GB),
        "proc.memory.rssMB": _scaled(host.process_rss_bytes, 1 / MB),
        "proc.cpu": _scaled(host.process_cpu_frac, 100),
        "disk.usagePercent": _scaled(host.disk_used_frac, 100),
        "disk.usageGB": _scaled(host.disk_used_bytes, 1 / GB),
        "disk.availableGB": _scaled(host.disk_free_bytes, 1 / GB),
        "disk.in": _scaled(host.disk_read_bytes, 1 / MB),
        "disk.out": _scaled(host.disk_written_bytes, 1 / MB),
        "network.sent": host.network_sent_bytes,
        "network.recv": host.network_received_bytes,
    }
    return {prefix + name: value for name, value in values.items() if value is not None}


def node_prefix(node: int, nodes: int) -> str:
    """What the machine's names begin with: they carry the node where there are several."""
    return MACHINE if nodes <= 1 else f"{MACHINE}node{node}."


def recorded(folds: Mapping[str, SampleMean]) -> dict[str, float]:
    """What is recorded of an interval: means, last values of counters, and the range where that says something."""
    values: dict[str, float] = {}
    for name, fold in folds.items():
        if _is_kind(name, COUNTED):
            values[name] = fold.last
            continue
        values[name] = fold.mean
        if _is_kind(name, RANGED):
            values[f"{name}.min"], values[f"{name}.max"] = fold.minimum, fold.maximum
    return values


def _is_kind(name: str, kinds: frozenset[str]) -> bool:
    if name.startswith(JOB):
        return name in kinds
    field = name.rpartition(".")[2]
    return field in kinds or ".".join(name.split(".")[-2:]) in kinds


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _mean(readings: Sequence[Reading], of: Callable[[Reading], float | None], factor: float) -> float | None:
    values = [value for reading in readings if (value := of(reading)) is not None]
    return sum(values) / len(values) * factor if values else None


def _sum(readings: Sequence[Reading], of: Callable[[Reading], float | None], factor: float) -> float | None:
    values = [of(reading) for reading in readings]
    known = [value for value in values if value is not None]
    return sum(known) * factor if known and len(known) == len(values) else None
