"""Records of a file in LevelDB's log format, as SwanLab's client writes them: the format is
:mod:`trackers.formats.leveldb_log`'s."""

from __future__ import annotations

import zlib

from trackers.formats.leveldb_log import BLOCK_BYTES, CHUNK, FIRST, LAST, MIDDLE, WHOLE


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
            pieces += (CHUNK.pack(zlib.crc32(data, zlib.crc32(bytes([kind]))), len(data), kind), data)
            self.length += CHUNK.size + len(data)
            if fits:
                return b"".join(pieces)
            begin += len(data)
