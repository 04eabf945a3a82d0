"""A process that isn't this one's child: whether it lives, and the exit code that the operating system knows of it.

A process's exit code is its parent's to ask for (``waitpid``). Linux tells others, too: of one that its parent hasn't
asked for yet in ``/proc/<pid>/stat`` (field 52), of others, since 6.15, by ``PIDFD_GET_INFO`` on a pidfd that was
opened while it lived.

Sources: https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html,
https://github.com/torvalds/linux/blob/v6.15/include/uapi/linux/pidfd.h

Waiting until a descriptor can be read: ``select`` alone fails for descriptors from 1024 on.
"""

from __future__ import annotations

import os
import select
import struct
import time
from pathlib import Path

from trackers.support import process_info

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
        self._fd = pidfd if pidfd >= 0 else _open(pid, start)
        self._code: int | None = None

    def alive(self) -> bool:
        """Whether it runs. One that has exited doesn't, though its parent may not have asked for its exit code yet."""
        return process_info.alive(self.pid, self.start)

    def wait(self, timeout_s: float) -> None:
        """Wait until it exits, up to a timeout."""
        if self._fd < 0:
            time.sleep(timeout_s)
        elif readable(self._fd, timeout_s):
            time.sleep(0.01)  # it stays readable

    def exit_code(self) -> int | None:
        """Its exit code, negative for the signal that ended it; None while it lives or where nobody can tell."""
        if self._code is None and not self.alive():
            for ask in (self._told, self._left, self._told):  # its parent may ask for it in between
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

    def _told(self) -> int | None:
        """The wait status of a process that its parent has asked for."""
        if self._fd < 0:
            return None
        try:
            import fcntl

            info = bytearray(_INFO.size)
            _INFO.pack_into(info, 0, _HAS_EXIT_CODE, *[0] * 13)
            fcntl.ioctl(self._fd, _GET_INFO, info)
        except (ImportError, OSError):
            return None
        found = _INFO.unpack(info)
        return int(found[-1]) if found[0] & _HAS_EXIT_CODE else None

    def _left(self) -> int | None:
        """The wait status of a process that its parent hasn't asked for."""
        try:
            text = Path(f"/proc/{self.pid}/stat").read_text()
            fields = text[text.rindex(")") + 2 :].split()
            return int(fields[49]) if fields[0] in "ZX" and float(fields[19]) == self.start else None
        except (OSError, ValueError, IndexError):
            return None


def open_pidfd(pid: int) -> int:
    """A descriptor of a process, not inherited; -1 where there is no such process or no such thing."""
    if not hasattr(os, "pidfd_open"):
        return -1
    try:
        return int(os.pidfd_open(pid))
    except OSError:
        return -1


def _open(pid: int, start: float) -> int:
    fd = open_pidfd(pid)
    if fd < 0:
        return -1
    if process_info.process_start(pid) in (0.0, start):  # it may have exited by now; not where the pid is another's
        return fd
    os.close(fd)
    return -1


def readable(fd: int, timeout_s: float) -> bool:
    """Wait until ``fd`` has something to read or has ended, at most ``timeout_s`` seconds; whether it has."""
    if not hasattr(select, "poll"):
        return bool(select.select([fd], [], [], timeout_s)[0])
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(max(timeout_s, 0) * 1000))
