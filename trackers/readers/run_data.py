"""A run read back, whole: ``trackers.load("tb:runs/baseline").metrics().to_pandas()``."""

from __future__ import annotations

import contextlib
import fnmatch
import html
import os
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from trackers import records
from trackers.errors import NotFound, UsageError
from trackers.readers import frames, helpers, logged_tables, registry
from trackers.readers.boundary import boundary
from trackers.readers.cache import Cache
from trackers.readers.columns import Block, ColumnBlocks
from trackers.readers.frames import Frame, MetricOverview
from trackers.readers.logged_tables import LoggedTable
from trackers.readers.reader import Reader, SourceRun
from trackers.records import ArtifactRecord, Config, Finish, Info, Media, Record, Span, Start, Summary, Text
from trackers.support.progress import Progress, progress
from trackers.support.terminal import one_line

SHOWN = 20
"""Maximum number of runs listed if a source has several and one was expected."""


def load(source: str | os.PathLike[str]) -> RunData:
    """Read one run from any source.

    Args:
        source: a run of ours (id, name, directory, ``latest``), a ``.wandb`` file, or ``scheme:where``:
            ``wandb:entity/project/run``, ``tb:DIR``, ``mlflow:[uri#]experiment/run``, ``trackio:project/run``,
            ``json:FILE``, ``csv:FILE``, ``hf:trainer_state.json``, ``log:FILE``,
            ``session:FILE``; a file whose name says what it is (``out/run.json``) needs no scheme.

    Raises:
        NotFound: there is no such run. UsageError: the source can't be understood, or names several runs.
    """
    reader, runs = registry.open_source(source)
    if len(runs) > 1:
        listed = "".join(f"\n  {run.source}  {run.name}" for run in runs[:SHOWN])
        more = f"\n  and {len(runs) - SHOWN} more" if len(runs) > SHOWN else ""
        raise UsageError(f"{source!r} names {len(runs)} runs: load_all reads them all, or name one:{listed}{more}")
    return RunData(reader, runs[0])


class RunList(list["RunData"]):
    """Several runs: a list that a notebook shows as a table."""

    def _repr_html_(self) -> str:
        """A row for each run: name, project, status, and the results that any of the first has."""
        first = self[: frames.HTML_ROWS]
        results = list(dict.fromkeys(name for data in first for name in data.summary))[:SHOWN]
        rows = [
            [data.run.name or data.run.id, data.run.project, data.status, *(data.summary.get(name) for name in results)]
            for data in first
        ]
        headers = ["name", "project", "status", *map(records.final_name, results)]
        return frames.html_rows(headers, rows, len(self))


def load_all(*sources: helpers.Sources, root: Path | None = None) -> list[RunData]:
    """Read all runs that sources name, of each the newest first: a project, an experiment, a glob, a directory of runs.

    Of several, what can't be read is left out, and named in a warning (logger ``trackers.readers``).

    Args:
        sources: as for :func:`load`, one by one or in a list.
        root: where our own runs lie; default what ``TRACKER_DIR`` says. Also taken as a second argument: a Path.

    Raises:
        NotFound: there is none, or none that can be read. UsageError: a source can't be understood, or none is given.
    """
    if root is None and len(sources) == 2:
        source, second = sources
        if isinstance(second, Path) and not isinstance(source, Path):
            sources, root = (source,), second
    named = helpers.source_names(sources)
    if not named:
        raise UsageError("load_all: name a run, or several")
    found = RunList()
    for source in dict.fromkeys(named):
        reader, runs = registry.open_source(source, root)
        found += helpers.those_of(runs, partial(RunData, reader))
    return found


class RunData:
    """The data of a run, at full resolution. For a run that is still being written, the data so far.

    run: where it came from, its ``id``, ``name``, ``project``, ``group``, ``tags``, ``notes``, ``created``, ``note``.
    config: nested. summary: results by name, without ``final/``. In both, NaN and infinities are floats.
    status: running, finished, failed, crashed, preempted, stopped, or "" where the source doesn't say. attempts: one
    mapping for each start of the run, the first first.

    Args:
        reader: the source's.

    Raises:
        NotFound: the run has gone. MissingPackage: the extra ``analysis`` isn't installed.
    """

    def __init__(self, reader: Reader, run: SourceRun) -> None:
        self.reader = reader
        self.run = run
        self.config: dict[str, Any] = {}
        self.summary: dict[str, Any] = {}
        self.status = run.status
        self.attempts: list[dict[str, Any]] = []
        self._blocks, self._others = _read(reader, run)
        for record in self._others:
            self._fold(record)

    def _repr_html_(self) -> str:
        """In a notebook: what the run is, and its results, last values and settings."""

        def escape(text: str) -> str:
            return html.escape(one_line(text))

        run = self.run
        about = ", ".join(escape(text) for text in (run.project, self.status, run.source) if text)
        parts = [f"<p><b>{escape(run.name or run.id)}</b> {about}</p>"]
        last = [(name, one.value, one.last) for name, one in self.series().items() if not name.startswith("final/")]
        for headers, rows in (
            (["result", "value"], [(records.final_name(name), value) for name, value in self.summary.items()]),
            (["metric", "last value", "step"], last),
            (["setting", "value"], list(records.flatten(self.config, "."))),
        ):
            if rows:
                parts.append(frames.html_rows(headers, rows, len(rows)))
        return "".join(parts)

    def keys(self) -> list[str]:
        """Names of all metrics, in the order of their first appearance, and of the results (``final/…``)."""
        return list(self.series())

    def series(self) -> dict[str, MetricOverview]:
        """Each metric's count, first and last step and last value; each result's value, as ``final/<name>``."""
        overviews = frames.series(self._blocks)
        for name, value in self.summary.items():
            if isinstance(value, (int, float)):
                overviews.setdefault(records.final_name(name), MetricOverview(count=1, value=value))
        return overviews

    def metrics(self, keys: Sequence[str] | str | None = None, long: bool = False) -> Frame:
        """What was logged with a step.

        Args:
            keys: names, or patterns as in ``gpu/*``; None: all.
            long: a row for each value (name, step, time, value) instead of one for each step.

        Returns:
            columns step, time and one for each name, outer-joined on step: null where a metric has no value.

        Raises:
            NotFound: a name that the run doesn't have.
        """
        return self._table(keys, long, stepless=False)

    def system(self, keys: Sequence[str] | str | None = None, long: bool = False) -> Frame:
        """What was sampled without a step (hardware), a row for each time; otherwise as :meth:`metrics`."""
        return self._table(keys, long, stepless=True)

    def texts(self) -> list[Text]:
        """Texts, as logged."""
        return [record for record in self._others if isinstance(record, Text)]

    def media(self, files: Path | str | None = None) -> list[Media]:
        """Images, audio, videos, tables, histograms, html, as logged; their files are relative to ``run.directory``.

        Args:
            files: where to put files that aren't on this disk (inside event files, on a server); None: what needs
                that is left out.
        """
        media = [record for record in self._others if isinstance(record, Media)]
        if files is None or self.run.directory:
            return media
        return [record for record in self._read_again(files) if isinstance(record, Media)]

    def every_media(self, files: Path) -> list[Media]:
        """All media: those of a server named, not fetched; those inside of other files put into ``files``."""
        if self.run.directory:
            return self.media(files)
        with boundary(self.run.source):
            answer = self.reader.served(self.run, files)
        return self.media(files) if answer is None else [*self.media(), *answer.media]

    def tables(self, files: Path | str | None = None) -> list[LoggedTable]:
        """The tables that were logged, in their order: ``name``, ``step``, ``columns``, ``frame()``.

        Those on a server are fetched when their content is asked for.

        Args:
            files: where to put the files of a run on a server, those that cells name, too; ``run.directory`` is then
                this directory. None: they aren't fetched.

        Raises:
            Unavailable: the server can't be reached.
        """
        if files is not None and not self.run.directory:
            return logged_tables.of_records(self._read_again(files), str(files))
        tables = logged_tables.of_records(self._others, self.run.directory)
        if self.run.directory:
            return tables
        fetched = tempfile.TemporaryDirectory(prefix="trackers-tables-", ignore_cleanup_errors=True)
        with boundary(self.run.source):
            answer = self.reader.served(self.run, Path(fetched.name))
        return [*tables, *(logged_tables.of_served(answer, fetched) if answer is not None else ())]

    def table(self, name: str, step: int | None = None) -> Frame:
        """A logged table, with typed columns: see :meth:`trackers.readers.logged_tables.LoggedTable.frame`.

        Args:
            step: which one of this name; None: the last.

        Raises:
            NotFound: there is none. Damaged: its file holds no table. Unavailable: a server can't be reached.
        """
        return logged_tables.choose_tables(self.tables(), name, self.run.name or self.run.id, step)[-1].frame()

    def table_over_steps(self, name: str) -> Frame:
        """All logged tables of a name below each other, with the column ``step`` first.

        A column of theirs that is called step is ``step_`` here; a column that some of them lack is null there.

        Raises:
            NotFound: there is none. Damaged: a file holds no table. Unavailable: a server can't be reached.
        """
        return logged_tables.over_steps(logged_tables.choose_tables(self.tables(), name, self.run.name or self.run.id))

    def spans(self) -> Frame:
        """Spans of ``run.span`` and OpenTelemetry, in the order of their ends, an Arrow table.

        Columns: trace, span, parent (null: a root), name, kind, step, start (Unix seconds), seconds, status (ok,
        error), error; inputs, outputs and attributes as JSON.
        """
        return frames.of_spans([record for record in self._others if isinstance(record, Span)])

    def artifacts(self, files: Path | str | None = None) -> list[ArtifactRecord]:
        """Files kept with the run, relative to ``run.directory``.

        Args:
            files: where to put those of W&B's runs, on a server or staged beside an offline run; None: such artifacts
                are left out, or their files have names and sizes only.
        """
        artifacts = [record for record in self._others if isinstance(record, ArtifactRecord)]
        there = all(file.file or file.uri for record in artifacts for file in record.files)
        if files is None or (artifacts and there):
            return artifacts
        return [record for record in self._read_again(files) if isinstance(record, ArtifactRecord)]

    def records(self) -> list[Record]:
        """All records that aren't metrics."""
        return list(self._others)

    def blocks(self) -> list[Block]:
        """The metrics as they are kept: see :mod:`trackers.readers.columns`."""
        return self._blocks

    def __repr__(self) -> str:
        return one_line(f"<trackers.RunData {self.run.source} {self.run.name!r} {self.status}>")

    def _read_again(self, files: Path | str) -> Iterator[Record]:
        directory = Path(files)
        directory.mkdir(parents=True, exist_ok=True)
        return self.reader.read(self.run, files=directory)

    def _table(self, keys: Sequence[str] | str | None, long: bool, stepless: bool) -> Frame:
        blocks = list(frames.select_stepless(self._blocks, stepless))
        known = list(dict.fromkeys(name for block in blocks for name in block.names))
        names = known if keys is None else self._matching_names([keys] if isinstance(keys, str) else keys, known)
        if long:
            return Frame(frames.long_table(blocks, names))
        return Frame(frames.wide(blocks, names, by_time=stepless))

    def _matching_names(self, keys: Sequence[str], names: list[str]) -> list[str]:
        chosen: list[str] = []
        known = set(names)
        for key in keys:
            fits = [key] if key in known else fnmatch.filter(names, key)
            if not fits and key not in self.series():
                raise NotFound(f"run {self.run.name!r} has no metric {key!r}; `trackers keys {self.run.source}`")
            chosen.extend(fits)
        return list(dict.fromkeys(chosen))

    def _fold(self, record: Record) -> None:
        match record:
            case Config():
                records.merge(self.config, records.unname_floats(record.values), record.whole)
            case Summary():
                records.take_results(self.summary, record)
                self.summary.update(
                    (records.plain_name(name), value) for name, value in records.unname_floats(record.values).items()
                )
            case Info():
                for name, value in record.changes().items():
                    setattr(self.run, name, value)
            case Start() if record.rank is not None:
                started: dict[str, Any] = {"number": record.attempt, "time": record.time, "host": record.host}
                if record.from_step is not None:
                    started["from_step"] = record.from_step
                if record.attempt not in [attempt["number"] for attempt in self.attempts]:
                    self.attempts.append(started)
            case Finish():
                self.status = record.status


def _read(reader: Reader, run: SourceRun) -> tuple[list[Block], list[Record]]:
    """A run's metrics and other records: from the reader's own columns, the cache, or its records."""
    if (own := reader.columns(run)) is not None:
        return list(own[0]), list(own[1])
    version = reader.version(run)
    version = version and f"{reader.form}:{version}"
    cache = Cache(f"run {run.source}")
    state = cache.state() or {}
    if version and state.get("version") == version:
        cached = cache.load()
        if cached is not None:
            run.note = str(state.get("note") or "")
            return cached.blocks, cached.others
    columns, others = ColumnBlocks(), []
    batch: list[Record] = []
    tell: Progress | None = None
    count = 0
    with contextlib.ExitStack() as stack:
        for record in reader.read(run):
            batch.append(record)
            if len(batch) >= 10_000:
                others.extend(columns.add(batch))
                columns.flush()
                count += len(batch)
                batch = []
                # Not before: W&B's reader shows itself what it fetches, ahead of its first record.
                tell = tell or stack.enter_context(progress(f"reading {run.name or run.id}", "records"))
                tell(count, 0)
    others.extend(columns.add(batch))
    gathered = columns.blocks()
    if version:
        cache.replace({"version": version, "note": run.note}, columns.count, gathered, others)
    return gathered, others
