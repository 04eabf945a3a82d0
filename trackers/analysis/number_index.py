"""An index of the numbers of many runs in a few files: a query over thousands of runs reads only changed journals.

An index belongs to a folder of runs and lies below ``$XDG_CACHE_HOME/trackers/numbers``; it can be deleted at any time.
It has segments: an Arrow file, mapped into memory, with the rows of some runs below each other, and for each of these
runs its path, the fingerprint of its files and its number of rows. A run whose fingerprint differs is read anew and
goes into a new segment; small segments are joined. A segment is on the disk before the index names it. What can't be
read, is cut short, or is of another version, counts as absent.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from trackers._version import __version__
from trackers.errors import UNDECODABLE
from trackers.journal.run_directory import replace_file
from trackers.readers import arrow
from trackers.support import confined, user_directories

_VERSION = f"numbers 1 of {__version__}"
MOST_ROWS = 1_000_000
"""A run with more numbers isn't indexed: reading its journal is fast for each number."""
MOST_TOTAL = 100_000_000
"""Maximum number of rows of an index: 3 GB of a disk."""
STRAY_S = 3600.0
"""Age at which a file that the index doesn't name is deleted, in seconds: its writer died, or somebody reads it."""


class IndexEntry(msgspec.Struct, array_like=True):
    """One run in a segment: its rows follow those of the entry before."""

    path: str
    fingerprint: str
    rows: int


class Segment(msgspec.Struct, array_like=True):
    """One file. name: of it, in the index's directory."""

    name: str
    entries: list[IndexEntry]

    @property
    def rows(self) -> int:
        """In the file."""
        return sum(entry.rows for entry in self.entries)


class _Content(msgspec.Struct, array_like=True):
    version: str = ""
    segments: list[Segment] = []


class NumberIndex:
    """The numbers of a folder's runs.

    Args:
        folder: where the runs lie. stepless: what was sampled without a step, else what was logged with one.
    """

    def __init__(self, folder: str, *, stepless: bool) -> None:
        key = hashlib.sha256(f"{stepless} {folder}".encode("utf-8", "surrogatepass")).hexdigest()[:32]
        self.path = user_directories.of("CACHE") / "numbers" / key
        self._content = _Content(_VERSION)
        with contextlib.suppress(OSError, *UNDECODABLE):
            content = msgspec.msgpack.decode((self.path / "index.msgpack").read_bytes(), type=_Content)
            if content.version == _VERSION:
                self._content = content

    def tables(self, labels: Mapping[str, str], fingerprints: Mapping[str, str]) -> tuple[list[Any], set[str]]:
        """The rows of the runs that haven't changed.

        Args:
            labels: what column ``run`` says of a run, by its path. fingerprints: current ones, by path; "": unknown.

        Returns:
            Arrow tables (run, name, step, time, value), and the paths of the runs in them.
        """
        import numpy as np
        import pyarrow as pa

        tables, indexed = [], set[str]()
        for segment in list(self._content.segments):
            valid = [
                bool(entry.fingerprint)
                and entry.path not in indexed
                and fingerprints.get(entry.path) == entry.fingerprint
                for entry in segment.entries
            ]
            if not any(valid):
                continue
            rows = self._rows(segment)
            if rows is None:
                self._content.segments.remove(segment)
                continue
            counts = np.array([entry.rows for entry in segment.entries])
            codes: Any = np.repeat(np.cumsum(valid, dtype=np.int32) - 1, counts)
            if not all(valid):
                keep: Any = np.repeat(np.array(valid), counts)
                rows, codes = rows.filter(pa.array(keep)), codes[keep]
            paths = [entry.path for entry, is_wanted in zip(segment.entries, valid, strict=True) if is_wanted]
            column = pa.DictionaryArray.from_arrays(arrow.codes(codes), arrow.texts([labels[path] for path in paths]))
            tables.append(rows.add_column(0, "run", column))
            indexed.update(paths)
        return tables, indexed

    def add(self, runs: Sequence[tuple[str, str, Any]], fingerprints: Mapping[str, str]) -> None:
        """Keep what was read now. Failures leave the index as it was.

        Args:
            runs: path, fingerprint before it was read, and table (name, step, time, value). Without a fingerprint,
                or with too many rows, a run isn't kept.
            fingerprints: of all runs that were seen: entries of others of the same path are dropped.
        """
        import pyarrow as pa

        fresh = [
            (path, fingerprint, table) for path, fingerprint, table in runs if fingerprint and len(table) <= MOST_ROWS
        ]
        size = sum(len(table) for _, _, table in fresh)
        if not fresh or size + sum(segment.rows for segment in self._content.segments) > MOST_TOTAL:
            return
        segments = list(self._content.segments)
        entries = [IndexEntry(path, fingerprint, len(table)) for path, fingerprint, table in fresh]
        tables = [table for _, _, table in fresh]
        while segments and (segments[-1].rows <= 2 * size or len(segments[-1].entries) <= 2 * len(entries)):
            last = segments.pop()
            rows = self._rows(last)
            if rows is None:
                continue
            at = 0
            for entry in last.entries:
                if fingerprints.get(entry.path, entry.fingerprint) == entry.fingerprint:
                    entries.append(entry)
                    tables.append(rows.slice(at, entry.rows))
                at += entry.rows
            size += last.rows
        with contextlib.suppress(OSError, pa.ArrowException):
            confined.make_private(self.path)
            name = f"{secrets.token_hex(8)}.arrow"
            whole = pa.concat_tables(tables).unify_dictionaries().combine_chunks()
            with pa.OSFile(str(self.path / name), "wb") as file, pa.ipc.new_file(file, whole.schema) as writer:
                writer.write_table(whole)
            with (self.path / name).open("rb") as written:  # without power, a file may get its length before its bytes
                os.fsync(written.fileno())
            segments.append(Segment(name, entries))
            replace_file(self.path / "index.msgpack", msgspec.msgpack.encode(_Content(_VERSION, segments)))
            self._content = _Content(_VERSION, segments)
            self._delete_strays({segment.name for segment in segments})

    def _rows(self, segment: Segment) -> Any:
        """The table of a segment; None if it is gone or damaged."""
        import pyarrow as pa

        try:
            table = pa.ipc.open_file(pa.memory_map(str(self.path / segment.name))).read_all()
        except (OSError, pa.ArrowException):
            return None
        return table if len(table) == segment.rows else None

    def _delete_strays(self, named: set[str]) -> None:
        for path in self.path.glob("*.arrow"):
            with contextlib.suppress(OSError):
                if path.name not in named and path.stat().st_mtime < time.time() - STRAY_S:
                    path.unlink()
