"""The accelerator of this process, as torch reports it; queries only what torch has already initialised."""

from __future__ import annotations

import sys
from typing import Any

from trackers.instruments.timers import cuda_in_use

GIB = 1024**3


def accelerator() -> dict[str, Any]:
    """``accelerator`` (cuda, rocm or cpu), ``gpu``, ``gpu_memory_gib``, ``gpu_count`` and versions; {} without torch.

    ``cpu`` is said where torch is loaded and has used no CUDA so far: ask when training has begun, or ended.
    """
    torch = sys.modules.get("torch")
    version = getattr(torch, "__version__", None)
    if torch is None or version is None:
        return {}
    found: dict[str, Any] = {"pytorch_version": str(version)}
    cuda = cuda_in_use()
    if cuda is None:
        others = (getattr(torch, "xpu", None), getattr(torch, "mps", None))
        asked = [getattr(other, "is_initialized", getattr(other, "is_available", bool)) for other in others]
        return found if any(ask() for ask in asked) else {**found, "accelerator": "cpu"}
    hip = getattr(torch.version, "hip", None)
    found["accelerator"] = "rocm" if hip else "cuda"
    if hip:
        found["rocm_version"] = str(hip).split("-")[0]
    elif torch.version.cuda:
        found["cuda_version"] = str(torch.version.cuda)
    properties = cuda.get_device_properties(cuda.current_device())
    found |= {"gpu": str(properties.name), "gpu_memory_gib": properties.total_memory / GIB}
    return {**found, "gpu_count": int(cuda.device_count())}
