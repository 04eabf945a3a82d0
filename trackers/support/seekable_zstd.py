"""Files that ``trackers archive`` compressed: read where they lie, as if they weren't, from any place in them.

A packed file is ordinary Zstandard (``zstd -d`` unpacks it): frames of :data:`FRAME_BYTES` each, and at the end the
table of zstd's seekable format, so that the end of a stream is read without unpacking its beginning.

Source: https://github.com/facebook/zstd/blob/dev/contrib/seekable_format/zstd_seekable_compression_format.md
"""

from __future__ import annotations

import bisect
import contextlib
import hashlib
import importlib
import io
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from trackers.errors import Damaged, MissingPackage
from trackers.support import confined

SUFFIX = ".zst"
FRAME_BYTES = 2 * 1024 * 1024
"""Uncompressed size of a frame; a stream's last line is read by unpacking one."""
LEVEL = 9
"""Higher ones cost several times the processor time for a few percent."""
HOLE_BYTES = 64 * 1024 * 1024
FRAME_MOST = 16 * 1024 * 1024
"""No frame that claims more is unpacked: it would be in memory at once."""
FRAMES_MOST = 1 << 20
GROWTH_FROM = 64 * 1024 * 1024
GROWTH_MOST = 5000
"""Maximum expansion of a compressed journal above that size; real ones compress to about a tenth."""
WINDOW_MOST = 32 * 1024 * 1024
"""Maximum window of a frame, which is kept in memory."""
_SKIPPABLE = 0x184D2A5E
_SEEKABLE = 0x8F92EAB1
_HEAD = struct.Struct("<II")
_ENTRY = struct.Struct("<II")
_FOOT = struct.Struct("<IBI")


class UncompressedContent(NamedTuple):
    """Uncompressed content of a file: its length in bytes and the SHA-256 of it, in hexadecimal."""

    size: int
    sha256: str


def packed_path(path: Path) -> Path:
    """Where the packed form of a file lies: beside it."""
    return path.with_name(path.name + SUFFIX)


def open_file(path: Path) -> BinaryIO:
    """A file for reading, packed or not.

    Raises:
        FileNotFoundError: it is there in neither form. Damaged: the packed form isn't whole, or claims too much.
        MissingPackage: it is packed, and this Python can't read Zstandard.
    """
    try:
        return confined.open_file(path)
    except FileNotFoundError:
        try:
            return cast(BinaryIO, io.BufferedReader(PackedFile(packed_path(path))))
        except FileNotFoundError:
            return confined.open_file(path)  # unpacked a moment ago


def size_of(path: Path) -> int:
    """A file's length as :func:`open_file` reads it; errors as there."""
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        with open_file(path) as file:
            return file.seek(0, os.SEEK_END)


def pack(source: Path, target: Path) -> UncompressedContent:
    """Write a file's packed form, to the disk itself, with the file's time; return what was read of it.

    Raises:
        Damaged: it has a long hole, of which nobody reads what stands behind. OSError: it can't be read or written.
            A part of the target may be left.
    """
    zstd = need_zstd()
    digest, size, frames, empty = hashlib.sha256(), 0, [], 0
    with confined.open_file(source) as file, confined.open_file(target, "wb") as out:
        while block := file.read(FRAME_BYTES):
            empty = 0 if block.strip(b"\0") else empty + len(block)
            if empty >= HOLE_BYTES:
                raise Damaged(f"{source} has a hole of {HOLE_BYTES:,} bytes or more: it isn't packed")
            digest.update(block)
            size += len(block)
            frame = zstd.compress(block, LEVEL)
            out.write(frame)
            frames.append((len(frame), len(block)))
        out.write(_HEAD.pack(_SKIPPABLE, len(frames) * _ENTRY.size + _FOOT.size))
        out.write(b"".join(_ENTRY.pack(*entry) for entry in frames))
        out.write(_FOOT.pack(len(frames), 0, _SEEKABLE))
        out.flush()
        times = os.fstat(file.fileno())
        os.utime(out.fileno(), ns=(times.st_atime_ns, times.st_mtime_ns))
        os.fsync(out.fileno())
    return UncompressedContent(size, digest.hexdigest())


def content_of(path: Path) -> UncompressedContent:
    """Read a file whole, as it is; of one that ends in ``.zst``, what it unpacks to."""
    digest, size = hashlib.sha256(), 0
    for block in blocks_of(path):
        digest.update(block)
        size += len(block)
    return UncompressedContent(size, digest.hexdigest())


def blocks_of(path: Path) -> Iterator[bytes]:
    """A file's content in pieces; errors as :func:`open_file`."""
    packed = path.name.endswith(SUFFIX)
    with cast(BinaryIO, PackedFile(path)) if packed else confined.open_file(path) as file:
        while block := file.read(FRAME_BYTES):
            yield block


class PackedFile(io.RawIOBase):
    """A packed file, opened for reading; one frame is in memory at a time.

    Raises:
        FileNotFoundError, Damaged, MissingPackage: see :func:`open_file`.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._file = confined.open_file(path)
        try:
            self._zstd = need_zstd()
            self._frames, self._starts, self._size = self._table()
        except BaseException:
            self._file.close()
            raise
        self._position = 0
        self._frame, self._block = -1, b""

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """The place in the unpacked content."""
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a place in the unpacked content."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise OSError(22, f"{self._path}: an offset below 0")
        self._position = base + offset
        return self._position

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer as far as the frame goes; 0 at the end."""
        if self._position >= self._size:
            return 0
        number = bisect.bisect_right(self._starts, self._position) - 1
        if number != self._frame:
            self._block, self._frame = self._unpacked(number), number
        start = self._position - self._starts[number]
        chunk = self._block[start : start + len(buffer)]
        buffer[: len(chunk)] = chunk
        self._position += len(chunk)
        return len(chunk)

    def close(self) -> None:
        """Leave the file."""
        if not self.closed and hasattr(self, "_file"):  # one that couldn't be opened is closed, too, as it goes
            self._file.close()
        super().close()

    def _unpacked(self, number: int) -> bytes:
        begin, length, size = self._frames[number]
        self._file.seek(begin)
        try:
            block = _decompress(self._zstd, self._file.read(length), size + 1)
        except (self._zstd.ZstdError, ValueError, EOFError, MemoryError) as error:
            raise self._damaged(str(error)) from None
        if len(block) != size:
            raise self._damaged(f"{'more' if len(block) > size else f'{len(block):,}'} bytes where {size:,} should be")
        return block

    def _table(self) -> tuple[list[tuple[int, int, int]], list[int], int]:
        end = self._file.seek(0, os.SEEK_END)
        count, magic, length = 0, 0, 0
        if end >= _FOOT.size:
            self._file.seek(end - _FOOT.size)
            count, _, magic = _FOOT.unpack(self._file.read(_FOOT.size))
            length = count * _ENTRY.size + _FOOT.size
        if magic != _SEEKABLE or end < length + _HEAD.size:
            raise self._damaged("its end is missing")
        if count > FRAMES_MOST:
            raise self._damaged(f"it claims {count:,} frames")
        self._file.seek(end - length)
        entries = list(_ENTRY.iter_unpack(self._file.read(count * _ENTRY.size)))
        frames, starts, begin, size = [], [], 0, 0
        for packed, unpacked in entries:
            if unpacked > FRAME_MOST:
                raise self._damaged(f"it claims a frame of {unpacked:,} bytes")
            frames.append((begin, packed, unpacked))
            starts.append(size)
            begin, size = begin + packed, size + unpacked
        if begin + _HEAD.size + length != end:
            raise self._damaged(f"{begin + _HEAD.size + length:,} bytes long by its table, {end:,} by its length")
        if size > max(GROWTH_FROM, GROWTH_MOST * end):
            raise self._damaged(f"{end:,} bytes claim to hold {size:,}")
        return frames, starts, size

    def _damaged(self, why: str) -> Damaged:
        return Damaged(f"{self._path} is damaged ({why}): put it back from a backup")


def _decompress(zstd: Any, packed: bytes, most: int) -> bytes:
    """What a frame unpacks to, but never more than ``most`` bytes, whatever its own head claims."""
    if zstd.__name__ == "zstandard":
        with zstd.ZstdDecompressor(max_window_size=WINDOW_MOST).stream_reader(packed) as reader:
            return bytes(reader.read(most))
    options = {zstd.DecompressionParameter.window_log_max: WINDOW_MOST.bit_length() - 1}
    return bytes(zstd.ZstdDecompressor(options=options).decompress(packed, max_length=most))


def need_zstd(what: str = "archived runs") -> Any:
    """Python's own module where it has one (3.14), else the package: both have ``compress`` and ``decompress``.

    Args:
        what: needs it, for the message.

    Raises:
        MissingPackage: neither is there.
    """
    for name in ("compression.zstd", "zstandard"):
        with contextlib.suppress(ImportError):
            return importlib.import_module(name)
    raise MissingPackage(f"{what} need the zstandard package: pip install 'trackers-relay[archive]'")
