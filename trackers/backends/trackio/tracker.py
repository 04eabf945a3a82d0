"""Trackio: one row per step, in its local store, or one per record at a trackio server.

What a user finds there: the run under its name and group, its configuration with the results beside it
(``final/<name>``: trackio has no summary), and ``trackers/status``, ``trackers/exit_code``, ``trackers/tags``,
``trackers/notes``. When it ends, its results are a report, too. Texts are reports, spans are traces. Records without a
step (hardware samples, and what the machine says in words) go to trackio's system metrics, which have times only. The
machine, its packages and our names of samples are files: ``environment.json``, ``metric_names.json``.

Rows of one step. What comes at the step of the last row goes into that row, unless the row has a value of that name:
its id is that of the first record, and its state has the names that it got, so that the rows are the same however the
records are cut into batches. Trackio ignores a row whose id it has; so what may have been sent before is added to the
row that is there. A server's rows can't be changed, nor can fragments: there each record is a row.
"""

from __future__ import annotations

import json
import logging
import os
import shlex
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from trackers.backends.shared.append_file import FileShrunk
from trackers.backends.shared.console_log import NAME, ConsoleLog
from trackers.backends.trackio.media import (
    artifact_files,
    as_number,
    files_folder,
    media_values,
    report,
    samples,
    to_trackio_json,
)
from trackers.backends.trackio.precheck import TrackioPrecheck
from trackers.backends.trackio.store import (
    RESULTS,
    TIMES,
    AlertRow,
    FragmentStore,
    KnownValues,
    LocalStore,
    RowComparison,
    TrackioRow,
    TrackioRunKey,
    TrackioStore,
    epoch,
    joined,
    translated,
)
from trackers.errors import Rejected, Unavailable
from trackers.formats import trackio_traces, vendor_system_names
from trackers.formats.trackio_traces import iso
from trackers.formats.vendor_system_names import is_machine
from trackers.metrics.unasked import is_unasked
from trackers.records import (
    SUMMARY_PREFIX,
    Alert,
    ArtifactRecord,
    Config,
    Console,
    Environment,
    Info,
    Media,
    Metrics,
    Record,
    Span,
    Start,
    Summary,
    Text,
    final_name,
    merge,
    name_floats,
    plain_name,
    take_results,
)
from trackers.tracker import Cursor, RunInfo, State, Status, Verified

MOST_TREES = 200
"""Maximum number of traces whose root is waited for."""

RESERVED = frozenset({"project", "run", "timestamp", "step", "time", "metrics"})
"""trackio/utils.py RESERVED_KEYS: these, and what begins with "__", get another "__" in front."""

STEPS = range(-(2**63), 2**63)

LEVELS = {"INFO": "info", "WARN": "warn", "WARNING": "warn", "ERROR": "error"}

MOST_SHAPES = 1000
"""Maximum number of cached sets of names that trackio accepts unchanged."""

_SIMPLE = frozenset({float, bool})  # an int may exceed 64 bits
_logger = logging.getLogger("trackers.trackio")


class _LastRow(NamedTuple):
    """The newest row. names: of the values that it got."""

    log_id: str
    step: int
    time: float
    names: set[str]


@dataclass
class _Batch:
    """What one ``write`` sends, by kind.

    counted: number of the last record that the counts of rows and samples have. fresh, fresh_samples: how many further
    ones there are. unsure: some of it may have been sent before, in other parts. met: some rows were there.
    """

    rows: _Rows
    counted: int
    unsure: bool = False
    met: bool = False
    fresh: int = 0
    fresh_samples: int = 0
    system: list[TrackioRow] = field(default_factory=list)
    alerts: list[AlertRow] = field(default_factory=list)
    traces: list[TrackioRow] = field(default_factory=list)
    samples: list[TrackioRow] = field(default_factory=list)

    def add_sample(self, row: TrackioRow, record: Record) -> None:
        """Add what a machine's sampler says."""
        self.system.append(row)
        self.fresh_samples += record.seq > self.counted


class _Rows:
    """Rows of a batch: new ones, and what is added to the last row of before.

    Args:
        join: what comes at one step makes one row.
    """

    def __init__(self, join: bool) -> None:
        self.new: list[TrackioRow] = []
        self.extended: list[TrackioRow] = []
        self.last: _LastRow | None = None
        self._join = join

    def add(self, log_id: str, step: int, time: float, values: dict[str, Any]) -> int:
        """Take the values of a record; returns how many rows that makes."""
        last = self.last
        if not self._join or last is None or last.step != step or not last.names.isdisjoint(values):
            self.new.append(TrackioRow(log_id, step, time, values))
            self.last = _LastRow(log_id, step, time, set(values)) if self._join else None
            return 1
        last.names.update(values)
        later = round(time - last.time, 6)
        if later:
            values = {**values, TIMES: dict.fromkeys(values, later)}
        added = TrackioRow(last.log_id, step, time, values, (log_id,))
        if self.new:
            self.new[-1] = _joined(self.new[-1], added)
        else:
            self.extended = [_joined(self.extended[0], added)] if self.extended else [added]
        return 0


def _joined(row: TrackioRow, added: TrackioRow) -> TrackioRow:
    return row._replace(values=joined(row.values, added.values), members=(*row.members, *added.members))


class TrackioTracker(TrackioPrecheck):
    """Delivers a run to trackio. A run's id there is ours, so that whoever delivers, it is one run."""

    machine = "apart"
    accepts = frozenset(
        {Alert, ArtifactRecord, Config, Console, Environment, Info, Media, Metrics, Span, Start, Summary, Text}
    )
    deadline_s = 300
    compares = True
    comparison: RowComparison | None = None
    batch_records = 5000
    """Each call opens trackio's database, sets it up and closes it: 20 ms, as much as 500 rows cost."""

    @staticmethod
    def remove(info: RunInfo, state: State) -> str | None:
        """Delete the run in trackio's files; None for a server, which has no call for it."""
        if info.option("TRACKIO_SERVER_URL") or os.environ.get("TRACKIO_SERVER_URL"):
            return None
        os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
        from trackio.sqlite_storage import SQLiteStorage
        from trackio.utils import get_storage_mode

        with translated():
            if get_storage_mode() == "jsonl":
                return None
            store = LocalStore(TrackioRunKey(info.project, info.id), info.name)
            name = store.known_name()
            if name is None:
                return "trackio doesn't have it"
            store.remove_files(files_folder(info.name, info.id))
            if not SQLiteStorage.delete_run(info.project, name, run_id=info.id):
                raise Unavailable("trackio didn't delete it")
        return "deleted in trackio"

    @staticmethod
    def preload() -> None:
        """Import what deliveries need (:class:`trackers.tracker.Tracker`)."""
        os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
        import trackio
        import trackio.sqlite_storage  # noqa: F401

    def __init__(self) -> None:
        self._info = RunInfo(id="", name="", project="")
        self._state = State()
        self._key = TrackioRunKey("", "")
        self._store: TrackioStore = LocalStore(self._key, "")
        self._keys: dict[str, str] = {}
        self._plain: set[tuple[str, ...]] = set()
        self._step_seen = 0
        self._last: _LastRow | None = None
        self._held: list[TrackioRow] = []
        self._unsure = True

    def open(self, info: RunInfo, state: State) -> Cursor | None:
        os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
        self._info, self._state = info, state
        self._console = ConsoleLog(info.path("trackio", NAME), info.path(), state)
        self._key = TrackioRunKey(info.project, info.id)
        url = info.option("TRACKIO_SERVER_URL") or os.environ.get("TRACKIO_SERVER_URL")
        self._store = self._remote(str(url)) if url else self._local()
        known = self._store.known_name()
        # Another machine's store, one that was emptied, or an older one that was put back: it gets the whole history.
        lost = "row" in state and self._store.tells and (known is None or self._lacks_rows() or not self._is_same())
        if lost:
            for name in list(state):
                if name != "url":
                    del state[name]
            state["again"] = True
        state.setdefault("name", info.name)
        state.setdefault("config", {})
        state.setdefault("final", {})
        state.setdefault("system", {})
        if "environment" in state or state["system"]:
            self._wait("environment.json", "metric_names.json")
        state.setdefault("about", {"group": info.group, "tags": info.tags, "notes": info.notes})
        state["status"] = "running"
        state["exit_code"] = None
        state["dirty"] = True
        # What was renamed in trackio stays so.
        state["name"] = self._store.name = known or state["name"]
        self._unsure = True
        state["native_id"] = info.id
        if not lost:  # a lost run stays lost until its new history is committed
            state.save()
        return Cursor(0) if lost else None

    def _remote(self, url: str) -> TrackioStore:
        from trackers.backends.trackio.server import ServerStore

        store = ServerStore(self._key, self._info.name, url)
        store.connect()
        self._state["url"] = url.split("?")[0]
        return store

    def _local(self) -> TrackioStore:
        from trackio.sqlite_storage import SQLiteStorage
        from trackio.utils import get_storage_mode

        with translated():
            SQLiteStorage.validate_project_name(self._info.project)
            kind = FragmentStore if get_storage_mode() == "jsonl" else LocalStore
        where, port = os.environ.get("TRACKIO_DIR"), self._info.option("TRACKIO_PORT")
        command = f"trackio show --project {shlex.quote(self._info.project)}"
        if port and int(port) != 7860:  # Gradio's default
            command = f"GRADIO_SERVER_PORT={port} {command}"
        if where:
            command = f"TRACKIO_DIR={shlex.quote(where)} {command}"
        self._state["url"] = command
        space = os.environ.get("TRACKIO_SPACE_ID", "")
        if space and self._state.get("space") != space:
            self._state["space"] = space
            _logger.warning(
                "the Space %s isn't written to: the run lies in trackio's store on this machine; copy it with "
                "`trackio sync --project %s --space-id %s`",
                space, shlex.quote(self._info.project), shlex.quote(space),
            )  # fmt: skip
        return kind(self._key, self._info.name)

    def _lacks_rows(self) -> bool:
        count = self._store.count()
        return count is not None and count < self._expected()

    def _expected(self) -> int:
        """How many rows the store has at the least."""
        samples = int(self._state.get("samples", 0)) if self._store.counts_samples else 0
        return int(self._state.get("rows", 0)) + samples

    def _is_same(self) -> bool:
        """Whether the store has the first and the last of our rows."""
        ids = [str(self._state[key][0]) for key in ("first", "row") if self._state.get(key)]
        return not ids or self._store.holds(ids, self._expected())

    def _check_store(self) -> None:
        """Check that the store is still the one that took the rows.

        Raises:
            Damaged: somebody deleted it, or put another one in its place; the next ``open`` delivers anew.
        """
        if not self._is_same():
            raise FileShrunk(f"the rows of run {self._info.id} are gone from trackio: they are delivered again")

    def write(self, records: Sequence[Record], cursor: Cursor) -> None:
        self._check_store()
        state, batch = self._state, _Batch(_Rows(self._store.extends), int(self._state.get("counted", 0)))
        batch.unsure, self._unsure = self._unsure or bool(state.get("again")), True  # until it is through
        self._step_seen = int(state.get("step", 0))  # where a batch that failed in between began, too
        if state.get("last"):
            last_id, last_step, last_time, last_names = state["last"]
            batch.rows.last = _LastRow(last_id, last_step, last_time, set(last_names))
        for record in records:
            made = self._take(record, f"{self._info.id}:{record.id}", batch)
            batch.fresh += made if record.seq > batch.counted else 0
        state["step"] = self._step_seen
        self._send(batch)
        if (last := batch.rows.last) is not None:
            state["last"] = [*last[:3], sorted(last.names)]
        if batch.system:
            if self.comparison is not None:
                self.comparison.send(self._store, batch.system, "system_metrics")
            self._store.log_system(batch.system)
        if batch.alerts:
            self._store.alert(batch.alerts)
        if batch.traces and not self._store.trace(batch.traces):
            self._send_rows(batch.traces)
            batch.fresh += len(batch.traces) if records[-1].seq > batch.counted else 0
        if batch.samples:  # beside their tables: where there are no traces, these are enough
            self._store.trace(batch.samples)
        state["rows"] = state.get("rows", 0) + batch.fresh
        state["samples"] = state.get("samples", 0) + batch.fresh_samples
        state["counted"] = max(batch.counted, cursor.seq)
        self._unsure = batch.met
        self._send_files()
        self._send_console()

    def _take(self, record: Record, log_id: str, batch: _Batch) -> int:
        """Put a record to what is sent of its kind; how many rows it makes."""
        match record:
            case Metrics():
                return self._take_numbers(record, log_id, batch)
            case Text():
                texts = {self._stored_name(name): text for name, text in record.values.items()}
                if {is_machine(record, name) for name in record.values} == {True}:
                    batch.add_sample(TrackioRow(log_id, None, record.time, texts), record)
                    return 0
                reports = {name: report(text) for name, text in texts.items()}
                return batch.rows.add(log_id, self._step(record), record.time, reports)
            case Media():
                step = self._step(record)
                media = media_values(self._info, self._store, record, step)
                named = {self._stored_name(name): value for name, value in media.items()}
                if traces := samples(self._info, record):
                    batch.samples.append(TrackioRow(f"{log_id}:samples", step, record.time, {record.name: traces}))
                return batch.rows.add(log_id, step, record.time, named)
            case Span():
                batch.traces += self._trace(record, log_id)
            case Alert():
                level = LEVELS.get(record.level.upper(), "warn")
                batch.alerts.append(AlertRow(log_id, record.step, record.time, record.title, record.text, level))
            case ArtifactRecord():
                self._store.artifact(artifact_files(self._info, record))
            case Start():
                if record.from_step is not None:
                    self._go_back(record.from_step, batch)
            case Console():
                self._console.add(record)
            case _:
                self._describe(record)
        return 0

    def _take_numbers(self, record: Metrics, log_id: str, batch: _Batch) -> int:
        values = self._numbers(record.values)
        if record.step is None:
            batch.add_sample(TrackioRow(log_id, None, record.time, self._samples(values)), record)
        elif values or not record.values:  # a row of which nothing is a number isn't one
            return batch.rows.add(log_id, self._step(record), record.time, values)
        return 0

    def _go_back(self, step: int, batch: _Batch) -> None:
        """Training goes back to a step: what came before is sent, and the rows above it go."""
        self._send(batch)
        self._send_held()
        batch.rows = _Rows(self._store.extends)
        if self._rewind(step):
            apart = int(self._state.get("samples", 0)) if self._store.counts_samples else 0  # they have no step
            self._state["rows"], batch.fresh = max(0, (self._store.count() or 0) - apart), 0

    def _trace(self, span: Span, log_id: str) -> list[TrackioRow]:
        """The row of a trace whose root has ended; other spans wait for theirs."""
        step = self._step_seen if span.step is None else span.step
        waiting = self._state.setdefault("spans", {})
        tree = waiting.setdefault(span.trace, [])
        if all(known["span"] != span.span for known in tree):
            tree.append(msgspec.to_builtins(span))
        oldest = next(iter(waiting))
        if not span.parent:
            return [self._trace_row(span.trace, step, log_id)]
        if len(waiting) > MOST_TREES:  # spans whose root never ends
            return [self._trace_row(oldest, step, log_id)]
        return []

    def _trace_row(self, trace: str, step: int, log_id: str) -> TrackioRow:
        spans = msgspec.convert(self._state["spans"].pop(trace), list[Span])
        root = next((span for span in spans if not span.parent), spans[-1])
        return TrackioRow(log_id, step, root.time, {root.name or "trace": trackio_traces.as_trace(spans)})

    def tick(self) -> None:
        """Send what was printed when it is due."""
        self._send_console()

    def _send_console(self, last: bool = False) -> None:
        """Put what was printed, where it is due, beside the project's other files."""
        self._console.send(lambda path: self._store.file(path, self._folder), last)

    def verify(self) -> Verified:
        """Compare every row's values where they can be read, and have every row sent again: trackio ignores those that
        it has. See :class:`trackers.tracker.Tracker`."""
        count, told = self._store.count(), self._store.stored([""], "metrics") is not None
        for name in list(self._state):
            if name != "url":
                del self._state[name]
        if told:
            return Verified(f"{count or 0:,} rows and their values", cursor=Cursor(0), comparison=RowComparison())
        return Verified("all rows by their ids" if count is not None else "all rows, sent again", cursor=Cursor(0))

    def held(self) -> int | None:
        """How many rows trackio has of this run."""
        return self._store.count()

    def close(self, status: Status) -> None:
        self._state["status"] = status.name
        self._state["exit_code"] = status.exit_code
        self._state["dirty"] = True
        if status.name != "running" and "row" not in self._state:
            # A run without a row has no configuration, and isn't listed.
            self._send_rows([TrackioRow(f"{self._info.id}:end", self._state.get("step", 0), status.time, {})])
        self._send_held()
        self._send_rows([])
        for number, trace in enumerate(list(self._state.get("spans", {})) if status.name != "running" else ()):
            row = self._trace_row(trace, int(self._state.get("step", 0)), f"{self._info.id}:trace:{number}:{trace}")
            if not self._store.trace([row]):
                self._send_rows([row])
        self._send_files()
        self._report(status)
        if self.comparison is not None:
            self.comparison.settle(self._store)
        self._send_console(last=True)
        self._console.close()
        if status.name != "running" and self._lacks_rows() and not self._state.get("again"):
            raise FileShrunk(f"trackio lacks rows of run {self._info.id}: they are delivered again")

    def _rewind(self, step: int) -> bool:
        """Drop the rows above a step; False where that can't be had. After a kill the rows that follow come again."""
        if not self._store.rewind(step):
            _logger.warning("trackio can't drop rows here: those above step %d stay beside the new ones", step)
            return False
        if self.comparison is not None:
            self.comparison.rewind(step)
        self._step_seen = min(self._step_seen, step)
        self._state.pop("last", None)
        row = self._state.get("row")
        if row is not None and row[1] > step:
            del self._state["row"]
            self._state["dirty"] = True  # the configuration goes with the next row
        self._state.pop("first", None)
        return True

    def _send(self, batch: _Batch) -> None:
        """Rows, and what goes into the last one of before."""
        rows, unsure = batch.rows, batch.unsure
        if self._store.extends and (unsure or self.comparison is not None):
            self._leave_out_known(batch)
        new = rows.new
        if self.comparison is not None and new:
            # Compared whole: the last may get more.
            new, self._held = [*self._held, *new[:-1]], new[-1:]
            for row in rows.extended:
                new = [_joined(known, row) if known.log_id == row.log_id else known for known in new]
        elif self.comparison is not None:
            for row in rows.extended:
                self._held = [_joined(known, row) if known.log_id == row.log_id else known for known in self._held]
        if unsure and self._store.extends:
            self._drop([member for row in new for member in row.members])
        if rows.extended and self.comparison is None:
            self._store.extend(rows.extended)
        self._send_rows(new)
        if unsure and self.comparison is None and (merged := [row for row in new if row.members]):
            self._store.extend(merged)

    def _leave_out_known(self, batch: _Batch) -> None:
        """Take out what rows of other ids have: where the line that began a row can't be read any more, what followed
        it comes as another row, or in the one before."""
        rows = batch.rows
        steps = [row.step for row in (*rows.extended, *rows.new) if row.step is not None]
        there = self._store.between(min(steps), max(steps)) if steps else {}
        batch.met = bool(there) or (batch.unsure and not steps)
        if not there:
            return
        own = {row.log_id for row in (*rows.extended, *rows.new)}
        known = KnownValues({log_id: row for log_id, row in there.items() if log_id not in own})
        rows.extended = [left for row in rows.extended if (left := known.unknown_of(row)) is not None]
        left_new = [(row, known.unknown_of(row)) for row in rows.new]
        rows.new = [left for _, left in left_new if left is not None]
        batch.fresh = max(0, batch.fresh - sum(left is None for _, left in left_new))
        if left_new and left_new[-1][1] is None and rows.last is not None:  # what comes next joins the row that has it
            row = left_new[-1][0]
            log_id = known.holder(row)
            rows.last = _LastRow(
                log_id, rows.last.step, epoch(there[log_id].time), {*there[log_id].values, *row.values}
            )

    def _send_held(self) -> None:
        """What was kept back to be compared whole."""
        held, self._held = self._held, []
        self._send_rows(held)

    def _drop(self, log_ids: list[str]) -> None:
        """Take out what an earlier release put into rows of its own."""
        if log_ids and self._store.stored(log_ids, "metrics"):
            self._store.drop(log_ids, "metrics")

    def _send_rows(self, rows: list[TrackioRow]) -> None:
        """Rows, with the configuration when it has changed; alone it rides on a row that is there already."""
        config = self._config() if self._state["dirty"] else None
        if self.comparison is not None:
            self.comparison.send(self._store, rows, "metrics")
        if not rows:
            known = self._state.get("row")
            if config is None or known is None:
                return
            rows = [TrackioRow(known[0], known[1], known[2], {})]
        self._store.log(rows, config)
        self._state["dirty"] = False
        self._state["row"] = rows[0][:3]
        self._state.setdefault("first", rows[0][:3])

    @property
    def _folder(self) -> str:
        """The run's folder among the project's files."""
        return files_folder(self._info.name, self._info.id)

    def _wait(self, *files: str) -> None:
        """Have files of ours be sent with what comes next."""
        waiting = self._state.setdefault("waiting", [])
        waiting += [file for file in files if file not in waiting]

    def _send_files(self) -> None:
        """Put what isn't the run's configuration beside the project's other files."""
        contents = {"environment.json": self._state.get("environment"), "metric_names.json": self._state["system"]}
        for file in list(self._state.get("waiting", [])):
            if contents[file]:
                with tempfile.TemporaryDirectory() as folder:
                    made = Path(folder, file)
                    made.write_text(json.dumps(contents[file], indent=2, ensure_ascii=False), "utf-8")
                    self._store.file(made, self._folder)
            self._state["waiting"].remove(file)

    def _report(self, status: Status) -> None:
        """A report of the results, in the row of the last step, once the run has ended; none while it goes on."""
        last = self._state.get("last")
        results = {name: value for name, value in self._state["final"].items() if not is_unasked(name)}
        shown = report(
            "\n".join(["# Results", "", *(f"- {name}: **{_shown(value)}**" for name, value in results.items())])
        )
        if last and self._store.extends and (results or self._state.get("report")):
            ended = status.name != "running" and bool(results)
            before = self._state.get("report")
            rows = [] if before in (None, last[0]) else [TrackioRow(before, None, 0.0, {RESULTS: None})]
            self._store.extend([*rows, TrackioRow(last[0], None, 0.0, {RESULTS: shown if ended else None})])
            self._state["report"] = last[0] if ended else None

    def _describe(self, record: Record) -> None:
        """Take what trackio keeps in a run's configuration."""
        match record:
            case Config():
                merge(self._state["config"], to_trackio_json(name_floats(record.values)), record.whole)
            case Summary():
                take_results(self._state["final"], record, final_name)
                for name, value in record.values.items():
                    self._state["final"][final_name(name)] = to_trackio_json(name_floats(as_number(value)))
            case Environment():
                merge(self._state.setdefault("environment", {}), to_trackio_json(name_floats(record.values)))
                self._wait("environment.json")
            case Info():
                changed = {"group": record.group, "tags": record.tags, "notes": record.notes}
                self._state["about"].update({name: value for name, value in changed.items() if value is not None})
                if record.name and record.name != self._state["name"]:
                    self._rename(record.name)
        self._state["dirty"] = True

    def _rename(self, name: str) -> None:
        """Take a new name as long as trackio has no row: its own renaming would drop the rows' ids."""
        self._state["about"]["name"] = name
        if "row" in self._state:
            _logger.warning("a run can't be renamed in trackio without doubling rows later; %r stays", self._store.name)
        else:
            self._state["name"] = self._store.name = name

    def _config(self) -> dict[str, Any]:
        """The whole configuration of the run in trackio, its own keys included (trackio/run.py)."""
        state, about = self._state, self._state["about"]
        # Trackio refuses keys that begin with "_", as its own do.
        config = {f"_{key}" if key.startswith("_") else key: value for key, value in state["config"].items()}
        # What nobody asked for stands with what is ours.
        config.update({f"trackers/{plain_name(n)}" if is_unasked(n) else n: v for n, v in state["final"].items()})
        config["trackers/status"] = state["status"]
        if state.get("exit_code") is not None:
            config["trackers/exit_code"] = state["exit_code"]
        if about.get("name") not in (None, state["name"]):
            config["trackers/name"] = about["name"]
        if about["tags"]:
            config["trackers/tags"] = list(about["tags"])
        if about["notes"]:
            config["trackers/notes"] = about["notes"]
        config["_Username"] = self._info.user or None
        config["_Created"] = iso(self._info.created)
        config["_Group"] = about["group"]
        return config

    def _numbers(self, values: dict[str, Any]) -> dict[str, Any]:
        """The values of a row as trackio takes them; results go to the configuration instead."""
        names = tuple(values)
        if names in self._plain and _SIMPLE.issuperset(map(type, values.values())):
            return values
        row = {}
        for name, value in values.items():
            if name.startswith(SUMMARY_PREFIX):
                self._state["final"][name] = name_floats(as_number(value))
                self._state["dirty"] = True
            else:
                row[self._stored_name(name)] = as_number(value)
        if tuple(row) == names and len(self._plain) < MOST_SHAPES:
            self._plain.add(names)
        return row

    def _samples(self, values: dict[str, Any]) -> dict[str, Any]:
        """Samples of the machine by trackio's names; ours are remembered in the configuration."""
        samples, known = {}, self._state["system"]
        for ours, value in values.items():
            theirs, factor = vendor_system_names.trackio_name(ours)
            samples[theirs] = value if factor == 1.0 else value * factor
            if ours != theirs and known.get(theirs) != ours:
                known[theirs] = ours
                self._wait("metric_names.json")
        return samples

    def _stored_name(self, name: str) -> str:
        key = self._keys.get(name)
        if key is None:
            key = self._keys[name] = f"__{name}" if name in RESERVED or name.startswith("__") else name
        return key

    def _step(self, record: Record) -> int:
        """A record's step; one without is put at the last step seen, for a row must have one."""
        if record.step is not None:
            if record.step not in STEPS:
                raise Rejected(f"step {record.step} doesn't fit the 64 bits of trackio's table")
            self._step_seen = record.step
        return self._step_seen


def _shown(value: Any) -> str:
    """A result for people's eyes; exact among the settings."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
