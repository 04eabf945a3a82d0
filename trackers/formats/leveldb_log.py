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

BLOCK_BYTES = 32 * 1024  # leveldb's kBlockSize
HEADER = struct.Struct("<4sHB")
CHUNK = struct.Struct("<IHB")
WHOLE, FIRST, MIDDLE, LAST = 1, 2, 3, 4

Magic = tuple[bytes, int, int]

_SEEDS = {kind: zlib.crc32(bytes([kind])) for kind in (WHOLE, FIRST, MIDDLE, LAST)}


class Damage:
    """What a reading left out. first: byte of the file where damage begins; None: there is none.

    skipped_bytes: damaged ones, and those of records that lack a part. cut_bytes: of a last record that is incomplete:
    its writer was killed, or still writes.
    """

    def __init__(self) -> None:
        self.first: int | None = None
        self.skipped_bytes = self.cut_bytes = 0

    def skip(self, begin: int, size: int) -> None:
        """Count bytes that are left out."""
        self.first = begin if self.first is None else self.first
        self.skipped_bytes += size

    def notes(self, path: Path, is_written: bool) -> list[str]:
        """What a reader of the data must know. is_written: a process may still complete the last record."""
        notes = []
        if self.first is not None:
            left_out = f"{self.skipped_bytes:,} bytes are left out, the other records are read"
            notes.append(f"{path} is damaged at byte {self.first:,}: {left_out}")
        if self.cut_bytes and not is_written:
            notes.append(f"{path} ends inside a record: its last {self.cut_bytes:,} bytes are left out")
        return notes


def scan(
    path: Path, magic: Magic, kind_of_file: str, block_number: int = 0, damage: Damage | None = None
) -> Iterator[tuple[bytes, int]]:
    """Each complete record's content, and where in the file it ends.

    A file that ends in the middle of a record (its writer was killed, or still writes) ends before it; so does one
    whose next record is damaged, unless ``damage`` is there.

    Args:
        magic: the content of the header. kind_of_file: what to call such a file (".wandb").
        block_number: begin with this block; what began before it is left out.
        damage: counts what is damaged; the reading goes on with the next sound chunk.

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
                if damage is not None:
                    damage.cut_bytes = len(block) - offset + _framed(parts)
                return
            crc, length, kind = CHUNK.unpack_from(block, offset)
            data = block[offset + CHUNK.size : offset + CHUNK.size + length]
            if len(data) < length or kind not in _SEEDS or zlib.crc32(data, _SEEDS[kind]) != crc:
                if damage is None:
                    return
                sound = _next_sound(block, offset + 1)
                if sound == len(block) < offset + CHUNK.size + length <= BLOCK_BYTES and kind in _SEEDS:
                    damage.cut_bytes = sound - offset + _framed(parts)
                    return
                damage.skip(begin + offset, sound - offset + _framed(parts))
                parts, offset = [], sound
                if sound == len(block) < BLOCK_BYTES:
                    return
                continue
            offset += CHUNK.size + length
            whole = bool(parts) or kind in (WHOLE, FIRST)
            if kind in (WHOLE, FIRST):
                parts = [data]
            elif whole:
                parts.append(data)
            elif damage is not None and damage.first is not None:
                damage.skip(begin + offset, CHUNK.size + length)
            if kind in (WHOLE, LAST) and whole:
                yield b"".join(parts), begin + offset
                parts = []


def _framed(parts: list[bytes]) -> int:
    """Number of bytes that a record's parts have in the file."""
    return sum(CHUNK.size + len(part) for part in parts)


def _next_sound(block: bytes, begin: int) -> int:
    """Where the block's next chunk with a right checksum begins; its end if there is none."""
    for offset in range(begin, len(block) - CHUNK.size + 1):
        if block[offset + CHUNK.size - 1] in _SEEDS:
            crc, length, kind = CHUNK.unpack_from(block, offset)
            end = offset + CHUNK.size + length
            if end <= len(block) and zlib.crc32(block[offset + CHUNK.size : end], _SEEDS[kind]) == crc:
                return offset
    return len(block)
