"""Which machine this is: a pid says something only on the machine, boot and namespace that it is of."""

from __future__ import annotations

import os
import socket
import uuid
from pathlib import Path
from typing import NamedTuple, Protocol

from trackers.support.clock import monotonic
from trackers.support.interruption import suppress


def host() -> str:
    """This machine's name."""
    return socket.gethostname()


def boot_id() -> str:
    """Changes when the machine restarts, so that a pid of an earlier boot isn't taken for a living process."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    with suppress(ImportError, OSError):  # macOS
        import psutil

        return f"boot-{int(psutil.boot_time())}"
    return f"node-{uuid.getnode():x}"


def pid_namespace() -> str:
    """The PID namespace that this process's pids are of; "" where there are none.

    Containers on one host with its name (``--network host``, ``hostNetwork``) differ in it alone. A namespace's number
    is used again only when its processes are gone.
    """
    return _namespace("pid")


def clock_id() -> str:
    """Which monotonic clock this process has: that of its boot, and of its time namespace."""
    return f"{boot_id()} {_namespace('time')}"


def uptime() -> float:
    """Seconds on that clock, read where no library that shifts a program's clocks (faketime, freezegun) does."""
    with suppress(OSError, ValueError, IndexError):
        return float(Path("/proc/uptime").read_text().split()[0])
    return monotonic()


def _namespace(kind: str) -> str:
    with suppress(OSError):
        return str(os.stat(f"/proc/self/ns/{kind}").st_ino)
    return ""


class MachineId(NamedTuple):
    """Where a pid means something: host name, boot and PID namespace."""

    host: str
    boot_id: str
    pid_namespace: str


def machine() -> MachineId:
    """The machine that this process is on."""
    return MachineId(host(), boot_id(), pid_namespace())


class Recorded(Protocol):
    """What says of which machine it is. pid_namespace: "" also where an earlier version wrote it."""

    @property
    def host(self) -> str: ...

    @property
    def boot_id(self) -> str: ...

    @property
    def pid_namespace(self) -> str: ...


def machine_of(recorded: Recorded) -> MachineId:
    """The machine that something is of."""
    return MachineId(recorded.host, recorded.boot_id, recorded.pid_namespace)


def is_here(recorded: Recorded) -> bool:
    """Whether something is of the machine that this process is on, so that its pid says whether it lives.

    Where no namespace was recorded, host name and boot decide.
    """
    there, here = machine_of(recorded), machine()
    return there == (here if there.pid_namespace else here._replace(pid_namespace=""))


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
