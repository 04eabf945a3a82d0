"""W&B's offline files, ``run-<id>.wandb``: protocol-buffer records in LevelDB's log format (``leveldb_log.py``).

The header is ``:W&B``, 0xBEE1, version 0 (wandb 0.31; the package ships no reader); a record is a
``wandb_internal.Record``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trackers.formats import leveldb_log
from trackers.formats.leveldb_log import Damage

MAGIC = (b":W&B", 0xBEE1, 0)
DEPTH = 200
"""Maximum depth of nested keys; no program uses more."""


def payloads(path: Path) -> Iterator[bytes]:
    """The content of each complete record, in order.

    A file that ends in the middle of a record (its writer was killed, or still writes) ends before it; so does one
    whose next record is damaged.

    Raises:
        NotFound: no such file, or none of W&B's.
    """
    for payload, _ in scan(path):
        yield payload


def scan(path: Path, block_number: int = 0, damage: Damage | None = None) -> Iterator[tuple[bytes, int]]:
    """Each complete record's content, and where in the file it ends.

    Args:
        block_number: begin with this block; what began before it is left out.
        damage: counts what is damaged; the reading goes on behind it. None: it ends there.

    Raises:
        NotFound: no such file, or none of W&B's.
    """
    return leveldb_log.scan(path, MAGIC, ".wandb", block_number, damage)


def tail(path: Path, max_bytes: int = 1 << 20) -> Iterator[Any]:
    """The records that begin within a file's last ``max_bytes``, without the damaged ones; as :func:`records`."""
    blocks = max(0, path.stat().st_size - max_bytes) // leveldb_log.BLOCK_BYTES
    damage = Damage()
    yield from _decoded(scan(path, blocks, damage), damage)


def records(path: Path, damage: Damage | None = None) -> Iterator[Any]:
    """The records as ``wandb.proto.wandb_internal_pb2.Record``.

    Args:
        damage: as for :func:`scan`.

    Raises:
        NotFound: as :func:`payloads`.
    """
    yield from _decoded(scan(path, damage=damage), damage)


def _decoded(contents: Iterator[tuple[bytes, int]], damage: Damage | None) -> Iterator[Any]:
    from google.protobuf.message import DecodeError
    from wandb.proto import wandb_internal_pb2 as protocol

    for payload, end in contents:
        try:
            yield protocol.Record.FromString(payload)
        except DecodeError:
            if damage is None:
                return
            damage.skip(end - len(payload), len(payload))


def values(items: Any) -> dict[str, Any]:
    """Items of a history, summary or config record as a mapping; nested keys are joined with "."."""
    by_key = {}
    for item in items:
        key = item.key or ".".join(item.nested_key)
        by_key[key] = json.loads(item.value_json) if item.value_json else _typed(item)
    return by_key


def _typed(item: Any) -> Any:
    for field, value in item.ListFields():
        if field.name.startswith("value_"):
            return value
    return None


def tree(items: Any) -> dict[str, Any]:
    """Items as a mapping, nested where their keys are: as ``run.log`` got it. A name with a dot in it keeps it."""
    root: dict[str, Any] = {}
    for item in items:
        value = json.loads(item.value_json) if item.value_json else _typed(item)
        *path, name = item.nested_key if not item.key else (item.key,)
        if len(path) > DEPTH:
            raise ValueError(f"a key of {len(path):,} parts")
        node = root
        for part in path:
            inner = node.setdefault(part, {})
            if not isinstance(inner, dict):
                inner = node[part] = {}
            node = inner
        node[name] = value
    return root
