"""A text file that several programs append lines to, one after the other, and each exactly once by ours.

Ours can be killed between writing and committing, and others may have written since: so what lies behind the committed
length isn't cut off. A line that is there already isn't written again, a piece of one is completed, and a line of
others that lost its end is ended first.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from trackers.backends.shared.append_file import FileShrunk, unavailable
from trackers.support import confined
from trackers.support.failpoints import failpoint

TAIL_BYTES = 4096
"""No line is longer."""


class ProgressFile:
    """The file, which may not be there yet."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._behind: list[tuple[str, int, int]] = []

    def size(self) -> int:
        """Its bytes; 0 if it isn't there."""
        try:
            return self.path.stat().st_size
        except OSError:
            return 0

    def read(self, length: int) -> str:
        """Its first ``length`` bytes as text; "" if it isn't there."""
        try:
            with confined.open_file(self.path, root=self.path.parent) as file:
                return file.read(length).decode("utf-8", "replace")
        except OSError:
            return ""

    def look(self, length: int) -> None:
        """See which whole lines lie behind ``length``: they may be ours, of a process that was killed."""
        self._behind.clear()
        with contextlib.suppress(OSError), confined.open_file(self.path, root=self.path.parent) as file:
            file.seek(length)
            for line in file:
                if line.endswith(b"\n"):
                    end = length + len(line)
                    self._behind.append((line[:-1].decode("utf-8", "replace"), length, end))
                    length = end

    def place(self, line: str) -> int:
        """Where this line is, or will be."""
        return next((begin for text, begin, _ in self._behind if text == line), self.size())

    def put(self, lines: Sequence[str], length: int) -> int:
        """Append the lines that aren't there, all or none; how far the file has been looked through or written.

        Raises:
            Damaged: the file has become shorter than ``length``.
            Unavailable: it can't be written; nothing was.
        """
        left = list(self._behind)
        missing = []
        for line in lines:
            place = next((number for number, (text, _, _) in enumerate(left) if text == line), None)
            if place is None:
                missing.append(line)
            else:
                length = left[place][2]
                del left[: place + 1]
        if missing:
            length = self._append(missing, length)
        self._behind = left
        return length

    def _append(self, lines: Sequence[str], length: int) -> int:
        data = "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            fd = confined.open_fd(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, root=self.path.parent)
        except OSError as error:
            raise unavailable("open", self.path, error) from error
        try:
            size = os.fstat(fd).st_size
            if size < length:
                raise FileShrunk(f"{self.path} was cut while it was written")
            begin = max(0, size - TAIL_BYTES)
            os.lseek(fd, begin, os.SEEK_SET)
            torn = os.read(fd, size - begin).rpartition(b"\n")[2]
            if torn:
                data = data[len(torn) :] if data.startswith(torn) else b"\n" + data
            failpoint("progress.write.before")
            self._write(fd, data, size)
            failpoint("progress.write.after")
            return size + len(data)
        except OSError as error:
            raise unavailable("write", self.path, error) from error
        finally:
            os.close(fd)

    @staticmethod
    def _write(fd: int, data: bytes, size: int) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(fd, view) :]
        except OSError:
            with contextlib.suppress(OSError):  # so that the next try begins where this one did
                os.ftruncate(fd, size)
            raise
