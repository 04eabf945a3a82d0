"""Aim's databases, read from copies: RocksDB and SQLite write beside the files that they open.

A copy of a RocksDB database in a temporary directory has links to its tables, which nobody changes once they are
written, and copies of the rest: its list of tables, and what isn't in tables yet.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from trackers.errors import Damaged, Unavailable
from trackers.formats import foreign_sqlite
from trackers.readers import helpers
from trackers.support import confined
from trackers_aim import tree

FOLDER = ".aim"
PROPERTIES = "run_metadata.sqlite"
TABLES = frozenset({"run", "experiment", "tag", "run_tag", "note"})
"""aim/storage/structured/sql_engine/models.py"""
TRIES = 5
_TABLE = re.compile(r"\d{1,20}\.(?:sst|ldb)")
_OTHER = re.compile(r"CURRENT|IDENTITY|(?:MANIFEST|OPTIONS)-\d{1,20}|\d{1,20}\.log")


class AimDatabase:
    """One RocksDB database.

    Args:
        folder: where its copy lies.
    """

    def __init__(self, folder: Path) -> None:
        import aimrocks

        self._db = aimrocks.DB(str(folder), aimrocks.Options(create_if_missing=False), read_only=True)

    def items(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Keys with a prefix, which is removed, in order, and their values; an empty value is a blob."""
        cursor = self._db.iteritems()
        cursor.seek(prefix)
        for name, data in cursor:
            if not name.startswith(prefix):
                break
            yield name[len(prefix) :], data

    def leaf(self, *path: str | int) -> Any:
        """One value; None where there is none."""
        data = self._db.get(tree.key(*path))
        return tree.value(data) if data else None

    def blob(self, name: bytes) -> bytes | None:
        """A value that Aim stores apart from the others, since it is large."""
        return self._db.get(tree.BLOBS + name)  # type: ignore[no-any-return]


@contextlib.contextmanager
def open_store(folder: Path, root: Path) -> Iterator[AimDatabase]:
    """Open a database for reading.

    Args:
        root: directory of which no link leads out.

    Raises:
        Damaged: it is none. Unavailable: it changes all the time.
    """
    with tempfile.TemporaryDirectory(prefix="trackers-aim-") as temporary:
        copy = _copied(lambda: _files(folder, root), Path(temporary), root)
        if not (copy / "CURRENT").exists():
            raise Damaged(f"{folder} is no database of Aim's")
        yield AimDatabase(copy)


def _copied(files: Callable[[], dict[Path, tuple[int, int]]], directory: Path, root: Path) -> Path:
    """A directory with copies of files that didn't change meanwhile.

    Raises:
        Unavailable: they change all the time.
    """
    for number in range(TRIES):
        before = files()
        copy = directory / str(number)
        copy.mkdir()
        with contextlib.suppress(FileNotFoundError):
            for path in before:
                _copy_file(path, copy / path.name, root)
            if files() == before:
                return copy
    raise Unavailable(f"{root} is written to all the time: try again")


def _files(folder: Path, root: Path) -> dict[Path, tuple[int, int]]:
    """A database's files, their lengths and times."""
    named = [path for path in sorted(folder.iterdir()) if _TABLE.fullmatch(path.name) or _OTHER.fullmatch(path.name)]
    return _states(named, root)


def _states(paths: Iterable[Path], root: Path) -> dict[Path, tuple[int, int]]:
    states = {}
    for path in paths:
        if confined.is_file(path, root=root):
            helpers.check_size(path)
            stat = path.stat()
            states[path] = (stat.st_size, stat.st_mtime_ns)
    return states


def _copy_file(path: Path, copy: Path, root: Path) -> None:
    if _TABLE.fullmatch(path.name):
        copy.symlink_to(path.resolve())
        return
    with confined.open_file(path, root=root) as source, copy.open("wb") as target:
        shutil.copyfileobj(source, target)


class Properties:
    """What a store says of its runs beside their data; nothing where it has no such database.

    Args:
        root: the store's directory.

    Raises:
        Damaged: it is no database of Aim's.
    """

    def __init__(self, root: Path) -> None:
        self._rows: dict[str, dict[str, Any]] = {}
        path = root / PROPERTIES
        with tempfile.TemporaryDirectory(prefix="trackers-aim-") as temporary:
            paths = (path, root / f"{PROPERTIES}-wal")
            copy = _copied(lambda: _states(paths, root), Path(temporary), root) / PROPERTIES
            if not copy.exists():
                return
            missing = {"run", "experiment", "tag", "run_tag"} - foreign_sqlite.check(copy, TABLES, TABLES)
            if missing:
                raise Damaged(f"{path} is no database of Aim's: it has no table {min(missing)}")
            with contextlib.closing(sqlite3.connect(copy)) as database, foreign_sqlite.limited(database, copy):
                database.row_factory = sqlite3.Row
                self._read(database)

    def of(self, run: str) -> dict[str, Any]:
        """name, description, created (Unix seconds or None), experiment, tags and notes of a run, as far as known."""
        return self._rows.get(run, {})

    def _read(self, database: sqlite3.Connection) -> None:
        ids = {}
        for row in database.execute(
            "SELECT run.id, run.hash, run.name, run.description, run.created_at, experiment.name AS experiment "
            "FROM run LEFT JOIN experiment ON experiment.id = run.experiment_id"
        ):
            known = {**dict(row), "created": _unix(row["created_at"]), "tags": []}
            ids[row["id"]] = self._rows[str(row["hash"])] = known
        for run, tag in database.execute(
            "SELECT run_tag.run_id, tag.name FROM run_tag JOIN tag ON tag.id = run_tag.tag_id ORDER BY tag.name"
        ):
            if run in ids:
                ids[run]["tags"].append(str(tag))


def _unix(text: Any) -> float | None:
    """A time as SQLAlchemy writes it, without a zone, in UTC."""
    try:
        return datetime.fromisoformat(str(text)).replace(tzinfo=timezone.utc).timestamp()
    except (ValueError, OverflowError):
        return None
