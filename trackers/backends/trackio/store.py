"""Storage of trackio's runs: its SQLite file, its fragments on a network filesystem, or a trackio server.

The three take the same rows. Every row carries a ``log_id``, which trackio's own unique index ignores when it
comes again, so all of them are idempotent. ``trackio.log`` isn't used: it has no timestamp, makes up ids, and
buffers in a thread that loses what it holds when it is killed.
"""

from __future__ import annotations

import contextlib
import errno
import math
import re
import shutil
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from trackers.backends.shared.directory import has_file_locks
from trackers.errors import DeliveryError, Fatal, Refused, Rejected, Unavailable
from trackers.formats import foreign_sqlite
from trackers.formats.trackio_traces import iso
from trackers.support import confined
from trackers.support.failpoints import failpoint
from trackers.tracker import ValueComparison

REQUEST_ROWS = 1000
"""Rows in one request to a server; trackio has no limit of its own."""

TIMEOUT_S = 30.0
"""Timeout for one answer of a trackio server, in seconds."""


UNKNOWN = object()

TIMES = "trackers/times"
"""In a row of several records: seconds after the row's time at which values were logged, by name, where later."""

SAME_S = 2e-6
"""Times of one value that differ by less are the same: they are kept to the microsecond, in two parts, 1.5 µs off at
most. Of two calls of ``log`` they differ by more."""

_OWN_MEDIA = re.compile(r"[0-9a-f]{32}\.\w+")

RESULTS = "trackers/results"
"""The name of the report of a run's results."""


class TrackioRow(NamedTuple):
    """One row of a run. step: None for the table of system metrics, which has times only. members: ids of rows that an
    earlier release made of what is in this one now."""

    log_id: str
    step: int | None
    time: float
    values: dict[str, Any]
    members: tuple[str, ...] = ()


class RowContent(NamedTuple):
    """What trackio holds of a row. time: as its text. values: as its JSON has them."""

    step: int | None
    time: str
    values: dict[str, Any]


class AlertRow(NamedTuple):
    """One alert. level: info, warn or error."""

    alert_id: str
    step: int | None
    time: float
    title: str
    text: str
    level: str


class Files(NamedTuple):
    """One version of an artifact. files: path inside the artifact to local file; references: path to (uri, size)."""

    name: str
    type: str
    description: str | None
    metadata: dict[str, Any]
    aliases: list[str]
    files: dict[str, Path]
    references: dict[str, tuple[str, int]]


class TrackioStore(Protocol):
    """One place for one run. All calls may come again with the same ids and then change nothing.

    tells: what isn't known there isn't there. counts_samples: ``count`` knows of rows without a step, too.
    extends: a row that is there can get more values.
    """

    name: str
    tells: bool
    counts_samples: bool
    extends: bool

    def known_name(self) -> str | None:
        """The run's name there, if it is there."""

    def log(self, rows: Sequence[TrackioRow], config: dict[str, Any] | None) -> None: ...

    def log_system(self, rows: Sequence[TrackioRow]) -> None: ...

    def extend(self, rows: Sequence[TrackioRow]) -> None:
        """Add values to rows that are there, where ``extends``. None takes a value out."""
        return

    def trace(self, rows: Sequence[TrackioRow]) -> bool:
        """Keep traces, one a row, without a row of their own. False where that can't be had."""
        return False

    def alert(self, rows: Sequence[AlertRow]) -> None: ...

    def media(self, source: Path, folder: str, step: int, name: str) -> str:
        """Keep a file with the run; returns the ``file_path`` that trackio's media types carry."""

    def file(self, source: Path, folder: str) -> None:
        """Put a file beside those of the project, in a folder of its own; an earlier one of its name is replaced."""

    def artifact(self, files: Files) -> None: ...

    def rewind(self, step: int) -> bool:
        """Drop this run's rows above a step, as far as they came from here. False where that can't be had."""
        return False

    def stored(self, log_ids: Sequence[str], table: str) -> dict[str, RowContent] | None:
        """What is there of the rows with these ids; None where that can't be told. table: metrics, system_metrics."""
        return None

    def between(self, first: int, last: int) -> dict[str, RowContent]:
        """This run's rows at the steps from ``first`` to ``last``, by id, where ``extends``."""
        return {}

    def drop(self, log_ids: Sequence[str], table: str) -> None:
        """Delete the rows with these ids, where ``stored`` tells of them."""
        return

    def count(self) -> int | None:
        """How many of this run's rows are there, at the least; None where that can't be told."""

    def holds(self, log_ids: Sequence[str], rows: int) -> bool:
        """Whether the store is still that which took these rows, ``rows`` in number: a look that costs little."""


class TrackioRunKey(NamedTuple):
    """Key of a run in trackio, which shows the name and distinguishes runs by id."""

    project: str
    run_id: str


TABLES = ("metrics", "system_metrics")
ASKED = 500
"""Ids in one query: SQLite before 3.32 takes 999 values."""


class RowComparison(ValueComparison):
    """Compares the rows that are sent again with those that trackio has; one that it has otherwise is deleted first."""

    def __init__(self) -> None:
        self._lost: dict[str, dict[str, tuple[RowContent, int, bool]]] = {table: {} for table in TABLES}

    def send(self, store: TrackioStore, rows: Sequence[TrackioRow], table: str) -> None:
        """Note rows before they are sent."""
        there = store.stored([row.log_id for row in rows], table) or {}
        for row in rows:
            sent, known = _content(row), there.get(row.log_id)
            if known == sent:
                continue
            names = sent.values.keys() if known is None or known[:2] != sent[:2] else sent.values.keys() | known.values
            differing = [name for name in names if known is None or known[:2] != sent[:2]
                         or known.values.get(name, UNKNOWN) != sent.values.get(name, UNKNOWN)]  # fmt: skip
            differing = [name for name in differing if name != TIMES]
            self._lost[table][row.log_id] = sent, max(1, len(differing)), known is not None
        store.drop([row.log_id for row in rows if row.log_id in there and row.log_id in self._lost[table]], table)

    def rewind(self, step: int) -> None:
        """Forget rows above a step: they are dropped, as they were before."""
        lost = self._lost["metrics"]
        self._lost["metrics"] = {key: row for key, row in lost.items() if (row[0].step or 0) <= step}

    def settle(self, store: TrackioStore) -> None:
        """Count, once everything was sent."""
        self.missing = self.changed = self.restored = 0
        for table, lost in self._lost.items():
            there = store.stored([*lost], table) or {}
            for log_id, (content, count, is_changed) in lost.items():
                self.changed += count if is_changed else 0
                self.missing += 0 if is_changed else count
                self.restored += count if there.get(log_id) == content else 0


class KnownValues:
    """Which values of this run's rows a store has, by what they are: name, step, time and value.

    Args:
        rows: what is there, by id.
    """

    def __init__(self, rows: Mapping[str, RowContent]) -> None:
        self._values: dict[tuple[int | None, str], list[tuple[str, float, Any]]] = {}
        for log_id, row in rows.items():
            times, began = row.values.get(TIMES), epoch(row.time)
            for name, value in row.values.items():
                later = times.get(name, 0.0) if isinstance(times, dict) else 0.0
                entry = log_id, began + later if isinstance(later, (int, float)) else math.nan, value
                self._values.setdefault((row.step, name), []).append(entry)

    def unknown_of(self, row: TrackioRow) -> TrackioRow | None:
        """The row without the values that rows of other ids have; None if nothing is left of it."""
        names = [name for name in row.values if name != TIMES]
        if all(log_id == row.log_id for name in names for log_id, *_ in self._values.get((row.step, name), ())):
            return row
        content, times = _content(row).values, row.values.get(TIMES) or {}
        left = [
            name for name in names if self._elsewhere(row, name, row.time + times.get(name, 0.0), content[name]) is None
        ]
        if len(left) == len(names):
            return row
        if not left:
            return None
        values = {name: row.values[name] for name in left}
        later = {name: times[name] for name in left if name in times}
        return row._replace(values={**values, **({TIMES: later} if later else {})})

    def holder(self, row: TrackioRow) -> str:
        """The id of the row that has a row's last value."""
        content, times = _content(row).values, row.values.get(TIMES) or {}
        name = next(name for name in reversed(row.values) if name != TIMES)
        return self._elsewhere(row, name, row.time + times.get(name, 0.0), content[name]) or row.log_id

    def _elsewhere(self, row: TrackioRow, name: str, time: float, value: Any) -> str | None:
        for log_id, at, known in self._values.get((row.step, name), ()):
            if log_id != row.log_id and abs(at - time) < SAME_S and known == value:
                return log_id
        return None


def _contents(rows: Iterable[Sequence[Any]]) -> dict[str, RowContent]:
    import orjson

    found = {}
    for log_id, step, time, text in rows:
        values = orjson.loads(text)
        values.pop(RESULTS, None)  # no record's: it was added as the run ended
        found[log_id] = RowContent(step, time, values)
    return found


def _content(row: TrackioRow) -> RowContent:
    import orjson
    from trackio.utils import serialize_values

    return RowContent(row.step, iso(row.time), orjson.loads(orjson.dumps(serialize_values(row.values))))


def _storage() -> Any:
    from trackio.sqlite_storage import SQLiteStorage

    return SQLiteStorage


class LocalStore:
    """The SQLite file of a project below ``TRACKIO_DIR``."""

    tells = True
    counts_samples = True
    extends = True

    def __init__(self, key: TrackioRunKey, name: str) -> None:
        self._key = key
        self.name = name
        self._seen: tuple[int, int] | None = None

    def known_name(self) -> str | None:
        self._path()
        with translated():
            runs = _storage().get_run_records(self._key.project)
        return next((str(run["name"]) for run in runs if run["id"] == self._key.run_id), None)

    def _path(self) -> Path:
        """The database; Fatal where it, or what lies beside it, leads to another file."""
        path = Path(_storage().get_project_db_path(self._key.project))
        foreign_sqlite.need_own_files(path, Fatal)
        return path

    def log(self, rows: Sequence[TrackioRow], config: dict[str, Any] | None) -> None:
        failpoint("trackio.log.before")
        with translated():
            _storage().bulk_log(
                self._key.project,
                self.name,
                [row.values for row in rows],
                steps=[row.step for row in rows],
                timestamps=isos(rows),
                config=config,
                log_ids=[row.log_id for row in rows],
                run_id=self._key.run_id,
            )
        failpoint("trackio.log.after")

    def extend(self, rows: Sequence[TrackioRow]) -> None:
        import orjson
        from trackio.utils import serialize_values

        project, path = self._key.project, self._path()
        if not path.exists():
            return
        failpoint("trackio.extend.before")
        with translated(), _storage()._get_process_lock(project), _storage()._get_connection(path) as opened:
            for row in rows:
                known = opened.execute("SELECT metrics FROM metrics WHERE log_id = ?", (row.log_id,)).fetchone()
                if known is None:
                    continue
                values = joined(orjson.loads(known[0]), serialize_values(row.values))
                kept = orjson.dumps({name: value for name, value in values.items() if value is not None})
                opened.execute("UPDATE metrics SET metrics = ? WHERE log_id = ?", (kept, row.log_id))
            opened.commit()
        failpoint("trackio.extend.after")

    def trace(self, rows: Sequence[TrackioRow]) -> bool:
        project, split = self._key.project, getattr(_storage(), "_split_trace_metrics", None)
        if split is None:  # trackio before it had traces
            return False
        traces = []
        for row in rows:
            about = {"run": self.name, "run_id": self._key.run_id, "step": row.step or 0, "timestamp": iso(row.time)}
            traces += split(row.values, **about, log_id=row.log_id, space_id=None)[1]
        with translated():
            path = _storage().init_db(project)
            with _storage()._get_process_lock(project), _storage()._get_connection(path) as opened:
                _storage()._insert_trace_rows(opened.cursor(), traces)
                opened.commit()
        return True

    def log_system(self, rows: Sequence[TrackioRow]) -> None:
        with translated():
            _storage().bulk_log_system(
                self._key.project,
                self.name,
                [row.values for row in rows],
                timestamps=[iso(row.time) for row in rows],
                log_ids=[row.log_id for row in rows],
                run_id=self._key.run_id,
            )

    def alert(self, rows: Sequence[AlertRow]) -> None:
        with translated():
            _storage().bulk_alert(
                self._key.project,
                self.name,
                titles=[row.title for row in rows],
                texts=[row.text for row in rows],
                levels=[row.level for row in rows],
                steps=[row.step for row in rows],
                timestamps=[iso(row.time) for row in rows],
                alert_ids=[row.alert_id for row in rows],
                run_id=self._key.run_id,
            )

    def media(self, source: Path, folder: str, step: int, name: str) -> str:
        return self._keep(source, folder, str(step), name)

    def file(self, source: Path, folder: str) -> None:
        self._keep(source, "files", folder, source.name)

    def _keep(self, source: Path, *parts: str) -> str:
        """Copy a file below trackio's media, through no link; returns its path there."""
        from trackio.utils import MEDIA_DIR

        target = MEDIA_DIR.joinpath(self._path().stem, *parts)  # the project's name as trackio writes it
        with translated(), confined.open_file(source) as content:
            MEDIA_DIR.mkdir(parents=True, exist_ok=True)
            confined.make_folder(target.parent, root=MEDIA_DIR)
            with confined.open_file(target, "wb", root=MEDIA_DIR) as file:
                shutil.copyfileobj(content, file)
        return str(target.relative_to(MEDIA_DIR))

    def remove_files(self, folder: str) -> None:
        """Delete what of the run lies beside the database, which trackio leaves there: its files, and the media of its
        rows whose names are of our making, so that no other run has them.

        Args:
            folder: of the run among the project's files.
        """
        import orjson
        from trackio.media.utils import get_project_media_path
        from trackio.utils import MEDIA_DIR

        project, run_id = self._key
        query = "SELECT metrics FROM metrics WHERE run_id = ? AND CAST(metrics AS TEXT) LIKE '%file_path%'"
        with translated(), _storage()._get_connection(self._path()) as opened:
            rows = opened.execute(query, (run_id,))
            paths = [MEDIA_DIR / path for (row,) in rows for path in _media_of(orjson.loads(row))]
        files = get_project_media_path(project, relative_path=folder)
        paths += () if files.is_symlink() else files.iterdir()  # a planted link leads elsewhere
        for path in paths:
            with contextlib.suppress(OSError):  # it has gone, or leads elsewhere
                confined.remove(path, root=files.parents[1])
        for parent in {files, *(path.parent for path in paths)}:
            with contextlib.suppress(OSError):  # it isn't empty
                parent.rmdir()

    def rewind(self, step: int) -> bool:
        (project, run_id), path = self._key, self._path()
        with translated():
            if not path.exists():
                return True
            with _storage()._get_process_lock(project), _storage()._get_connection(path) as connection:
                # By the ids that only our rows have; a user's own rows in the same run stay.
                connection.execute(
                    "DELETE FROM metrics WHERE run_id = ? AND step > ? AND substr(log_id, 1, ?) = ?",
                    (run_id, step, len(run_id) + 1, f"{run_id}:"),
                )
                with contextlib.suppress(sqlite3.OperationalError):  # trackio before it had traces
                    connection.execute(
                        "DELETE FROM traces WHERE run_id = ? AND step > ? AND log_id LIKE '%:samples'", (run_id, step)
                    )
                connection.commit()
        return True

    def count(self) -> int | None:
        count = self._ask(
            "SELECT (SELECT count(*) FROM metrics WHERE run_id = ?1 AND substr(log_id, 1, ?2) = ?3)"
            " + (SELECT count(*) FROM system_metrics WHERE run_id = ?1 AND substr(log_id, 1, ?2) = ?3)",
            (self._key.run_id, len(self._key.run_id) + 1, f"{self._key.run_id}:"),
        )
        return None if count is UNKNOWN else int(count or 0)

    def stored(self, log_ids: Sequence[str], table: str) -> dict[str, RowContent] | None:
        found: dict[str, RowContent] = {}
        step = "step" if table == "metrics" else "NULL"
        for chunk, marks in _chunks(log_ids):
            query = f"SELECT log_id, {step}, timestamp, metrics FROM {table} WHERE log_id IN ({marks})"  # noqa: S608
            rows = self._rows(query, chunk)
            if rows is None:
                return None
            found.update(_contents(rows))
        return found

    def between(self, first: int, last: int) -> dict[str, RowContent]:
        query = (
            "SELECT log_id, step, timestamp, metrics FROM metrics "
            "WHERE run_id = ? AND step BETWEEN ? AND ? AND substr(log_id, 1, ?) = ?"
        )
        run_id = self._key.run_id
        return _contents(self._rows(query, (run_id, first, last, len(run_id) + 1, f"{run_id}:")) or [])

    def drop(self, log_ids: Sequence[str], table: str) -> None:
        project, path = self._key.project, self._path()
        for chunk, marks in _chunks(log_ids):
            with translated(), _storage()._get_process_lock(project), _storage()._get_connection(path) as opened:
                opened.execute(f"DELETE FROM {table} WHERE log_id IN ({marks})", chunk)  # noqa: S608 - marks only
                opened.commit()

    def holds(self, log_ids: Sequence[str], rows: int) -> bool:
        """Whether the database file is the same, and has these rows: it may have been deleted, or put back from a
        backup, or the run may have been deleted in it."""
        identity = self._identity()
        if self._seen is not None and identity != self._seen:
            return False
        self._seen = identity
        distinct = sorted(set(log_ids))
        placeholders = ", ".join("?" for _ in distinct)
        count = self._ask(f"SELECT count(DISTINCT log_id) FROM metrics WHERE log_id IN ({placeholders})", distinct)  # noqa: S608 - question marks only
        return count is UNKNOWN or int(count or 0) == len(distinct)

    def _identity(self) -> tuple[int, int] | None:
        with contextlib.suppress(OSError):
            status = self._path().stat()
            return status.st_dev, status.st_ino
        return None

    def _ask(self, query: str, values: Sequence[Any]) -> Any:
        """The one value of a query that changes nothing; None where the database or its tables aren't there, UNKNOWN
        where they are of a version that can't tell."""
        rows = self._rows(query, values)
        return UNKNOWN if rows is None else rows[0][0] if rows else None

    def _rows(self, query: str, values: Sequence[Any]) -> list[Any] | None:
        """The rows of a query that changes nothing; none where the database or its tables aren't there, None where
        they are of a version that can't tell."""
        path = self._path()
        if not path.exists():
            return []
        with translated(), _storage()._get_connection(path, configure_pragmas=False) as connection:
            try:
                return [tuple(row) for row in connection.execute(query, tuple(values)).fetchall()]
            except sqlite3.OperationalError as error:
                if "no such table" in str(error):
                    return []
                if "no such column" in str(error):
                    return None
                raise

    def artifact(self, files: Files) -> None:
        from trackio import cas

        with translated():
            manifest, blobs = references(files), cas.blob_path(self._key.project, "00").parents[1]
            blobs.parents[2].mkdir(parents=True, exist_ok=True)
            confined.make_folder(blobs, root=blobs.parents[2])
            for path, local in files.files.items():
                digest, size = cas.stage_blob_into_project(local, self._key.project)
                manifest.append({"path": path, "digest": digest, "size": size})
            _storage().commit_artifact_version(
                project=self._key.project,
                name=files.name,
                type=files.type,
                description=files.description,
                manifest=manifest,
                metadata=files.metadata,
                aliases=cas.validate_aliases(files.aliases),
                run_name=self.name,
                run_id=self._key.run_id,
            )


class FragmentStore(LocalStore):
    """Trackio's append-only fragments, which it prefers on network filesystems and imports when it shows them.

    Media and artifacts go where the SQLite store has them.
    """

    tells = False
    """Fragments are known once somebody has shown them."""
    extends = False

    def __init__(self, key: TrackioRunKey, name: str) -> None:
        super().__init__(key, name)
        self._writer: Any = None
        self._last: Path | None = None

    def log(self, rows: Sequence[TrackioRow], config: dict[str, Any] | None) -> None:
        from trackio import fragments

        entries = [
            {**self._entry(row), "step": row.step, "config": config if number == 0 else None}
            for number, row in enumerate(rows)
        ]
        self._append([fragments.metric_record(entry) for entry in entries])

    def log_system(self, rows: Sequence[TrackioRow]) -> None:
        from trackio import fragments

        self._append([fragments.system_metric_record(self._entry(row)) for row in rows])

    def alert(self, rows: Sequence[AlertRow]) -> None:
        from trackio import fragments

        self._append([fragments.alert_record(alert_entry(self._key, self.name, row)) for row in rows])

    def trace(self, rows: Sequence[TrackioRow]) -> bool:
        return False

    def rewind(self, step: int) -> bool:
        return False

    def stored(self, log_ids: Sequence[str], table: str) -> dict[str, RowContent] | None:
        return None

    def count(self) -> int | None:
        return None

    def holds(self, log_ids: Sequence[str], rows: int) -> bool:
        """Whether the last fragment lies there, or was imported."""
        if self._last is None or self._last.exists():
            return True
        self._seen = None
        return super().holds(log_ids, rows)

    def _entry(self, row: TrackioRow) -> dict[str, Any]:
        return {**log_entry(self._key, self.name, row), "timestamp": iso(row.time)}

    def _append(self, records: list[dict[str, Any]]) -> None:
        from trackio import fragments

        if self._writer is None:
            self._writer = fragments.FragmentWriter()
        with translated():
            self._last = self._writer.write_local(records) or self._last


def joined(values: dict[str, Any], added: dict[str, Any]) -> dict[str, Any]:
    """The values of a row with those that are added to it."""
    times = {**(values.get(TIMES) or {}), **(added.get(TIMES) or {})}
    return {**values, **added, **({TIMES: times} if times else {})}


def _chunks(values: Sequence[str]) -> Iterator[tuple[list[str], str]]:
    """Values in parts that fit a query, each with its question marks."""
    for first in range(0, len(values), ASKED):
        part = [*values[first : first + ASKED]]
        yield part, ", ".join("?" for _ in part)


@contextmanager
def translated() -> Iterator[None]:
    """Trackio's and SQLite's errors as ours."""
    try:
        yield
    except DeliveryError:
        raise
    except sqlite3.OperationalError as error:  # locked, disk full, I/O error
        if "readonly" in str(error) or "unable to open" in str(error):
            raise Refused(f"{error}; is TRACKIO_DIR writable?") from error
        raise _locked(error) from error
    except sqlite3.DatabaseError as error:
        raise Fatal(f"{error}; move the damaged file in TRACKIO_DIR away") from error
    except OSError as error:  # trackio's lock file, a full disk
        if isinstance(error, PermissionError):
            raise Refused(f"{error}; is TRACKIO_DIR writable?") from error
        planted = error.errno in (errno.ELOOP, errno.EEXIST, errno.ENOTDIR)
        raise Fatal(f"{error}: remove it") if planted else _locked(error) from error
    except (TypeError, ValueError, OverflowError) as error:  # a value that JSON or SQLite can't hold
        raise Rejected(str(error)) from error
    except RuntimeError as error:  # trackio's word for any failed transaction
        raise Unavailable(str(error)) from error


def _locked(error: Exception) -> DeliveryError:
    """Somebody else has the lock for now, unless there are none to be had at all."""
    from trackio.utils import TRACKIO_DIR

    if "lock" in str(error) and not has_file_locks(Path(TRACKIO_DIR)):
        return Refused(
            f"{TRACKIO_DIR} lies on a filesystem without file locks, which SQLite needs: "
            "set TRACKIO_STORAGE_MODE=jsonl, or TRACKIO_DIR to another place"
        )
    return Unavailable(str(error))


def epoch(text: str) -> float:
    """The Unix seconds of such a text; NaN of any other."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except (TypeError, ValueError, OverflowError):  # somebody changed it
        return math.nan


def isos(rows: Sequence[TrackioRow]) -> list[str]:
    """``iso`` of each row's time, rounded as datetime does it; a second's text is made once."""
    texts, second, text = [], math.nan, ""
    for row in rows:
        fraction, whole = math.modf(row.time)
        micros = round(fraction * 1e6)
        if not 0 < micros < 1_000_000:
            texts.append(iso(row.time))
            continue
        if whole != second:
            second, text = whole, iso(whole)[:19]
        texts.append(f"{text}.{micros:06d}+00:00")
    return texts


def _media_of(value: Any) -> Iterator[str]:
    """The paths of files of our making in a row's values."""
    if isinstance(value, dict):
        path = value.get("file_path")
        if isinstance(path, str) and confined.is_inside(path) and _OWN_MEDIA.fullmatch(path.rpartition("/")[2]):
            yield path
        for part in value.values():
            yield from _media_of(part)
    elif isinstance(value, list):
        for part in value:
            yield from _media_of(part)


def log_entry(key: TrackioRunKey, name: str, row: TrackioRow) -> dict[str, Any]:
    """A row as trackio's servers and fragments take it."""
    return {"project": key.project, "run": name, "run_id": key.run_id, "metrics": row.values, "log_id": row.log_id}


def alert_entry(key: TrackioRunKey, name: str, row: AlertRow) -> dict[str, Any]:
    """An alert as trackio's servers and fragments take it."""
    return {
        "project": key.project,
        "run": name,
        "run_id": key.run_id,
        "title": row.title,
        "text": row.text,
        "level": row.level,
        "step": row.step,
        "timestamp": iso(row.time),
        "alert_id": row.alert_id,
    }


def references(files: Files) -> list[dict[str, Any]]:
    """The manifest entries of what an artifact only points to."""
    return [{"path": path, "ref": uri, "digest": uri, "size": size} for path, (uri, size) in files.references.items()]
