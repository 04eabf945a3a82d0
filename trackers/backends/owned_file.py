"""Files that a tracker alone writes, and that are exact after a kill at any moment.

An append-only file grows by whole pieces, and its length goes into the tracker's state, which is committed
together with the cursor. Whatever lies behind that length when the file is opened again was written by a
process that died before the commit, so it is cut off.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from trackers.errors import Unavailable
from trackers.failpoints import failpoint
from trackers.records import Record

_R = TypeVar("_R", bound=Record)


class Damaged(Unavailable):
    """The file is gone, or shorter than what was committed: its tracker rebuilds it from the journal at ``open``."""

    reopen = True


class OwnedFile:
    """An append-only file with one writer.

    Args:
        path: where it lies; the directory is made by :meth:`open`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = -1
        self._length = 0

    @property
    def length(self) -> int:
        """Bytes that were appended as a whole: what the state has to remember."""
        return self._length

    def open(self, length: int = 0) -> OwnedFile:
        """Open the file and cut it back to ``length`` bytes. Length 0 makes a new file, or empties an old one.

        Raises:
            Damaged: the file holds less than ``length`` bytes.
            Unavailable: the file can't be opened or cut.
        """
        self.close()
        try:
            if length == 0:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_APPEND | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
            self._fd = os.open(self.path, flags | (os.O_CREAT if length == 0 else 0), 0o666)
            size = os.fstat(self._fd).st_size
            if size > length:
                failpoint("owned.cut.before")
                os.ftruncate(self._fd, length)
                failpoint("owned.cut.after")
        except FileNotFoundError:
            raise Damaged(f"{self.path} is gone") from None
        except OSError as error:
            self.close()
            raise unavailable("open", self.path, error) from error
        if size < length:
            self.close()
            raise Damaged(f"{self.path} has {size} bytes instead of {length}")
        self._length = length
        return self

    def append(self, data: bytes) -> None:
        """Add ``data``, all of it or nothing.

        Raises:
            Unavailable: it can't be written (a full disk, a quota); the file has its former length.
            Damaged: somebody cut the file, or removed it.
        """
        view = memoryview(data)
        try:
            if os.fstat(self._fd).st_size < self._length:
                raise Damaged(f"{self.path} was cut while it was written")
            if not self.path.exists():
                raise Damaged(f"{self.path} was removed while it was written")
            self._cut(self._length)  # what an earlier failure may have left
            failpoint("owned.write.before")
            while view:
                view = view[os.write(self._fd, view) :]
            failpoint("owned.write.after")
        except OSError as error:
            with contextlib.suppress(OSError):  # then the next append, or the next open, cuts it
                self._cut(self._length)
            raise unavailable("write", self.path, error) from error
        self._length += len(data)

    def cut(self, length: int) -> None:
        """Take back what was appended behind ``length``.

        Raises:
            Unavailable: the file can't be cut.
        """
        try:
            self._cut(length)
        except OSError as error:
            raise unavailable("cut", self.path, error) from error
        self._length = length

    def sync(self) -> None:
        """Wait until the file's content is on the disk.

        Raises:
            Unavailable: the disk reports an error.
        """
        try:
            os.fsync(self._fd)
        except OSError as error:
            raise unavailable("store", self.path, error) from error

    def close(self) -> None:
        """Close the file; harmless when it is closed."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _cut(self, length: int) -> None:
        if os.fstat(self._fd).st_size > length:  # never longer: the gap would be of NUL bytes
            os.ftruncate(self._fd, length)


def replace(path: Path, temporary: Path, pieces: Iterable[bytes]) -> int:
    """Write ``pieces`` to ``temporary`` and put it in the place of ``path`` in one step; the number of bytes.

    A kill leaves ``path`` as it was, and perhaps ``temporary``, which the tracker removes when it opens.

    Raises:
        Unavailable: it can't be written; ``path`` is as it was and ``temporary`` is gone.
    """
    failpoint("owned.replace.before")
    size = write_new(temporary, pieces)
    try:
        failpoint("owned.rename.before")
        os.replace(temporary, path)
        failpoint("owned.rename.after")
    except OSError as error:
        remove(temporary)
        raise unavailable("write", path, error) from error
    return size


def write_new(path: Path, pieces: Iterable[bytes]) -> int:
    """Write ``pieces`` to ``path`` and wait until they are on the disk; the number of bytes.

    Raises:
        Unavailable: it can't be written; ``path`` is gone.
    """
    size = 0
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as out:
            for piece in pieces:
                size += out.write(piece)
            out.flush()
            os.fsync(out.fileno())
    except OSError as error:
        remove(path)
        raise unavailable("write", path, error) from error
    return size


def remove(path: Path) -> None:
    """Remove a file that may be gone already; one that can't be removed stays."""
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)


def unavailable(verb: str, path: Path, error: OSError) -> Unavailable:
    """What to raise for a file that can't be written: disks get space again, mounts come back."""
    return Unavailable(f"can't {verb} {path}: {error.strerror or error}; it is tried again")


def unseen(records: Sequence[_R], seq: int) -> Sequence[_R]:
    """Those of a batch that weren't taken before: ``seq`` is the highest that was. Unnumbered ones are new."""
    if not records or records[0].seq > seq:
        return records
    return [record for record in records if not record.seq or record.seq > seq]


def file_name(text: str, fallback: str = "run", longest: int = 120) -> str:
    """``text`` as one part of a path, valid on every file system and as near to the original as that allows."""
    kept = "".join(c if c.isprintable() and c not in '/\\:*?"<>|' else "_" for c in text).strip(". ")
    while len(kept.encode("utf-8", "replace")) > longest:
        kept = kept[:-1]
    return kept or fallback
