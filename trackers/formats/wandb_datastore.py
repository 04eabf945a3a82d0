"""W&B's offline files, ``run-<id>.wandb``: a LevelDB log of protocol-buffer records.

Layout (wandb 0.31; the package ships no reader): 7 bytes of header ``:W&B``, 0xBEE1 (little-endian), version 0;
then blocks of 32 KiB that hold chunks ``<crc32 of type and data: uint32> <length: uint16> <type: uint8> <data>``;
type 1 is a whole record, 2, 3 and 4 its first, middle and last part; a block's last 6 bytes or fewer are padding.
The first block's offsets count from the start of the file. A record is a ``wandb_internal.Record``.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trackers.errors import NotFound

BLOCK_BYTES = 32 * 1024
HEADER = struct.Struct("<4sHB")
CHUNK = struct.Struct("<IHB")
MAGIC = (b":W&B", 0xBEE1, 0)
DEPTH = 200
"""Maximum depth of nested keys; no program uses more."""
WHOLE, FIRST, MIDDLE, LAST = 1, 2, 3, 4


def payloads(path: Path) -> Iterator[bytes]:
    """The content of each complete record, in order.

    A file that ends in the middle of a record (its writer was killed, or still writes) ends before it; so does one
    whose next record is damaged.

    Raises:
        NotFound: no such file, or none of W&B's.
    """
    for payload, _ in scan(path):
        yield payload


def scan(path: Path, block_number: int = 0) -> Iterator[tuple[bytes, int]]:
    """Each complete record's content, and where in the file it ends.

    Args:
        block_number: begin with this block; what began before it is left out.

    Raises:
        NotFound: no such file, or none of W&B's.
    """
    if not path.is_file():
        raise NotFound(f"{path}: no such file")
    with open(path, "rb") as file:
        head = file.read(HEADER.size)
        if len(head) < HEADER.size:
            return
        if HEADER.unpack(head) != MAGIC:
            raise NotFound(f"{path} isn't a .wandb file of a version known here")
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
            checksum = zlib.crc32(data, zlib.crc32(bytes([kind])))
            if len(data) < length or kind not in (WHOLE, FIRST, MIDDLE, LAST) or checksum != crc:
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


def tail(path: Path, max_bytes: int = 1 << 20) -> Iterator[Any]:
    """The records that begin within a file's last ``max_bytes``; as :func:`records`."""
    blocks = max(0, path.stat().st_size - max_bytes) // BLOCK_BYTES
    yield from _decoded(payload for payload, _ in scan(path, blocks))


def records(path: Path) -> Iterator[Any]:
    """The records as ``wandb.proto.wandb_internal_pb2.Record``.

    Raises:
        NotFound: as :func:`payloads`.
    """
    yield from _decoded(payloads(path))


def _decoded(contents: Iterator[bytes]) -> Iterator[Any]:
    from google.protobuf.message import DecodeError
    from wandb.proto import wandb_internal_pb2 as protocol

    for payload in contents:
        try:
            yield protocol.Record.FromString(payload)
        except DecodeError:
            return


def values(items: Any) -> dict[str, Any]:
    """Items of a history, summary or config record as a mapping; nested keys are joined with "."."""
    found = {}
    for item in items:
        key = item.key or ".".join(item.nested_key)
        found[key] = json.loads(item.value_json) if item.value_json else _typed(item)
    return found


def _typed(item: Any) -> Any:
    for field, value in item.ListFields():
        if field.name.startswith("value_"):
            return value
    return None


def tree(items: Any) -> dict[str, Any]:
    """Items as a mapping, nested where their keys are: as ``run.log`` got it. A name with a dot in it keeps it."""
    found: dict[str, Any] = {}
    for item in items:
        value = json.loads(item.value_json) if item.value_json else _typed(item)
        *path, name = item.nested_key if not item.key else (item.key,)
        if len(path) > DEPTH:
            raise ValueError(f"a key of {len(path):,} parts")
        place = found
        for part in path:
            inner = place.setdefault(part, {})
            if not isinstance(inner, dict):
                inner = place[part] = {}
            place = inner
        place[name] = value
    return found
