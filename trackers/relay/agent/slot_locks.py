"""Slots for deliveries without an agent: each is a lock on a byte of a file, which ends with its process.

This bounds the deliveries of many runs that start on a machine without an agent. A relay that finds no free slot starts
an agent, under which deliveries take turns. The agent assigns none that are locked by relays which haven't told it yet,
and one less for each relay that begins as a process beside the one that will go on in its place.
"""

from __future__ import annotations

import contextlib
import os
import struct

from trackers.relay.agent import endpoint
from trackers.support.interruption import pass_on

_STARTER = 1 << 30
"""The byte that the process which starts an agent locks."""
_BEGINNING, _MOST_BEGINNING = 1 << 20, 1 << 16
"""The first byte of those that relays lock while they begin, one each, and their number."""


class SlotLocks:
    """The slots that one relay has locked. Does no I/O before the first is needed.

    Args:
        name: the agent's key. limit: number of slots.
        fd: the file, open, where :func:`begin` did that; taken over.
    """

    def __init__(self, name: str, limit: int, fd: int = -1) -> None:
        self._name = name
        self._limit = limit
        self._fd = fd
        if fd >= 0:
            os.set_inheritable(fd, False)
        self._locked: dict[str, list[int]] = {}

    def begin(self) -> int:
        """Lock a byte for a relay that is started now; returns the open file, which has the lock, or -1."""
        if not self._open():
            return -1
        first = os.getpid() % _MOST_BEGINNING
        for place in range(_MOST_BEGINNING):
            if self._lock(_BEGINNING + (first + place) % _MOST_BEGINNING):
                break
        return self._fd

    def others_begin(self) -> bool:
        """Whether other relays are beginning that have no agent."""
        return _locked(self._fd, _BEGINNING, _MOST_BEGINNING) > 0

    def has_begun(self) -> None:
        """The relay begins no longer."""
        import fcntl

        if self._fd >= 0:
            self._set_lock(fcntl.F_UNLCK, _BEGINNING, _MOST_BEGINNING)

    def taken(self) -> tuple[int, int]:
        """How many slots others have locked, and how many relays begin, by the file that they have now."""
        self._open(0)
        found = _locked(self._fd, 0, self._limit), _locked(self._fd, _BEGINNING, _MOST_BEGINNING)
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        return found

    def acquire(self, tracker: str, size: int) -> bool:
        """Lock a slot for each process of a delivery; False if other runs have too many of them.

        Also True if slots can't be counted, because this user has no directory for the file.
        """
        if tracker in self._locked:
            return True
        if not self._open():
            self._locked[tracker] = []
            return True
        own_slots = {slot for slots in self._locked.values() for slot in slots}
        locked: list[int] = []
        for slot in range(self._limit):
            if slot not in own_slots and self._lock(slot):
                locked.append(slot)
                if len(locked) >= size:
                    break
        if len(locked) < size and len(locked) + len(own_slots) < self._limit:
            self._unlock(locked)
            return False
        self._locked[tracker] = locked
        return True

    def unlock(self, tracker: str) -> None:
        """Unlock a delivery's slots, if it has some."""
        self._unlock(self._locked.pop(tracker, []))

    def acquire_start(self) -> bool:
        """Whether this process is the one to start an agent, until :meth:`release_start`."""
        return not self._open() or self._lock(_STARTER)

    def release_start(self) -> None:
        """Let another process start an agent."""
        self._unlock([_STARTER])

    def close(self) -> None:
        """Unlock all slots; the last relay removes the file."""
        if self._fd < 0:
            return
        with contextlib.suppress(OSError):
            self._unlock([slot for slots in self._locked.values() for slot in slots] + [_STARTER])
            self.has_begun()
            if self._lock(0, 0):
                folder = endpoint.open_directory(endpoint.directory())
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(f"{self._name}.places", dir_fd=folder)
                os.close(folder)
        os.close(self._fd)
        self._fd = -1
        self._locked.clear()

    def _open(self, make: int = os.O_CREAT) -> bool:
        if self._fd < 0:
            try:
                folder = endpoint.open_directory(endpoint.directory(), make=bool(make))
                try:
                    flags = os.O_RDWR | make | os.O_NOFOLLOW | os.O_CLOEXEC
                    self._fd = os.open(f"{self._name}.places", flags, 0o600, dir_fd=folder)
                finally:
                    os.close(folder)
            except OSError as error:
                pass_on(error)
                return False
        return True

    def _lock(self, first: int, length: int = 1) -> bool:
        import fcntl

        return self._set_lock(fcntl.F_WRLCK, first, length)

    def _unlock(self, slots: list[int]) -> None:
        import fcntl

        if self._fd >= 0:
            for slot in slots:
                self._set_lock(fcntl.F_UNLCK, slot, 1)

    def _set_lock(self, kind: int, first: int, length: int) -> bool:
        """Lock or unlock bytes; length 0: all that follow. The lock is the open file's, not the process's."""
        import fcntl

        try:
            fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", kind, os.SEEK_SET, first, length, 0))
        except (BlockingIOError, PermissionError) as error:  # POSIX allows both: another process has it
            pass_on(error)
            return False
        except OSError as error:  # a kernel or a filesystem without such locks: slots can't be counted
            pass_on(error)
            return True
        return True


def _locked(fd: int, first: int, length: int) -> int:
    """How many of these bytes other open files have locked; 0 where nothing can be asked."""
    import fcntl

    at, end, count = first, first + length, 0
    with contextlib.suppress(OSError, ValueError):  # a negative descriptor is a ValueError
        while at < end:
            asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, at, end - at, 0)
            kind, _, begin, size, _ = struct.unpack("hhqqi4x", fcntl.fcntl(fd, fcntl.F_OFD_GETLK, asked))
            if kind == fcntl.F_UNLCK:
                break
            after = min(end, begin + size) if size else end
            count, at = count + after - max(at, begin), after
    return count
