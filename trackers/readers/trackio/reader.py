"""Trackio's local store: what our tracker, ``trackio.log`` and trackio's importers wrote there.

Rows come in the order in which they were inserted. Reserved names lose the ``__`` that trackio gave them; results,
tags, notes and the status, which our tracker keeps in the configuration, are what they were. System metrics have no
step. Media and artifacts lie below ``TRACKIO_DIR``.
"""

from __future__ import annotations

import bisect
import contextlib
import functools
import json
import sqlite3
from array import array
from collections.abc import Iterator
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any

from trackers.errors import Damaged, NotFound, Unavailable, UsageError, examples
from trackers.formats import foreign_sqlite, trackio_traces, vendor_system_names
from trackers.metrics.unasked import is_unasked
from trackers.readers import helpers
from trackers.readers.boundary import TolerantReader, bounded
from trackers.readers.helpers import merged
from trackers.readers.reader import Reader, SourceRun
from trackers.records import (
    SUMMARY_PREFIX,
    Alert,
    ArtifactFile,
    ArtifactRecord,
    Config,
    Environment,
    Finish,
    Media,
    MediaFile,
    Metrics,
    Record,
    Summary,
    Text,
    unnamed_float,
)
from trackers.support import confined

FILES = {"trackio.image": "image", "trackio.audio": "audio", "trackio.video": "video", "trackio.html": "html"}
FOLDER = "media"
"""Folder of files in trackio's directory (trackio/utils.py MEDIA_DIR)."""


def media(name: str, value: dict[str, Any], at: dict[str, Any], directory: Path) -> Media | None:
    """A value with ``_type`` as a media record; None for a type that isn't known, or whose file is gone.

    Args:
        at: ``step`` and ``time``. directory: trackio's.
    """
    kind = str(value["_type"])
    if kind in FILES:
        item = _file(value, directory)
        return Media(name=name, type=FILES[kind], items=[item], **at) if item is not None else None
    if kind == "trackio.histogram":
        data = {"counts": value.get("values") or [], "edges": value.get("bins") or []}
        return Media(name=name, type="histogram", items=[MediaFile(format="json", data=data)], **at)
    if kind == "trackio.table":
        return Media(name=name, type="table", items=[MediaFile(format="json", data=_table(value, directory))], **at)
    return None


def _file(value: dict[str, Any], directory: Path) -> MediaFile | None:
    relative = str(value.get("file_path", ""))
    path = Path(FOLDER, relative)
    if not confined.is_inside(relative) or not confined.is_file(directory / path, root=directory):
        return None
    return MediaFile(format=path.suffix.lstrip(".") or "bin", file=str(path), caption=value.get("caption"))


def _table(value: dict[str, Any], directory: Path) -> dict[str, Any]:
    """Rows of mappings as columns and rows. Media in cells are as in our tables, or a file's name if it is gone."""
    rows = [row for row in value.get("_value") or [] if isinstance(row, dict)]
    columns = list(dict.fromkeys(key for row in rows for key in row))
    return {"columns": columns, "rows": [[_cell(row.get(column), directory) for column in columns] for row in rows]}


def _cell(value: Any, directory: Path) -> Any:
    if isinstance(value, dict) and "file_path" in value:
        kind, item = FILES.get(str(value.get("_type"))), _file(value, directory)
        if kind is None or item is None:
            return value["file_path"]
        return {"_type": kind, "format": item.format, "file": item.file, "caption": item.caption}
    if isinstance(value, dict):
        return {key: _cell(item, directory) for key, item in value.items()}
    return [_cell(item, directory) for item in value] if isinstance(value, list) else value


RESERVED = frozenset({"project", "run", "timestamp", "step", "time", "metrics"})
"""trackio/utils.py RESERVED_KEYS: these, and what begins with "__", got another "__" in front."""

TABLES = frozenset({"metrics", "system_metrics", "configs", "traces", "project_metadata", "pending_uploads", "alerts",
                    "artifacts", "artifact_versions", "artifact_aliases", "run_artifact_links",
                    "external_run_artifact_links"})  # fmt: skip
"""trackio/sqlite_storage.py."""
READ_WHOLE = TABLES - {"metrics", "system_metrics", "traces"}

OWN = "trackers/"
MARKDOWN = "trackio.markdown"
TIMES = f"{OWN}times"
"""Our tracker's seconds after a row's time, by name, in rows of several records."""
RESULTS = f"{OWN}results"
"""Our tracker's report of what its configuration has, too."""
MOST_TRACES = 20_000
OWN_BYTES = 16 << 20
BATCH = 1000
BATCH_BYTES = 8 << 20
"""A batch of rows ends with the one that reaches this."""


@bounded
class TrackioReader(Reader):
    """Reads projects of trackio's directory: ``trackio:project``, ``trackio:project/run`` (name or id)."""

    scheme = "trackio"
    needs = ("trackio",)

    def runs(self, where: str) -> list[SourceRun]:
        """See :class:`trackers.readers.reader.Reader`."""
        project, name = _project(where)
        foreign_sqlite.check(_storage().get_project_db_path(project), TABLES, READ_WHOLE)
        with _limited():
            known_runs = _storage().get_run_records(project)
        runs = helpers.those_of(known_runs, partial(_source_run, project)) if known_runs else []
        if name:
            exact = [run for run in runs if run.id == name]
            chosen = exact or [run for run in runs if run.name == name]
            if not chosen:
                known = examples(run.name for run in runs)
                raise NotFound(f"trackio: no run {name!r} in project {project!r}; its runs: {known}")
            if len(chosen) > 1:
                listed = "".join(f"\n  trackio:{project}/{run.id}" for run in chosen)
                raise UsageError(f"{len(chosen)} runs of {project!r} are called {name!r}; name one by its id:{listed}")
            runs = chosen
        if not runs:
            raise NotFound(f"trackio: project {project!r} has no runs")
        return sorted(runs, key=lambda run: run.created, reverse=True)

    def version(self, run: SourceRun) -> str:
        """See :class:`trackers.readers.reader.Reader`."""
        path = _storage().get_project_db_path(run.project)
        return helpers.version([file for file in (path, path.with_name(path.name + "-wal")) if file.exists()])

    def read(self, run: SourceRun, *, files: Path | None = None) -> Iterator[Record]:
        """See :class:`trackers.readers.reader.Reader`."""
        project, run_id = run.project, run.id
        storage = _storage()
        config = storage.get_run_config(project, run=run.name, run_id=run_id) or {}
        values, results, own = _sorted(config)
        if values:
            yield Config(time=run.created, values=values)
        environment = own.pop("_Environment", None) or _own_file(run, "environment.json")
        if environment:
            yield Environment(time=run.created, values=environment)
        path = storage.get_project_db_path(project)
        ended = run.created
        tolerant = TolerantReader(run, "rows")
        names = own.get("_SystemNames") or _own_file(run, "metric_names.json")
        system = _renamed(_rows(path, run, tolerant, "system_metrics", "NULL"), names)
        for record in merged([_rows(path, run, tolerant, "metrics", "step"), system]):
            ended = max(ended, record.time)
            yield record
        for trace in _traces(path, run, tolerant):
            yield from tolerant.read(iter(trace), "traces")
        yield from tolerant.read(_alerts(run), "alerts")
        yield from tolerant.read(_artifacts(run), "artifacts")
        tolerant.add_note()
        if results:
            yield Summary(time=ended, values=results)
        status = own.get(f"{OWN}status")
        if isinstance(status, str) and status != "running":
            yield Finish(time=ended, status=status, exit_code=own.get(f"{OWN}exit_code"))


def _renamed(batches: Iterator[list[Record]], names: dict[str, str]) -> Iterator[list[Record]]:
    """Samples of the machine, to which our tracker gave trackio's names and units, as they were."""
    for batch in batches:
        for record in batch if names else ():
            if isinstance(record, Metrics):
                record.values = vendor_system_names.back(record.values, names, "trackio")
        yield batch


def _rows(path: Path, run: SourceRun, tolerant: TolerantReader, table: str, step: str) -> Iterator[list[Record]]:
    """The rows of one table as records, a thousand at a time, or fewer long ones.

    Their numbers are sorted first: SQLite would sort whole rows, in memory.
    """
    query = f"SELECT id, timestamp, {step}, metrics FROM {table} WHERE id BETWEEN ? AND ? AND +run_id = ? ORDER BY id"  # noqa: S608 - names of ours
    with _connected(path) as connection:
        cursor = connection.execute(f"SELECT id FROM {table} WHERE run_id = ? ORDER BY id", (run.id,))  # noqa: S608
        numbers = array("q", (row[0] for row in cursor))
        left = foreign_sqlite.size(path)
        for first in range(0, len(numbers), BATCH):
            batch: list[Record] = []
            held = 0
            for _, *row in _those(connection, query, numbers[first : first + BATCH], run.id, tolerant):
                batch += tolerant.read(_row(run, *row))
                held += len(row[2] or "")
                left -= len(row[2] or "")
                if left < 0:  # rows share their pages
                    yield batch
                    raise Damaged(f"trackio: {path} is damaged: its rows have more than the file")
                if held >= BATCH_BYTES:
                    yield batch
                    batch, held = [], 0
            yield batch


@contextlib.contextmanager
def _connected(path: Path) -> Iterator[sqlite3.Connection]:
    """Trackio's connection to a database; nothing where a release has no such table.

    Raises:
        Damaged, Unavailable: SQLite says so.
    """
    from trackio.sqlite_storage import SQLiteStorage

    try:
        with SQLiteStorage._get_connection(path) as connection:
            foreign_sqlite.bound_values(connection)
            yield connection
    except sqlite3.OperationalError as error:
        if "no such" not in str(error):
            raise Unavailable(f"trackio: {path.name}: {error}") from None
    except sqlite3.DatabaseError as error:
        raise Damaged(f"trackio: {path} is damaged: {error}") from None


def _those(
    connection: sqlite3.Connection, query: str, numbers: array[int], run_id: str, tolerant: TolerantReader
) -> Iterator[tuple[Any, ...]]:
    """The rows of these numbers, without those with a value that is longer than any that is read."""
    at, end = 0, len(numbers)
    while at < len(numbers):
        try:
            for row in connection.execute(query, (numbers[at], numbers[end - 1], run_id)):
                at = bisect.bisect_right(numbers, row[0], at)
                yield row
            at, end = end, len(numbers)
        except sqlite3.DataError as error:  # the module loses the row before that one, too
            if end > at + 1:
                end = at + 1
            else:
                tolerant.lose(str(error))
                at, end = end, len(numbers)


def _row(run: SourceRun, timestamp: str, step: int | None, content: str) -> Iterator[Record]:
    time = helpers.unix_or(timestamp, run.created)
    row = json.loads(content)
    later = row.pop(TIMES, None) if isinstance(row.get(TIMES), dict) else None
    parts: dict[float, dict[str, Any]] = {}
    for key, value in row.items():
        moved = (later or {}).get(key, 0.0)
        parts.setdefault(moved if helpers.is_number(moved) else 0.0, {})[key] = value
    for moved, part in parts.items():
        yield from _values(run, part, {"step": step, "time": time + moved})


def _values(run: SourceRun, row: dict[str, Any], at: dict[str, Any]) -> Iterator[Record]:
    """What was logged at one step and time."""
    values: dict[str, Any] = {}
    texts: dict[str, str] = {}
    results: dict[str, Any] = {}
    for key, value in row.items():
        name, value = _logged_name(key), unnamed_float(value)
        if name.startswith(SUMMARY_PREFIX) and not isinstance(value, (dict, list)):
            results[name] = value
        elif helpers.is_number(value):
            values[name] = value
        elif isinstance(value, str):
            texts[name] = value
        elif isinstance(value, dict) and value.get("_type") == MARKDOWN:
            if name != RESULTS:
                texts[name] = str(value.get("_value") or "")
        elif isinstance(value, dict) and "_type" in value:
            record = media(name, value, at, Path(run.directory))
            if record is not None:
                yield record
        elif value is not None:
            texts[name] = json.dumps(value, ensure_ascii=False)
    if values:
        yield Metrics(values=values, **at)
    if texts:
        yield Text(values=texts, **at)
    if results:
        yield Summary(time=at["time"], values=results)


def _traces(path: Path, run: SourceRun, tolerant: TolerantReader) -> Iterator[list[Record]]:
    """The spans that our tracker keeps as traces, tree by tree."""
    with _connected(path) as connection:
        rows = connection.execute("SELECT rowid FROM traces WHERE run_id = ? ORDER BY timestamp, id", (run.id,))
        for (number,) in rows.fetchmany(MOST_TRACES):
            query = "SELECT rowid, spans FROM traces WHERE rowid BETWEEN ? AND ? AND run_id = ?"
            for _, content in _those(connection, query, array("q", [number]), run.id, tolerant):
                with contextlib.suppress(ValueError):  # somebody else's
                    yield list(trackio_traces.spans_of(json.loads(content)))


def _own_file(run: SourceRun, name: str) -> dict[str, Any]:
    """What our tracker keeps of a run beside the project's files, as JSON; {} where it isn't there."""
    from trackio.utils import MEDIA_DIR

    folder = _storage().get_project_db_path(run.project).stem  # the project's name as trackio writes it
    try:
        if not confined.is_plain_name(run.id):
            return {}
        files = MEDIA_DIR / folder / "files"
        # After its first name; an id may end as another one does.
        found = [place for place in files.iterdir() if place.name.endswith(f"-{run.id}")]
        found.sort(key=lambda place: (place.name != f"{run.name}-{run.id}", len(place.name)))
        if not found:
            return {}
        with confined.open_file(found[0] / name, root=MEDIA_DIR) as file:
            content = json.loads(file.read(OWN_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _alerts(run: SourceRun) -> Iterator[Record]:
    with _limited():
        alerts = _storage().get_alerts(run.project, run_id=run.id)
    for alert in reversed(alerts):
        yield Alert(
            step=alert["step"],
            time=helpers.unix_or(alert["timestamp"], run.created),
            title=alert["title"],
            text=alert["text"] or "",
            level=str(alert["level"]).upper(),
        )


def _artifacts(run: SourceRun) -> Iterator[Record]:
    from trackio import cas

    storage = _storage()
    with _limited():
        linked = storage.get_run_artifacts(run.project, run.name, run.id)
    for entry in linked.get("output", []):
        manifest = storage.get_artifact_manifest(run.project, entry["name"], f"v{entry['version']}")
        if manifest is None:
            continue
        files = []
        for file in manifest["manifest"]:
            blob = cas.blob_path(run.project, file["digest"]) if "ref" not in file else None
            relative = str(blob.relative_to(run.directory)) if blob is not None and blob.is_file() else ""
            files.append(
                ArtifactFile(
                    path=file["path"],
                    file=relative,
                    uri=str(file.get("ref", "")),
                    size=int(file.get("size") or 0),
                    digest=f"sha256:{file['digest']}" if relative else "",
                )
            )
        yield ArtifactRecord(
            time=helpers.unix_or(manifest["created_at"], run.created),
            name=manifest["name"],
            type=manifest["type"],
            files=files,
            aliases=[alias for alias in manifest["aliases"] if alias != "latest"],
            description=manifest["description"],
            metadata=manifest["metadata"] or {},
        )


def _sorted(config: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """A stored configuration as the user's, the results, and what trackio and our tracker keep there."""
    values: dict[str, Any] = {}
    results: dict[str, Any] = {}
    own: dict[str, Any] = {}
    for key, value in config.items():
        ours = SUMMARY_PREFIX + key.removeprefix(OWN)
        if key.startswith(SUMMARY_PREFIX):
            results[key] = unnamed_float(value)
        elif key.startswith(OWN) and is_unasked(ours):
            results[ours] = unnamed_float(value)
        elif key.startswith("__"):  # trackio refuses names that begin with one
            values[key[1:]] = value
        elif key.startswith(("_", OWN)):
            own[key] = value
        else:
            values[key] = value
    return values, results, own


def _logged_name(key: str) -> str:
    """The name that was logged: trackio, and our tracker as it does, marks some with "__"."""
    rest = key.removeprefix("__")
    return rest if rest != key and (rest in RESERVED or rest.startswith("__")) else key


_reading: ContextVar[bool] = ContextVar("reading trackio", default=False)


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    """Within it, trackio's queries of a damaged database have an end; elsewhere its connections stay as they are."""
    from trackio.sqlite_storage import SQLiteStorage

    connect = SQLiteStorage._get_connection
    if not hasattr(connect, _LIMITED):

        @functools.wraps(connect)
        @contextlib.contextmanager
        def limited(path: Path, **how: Any) -> Iterator[sqlite3.Connection]:
            with connect(path, **how) as connection, contextlib.ExitStack() as stack:
                if _reading.get():
                    stack.enter_context(foreign_sqlite.limited(connection, path))
                yield connection

        setattr(limited, _LIMITED, True)
        SQLiteStorage._get_connection = staticmethod(limited)
    was = _reading.set(True)
    try:
        yield
    finally:
        _reading.reset(was)


_LIMITED = "__limited__"


def _storage() -> Any:
    from trackio.sqlite_storage import SQLiteStorage
    from trackio.utils import get_storage_mode

    if get_storage_mode() == "jsonl":
        from trackio import fragments

        with contextlib.suppress(OSError, sqlite3.Error):
            fragments.import_inbox_dir()  # as trackio does before it shows anything
    return SQLiteStorage


def _project(where: str) -> tuple[str, str]:
    """The project and the run that a source names; a project's name may have slashes, as it has in trackio.

    Raises:
        NotFound: there is no such project.
    """
    known = _storage().get_projects()
    if where in known:
        return where, ""
    project, _, name = where.rpartition("/")
    if project and _storage().get_project_db_path(project).exists():
        return project, name
    if where and _storage().get_project_db_path(where).exists():
        return where, ""
    if not where:
        raise UsageError(f"trackio: needs a project: trackio:PROJECT; known: {examples(known)}")
    from trackio.utils import TRACKIO_DIR

    raise NotFound(f"trackio: no project {project or where!r} in {TRACKIO_DIR}; known: {examples(known)}")


def _source_run(project: str, record: dict[str, Any]) -> SourceRun:
    from trackio import sqlite_storage
    from trackio.utils import MEDIA_DIR

    run_id, name = str(record["id"]), str(record["name"])
    config = sqlite_storage.SQLiteStorage.get_run_config(project, run=name, run_id=run_id) or {}
    created = helpers.unix(config.get("_Created")) or helpers.unix(record.get("created_at")) or 0.0
    return SourceRun(
        source=f"trackio:{project}/{run_id}",
        id=run_id,
        name=str(config.get(f"{OWN}name") or name),
        project=project,
        group=config.get("_Group"),
        tags=[str(tag) for tag in config.get(f"{OWN}tags") or []],
        notes=config.get(f"{OWN}notes"),
        created=created,
        status=str(config.get(f"{OWN}status") or ""),
        directory=str(MEDIA_DIR.parent),
    )
