"""Where a lake is: a local directory or a store's address, with a marker file that says it is a lake."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from trackers.errors import UNDECODABLE, Damaged, NotFound, UsageError
from trackers.object_storage import addresses
from trackers.object_storage.store import Store

MARKER_FILE = "lake.json"
FORMAT = "trackers-lake"
VERSION = 1


class _Marker(msgspec.Struct):
    format: str = ""
    version: int = 0


def normalize(where: str | os.PathLike[str]) -> str:
    """A lake's address in one spelling: of a store the normalized address, of a path ``file:///…``.

    Raises:
        UsageError: it names nothing, or a store that isn't known.
    """
    text = os.fspath(where)
    if not text.strip():
        raise UsageError("a lake's place is empty (an unset variable?): give a directory or s3://bucket/prefix")
    if store := addresses.store_of(text):
        return store
    return f"file://{Path(text).expanduser().absolute()}"


def local_path(where: str) -> Path | None:
    """The local directory of a ``file://`` address; None for any other store."""
    return Path(where.removeprefix("file://")) if where.startswith("file://") else None


def open_store(where: str | os.PathLike[str], *, make: bool = False) -> Store:
    """Open the store that holds a lake.

    Args:
        make: create the lake if nothing is there yet.

    Raises:
        NotFound: no lake is there. UsageError: something else is, or a lake of a newer release.
    """
    store_address = normalize(where)
    folder = local_path(store_address)
    if folder is not None and not make and not folder.is_dir():
        raise NotFound(f"no lake in {folder}: `trackers lake add RUNS {folder}` makes one")
    if folder is not None and os.path.lexists(folder) and not folder.is_dir():
        raise UsageError(f"{folder} is no directory: a lake is one, or a store's prefix")
    store = Store(store_address)
    if _is_marked(store):
        return store
    # A lake's marker is its first file: where there is one now, somebody has begun it meanwhile, and it is marked.
    is_empty = next(iter(store.objects()), None) is None
    if is_empty and make:
        store.create(MARKER_FILE, msgspec.json.encode({"format": FORMAT, "version": VERSION}))
    if _is_marked(store):
        return store
    if is_empty:
        raise NotFound(f"no lake in {where}: `trackers lake add RUNS {where}` makes one")
    raise UsageError(f"{where} has files and is no lake: give a lake, or a place where nothing is")


def _is_marked(store: Store) -> bool:
    """Whether a store has a lake's marker.

    Raises:
        Damaged, UsageError: it has one that can't be read, of something else, or of a newer release.
    """
    try:
        marker = msgspec.json.decode(store.get(MARKER_FILE, 4096), type=_Marker)
    except NotFound:
        return False
    except UNDECODABLE as error:
        raise Damaged(f"{store.where}/{MARKER_FILE} is damaged: {error}") from None
    if marker.format != FORMAT:
        raise UsageError(f"{store.where} is no lake of runs: {MARKER_FILE} says {marker.format[:80]!r}")
    if marker.version > VERSION:
        raise UsageError(f"{store.where} is a lake of version {marker.version:,}; this release knows {VERSION}")
    return True
