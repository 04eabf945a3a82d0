"""What Aim keeps in RocksDB: keys are paths, values are leaves of trees (aim/storage/encoding, aim/storage/treeutils).

A part of a path is text, or a whole number of 64 bits. A value begins with a byte that says its type; lists, mappings
and Aim's own objects are such a byte at their path, and their parts lie below it. What is large lies beside the others,
under :data:`BLOBS` and the key where its value is empty.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Any

from trackers.records import DEPTH

END = 0xFE
"""Ends each part of a path, and begins a number; no byte of UTF-8."""
NUMBER_BYTES = 10
"""Of a number in a path, with both its ends."""
BLOBS = b"BLOBS\xfe"
NONE, BOOL, INT, FLOAT, STRING, BYTES, ARRAY, OBJECT, CUSTOM = 0, 1, 2, 3, 4, 5, 6, 7, 15
"""aim/storage/encoding/encoding.pxd"""
LIST = "list"
"""The kind of a list's node."""
_INT64, _DOUBLE = struct.Struct("<q"), struct.Struct("<d")


class Node(dict[Any, Any]):
    """A mapping, a list or an object. kind: "", :data:`LIST`, or the name of one of Aim's types (``aim.image``)."""

    def __init__(self, kind: str = "") -> None:
        super().__init__()
        self.kind = kind


def key(*path: str | int) -> bytes:
    """A path as a key: the prefix of all keys below it."""
    return b"".join((part.encode() if isinstance(part, str) else _number(part)) + b"\xfe" for part in path)


def _number(part: int) -> bytes:
    return b"\xfe" + part.to_bytes(8, "big", signed=True)


def path(key: bytes) -> list[str | int]:
    """A key as a path.

    Raises:
        ValueError: it is none, or has more than :data:`trackers.records.DEPTH` parts.
    """
    parts: list[str | int] = []
    at = 0
    while at < len(key):
        if key[at] == END:
            if key[at + NUMBER_BYTES - 1 : at + NUMBER_BYTES] != b"\xfe":
                raise ValueError(f"no key of Aim's: {key[:40]!r}")
            parts.append(int.from_bytes(key[at + 1 : at + 9], "big", signed=True))
            at += NUMBER_BYTES
        else:
            end = key.find(END, at)
            if end < 0:
                raise ValueError(f"no key of Aim's: {key[:40]!r}")
            parts.append(key[at:end].decode())
            at = end + 1
    if len(parts) > DEPTH:
        raise ValueError("it is nested too deeply")
    return parts


def value(data: bytes) -> Any:
    """A leaf, or an empty :class:`Node`.

    Raises:
        ValueError: it is of no type that Aim has, or shorter or longer than its type.
    """
    kind = data[0] if data else -1
    body = data[1:]
    if kind == FLOAT and len(body) == 8:
        return _DOUBLE.unpack(body)[0]
    if kind == INT and len(body) == 8:
        return _INT64.unpack(body)[0]
    if kind == NONE:
        return None
    if kind == BOOL and len(body) == 1:
        return body != b"\0"
    if kind == STRING:
        return body.decode()
    if kind == BYTES:
        return body
    if kind in (ARRAY, OBJECT, CUSTOM):
        return Node(body.decode() if kind == CUSTOM else LIST if kind == ARRAY else "")
    raise ValueError(f"no value of Aim's: {data[:40]!r}")


def grow(root: Node, items: Iterable[tuple[bytes, bytes]], blob: Callable[[bytes], bytes | None]) -> Node:
    """Insert values below a node by their keys; returns the node.

    Args:
        items: keys without what stands for the node itself, in their order, and values.
        blob: gives what is too large to lie there, by the key; None: leave it out.
    """
    for name, data in items:
        parts = path(name)
        content = data or blob(name)
        if content is None:
            continue
        leaf = value(content)
        if not parts:
            if isinstance(leaf, Node):
                root.kind = leaf.kind
            continue
        node = root
        for part in parts[:-1]:
            inner = node.get(part)
            if not isinstance(inner, Node):
                inner = node[part] = Node()
            node = inner
        node[parts[-1]] = leaf
    return root


def to_builtins(value: Any) -> Any:
    """A tree as mappings and lists, all keys text, bytes left out."""
    if not isinstance(value, Node):
        return value
    inner = {str(name): to_builtins(item) for name, item in value.items() if not isinstance(item, bytes)}
    return list(inner.values()) if value.kind == LIST else inner
