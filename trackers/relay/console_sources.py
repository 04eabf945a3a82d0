"""Sources of console output: spools, and a regular file that training prints into.

Both are read from an offset on, and return bytes with the time at which they were written.
"""

from __future__ import annotations

import os
import stat
import time
from bisect import bisect_right
from collections.abc import Callable, Mapping
from pathlib import Path

from trackers.journal.console_spool import TIME, PrintedFile, SegmentName, read_times, remove
from trackers.support import confined
from trackers.support.interruption import pass_on, suppress

BLOCK_BYTES = 64 * 1024
"""Bytes without a time of their own that count as written at once."""

HOLE = bytes(16)
"""More NUL bytes in a row than anybody prints: where a truncated file has a hole."""
LAST_BYTES = 64
"""What was read last, by which a file is known again, in bytes."""

SpoolFiles = Mapping[Path, list[SegmentName]]
"""Spool files by folder, in the order in which they were written."""


class SpoolSource:
    """The spool of one stream of one process.

    Args:
        keep: don't remove files that were read; the relay does that.

    Attributes:
        offset: of the next byte to read. left_out: bytes that were removed before they were read, since the last reset.
        was_cut: bytes were removed, nobody knows how many; reset by who says so.
    """

    def __init__(self, folder: Path, name: SegmentName, offset: int, keep: bool = False) -> None:
        self.folder = folder
        self._keep = keep
        self.name = name
        self.offset = offset
        self.left_out = 0
        self.was_cut = False
        self._times: list[tuple[float, int]] = []
        self._timed = (-1, 0)

    def read(self, limit: int, spool_files: SpoolFiles) -> tuple[bytes, float]:
        """The next bytes, and when they were written.

        Args:
            spool_files: all spool files that exist.
        """
        files = self._own_files(spool_files)
        for index, name in enumerate(files):
            is_last = index + 1 == len(files)
            if not is_last and files[index + 1].start <= self.offset:
                if not self._keep:
                    remove(self.folder, name)
                continue
            if name.start > self.offset:
                self.left_out += name.start - self.offset
                self.offset = name.start
            data = self._read_block(name, limit)
            if data:
                return data, self._written_at(name, self.offset)
            if not is_last:
                self.left_out += max(0, files[index + 1].start - self.offset)
                self.offset = files[index + 1].start
        return b"", 0.0

    def span(self, spool_files: SpoolFiles) -> tuple[int, int]:
        """Offsets at which the available bytes begin and end."""
        files = self._own_files(spool_files)
        ends = [self.offset]
        for name in files:
            with suppress(OSError):
                ends.append(name.start + os.stat(self.folder / str(name)).st_size)
        return files[0].start if files else self.offset, max(ends)

    def remove(self, spool_files: SpoolFiles) -> None:
        """Remove its files: all of it is in the journal."""
        for name in self._own_files(spool_files):
            remove(self.folder, name)

    def _own_files(self, spool_files: SpoolFiles) -> list[SegmentName]:
        return [name for name in spool_files.get(self.folder, []) if name[:3] == self.name[:3]]

    def _read_block(self, name: SegmentName, limit: int) -> bytes:
        path = self.folder / str(name)
        try:
            if os.stat(path).st_size <= self.offset - name.start:
                return b""
            with confined.open_file(path) as file:
                file.seek(self.offset - name.start)
                return file.read(limit)
        except OSError as error:
            pass_on(error)
            return b""

    def _written_at(self, name: SegmentName, offset: int) -> float:
        start, read_bytes = self._timed
        if start != name.start:
            self._times, read_bytes = [], 0
        new_times = read_times(self.folder / str(name), read_bytes)
        self._timed = name.start, read_bytes + len(new_times) * TIME.size
        self._times += new_times
        index = bisect_right(self._times, offset, key=_offset) - 1
        del self._times[: max(0, index)]
        return self._times[0][0] if index >= 0 else time.time()

    def until(self, offset: int) -> int:
        """The end of the bytes written at the same time as the byte at an offset, as far as known."""
        index = bisect_right(self._times, offset, key=_offset)
        return self._times[index][1] if index < len(self._times) else offset + BLOCK_BYTES


class FileSource:
    """A regular file that training's own output goes to, by its descriptor.

    It may be truncated meanwhile, as logrotate's ``copytruncate`` does; unless training appends, a hole comes then.

    Args:
        fd: owned by this object. name: as of a spool. read_note: returns training's note of where its output ended.
    """

    def __init__(self, fd: int, name: SegmentName, offset: int, read_note: Callable[[], PrintedFile | None]) -> None:
        self.folder = Path()
        self.name = name
        self.offset = offset
        self.left_out = 0
        self.was_cut = False
        self._fd = fd
        self._read_note = read_note
        self._last = b"", 0

    def read(self, limit: int, spool_files: SpoolFiles) -> tuple[bytes, float]:
        """The next bytes, and when the file was last modified: it has no other times."""
        end = self._end()
        try:
            self._see_cut(end)
            written = os.fstat(self._fd).st_mtime
            data = os.pread(self._fd, max(0, min(limit, end - self.offset)), self.offset)
            if data.startswith(HOLE):  # truncated under a writer that doesn't append
                hole_bytes = len(data) - len(data.lstrip(b"\0"))
                self.offset += hole_bytes
                self.left_out += hole_bytes
                return self.read(limit, spool_files)
            data = data.partition(HOLE)[0]
        except OSError as error:
            pass_on(error)
            return b"", 0.0
        if data:
            self._last = data[-LAST_BYTES:], self.offset + len(data)
        return data, written

    def _see_cut(self, end: int) -> None:
        """See whether the file was truncated since the last time, though it may have grown again."""
        last, at = self._last
        if end < self.offset:
            self.offset, self.was_cut, self._last = 0, True, (b"", 0)
        elif last and at == self.offset and (now := os.pread(self._fd, len(last), at - len(last))) != last:
            self.was_cut, self._last = True, (b"", 0)  # and grown beyond since
            if now.strip(b"\0"):
                self.offset = 0

    def until(self, offset: int) -> int:
        """All bytes read at once count as written at the same time."""
        return offset + BLOCK_BYTES

    def span(self, spool_files: SpoolFiles) -> tuple[int, int]:
        """Offsets at which the available bytes begin and end."""
        return 0, self._end()

    def remove(self, spool_files: SpoolFiles) -> None:
        """Close the file, which is the user's and stays."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def _end(self) -> int:
        try:
            size = os.fstat(self._fd).st_size
        except OSError as error:
            pass_on(error)
            return self.offset
        note = self._read_note()
        return size if note is None or note.end is None else min(size, note.end)


def open_printed_file(pid: int, file: PrintedFile) -> int:
    """A descriptor of the regular file that a process's own is of; -1 where it isn't that file, or can't be read.

    Where the process is gone already, the file is found by its path.
    """
    for path in (f"/proc/{pid}/fd/{file.fd}", file.path):
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            pass_on(error)
            continue
        status = os.fstat(fd)
        if stat.S_ISREG(status.st_mode) and (status.st_dev, status.st_ino) == (file.device, file.inode):
            return fd
        os.close(fd)  # another file has its number by now
    return -1


def _offset(entry: tuple[float, int]) -> int:
    return entry[1]
