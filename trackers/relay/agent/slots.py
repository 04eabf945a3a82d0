"""Places for deliveries where no agent gives them: each is a lock on a byte of a file, which ends with its process.

So a crowd that starts on a machine without an agent is bounded, too. Whoever finds no place has an agent started, under
which deliveries take turns. For a moment there may then be twice as many: those that work, and those that the agent
lets work before it has heard of them.
"""

from __future__ import annotations

import contextlib
import os
import struct

from trackers.relay.agent import place

_STARTER = 1 << 30
"""The byte of whoever starts an agent."""


class Slots:
    """One relay's part. Does no I/O before it is asked for a place.

    Args:
        name: the agent's key. limit: how many places there are.
    """

    def __init__(self, name: str, limit: int) -> None:
        self._name = name
        self._limit = limit
        self._fd = -1
        self._held: dict[str, list[int]] = {}

    def take(self, tracker: str, size: int) -> bool:
        """Take a place for each process of a delivery; False where there are too few because other runs have them.

        True, too, where places can't be counted, because this user has no directory for it.
        """
        if tracker in self._held:
            return True
        if not self._open():
            self._held[tracker] = []
            return True
        own = {slot for slots in self._held.values() for slot in slots}
        found: list[int] = []
        for slot in range(self._limit):
            if slot not in own and self._lock(slot):
                found.append(slot)
                if len(found) >= size:
                    break
        if len(found) < size and len(found) + len(own) < self._limit:
            self._free(found)
            return False
        self._held[tracker] = found
        return True

    def give(self, tracker: str) -> None:
        """Give a delivery's places back, if it has some."""
        self._free(self._held.pop(tracker, []))

    def claim(self) -> bool:
        """Whether it is this process that starts an agent; until :meth:`unclaim`."""
        return not self._open() or self._lock(_STARTER)

    def unclaim(self) -> None:
        """Another process may start one."""
        self._free([_STARTER])

    def close(self) -> None:
        """Give everything back; the last one removes the file."""
        if self._fd < 0:
            return
        with contextlib.suppress(OSError):
            self._free([slot for slots in self._held.values() for slot in slots] + [_STARTER])
            if self._lock(0, 0):
                folder = place.open_directory(place.directory())
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(f"{self._name}.places", dir_fd=folder)
                os.close(folder)
        os.close(self._fd)
        self._fd = -1
        self._held.clear()

    def _open(self) -> bool:
        if self._fd < 0:
            try:
                folder = place.open_directory(place.directory(), make=True)
                try:
                    how = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
                    self._fd = os.open(f"{self._name}.places", how, 0o600, dir_fd=folder)
                finally:
                    os.close(folder)
            except OSError:
                return False
        return True

    def _lock(self, first: int, length: int = 1) -> bool:
        import fcntl

        return self._set(fcntl.F_WRLCK, first, length)

    def _free(self, slots: list[int]) -> None:
        import fcntl

        if self._fd >= 0:
            for slot in slots:
                self._set(fcntl.F_UNLCK, slot, 1)

    def _set(self, kind: int, first: int, length: int) -> bool:
        """Lock or unlock bytes; length 0: all that follow. The lock is the open file's, not the process's."""
        import fcntl

        try:
            fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", kind, os.SEEK_SET, first, length, 0))
        except (BlockingIOError, PermissionError):  # POSIX allows both: another process has it
            return False
        except OSError:  # a kernel or a filesystem without such locks: places can't be counted
            return True
        return True
