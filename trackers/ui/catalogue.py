"""The runs of some sources, kept up to date by one thread: a row for each, and what was read of those looked at."""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from trackers._version import __version__
from trackers.analysis.collect import kept_facts
from trackers.analysis.run_list import Overview, glance
from trackers.analysis.source_list import told
from trackers.analysis.tables import format_size
from trackers.errors import NotFound, TrackersError
from trackers.journal.fingerprint_cache import FingerprintCache, fingerprint_of
from trackers.journal.run_directory import RunDirectory, run_paths
from trackers.metrics.styles import identity_of
from trackers.readers import registry
from trackers.readers.boundary import boundary
from trackers.readers.following import FollowedRun
from trackers.readers.journal import JournalReader
from trackers.readers.reader import Reader, SourceRun
from trackers.readers.run_data import RunData
from trackers.records import Media, Record
from trackers.support import progress
from trackers.support.redaction import mask_addresses
from trackers.ui.served import FetchedFiles, ServedRun, in_turn
from trackers.ui.table import Row, leaf_values
from trackers.ui.tables import TableCache
from trackers.ui.views import RunView, WholeRun

TICK_S = 1.0
"""Pause between two looks at the runs that are being written."""
SCAN_S = 3.0
"""Minimum pause between two searches for new runs, and changes of others."""
SERVER_S = 30.0
"""The same where a server or a database is asked."""
SHARE = 10
"""A search pauses this many times as long as it took, so that it takes a tenth of a processor at most."""
BUDGET_S = 0.3
"""Time for running runs in each tick; with more of them, the others' turn comes in the next one."""
VIEWS = 300
"""Maximum number of runs whose points are kept; of more, those not looked at for longest are forgotten."""
PARTS = 500
"""Rows are shown after so many were read, while the first search goes on."""
SERVERS = ("wandb", "mlflow", "trackio", "store")
"""Schemes of servers, databases and stores."""
_VERSION = f"rows 2 of {__version__}"


class CatalogueState(NamedTuple):
    """A state of the catalogue. version: differs from an earlier state's. problems: why runs are missing."""

    version: int
    rows: dict[str, Row]
    problems: list[str]


class Catalogue:
    """All runs that the sources name, and those that come.

    Args:
        sources: as of other commands; none: every run below ``root``. root: where our own runs lie.
    """

    def __init__(self, sources: Sequence[str], root: Path) -> None:
        self._sources: list[_Source] = []
        self.tables = TableCache()
        self._source_names, self._root = list(sources), root
        self._rows: dict[str, Row] = {}
        self._problems: dict[str, None] = {}
        self._lock = threading.Lock()
        self._again = threading.Event()
        self._version = 1
        self._views: OrderedDict[str, RunView] = OrderedDict()
        self._stop = threading.Event()
        self._searched = threading.Event()
        self._files: tempfile.TemporaryDirectory[str] | None = None
        self._room = FetchedFiles()
        self._thread = threading.Thread(target=self._work, name="runs", daemon=True)

    def open(self) -> None:
        """Find the sources, and begin to read them.

        Raises:
            NotFound: a source names nothing. UsageError: it can't be understood. MissingPackage: the extra is.
        """
        self._files = tempfile.TemporaryDirectory(prefix="trackers-ui-", ignore_cleanup_errors=True)
        if not self._source_names:
            self._sources.append(_OwnRuns(lambda: run_paths(self._root), str(self._root)))
        for source in dict.fromkeys(self._source_names):
            scheme, where = registry.parse(source)
            if scheme == registry.OWN:
                reader = JournalReader(self._root)
                reader.find(where)
                self._sources.append(_OwnRuns(lambda r=reader, w=where: [str(run.path) for run in r.find(w)], source))
            else:
                reader_of = registry.load(scheme)()
                runs = reader_of.runs(where)
                self._sources.append(_OtherRuns(reader_of, where, runs, Path(self._files.name), self._room))
        logging.getLogger("trackers.readers").addFilter(self._take_warning)
        progress.hide()  # what is read again and again
        self._thread.start()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until each source was searched once. False if that takes longer than the timeout; None: for ever."""
        return self._searched.wait(timeout_s)

    def close(self) -> None:
        """Stop reading."""
        self._stop.set()
        self._again.set()
        if self._thread.is_alive():
            self._thread.join(timeout=10)
            progress.show_again()
        logging.getLogger("trackers.readers").removeFilter(self._take_warning)
        if self._files is not None:
            self._files.cleanup()

    @property
    def root(self) -> Path:
        """The directory of runs."""
        return self._root

    def look_again(self) -> None:
        """Search each source of this machine's runs at once: something was changed."""
        self._again.set()

    def state(self) -> CatalogueState:
        """The current rows. They are replaced, never changed."""
        with self._lock:
            return CatalogueState(self._version, self._rows, list(self._problems))

    def row(self, key: str) -> Row:
        """One run's row.

        Raises:
            NotFound: there is none.
        """
        row = self._rows.get(key)
        if row is None:
            raise NotFound("there is no such run (any more)")
        return row

    def view(self, key: str) -> RunView:
        """One run's records, read as far as they go.

        Raises:
            NotFound: there is no such run, or it can't be read.
        """
        row = self.row(key)
        with self._lock:
            view = self._views.get(key)
            if view is not None:
                self._views.move_to_end(key)
        if view is None:
            source = next((source for source in self._sources if source.has(key)), None)
            if source is None:
                raise NotFound(f"{row.source} has gone")
            view = RunView(source.content(key))
            with self._lock:
                view = self._views.setdefault(key, view)
                while len(self._views) > VIEWS:
                    self._views.popitem(last=False)
        view.read()
        return view

    def directory(self, key: str) -> Path | None:
        """Where the files of a run lie; None where they are on no disk."""
        source = next((source for source in self._sources if source.has(key)), None)
        return source.directory(key) if source is not None else None

    def others(self, key: str) -> Sequence[Record]:
        """All of a run's records but metrics; with the media that its server has.

        Raises:
            TrackersError: see :meth:`view`; or the server doesn't say what there is.
        """
        own = self.view(key).others
        served = self._served(key)
        return own if served is None else [*own, *served.records]

    def whole(self, key: str, record: Media) -> Media:
        """A record with what its server has of it beside files: captions, the content of tables.

        Raises:
            TrackersError: it can't be had.
        """
        served = self._served(key)
        return served.whole(record) if served is not None and served.has(record) else record

    def fetch(self, key: str, record: Media, number: int) -> None:
        """Have the file of an item be in :meth:`directory`, where it lies on a server.

        Raises:
            TrackersError: it can't be had.
        """
        served = self._served(key)
        if served is not None and served.has(record):
            served.fetch(record, number)

    def fetch_cell(self, key: str, file: str) -> None:
        """Have the file that a cell of a table names be in :meth:`directory`, where it lies on a server.

        Raises:
            TrackersError: it can't be had.
        """
        served = self._served(key)
        if served is not None and file:
            served.fetch_cell(file)

    def _served(self, key: str) -> ServedRun | None:
        source = next((source for source in self._sources if source.has(key)), None)
        return source.served(key) if isinstance(source, _OtherRuns) else None

    def is_own(self, key: str) -> bool:
        """Whether this package recorded the run."""
        return any(isinstance(source, _OwnRuns) and source.has(key) for source in self._sources)

    def _take_warning(self, record: logging.LogRecord) -> bool:
        """Show what readers leave out on the page, once, instead of on the terminal at each later look."""
        self._add_problem(record.getMessage())
        return False

    def _work(self) -> None:
        due = [0.0] * len(self._sources)
        while not self._stop.is_set():
            again = self._again.is_set()
            self._again.clear()
            for index, source in enumerate(self._sources):
                began = time.monotonic()
                whole = began >= due[index] or (again and isinstance(source, _OwnRuns))
                try:
                    self._take_entries(source, source.scan() if whole else source.tick())
                except TrackersError as error:
                    self._add_problem(str(error))
                except OSError as error:
                    self._add_problem(f"{error.filename or source.name}: {error.strerror or error}")
                if whole:
                    took = time.monotonic() - began
                    due[index] = time.monotonic() + max(source.pause_s, SHARE * took)
            self._searched.set()
            self._again.wait(TICK_S)

    def _add_problem(self, why: str) -> None:
        with self._lock:
            if why not in self._problems and len(self._problems) < 100:
                self._problems[why] = None
                self._version += 1

    def _take_entries(self, source: _Source, entries: Iterator[Row | str]) -> None:
        """Publish a source's new rows, part by part, and remove those that it lacks."""
        fresh: list[Row] = []
        for entry in entries:
            if isinstance(entry, str):
                self._add_problem(entry)
            else:
                fresh.append(entry)
            if len(fresh) >= PARTS:
                self._publish(source, fresh)
                fresh = []
            if self._stop.is_set():
                return
        self._publish(source, fresh)

    def _publish(self, source: _Source, fresh: list[Row]) -> None:
        with self._lock:
            gone, source.removed = source.removed, set()
            changed = [row for row in fresh if self._rows.get(row.key) != row]
            if not changed and not gone:
                return
            rows = {key: row for key, row in self._rows.items() if key not in gone}
            rows.update((row.key, row) for row in changed)
            self._rows = rows
            self._version += 1
            for key in (*gone, *(row.key for row in changed if isinstance(source, _OtherRuns))):
                self._views.pop(key, None)


class _Source(Protocol):
    """One source. scan: rows of all runs that are new or have changed, and reasons for missing ones; tick: of those
    that are being written. removed: keys of those that have gone."""

    name: str
    pause_s: float
    removed: set[str]

    def scan(self) -> Iterator[Row | str]: ...
    def tick(self) -> Iterator[Row | str]: ...
    def has(self, key: str) -> bool: ...
    def content(self, key: str) -> FollowedRun | WholeRun: ...
    def directory(self, key: str) -> Path | None: ...


def key_of(source: str, run_id: str) -> str:
    """A run's key in addresses: it never changes, and no other run has it.

    Its end is what the colour of the run's curves comes from.
    """
    digest = hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{digest[:12]}{identity_of(run_id):08x}"


def identity(key: str) -> int:
    """The number that a key ends with: see :func:`trackers.metrics.styles.identity_of`. 0: it is none of ours."""
    try:
        return int(key[12:20], 16)
    except ValueError:
        return 0


class _OwnRuns:
    """A source of runs that this package recorded."""

    def __init__(self, find: Any, name: str) -> None:
        self.name, self.pause_s = name, SCAN_S
        self._find = find
        self._paths: dict[str, str] = {}
        self._fingerprints: dict[str, str] = {}
        self._active: list[str] = []
        self.removed: set[str] = set()
        self._keys: dict[str, str] = {}
        self._cache = FingerprintCache(f"ui of {os.path.abspath(name)}", _VERSION)

    def scan(self) -> Iterator[Row | str]:
        try:
            listed: list[str] = self._find()
        except NotFound:
            listed = []
        for path in listed:
            if path not in self._keys:
                self._keys[path] = key_of(os.path.abspath(path), os.path.basename(path))
        paths = {self._keys[path]: path for path in listed}
        self.removed |= self._paths.keys() - paths.keys()
        self._paths = paths
        hot = set(self._active)
        try:
            for key, path in paths.items():
                fingerprint = fingerprint_of(path, deliveries=True)
                if fingerprint and self._fingerprints.get(key) == fingerprint and key not in hot:
                    continue
                row = self._cache.get(path, fingerprint, Row)
                if isinstance(row, Row):
                    self._fingerprints[key] = fingerprint
                    yield row
                    continue
                yield from self._read(key, path, fingerprint)
            self._cache.keep_only(set(listed))
        finally:  # also where the page is closed meanwhile
            self._cache.save()

    def tick(self) -> Iterator[Row | str]:
        until = time.monotonic() + BUDGET_S
        for _ in range(len(self._active)):
            key = self._active.pop(0)
            path = self._paths.get(key)
            if path is not None:
                yield from self._read(key, path, fingerprint_of(path, deliveries=True))
            if time.monotonic() > until:
                return

    def _read(self, key: str, path: str, fingerprint: str) -> Iterator[Row | str]:
        try:
            with boundary(path):
                view = glance(RunDirectory(path))
                row = _row(key, view)
        except TrackersError as error:
            self._fingerprints[key] = fingerprint
            yield str(error)
            return
        busy = view.status.name == "running" or any(entry["held_by"] for entry in view.trackers.values())
        if busy and key not in self._active:
            self._active.append(key)
        if not busy:
            if key in self._active:
                self._active.remove(key)
            self._cache.put(path, fingerprint, row)
        self._fingerprints[key] = fingerprint
        yield row

    def has(self, key: str) -> bool:
        return key in self._paths

    def content(self, key: str) -> FollowedRun:
        return FollowedRun(RunDirectory(self._paths[key]))

    def directory(self, key: str) -> Path | None:
        return Path(self._paths[key])


def _row(key: str, view: Overview) -> Row:
    info = view.info
    standing = {name: _standing(entry) for name, entry in view.trackers.items()}
    return Row(
        key, mask_addresses(info.directory), info.id, info.name, info.project, info.group or "", list(info.tags),
        view.status.name, info.created, max(view.time, info.created), view.step, view.status.reason,
        leaf_values(info.config), leaf_values(view.last),
        leaf_values({name.removeprefix("final/"): value for name, value in view.results.items()}), standing,
    )  # fmt: skip


def _standing(entry: dict[str, Any]) -> str:
    words = [str(entry["state"])]
    if entry["waiting_bytes"]:
        words.append(f"{format_size(entry['waiting_bytes'])} wait")
    if entry["rejected"]:
        words.append(f"{entry['rejected']:,} rejected")
    if entry["error"]:
        words.append(str(entry["error"])[:300])
    return ", ".join(words)


class _OtherRuns:
    """Runs of another source."""

    def __init__(self, reader: Reader, where: str, runs: list[SourceRun], files: Path, room: FetchedFiles) -> None:
        self.name = f"{reader.scheme}:{where}"
        self.pause_s = SERVER_S if reader.scheme in SERVERS else SCAN_S
        self._reader, self._where, self._files, self._room = reader, where, files, room
        self._looked_at: dict[str, ServedRun | None] = {}
        self._lock = threading.Lock()
        self._listed: list[SourceRun] | None = runs
        self._runs: dict[str, SourceRun] = {}
        self._versions: dict[str, str | None] = {}
        self.removed: set[str] = set()

    def scan(self) -> Iterator[Row | str]:
        listed = self._listed if self._listed is not None else self._reader.runs(self._where)
        self._listed = None
        runs = {key_of(run.source, run.id): run for run in listed}
        self.removed |= self._runs.keys() - runs.keys()
        for key in self.removed:
            self._looked_at.pop(key, None)
        self._runs = {**runs, **{key: run for key, run in self._runs.items() if key in runs}}
        for key, run in runs.items():
            if key not in self._versions:
                self._versions[key] = None
                yield _other_row(key, run)
        for key, run in runs.items():
            try:
                version = self._reader.version(run)
                if version and self._versions[key] == version:
                    continue
                self._versions[key] = version
                self._runs[key] = run
                self._looked_at.pop(key, None)
                known = kept_facts(self._reader, run)
                yield _other_row(key, run, RunData(self._reader, run)) if known is None else _row(key, told(run, known))
            except TrackersError as error:
                yield str(error)

    def tick(self) -> Iterator[Row | str]:
        return iter(())

    def has(self, key: str) -> bool:
        return key in self._runs

    def content(self, key: str) -> WholeRun:
        # A reader belongs to one thread: this is another one than that of the rows.
        data = RunData(registry.load(self._reader.scheme)(), self._runs[key])
        return WholeRun(data, data.media(self._files / key) if self._reader.embeds else None)

    def served(self, key: str) -> ServedRun | None:
        """What the run's server has of media; None: they lie here, or the reader can't tell."""
        if key in self._looked_at:
            return self._looked_at[key]
        reader, run, files = registry.load(self._reader.scheme)(), self._runs[key], self._files / key
        with in_turn(self._lock, run.source), boundary(run.source):
            if key not in self._looked_at:
                files.mkdir(exist_ok=True)
                served = reader.served(run, files)
                self._looked_at[key] = ServedRun(run.source, served, files, self._room) if served is not None else None
            return self._looked_at[key]

    def directory(self, key: str) -> Path | None:
        directory = self._runs[key].directory
        if directory:
            return Path(directory)
        return self._files / key if self._looked_at.get(key) is not None else None


def _other_row(key: str, run: SourceRun, data: RunData | None = None) -> Row:
    row = Row(key, mask_addresses(run.source), run.id, run.name or run.id, run.project, run.group or "", list(run.tags),
              run.status, run.created, run.created, note=run.note)  # fmt: skip
    if data is not None:
        row.status, row.config, row.result = data.status, leaf_values(data.config), leaf_values(data.summary)
        overviews = data.series()
        last = {name: overview.value for name, overview in overviews.items() if not name.startswith("final/")}
        row.last = leaf_values(last)
        row.step = max((overview.last for overview in overviews.values() if overview.last is not None), default=None)
        row.time = max((float(block.times.max()) for block in data.blocks() if len(block.times)), default=run.created)
    return row
