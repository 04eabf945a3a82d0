"""The GPUs to sample: detection of GPU libraries, else the kernel's files, and selection of the job's GPUs.

The job's GPUs are those that the visibility variables mean to each vendor's runtime.

NVIDIA (https://docs.nvidia.com/cuda/cuda-c-programming-guide/#env-vars): indices, UUIDs and MIG UUIDs, each of
which may be cut short as long as it is unique; the first entry that names nothing ends the list. Indices count from
the fastest GPU on, by CUDA's own guess, or with CUDA_DEVICE_ORDER=PCI_BUS_ID by their place on the bus, which is the
order of NVML, too. Among GPUs of one model that is the same. AMD
(https://rocm.docs.amd.com/en/latest/conceptual/gpu-isolation.html): ROCR_VISIBLE_DEVICES chooses among all, by index
or UUID, HIP_VISIBLE_DEVICES (else CUDA_VISIBLE_DEVICES) among those that are left.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from trackers.errors import UsageError
from trackers.hardware.gpus.amd import DRM, AmdSource, SysfsSource
from trackers.hardware.gpus.base import Gpu, GpuEvent, GpuSource, Opening, OpenSource, Reading, SourceLost, one_line
from trackers.hardware.gpus.nvidia import NvidiaSource
from trackers.support import plugins

JOB_PREFIX = "TRACKER_JOB_"
"""Before a variable's name: the training job's value, where this process has one of its own."""
JOB_VARIABLE = "TRACKER_JOB_PASSED"
"""Set where the job's values were passed on: a variable without one isn't set there."""
BY_BUS = "PCI_BUS_ID"
_INDEX = re.compile(r"[+-]?\d+")


class Visible(NamedTuple):
    """The job's three variables, and in which order CUDA counts; None where one isn't set."""

    cuda: str | None = None
    hip: str | None = None
    rocr: str | None = None
    order: str | None = None


def visible_gpus(environ: Mapping[str, str]) -> Visible:
    """The job's variables, as passed on to a helper process or as they are here."""
    prefix = JOB_PREFIX if JOB_VARIABLE in environ else ""
    names = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
    cuda, hip, rocr = (environ.get(prefix + name) for name in names)
    return Visible(cuda, hip, rocr, environ.get("CUDA_DEVICE_ORDER"))


def select_gpus(gpus: Sequence[Gpu], scope: str, chosen: Visible) -> list[Gpu]:
    """The GPUs of one vendor to be sampled, each once; a GPU in MIG mode is its instances.

    Args:
        scope: "job", or "node" for all there are.
    """
    selected = list(gpus)
    if scope == "job" and gpus:
        if gpus[0].vendor == "amd":
            selected = _select(selected, chosen.rocr)
            selected = _select(selected, chosen.cuda if chosen.hip is None else chosen.hip)
        else:
            if chosen.order == BY_BUS and all(gpu.bus for gpu in selected):
                selected.sort(key=lambda gpu: gpu.bus)
            selected = _select(selected, chosen.cuda)
    parts = [part for gpu in selected for part in gpu.instances or (gpu,)]
    return list({part.label: part for part in parts}.values())


def doubtful(gpus: Sequence[Gpu], scope: str, chosen: Visible) -> bool:
    """Whether which of these GPUs the job has can't be known: CUDA counts different models in an order of its own."""
    if scope != "job" or chosen.cuda is None or chosen.order == BY_BUS or not gpus or gpus[0].vendor != "nvidia":
        return False
    counted = any(_INDEX.fullmatch(entry) for entry in _entries(chosen.cuda))
    some = len(_select(list(gpus), chosen.cuda)) not in (0, len(gpus))
    return counted and some and len({gpu.name for gpu in gpus}) > 1


def _select(gpus: list[Gpu], value: str | None) -> list[Gpu]:
    if value is None:
        return gpus
    listed = []
    for entry in _entries(value):
        gpu = _find_gpu(gpus, entry)
        if gpu is None:  # the runtimes take what stands before the first mistake
            break
        listed.append(gpu)
    return listed


def _entries(value: str) -> list[str]:
    return [entry.strip() for entry in value.split(",")] if value.strip() else []


def _find_gpu(gpus: list[Gpu], entry: str) -> Gpu | None:
    if _INDEX.fullmatch(entry):
        index = int(entry)
        return gpus[index] if 0 <= index < len(gpus) else None
    prefix = entry.lower()
    if not prefix.startswith(("gpu-", "mig-")):
        return None
    everything = [part for gpu in gpus for part in (gpu, *gpu.instances)]
    exact = [gpu for gpu in everything if any(uuid.lower() == prefix for uuid in gpu.uuids)]
    fitting = exact or [gpu for gpu in everything if any(uuid.lower().startswith(prefix) for uuid in gpu.uuids)]
    return fitting[0] if len(fitting) == 1 else None


GROUP = "trackers.devices"
BUILT_IN = frozenset({"nvidia", "amd"})
"""The entry points of distributions that bring devices."""
NVIDIA_DEVICE = Path("/dev/nvidiactl")
AMD_DEVICE = Path("/dev/kfd")


class Gpus:
    """The GPUs to sample, of all vendors. A vendor whose driver goes away is left out, with one line.

    Args:
        say: called with one line for what can't be had.
        scope: "job" or "node".
        entering: called before a driver is asked for the first time: it may hang from then on.
        environ: where the job's choice of GPUs stands; default this process's environment.
        details: groups of further values, of :data:`trackers.metrics.gpu_details.GROUPS`.
        drm: the kernel's list of graphics cards.
    """

    def __init__(
        self,
        say: Callable[[str], None],
        *,
        scope: str = "job",
        entering: Callable[[], object] = lambda: None,
        environ: Mapping[str, str] | None = None,
        details: Collection[str] = (),
        drm: Path = DRM,
    ) -> None:
        environ = os.environ if environ is None else environ
        chosen = visible_gpus(environ)
        self._say = say

        def choose(gpus: Sequence[Gpu]) -> list[Gpu]:
            if doubtful(gpus, scope, chosen):
                say(
                    f"this machine has GPUs of different models, which CUDA counts from the fastest on: the GPUs "
                    f"{chosen.cuda} of CUDA_VISIBLE_DEVICES may not be those that are sampled; "
                    "set CUDA_DEVICE_ORDER=PCI_BUS_ID, or name them by UUID"
                )
            return select_gpus(gpus, scope, chosen)

        opening = Opening(say, choose, scope, environ, entering, frozenset(details), drm)
        self.events: list[GpuEvent] = []
        """What happened to the GPUs since they were opened, in the order in which it was read."""
        self._taken: dict[int, int] = {}
        self._sources: list[GpuSource] = []
        self._built_in: list[GpuSource] = []
        for name, open_source in sources().items():
            source = _opened(name, open_source, opening, [source.name for source in self._sources])
            if source is None:
                continue
            known = {(gpu.vendor, gpu.label) for gpu in self.gpus}
            if any((gpu.vendor, gpu.label) in known for gpu in source.gpus):
                say(f"{name} devices aren't sampled: another plug-in samples devices of the same vendor and number")
                source.close()
                continue
            self._sources.append(source)
            if not isinstance(open_source, str):
                self._built_in.append(source)
        labels = [gpu.label for gpu in self.gpus]
        self._shared = len(labels) != len(set(labels))

    @property
    def gpus(self) -> list[Gpu]:
        """Every GPU that is read."""
        return [gpu for source in self._sources for gpu in source.gpus]

    def label(self, gpu: Gpu) -> str:
        """What names a GPU in metrics: the driver's index; with the vendor where two vendors' share indices."""
        return f"{gpu.vendor}{gpu.label}" if self._shared else gpu.label

    def read(self, whole: bool = False) -> list[Reading]:
        """One reading of each GPU that answers; whole: also of what is read only every few seconds otherwise."""
        readings: list[Reading] = []
        for source in list(self._sources):
            try:
                readings.extend(source.read(whole))
            except SourceLost as error:
                self._leave(source, f"the {source.name} driver is gone ({error}): its GPUs aren't sampled any more")
            except Exception as error:
                if source in self._built_in:
                    raise
                why = f"{type(error).__name__}: {one_line(error)}"
                self._leave(source, f"the {source.name} plug-in failed ({why}): its devices aren't sampled any more")
            else:
                self._take_events(source)
        return readings

    def _leave(self, source: GpuSource, why: str) -> None:
        self._say(why)
        with contextlib.suppress(Exception):
            self._take_events(source)
        self._sources.remove(source)
        with contextlib.suppress(Exception):
            source.close()

    def _take_events(self, source: GpuSource) -> None:
        taken = self._taken.get(id(source), 0)
        fresh = list(source.events)[taken:]
        self._taken[id(source)] = taken + len(fresh)
        self.events += fresh

    def close(self) -> None:
        """Release the drivers."""
        for source in self._sources:
            with contextlib.suppress(Exception):
                source.close()


def sources() -> dict[str, OpenSource | str]:
    """What can be sampled, by name: NVIDIA's and AMD's GPUs, and what distributions bring ("module:function")."""
    return {"nvidia": _nvidia, "amd": _amd, **plugins.targets(GROUP, but=BUILT_IN)}


def _opened(name: str, open_source: OpenSource | str, opening: Opening, others: Sequence[str]) -> GpuSource | None:
    if name == "amd" and ("nvidia" in others or (opening.drm == DRM and not AMD_DEVICE.exists())):
        # Beside NVIDIA's GPUs the kernel's files are most likely those of the processor's own graphics.
        opening = opening._replace(drm=Path(os.devnull))
    if not isinstance(open_source, str):
        return open_source(opening)
    try:
        source: GpuSource | None = plugins.load(f"{name} devices", open_source)(opening)
    except (SourceLost, ImportError):  # no driver, or not even the vendor's package
        return None
    except UsageError as error:
        missing = error.__cause__
        if isinstance(missing, ImportError) and missing.name and not open_source.startswith(missing.name):
            return None  # the vendor's own package, where there is no such device
        opening.say(f"{name} devices aren't sampled: their plug-in can't be loaded ({one_line(error)})")
        return None
    except Exception as error:  # of somebody's plug-in: the other vendors' devices are sampled all the same
        opening.say(f"{name} devices aren't sampled: their plug-in failed ({type(error).__name__}: {one_line(error)})")
        return None
    if source is not None and not (isinstance(source, GpuSource) and all(isinstance(gpu, Gpu) for gpu in source.gpus)):
        opening.say(f"{name} devices aren't sampled: what their plug-in opened isn't a source of devices")
        return None
    return source


def _nvidia(opening: Opening) -> GpuSource | None:
    try:
        return NvidiaSource(opening.say, opening.choose, entering=opening.entering, details=opening.details)
    except ImportError:
        if NVIDIA_DEVICE.exists():
            opening.say("NVIDIA GPUs aren't sampled: nvidia-ml-py is missing; pip install 'trackers-relay[nvidia]'")
    except SourceLost as error:
        if NVIDIA_DEVICE.exists():
            opening.say(f"NVIDIA GPUs aren't sampled: {error}")
    return None


def _amd(opening: Opening) -> GpuSource | None:
    try:
        return AmdSource(opening.say, opening.choose, entering=opening.entering, details=opening.details)
    except ImportError:
        lacking = "amdsmi is missing; pip install 'trackers-relay[amd]'"
    except SourceLost as error:
        lacking = str(error)
    if opening.drm != Path(os.devnull):
        try:
            return SysfsSource(opening.say, opening.choose, opening.drm)
        except SourceLost as error:
            if AMD_DEVICE.exists():
                opening.say(f"AMD GPUs aren't sampled: {error}, and {lacking}")
    return None
