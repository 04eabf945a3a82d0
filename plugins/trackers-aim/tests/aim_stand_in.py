"""Aim's stores without Aim and RocksDB, which the environment of most tests lacks: its keys and values in plain files.

``test_client.py`` reads what Aim itself wrote. This is for everything else: a module in the place of aimrocks reads
databases of two files, ``000002.sst`` and what was written later, ``000003.log``.
"""

from __future__ import annotations

import contextlib
import sqlite3
import struct
import sys
import types
from collections.abc import Iterator, Mapping
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import PIL.Image

T0 = 1_700_000_000.0
CREATED = "2023-11-14 22:13:20.000000"
FRAME = struct.Struct("<II")


class Large(bytes):
    """Bytes that Aim keeps beside the others (aim/storage/types.py BLOB)."""


class Of(dict[Any, Any]):
    """An object of one of Aim's types."""

    def __init__(self, kind: str, **parts: Any) -> None:
        super().__init__(parts)
        self.kind = kind


def key(*path: Any) -> bytes:
    """A path as Aim writes it."""
    return b"".join(
        (b"\xfe" + struct.pack(">q", part) if isinstance(part, int) else part.encode()) + b"\xfe" for part in path
    )


def states(place: Path) -> dict[str, tuple[int, int, bytes]]:
    """All files of a directory."""
    return {
        str(path): (path.stat().st_mtime_ns, path.stat().st_size, path.read_bytes() if path.is_file() else b"")
        for path in sorted(place.rglob("*"))
    }


def leaves(path: tuple[Any, ...], value: Any) -> Iterator[tuple[bytes, bytes]]:
    """A value as Aim writes it at a path."""
    if isinstance(value, Large):
        yield key(*path), b""
        yield b"BLOBS\xfe" + key(*path), b"\x05" + value
        return
    if isinstance(value, (dict, list)):
        mark = (
            b"\x0f" + value.kind.encode() if isinstance(value, Of) else b"\x06" if isinstance(value, list) else b"\x07"
        )
        if mark != b"\x07" or not value:
            yield key(*path), mark
        for name, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves((*path, name), item)
        return
    if value is None:
        body = b"\x00"
    elif isinstance(value, bool):
        body = b"\x01" + bytes([value])
    elif isinstance(value, int):
        body = b"\x02" + struct.pack("<q", value)
    elif isinstance(value, float):
        body = b"\x03" + struct.pack("<d", value)
    else:
        body = b"\x04" + value.encode()
    yield key(*path), body


def packed(items: Mapping[bytes, bytes]) -> bytes:
    """Keys and values as a file."""
    return b"".join(FRAME.pack(len(name), len(data)) + name + data for name, data in items.items())


def unpacked(content: bytes) -> dict[bytes, bytes]:
    """Keys and values of a file.

    Raises:
        ValueError: it isn't whole.
    """
    found, at = {}, 0
    while at < len(content):
        if len(content) < at + FRAME.size:
            raise ValueError("Corruption: a frame is cut")
        long, wide = FRAME.unpack_from(content, at)
        at += FRAME.size
        if len(content) < at + long + wide:
            raise ValueError("Corruption: an item is cut")
        found[content[at : at + long]] = content[at + long : at + long + wide]
        at += long + wide
    return found


def database(folder: Path, values: Mapping[tuple[Any, ...], Any]) -> None:
    """Write a database: the first half of its items in a table, the others in a log."""
    folder.mkdir(parents=True)
    items = [item for path, value in values.items() for item in leaves(path, value)]
    half = len(items) // 2
    (folder / "CURRENT").write_text("MANIFEST-000001\n")
    (folder / "MANIFEST-000001").write_text("000002.sst 000003.log")
    (folder / "000002.sst").write_bytes(packed(dict(items[:half])))
    (folder / "000003.log").write_bytes(packed(dict(items[half:])))


def run(
    place: Path,
    hash: str = "a1b2",
    *,
    params: Any = None,
    series: Mapping[tuple[str, int], list[tuple[Any, ...]]] | None = None,
    objects: Mapping[tuple[str, int], Mapping[int, Any]] | None = None,
    contexts: Mapping[int, dict[str, Any]] | None = None,
    end: float | None = T0 + 100,
) -> Path:
    """Write a run below ``place/.aim``; its directory.

    Args:
        series: by name and context, points of step, time, value and epoch. objects: likewise, objects by step.
    """
    mine = ("meta", "chunks", hash)
    meta: dict[tuple[Any, ...], Any] = {(*mine, "attrs"): params or {}, (*mine, "end_time"): end}
    values: dict[tuple[Any, ...], Any] = {}
    for context, about in {0: {}, **(contexts or {})}.items():
        meta[("meta", "contexts", context)] = meta[(*mine, "contexts", context)] = about
    for (name, context), points in (series or {}).items():
        meta[(*mine, "traces", context, name)] = {"dtype": "float", "version": 2}
        for number, point in enumerate(points):
            at = (number + 1) * 0x9E3779B97F4A7C15 % 2**64 - 2**63  # Aim's keys are hashes of steps
            for column, value in zip(("step", "time", "val", "epoch"), (*point, None), strict=False):
                values[("seqs", "v2", "chunks", hash, context, name, column, at)] = value
    for (name, context), items in (objects or {}).items():
        meta[(*mine, "traces", context, name)] = {"dtype": "object", "version": 1}
        for step, item in items.items():
            values[("seqs", "chunks", hash, context, name, "time", step)] = T0 + step
            values[("seqs", "chunks", hash, context, name, "epoch", step)] = None
            values[("seqs", "chunks", hash, context, name, "val", step)] = item
    database(place / ".aim/meta/chunks" / hash, meta)
    database(place / ".aim/seqs/chunks" / hash, values)
    return place / ".aim/meta/chunks" / hash


def properties(place: Path, hash: str = "a1b2", name: str = "base", tags: tuple[str, ...] = ()) -> None:
    """Write what Aim keeps in SQLite: its tables, as far as they are read."""
    with contextlib.closing(sqlite3.connect(place / ".aim/run_metadata.sqlite", isolation_level=None)) as opened:
        opened.executescript(
            "CREATE TABLE IF NOT EXISTS experiment (id INTEGER PRIMARY KEY, name TEXT);"
            "CREATE TABLE IF NOT EXISTS run (id INTEGER PRIMARY KEY, hash TEXT, name TEXT, description TEXT,"
            " created_at DATETIME, experiment_id INTEGER);"
            "CREATE TABLE IF NOT EXISTS tag (id INTEGER PRIMARY KEY, name TEXT);"
            "CREATE TABLE IF NOT EXISTS run_tag (run_id INTEGER, tag_id INTEGER);"
            "INSERT OR IGNORE INTO experiment VALUES (1, 'digits')"
        )
        query = "INSERT INTO run (hash, name, description, created_at, experiment_id) VALUES (?, ?, 'why', ?, 1)"
        mine = opened.execute(query, (hash, name, CREATED)).lastrowid
        for tag in tags:
            number = opened.execute("INSERT INTO tag (name) VALUES (?)", (tag,)).lastrowid
            opened.execute("INSERT INTO run_tag VALUES (?, ?)", (mine, number))


def picture(color: str, where: Path) -> Of:
    """A picture as Aim keeps it."""
    PIL.Image.new("RGB", (4, 3), color).save(where, format="png")
    return Of("aim.image", caption=color, format="png", width=4, height=3, data=Large(where.read_bytes()))


def with_objects(place: Path) -> None:
    """A run with texts, pictures, a sound, a distribution and a figure."""
    red, blue = picture("red", place / "red.png"), picture("blue", place / "blue.png")
    counts = Large(struct.pack("<2q", 3, 4))
    spread = Of("aim.distribution", data=counts, dtype="int64", bin_count=2, range=[0.0, 1.0])
    run(
        place,
        objects={
            ("words", 0): {0: Of("aim.text", data="größer\nas two lines"), 1: [Of("aim.text", data="x")]},
            ("samples", 0): {2: [red, blue], 3: red},
            ("sound", 0): {1: Of("aim.audio", format="wav", caption="", data=Large(b"RIFF"))},
            ("spread", 0): {1: spread},
            ("figure", 0): {1: Of("aim.figure", data="{}"), 2: Of("aim.figure", data="{}")},
            ("odd", 0): {1: Of("aim.distribution", data=counts, dtype="<U3", range=[0.0, 1.0])},
        },
    )


class DB:
    """aimrocks.DB, as far as the reader uses it."""

    def __init__(self, path: str, options: Any, read_only: bool = False) -> None:
        assert read_only
        assert Path(path, "CURRENT").read_text() == "MANIFEST-000001\n", "Corruption: CURRENT"
        self.items: dict[bytes, bytes] = {}
        for name in ("000002.sst", "000003.log"):
            self.items |= unpacked(Path(path, name).read_bytes())

    def get(self, key: bytes) -> bytes | None:
        """A value."""
        return self.items.get(key)

    def iteritems(self) -> Iteration:
        """All items, in the order of their keys."""
        return Iteration(self.items)


class Iteration:
    """Goes over items from where it was put."""

    def __init__(self, items: dict[bytes, bytes]) -> None:
        self._items, self._from = sorted(items.items()), b""

    def seek(self, key: bytes) -> None:
        """Go to the first key that isn't before this one."""
        self._from = key

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        return iter([item for item in self._items if item[0] >= self._from])


def module() -> types.ModuleType:
    """What ``import aimrocks`` gives."""
    made = types.ModuleType("aimrocks")
    made.__spec__ = ModuleSpec("aimrocks", None)
    made.DB, made.Options = DB, dict  # type: ignore[attr-defined]
    return made


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """Answer imports of aimrocks."""
    before = sys.modules.get("aimrocks")
    sys.modules["aimrocks"] = module()
    try:
        yield
    finally:
        sys.modules.pop("aimrocks")
        if before is not None:
            sys.modules["aimrocks"] = before
