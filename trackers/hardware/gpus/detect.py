"""Detection of GPU libraries on this machine; without one, the kernel's files are read."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from trackers.hardware.gpus import visible as scopes
from trackers.hardware.gpus.amd_smi import AmdSource
from trackers.hardware.gpus.amd_sysfs import DRM, SysfsSource
from trackers.hardware.gpus.base import Gpu, GpuSource, Reading, SourceLost
from trackers.hardware.gpus.nvidia import NvidiaSource

NVIDIA_DEVICE = Path("/dev/nvidiactl")
AMD_DEVICE = Path("/dev/kfd")


class Gpus:
    """The GPUs to sample, of all vendors. A vendor whose driver goes away is left out, with one line.

    Args:
        say: called with one line for what can't be had.
        scope: "job" or "node".
        environ: where the job's choice of GPUs stands; default this process's environment.
        drm: the kernel's list of graphics cards.
    """

    def __init__(
        self,
        say: Callable[[str], None],
        *,
        scope: str = "job",
        environ: Mapping[str, str] | None = None,
        drm: Path = DRM,
    ) -> None:
        chosen = scopes.visible(os.environ if environ is None else environ)
        self._say = say

        def choose(gpus: Sequence[Gpu]) -> list[Gpu]:
            if scopes.doubtful(gpus, scope, chosen):
                say(
                    f"this machine has GPUs of different models, which CUDA counts from the fastest on: the GPUs "
                    f"{chosen.cuda} of CUDA_VISIBLE_DEVICES may not be those that are sampled; "
                    "set CUDA_DEVICE_ORDER=PCI_BUS_ID, or name them by UUID"
                )
            return scopes.choose(gpus, scope, chosen)

        nvidia = _nvidia(say, choose)
        # Beside NVIDIA's GPUs the kernel's files are most likely those of the processor's own graphics.
        amd = _amd(say, choose, None if nvidia is not None or (drm == DRM and not AMD_DEVICE.exists()) else drm)
        self._sources: list[GpuSource] = [source for source in (nvidia, amd) if source is not None]
        labels = [gpu.label for gpu in self.gpus]
        self._shared = len(labels) != len(set(labels))

    @property
    def gpus(self) -> list[Gpu]:
        """Every GPU that is read."""
        return [gpu for source in self._sources for gpu in source.gpus]

    def label(self, gpu: Gpu) -> str:
        """What names a GPU in metrics: the driver's index; with the vendor where two vendors' share indices."""
        return f"{gpu.vendor}{gpu.label}" if self._shared else gpu.label

    def read(self) -> list[Reading]:
        """One reading of each GPU that answers."""
        found: list[Reading] = []
        for source in list(self._sources):
            try:
                found.extend(source.read())
            except SourceLost as error:
                self._say(f"the {source.name} driver is gone ({error}): its GPUs aren't sampled any more")
                self._sources.remove(source)
        return found

    def close(self) -> None:
        """Release the drivers."""
        for source in self._sources:
            source.close()


def _nvidia(say: Callable[[str], None], choose: Callable[[Sequence[Gpu]], list[Gpu]]) -> GpuSource | None:
    try:
        return NvidiaSource(say, choose)
    except ImportError:
        if NVIDIA_DEVICE.exists():
            say("NVIDIA GPUs aren't sampled: nvidia-ml-py is missing; pip install 'trackers-relay[nvidia]'")
    except SourceLost as error:
        if NVIDIA_DEVICE.exists():
            say(f"NVIDIA GPUs aren't sampled: {error}")
    return None


def _amd(
    say: Callable[[str], None], choose: Callable[[Sequence[Gpu]], list[Gpu]], drm: Path | None
) -> GpuSource | None:
    try:
        return AmdSource(say, choose)
    except ImportError:
        lacking = "amdsmi is missing; pip install 'trackers-relay[amd]'"
    except SourceLost as error:
        lacking = str(error)
    if drm is not None:
        try:
            return SysfsSource(say, choose, drm)
        except SourceLost as error:
            if AMD_DEVICE.exists():
                say(f"AMD GPUs aren't sampled: {error}, and {lacking}")
    return None
