"""Cache of runs that were read, as Parquet below ``$XDG_CACHE_HOME/trackers/reads``.

An entry belongs to one stream of a journal, or to one run of another source. It is a list of parts, each a Parquet
file of metrics (:mod:`trackers.readers.columns`) and a file of the other records; ``index.json``, replaced whole,
names them and says how far the source was read. Small parts at the end are joined with what comes, so that there
are never many. An entry that is damaged, or of another version, counts as absent.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import os
import secrets
import shutil
import time
from pathlib import Path
from typing import Any

import msgspec

from trackers import records
from trackers.errors import UNDECODABLE
from trackers.journal.run_directory import replace_file
from trackers.readers import columns
from trackers.readers.boundary import DATA_ERRORS
from trackers.readers.columns import Block
from trackers.records import Record
from trackers.support import confined, user_directories

VERSION = 3
KEEP_S = 60 * 24 * 3600.0
"""An entry that nobody has read for so long is deleted."""
STRAY_S = 3600.0
"""Age at which a part that no index names is deleted, in seconds: its writer died, or a reader still used it."""


class CachePart(msgspec.Struct):
    """One pair of files. name: their common stem. records: in both."""

    name: str
    records: int


class CacheIndex(msgspec.Struct, kw_only=True):
    """Content of ``index.json``. state: the position in the source, in the reader's own format."""

    version: int = 0
    key: str = ""
    state: dict[str, Any] = {}
    count: int = 0
    parts: list[CachePart] = []


class Cached:
    """Content of a cache entry. blocks: the metrics. others: all other records. count: metrics records taken."""

    def __init__(self, state: dict[str, Any], count: int, blocks: list[Block], others: list[Record]) -> None:
        self.state, self.count, self.blocks, self.others = state, count, blocks, others


def root() -> Path:
    """Where entries lie."""
    return user_directories.of("CACHE") / "reads"


class Cache:
    """One entry.

    Args:
        key: what it belongs to, for ever the same: a file's path, a source.
    """

    def __init__(self, key: str) -> None:
        self._key = key
        self.path = root() / hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:32]

    def state(self) -> dict[str, Any] | None:
        """How far the source was read; None if nothing is kept."""
        index = self._index()
        return index.state if index else None

    def load(self) -> Cached | None:
        """All that is kept, or None."""
        index = self._index()
        if index is None:
            return None
        try:
            blocks, others = self._read(index.parts)
        except (OSError, *UNDECODABLE):  # damaged: as if it weren't there
            return None
        with contextlib.suppress(OSError):
            os.utime(self.path)
        return Cached(index.state, index.count, blocks, others)

    def append(self, state: dict[str, Any], count: int, blocks: list[Block], others: list[Record]) -> None:
        """Keep what came since the state that is kept now. Failures leave the entry as it was: it is a cache."""
        if not _can_keep():
            return
        index = self._index() or CacheIndex(version=VERSION, key=self._key)
        size = sum(len(block.rows) for block in blocks) + len(others)
        small: list[CachePart] = []
        while index.parts and index.parts[-1].records <= 2 * (size + sum(part.records for part in small)):
            small.insert(0, index.parts.pop())  # parts at least double in size: few are written again
        with contextlib.suppress(OSError, ValueError):
            before, earlier = self._read(small)
            confined.make_private(self.path)
            size += sum(part.records for part in small)
            index.parts.append(self._write(columns.merge_blocks([*before, *blocks]), [*earlier, *others], size))
            index.state, index.count = state, count
            replace_file(self.path / "index.json", msgspec.json.encode(index))
            self._delete_strays({part.name for part in index.parts})

    def replace(self, state: dict[str, Any], count: int, blocks: list[Block], others: list[Record]) -> None:
        """Keep this instead of what is kept now."""
        with contextlib.suppress(OSError):
            (self.path / "index.json").unlink(missing_ok=True)
        self.append(state, count, blocks, others)

    def _index(self) -> CacheIndex | None:
        if not _can_keep():
            return None
        try:
            index = msgspec.json.decode((self.path / "index.json").read_bytes(), type=CacheIndex)
        except (OSError, *UNDECODABLE):
            return None
        return index if index.version == VERSION and index.key == self._key else None

    def _read(self, parts: list[CachePart]) -> tuple[list[Block], list[Record]]:
        if not parts:
            return [], []
        from pyarrow import ArrowException, parquet

        blocks: list[Block] = []
        others: list[Record] = []
        for part in parts:
            try:
                table = parquet.read_table(self.path / f"{part.name}.parquet", memory_map=True)
                blocks.extend(columns.from_table(table))
                others.extend(records.decode_block((self.path / f"{part.name}.jsonl").read_bytes()))
            except (ArrowException, *DATA_ERRORS) as error:
                raise ValueError(str(error)) from error
        return columns.merge_blocks(blocks), others

    def _write(self, blocks: list[Block], others: list[Record], size: int) -> CachePart:
        from pyarrow import parquet

        name = f"part-{secrets.token_hex(6)}"
        paths = [self.path / f"{name}.jsonl", self.path / f"{name}.parquet"]
        lines = b"".join(records.encode(record) for record in others)
        try:
            paths[0].write_bytes(lines)
            parquet.write_table(
                columns.to_table(blocks),
                paths[1],
                compression="snappy",
                use_dictionary=["shape"],
                write_statistics=False,
            )
        except BaseException:  # a full disk, say: half a part would only take the space that is left
            for path in paths:
                path.unlink(missing_ok=True)
            raise
        return CachePart(name, size)

    def _delete_strays(self, named: set[str]) -> None:
        now = time.time()
        for file in self.path.glob("part-*"):
            with contextlib.suppress(OSError):
                if file.stem not in named and now - file.stat().st_mtime > STRAY_S:
                    file.unlink()
        for entry in self.path.parent.iterdir():
            with contextlib.suppress(OSError):
                if now - entry.stat().st_mtime > KEEP_S:
                    shutil.rmtree(entry)


@functools.lru_cache
def _can_keep() -> bool:
    """Whether pyarrow is installed, which writes the entries; without it, sources are read anew each time."""
    return importlib.util.find_spec("pyarrow") is not None
