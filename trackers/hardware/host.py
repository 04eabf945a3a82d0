"""The host beside the GPUs, through psutil: processor, memory, disk, network, and the training process itself.

What the kernel shows of GPUs in files, without a driver's library: read in no time, and never hanging.

https://docs.nvidia.com/datacenter/tesla (``/proc/driver/nvidia/gpus/<bus>/information``: "Model: NVIDIA H200");
``/dev/nvidiactl`` and ``/dev/kfd`` are the drivers' devices.
"""

from __future__ import annotations

import contextlib
import math
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from trackers.hardware.gpus.amd import DRM, SysfsSource
from trackers.hardware.gpus.base import SourceLost
from trackers.hardware.gpus.detect import AMD_DEVICE, NVIDIA_DEVICE


class HostReading(msgspec.Struct, kw_only=True):
    """The host at one moment. Fractions are 0 to 1; process_cpu_frac is 1.0 for each core kept busy.

    The process is training's own, without its children. disk_used_*: of the filesystem that holds the run.
    disk_read_bytes, disk_written_bytes, network_*_bytes: of the whole machine, since sampling began.
    """

    cpu_frac: float | None = None
    memory_frac: float | None = None
    memory_used_bytes: int | None = None
    process_cpu_frac: float | None = None
    process_rss_bytes: int | None = None
    disk_used_frac: float | None = None
    disk_used_bytes: int | None = None
    disk_free_bytes: int | None = None
    disk_read_bytes: int | None = None
    disk_written_bytes: int | None = None
    network_sent_bytes: int | None = None
    network_received_bytes: int | None = None


def properties(directory: str) -> dict[str, Any]:
    """What the machine tells of itself: ``processor``, ``cores``, ``threads``, ``memory_total_bytes``, ``disks``.

    Disks are the root's and a directory's filesystems, by where they are mounted: ``total_bytes``, ``used_bytes``.
    """
    import psutil

    memory = attempt(psutil.virtual_memory)[0]
    disks = {path: attempt(psutil.disk_usage, path)[0] for path in dict.fromkeys(("/", _mount(directory)))}
    values = {
        "processor": _processor(),
        "cores": attempt(psutil.cpu_count, False)[0],
        "threads": attempt(psutil.cpu_count)[0],
        "memory_total_bytes": memory and memory.total,
        "disks": {path: {"total_bytes": disk.total, "used_bytes": disk.used} for path, disk in disks.items() if disk},
    }
    return {name: value for name, value in values.items() if value}


def _mount(path: str) -> str:
    path = os.path.realpath(path)
    while not os.path.ismount(path):
        path = os.path.dirname(path)
    return path


def _processor() -> str:
    """The processor's model, as Linux calls it; "" where it doesn't say."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            named = (line.partition(":")[2].strip() for line in file if line.startswith("model name"))
            return next(named, "")
    except OSError:
        return platform.processor()


class ProcessorLoad:
    """The processors' load between two looks, whichever threads look: ``psutil.cpu_percent`` begins in each with 0."""

    def __init__(self, psutil: Any) -> None:
        self._psutil = psutil
        self._busy_s = self._all_s = 0.0
        self._last = math.nan

    def percent(self) -> float:
        """Since the last look, 0 to 100; NaN before a second look and a tick of the clock."""
        times = self._psutil.cpu_times()
        # Linux counts guests' time as their host's, too.
        all_s = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
        busy_s = all_s - times.idle - getattr(times, "iowait", 0.0)
        passed_s, begun = all_s - self._all_s, self._all_s > 0
        if passed_s > 0:  # else no tick has passed
            self._last = min(100.0, max(0.0, 100 * (busy_s - self._busy_s) / passed_s)) if begun else math.nan
            self._busy_s, self._all_s = busy_s, all_s
        return self._last


class Machine:
    """What is the same for all processes of the machine: read once for many runs."""

    def __init__(self) -> None:
        import psutil

        self._psutil: Any = psutil
        self._answers: dict[str, tuple[Any, str]] = {}
        self._load = ProcessorLoad(psutil)
        self.refresh()

    def refresh(self) -> None:
        """Read it anew: the processor's load is that since the last time."""
        psutil = self._psutil
        for what, call in (
            ("processor", self._load.percent),
            ("memory", psutil.virtual_memory),
            ("disk traffic", psutil.disk_io_counters),
            ("network", psutil.net_io_counters),
        ):
            self._answers[what] = attempt(call)

    def answer(self, what: str) -> tuple[Any, str]:
        """psutil's answer about the processor, the memory, the disk traffic or the network, and why there is none."""
        return self._answers[what]


def attempt(call: Any, *arguments: Any) -> tuple[Any, str]:
    """What psutil answers; None and why where it can't."""
    import psutil

    try:
        answer = call(*arguments)
    except (psutil.Error, OSError, RuntimeError, NotImplementedError) as error:
        return None, str(error) or type(error).__name__
    return answer, "" if answer is not None else "the system has no counters of it"


RANK_VARIABLES = frozenset({"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID", "MPI_LOCALRANKID"})
"""Set by launchers that start a process for each GPU: the job is then all that the launcher started here."""


class JobProcesses:
    """The training process and its children; with a launcher, its other ranks on this machine and theirs.

    Args:
        pid: training's; 0 for none.
    """

    def __init__(self, pid: int) -> None:
        self._root = pid
        if pid:
            import psutil

            with contextlib.suppress(psutil.Error, OSError):
                process = psutil.Process(pid)
                if not RANK_VARIABLES.isdisjoint(process.environ()):
                    self._root = process.ppid() or pid

    def has(self, pid: int) -> bool | None:
        """Whether a process is one of them; None where this machine has no such process, or it can't be seen."""
        import psutil

        try:
            process = psutil.Process(pid)
            return self._root in (pid, *(parent.pid for parent in process.parents()))
        except (psutil.Error, OSError, OverflowError, ValueError):
            return None


class Host:
    """Reads the machine this runs on.

    Args:
        pid: the training process; None for none.
        directory: whose filesystem is looked at.
        say: called once with what this machine doesn't tell.
        machine: what is the same for all runs, where somebody else refreshes it; default one of its own.
    """

    def __init__(
        self,
        pid: int | None,
        directory: str,
        say: Callable[[str], None] = lambda text: None,
        machine: Machine | None = None,
    ) -> None:
        import psutil

        self._psutil: Any = psutil
        self._directory = directory
        self._say = say
        self._untold: dict[str, str] = {}
        self._reported: set[str] = set()
        self._process: Any = None
        self._own = machine is None
        self._machine = machine or Machine()
        if pid is not None:
            try:
                self._process = psutil.Process(pid)
                self._process.cpu_percent(None)  # counted from here on
            except psutil.Error as error:
                self._lose_process(error)
        self._of("processor")
        self._disk = self._of("disk traffic")
        self._network = self._of("network")

    def read(self) -> HostReading:
        """The host now; what can't be had is None."""
        if self._own:
            self._machine.refresh()
        reading = HostReading()
        cpu, memory = self._of("processor"), self._of("memory")
        usage = self._noted("disk space", attempt(self._psutil.disk_usage, self._directory))
        disk, network = self._of("disk traffic"), self._of("network")
        reading.cpu_frac = None if cpu is None or math.isnan(cpu) else cpu / 100
        if memory is not None:
            reading.memory_frac, reading.memory_used_bytes = memory.percent / 100, memory.total - memory.available
        if usage is not None:
            reading.disk_used_frac, reading.disk_used_bytes = usage.percent / 100, usage.used
            reading.disk_free_bytes = usage.free
        if disk is not None and self._disk is not None:
            reading.disk_read_bytes = disk.read_bytes - self._disk.read_bytes
            reading.disk_written_bytes = disk.write_bytes - self._disk.write_bytes
        if network is not None and self._network is not None:
            reading.network_sent_bytes = network.bytes_sent - self._network.bytes_sent
            reading.network_received_bytes = network.bytes_recv - self._network.bytes_recv
        self._of_process(reading)
        self._report_missing()
        return reading

    def _of_process(self, reading: HostReading) -> None:
        if self._process is None:
            return
        try:
            with self._process.oneshot():
                reading.process_cpu_frac = self._process.cpu_percent(None) / 100
                reading.process_rss_bytes = self._process.memory_info().rss
        except self._psutil.Error as error:
            self._lose_process(error)

    def _lose_process(self, error: Exception) -> None:
        self._process = None
        if not isinstance(error, self._psutil.NoSuchProcess):  # that is training's end
            self._untold["training's process"] = type(error).__name__

    def _of(self, what: str) -> Any:
        return self._noted(what, self._machine.answer(what))

    def _noted(self, what: str, answer: tuple[Any, str]) -> Any:
        value, why = answer
        if value is None:
            self._untold[what] = why
        return value

    def _report_missing(self) -> None:
        fresh = {what: why for what, why in self._untold.items() if what not in self._reported}
        self._reported.update(fresh)
        if fresh:
            self._say("the host doesn't report, so it is left out: " + ", ".join(
                f"{what} ({why})" for what, why in fresh.items()
            ))  # fmt: skip


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
    if _under_root(root, NVIDIA_DEVICE).exists():
        drivers.append("nvidia")
        names += [
            name for card in sorted(_under_root(root, NVIDIA_CARDS).glob("*/information")) if (name := _model(card))
        ]
    if _under_root(root, AMD_DEVICE).exists():
        drivers.append("amd")
        with contextlib.suppress(SourceLost):
            names += [gpu.name for gpu in SysfsSource(lambda text: None, drm=_under_root(root, DRM)).gpus]
    return {"gpu_drivers": drivers, **({"gpu": names[0]} if names else {})}


def _under_root(root: Path, path: Path) -> Path:
    return root / path.relative_to("/")


def _model(card: Path) -> str:
    try:
        lines = card.read_text("utf-8", "replace").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("Model:")), "")
