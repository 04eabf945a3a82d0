"""Files that a tracker alone writes, and that are exact after a kill at any moment.

An append-only file grows by whole pieces, and its length goes into the tracker's state, which is committed
together with the cursor. Whatever lies behind that length when the file is opened again was written by a
process that died before the commit, so it is cut off.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from trackers.errors import DeliveryError, Fatal, Unavailable
from trackers.records import Record, Start, escaped
from trackers.support import confined
from trackers.support.confined import local
from trackers.support.failpoints import failpoint
from trackers.tracker import Cursor, Verified

Digests = dict[str, tuple[int, int]]
"""Length and CRC-32 of what a tracker wrote, by the file's name: its state keeps them, to compare what lies there."""
DIGESTS = "digests"
"""The digests' name in a tracker's state."""
READ_BYTES = 1 << 20

_R = TypeVar("_R", bound=Record)


class FileShrunk(Unavailable):
    """The file is gone, or shorter than what was committed: its tracker rebuilds it from the journal at ``open``."""

    reopen = True


class OwnedFile:
    """An append-only file with one writer.

    Args:
        path: where it lies; the directory is made by :meth:`open`.
        root: the directory that it must lie beneath, through no link; default: its own.
        digests: where the length and the checksum of what was appended are kept, by the file's name.
    """

    def __init__(self, path: Path, root: Path | None = None, digests: Digests | None = None) -> None:
        self.path = path
        self._root = path.parent if root is None else root
        self._fd = -1
        self._length = 0
        self._digests: Digests = {} if digests is None else digests
        self._before: tuple[int, int] | None = None

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
                make_folder(self.path.parent, self._root)
            flags = os.O_RDWR | os.O_APPEND | (os.O_CREAT if length == 0 else 0)
            self._fd = confined.open_fd(self.path, flags, root=self._root)
            size = os.fstat(self._fd).st_size
            if size > length:
                failpoint("owned.cut.before")
                os.ftruncate(self._fd, length)
                failpoint("owned.cut.after")
        except FileNotFoundError:
            raise FileShrunk(f"{self.path} is gone") from None
        except OSError as error:
            self.close()
            raise unavailable("open", self.path, error) from error
        if size < length:
            self.close()
            raise FileShrunk(f"{self.path} has {size} bytes instead of {length}")
        self._length = length
        known = self._digests.get(path_key(self.path))
        if length == 0:
            self._digests[path_key(self.path)] = (0, 0)
        elif known is None or known[0] != length:
            self._digests.pop(path_key(self.path), None)  # what was written is no longer known
        return self

    def append(self, data: bytes) -> None:
        """Add ``data``, all of it or nothing.

        Raises:
            Unavailable: it can't be written (a full disk, a quota); the file has its former length.
            Damaged: somebody cut the file, or removed it.
        """
        view = memoryview(data)
        self.check()
        try:
            self._truncate(self._length)  # what an earlier failure may have left
            failpoint("owned.write.before")
            while view:
                view = view[os.write(self._fd, view) :]
            failpoint("owned.write.after")
        except OSError as error:
            with contextlib.suppress(OSError):  # then the next append, or the next open, cuts it
                self._truncate(self._length)
            raise unavailable("write", self.path, error) from error
        self._length += len(data)
        self._before = self._digests.get(path_key(self.path))
        if self._before is not None:
            self._digests[path_key(self.path)] = (self._length, zlib.crc32(data, self._before[1]))

    def check(self) -> None:
        """See that the file is still the one at its path, with all that was appended.

        Raises:
            Damaged: somebody cut, removed or replaced it.
            Unavailable: that can't be told.
        """
        try:
            own = os.fstat(self._fd)
            status = self.path.lstat()
        except FileNotFoundError:
            raise FileShrunk(f"{self.path} was removed while it was written") from None
        except OSError as error:
            raise unavailable("read", self.path, error) from error
        if own.st_size < self._length:
            raise FileShrunk(f"{self.path} was cut while it was written")
        if not os.path.samestat(own, status):
            raise FileShrunk(f"{self.path} was replaced while it was written")

    def truncate(self, length: int) -> None:
        """Truncate the file to ``length``, if it is longer.

        Raises:
            Unavailable: the file can't be cut.
        """
        try:
            self._truncate(length)
        except OSError as error:
            raise unavailable("cut", self.path, error) from error
        if length != self._length:
            if self._before is not None and self._before[0] == length:
                self._digests[path_key(self.path)] = self._before
            else:
                self._digests.pop(path_key(self.path), None)
        self._length = length

    def rewrite(self, pieces: Iterable[bytes], temporary: Path) -> None:
        """Replace the content in one step, as :func:`replace` does, and go on at its end.

        Raises:
            DeliveryError: it can't be written; the file is as it was, and open.
        """
        length = self._length
        self.close()  # Windows replaces no open file
        try:
            length = replace(self.path, temporary, pieces, self._root, self._digests)
        except DeliveryError:
            self.open(length)
            raise
        self.open(length)

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

    def _truncate(self, length: int) -> None:
        if os.fstat(self._fd).st_size > length:  # never longer: the gap would be of NUL bytes
            os.ftruncate(self._fd, length)


def path_key(path: Path) -> str:
    """A file's name among the digests of its tracker."""
    return path.name


def digests(state: Mapping[str, Any]) -> Digests:
    """The digests that a tracker's state holds, for this process to go on with."""
    return {name: (int(digest[0]), int(digest[1])) for name, digest in dict(state.get(DIGESTS) or {}).items()}


def verified(paths: Sequence[tuple[Path, Path]], known: Mapping[str, tuple[int, int]]) -> Verified:
    """Read files back. Damaged ones are removed, so that the next ``open`` has the run written anew.

    Args:
        paths: the files, each with the directory that it must lie beneath. One of which nothing is known counts as
            damaged: an older version wrote it.
    """
    bad, size = [], 0
    for path, root in paths:
        expected = known.get(path_key(path))
        try:
            problem = "no checksum known" if expected is None else _differs(path, root, *expected)
        except OSError as error:
            problem = error.strerror or str(error)
        size += expected[0] if expected else 0
        if problem:
            bad.append(f"{path} ({problem})")
            with contextlib.suppress(OSError):
                confined.remove(path, root=root)
    files = "1 file" if len(paths) == 1 else f"{len(paths)} files"
    return Verified(f"{files}, {size:,} bytes", bad, Cursor(0) if bad else None)


def _differs(path: Path, root: Path, length: int, crc: int) -> str:
    with confined.open_file(path, root=root) as file:
        size = os.fstat(file.fileno()).st_size
        if size < length:
            return f"{size:,} bytes instead of {length:,}"
        checksum, left = 0, length
        while left > 0 and (block := file.read(min(left, READ_BYTES))):
            checksum, left = zlib.crc32(block, checksum), left - len(block)
    return "other content than was written" if checksum != crc else ""


def replace(
    path: Path, temporary: Path, pieces: Iterable[bytes], root: Path | None = None, known: Digests | None = None
) -> int:
    """Write ``pieces`` to a file beside ``path`` and put it in its place in one step; the number of bytes.

    A kill leaves ``path`` as it was, and perhaps the other file, which the tracker removes when it opens.

    Args:
        temporary: how that file's name begins; the rest can't be guessed. See :func:`remove_temporary`.
        root: the directory that both must lie beneath, through no link; default: their own.
        known: where the digest is kept.

    Raises:
        Unavailable: it can't be written; ``path`` is as it was and ``temporary`` is gone.
    """
    failpoint("owned.replace.before")
    crc = 0

    def summed() -> Iterator[bytes]:
        nonlocal crc
        for piece in pieces:
            crc = zlib.crc32(piece, crc)
            yield piece

    temporary, size = write_new(temporary, summed(), root)
    try:
        failpoint("owned.rename.before")
        confined.replace(temporary, path, root=root or path.parent)
        failpoint("owned.rename.after")
        if known is not None:
            known[path_key(path)] = (size, crc)
    except OSError as error:
        remove(temporary)
        raise unavailable("write", path, error) from error
    return size


def write_new(temporary: Path, pieces: Iterable[bytes], root: Path | None = None) -> tuple[Path, int]:
    """Write ``pieces`` to a new file and wait until they are on the disk: the file, and the number of bytes.

    Args:
        temporary: how the file's name begins; the rest can't be guessed. root: as for :func:`replace`.

    Raises:
        Unavailable: it can't be written; nothing is left.
    """
    size, root = 0, root or temporary.parent
    path = temporary.with_name(f"{temporary.name}.{secrets.token_hex(8)}")
    try:
        make_folder(path.parent, root)
        with confined.open_file(path, "xb", root=root) as out:
            for piece in pieces:
                size += out.write(piece)
            out.flush()
            os.fsync(out.fileno())
    except OSError as error:
        remove(path)
        raise unavailable("write", path, error) from error
    return path, size


def make_folder(path: Path, root: Path) -> None:
    """Make a folder, and ``root`` above it: beneath that no part of the path is a link.

    Raises:
        OSError: it can't be made.
    """
    confined.make_base(root)
    if path != root:
        confined.make_folder(path, root=root)


def remove_temporary(temporary: Path) -> None:
    """Remove what processes that were killed left of :func:`replace` and :func:`write_new`."""
    with contextlib.suppress(OSError):
        for entry in os.listdir(temporary.parent):
            if entry == temporary.name or entry.startswith(f"{temporary.name}."):
                remove(temporary.with_name(entry))


def remove(path: Path) -> None:
    """Remove a file that may be gone already; one that can't be removed stays."""
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)


def unavailable(verb: str, path: Path, error: OSError) -> DeliveryError:
    """What to raise for a file that can't be written: disks get space again, mounts come back; links and pipes stay."""
    if error.errno == errno.ELOOP and error.filename:
        return Fatal(f"can't {verb} {path}: {error.filename} {error.strerror}, which isn't followed; remove it")
    if "regular file" in str(error) or error.errno == errno.EISDIR:  # a pipe, see ``confined``; a folder
        return Fatal(f"can't {verb} {path}: {error.strerror}; remove it")
    return Unavailable(f"can't {verb} {path}: {error.strerror or error}; it is tried again")


def unseen(records: Sequence[_R], seq: int) -> Sequence[_R]:
    """Those of a batch that weren't taken before: ``seq`` is the highest that was. Unnumbered ones are new."""
    if not records or records[0].seq > seq:
        return records
    return [record for record in records if not record.seq or record.seq > seq]


def take_with_rewinds(
    records: Sequence[Record],
    rewound: int,
    take: Callable[[Sequence[Record]], None],
    rewind: Callable[[int, int], None],
) -> None:
    """Take a batch in parts: where an attempt begins at an earlier step, what lies above it goes before the rest comes.

    Args:
        rewound: the attempt for which that was done last; its start may come again.
        take: called with the records up to such a start, and from there on.
        rewind: called with the step and the attempt.
    """
    part: list[Record] = []
    for record in records:
        if isinstance(record, Start) and record.from_step is not None and record.attempt > rewound:
            take(part)
            rewind(record.from_step, record.attempt)
            part, rewound = [], record.attempt
        part.append(record)
    take(part)


def file_name(text: str, fallback: str = "run", longest: int = 120) -> str:
    """``text`` as one part of a path, valid on every file system and as near to the original as that allows."""
    safe = "".join(c if c.isprintable() and c not in '/\\:*?"<>|' else "_" for c in escaped(text)).strip(". ")
    while len(safe.encode("utf-8", "replace")) > longest:  # filesystems count bytes
        safe = safe[:-1]
    return local(safe) or fallback
