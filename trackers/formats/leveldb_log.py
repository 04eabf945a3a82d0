"""Files of records in LevelDB's log format, as W&B's and SwanLab's clients write them.

Layout: 7 bytes of header (a name of four bytes, a magic number, a version); then blocks of 32 KiB that hold chunks
``<crc32 of type and data: uint32> <length: uint16> <type: uint8> <data>``; type 1 is a whole record, 2, 3 and 4 its
first, middle and last part; a block's last 6 bytes or fewer are padding. The first block's offsets count from the start
of the file. https://github.com/google/leveldb/blob/main/doc/log_format.md, but for the header and the checksum.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

from trackers.errors import NotFound

BLOCK_BYTES = 32 * 1024
HEADER = struct.Struct("<4sHB")
CHUNK = struct.Struct("<IHB")
WHOLE, FIRST, MIDDLE, LAST = 1, 2, 3, 4

Magic = tuple[bytes, int, int]

_SEEDS = {kind: zlib.crc32(bytes([kind])) for kind in (WHOLE, FIRST, MIDDLE, LAST)}


def scan(path: Path, magic: Magic, kind_of_file: str, block_number: int = 0) -> Iterator[tuple[bytes, int]]:
    """Each complete record's content, and where in the file it ends.

    A file that ends in the middle of a record (its writer was killed, or still writes) ends before it; so does one
    whose next record is damaged.

    Args:
        magic: the content of the header. kind_of_file: what to call such a file (".wandb").
        block_number: begin with this block; what began before it is left out.

    Raises:
        NotFound: no such file, or none of this kind.
    """
    if not path.is_file():
        raise NotFound(f"{path}: no such file")
    with open(path, "rb") as file:
        head = file.read(HEADER.size)
        if len(head) < HEADER.size:
            return
        if HEADER.unpack(head) != magic:
            raise NotFound(f"{path} isn't a {kind_of_file} file of a version known here")
        begin = block_number * BLOCK_BYTES  # of the block
        file.seek(begin)
        block = file.read(BLOCK_BYTES)
        offset = HEADER.size if block_number == 0 else 0
        parts: list[bytes] = []
        while True:
            if BLOCK_BYTES - offset < CHUNK.size:
                block, offset, begin = file.read(BLOCK_BYTES), 0, begin + BLOCK_BYTES
            if len(block) - offset < CHUNK.size:
                return
            crc, length, kind = CHUNK.unpack_from(block, offset)
            data = block[offset + CHUNK.size : offset + CHUNK.size + length]
            if len(data) < length or kind not in _SEEDS or zlib.crc32(data, _SEEDS[kind]) != crc:
                return
            offset += CHUNK.size + length
            whole = bool(parts) or kind in (WHOLE, FIRST)
            if kind in (WHOLE, FIRST):
                parts = [data]
            elif whole:
                parts.append(data)
            if kind in (WHOLE, LAST) and whole:
                yield b"".join(parts), begin + offset
                parts = []


class LevelDbFramer:
    """Makes the bytes of a file's records, which depend on where in the file they lie.

    Args:
        length: of the file, in bytes: where the next record begins.
    """

    def __init__(self, length: int) -> None:
        self.length = length

    def frame(self, content: bytes) -> bytes:
        """A record as it follows what the file holds; the length grows by it."""
        pieces = []
        kind, begin, end = WHOLE, 0, len(content)
        while True:
            room = BLOCK_BYTES - self.length % BLOCK_BYTES
            if room < CHUNK.size:
                pieces.append(bytes(room))
                self.length += room
                room = BLOCK_BYTES
            room -= CHUNK.size
            fits = end - begin <= room
            begun = kind != WHOLE
            kind = (LAST if begun else WHOLE) if fits else MIDDLE if begun else FIRST
            data = content[begin : end if fits else begin + room]
            pieces += (CHUNK.pack(zlib.crc32(data, _SEEDS[kind]), len(data), kind), data)
            self.length += CHUNK.size + len(data)
            if fits:
                return b"".join(pieces)
            begin += len(data)
