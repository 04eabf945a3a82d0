"""What the kernel shows of GPUs in files, without a driver's library: read in no time, and never hanging.

https://docs.nvidia.com/datacenter/tesla (``/proc/driver/nvidia/gpus/<bus>/information``: "Model: NVIDIA H200");
``/dev/nvidiactl`` and ``/dev/kfd`` are the drivers' devices.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any

from trackers.hardware.gpus.amd_sysfs import DRM, SysfsSource
from trackers.hardware.gpus.base import SourceLost
from trackers.hardware.gpus.detect import AMD_DEVICE, NVIDIA_DEVICE

NVIDIA_CARDS = Path("/proc/driver/nvidia/gpus")


def gpus(root: Path = Path("/")) -> dict[str, Any]:
    """``gpu_drivers`` (of "nvidia" and "amd", those that are there) and ``gpu``, the first card's name.

    Empty where the kernel shows no such thing at all (not Linux).

    Args:
        root: of the file system.
    """
    if sys.platform != "linux":
        return {}
    drivers = []
    names = []
    if _below(root, NVIDIA_DEVICE).exists():
        drivers.append("nvidia")
        names += [name for card in sorted(_below(root, NVIDIA_CARDS).glob("*/information")) if (name := _model(card))]
    if _below(root, AMD_DEVICE).exists():
        drivers.append("amd")
        with contextlib.suppress(SourceLost):
            names += [gpu.name for gpu in SysfsSource(lambda text: None, drm=_below(root, DRM)).gpus]
    return {"gpu_drivers": drivers, **({"gpu": names[0]} if names else {})}


def _below(root: Path, path: Path) -> Path:
    return root / path.relative_to("/")


def _model(card: Path) -> str:
    try:
        lines = card.read_text("utf-8", "replace").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("Model:")), "")
