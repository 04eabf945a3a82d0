"""Meaning of metric names for a benchmark result; all other metrics are ignored."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from trackers.benchmark.speed import FIRST_STEP, KINDS, PAUSED, TRAINED, WINDOWED, mark_of, marks_of
from trackers.metrics import roles
from trackers.records import Config, Environment, Metrics, Record, Start

LOSS, RATE, SECONDS, FIRST = "loss", "rate", "seconds", "first"
TOKENS, TOKENS_PER_GPU, BATCH, MICRO_BATCH, SPEED = "tokens", "tokens per gpu", "batch", "micro batch", "speed"
TORCH, USED, PEAK, TOTAL, GPU = "torch memory", "used memory", "peak memory", "total memory", "gpu"

RATES = ("learning_rate", "lr", "learning-rate", "train/learning_rate", "train/lr")
ROCM = ("gpu/hip_", "gpu/rocm_")
MIB, GIB, GB = 1024**2, 1024**3, 1e9
MACHINE = ("accelerator", "gpu", "gpus", "gpu_type", "gpu_memory_gib", "gpu_drivers", "pytorch_version",
           "cuda_version", "rocm_version")  # fmt: skip
"""Fields used from an Environment record, besides the version of torch among the packages."""

_TORCH_GB = re.compile(r"memory/mem-(max-)?(allocated|reserved)-gigabytes")
_TORCH_MIB = re.compile(r"memory/rank_\d+/((?:max_)?(?:allocated|reserved))_mib")
_JOB_GB = re.compile(r"gpu/(node\d+/)?memory_(used_avg|total)_gb(\.max)?")
_RESERVED = "gpu/max_reserved_memory_gib"  # TorchTitan's "memory"
_DRIVER_GIB = re.compile(r"(gpu/(?:hip_|rocm_|cuda_|gpu_)?memory)_(used|total)_gib")


class Meaning(NamedTuple):
    """kind: one of the words above. factor: makes seconds of times, GiB of memory. place: which of several names of
    one kind counts, the lowest. label: of torch's memory allocated, max_allocated, reserved, max_reserved; of the
    machine's a node or a driver; of a GPU what tells it from the others."""

    kind: str
    factor: float = 1.0
    place: int = 0
    label: str = ""


@lru_cache(maxsize=100_000)
def meaning(name: str) -> Meaning | None:
    """What a metric's name means here; None for most."""
    if name in roles.LOSSES:
        return Meaning(LOSS, place=roles.LOSSES.index(name))
    if name in RATES:
        return Meaning(RATE, place=RATES.index(name))
    if name == FIRST_STEP:
        return Meaning(FIRST)
    if name == f"{WINDOWED}micro_batch_size":
        return Meaning(MICRO_BATCH)
    return _memory(name) or _by_role(name)


def _memory(name: str) -> Meaning | None:
    if match := _TORCH_GB.fullmatch(name):
        return Meaning(TORCH, GB / GIB, label=f"{'max_' if match[1] else ''}{match[2]}")
    if match := _TORCH_MIB.fullmatch(name):
        return Meaning(TORCH, MIB / GIB, label=match[1])
    if name == _RESERVED:
        return Meaning(TORCH, label="max_reserved")
    if match := _JOB_GB.fullmatch(name):
        if match[2] == "total":
            return None if match[3] else Meaning(TOTAL, GB / GIB, label=f"job {match[1] or ''}")
        return Meaning(PEAK if match[3] else USED, GB / GIB)
    if match := _DRIVER_GIB.fullmatch(name):
        return Meaning(USED if match[2] == "used" else TOTAL, label=match[1])
    return None


def _by_role(name: str) -> Meaning | None:
    role = roles.role_of(name)
    if role is None:
        return None
    if role.kind == roles.STEP_TIME:
        return Meaning(SECONDS, role.factor)
    if role.kind in (roles.TOKENS, roles.TOKENS_PER_GPU):
        return Meaning(TOKENS if role.kind == roles.TOKENS else TOKENS_PER_GPU, place=int(name.startswith(WINDOWED)))
    if role.kind == roles.BATCH:
        return Meaning(BATCH)
    if role.kind in KINDS:
        return Meaning(SPEED)
    if role.kind == roles.ONE_GPU_UTILISATION:
        return Meaning(GPU, label=name.removesuffix("_utilization_percentage").rpartition(".")[0] or name)
    return Meaning(GPU) if role.kind == roles.GPU_UTILISATION else None


def needed(record: Record) -> Record | None:
    """What a result needs of a record, without its id; None where it needs nothing of it.

    To keep that of each record, and :meth:`trackers.benchmark.steps.StepCollector.gather` it in the end, is the same as
    to gather the records themselves.
    """
    if isinstance(record, Metrics):
        values = {name: value for name, value in record.values.items() if meaning(name) is not None}
        if record.step is not None:
            for mark in (TRAINED, PAUSED):  # what it says of the time: one of the names that say it does
                if not marks_of(values) & mark:
                    told = next((name for name in record.values if mark_of(name) == mark), None)
                    values.update({} if told is None else {told: record.values[told]})
        return Metrics(step=record.step, time=record.time, values=values) if values else None
    if isinstance(record, Environment):
        known = machine(record.values)
        return Environment(time=record.time, values=known) if known else None
    if isinstance(record, Config):
        return Config(time=record.time, values=record.values)
    if isinstance(record, Start) and record.rank is not None:
        return Start(time=record.time, attempt=record.attempt, rank=record.rank, world_size=record.world_size,
                     host=record.host, from_step=record.from_step)  # fmt: skip
    return None


def machine(values: dict[str, object]) -> dict[str, object]:
    """What counts of an environment's values: those of :data:`MACHINE`, and torch's version."""
    found = {name: values[name] for name in MACHINE if values.get(name) is not None}
    packages = values.get("packages")
    version = packages.get("torch") if isinstance(packages, dict) else None
    if version and "pytorch_version" not in found:
        found["pytorch_version"] = str(version)
    return found
