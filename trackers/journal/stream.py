"""Streams on disk: one writer each, one line a record, one ``write`` a call.

A writer appends to a file opened with O_APPEND, so what ``write`` returned from is in the kernel's page cache
and survives the death of the process. A reader takes complete lines only: a torn tail is left until its end
comes, and a line that isn't a record is skipped and counted. A tail of NUL bytes, as network filesystems show
for data that is on its way, counts as torn for a while and as damage afterwards. A file that was cut or replaced
underneath is noticed: a reader doesn't take what lies at its offset then for the next record. Lines that were damaged
since, though they are readable, are skipped and counted, too (:mod:`trackers.journal.checksums`).
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from trackers import records
from trackers.journal.checksums import ChecksumReader, NulPatience
from trackers.records import Finish, Record
from trackers.support import confined
from trackers.support.clock import monotonic
from trackers.support.descriptors import identity, open_high
from trackers.support.failpoints import failpoint
from trackers.support.interruption import pass_on, suppress
from trackers.support.seekable_zstd import open_file, size_of

BUFFER_BYTES = 64 * 1024 * 1024
"""Maximum memory for lines while the file can't be written (disk full); further ones are counted as lost."""
RETRY_S = 0.25
BLOCK_BYTES = 4 * 1024 * 1024
HOLE_BYTES = 64 * 1024 * 1024
"""A file with a larger hole in it, which costs its writer nothing, is read up to there."""
MOST_DAMAGE = 10_000  # a log of damage alone must not fill the memory
MOST_LEFT = 4
"""Maximum number of deleted or replaced files kept open, because forked processes may still write to them."""
PRECEDING_BYTES = 64
"""Bytes kept from the previous read, to detect a truncated or replaced file."""
NEAR_BYTES = 64 * 1024
"""Bytes at a stream's end that repeated checks search for a finish record."""
FAR_BYTES = 16 * 1024 * 1024
"""The same for a single check, before a run counts as ended without a finish record."""


class _Head(NamedTuple):
    """What waits first, and how many bytes of it are in the file: whole lines."""

    lines: bytes
    written: int


class _Attempt(NamedTuple):
    """A write that has begun: of what, and the file's length before it, -1 if unknown."""

    head: _Head
    size: int

    @property
    def rest(self) -> bytes:
        return self.head.lines[self.head.written :] if self.head.written else self.head.lines


class StreamWriter:
    """Appends lines to one stream.

    Lines join those that wait in memory, by one step that nothing can interrupt, and leave them once they are in the
    file. Where an exception from outside (:mod:`trackers.support.interruption`) comes in between, or a signal's handler
    writes lines of its own, the file tells how far it came: each line is there once.

    Args:
        path: the stream's file; its directory exists. A torn tail of an earlier writer is cut off.
        exclusive: the file must not exist yet: whoever creates it has the claim.
        joined: another process writes to it now: what looks torn is its line on the way.

    Attributes:
        lost: lines that were given up. error: why lines wait.
        accept: takes lines in one step that nothing can interrupt; ``push`` then writes them.

    Raises:
        OSError: the file can't be created or opened.
    """

    def __init__(self, path: Path, *, exclusive: bool = False, joined: bool = False) -> None:
        self.path = path
        self.lost = 0
        self.error: OSError | None = None
        self._lock = threading.RLock()
        self._waiting: deque[bytes] = deque()
        self.accept = self._waiting.append
        self._waiting_bytes = 0
        self._head = _Head(b"", 0)
        self._attempt: _Attempt | None = None
        self._torn = b""
        self._unended = False
        self._last = b""
        self._retry_at = 0.0
        self._closed = False
        self._size = 0
        self._left: list[tuple[int, tuple[int, int], int]] = []
        self._flags = os.O_RDWR | os.O_APPEND | os.O_CREAT
        self.fd = open_high(path, self._flags | (os.O_EXCL if exclusive else 0), confined.open_fd)
        self._file = identity(self.fd)
        if not exclusive and not joined:
            cut_torn_tail(self.fd)

    @property
    def healthy(self) -> bool:
        """True while every line went straight to the file: the caller may ``os.write`` to ``fd`` itself."""
        return not self._waiting and not self._torn

    @property
    def waiting(self) -> int:
        """Lines that wait for the disk."""
        return len(self._waiting)

    def write(self, line: bytes) -> None:
        """Append one or several complete lines; keeps them in memory while the disk refuses.

        Raises nothing of its own, only what comes from outside.
        """
        with self._lock:
            self.accept(line)
            self.push(line)

    def push(self, line: bytes) -> None:
        """Write a line that was accepted."""
        with self._lock:
            self._waiting_bytes += len(line)
            self.retry()
            self._give_up(BUFFER_BYTES)

    def _give_up(self, most: float) -> None:
        """Count as lost what waits beyond so many bytes, the newest first."""
        while self._waiting_bytes > most and self._waiting:
            lines = self._waiting.pop()
            self._waiting_bytes -= len(lines)
            self.lost += lines.count(b"\n", self._head.written if lines is self._head.lines else 0)

    def has(self, line: bytes) -> bool:
        """Whether this very object was the last that was written, or waits."""
        with self._lock:
            self._settle()
            return line is self._last or id(line) in map(id, self._waiting)

    def repair(self, line: bytes, written: int) -> None:
        """Take over a line of which a direct ``os.write`` to ``fd`` wrote only the first ``written`` bytes."""
        with self._lock:
            rest = line[self._take_back(line, written) :]
            if rest:
                self.accept(rest)
                self._waiting_bytes += len(rest)
                self._retry_at = monotonic() + RETRY_S

    def broke_off(self, line: bytes) -> None:
        """A direct ``os.write`` to ``fd`` was interrupted: a part of the line is cut off before the next one."""
        self._torn = line

    def retry(self, force: bool = False) -> bool:
        """Write what waits, in order; while the disk refuses, each quarter second at most. True if nothing waits."""
        with self._lock:
            return self._write_waiting(force)

    def _write_waiting(self, force: bool) -> bool:
        if self._torn:
            self._settle()
        while self._waiting:
            if self._attempt is not None and not self._settle():
                break
            if not force and self._retry_at and monotonic() < self._retry_at:
                return False
            size = self._length()
            if not self._waiting:  # a signal's handler has written them
                break
            if self._waiting[0] is not self._head.lines:
                self._head = _Head(self._waiting[0], 0)
            attempt = self._attempt = _Attempt(self._head, size)
            failpoint("journal.write.before")
            written = self._write(attempt)
            if self._attempt is attempt and written is not None:
                self._end_attempt(attempt, written)
                if self._waiting and self._waiting[0] is attempt.head.lines:
                    self._retry_at = monotonic() + RETRY_S
                    return False
                failpoint("journal.write.after")
        self.error, self._retry_at, self._waiting_bytes = None, 0.0, 0
        return True

    def flush(self, timeout_s: float) -> bool:
        """Try for a while to write what waits. True if nothing waits any more."""
        until = monotonic() + timeout_s
        while not self.retry(force=True):
            left = until - monotonic()
            if left <= 0:
                return False
            time.sleep(min(RETRY_S, left))
        return True

    def why(self) -> str:
        """Why lines wait, and what to do about it, in a few words each."""
        return why_refused(self.error, self.path.parent)

    def after_fork(self) -> None:
        """In a forked child: what waits is the parent's to write, and nobody here holds the lock."""
        self._lock = threading.RLock()
        self._waiting.clear()
        self._waiting_bytes = 0
        self._attempt, self._torn, self._unended = None, b"", False

    def mend(self, make_directory: Callable[[], object] = lambda: None) -> str:
        """Put right what somebody did to the file or its descriptor. Takes microseconds when all is well.

        Args:
            make_directory: called before a file that was deleted is put back.

        Returns:
            what was found: "closed" (the descriptor, which may be of another file now: the file was opened again),
            "deleted" (or replaced: the file is put back whole), "unmended" (either of these, and it can't be done now:
            ``why`` says why), "cut" (nothing can be done), or "".
        """
        with self._lock:
            if identity(self.fd) != self._file:
                if self._reopen():
                    return "closed"
                make_directory()
                return "closed" if self._reopen() else "unmended"
            if self.missing():
                make_directory()
                return "deleted" if self.restore() else "unmended"
            self._gather()
            return "cut" if self.shrunk() else ""

    def follow(self, alive: Callable[[], bool]) -> None:
        """As :meth:`mend`, in a forked child: it goes over to the file that its parent put back.

        Args:
            alive: whether that process still lives. While it does, putting a file back is left to it, and it takes
                along what was written to the old one meanwhile.
        """
        with self._lock:
            if identity(self.fd) != self._file:
                self._reopen()
            elif self.missing():
                if self.path.exists():
                    old = self.fd
                    if self._reopen():
                        os.close(old)
                elif not alive():
                    confined.make_folder(self.path.parent)
                    self.restore()

    def missing(self) -> bool:
        """True if the file was deleted or replaced underneath."""
        try:
            status = os.stat(self.path)
        except OSError as error:
            pass_on(error)
            return True
        return (status.st_dev, status.st_ino) != self._file

    def shrunk(self) -> bool:
        """True if the file is shorter than when this was last asked: somebody cut it."""
        size = os.fstat(self.fd).st_size
        shorter = size < self._size
        self._size = size
        return shorter

    def restore(self) -> bool:
        """Put a file that was deleted or replaced underneath back, whole. True if it is there again."""
        with self._lock:
            return self._restored()

    def _restored(self) -> bool:
        temporary = confined.temporary(self.path)
        fresh = -1
        try:
            # Readers must never see a part of it: they would take it for a file that was cut.
            fresh = open_high(temporary, self._flags | os.O_EXCL, confined.open_fd)
            offset = 0
            while block := os.pread(self.fd, BLOCK_BYTES, offset):
                offset += os.write(fresh, block)
            offset = cut_torn_tail(fresh)  # a line that another process is writing: ``_gather`` finds it whole
            confined.replace(temporary, self.path)
        except OSError as error:
            pass_on(error)
            self.error = error
            if fresh >= 0:
                os.close(fresh)
            with suppress(OSError):
                confined.remove(temporary)
            return False
        self._left.append((self.fd, self._file, offset))
        self.fd, self._file, self._size = fresh, identity(fresh), 0
        while len(self._left) > MOST_LEFT:
            self._gather()
            self._drop(self._left.pop(0))
        return True

    def close(self) -> None:
        """Write what waits, if the disk takes it, and leave the file. What still waits counts as lost.

        The descriptor's number stays taken until ``release``: another thread may be about to write to it, and
        must not hit a file that was opened under the same number.
        """
        with self._lock:
            if self._closed:
                return
            self.retry(force=True)
            self._gather()
            for entry in self._left:
                self._drop(entry)
            self._left.clear()
            self._give_up(-math.inf)
            with suppress(OSError):  # no descriptor left: then the file stays open until ``release``
                null = open_high(os.devnull, os.O_WRONLY)
                if identity(self.fd) == self._file:  # else the program closed it: another file's number
                    os.dup2(null, self.fd, inheritable=False)  # a late write to the number reaches no other file
                    os.close(null)
                else:
                    self.fd = null
                self._file = identity(self.fd)
            self._closed = True

    def release(self) -> None:
        """Close, and give the descriptor's number back."""
        with self._lock:
            self.close()
            if self.fd >= 0:
                if identity(self.fd) == self._file:  # else the program closed it: another file's number
                    os.close(self.fd)
                self.fd = -1

    def _reopen(self) -> bool:
        """Open the file by its path. The old descriptor isn't closed here: its number may be somebody else's."""
        try:
            self.fd = open_high(self.path, self._flags, confined.open_fd)
        except OSError as error:
            pass_on(error)
            self.error = error
            return False
        self._file, self._size = identity(self.fd), 0
        return True

    def _gather(self) -> None:
        """Copy what forked processes wrote to a file that was deleted or replaced since."""
        for number, (fd, file, offset) in enumerate(self._left):
            if identity(fd) != file:
                continue
            try:
                while block := os.pread(fd, BLOCK_BYTES, offset):
                    whole = block[: block.rfind(b"\n") + 1]
                    if not whole:
                        break
                    self.write(whole)
                    offset += len(whole)
            except OSError as error:
                pass_on(error)
                self.error = error
            self._left[number] = (fd, file, offset)

    def _drop(self, entry: tuple[int, tuple[int, int], int]) -> None:
        if identity(entry[0]) == entry[1]:
            os.close(entry[0])

    def _write(self, attempt: _Attempt) -> int | None:
        """Number of bytes written of what an attempt has to write; None if that is done. ``error``: why not all."""
        waiting, head, rest = self._waiting, attempt.head, attempt.rest
        for can_reopen in (True, False):
            try:
                if self._unended and os.write(self.fd, b"\n"):
                    self._unended = False
                # Between these comparisons and the write no signal's handler can run, which would write the same.
                if self._attempt is attempt and self._head is head and waiting and waiting[0] is head.lines:
                    return os.write(self.fd, rest)
                return None
            except OSError as error:
                pass_on(error)
                self.error = error
                if not can_reopen or identity(self.fd) == self._file or not self._reopen():
                    break
        return 0

    def _end_attempt(self, attempt: _Attempt, written: int) -> None:
        """Note how many bytes of what an attempt had to write are in the file."""
        lines, before = attempt.head
        if before + written < len(lines):
            self._head = _Head(lines, before + self._take_back(attempt.rest, written))
            written = self._head.written - before
        if before + written == len(lines):
            self._last = lines
            if self._waiting and self._waiting[0] is lines:
                self._waiting.popleft()
            self._waiting_bytes -= len(lines)
        self._attempt = None

    def _settle(self) -> bool:
        """Find out from the file how far a write came that was interrupted. Whether lines wait then."""
        torn, attempt = self._torn, self._attempt
        with suppress(OSError):
            end = self._length()
            if torn:
                block = _read(self.fd, max(0, end - len(torn)), end)
                fragment = block[block.rfind(b"\n") + 1 :]
                if fragment and torn.startswith(fragment):
                    self._take_back(torn, len(fragment))
                self._torn = b""
            if attempt is not None and self._waiting and self._waiting[0] is attempt.head.lines:
                rest = attempt.rest
                block = _read(self.fd, attempt.size if 0 <= attempt.size <= end else max(0, end - len(rest)), end)
                if _holds(block, rest):
                    self._end_attempt(attempt, len(rest))
                else:
                    same = next((n for n, (a, b) in enumerate(zip(block, rest, strict=False)) if a != b), len(block))
                    # Where another process wrote behind it, a part of a line stays.
                    self._end_attempt(attempt, same if same == len(block) else rest.rfind(b"\n", 0, same) + 1)
        self._attempt = None
        self._waiting_bytes = sum(map(len, self._waiting))
        return bool(self._waiting)

    def _length(self) -> int:
        try:
            return os.fstat(self.fd).st_size
        except OSError as error:  # the program closed the descriptor
            pass_on(error)
            return -1

    def _take_back(self, lines: bytes, written: int) -> int:
        """Cut off the line of which the file took only the first part, ``written`` bytes of ``lines`` after all, and
        find out why. Returns how many bytes of ``lines`` the file keeps: those of whole lines."""
        kept = lines.rfind(b"\n", 0, max(written, 0)) + 1
        if written <= kept:
            return kept
        fragment, ended = lines[kept:written], False
        try:
            ended = os.write(self.fd, b"\n") == 1  # one byte more: what it answers is the reason
        except OSError as error:
            pass_on(error)
            self.error = error
        else:
            self.error = self.error or OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # a part was written
        is_whole = lines[written : written + 1] == b"\n"
        if ended and is_whole:
            return written + 1
        try:
            fragment += b"\n" * ended
            begin = os.fstat(self.fd).st_size - len(fragment)
            if os.pread(self.fd, len(fragment), begin) == fragment:  # else another process wrote behind it
                os.ftruncate(self.fd, begin)
        except OSError as error:
            pass_on(error)
            if is_whole:
                return written
            # The fragment stays; ending its line keeps it apart from the next one. Readers skip and count it.
            self._unended = not ended
        return kept


def _read(fd: int, begin: int, end: int) -> bytes:
    """A file's bytes from ``begin`` to ``end``."""
    block = b""
    while begin + len(block) < end and (more := os.pread(fd, end - begin - len(block), begin + len(block))):
        block += more
    return block


def _holds(block: bytes, lines: bytes) -> bool:
    """Whether a block of a file has these lines, from the begin of a line on."""
    at = block.find(lines)
    while at > 0 and block[at - 1 : at] != b"\n":
        at = block.find(lines, at + 1)
    return at >= 0


def why_refused(error: OSError | None, folder: Path) -> str:
    """Why the disk refuses a file of a folder, and what to do about it, in a few words each."""
    number = error.errno if error is not None else errno.ENOSPC
    what = os.strerror(number or errno.EIO)
    if number == errno.EFBIG:
        return f"{what}: raise the limit on the size of files, `ulimit -f`"
    if number == errno.EROFS:
        return f"{what}: make {folder} writable"
    if number in (errno.ENOSPC, errno.EDQUOT):
        return f"{what}: free some space for {folder}"
    return f"{what}: see to {folder}"


def cut_torn_tail(fd: int) -> int:
    """Cut what follows the last newline, and return the file's length."""
    size = os.lseek(fd, 0, os.SEEK_END)
    end = size
    while end > 0:
        start = max(0, end - 65536)
        newline = os.pread(fd, end - start, start).rfind(b"\n")
        if newline >= 0:
            end = start + newline + 1
            break
        end = start
    if end < size:
        os.ftruncate(fd, end)
    return end


class StreamReader:
    """Reads one stream from an offset on, as far as complete lines go.

    Attributes:
        offset: where the next line begins; set it to read from elsewhere.
        cut: what was read isn't there any more, so that the offset means nothing; ``read`` gives nothing until
            the offset is set anew, or the file is as it was.
        corrupt: complete lines skipped because they aren't records or aren't as they were written, or mended because
            two ran into one.
        damage: where those lines begin; for the caller to empty.
        missing: the last ``read`` found no file.
        unknown: records skipped because their kind isn't known here.
        patience: whether lines are waited for that have NUL bytes for now.
    """

    def __init__(self, path: Path, offset: int = 0) -> None:
        self.path = path
        self.name = path.name.removesuffix(".jsonl")
        self.cut = False
        self._offset = offset
        self._preceding = b""
        self.corrupt = 0
        self.damage: list[int] = []
        self.missing = False
        self.unknown = 0
        self._size = 0
        self.patience = NulPatience()
        self._checksums = ChecksumReader(path)

    @property
    def offset(self) -> int:
        return self._offset

    @offset.setter
    def offset(self, offset: int) -> None:
        self._offset = offset
        self._preceding = b""
        self.cut = False

    def size(self) -> int:
        """Length of the file in bytes; 0 if there is none."""
        try:
            return size_of(self.path)
        except OSError:
            return 0

    def read(self, limit: int = 1000, max_bytes: int = BLOCK_BYTES, end: int | None = None) -> list[Record]:
        """The next records, at most ``limit``, with ``id`` set; [] if no complete line has come.

        Args:
            end: stop before the line that begins at or after this offset.
        """
        if end is not None:
            max_bytes = min(max_bytes, end - self._offset)
        read = self._block(max_bytes)
        block, damage = self._checksums.patched(self._offset, read) if read else (read, [])
        decoded, position = self._decode_whole(block, limit)
        while len(decoded) < limit:
            newline = block.find(b"\n", position)
            if newline < 0:
                break
            line = block[position:newline]
            if b"\0" in line:
                if self.patience.waits(self.path, self._offset + position, self._size):
                    break
                line = line.rstrip(b"\0") or b"\0"  # what stood there is lost: damage
            record = self._decode(line, self._offset + position)
            if record is not None:
                records.set_id(record, self.name, self._offset + position)
                decoded.append(record)
            position = newline + 1
        self._note([offset for offset in damage if offset < self._offset + position])
        if position:
            self._offset += position
            self._preceding = (self._preceding + read[max(0, position - PRECEDING_BYTES) : position])[-PRECEDING_BYTES:]
        return decoded

    def _decode_whole(self, block: bytes, limit: int) -> tuple[list[Record], int]:
        """Up to ``limit`` lines, decoded at once, and where they end; nothing if one must be decoded by itself."""
        starts = [0]
        while len(starts) <= limit and (newline := block.find(b"\n", starts[-1])) >= 0:
            starts.append(newline + 1)
        end = starts.pop()
        try:
            decoded = records.decode_block(block[:end])
        except records.CorruptLine:
            return [], 0
        if len(decoded) != len(starts):  # an empty line
            return [], 0
        for start, record in zip(starts, decoded, strict=True):
            records.set_id(record, self.name, self._offset + start)
        return decoded, end

    def _block(self, max_bytes: int) -> bytes:
        self.missing = False
        if max_bytes <= 0:
            return b""
        try:
            with open_file(self.path) as file:
                self._size = file.seek(0, os.SEEK_END)
                file.seek(self._offset - len(self._preceding))
                self.cut = self._size < self._offset or file.read(len(self._preceding)) != self._preceding
                if self.cut:
                    return b""
                block = file.read(max_bytes) or b""
                while len(block) >= max_bytes and b"\n" not in block:  # one line longer than a block
                    more = file.read(max_bytes)
                    if not more or is_endless(block):
                        break
                    block += more
        except FileNotFoundError as error:
            pass_on(error)
            self.missing = True
            return b""
        return block

    def _note(self, damage: list[int]) -> None:
        self.corrupt += len(damage)
        self.damage += damage[: MOST_DAMAGE - len(self.damage)]

    def _decode(self, line: bytes, offset: int) -> Record | None:
        if not line:
            return None
        try:
            record = records.decode(line)
        except records.CorruptLine:
            self._note([offset])
            return _mended(line)
        if record is None:
            self.unknown += 1
        return record


def _mended(line: bytes) -> Record | None:
    """The record at the end of a line that begins with a piece of another: the file was cut within that one."""
    begin = line.rfind(b'{"kind":')
    with contextlib.suppress(records.CorruptLine):
        return records.decode(line[begin:]) if begin > 0 else None
    return None


def tail(path: Path, max_bytes: int = 65536) -> list[Record]:
    """The records in the last ``max_bytes`` of a stream, whole lines only."""
    try:
        with open_file(path) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - max_bytes))
            block = file.read()
    except OSError:
        return []
    return decode_lines(block, whole=size <= max_bytes)


def decode_lines(block: bytes, *, whole: bool) -> list[Record]:
    """The records of complete lines. whole: the block begins with one, not within it."""
    decoded = []
    for line in block.split(b"\n")[0 if whole else 1 : -1]:
        with contextlib.suppress(records.CorruptLine):
            record = records.decode(line.strip(b"\0")) if line else None
            if record is not None:
                decoded.append(record)
    return decoded


def last_record(path: Path) -> Record | None:
    """The last complete record of a stream, or None."""
    try:
        size = size_of(path)
    except OSError:
        return None
    for back in (4096, 1 << 20, HOLE_BYTES, confined.READ_BYTES):
        last_records = tail(path, back)
        if last_records:
            return last_records[-1]
        if back >= size or (back == HOLE_BYTES and is_hole(path)):
            break
    return None


def lines_of(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a stream with their ends, up to a hole."""
    line = b""
    while piece := file.readline(HOLE_BYTES):
        line += piece
        if len(piece) < HOLE_BYTES or piece.endswith(b"\n"):
            yield line
            line = b""
        elif is_endless(line):
            return


def is_endless(line: bytes) -> bool:
    """Whether a line without an end, as far as it was read, is a hole."""
    return len(line) >= HOLE_BYTES and (len(line) > confined.READ_BYTES or not line[-BLOCK_BYTES:].strip(b"\0"))


def is_hole(path: Path) -> bool:
    """True if a stream ends in a hole."""
    with open_file(path) as file:
        return file.seek(max(0, file.seek(0, os.SEEK_END) - HOLE_BYTES)) > 0 and is_endless(file.read())


class FinishSearch:
    """Looks for the finish record of a stream that may still grow. Each byte is read once.

    The record need not be the last one: a forked child or a thread may have been about to write when the run ended.

    Args:
        back: begin so many bytes before the stream's present end.

    Attributes:
        finish: the last finish record that was seen; None before the first.
    """

    _FINISH_PREFIX = b'{"kind":"finish"'

    def __init__(self, path: Path, back: int = FAR_BYTES) -> None:
        self.path = path
        self.finish: Finish | None = None
        self._back = back
        self._offset = -1
        self._seen: tuple[int, ...] = ()
        self._checksums = ChecksumReader(path)

    def read(self) -> Finish | None:
        """Read what is new. Returns ``finish``; an unreadable stream has nothing new."""
        seen: tuple[int, ...] = ()
        with suppress(OSError):  # ten times a second for each run of a machine
            status = os.stat(self.path)
            seen = status.st_ino, status.st_size, status.st_mtime_ns
        if seen and seen == self._seen:
            return self.finish
        self._seen = seen
        with suppress(OSError), open_file(self.path) as file:
            size = file.seek(0, os.SEEK_END)
            if self._offset < 0 or size < self._offset:  # the first look, or the file was cut
                self._offset = max(0, size - self._back)
            file.seek(self._offset)
            while block := file.read(min(BLOCK_BYTES, size - self._offset)):
                self._search(block, self._offset)
                whole = block.rfind(b"\n") + 1
                if len(block) < BLOCK_BYTES:
                    self._offset += whole
                    break
                candidate = max(
                    0, block.rfind(self._FINISH_PREFIX)
                )  # of a line longer than a block, a possible finish is kept
                self._offset += whole or candidate or len(block) - len(self._FINISH_PREFIX)
                file.seek(self._offset)
        return self.finish

    def _search(self, block: bytes, begin: int) -> None:
        # No text can hold the prefix: the quotes in it would be escaped.
        at = block.rfind(self._FINISH_PREFIX)
        while at >= 0:
            end = block.find(b"\n", at)
            if end >= 0 and not self._checksums.damaged(begin + at, begin + end):
                with contextlib.suppress(records.CorruptLine):
                    record = records.decode(block[at:end])
                    if isinstance(record, Finish):
                        self.finish = record
                        return
            at = block.rfind(self._FINISH_PREFIX, 0, at)


def find_finish(path: Path, back: int = NEAR_BYTES) -> Finish | None:
    """The last finish record within the last ``back`` bytes of a stream, whatever follows it; None without one."""
    return FinishSearch(path, back).read()
