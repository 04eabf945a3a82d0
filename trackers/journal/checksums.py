"""Checksums of a journal's lines, by which damage shows that leaves a line readable: a bit that a disk has changed.

Beside ``streams/rank-0.1.jsonl`` lies ``streams/rank-0.1.sums``. Who reads a stream first, the relay, appends to it;
the writer of the stream does nothing for it. A line of it is JSON and covers whole lines of the stream, up to 64 KiB:

    {"begin":0,"end":214,"crc":1042834,"lines":"agAAAGoAAAA…","own":3405691582}

``begin``, ``end``: offsets in the stream. ``crc``: CRC-32 of these bytes. ``lines``: n lengths without the line's end,
then n CRC-32 of the same, little-endian 32-bit numbers in base64. ``own``: CRC-32 of all that, so that damage to the
checksums makes nothing of the stream look damaged. A line with ``begin`` equal to ``end`` says that the stream was cut
there by somebody: what was said of later bytes doesn't count any more.

Only what was in the stream a second ago is covered, and complete: a line that is cut off again, because the disk took
only a part of it, or a tail that a killed writer left, never is. Lines that took the place of covered ones, in a file
that somebody has cut, aren't damaged: behind them nothing is as it was written. Offsets are those of the uncompressed
stream.
"""

from __future__ import annotations

import bisect
import errno
import os
import struct
import zlib
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec

from trackers.errors import UNDECODABLE
from trackers.support import confined
from trackers.support.clock import monotonic, unix_time
from trackers.support.interruption import pass_on, suppress
from trackers.support.seekable_zstd import open_file

SUFFIX = ".sums"
RANGE_BYTES = 64 * 1024
TURN_BYTES = 8 * 1024 * 1024
"""Maximum number of bytes read of one stream in a turn while training runs, so that the relay can do other work."""
POLL_S = 1.0
PRECEDING_BYTES = 64
"""Bytes before the covered end that are kept, to detect a stream that was cut or replaced."""
NUL_PATIENCE_S = 10.0
OLD_S = 120.0
"""A stream that nobody has written to for so long has nothing on its way."""
HOLE_BYTES = 64 * 1024 * 1024
CHUNK_BYTES = 1024 * 1024
"""Bytes read at a time, more than a line of checksums has: a longer one is none, and the file ends there."""
AHEAD = 64
"""Maximum number of further ranges in which an undamaged line is looked for."""
ONE_BIT_BYTES = 4096  # each bit is a checksum of the whole line more
"""Longest line of which it is found out whether a single bit was changed."""


class _Range(msgspec.Struct):
    begin: int
    end: int
    crc: int
    lines: bytes
    own: int

    def seal(self) -> int:
        """What ``own`` must be."""
        return zlib.crc32(self.lines, zlib.crc32(b"%d %d %d" % (self.begin, self.end, self.crc)))


class _Entry(NamedTuple):
    """A range, and where its line lies in the file of checksums."""

    begin: int
    end: int
    crc: int
    at: int
    size: int


class _Line(NamedTuple):
    """A line as it was written. length, crc: without its end."""

    offset: int
    length: int
    crc: int

    def is_in(self, block: bytes, begin: int) -> bool:
        """Whether it is in the stream's bytes from ``begin`` on."""
        content = block[self.offset - begin : self.offset - begin + self.length + 1]
        return len(content) == self.length + 1 and content.endswith(b"\n") and zlib.crc32(content[:-1]) == self.crc

    def is_one_bit_off(self, block: bytes, begin: int) -> bool:
        """Whether it is there but for one bit."""
        content = bytearray(block[self.offset - begin : self.offset - begin + self.length + 1])
        if len(content) != self.length + 1 or self.length > ONE_BIT_BYTES:
            return False
        end = content.pop()
        if zlib.crc32(content) == self.crc:
            return (end ^ ord("\n")).bit_count() == 1
        for at in range(self.length if end == ord("\n") else 0):
            for bit in range(8):
                content[at] ^= 1 << bit
                if zlib.crc32(content) == self.crc:
                    return True
                content[at] ^= 1 << bit
        return False


class DamagedLine(NamedTuple):
    """Where a line lies that isn't what was written: its offset and its length, with its end."""

    offset: int
    size: int


def skipped(lines: int) -> str:
    """How many damaged lines were left out, in words."""
    return f"{'1 damaged line' if lines == 1 else f'{lines:,} damaged lines'} of the journal skipped"


def path_of(stream: Path) -> Path:
    """The file with a stream's checksums."""
    return stream.with_name(stream.name.removesuffix(".jsonl") + SUFFIX)


def _line_of(begin: int, content: bytes) -> bytes:
    lines = content[:-1].split(b"\n") if content else []
    numbers = struct.pack(f"<{2 * len(lines)}I", *map(len, lines), *map(zlib.crc32, lines))
    entry = _Range(begin, begin + len(content), zlib.crc32(content), numbers, 0)
    entry.own = entry.seal()
    return msgspec.json.encode(entry) + b"\n"


class _Index:
    """The ranges of a file of checksums that may still grow. What is damaged of it is left out.

    Attributes:
        entries: in order, none of which overlap. position: up to where the file was read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries: list[_Entry] = []
        self.begins: list[int] = []
        self.position = 0
        self._file = (0, 0)

    def update(self) -> None:
        """Read what is new."""
        try:
            status = os.stat(self.path)
        except OSError as error:
            pass_on(error)
            return
        if status.st_ino != self._file[0] or status.st_size < self.position:
            self.entries, self.begins, self.position = [], [], 0
        elif status.st_size == self._file[1]:
            return
        self._file = status.st_ino, status.st_size
        with suppress(OSError), confined.open_file(self.path) as file:
            file.seek(self.position)
            rest = b""
            while block := file.read(CHUNK_BYTES):
                *lines, rest = (rest + block).split(b"\n")
                for line in lines:
                    self._add(line)
                    self.position += len(line) + 1
                if len(rest) > CHUNK_BYTES:
                    return

    def _add(self, line: bytes) -> None:
        try:
            found = msgspec.json.decode(line, type=_Range)
        except UNDECODABLE as error:
            pass_on(error)
            return
        if found.own != found.seal() or not 0 <= found.begin <= found.end:
            return
        if found.begin == found.end:
            while self.entries and self.entries[-1].end > found.begin:
                self.entries.pop()
                self.begins.pop()
        elif found.begin >= self.end:  # else of a second relay
            self.entries.append(_Entry(found.begin, found.end, found.crc, self.position, len(line)))
            self.begins.append(found.begin)

    @property
    def end(self) -> int:
        """Up to where the stream is covered."""
        return self.entries[-1].end if self.entries else 0

    def lines(self, entry: _Entry) -> list[_Line]:
        """The lines of a range."""
        with confined.open_file(self.path) as file:
            file.seek(entry.at)
            numbers = msgspec.json.decode(file.read(entry.size), type=_Range).lines
        values = struct.unpack(f"<{len(numbers) // 4}I", numbers)
        count, offset, found = len(values) // 2, entry.begin, []
        for length, crc in zip(values[:count], values[count:], strict=True):
            found.append(_Line(offset, length, crc))
            offset += length + 1
        return found


class ChecksumReader:
    """Finds the damaged lines of one stream. Each range is looked at once; streams without checksums have none.

    Args:
        stream: its file, packed or not.
    """

    def __init__(self, stream: Path) -> None:
        self._stream = stream
        self._index = _Index(path_of(stream))
        self._damage: dict[int, list[DamagedLine]] = {}  # by where a range's line lies: the same bytes may get others

    def covered(self) -> int:
        """Bytes of the stream that have checksums."""
        self._index.update()
        return sum(entry.end - entry.begin for entry in self._index.entries)

    def damaged(self, begin: int, end: int) -> list[DamagedLine]:
        """Damaged lines that lie between two offsets, or reach into what is between them, in order."""
        self._index.update()
        entries = self._index.entries
        first = max(0, bisect.bisect_right(self._index.begins, begin) - 1)
        last = bisect.bisect_left(self._index.begins, end)
        unseen = [number for number in range(first, last) if entries[number].at not in self._damage]
        if unseen:
            with suppress(OSError), open_file(self._stream) as file:
                for number in unseen:
                    wrong, replaced = _compared(file, self._index, number)
                    damaged = [DamagedLine(line.offset, line.length + 1) for line in wrong if line.offset < replaced]
                    self._damage[entries[number].at] = damaged
        lines = (line for number in range(first, last) for line in self._damage.get(entries[number].at, ()))
        return [line for line in lines if line.offset < end and line.offset + line.size > begin]

    def patched(self, begin: int, block: bytes) -> tuple[bytes, list[int]]:
        """A stream's bytes from an offset on with empty lines in the place of damaged ones, and where such begin."""
        damage = self.damaged(begin, begin + len(block))
        if not damage:
            return block, []
        content = bytearray(block)
        for line in damage:
            first, last = max(0, line.offset - begin), min(len(block), line.offset + line.size - begin)
            content[first:last] = b"\n" * (last - first)
        return bytes(content), [line.offset for line in damage if line.offset >= begin]


def _compared(file: BinaryIO, index: _Index, number: int) -> tuple[list[_Line], int]:
    """The lines of a range that aren't as they were written, and the offset from which on others took their place.

    That is so where nothing behind is as it was: somebody has cut the file, and what was written later came there.
    """
    entry = index.entries[number]
    block = _read(file, entry)
    if len(block) == entry.end - entry.begin and zlib.crc32(block) == entry.crc:
        return [], entry.end
    lines = index.lines(entry)
    wrong = [line for line in lines if not line.is_in(block, entry.begin)]
    later = index.entries[number + 1 : number + 1 + AHEAD]
    if not wrong or wrong[-1] != lines[-1] or any(_has_right(file, index, entry) for entry in later):
        return wrong, entry.end
    tail = len(lines) - 1
    while tail and not lines[tail - 1].is_in(block, entry.begin):
        tail -= 1
    if tail == len(lines) - 1 and lines[tail].is_one_bit_off(block, entry.begin):
        return wrong, entry.end  # by a disk: after a cut another line would stand there
    return wrong, lines[tail].offset


def _has_right(file: BinaryIO, index: _Index, entry: _Entry) -> bool:
    block = _read(file, entry)
    return zlib.crc32(block) == entry.crc or any(line.is_in(block, entry.begin) for line in index.lines(entry))


def _read(file: BinaryIO, entry: _Entry) -> bytes:
    file.seek(entry.begin)
    return file.read(entry.end - entry.begin)


class NulPatience:
    """Waits for what a network filesystem shows as NUL bytes while it is on its way. waiting: it does at present."""

    def __init__(self) -> None:
        self.waiting = False
        self._since, self._end = 0.0, 0

    def waits(self, stream: Path, offset: int, size: int) -> bool:
        """Whether such bytes at an offset may still become data. What the stream has by now is waited for once."""
        if offset >= self._end:
            self._since, self._end = monotonic(), size
        self.waiting = False
        with suppress(OSError):  # archived
            is_old = unix_time() - os.stat(stream).st_mtime > OLD_S
            self.waiting = not is_old and monotonic() - self._since < NUL_PATIENCE_S
        return self.waiting


class ChecksumWriter:
    """Appends the checksums of one stream. No method raises of a disk's error: it is tried again at the next call.

    Args:
        stream: its file, which need not be there yet.
    """

    def __init__(self, stream: Path) -> None:
        self._stream = stream
        self._path = path_of(stream)
        self._end = -1
        self._before = b""
        self._size = 0
        self._patience = NulPatience()

    def poll(self, *, final: bool = False, most_bytes: int = TURN_BYTES) -> bool:
        """Cover what was there at the last call already. True if there is more to be covered now.

        Args:
            final: nobody writes to the stream any more: cover all of it.
        """
        try:
            size = os.stat(self._stream).st_size
            until, self._size = size if final else min(size, self._size), size
            if self._end >= 0 and until <= self._end <= size:
                return False
            return self._cover(until, most_bytes)
        except OSError as error:  # not there, a full disk
            pass_on(error)
            return False

    def _cover(self, until: int, most_bytes: int) -> bool:
        with confined.open_file(self._stream) as file:
            file.seek(max(0, self._end - len(self._before)))
            if self._end < 0 or file.read(len(self._before)) != self._before:
                self._resume(file)
            file.seek(self._end)
            block = file.read(max(0, min(most_bytes, until - self._end)))
            end = self._whole(block)
            if not end and len(block) == most_bytes < HOLE_BYTES:  # one line longer than a turn
                return self._cover(until, 4 * most_bytes)
            entries, begin = [], 0
            while begin < end:
                last = block.rfind(b"\n", begin, min(end, begin + RANGE_BYTES)) + 1 or block.index(b"\n", begin) + 1
                entries.append(_line_of(self._end + begin, block[begin:last]))
                begin = last
            if entries:
                self._append(b"".join(entries))
            self._end += end
            self._before = (self._before + block[:end])[-PRECEDING_BYTES:]
            return end > 0 and self._end < until

    def _whole(self, block: bytes) -> int:
        """How far a block has whole lines; those with NUL bytes, as network filesystems show them, are on their way."""
        nul = block.find(b"\0")
        end = block.rfind(b"\n", 0, nul if nul >= 0 else len(block)) + 1
        if nul >= 0 and not end and not self._patience.waits(self._stream, self._end + nul, self._end + len(block)):
            end = block.find(b"\n", nul) + 1  # damage: covered, though it is no record
        return end

    def _resume(self, file: BinaryIO) -> None:
        """Find out up to where the stream is covered, and is as it was then."""
        index = _Index(self._path)
        index.update()
        before = index.end
        while index.entries and _compared(file, index, len(index.entries) - 1)[1] < index.end:
            index.entries.pop()
        if index.end < before:
            self._append(_line_of(index.end, b""))
        self._end = index.end
        file.seek(max(0, self._end - PRECEDING_BYTES))
        self._before = file.read(min(self._end, PRECEDING_BYTES))

    def _append(self, lines: bytes) -> None:
        fd = confined.open_fd(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        try:
            size = os.fstat(fd).st_size
            if size and os.pread(fd, 1, size - 1) != b"\n":  # a killed relay's
                lines = b"\n" + lines
            written = os.write(fd, lines)
            if written < len(lines):
                os.ftruncate(fd, size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # a short write names no reason
        finally:
            os.close(fd)
