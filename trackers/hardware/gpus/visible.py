"""Selection of the job's GPUs, by the meaning of the visibility variables for each vendor's runtime.

NVIDIA (https://docs.nvidia.com/cuda/cuda-c-programming-guide/#env-vars): indices, UUIDs and MIG UUIDs, each of
which may be cut short as long as it is unique; the first entry that names nothing ends the list. Indices count from
the fastest GPU on, by CUDA's own guess, or with CUDA_DEVICE_ORDER=PCI_BUS_ID by their place on the bus, which is the
order of NVML, too. Among GPUs of one model that is the same. AMD
(https://rocm.docs.amd.com/en/latest/conceptual/gpu-isolation.html): ROCR_VISIBLE_DEVICES chooses among all, by index
or UUID, HIP_VISIBLE_DEVICES (else CUDA_VISIBLE_DEVICES) among those that are left.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from trackers.hardware.gpus.base import Gpu

JOB_PREFIX = "TRACKER_JOB_"
"""Before a variable's name: the training job's value, where this process has one of its own."""
JOB_MARK = "TRACKER_JOB_PASSED"
"""Set where the job's values were passed on: a variable without one isn't set there."""
BY_BUS = "PCI_BUS_ID"
_INDEX = re.compile(r"[+-]?\d+")


class Visible(NamedTuple):
    """The job's three variables, and in which order CUDA counts; None where one isn't set."""

    cuda: str | None = None
    hip: str | None = None
    rocr: str | None = None
    order: str | None = None


def visible(environ: Mapping[str, str]) -> Visible:
    """The job's variables, as passed on to a helper process or as they are here."""
    prefix = JOB_PREFIX if JOB_MARK in environ else ""
    names = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
    cuda, hip, rocr = (environ.get(prefix + name) for name in names)
    return Visible(cuda, hip, rocr, environ.get("CUDA_DEVICE_ORDER"))


def choose(gpus: Sequence[Gpu], scope: str, chosen: Visible) -> list[Gpu]:
    """The GPUs of one vendor to be sampled, each once; a GPU in MIG mode is its instances.

    Args:
        scope: "job", or "node" for all there are.
    """
    found = list(gpus)
    if scope == "job" and gpus:
        if gpus[0].vendor == "amd":
            found = _listed(found, chosen.rocr)
            found = _listed(found, chosen.cuda if chosen.hip is None else chosen.hip)
        else:
            if chosen.order == BY_BUS and all(gpu.bus for gpu in found):
                found.sort(key=lambda gpu: gpu.bus)
            found = _listed(found, chosen.cuda)
    parts = [part for gpu in found for part in gpu.instances or (gpu,)]
    return list({part.label: part for part in parts}.values())


def doubtful(gpus: Sequence[Gpu], scope: str, chosen: Visible) -> bool:
    """Whether which of these GPUs the job has can't be known: CUDA counts different models in an order of its own."""
    if scope != "job" or chosen.cuda is None or chosen.order == BY_BUS or not gpus or gpus[0].vendor != "nvidia":
        return False
    counted = any(_INDEX.fullmatch(entry) for entry in _entries(chosen.cuda))
    some = len(_listed(list(gpus), chosen.cuda)) not in (0, len(gpus))
    return counted and some and len({gpu.name for gpu in gpus}) > 1


def _listed(gpus: list[Gpu], value: str | None) -> list[Gpu]:
    if value is None:
        return gpus
    found = []
    for entry in _entries(value):
        gpu = _named(gpus, entry)
        if gpu is None:  # the runtimes take what stands before the first mistake
            break
        found.append(gpu)
    return found


def _entries(value: str) -> list[str]:
    return [entry.strip() for entry in value.split(",")] if value.strip() else []


def _named(gpus: list[Gpu], entry: str) -> Gpu | None:
    if _INDEX.fullmatch(entry):
        place = int(entry)
        return gpus[place] if 0 <= place < len(gpus) else None
    wanted = entry.lower()
    if not wanted.startswith(("gpu-", "mig-")):
        return None
    everything = [part for gpu in gpus for part in (gpu, *gpu.instances)]
    exact = [gpu for gpu in everything if any(uuid.lower() == wanted for uuid in gpu.uuids)]
    fitting = exact or [gpu for gpu in everything if any(uuid.lower().startswith(wanted) for uuid in gpu.uuids)]
    return fitting[0] if len(fitting) == 1 else None
