"""TFRecord framing of TensorBoard's event files, without TensorFlow.

A record is its length (uint64), the masked CRC-32C of those eight bytes, the data, and the masked CRC-32C of the
data, all little-endian (tensorflow/core/lib/io/record_writer.h).
"""

from __future__ import annotations

import functools
import importlib
import mmap
import struct
from collections.abc import Callable, Iterator

_MASK_DELTA = 0xA282EAD8
_CRC_TRIES = (("google_crc32c", "value"), ("crc32c", "crc32c"))
_header = struct.Struct("<QI")
_footer = struct.Struct("<I")
FRAME_BYTES = _header.size + _footer.size
"""Bytes of a record besides its data."""
SECOND_KIND = "data of another kind than the tag without its suffix"
"""The description of what lies below a tag with a suffix, because its name has data of another kind, too."""


class TFRecordFramer:
    """Frames records, with a compiled CRC-32C where one is installed (about twice as fast over all)."""

    def __init__(self) -> None:
        self._crc = compiled_crc32c() or crc32c

    def frame(self, data: bytes) -> bytes:
        """``data`` as one record of an event file."""
        length = len(data).to_bytes(8, "little")
        return b"".join((_header.pack(len(data), mask(self._crc(length))), data, _footer.pack(mask(self._crc(data)))))


def unframe(data: bytes | mmap.mmap) -> Iterator[bytes]:
    """The records of an event file, up to a torn tail.

    Raises:
        ValueError: a complete record has a wrong checksum.
    """
    crc = compiled_crc32c() or crc32c
    at = 0
    while at + 12 <= len(data):
        length, length_crc = _header.unpack_from(data, at)
        if mask(crc(data[at : at + 8])) != length_crc:
            raise ValueError(f"corrupt record length at byte {at}")
        end = at + 12 + length
        if end + 4 > len(data):
            return
        record = data[at + 12 : end]
        if mask(crc(record)) != _footer.unpack_from(data, end)[0]:
            raise ValueError(f"corrupt record at byte {at}")
        yield record
        at = end + 4


def mask(crc: int) -> int:
    """A CRC as TFRecord stores it, so that a CRC over data with CRCs in it stays strong."""
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF


@functools.cache
def compiled_crc32c() -> Callable[[bytes], int] | None:
    """CRC-32C from google-crc32c or crc32c, whichever is installed in compiled form."""
    for module, function in _CRC_TRIES:
        try:
            library = importlib.import_module(module)
        except ImportError:
            continue
        if getattr(library, "implementation", "c") != "python":
            return getattr(library, function)  # type: ignore[no-any-return]
    return None


def _table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return tuple(table)


_TABLE = _table()


def crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli) in plain Python, 0.1 µs a byte."""
    crc = 0xFFFFFFFF
    table = _TABLE
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF
