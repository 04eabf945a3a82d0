"""Where a lake is: a directory of this machine or a store's address, and a mark there that says it is one."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from trackers.errors import UNDECODABLE, Damaged, NotFound, UsageError
from trackers.object_storage import addresses
from trackers.object_storage.store import Store

MARK = "lake.json"
FORMAT = "trackers-lake"
VERSION = 1


class _Mark(msgspec.Struct):
    format: str = ""
    version: int = 0


def address(where: str | os.PathLike[str]) -> str:
    """A lake's address: a store's as it is, a path as ``file:///…``.

    Raises:
        UsageError: it names nothing, or a store that isn't known.
    """
    text = os.fspath(where)
    if not text.strip():
        raise UsageError("a lake's place is empty (an unset variable?): give a directory or s3://bucket/prefix")
    if store := addresses.store_of(text):
        return store
    return f"file://{Path(text).expanduser().absolute()}"


def local(where: str) -> Path | None:
    """The directory that an address means; None for a store elsewhere."""
    return Path(where.removeprefix("file://")) if where.startswith("file://") else None


def opened(where: str | os.PathLike[str], *, make: bool = False) -> Store:
    """The store that a lake lies in.

    Args:
        make: begin a lake where nothing is yet.

    Raises:
        NotFound: no lake is there. UsageError: something else is, or a lake of a newer release.
    """
    store_address = address(where)
    folder = local(store_address)
    if folder is not None and not make and not folder.is_dir():
        raise NotFound(f"no lake in {folder}: `trackers lake add RUNS {folder}` makes one")
    if folder is not None and os.path.lexists(folder) and not folder.is_dir():
        raise UsageError(f"{folder} is no directory: a lake is one, or a store's prefix")
    store = Store(store_address)
    try:
        _check(store)
    except Damaged:
        raise
    except NotFound:
        if next(iter(store.objects()), None) is not None:
            raise UsageError(f"{where} has files and is no lake: give a lake, or a place where nothing is") from None
        if not make:
            raise NotFound(f"no lake in {where}: `trackers lake add RUNS {where}` makes one") from None
        store.create(MARK, msgspec.json.encode({"format": FORMAT, "version": VERSION}))
        _check(store)
    return store


def _check(store: Store) -> None:
    try:
        mark = msgspec.json.decode(store.get(MARK, 4096), type=_Mark)
    except UNDECODABLE as error:
        raise Damaged(f"{store.where}/{MARK} is damaged: {error}") from None
    if mark.format != FORMAT:
        raise UsageError(f"{store.where} is no lake of runs: {MARK} says {mark.format[:80]!r}")
    if mark.version > VERSION:
        raise UsageError(f"{store.where} is a lake of version {mark.version:,}; this release knows {VERSION}")
