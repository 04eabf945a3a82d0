"""MLflow runs, in any tracking store, through MLflow's own client: our tracker's, ``mlflow.log_metric``'s, Lightning's.

``mlflow:[uri#]experiment[/run]``; the URI may be a path to a database or to a directory of files (``mlruns``). Without
one ``MLFLOW_TRACKING_URI`` counts, else ``mlflow.db`` here. Histories are fetched page by page and merged by time and
step, so that memory stays bounded. Names that our tracker mapped are mapped back, and so are samples of the machine,
which have no step; points, texts and pictures that a later attempt superseded, and points that somebody changed before
they were restored, are left out. Values are doubles, times milliseconds; points of one metric at the same millisecond
and step come in the order of their values.
"""

from __future__ import annotations

import contextlib
import hashlib
import heapq
import itertools
import json
import math
import os
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from trackers.errors import Damaged, NotFound, UsageError, examples
from trackers.formats import foreign_sqlite, sqlite_address, vendor_system_names
from trackers.formats.mlflow_names import local_store, map_name, refusal, unmap
from trackers.readers import helpers
from trackers.readers.boundary import TolerantReader, bounded
from trackers.readers.mlflow.artifacts import ArtifactReader, ServedArtifacts
from trackers.readers.mlflow.bounded_http import bound
from trackers.readers.mlflow.traces import traces
from trackers.readers.mlflow.translation import translated
from trackers.readers.reader import Reader, SourceRun
from trackers.records import (
    SUMMARY_PREFIX,
    SYSTEM_PREFIX,
    Config,
    Environment,
    Finish,
    Media,
    Metrics,
    Record,
    Summary,
    Text,
)

T = TypeVar("T")

EMPTY_PAGES = 100


def pages(
    ask: Callable[[Any], T], token: Callable[[T], Hashable], empty: Callable[[T], bool], most: int
) -> Iterator[T]:
    """Pages of a listing, one after the other; the first is requested with None.

    Args:
        token: what the next page is asked for with; None or "" after the last one. most: so many pages at most.

    Raises:
        Damaged: the server gives a token a second time, many empty pages, or more pages than ``most``.
    """
    seen: set[Hashable] = set()
    at: Hashable = None
    nothing = 0
    for _ in range(most):
        page = ask(at)
        nothing = nothing + 1 if empty(page) else 0
        yield page
        at = token(page)
        if not at:
            return
        if at in seen or nothing > EMPTY_PAGES:
            raise Damaged("the server's list has no end: the same page, or an empty one, comes again and again")
        seen.add(at)
    raise Damaged(f"the server's list has more than {most:,} pages")


PAGE = 25_000
PAGE_SMALLEST = 500
HELD = 40_000
"""Points of all metrics that are held at a time."""

STATUS = {"FINISHED": "finished", "FAILED": "failed", "KILLED": "crashed", "RUNNING": "running"}
ENDED = frozenset(STATUS) - {"RUNNING"}
GROUP_TAG = "trackers.group_key"
"""On runs that stand for a group of ours: they have no values."""

FILE_STORES = "MLFLOW_ALLOW_FILE_STORE"
"""mlflow/environment_variables.py"""
EXPERIMENT_FILE = "meta.yaml"
"""mlflow/store/tracking/file_store.py: META_DATA_FILE_NAME, in the directory of each experiment and run."""

TABLES = frozenset({"alembic_version", "experiments", "experiment_tags", "runs", "metrics", "latest_metrics", "params",
                    "tags", "datasets", "inputs", "input_tags", "entity_associations", "workspaces", "trace_info",
                    "trace_tags", "trace_request_metadata", "trace_metrics", "span_metrics", "assessments",
                    "spans"})  # fmt: skip
"""mlflow/store/tracking/dbmodels/models.py: what is read of a run."""
READ_WHOLE = frozenset({"experiments", "experiment_tags", "runs", "latest_metrics", "params", "tags", "datasets",
                        "inputs", "input_tags", "entity_associations", "workspaces"})  # fmt: skip
VALUE_BYTES = 16 * 1024 * 1024
POINT_BYTES = 16 * 1024
"""Maximum length of a value of a database (models.py has MEDIUMTEXT), and of a row while points are read."""
_longest = ContextVar("the longest value of a database", default=VALUE_BYTES)
CORE_TABLES = frozenset({"experiments", "runs", "metrics", "params", "tags"})
"""Tables of every version of MLflow."""

RUNS_PAGE = 200
MOST_RUNS = 200_000  # a server's list may have no end
MOST_PAGES = 200_000
"""Of one metric's history."""
_SETTINGS = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "4",
             "MLFLOW_HTTP_REQUEST_TIMEOUT": "30", "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
             "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false"}  # fmt: skip


@bounded
class MlflowReader(Reader):
    """Reads experiments and single runs."""

    scheme = "mlflow"
    needs = ("mlflow",)

    def __init__(self) -> None:
        self._clients: dict[str, Any] = {}
        self._said: set[str] = set()

    def runs(self, where: str) -> list[SourceRun]:
        """See :class:`trackers.readers.reader.Reader`."""
        uri, rest = address(where)
        with translated(uri):
            client = self._client(uri)
            experiment, name = _experiment(client, rest, uri)
            if name:
                return [_source_run(uri, experiment.name, _run_named(client, experiment, name, uri))]
            all_runs = list(_runs(client, experiment, uri))
            make = partial(_source_run, uri, experiment.name)
            runs = helpers.those_of(all_runs, make, name=partial(_source, uri, experiment.name)) if all_runs else []
        if not runs:
            raise NotFound(f"mlflow: experiment {experiment.name!r} has no runs")
        return runs

    def version(self, run: SourceRun) -> str:
        """What the listing says of a run that has ended, and of a local database its size and time, too; "" of others.

        A server tells each metric's newest point, parameters, tags and the end.
        """
        return str(run.native["version"])

    def read(self, run: SourceRun, *, files: Path | None = None) -> Iterator[Record]:
        """See :class:`trackers.readers.reader.Reader`. Artifacts on this machine's disk are taken where they lie."""
        uri = str(run.native["uri"])
        with translated(uri):
            client = self._client(uri)
            native = client.get_run(run.native["run_id"])
            artifacts = ArtifactReader(client, native, uri, files, self._say)
            run.directory = artifacts.directory
            yield from _describe(native, artifacts, run)
            yield from _metrics(client, native, artifacts.names)
            tolerant = TolerantReader(run, "artifacts")
            rewinds = _rewinds(_texts(native.data.tags), artifacts.names)
            for artifact in artifacts.records(run.created):
                yield from (record for record in tolerant.read(artifact) if not _is_superseded(record, rewinds))
            tolerant.add_note()
            tolerant = TolerantReader(run, "traces")
            for trace in traces(client, native, uri, pages):
                yield from tolerant.read(trace)
            tolerant.add_note()
            yield from _ending_records(native, artifacts, run)

    def served(self, run: SourceRun, files: Path) -> ServedArtifacts | None:
        """See :class:`trackers.readers.reader.Reader`."""
        uri = str(run.native["uri"])
        with translated(uri):
            client = self._client(uri)
            artifacts = ServedArtifacts(client, client.get_run(run.native["run_id"]), uri, files, self._say)
            if artifacts.on_disk:
                return None
            tolerant = TolerantReader(run, "media")
            artifacts.name(tolerant, run.created)
            tolerant.add_note()
        return artifacts

    def _client(self, uri: str) -> Any:
        if uri not in self._clients:
            for name, value in _SETTINGS.items():
                os.environ.setdefault(name, value)
            import logging

            from mlflow import MlflowClient

            bound()
            logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)
            logging.getLogger("alembic").setLevel(logging.ERROR)
            with _file_stores():
                self._clients[uri] = client = MlflowClient(tracking_uri=_read_only(uri))
            if uri.startswith("sqlite:"):
                from sqlalchemy import event

                event.listen(client._tracking_client.store.engine, "checkout", _bound_values)
        return self._clients[uri]

    def _say(self, text: str) -> None:
        """Warn, once for all runs that a reason is the same for."""
        if text not in self._said:
            self._said.add(text)
            helpers.warn(text)


def _bound_values(connection: Any, *_: Any) -> None:
    foreign_sqlite.bound_values(connection, _longest.get())


@contextlib.contextmanager
def _file_stores() -> Iterator[None]:
    """Have MLflow 3 open a store of files (``./mlruns``), which it refuses unless it is told to."""
    before = os.environ.get(FILE_STORES)
    os.environ[FILE_STORES] = "true"
    try:
        yield
    finally:
        if before is None:
            del os.environ[FILE_STORES]
        else:
            os.environ[FILE_STORES] = before


def address(where: str) -> tuple[str, str]:
    """The tracking URI and what follows ``#``. A path to a database file, or to a directory of runs, is a URI, too.

    Raises:
        NotFound: the database or directory isn't there, or isn't one; MLflow would make it.
    """
    uri, rest = split_address(where)
    if uri.startswith("file:"):
        folder = local_store(uri)
        if folder is None or not any(folder.glob(f"*/{EXPERIMENT_FILE}")):
            raise NotFound(f"mlflow: {folder} is no store of MLflow's: no directory in it has a {EXPERIMENT_FILE}")
        for file in folder.glob(f"*/{EXPERIMENT_FILE}"):
            _need_plain(file.parent, deep=False)
    if uri.startswith("sqlite:///"):
        file = Path(sqlite_address.decoded(uri.removeprefix("sqlite:///").partition("?")[0]))
        if not file.exists():
            named = "" if "#" in where or not where else f", which {where!r:.200} would be an experiment of"
            raise NotFound(f"mlflow: no database {file}{named}: give mlflow:URI#EXPERIMENT, or set MLFLOW_TRACKING_URI")
        if not foreign_sqlite.check(file, TABLES, READ_WHOLE) >= CORE_TABLES:
            raise NotFound(f"mlflow: {file} is no database of MLflow's: it has no experiments and runs")
    return uri, rest


def _read_only(uri: str) -> str:
    """The address that opens a local database for reading only; other addresses as they are.

    MLflow's client adds its tables to any database that lacks some, and migrates a database of an older version,
    which that version can't open afterwards.
    """
    path, _, options = uri.removeprefix("sqlite:///").partition("?")
    if not uri.startswith("sqlite:///") or "uri=" in options:
        return uri
    # SQLite decodes it, too. Without a slash MLflow sees no folder in it, which it would make below the current one.
    file = sqlite_address.encoded(quote(sqlite_address.decoded(path), safe=""))
    return f"sqlite:///file:{file}?{options}{'&' if options else ''}mode=ro&uri=true"


def split_address(where: str) -> tuple[str, str]:
    """:func:`address` of a store that needn't exist yet."""
    uri, sign, rest = where.rpartition("#")
    if (not sign and "://" in where) or _is_path(where):
        uri, rest = where, ""
    elif not sign:
        uri = os.environ.get("MLFLOW_TRACKING_URI") or "sqlite:///mlflow.db"
        uri = uri if "://" in uri or uri.startswith(("databricks", "file:")) else f"file:{quote(uri)}"  # as MLflow does
    if uri.startswith("file:"):
        uri = (local_store(uri) or Path()).expanduser().absolute().as_uri()
    elif "://" not in uri and uri != "databricks":
        place = Path(uri).expanduser()
        uri = place.absolute().as_uri() if place.is_dir() else f"sqlite:///{uri}"
    if uri.startswith("sqlite:///"):
        path, _, options = uri.removeprefix("sqlite:///").partition("?")
        # Absolute: MLflow keeps a store for each URI, wherever the process goes.
        file = Path(sqlite_address.decoded(path)).expanduser().absolute()
        uri = f"sqlite:///{sqlite_address.encoded(str(file))}" + (f"?{options}" if options else "")
    return uri, rest


def _is_path(where: str) -> bool:
    """Whether this is the path of a store that is there, not an experiment of the one that is set."""
    path = Path(where).expanduser()
    is_path = where.startswith(("/", "./", "../", "~"))
    return path.is_file() or (path.is_dir() and (is_path or any(path.glob(f"*/{EXPERIMENT_FILE}"))))


def _describe(native: Any, artifacts: ArtifactReader, run: SourceRun) -> Iterator[Record]:
    config = artifacts.config if artifacts.config is not None else _texts(native.data.params)
    if config:
        yield Config(time=run.created, values=config)
    if artifacts.environment:
        yield Environment(time=run.created, values=artifacts.environment)


def _texts(values: Mapping[Any, Any]) -> dict[str, str]:
    """Names and values as text: a damaged database may hold bytes in a column of texts."""
    return {
        name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name):
        value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
        for name, value in values.items()
    }  # fmt: skip


def _ending_records(native: Any, artifacts: ArtifactReader, run: SourceRun) -> Iterator[Record]:
    ended = (native.info.end_time or 0) / 1000 or run.created
    results = dict(artifacts.summary)
    for key, value in native.data.metrics.items():
        name = unmap(key, artifacts.names)
        if name.startswith(SUMMARY_PREFIX) and (value == value or not artifacts.summary):  # NaN: it was taken back
            results.setdefault(name, value)
    if results:
        yield Summary(time=ended, values=results)
    tags = _texts(native.data.tags)
    status = tags.get("trackers.status") or STATUS.get(native.info.status, "")
    if status and status != "running":
        code = tags.get("trackers.exit_code", "")
        with_code = int(code) if code.lstrip("-").isdigit() else None
        yield Finish(time=ended, status=status, exit_code=with_code, reason=tags.get("trackers.reason", ""))


def _metrics(client: Any, native: Any, names: dict[str, str]) -> Iterator[Record]:
    """All histories merged by time and step; values of one time and step are one record."""
    keys = [key for key in native.data.metrics if not unmap(key, names).startswith(SUMMARY_PREFIX)]
    page = max(PAGE_SMALLEST, min(PAGE, HELD // max(1, len(keys))))
    tags = _texts(native.data.tags)
    rewinds, replaced = _rewinds(tags, names), _replaced(tags, names)
    factors = dict(_samples(keys, names))
    histories = [_history(client, native.info.run_id, key, unmap(key, names), page) for key in keys]
    points = heapq.merge(*histories, key=lambda point: point[:2])
    for (timestamp, step), group in itertools.groupby(points, key=lambda point: point[:2]):
        values: dict[str, Any] = {}
        samples: dict[str, Any] = {}
        for _, _, name, value in group:
            if replaced and (name, step, timestamp, repr(value)) in replaced:
                continue
            row, at = (samples, None) if name in factors else (values, step)
            if name in row:
                yield Metrics(step=at, time=timestamp / 1000, values=dict(row))
                row.clear()
            if row is samples:
                samples[name] = vendor_system_names.restored(value, factors[name])
            elif not any(_supersedes(rewind, name, step, timestamp) for rewind in rewinds):
                values[name] = value
        if samples:
            yield Metrics(time=timestamp / 1000, values=samples)
        if values:
            yield Metrics(step=step, time=timestamp / 1000, values=values)


def _history(client: Any, run_id: str, key: str, name: str, page: int) -> Iterator[tuple[int, int, str, float]]:
    """One metric's points, a page at a time. ``MlflowClient.get_metric_history`` would hold them all."""
    store = client._tracking_client.store

    def ask(token: Any) -> Any:
        was = _longest.set(POINT_BYTES)
        try:
            return store.get_metric_history(run_id=run_id, metric_key=key, max_results=page, page_token=token)
        finally:
            _longest.reset(was)

    for number, metrics in enumerate(
        pages(ask, lambda metrics: metrics.token, lambda metrics: not metrics, MOST_PAGES)
    ):
        for metric in metrics if metrics.token or number else sorted(metrics, key=lambda m: (m.timestamp, m.step)):
            yield metric.timestamp, metric.step, name, metric.value


def _samples(keys: list[str], names: dict[str, str]) -> Iterator[tuple[str, float]]:
    """Samples of the machine that our tracker renamed, and what their values were multiplied with."""
    for key in keys:
        name = unmap(key, names)
        ours = name.startswith(SYSTEM_PREFIX) or vendor_system_names.is_job(name)
        if ours and map_name(name) != key:
            yield name, vendor_system_names.mlflow_name(name)[1]


_Rewind = dict[str | None, tuple[int, int, float]]


def _rewinds(tags: dict[str, str], names: dict[str, str]) -> list[_Rewind]:
    """Where attempts went back to: of each, steps above are superseded if logged before a time, in ms. By the names of
    metrics over a step metric, of which what was logged later than another time is, too; None: all others.
    """
    rewinds: dict[str, _Rewind] = {}
    for name, value in tags.items():
        if name.startswith("trackers.rewind."):  # anybody may have written it
            with contextlib.suppress(ValueError, KeyError, TypeError, OverflowError, RecursionError, AttributeError):
                rewind, of = json.loads(value), rewinds.setdefault(name.split(".")[2], {})
                since = rewind.get("since")
                rule = int(rewind["from_step"]), int(rewind["timestamp"]), math.inf if since is None else float(since)
                keys = rewind.get("metrics")
                of.update(dict.fromkeys([None] if keys is None else [unmap(str(key), names) for key in keys], rule))
    return list(rewinds.values())


def _supersedes(rewind: _Rewind, name: str, step: int, timestamp: int) -> bool:
    last, until, since = rewind.get(name) or rewind.get(None) or (0, 0, 0.0)
    return timestamp < until and (step > last or timestamp > since)


def _is_superseded(record: Record, rewinds: list[_Rewind]) -> bool:
    """Whether a text or a picture, which have their times, came from before a later attempt that went back."""
    if record.step is None or not (isinstance(record, Text) or (isinstance(record, Media) and record.type == "image")):
        return False
    names = [record.name] if isinstance(record, Media) else record.values
    at = record.step, round(record.time * 1000)
    return any(_supersedes(rewind, name, *at) for rewind in rewinds for name in names)


def _replaced(tags: dict[str, str], names: dict[str, str]) -> set[tuple[str, int, int, str]]:
    """Points that somebody changed, and beside which a verification put the right ones: our name, step, ms, value."""
    points = set()
    for name, text in tags.items():
        if name.startswith("trackers.replaced."):
            with contextlib.suppress(ValueError, TypeError, OverflowError, RecursionError):
                for key, step, timestamp, value in json.loads(text):
                    points.add((unmap(str(key), names), int(step), int(timestamp), repr(float(value))))
    return points


def _experiment(client: Any, rest: str, uri: str) -> tuple[Any, str]:
    """The experiment, by name or id, and the run that follows it; names may have slashes."""
    for name, run in ((rest, ""), (rest.rpartition("/")[0], rest.rpartition("/")[2])):
        if not name:
            continue
        experiment = client.get_experiment_by_name(name)
        if experiment is None and name.isdigit():
            experiment = next((e for e in client.search_experiments() if e.experiment_id == name), None)
        if experiment is not None:
            return experiment, run
    known = examples((repr(experiment.name) for experiment in client.search_experiments(max_results=20)), 20)
    if not rest:
        raise UsageError(f"mlflow: needs an experiment: mlflow:{uri}#EXPERIMENT; known: {known}")
    raise NotFound(f"mlflow: no experiment {rest!r} in {uri}; known: {known}")


def _runs(client: Any, experiment: Any, uri: str) -> Iterator[Any]:
    if uri.startswith("file:"):
        yield from _runs_of_files(client, experiment, uri)
        return

    def ask(token: Any) -> Any:
        return client.search_runs(
            [experiment.experiment_id], "", max_results=RUNS_PAGE, order_by=["start_time DESC"], page_token=token
        )

    for page in pages(ask, lambda page: page.token, lambda page: not page, MOST_RUNS // RUNS_PAGE):
        yield from (run for run in page if GROUP_TAG not in run.data.tags)


def _runs_of_files(client: Any, experiment: Any, uri: str) -> list[Any]:
    """The runs in a directory, the newest first; MLflow's own search fails for all of them where one is damaged."""
    folder = (local_store(uri) or Path()) / experiment.experiment_id
    names = sorted(path.parent.name for path in folder.glob(f"*/{EXPERIMENT_FILE}"))
    source = f"mlflow:{uri}#{experiment.name}"

    def read(name: str) -> Any:
        _need_plain(folder / name, deep=True, besides="artifacts")  # MLflow doesn't read them here
        return client.get_run(name)

    runs = helpers.those_of(names, read, name=lambda name: f"{source}/{name}") if names else []
    active = [run for run in runs if run.info.lifecycle_stage == "active" and GROUP_TAG not in run.data.tags]
    return sorted(active, key=lambda run: run.info.start_time or 0, reverse=True)


def _need_plain(folder: Path, *, deep: bool, besides: str = "") -> None:
    """See that a folder of a store of files has files of some length alone: MLflow reads what links lead to, and waits
    for pipes.

    Args:
        deep: in its folders, too. besides: what isn't looked at.

    Raises:
        Damaged: it has something else.
    """
    if folder.is_symlink():
        raise Damaged(f"{folder} is damaged: it is a link, as MLflow makes none")
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name == besides:
                continue
            if entry.is_dir(follow_symlinks=False):
                if deep:
                    _need_plain(Path(entry.path), deep=True)
            elif not entry.is_file(follow_symlinks=False):
                raise Damaged(f"{entry.path!r:.300} is damaged: it is no plain file")
            elif helpers.is_hollow(Path(entry.path)):
                raise Damaged(f"{entry.path!r:.300} is damaged: it is nearly all holes")
            elif entry.stat().st_size > VALUE_BYTES and "metrics" not in folder.parts[-3:]:
                raise Damaged(f"{entry.path!r:.300} is damaged: it is longer than {VALUE_BYTES:,} bytes")


def _run_named(client: Any, experiment: Any, name: str, uri: str) -> Any:
    """A run by id (MLflow's or ours) or name."""
    all_runs = list(_runs(client, experiment, uri))
    for matching in (
        [run for run in all_runs if name in (run.info.run_id, run.data.tags.get("trackers.run_id"))],
        [run for run in all_runs if run.info.run_name == name],
    ):
        if len(matching) == 1:
            return matching[0]
        if matching:
            listed = "".join(f"\n  {run.info.run_id}" for run in matching)
            raise UsageError(
                f"{len(matching)} runs of {experiment.name!r} are called {name!r}; name one by its id:{listed}"
            )
    known = examples(repr(run.info.run_name) for run in all_runs)
    raise NotFound(f"mlflow: no run {name!r} in experiment {experiment.name!r:.80}; its runs: {known}")


def _source(uri: str, experiment: str, run: Any) -> str:
    return f"mlflow:{uri}#{experiment}/{run.info.run_id}"


def _source_run(uri: str, experiment: str, run: Any) -> SourceRun:
    tags, artifacts = run.data.tags, run.info.artifact_uri
    labels = [tag for tag in tags.get("tags", "").split(",") if tag]
    with contextlib.suppress(ValueError):
        labels = [str(tag) for tag in json.loads(tags.get("trackers.tags", "x"))]
    return SourceRun(
        source=_source(uri, experiment, run),
        id=str(tags.get("trackers.run_id") or run.info.run_id),
        name=str(run.info.run_name or run.info.run_id),
        project=experiment,
        group=tags.get("group"),
        tags=labels,
        notes=tags.get("mlflow.note.content"),
        created=(run.info.start_time or 0) / 1000,
        status=str(tags.get("trackers.status") or STATUS.get(run.info.status, "")),
        directory="" if refusal(uri, artifacts, run.info.run_id) else str(local_store(artifacts) or ""),
        native={"uri": uri, "run_id": run.info.run_id, "version": _version(uri, run)},
    )


def _version(uri: str, run: Any) -> str:
    points = getattr(run.data, "_metric_objs", None)  # the newest of each metric; RunData.metrics has values alone
    if points is None or run.info.status not in ENDED:
        return ""
    newest = sorted((point.key, repr(point.value), point.timestamp, point.step) for point in points)
    state = [run.info.status, run.info.end_time, run.info.run_name, run.info.artifact_uri, newest]
    state += [sorted(mapping.items()) for mapping in (run.data.params, run.data.tags)]
    word = hashlib.sha256(repr(state).encode("utf-8", "surrogateescape")).hexdigest()
    if not uri.startswith("sqlite:///"):
        return word
    file = sqlite_address.decoded(uri.removeprefix("sqlite:///").partition("?")[0])
    return word + helpers.version([path for end in ("", "-wal") if (path := Path(file + end)).exists()])
