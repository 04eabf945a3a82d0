"""Samples of the machine under the names, and in the units, of each tracker's own system view.

Ours are W&B's (``system.gpu.0.powerWatts``, docs/hardware.md). What a tracker has no name for keeps its own, in small
letters and underscores as the tracker writes names, below ``system/`` or as a path.

Samples of the machine that lay in a tracker's own names and units, as they were (``backends/system_names.py``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Literal, TypeVar

import msgspec

from trackers.records import SYSTEM_PREFIX, Metrics, Number, Record

GIB = float(1 << 30)
MIB = float(1 << 20)
_GPU = re.compile(r"(?P<node>node\d+\.)?gpu\.(?P<label>.+)\.(?P<field>\w+)")
_JOB = re.compile(
    r"gpu/(?P<node>node\d+/)?(?P<field>(compute_util|memory_util|sm_active|tensor_active|memory_active)_avg"
    r"|memory_used_(avg|total)_gb|memory_total_gb|power_total_w|temp_max_c|energy_total_j)(?P<range>\.min|\.max)?"
)
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_HOST = re.compile(r"(?P<node>node\d+\.)?(?P<field>.+)")

# trackio/gpu.py and trackio/cpu.py: memory in GiB, memory_usage from 0 to 1.
TRACKIO_GPU = {
    "gpu": ("utilization", 1.0),
    "memory": ("memory_utilization", 1.0),
    "memoryAllocated": ("memory_usage", 0.01),
    "memoryAllocatedBytes": ("allocated_memory", 1 / GIB),
    "powerWatts": ("power", 1.0),
    "powerPercent": ("power_percent", 1.0),
    "enforcedPowerLimitWatts": ("power_limit", 1.0),
    "temp": ("temp", 1.0),
    "smClock": ("sm_clock", 1.0),
    "memoryClock": ("memory_clock", 1.0),
    "energyJoules": ("energy_consumed", 1.0),
    "fanSpeed": ("fan_speed", 1.0),
    "pcieTxBytes": ("pcie_tx", 1 / MIB),
    "pcieRxBytes": ("pcie_rx", 1 / MIB),
    "correctedMemoryErrorsVolatile": ("corrected_memory_errors", 1.0),
    "uncorrectedMemoryErrorsVolatile": ("uncorrected_memory_errors", 1.0),
}
TRACKIO_HOST = {
    "cpu": ("cpu/utilization", 1.0),
    "memory_percent": ("memory/percent", 1.0),
    "memory_used_gb": ("memory/used", 1e9 / GIB),
}

TRACKIO_JOB = {
    "compute_util_avg": ("mean_utilization", 1.0),
    "memory_used_total_gb": ("total_allocated_memory", 1e9 / GIB),
    "power_total_w": ("total_power", 1.0),
    "temp_max_c": ("max_temp", 1.0),
}

# mlflow/system_metrics/metrics/*.py: megabytes of 1e6 bytes.
MLFLOW_GPU = {
    "gpu": ("utilization_percentage", 1.0),
    "memoryAllocated": ("memory_usage_percentage", 1.0),
    "memoryAllocatedBytes": ("memory_usage_megabytes", 1e-6),
    "powerWatts": ("power_usage_watts", 1.0),
    "powerPercent": ("power_usage_percentage", 1.0),
}
MLFLOW_HOST = {
    "cpu": ("cpu_utilization_percentage", 1.0),
    "memory_percent": ("system_memory_usage_percentage", 1.0),
    "memory_used_gb": ("system_memory_usage_megabytes", 1e3),
    "disk.usagePercent": ("disk_usage_percentage", 1.0),
    "disk.usageGB": ("disk_usage_megabytes", 1e3),
    "disk.availableGB": ("disk_available_megabytes", 1e3),
    "network.recv": ("network_receive_megabytes", 1e-6),
    "network.sent": ("network_transmit_megabytes", 1e-6),
}

# wandb-symon, of wandb 0.31: GiB and MiB; the filesystem "/".
WANDB = {
    "disk.usagePercent": ("disk./.usagePercent", 1.0),
    "disk.usageGB": ("disk./.usageGB", 1e9 / GIB),
    "proc.memory.rssMB": ("proc.memory.rssMB", 1e6 / MIB),
}
_FROM_WANDB = {theirs: (ours, factor) for ours, (theirs, factor) in WANDB.items()}
_OF_AGENT = re.compile(
    r"cpu|memory_percent|proc\.memory\.rssMB|network\.(sent|recv)|disk\./\.usage(Percent|GB)"
    r"|gpu\.\d+\.(gpu|memory(Allocated(Bytes)?|Clock)?|temp|powerWatts|powerPercent|enforcedPowerLimitWatts|smClock)"
)
"""What it and our sampler both say. Its energy counts from another beginning."""

LAST = "~system/"
"""What TensorBoard sorts behind training's groups."""

SAMPLE = "a sample of the machine"
"""TensorBoard's description of such a scalar: what else is called ``system/…`` is somebody's metric."""

Named = tuple[str, float]
Placement = Literal["all", "training", "apart"]
Value = TypeVar("Value")


def is_machine(record: Record, name: str) -> bool:
    """Whether a value is one of the machine's samples: at no step, under our names for them."""
    return record.step is None and (name.startswith(SYSTEM_PREFIX) or is_job(name))


def is_job(name: str) -> bool:
    """Whether a name is one of those that sum up a job's GPUs (``gpu/power_total_w``)."""
    return name.startswith("gpu/") and _JOB.fullmatch(name) is not None


def grouped(values: Mapping[str, Value], group: str = "system/") -> dict[str, Value]:
    """The machine's values below ``system/``, where trackers make groups of what stands before a slash."""
    return {
        f"{group}{name.removeprefix(SYSTEM_PREFIX)}" if name.startswith(SYSTEM_PREFIX) or is_job(name) else name: value
        for name, value in values.items()
    }


def ungrouped(name: str) -> str:
    """A name that :func:`grouped` gave, as it was."""
    plain = name.removeprefix("~").removeprefix("system/")
    return plain if is_job(plain) else SYSTEM_PREFIX + plain


def placed(record: Record, machine: Placement, wish: str) -> list[Record]:
    """A record as a tracker with a place for the machine gets it: its samples apart from training's values.

    Args:
        machine: what the tracker says (:attr:`trackers.tracker.Tracker.machine`). wish: TRACKER_GPU_METRICS.
    """
    if type(record) is not Metrics or machine == "all" or wish == "training":
        return [record]
    samples = {
        name: value
        for name, value in record.values.items()
        if is_job(name) or (record.step is None and name.startswith(SYSTEM_PREFIX))
    }
    if not samples:
        return [record]
    others = {name: value for name, value in record.values.items() if name not in samples}
    if wish != "ranges":
        samples = {name: value for name, value in samples.items() if not name.endswith((".min", ".max"))}
    if machine == "training":
        return [msgspec.structs.replace(record, values=others | samples)]
    apart = msgspec.structs.replace(record, step=None, values=samples)
    return [apart] if not others else [msgspec.structs.replace(record, values=others), *([apart] if samples else [])]


def trackio(values: Mapping[str, Number]) -> dict[str, Number]:
    """Values as trackio's system metrics have them: ``gpu/0/power``."""
    return _renamed(values, trackio_name)


def mlflow(values: Mapping[str, Number]) -> dict[str, Number]:
    """Values as MLflow's system metrics have them: ``system/gpu_0_power_usage_watts``."""
    return _renamed(values, mlflow_name)


def wandb(values: Mapping[str, Number], *, agent: bool = False) -> dict[str, Number]:
    """Samples as W&B's own agent says them, without ``system.``: ``gpu.0.powerWatts``.

    Args:
        agent: it sampled for the run, too: only names that it has, or there would be charts of a point or two.
    """
    renamed = {}
    for name, value in values.items():
        plain = name.removeprefix(SYSTEM_PREFIX)
        theirs, factor = WANDB.get(plain, (plain, 1.0))
        if not agent or _OF_AGENT.fullmatch(theirs):
            renamed[theirs] = value if factor == 1.0 else value * factor
    return renamed


def from_wandb(name: str, value: Number) -> tuple[str, Number]:
    """One of these samples as it was logged, without ``system.``."""
    ours, factor = _FROM_WANDB.get(name, (name, 1.0))
    return ours, restored(value, factor)


def trackio_name(name: str) -> Named:
    """What trackio calls a value, and what it is multiplied with there."""
    return _name(name, _trackio)


def mlflow_name(name: str) -> Named:
    """What MLflow calls a value, and what it is multiplied with there."""
    return _name(name, _mlflow)


def restored(value: Number, factor: float) -> Number:
    """A value that was multiplied with a factor, as it was; of several that give the same product the shortest."""
    if factor == 1.0 or not math.isfinite(value):
        return value
    quotient = value / factor
    short = float(f"{quotient:.15g}")
    return short if short * factor == value else quotient


def _renamed(values: Mapping[str, Number], rename: Callable[[str], Named]) -> dict[str, Number]:
    renamed: dict[str, Number] = {}
    for name, value in values.items():
        new, factor = rename(name)
        renamed[new] = value if factor == 1.0 else value * factor
    return renamed


def _name(name: str, rename: Callable[[str], Named]) -> Named:
    if not name.startswith(SYSTEM_PREFIX) and not is_job(name):
        return name, 1.0
    plain, end = name.removeprefix(SYSTEM_PREFIX), ""
    for suffix in (".min", ".max"):
        if plain.endswith(suffix):
            plain, end = plain.removesuffix(suffix), suffix.replace(".", "_")
    new, factor = rename(plain)
    return new + end, factor


def _trackio(plain: str) -> Named:
    job = _JOB.fullmatch(plain)
    if job is not None:
        field, factor = TRACKIO_JOB.get(job["field"], (job["field"], 1.0))
        return f"gpu/{job['node'] or ''}{field}", factor
    gpu = _GPU.fullmatch(plain)
    if gpu is not None:
        field, factor = TRACKIO_GPU.get(gpu["field"], (_snake(gpu["field"]), 1.0))
        return f"{_folder(gpu['node'])}gpu/{gpu['label']}/{field}", factor
    host = _HOST.fullmatch(plain)
    assert host is not None
    # Of three parts the first two would be one of the devices that its page lists.
    path = host["field"].replace(".", "/", 1).replace(".", "_")
    field, factor = TRACKIO_HOST.get(host["field"], (_snake(path), 1.0))
    return f"{_folder(host['node'])}{field}", factor


def _mlflow(plain: str) -> Named:
    job = _JOB.fullmatch(plain)
    if job is not None:
        return f"system/{job['node'] or ''}gpu_{job['field']}", 1.0
    gpu = _GPU.fullmatch(plain)
    if gpu is not None:
        field, factor = MLFLOW_GPU.get(gpu["field"], (_snake(gpu["field"]), 1.0))
        return f"system/{_folder(gpu['node'])}gpu_{gpu['label']}_{field}", factor
    host = _HOST.fullmatch(plain)
    assert host is not None
    field, factor = MLFLOW_HOST.get(host["field"], (_snake(host["field"].replace(".", "_")), 1.0))
    return f"system/{_folder(host['node'])}{field}", factor


def _snake(name: str) -> str:
    """``proc_memory_rssMB`` as ``proc_memory_rss_mb``."""
    return _WORD.sub("_", name).lower()


def _folder(node: str | None) -> str:
    return f"{node.removesuffix('.')}/" if node else ""


NAMES = {"mlflow": mlflow_name, "trackio": trackio_name}


def is_sample(name: str, step: int | None) -> bool:
    """Whether a value is a sample of the machine."""
    return step is None and (name.startswith(SYSTEM_PREFIX) or is_job(name))


def back(values: Mapping[str, Number], names: Mapping[str, str], tracker: str) -> dict[str, Number]:
    """Values by a tracker's names for them, as they were logged.

    Args:
        names: its names, and ours; what isn't there has kept its own.
    """
    return {
        names.get(name, name): restored(value, NAMES[tracker](names[name])[1] if name in names else 1.0)
        for name, value in values.items()
    }


def returned(values: Mapping[str, Number], tracker: str) -> dict[str, Number]:
    """Samples as they come back from a tracker: a long number's last digit can change with its unit."""
    if not tracker:
        return dict(values)
    factors = {name: NAMES[tracker](name)[1] for name in values}
    return {
        name: value if factors[name] == 1.0 else restored(value * factors[name], factors[name])
        for name, value in values.items()
    }
