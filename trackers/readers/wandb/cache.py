"""Cache of data fetched from W&B, as Parquet below ``$XDG_CACHE_HOME/trackers/wandb``.

One directory for each run. Rows of the history lie in parts, in the order of their ``_step``, as they came (JSON in
a column); what is fetched is kept at once, so that a fetch that was interrupted goes on where it was. ``index.json``,
replaced whole, names the parts and says of what the server said they are. An entry counts as absent, and is fetched
again, where a part isn't byte for byte what was written.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import importlib.util
import json
import os
import secrets
import shutil
import time
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from trackers.errors import UNDECODABLE, NotFound
from trackers.journal.run_directory import replace_file
from trackers.support import confined

VERSION = 2
PARQUET, LINES = ".parquet", ".jsonl.gz"
KEEP_S = 60 * 24 * 3600.0
"""An entry that nobody has read for so long is deleted."""


class RowsFile(msgspec.Struct):
    """One file of rows. last: the highest ``_step`` in it. size, crc: the file's bytes, and their CRC-32."""

    name: str
    rows: int
    size: int
    crc: int
    last: int = -1


class WandbCacheIndex(msgspec.Struct, kw_only=True):
    """What ``index.json`` holds.

    created: of the run, as the server says it: another run of the same name begins anew.
    token: what the server said when everything was fetched; "" while something is missing.
    events: the file of system events; events_there: how many the server has.
    """

    version: int = 0
    key: str = ""
    created: str = ""
    token: str = ""
    parts: list[RowsFile] = []
    events: RowsFile | None = None
    events_there: int = 0
    events_token: str = ""


class RunCache:
    """One run's entry.

    Args:
        key: host, entity, project and id.
        created: when the run was made, as the server says it.
    """

    def __init__(self, key: str, created: str) -> None:
        base = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "trackers", "wandb")
        self.path = base / hashlib.sha256(key.encode()).hexdigest()[:32]
        self._fresh = WandbCacheIndex(version=VERSION, key=key, created=created)
        self.index = self._load()

    @property
    def rows(self) -> int:
        """How many rows are kept."""
        return sum(part.rows for part in self.index.parts)

    @property
    def last(self) -> int:
        """The highest ``_step`` that is kept; -1 without rows."""
        return self.index.parts[-1].last if self.index.parts else -1

    def add(self, rows: Sequence[dict[str, Any]]) -> None:
        """Keep more rows of the history, which come after those that are kept."""
        if rows:
            part = self._write(rows)
            part.last = max(int(row["_step"]) for row in rows)
            self.index.parts.append(part)
            self._save()

    def set_events(self, rows: Sequence[dict[str, Any]], token: str, there: int) -> None:
        """Store the system events as of ``token``, with the server's count of them."""
        old = self.index.events
        self.index.events, self.index.events_there = self._write(rows), there
        self.index.events_token = token
        self._save()
        if old is not None:
            (self.path / old.name).unlink(missing_ok=True)

    def complete(self, token: str) -> None:
        """Everything that the server has at ``token`` is kept."""
        self.index.token = token
        self._save()

    def clear(self) -> None:
        """Forget the history: it isn't what the server has any more."""
        self.index.parts, self.index.token = [], ""
        self._save()
        kept = {"index.json"} | ({self.index.events.name} if self.index.events is not None else set())
        for file in self.path.iterdir():
            if file.name not in kept:
                file.unlink(missing_ok=True)

    def history(self) -> Iterator[dict[str, Any]]:
        """The rows that are kept."""
        for part in list(self.index.parts):
            yield from self._read(part.name)

    def events(self) -> Iterator[dict[str, Any]]:
        """The system events that are kept."""
        if self.index.events is not None:
            yield from self._read(self.index.events.name)

    def _write(self, rows: Sequence[dict[str, Any]]) -> RowsFile:
        """Keep rows in a file of their own: Parquet, or packed lines where pyarrow isn't installed."""
        content, end = _packed(rows)
        name = secrets.token_hex(6) + end
        with self._written():
            self.path.mkdir(parents=True, exist_ok=True)
            try:
                (self.path / name).write_bytes(content)
            except OSError:
                (self.path / name).unlink(missing_ok=True)
                raise
        return RowsFile(name, len(rows), len(content), zlib.crc32(content))

    @contextlib.contextmanager
    def _written(self) -> Iterator[None]:
        """Translate an error of writing into one line that names the place."""
        try:
            yield
        except OSError as error:
            raise NotFound(
                f"wandb: what is fetched can't be kept in {self.path}: {error.strerror or error}; "
                "XDG_CACHE_HOME names another place"
            ) from error

    def _read(self, name: str) -> Iterator[dict[str, Any]]:
        if name.endswith(LINES):
            with gzip.open(self.path / name, "rt") as packed:
                yield from map(json.loads, packed)
            return
        from pyarrow import parquet

        with parquet.ParquetFile(self.path / name) as file:
            for batch in file.iter_batches(10_000, columns=["row"]):
                for text in batch.column(0).to_pylist():
                    yield json.loads(text)

    def _load(self) -> WandbCacheIndex:
        with contextlib.suppress(OSError, *UNDECODABLE):
            index = msgspec.json.decode((self.path / "index.json").read_bytes(), type=WandbCacheIndex)
            same = (index.version, index.key, index.created) == (VERSION, self._fresh.key, self._fresh.created)
            parts = [*index.parts, *([index.events] if index.events is not None else [])]
            if same and all(map(self._is_whole, parts)):
                os.utime(self.path)
                return index
        return msgspec.json.decode(msgspec.json.encode(self._fresh), type=WandbCacheIndex)

    def _is_whole(self, part: RowsFile) -> bool:
        content = (self.path / part.name).read_bytes() if confined.plain(part.name) else b""
        return len(content) == part.size > 0 and zlib.crc32(content) == part.crc

    def _save(self) -> None:
        with self._written():
            self.path.mkdir(parents=True, exist_ok=True)
            replace_file(self.path / "index.json", msgspec.json.encode(self.index))
        now = time.time()
        for entry in self.path.parent.iterdir():
            with contextlib.suppress(OSError):
                if now - entry.stat().st_mtime > KEEP_S:
                    shutil.rmtree(entry)


def _packed(rows: Sequence[dict[str, Any]]) -> tuple[bytes, str]:
    """Rows as the content of a file, and the suffix of its name."""
    if importlib.util.find_spec("pyarrow") is None:
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        return gzip.compress(lines.encode(), 1), LINES
    import io

    import pyarrow
    from pyarrow import parquet

    table = pyarrow.table({
        "_step": pyarrow.array([row.get("_step") for row in rows], pyarrow.int64()),
        "row": pyarrow.array([json.dumps(row) for row in rows], pyarrow.string()),
    })  # fmt: skip
    content = io.BytesIO()
    parquet.write_table(table, content, compression="zstd")
    return content.getvalue(), PARQUET
