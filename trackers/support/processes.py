"""Processes by pid and start, and the watching of one that isn't this one's child.

A process's exit code is its parent's to ask for (``waitpid``). Linux tells others, too: of one that its parent hasn't
asked for yet in ``/proc/<pid>/stat`` (field 52), of others, since 6.15, by ``PIDFD_GET_INFO`` on a pidfd that was
opened while it lived.

Sources: https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html,
https://github.com/torvalds/linux/blob/v6.15/include/uapi/linux/pidfd.h
"""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path

from trackers.support.descriptors import readable, readable_ones
from trackers.support.interruption import pass_on, suppress

_FIRST_NAMESPACE = f"pid:[{0xEFFFFFFC}]"
"""include/linux/proc_ns.h: PROC_PID_INIT_INO, in which all processes of the machine are seen."""


def process_start(pid: int) -> float:
    """When a process began, in its machine's own units (Linux: clock ticks since boot); 0.0 if it isn't there.

    With the pid it names a process for good: a pid is used again, a pid with its start is not.
    """
    with suppress(OSError, ValueError, IndexError):
        text = Path(f"/proc/{number_in_proc(pid)}/stat").read_text()
        fields = text[text.rindex(")") + 2 :].split()
        return 0.0 if fields[0] in "ZX" else float(fields[19])
    if os.path.isdir("/proc/self"):
        return 0.0
    try:
        import psutil

        return float(psutil.Process(pid).create_time())
    except Exception as error:  # psutil's own tree, or none installed: the process can't be seen
        pass_on(error)
        return 0.0


def number_in_proc(pid: int) -> int:
    """A process's number in ``/proc``, which may be of another PID namespace than this process; 0: it isn't there.

    Source: https://man7.org/linux/man-pages/man2/pidfd_open.2.html ("Pid" in ``/proc/self/fdinfo``)
    """
    try:
        if os.readlink("/proc/self") == str(os.getpid()):
            return pid
    except OSError as error:
        pass_on(error)
        return pid
    if pid == os.getpid():
        return int(os.readlink("/proc/self"))
    fd = open_pidfd(pid)
    if fd < 0:
        return 0
    try:
        fields = dict(line.split(":", 1) for line in Path(f"/proc/self/fdinfo/{fd}").read_text().splitlines())
        return max(0, int(fields["Pid"]))
    except (OSError, ValueError, KeyError) as error:
        pass_on(error)
        return 0
    finally:
        os.close(fd)


def alive(pid: int, start: float) -> bool:
    """Is the process with this pid and start still running on this machine?"""
    return pid > 0 and start > 0 and process_start(pid) == start


def waits_for_this_alone(pid: int) -> bool:
    """Whether a process waits for a child to end, and this one, which it was given as an orphan, is its only child."""
    if os.getppid() != pid:
        return False
    children, waits = set(), False
    try:
        for thread in Path(f"/proc/{number_in_proc(pid)}/task").iterdir():
            children.update((thread / "children").read_text().split())
            waits = waits or (thread / "wchan").read_text() == "do_wait"
    except OSError as error:
        pass_on(error)
        return False
    return waits and children == {str(number_in_proc(os.getpid()))}


def open_files() -> set[str] | None:
    """Paths that processes of this account have open (for root: of all); None where not all of these can be seen: on
    other systems than Linux, and in a PID namespace, as containers have it."""
    try:
        if os.readlink("/proc/self/ns/pid") != _FIRST_NAMESPACE:
            return None
    except OSError as error:
        pass_on(error)
        return None
    paths = set()
    for folder in Path("/proc").glob("[0-9]*/fd"):
        with suppress(OSError):  # another's process, or it has ended
            for descriptor in os.listdir(folder):
                with suppress(OSError):
                    paths.add(os.readlink(folder / descriptor))
    return paths


_INFO = struct.Struct("=QQ11Ii")
"""``struct pidfd_info`` of 6.13, whose last field was filled from 6.15 on."""
_GET_INFO = 0xC040FF0B
_HAS_EXIT_CODE = 1 << 3


class Watched:
    """A process.

    Args:
        pid, start: which (``identity.process_start``).
        pidfd: a descriptor of it that was opened while it lived; taken over. -1: one is opened here, if it still lives.
    """

    def __init__(self, pid: int, start: float, pidfd: int = -1) -> None:
        self.pid = pid
        self.start = start
        self._fd = pidfd if pidfd >= 0 else _open_checked(pid, start)
        self._code: int | None = None

    def alive(self) -> bool:
        """Whether it runs. One that has exited doesn't, though its parent may not have asked for its exit code yet."""
        return not readable(self._fd, 0.0) if self._fd >= 0 else alive(self.pid, self.start)

    def wait(self, timeout_s: float, *others: int) -> None:
        """Wait until it exits, or another descriptor has something to read, up to a timeout. -1: none."""
        fds = [fd for fd in (self._fd, *others) if fd >= 0]
        if not fds:
            time.sleep(timeout_s)
        elif self._fd in readable_ones(fds, timeout_s):
            time.sleep(0.01)  # it stays readable

    def exit_code(self) -> int | None:
        """Its exit code, negative for the signal that ended it; None while it lives or where nobody can tell."""
        if self._code is None and not self.alive():
            for ask in (
                self._reaped_status,
                self._unreaped_status,
                self._reaped_status,
            ):  # its parent may ask for it in between
                status = ask()
                if status is not None:
                    self._code = os.waitstatus_to_exitcode(status)
                    break
        return self._code

    def close(self) -> None:
        """Give the descriptor back."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _reaped_status(self) -> int | None:
        """The wait status of a process that its parent has reaped."""
        if self._fd < 0:
            return None
        try:
            import fcntl

            info = bytearray(_INFO.size)
            _INFO.pack_into(info, 0, _HAS_EXIT_CODE, *[0] * 13)
            fcntl.ioctl(self._fd, _GET_INFO, info)
        except (ImportError, OSError) as error:
            pass_on(error)
            return None
        fields = _INFO.unpack(info)
        return int(fields[-1]) if fields[0] & _HAS_EXIT_CODE else None

    def _unreaped_status(self) -> int | None:
        """The wait status of a process that its parent hasn't reaped."""
        with suppress(OSError, ValueError, IndexError):
            text = Path(f"/proc/{number_in_proc(self.pid)}/stat").read_text()
            fields = text[text.rindex(")") + 2 :].split()
            return int(fields[49]) if fields[0] in "ZX" and float(fields[19]) == self.start else None
        return None


def open_pidfd(pid: int) -> int:
    """A descriptor of a process, not inherited; -1 where there is no such process or no such thing."""
    if not hasattr(os, "pidfd_open"):
        return -1
    with suppress(OSError):
        return int(os.pidfd_open(pid))
    return -1


def _open_checked(pid: int, start: float) -> int:
    fd = open_pidfd(pid)
    if fd < 0:
        return -1
    if process_start(pid) in (0.0, start):  # it may have exited by now; not where the pid is another's
        return fd
    os.close(fd)
    return -1


def give_back_memory() -> bool:
    """Give what this process has freed back to the system, where its C library can (glibc); takes a millisecond."""
    import ctypes

    with suppress(OSError, AttributeError):
        return bool(ctypes.CDLL(None).malloc_trim(0))
    return False
