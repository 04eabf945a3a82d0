"""Where the console's bytes come from: spools, and a regular file that training prints into.

Both are read from an offset on, and say when what they give was written.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from bisect import bisect_right
from collections.abc import Callable, Mapping
from pathlib import Path

from trackers.journal.console_spool import TIME, PrintedFile, SegmentName, read_times, remove
from trackers.support import confined

BLOCK_BYTES = 64 * 1024
"""Of what was written without a time of its own, so much counts as written at once."""

Found = Mapping[Path, list[SegmentName]]
"""Files of spools by their folder, in the order in which they were written."""


class SpoolSource:
    """The spool of one stream of one process.

    Args:
        keep: leave the files that were read; they are the relay's to remove.

    Attributes:
        offset: of what is read next. left_out: bytes that were gone before they were read, since this was last emptied.
    """

    def __init__(self, folder: Path, name: SegmentName, offset: int, keep: bool = False) -> None:
        self.folder = folder
        self._keep = keep
        self.name = name
        self.offset = offset
        self.left_out = 0
        self._times: list[tuple[float, int]] = []
        self._timed = (-1, 0)

    def read(self, limit: int, found: Found) -> tuple[bytes, float]:
        """What comes next, and when it was written.

        Args:
            found: the files there are.
        """
        own = self._own(found)
        for place, name in enumerate(own):
            last = place + 1 == len(own)
            if not last and own[place + 1].start <= self.offset:
                if not self._keep:
                    remove(self.folder, name)
                continue
            if name.start > self.offset:
                self.left_out += name.start - self.offset
                self.offset = name.start
            data = self._block(name, limit)
            if data:
                return data, self._time(name, self.offset)
            if not last:
                self.left_out += max(0, own[place + 1].start - self.offset)
                self.offset = own[place + 1].start
        return b"", 0.0

    def span(self, found: Found) -> tuple[int, int]:
        """Where what is there of it begins and ends."""
        own = self._own(found)
        ends = [self.offset]
        for name in own:
            with contextlib.suppress(OSError):
                ends.append(name.start + os.stat(self.folder / str(name)).st_size)
        return own[0].start if own else self.offset, max(ends)

    def remove(self, found: Found) -> None:
        """Remove its files: all of it is in the journal."""
        for name in self._own(found):
            remove(self.folder, name)

    def _own(self, found: Found) -> list[SegmentName]:
        return [name for name in found.get(self.folder, []) if name[:3] == self.name[:3]]

    def _block(self, name: SegmentName, limit: int) -> bytes:
        path = self.folder / str(name)
        try:
            if os.stat(path).st_size <= self.offset - name.start:
                return b""
            with confined.open_file(path) as file:
                file.seek(self.offset - name.start)
                return file.read(limit)
        except OSError:
            return b""

    def _time(self, name: SegmentName, offset: int) -> float:
        start, read = self._timed
        if start != name.start:
            self._times, read = [], 0
        fresh = read_times(self.folder / str(name), read)
        self._timed = name.start, read + len(fresh) * TIME.size
        self._times += fresh
        place = bisect_right(self._times, offset, key=_offset) - 1
        del self._times[: max(0, place)]
        return self._times[0][0] if place >= 0 else time.time()

    def until(self, offset: int) -> int:
        """Where what was written at the same time as the byte at an offset ends, as far as it is known."""
        place = bisect_right(self._times, offset, key=_offset)
        return self._times[place][1] if place < len(self._times) else offset + BLOCK_BYTES


class FileSource:
    """A regular file that training's own output goes to, by its descriptor.

    Args:
        fd: taken over. name: as of a spool. said: how training says where it ended in it.
    """

    def __init__(self, fd: int, name: SegmentName, offset: int, said: Callable[[], PrintedFile | None]) -> None:
        self.folder = Path()
        self.name = name
        self.offset = offset
        self.left_out = 0
        self._fd = fd
        self._said = said

    def read(self, limit: int, found: Found) -> tuple[bytes, float]:
        """What comes next; and when the file was last written to, for it doesn't say more."""
        end = self._end()
        if end < self.offset:  # it was truncated
            self.offset = 0
        try:
            written = os.fstat(self._fd).st_mtime
            return os.pread(self._fd, max(0, min(limit, end - self.offset)), self.offset), written
        except OSError:
            return b"", 0.0

    def until(self, offset: int) -> int:
        """All of what was read was written at the same time, as far as it is known."""
        return offset + BLOCK_BYTES

    def span(self, found: Found) -> tuple[int, int]:
        """Where what is there of it begins and ends."""
        return 0, self._end()

    def remove(self, found: Found) -> None:
        """It is the user's; it is left."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def _end(self) -> int:
        try:
            size = os.fstat(self._fd).st_size
        except OSError:
            return self.offset
        said = self._said()
        return size if said is None or said.end is None else min(size, said.end)


def opened(pid: int, file: PrintedFile) -> int:
    """A descriptor of the regular file that a process's own is of; -1 where it isn't that file, or can't be read.

    Where the process is gone already, the file is found by its path.
    """
    for path in (f"/proc/{pid}/fd/{file.fd}", file.path):
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            continue
        status = os.fstat(fd)
        if stat.S_ISREG(status.st_mode) and (status.st_dev, status.st_ino) == (file.device, file.inode):
            return fd
        os.close(fd)
    return -1


def _offset(entry: tuple[float, int]) -> int:
    return entry[1]
