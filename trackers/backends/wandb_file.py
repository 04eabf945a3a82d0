"""Reads W&B's offline files, ``run-<id>.wandb``: a LevelDB log of protocol-buffer records.

Layout (wandb 0.31; the package ships no reader): 7 bytes of header ``:W&B``, 0xBEE1 (little-endian), version 0;
then blocks of 32 KiB that hold chunks ``<crc32 of type and data: uint32> <length: uint16> <type: uint8> <data>``;
type 1 is a whole record, 2, 3 and 4 its first, middle and last part; a block's last 6 bytes or fewer are padding.
The first block's offsets count from the start of the file. A record is a ``wandb_internal.Record``.
"""

from __future__ import annotations

import json
import os
import struct
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from trackers.errors import NotFound, Unavailable

BLOCK_BYTES = 32 * 1024
HEADER = struct.Struct("<4sHB")
CHUNK = struct.Struct("<IHB")
MAGIC = (b":W&B", 0xBEE1, 0)
WHOLE, FIRST, MIDDLE, LAST = 1, 2, 3, 4
WRITER_TIMEOUT_S = 30.0


def await_writers(paths: Sequence[Path]) -> None:
    """Wait until no wandb service has these files open: one whose client was killed may still write for a moment.

    Raises:
        Unavailable: one still does after :data:`WRITER_TIMEOUT_S`.
    """
    import psutil

    wanted = {str(path.resolve()) for path in paths}
    deadline = time.monotonic() + WRITER_TIMEOUT_S
    while wanted and any(wanted & _open_files(process) for process in psutil.process_iter(["name"])):
        if time.monotonic() > deadline:
            raise Unavailable(f"another wandb-core still writes {', '.join(sorted(wanted))}")
        time.sleep(0.05)


def _open_files(process: Any) -> set[str]:
    if "wandb-core" not in (process.info["name"] or ""):
        return set()
    import psutil

    try:
        return {file.path for file in process.open_files()}
    except psutil.Error:
        return set()


def repair(path: Path) -> bool:
    """Cut an incomplete record off the end of a file whose writer is dead: ``wandb sync`` refuses the file else.

    Returns:
        whether there was one.

    Raises:
        NotFound: as :func:`payloads`.
    """
    end = max((end for _, end in _scan(path)), default=min(HEADER.size, path.stat().st_size))
    if path.stat().st_size == end:
        return False
    os.truncate(path, end)
    return True


def payloads(path: Path) -> Iterator[bytes]:
    """The content of each complete record, in order.

    A file that ends in the middle of a record (its writer was killed, or still writes) ends before it; so does one
    whose next record is damaged.

    Raises:
        NotFound: no such file, or none of W&B's.
    """
    for payload, _ in _scan(path):
        yield payload


def _scan(path: Path) -> Iterator[tuple[bytes, int]]:
    """Each complete record's content, and where in the file it ends."""
    if not path.is_file():
        raise NotFound(f"{path}: no such file")
    with open(path, "rb") as file:
        head = file.read(HEADER.size)
        if len(head) < HEADER.size:
            return
        if HEADER.unpack(head) != MAGIC:
            raise NotFound(f"{path} isn't a .wandb file of a version known here")
        block = head + file.read(BLOCK_BYTES - HEADER.size)
        offset = HEADER.size
        begin = 0  # of the block
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
            parts = [data] if kind in (WHOLE, FIRST) else [*parts, data]
            if kind in (WHOLE, LAST):
                yield b"".join(parts), begin + offset


def records(path: Path) -> Iterator[Any]:
    """The records as ``wandb.proto.wandb_internal_pb2.Record``.

    Raises:
        NotFound: as :func:`payloads`.
    """
    from google.protobuf.message import DecodeError
    from wandb.proto import wandb_internal_pb2 as protocol

    for payload in payloads(path):
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


def history(path: Path) -> Iterator[dict[str, Any]]:
    """Rows, each with its ``_step``."""
    for record in records(path):
        if record.WhichOneof("record_type") == "history":
            yield {**values(record.history.item), "_step": record.history.step.num}


def offline_files(directory: Path, run_id: str) -> list[Path]:
    """The offline files of one run below a ``wandb`` directory, oldest first."""
    found = directory.glob(f"offline-run-*-{run_id}/run-{run_id}.wandb")
    return sorted(found, key=lambda path: path.parent.name)


def last_step(path: Path) -> int:
    """The highest ``_step`` in a file; -1 if it has no row."""
    found = (record.history.step.num for record in records(path) if record.WhichOneof("record_type") == "history")
    return max(found, default=-1)


def has_ended(path: Path) -> bool:
    """Whether the file's writer has said that it wrote everything: an exit record, complete or not."""
    return any(record.WhichOneof("record_type") == "exit" for record in records(path))


def names(paths: Iterable[Path], first: int = 0) -> dict[int, frozenset[str]]:
    """The names in each row of some files, by ``_step``, from a ``_step`` on."""
    known: dict[frozenset[str], frozenset[str]] = {}
    found: dict[int, frozenset[str]] = {}
    for path in paths:
        for record in records(path):
            if record.WhichOneof("record_type") == "history" and record.history.step.num >= first:
                keys = frozenset(item.key or ".".join(item.nested_key) for item in record.history.item)
                found[record.history.step.num] = known.setdefault(keys, keys)
    return found
