"""A cache of small values by run in one file, so that reading them again costs a ``stat`` of each run's files.

An entry is valid while its run's files are unchanged: their sizes, times and inodes make its *fingerprint*. A file
that was written in the last moments may change again within the same tick of the filesystem's clock, so it isn't
cached yet. A cache that is damaged or of another version counts as empty; one that can't be written isn't saved.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import time
from pathlib import Path
from typing import Any

import msgspec

from trackers.errors import UNDECODABLE
from trackers.journal.run_directory import replace_file
from trackers.records import escaped
from trackers.support import confined, user_directories

SETTLED_S = 2.0
"""Younger files may change with the same fingerprint: network filesystems have clocks of whole seconds."""


class _Content(msgspec.Struct, array_like=True):
    version: str = ""
    entries: dict[str, tuple[str, msgspec.Raw]] = {}


class FingerprintCache:
    """The cached value of one key.

    Args:
        key: names the cache's file; never changed. version: changed when the meaning of its entries changes.
    """

    def __init__(self, key: str, version: str) -> None:
        name = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        self.path = user_directories.of("CACHE") / "shelves" / f"{name}.msgpack"
        self._version = version
        self._changed = False
        self._entries: dict[str, tuple[str, msgspec.Raw]] = {}
        with contextlib.suppress(OSError, *UNDECODABLE):
            content = msgspec.msgpack.decode(self.path.read_bytes(), type=_Content)
            if content.version == version:
                self._entries = content.entries

    def get(self, name: str, fingerprint: str, kind: Any) -> Any:
        """An entry, decoded as ``kind``, if its fingerprint is still this one; else None."""
        stored, raw = self._entries.get(name, ("", None))
        if raw is None or not fingerprint or stored != fingerprint:
            return None
        try:
            return _decoder(kind).decode(raw)
        except UNDECODABLE:
            return None

    def fingerprint(self, name: str) -> str:
        """An entry's fingerprint; "" where there is none."""
        return self._entries.get(name, ("", None))[0]

    def put(self, name: str, fingerprint: str, value: Any) -> None:
        """Store an entry with its run's fingerprint from *before* it was read; without one, nothing is stored."""
        if not fingerprint:
            return
        with contextlib.suppress(UnicodeEncodeError, OverflowError, TypeError):  # what no file can hold is read again
            name.encode()  # a directory's name may not be UTF-8
            self._entries[name] = (fingerprint, msgspec.Raw(msgspec.msgpack.encode(value)))
            self._changed = True

    def keep_only(self, names: set[str]) -> None:
        """Remove all other entries: their runs are gone."""
        gone = self._entries.keys() - names
        for name in gone:
            del self._entries[name]
        self._changed = self._changed or bool(gone)

    def save(self) -> None:
        """Write what has changed; failures leave the file as it was."""
        if not self._changed:
            return
        with contextlib.suppress(OSError):
            confined.make_private(self.path.parent)
            replace_file(self.path, msgspec.msgpack.encode(_Content(self._version, self._entries)))
            self._changed = False


@functools.cache
def _decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(kind)


def fingerprint_of(run: Path | str, *, deliveries: bool = False, known: str = "") -> str:
    """The fingerprint of the files in a run's directory: identity and streams; "" while they may still change unseen.

    Args:
        deliveries: of what each tracker has got, and of signs of life, too. Those files, and the identity, are
            replaced, never written in place, so that their directories tell.
        known: an earlier fingerprint of this run. It names the streams, so that their directory is only read if it has
            changed.
    """
    path = os.fspath(run)
    try:
        folders = ""
        newest = 0
        if deliveries:
            itself, delivery = os.stat(path).st_mtime_ns, os.stat(f"{path}/delivery").st_mtime_ns
            newest = max(itself, delivery)
            folders = f" {itself} {delivery}"
        identity = known.partition(" ")[0]
        if not folders or not known.startswith(f"{identity}{folders} "):  # else it wasn't replaced since
            stat = os.stat(f"{path}/run.json")
            newest = max(newest, stat.st_mtime_ns)
            identity = f"{stat.st_ino}:{stat.st_size}:{stat.st_mtime_ns}"
        fingerprint = f"{identity}{folders}"
        folder = f"{path}/streams"
        streams = os.stat(folder).st_mtime_ns
        newest = max(newest, streams)
        fingerprint = f"{fingerprint} {streams}"
        names = _streams(known, fingerprint) or sorted(os.listdir(folder))
        fingerprint = f"{fingerprint} {len(names)}"
        for name in names:
            stat = os.stat(f"{folder}/{name}")
            changed = stat.st_mtime_ns
            newest = max(newest, changed)
            fingerprint = f"{fingerprint} {name}:{stat.st_ino}:{stat.st_size}:{changed}"
    except OSError:
        return fingerprint_of(run, deliveries=deliveries) if known else ""  # a stream it names is gone
    return "" if newest > (time.time() - SETTLED_S) * 1e9 else escaped(fingerprint)


def _streams(known: str, head: str) -> list[str]:
    """The names of the streams in an earlier fingerprint, if what precedes them is unchanged; else none."""
    head += " "
    if not known.startswith(head):
        return []
    count, *streams = known[len(head) :].split(" ")
    return [part.rsplit(":", 3)[0] for part in streams] if count == f"{len(streams)}" else []
