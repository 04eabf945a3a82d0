"""Descriptors that programs leave alone: numbers above those that they close by range and open anew.

Waiting until a descriptor can be read: ``select`` alone fails for descriptors from 1024 on.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Sequence
from pathlib import Path

from trackers.support.interruption import pass_on, suppress

HIGHEST = 900
"""First descriptor number to try, high because programs that close descriptors by range rarely go so far, and files
that they open get the lowest free numbers. A process's table of descriptors stays small below 1,024."""


class Descriptor:
    """An open file under a high number, which is closed, or asked for, only while it is still of that file.

    Args:
        fd: taken over: it is closed, and its file has another number now.
    """

    def __init__(self, fd: int) -> None:
        self.number = _move_up(fd)
        self._file = identity(self.number)

    def own(self) -> bool:
        """Whether nobody closed it: else its number may be of another file."""
        return identity(self.number) == self._file

    def close(self) -> None:
        """Close it, if it is still there."""
        if self.own():
            os.close(self.number)
            self._file = (-2, -2)


def open_high(path: Path | str, flags: int, opener: Callable[[Path | str, int, int], int] = os.open) -> int:
    """Open a file under a high number, not inherited by other programs; never 0, 1 or 2, which C libraries write to.

    Args:
        opener: what opens it, as ``os.open`` does.

    Raises:
        OSError: as ``os.open``.
    """
    return _move_up(opener(path, flags | getattr(os, "O_CLOEXEC", 0), 0o666))


def identity(fd: int) -> tuple[int, int]:
    """Which file a descriptor is of, by device and inode; (-1, -1) where it is closed."""
    try:
        status = os.fstat(fd)
    except OSError as error:
        pass_on(error)
        return (-1, -1)
    return (status.st_dev, status.st_ino)


def _move_up(fd: int) -> int:
    try:
        import fcntl
        import resource

        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        lowest = HIGHEST if limit == resource.RLIM_INFINITY else min(HIGHEST, limit * 3 // 4)
        high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, max(lowest, 3))
    except (ImportError, OSError, ValueError, AttributeError) as error:  # no such number is left, or this isn't Unix
        pass_on(error)
        return _above_streams(fd)
    os.close(fd)
    return high


def _above_streams(fd: int) -> int:
    low = []
    with suppress(OSError):  # no descriptor left: then it stays where it is
        while fd <= 2:
            higher = os.dup(fd)
            low.append(fd)
            fd = higher
    for low_fd in low:
        os.close(low_fd)
    return fd


def readable(fd: int, timeout_s: float) -> bool:
    """Wait until ``fd`` has something to read or has ended, at most ``timeout_s`` seconds; whether it has."""
    return bool(readable_ones([fd], timeout_s))


def readable_ones(fds: Sequence[int], timeout_s: float) -> list[int]:
    """The same of several: wait until one of them has."""
    if not hasattr(select, "poll"):
        return select.select(fds, [], [], timeout_s)[0]
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return [fd for fd, _ in poll.poll(max(timeout_s, 0) * 1000)]
