"""Delivers runs to W&B through the real client, online or offline.

Metrics, text and media become rows of the history (:mod:`trackers.backends.wandb.history_rows`), each with its original
time; results become the summary; configuration, names and tags become W&B's own. Rows arrive exactly once: the last row
that the server reports, or offline the rows in the ``.wandb`` files, decides from where the stream is sent again, and
rows that exist already are skipped; their media are uploaded again unless the upload was seen to finish. Configuration,
summary and definitions can be sent repeatedly without harm, and are, on every open; alerts and artifacts are remembered
by the record's id. An alert in flight when the client is killed can be lost.

The server's permanent refusals arrive late: W&B's client accepts the configuration, name, tags, notes and group, and
sends them a while later in one request, and many rows and all results in another. When such a request is refused, the
client drops everything in it. So the server is asked about each part separately; the refused part is set aside
(``refused``), and the next client sends all others.

Offline files that are missing were uploaded and removed (``wandb clean``): the rows that were seen in them aren't
written again, as long as the delivery's state exists.

Exit codes: 0 for finished, the run's own for failed, 255 for crashed (W&B shows both as "failed"; its "crashed" is a
run whose client went silent), 1 for preempted, which is also marked as such. A pause leaves the run running.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import math
import re
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from trackers.backends.shared import media_files
from trackers.backends.wandb import client, datastore_writer, precheck, private_names, summary, system_metrics
from trackers.backends.wandb import console as logs
from trackers.backends.wandb import media as wandb_media
from trackers.backends.wandb.clock import AttemptClock, is_of_training
from trackers.backends.wandb.history_rows import (
    OWN_STEP,
    STEP,
    DestinationRow,
    DestinationRows,
    HistoryComparison,
    HistoryRow,
    HistoryRows,
    RestartPoint,
    add_restart_point,
    newest_restart_point,
    row_values,
)
from trackers.backends.wandb.precheck import WandbPrecheck
from trackers.backends.wandb.refusals import REMEMBERED, SIFTS, Refusals
from trackers.backends.wandb.state import WandbState
from trackers.backends.wandb.summary import SummaryResults
from trackers.backends.wandb.system_metrics import SampleSender, SentSamples
from trackers.errors import DeliveryError, Rejected, Unavailable
from trackers.records import (
    INTERRUPTED,
    Alert,
    ArtifactRecord,
    Config,
    Console,
    Define,
    Environment,
    Finish,
    Info,
    Media,
    Metrics,
    Record,
    Start,
    Summary,
    Text,
    merge,
    name_floats,
)
from trackers.support import confined
from trackers.tracker import Cursor, RunInfo, State, Status, Verified

logger = logging.getLogger("trackers.wandb")

IDLE_S = 5.0
"""Time without further values after which a row is sent that is complete, in seconds. Others are sent when the next one
begins: the values of a step may come minutes apart."""
STALE_S = 600.0
"""Age of its last value at which a row counts as complete, in seconds, where training doesn't run on this machine."""
ASK_S = 10.0
"""Seconds between queries to the server for the last row that it has."""
IN_FLIGHT_ROWS = 20_000
"""Maximum number of unconfirmed rows in the client; further rows wait in the journal, not in memory."""
STALL_S = 60.0
"""Time without a confirmed row, while some are in flight, after which the client is restarted, in seconds."""
UPLOAD_S = 30.0
"""Time after a file's row was sent after which an idle client means that the file has arrived, in seconds."""
ARTIFACT_TIMEOUT_S = 1500.0  # less than deadline_s, at which a delivery counts as stuck
ARTIFACT_NAME = re.compile(r"[^\w.-]")
"""Artifact names: letters, digits, "-", "_" and ".", at most 128 (https://docs.wandb.ai/ref/python/artifact)."""
ARTIFACT_NAME_CHARACTERS = 128
TAG_CHARACTERS = 64
ARTIFACT_TAG = re.compile(r"[-\w]+( +[-\w]+)*")
BEGIN_APART_S = 1.0
"""Seconds between the beginnings of runs that start together; less with each that W&B accepts. W&B accepts 80 requests
a second for a project's beginnings
(https://docs.wandb.ai/platform/hosting/hosting-options/dedicated-cloud/rate-limits); a run needs two or three."""
SAVED_S = 120.0
"""Seconds after which the server has a change of the name, tags, notes or group, or the client's log says why not."""
ROW_BYTES = 9_000_000
"""Maximum bytes of a row's texts: W&B's client leaves out rows above 10,383,360 bytes (0.31; its server, 10 MiB)."""
CHARACTER_BYTES = 6
"""Maximum bytes of one character in JSON ("\\u0001")."""
SESSION_APART_S = 1e-5
"""Seconds between the starts of a run's sessions, as W&B is told them."""
PLAIN = frozenset({int, float, bool, str})
"""Types of values that W&B's client needn't convert."""
PLAIN_ITEMS = PLAIN | {list, dict, type(None)}
"""Types of the items of lists that it needn't convert."""
EXIT_CODES = {"finished": 0, "failed": 1, "crashed": 255, "preempted": 1, "stopped": 0, "running": 0}


def relative_path(path: str) -> str:
    """A file's path in an artifact, without parts that would lead out of the artifact."""
    return "/".join(confined.parts(path))


class WandbTracker(WandbPrecheck):
    """The W&B tracker. ``restart_after_error``: after a failure, it is opened in a new process."""

    machine = "training"
    accepts = frozenset({
        Start, Config, Metrics, Text, Media, ArtifactRecord, Summary, Define, Alert, Info, Finish, Console, Environment,
    })  # fmt: skip
    deadline_s = 1800.0
    batch_records = 1000
    whole_steps = True
    restart_after_error = True
    removes_for_good = True
    compares = True
    comparison: HistoryComparison | None = None

    @classmethod
    def begin_apart_s(cls, info: RunInfo) -> float:
        """Seconds between beginnings of runs on one machine. See :class:`trackers.tracker.Tracker`."""
        return BEGIN_APART_S if precheck.mode(info.options) == "online" else 0.0

    @staticmethod
    def remove(info: RunInfo, state: State) -> str | None:
        """Delete the run on the server, for good; None if it is in offline files."""
        return client.delete(info) if precheck.mode(info.options) == "online" else None

    @staticmethod
    def preload() -> None:
        """Import what deliveries need (:class:`trackers.tracker.Tracker`)."""
        private_names.preload()

    def open(self, info: RunInfo, stored: State) -> Cursor | None:
        """Open the run in W&B and find out which rows W&B has. See :class:`trackers.tracker.Tracker`."""
        self._info = info
        self._state = state = WandbState(stored)
        self._refusals = Refusals(state)
        self._restart_points = [RestartPoint(*point) for point in state.marks]
        self._config: dict[str, Any] = dict(state.config or info.config)
        if info.option("WANDB_CONFIG_RUN_NAME", False):
            self._config.setdefault("run_name", info.name)
        self._clock = AttemptClock(info.created, state.clock, info.pauses)
        self._row_alone: HistoryRow | None = None
        self._warned_too_long = False
        self._info_changed_at = client.monotonic()
        self._attempt = self._state.machine[0] if self._state.machine else self._newest_attempt()
        fields = self._fields()
        try:
            try:
                self._session = self._new_session(fields)
            except client.NotTaken:
                if not any(fields.values()):
                    raise
                self._session = self._new_session({})
                state.unsaved = {name: value for name, value in fields.items() if value}
                state.save()
        except client.NotTaken as error:  # although only the run's id was sent
            raise client.refused(str(error)) from error
        self._session.ignores_refused_config = state.sifted >= SIFTS
        self._run = self._session.run
        self._limited = 0
        with self._abandoning_on_error():
            if state.unsaved and self._session.online:
                self._refusals.sift_attributes(self._session)
            return self._begin()

    def _new_session(self, fields: dict[str, Any]) -> client.WandbSession:
        refused = self.begin_refused or int
        begin = self._begin_of_session()
        return client.WandbSession(self._info, resume=bool(self._state), fields=fields, begin=begin, refused=refused)

    def _begin_of_session(self) -> client.Begin:
        """When W&B is to think that the run began, and for how long it has run.

        Each session begins a little after the one before: ``wandb sync`` uploads a run's files in this order.
        """
        info, clock = self._info, self._clock
        newest = info.attempts[-1] if info.attempts else {}
        zero = clock.zero(int(newest.get("number", 1)), float(newest.get("time") or info.created or time.time()))
        runtime_s = clock.total_s
        if client.trains_here(info):
            runtime_s = time.time() - zero
        else:
            zero = min(zero, info.created or zero)
            if self.ended is not None and len(info.attempts) <= 1:
                runtime_s = max(runtime_s, self.ended.time - zero)
        begin = max(zero, float(self._state.began) + SESSION_APART_S)
        self._state.began = begin
        return client.Begin(begin, max(0.0, runtime_s))

    def _begin(self) -> Cursor:
        state = self._state
        state.native_id = self._info.id
        earlier = [path.parent for path in self._earlier_files()] if not self._session.online else []
        state.url = self._session.url_of([*earlier, self._session.files])
        state.save()
        self._sent_file = SentSamples(self._info)
        self._coverage = system_metrics.Coverage(self._sent_file, self._session.agent, system_metrics.node(self._info))
        last_step = self._destination_step()
        self._file_begun = self._session.online
        self._file_ranges = datastore_writer.FileRanges(
            [] if self._file_begun else state.files, self._root(), self._earlier_files()
        )
        if not self._session.online:
            state.files = self._file_ranges.entries
        filed = RestartPoint(*state.filed)
        files_gone = not self._session.online and filed.last > last_step
        media_from = state.media_from
        points = [point for point in self._restart_points if media_from is None or point.seq <= media_from]
        lines = {int(seq): int(count) for seq, count in state.lines}
        held_lines = self._destination_lines()
        if held_lines is not None:  # W&B may have rows that were sent after lines that it lacks
            points = [point for point in points if lines.get(point.seq, 0) <= held_lines]
        point = filed if files_gone else newest_restart_point(points, last_step)
        begin = lines.get(point.seq, 0)
        known_lines = files_gone or held_lines is None
        self._console = logs.ConsoleSender(self._run, begin, begin if known_lines else held_lines or 0)
        if files_gone:
            last_step = filed.last
            logger.warning(
                "offline files of this run are gone, so its rows up to _step %d count as uploaded; to have all of them "
                "written again, delete %s",
                last_step,
                self._info.path("delivery", "wandb.json"),
            )
        self._increments = wandb_media.Increments(state)
        self._unconfirmed_media: list[tuple[int, int, float]] = []
        self._sent_step = self._confirmed_step = last_step
        self._published_step = -1
        self._asked_at = self._advanced_at = self._changed_at = client.monotonic()
        self._last_seq = point.seq
        self._restart_points = [earlier for earlier in self._restart_points if earlier.seq <= point.seq]
        self._rows = HistoryRows(
            self._send, last_step, DestinationRows(self._destination_rows(point.first, last_step)), point,
            self.comparison, state.row[1] if state.row and state.row[0] == last_step else None,
        )  # fmt: skip
        self._samples = SampleSender(self._run, self._held_events)
        self._open_file = datastore_writer.GrowingFile(self._session.file)
        self._unwritten: list[dict[str, Any]] = []  # rows that the client may not have written to the file yet
        self._scratch = tempfile.TemporaryDirectory(prefix="trackers-wandb-")
        self._reapply(next((axes for number, axes in state.axes if number == point.seq), {}))
        self._recount([])
        return Cursor(point.seq)

    def write(self, records: Sequence[Record], cursor: Cursor) -> None:
        """Deliver records; see :class:`trackers.tracker.Tracker`."""
        with self._abandoning_on_error():
            for record in records:
                if record.seq > self._last_seq:
                    self._take(record)
                    self._last_seq = record.seq
            self._last_seq = max(self._last_seq, cursor.seq)
            if records:
                self._changed_at = client.monotonic()
            self._store_restart_points(cursor.seq)
            row = self._rows.current
            if row is None or row.number > self._state.careful:  # else they may be what is refused
                self._results.publish()
            self._results.save()
            self._confirm(IN_FLIGHT_ROWS)
            self._state.media_from = min((begin for begin, *_ in self._unconfirmed_media), default=None)

    def refused(self) -> Iterator[tuple[Record, str]]:
        """Yield the records that the server has refused for good; see :class:`trackers.tracker.Tracker`."""
        return self._refusals.take()

    def tick(self) -> None:
        """Send a complete row that has waited long enough for samples, and query how far the server is."""
        with self._abandoning_on_error():
            if client.monotonic() - self._changed_at >= IDLE_S and self._row_is_complete():
                self._rows.flush()
            self._confirm(IN_FLIGHT_ROWS)

    def limited(self) -> bool:
        """Whether the server has asked for fewer requests; see :class:`trackers.tracker.Tracker`."""
        before, self._limited = self._limited, self._session.limited()
        return self._limited > before

    def verify(self) -> Verified:
        """As :class:`trackers.tracker.Tracker`: rows by step, time and names, in offline files by values, too."""
        if not self._session.online and not self._earlier_files():
            return Verified("", unchecked="the offline files are gone; W&B's server can't be asked offline")
        if not self._file_ranges.ranges_known():
            return Verified("", unchecked="offline files are gone, and which rows they held isn't known")
        self._state.marks = []
        del self._state.filed
        gone = self._file_ranges.missing_count()
        files = f"{gone} offline files that are" if gone > 1 else "an offline file that is"
        but = f" but those of {files} gone" if gone else ""
        if self._session.online:
            return Verified("every row by its step, time and names", cursor=Cursor(0))
        return Verified(f"every row's values{but}", cursor=Cursor(0), comparison=HistoryComparison())

    def held(self) -> int | None:
        """Number of rows that W&B has of this run, once it has those that were written."""
        if self._session.online:
            with self._abandoning_on_error():
                if self._row_is_complete():
                    self._rows.flush()
                self._confirm(0)
            return sum(1 for _ in self._session.destination_rows(0, self._session.last_step()))
        return sum(
            1 for _ in datastore_writer.destination_rows(datastore_writer.offline_files(self._root(), self._info.id))
        )

    def close(self, status: Status) -> None:
        """Upload everything, verify that the server has it, and end the run with this status; see the module."""
        with self._abandoning_on_error():
            self._end(status)

    def _end(self, status: Status) -> None:
        running = status.name == "running"
        if not self._session.described and (machine := self._state.machine):
            self._session.describe(machine[1])  # the newest attempt's sampler hasn't said anything
        if not running:
            self._rows.finish()
        elif self._row_is_complete():
            self._rows.flush()
        self._store_restart_points(self._last_seq)
        runtime_s = int(self._clock.total_s)
        self._results.publish({"_runtime": runtime_s}, runtime_s)
        self._results.save()
        announced = self._info.path(f"preempting.{self._newest_attempt()}").exists()  # see journal.status
        if status.name == "preempted" or (announced and not EXIT_CODES[status.name]):
            self._run.mark_preempting()
        if self._session.online:
            self._session.last_step()  # detects at once a server that is down; ending the client takes long to notice
        code = EXIT_CODES[status.name]
        if status.name in ("failed", "preempted") and status.exit_code:
            interrupted = status.exit_code == INTERRUPTED and status.reason.startswith("KeyboardInterrupt")
            code = EXIT_CODES["crashed"] if interrupted else status.exit_code  # as W&B's client has it
        self._session.end(code, complete=not running, timeout_s=client.FINISH_TIMEOUT_S)
        if self._session.online and self._state.cleared:
            self._session.clear(self._state.cleared)
            self._state.cleared = []
        self._session.set_runtime(runtime_s)
        self._state.unsaved = {}
        self._advanced_at = client.monotonic()
        self._confirm(0)
        if self.comparison is not None:
            files = datastore_writer.offline_files(self._root(), self._info.id)
            self.comparison.settle(datastore_writer.destination_rows(files, compared=True))
            datastore_writer.await_writers(files)
            kept = datastore_writer.drop_repetitions(files)
            if self._session.file not in kept:
                datastore_writer.point_to(kept[-1])
            self._state.url = self._session.url_of([path.parent for path in kept])
        self._state.media_from = None
        self._state.recount = False
        self._scratch.cleanup()

    def _fields(self) -> dict[str, Any]:
        changes = self._state.info
        if self._state.native_id and precheck.mode(self._info.options) == "online":
            return {}  # a resumed run has its name and tags already; changes made in the browser must stay
        info = self._info
        return {
            "name": changes.get("name") or info.name,
            "group": changes.get("group") or info.group,
            "job_type": info.job_type,
            "tags": tags_as_taken(changes.get("tags", info.tags)) or None,
            "notes": changes.get("notes") or info.notes,
        }

    def _destination_step(self) -> int:
        """The ``_step`` of the last row at the destination; -1 if it has none."""
        if self._session.online:
            return self._run.starting_step - 1 if self._run.resumed else -1
        paths = self._earlier_files()
        datastore_writer.await_writers(paths)
        for path in paths:
            datastore_writer.repair(path)
        files = [path for path in paths if not datastore_writer.drop_empty(path)]
        dropped = {path.parent.name for path in set(paths) - set(files)}
        if self._state.files is not None:  # a file that is removed here wasn't uploaded
            self._state.files = [entry for entry in self._state.files if entry[0] not in dropped]
        return max(map(datastore_writer.last_step, files), default=-1)

    def _destination_lines(self) -> int | None:
        """Number of console lines at the destination; None if offline files are missing."""
        if self._session.online:
            return self._session.line_count() if self._run.resumed else 0
        paths = self._earlier_files()
        noted = {str(entry[0]) for entry in self._state.files or ()}
        return None if noted - {path.parent.name for path in paths} else logs.lines_in(paths)

    def _destination_rows(self, first: int, last: int) -> Iterable[DestinationRow]:
        """The destination's rows with ``_step`` from ``first`` to ``last``."""
        if last < first:
            return ()
        if self._session.online:
            return self._session.destination_rows(first, last)
        return datastore_writer.destination_rows(self._earlier_files(), first, self.comparison is not None)

    def _root(self) -> Path:
        """The directory of W&B's offline files."""
        return client.directory(self._info) / "wandb"

    def _earlier_files(self) -> list[Path]:
        """The run's offline files except the open one; none online."""
        if self._session.online:
            return []
        paths = datastore_writer.offline_files(self._root(), self._info.id)
        return [path for path in paths if path.parent != self._session.files]

    def _row_is_complete(self) -> bool:
        """Whether no more values come to the current row, though no later step has begun."""
        row = self._rows.current
        if row is None or row.step is None or client.trains_here(self._info):
            return row is not None and row.step is None
        return time.time() - row.records[-1].time > STALE_S

    def _held_events(self) -> Iterable[system_metrics.Event]:
        """The lines of the system tab that the destination has of this run."""
        if self._session.online:
            return self._session.events() if self._run.resumed else ()
        return system_metrics.events_in(self._earlier_files())

    def _reapply(self, axes: Mapping[str, float]) -> None:
        """Send again what isn't a row: W&B's client may have lost it without losing later rows."""
        self._update_config(self._refusals.accepted_config(self._config))
        plots_machine = self._info.option("TRACKER_GPU_METRICS", "training") == "training"
        self._results = SummaryResults(self._run, self._state, axes, self._last_seq, plots_machine)
        self._results.publish()
        attempt, machine = self._state.machine or (0, {})
        if machine and attempt >= self._newest_attempt():
            self._session.describe(machine)
        for key, value in self._state.charts:
            private_names.set_own_config(self._run, tuple(key), value)

    def _describe_chart(self, record: Media) -> None:
        """Write into the configuration how a chart's table is drawn, as W&B's client does."""
        chart = wandb_media.chart(record)
        charts = self._state.charts
        if chart is None or [list(chart[0]), chart[1]] in charts:
            return
        key, value = chart
        self._state.charts = [*(entry for entry in charts if entry[0] != list(key)), [list(key), value]]
        private_names.set_own_config(self._run, key, value)

    def _take(self, record: Record) -> None:
        if isinstance(record, (Metrics, Text, Media, Finish)) and is_of_training(record):
            self._clock.see(record.time)
        match record:
            case Metrics() | Text() | Media():
                if self._file_ranges.uploaded(record.seq):
                    self._rows.end()
                elif isinstance(record, Metrics) and system_metrics.are_machine(record):
                    self._sample(record)
                elif record.id not in self._state.refused_rows:
                    self._take_values(record)
            case Start():
                self._clock.begin(record.attempt, record.time)
                self._attempt = record.attempt
                if record.from_step is not None:
                    self._rewind(record, record.from_step)
                elif record.rank is not None:  # else a helper's stream begins: the sampler's, of values across ranks
                    self._rows.end()
            case Finish():
                self._session.stop_clock()
            case Console():
                self._console.add(record)
            case Environment():
                self._see_machine(record)
            case _:
                self._take_other(record)

    def _see_machine(self, record: Environment) -> None:
        """Note what a machine is, and tell it if it is the newest attempt's: W&B shows one."""
        machine = client.machine_of(record.values, system_metrics.node(self._info))
        if machine:
            known = self._state.machine == (entry := [self._attempt, machine])
            self._state.machine = entry
            if self._attempt >= self._newest_attempt() and not (known and self._session.described):
                self._session.describe(machine)

    def _newest_attempt(self) -> int:
        return int(self._info.attempts[-1].get("number", 1)) if self._info.attempts else 1

    def _sample(self, record: Metrics) -> None:
        if not self._coverage.covers(record):
            self._rows.hold(record.seq)
            self._samples.add(record, agent=self._coverage.covers_some(record))

    def _take_values(self, record: Metrics | Text | Media) -> None:
        media = None
        if isinstance(record, Media):
            # Converted at once, so that media that W&B refuses are rejected with this record, not the row's last.
            result = self._result_shown(record, record.seq) if record.result else None
            media = self._medium(record, record.seq) if result is None else None
            self._describe_chart(record)
            if result is not None:
                self._results.set(record.seq, result)
                return
        values = row_values(record, media)
        if STEP in values and self._state.own_step is None:
            self._state.own_step = record.seq
            self._results.step_is_own()
        if isinstance(record, Text):
            self._limit_row_length(record.values)
        self._rows.add(record, values)  # may send the row before this one, whose results don't know of this one
        axes = self._results.observe(record.seq, values, isinstance(record, Media))
        for row in self._rows.rows_of(record) if axes else ():
            row.axes |= self._results.places(axes)

    def _medium(self, record: Media, seq: int) -> Any:
        """A medium as an object of W&B's. seq: of the record that it came with."""
        return wandb_media.value(self._info, record, Path(self._scratch.name, str(seq)))

    def _result_shown(self, record: Media, seq: int) -> dict[str, Any]:
        """A medium that is a result, as W&B's JSON."""
        media = self._medium(record, seq)
        try:
            values = self._session.converted(row_values(record, media), max(self._rows.last, 0))
        except Exception as error:
            client.raise_translated(error)
        self._unconfirmed_media.append((seq - 1, self._sent_step, client.monotonic()))
        return values

    def _take_results(self, record: Summary) -> None:
        """Take results. A medium that is one again and that W&B refused stays refused."""
        media: dict[str, Any] = {}
        for shown in record.media:
            with contextlib.suppress(Rejected):
                media |= self._result_shown(shown, record.seq)
        self._results.take(record, media)

    def _rewind(self, record: Start, step: int) -> None:
        """Have the server drop the rows above a training step; if it can't, the new rows follow the old ones.

        After a kill, the preceding records are delivered again too, and so the rewind is repeated.
        """
        self._rows.end()
        if not self._session.online or record.attempt in self._state.not_rewound:
            self._count_without(record, step)
            return
        self._end(Status("running", time=record.time))
        self._session, kept = summary.reopen(
            self._session, self._info, self._state, record.attempt, step, self._begin_of_session()
        )
        self._session.ignores_refused_config = self._state.sifted >= SIFTS
        self._run = self._session.run
        self._console.reopened(self._run)
        self._samples.reopened(self._run)
        self._coverage = system_metrics.Coverage(self._sent_file, self._session.agent, system_metrics.node(self._info))
        last = self._rows.last if kept is None else kept.number
        self._restart_points = [point for point in self._restart_points if point.last <= last]
        before = self._rows
        if kept is None:
            self._rows = HistoryRows(self._send, last, before.destination, before.restart, self.comparison)
        else:
            self._rows = HistoryRows(self._send, last, ended=kept.step)
            self._state.row = None if kept.step is None else [kept.number, kept.step]
        self._rows.take_over(before, math.inf if kept is None else step)
        self._sent_step = self._confirmed_step = last
        self._advanced_at = self._changed_at = client.monotonic()
        self._unconfirmed_media = []
        self._scratch = tempfile.TemporaryDirectory(prefix="trackers-wandb-")
        counted = None
        if kept is not None:
            counted = self._state.aggregates
            del self._state.aggregates
        self._reapply(self._results.axes)
        if counted and kept is not None:
            waiting = [{self._results.step_name: row.step, **row.values} for row in self._rows.behind if not row.media]
            summary.count_again(self._session, self._results, last, record.seq, waiting, counted)
        if kept is None:
            self._count_without(record, step)

    def _count_without(self, record: Start, step: int) -> None:
        """Take back what rows above a step, which W&B keeps, have made of its results."""
        if self._file_ranges.missing_count():
            return  # what the other rows were isn't known
        self._rows.send_behind()
        self._state.rewind(record.attempt, self._rows.last, step, self._results.undelete(record.seq))
        if not self._session.online:
            self._await_file()
        self._recount([self._session.file])

    def _recount(self, files: list[Path]) -> None:
        """Have the last values be of rows that count, if W&B may have others. files: beside earlier sessions'."""
        if self._state.recount and not self._file_ranges.missing_count():
            of_files = (row for path in [*self._earlier_files(), *files] for row in datastore_writer.history(path))
            waiting = (row for row in self._unwritten if row["_step"] > self._open_file.last)
            rows = self._session.rows(0, self._rows.last) if self._session.online else chain(of_files, waiting)
            summary.count_without(self._results, rows, self._state.rewinds)

    def _await_file(self) -> None:
        """Wait until the offline file has the rows that were sent, where the client writes them at once."""
        since = client.monotonic()
        while self._open_file.read_new() < self._published_step and private_names.writes_rows_at_once():
            if client.monotonic() - since > STALL_S:
                raise Unavailable(f"W&B's client has written no row for {STALL_S:g} s")
            time.sleep(0.02)

    def _take_other(self, record: Record) -> None:
        try:
            match record:
                case Config():
                    merge(self._config, record.values, record.whole)
                    self._state.config = self._config
                    changed = {name: self._config[name] for name in record.values}
                    self._update_config(self._refusals.accepted_config(changed), record.whole)
                case Summary():
                    self._take_results(record)
                case Define():
                    self._results.define(record)
                case Info():
                    self._rename(record)
                case Alert():
                    self._alert(record)
                case ArtifactRecord():
                    self._artifact(record)
        except Exception as error:
            client.raise_translated(error)

    def _update_config(self, values: dict[str, Any], whole: bool = True) -> None:
        """Set values of the configuration, as plain data.

        W&B merges a mapping into what it has by its name; with ``whole`` it replaces that, as in the script.

        W&B's client would treat texts that begin with ``wandb-artifact://`` and mappings of the type
        ``artifactVersion`` as artifacts, and request them from the server that the text names, with the login of
        whoever delivers the run.
        """
        if whole:
            private_names.drop_config(self._run, [name for name, value in values.items() if isinstance(value, dict)])
        private_names.set_config(self._run, values)

    def _send(self, row: HistoryRow) -> None:
        if self.comparison is not None and not row.held:
            self.comparison.send(row)
        if not self._file_begun and not row.held:
            self._file_begun = True
            self._file_ranges.begin_file(self._session.file, row.begin)
            self._state.save()  # before the row is in the file
        try:
            values = {  # that W&B's client needn't convert: no media, of which a list may be, too
                name: value for name, value in row.values.items()
                if type(value) in PLAIN or (type(value) is list and PLAIN_ITEMS.issuperset(map(type, value)))
            }  # fmt: skip
            if len(values) < len(row.values):
                values |= self._converted(row, {name: v for name, v in row.values.items() if name not in values})
            if not row.held:
                self._publish(row, values)
        except Exception as error:
            client.raise_translated(error)
        self._sent_step = max(self._sent_step, row.number)
        if not row.held:
            self._published_step = row.number
        if not row.held and row.step is not None:
            self._state.row = [row.number, row.step]
        if not row.held and row.number <= self._state.careful:
            self._await_row(row)
        if row.media:
            self._unconfirmed_media.append((row.begin, row.number, client.monotonic()))
            for directory in Path(self._scratch.name).iterdir():
                # Keeps the files of the record that begins the next row, and of those that wait.
                if int(directory.name) <= self._last_seq and int(directory.name) not in self._rows.unsent():
                    shutil.rmtree(directory, ignore_errors=True)

    def _converted(self, row: HistoryRow, media: dict[str, Any]) -> dict[str, Any]:
        """A row's media as W&B's client describes them; a table that is a part names those before it.

        What the client refuses only now is set aside with its record: the row, which has others' values, goes on.
        """
        values: dict[str, Any] = {}
        for record in row.records:
            given = {name: media[name] for name in row_values(record) if name in media}
            tables = list(given.items()) if isinstance(record, Media) and wandb_media.is_part(record) else []
            for name, table in tables:
                self._increments.number(name, record.id, table)
            try:
                values |= self._session.converted(given, row.number) if given else {}
            except Exception as error:
                if not isinstance(failure := client.translate(error), Rejected):
                    raise
                self._refusals.set_aside(record, record.id, str(failure))
                continue
            for name, table in tables:
                self._increments.note(name, record.id, table)
        return values

    def _publish(self, row: HistoryRow, values: dict[str, Any]) -> None:
        """Send a row, and before it what it changes of the summary."""
        self._results.complete(values, row.axes, row.again)
        runtime_s = self._clock.at(row.time)
        values |= {"_step": row.number, "_timestamp": row.time, "_runtime": runtime_s}
        # The script's own global_step may begin in the row's second record.
        since = self._state.own_step
        own = STEP in row.values or (since is not None and row.records[0].seq >= since)
        step_name = OWN_STEP if own else STEP
        if row.step is not None and not row.again:
            self._results.axes[step_name] = row.step
        if row.step is not None or step_name in self._results.axes:
            # A row at no step has the last one, as W&B's client does it.
            values[step_name] = self._results.axes[step_name] if row.step is None else row.step
        if row.again:  # the summary is further already
            self._results.publish({name: value for name, value in values.items() if name in row.values})
        else:
            self._results.publish(values, int(runtime_s))
        self._session.publish(row.number, {name: summary.json_text(value) for name, value in values.items()})
        if not self._session.online and not private_names.writes_rows_at_once():
            self._unwritten.append(values)

    def _limit_row_length(self, values: dict[str, Any]) -> None:
        """Begin a new row if the texts would make the current one longer than W&B's client accepts.

        Raises:
            Rejected: the texts alone are longer than that.
        """
        length = _json_bytes(values)
        if length > ROW_BYTES:
            raise Rejected(f"{length:,} bytes of text in one record; W&B's client takes 10 million")
        if (row := self._rows.current) is not None and sum(
            _json_bytes(record.values) for record in row.records if isinstance(record, Text)
        ) + length > ROW_BYTES:
            self._rows.end()

    def _await_row(self, row: HistoryRow) -> None:
        """Wait until the server has a row that is the only one in flight.

        Raises:
            Unavailable: the server accepts no rows.
        """
        since = client.monotonic()
        self._row_alone = row
        while self._session.last_step() < row.number:
            if client.monotonic() - since > STALL_S:
                raise Unavailable(f"W&B has taken no row for {STALL_S:g} s")
            time.sleep(0.2)
        self._row_alone = None
        self._state.blamed = 0

    def _rename(self, record: Info) -> None:
        if record.name is not None:
            named = self._run.config.get("run_name") == self._run.name
            if named and self._info.option("WANDB_CONFIG_RUN_NAME", False):
                self._update_config({"run_name": record.name})
            self._run.name = record.name
        if record.tags is not None:
            self._run.tags = tuple(tags_as_taken(record.tags))
        if record.notes is not None:
            self._run.notes = record.notes
        if record.group is not None and record.group != (self._run.group or None):
            private_names.set_group(self._run, record.group or None)
        changed = {"name": record.name, "tags": record.tags, "notes": record.notes, "group": record.group}
        cleared = set(self._state.cleared)
        for name in ("tags", "notes", "group"):
            if changed[name] is not None:
                cleared = cleared - {name} if changed[name] else cleared | {name}
        self._state.cleared = sorted(cleared)
        known = dict(self._state.info)
        values = {name: value for name, value in changed.items() if value is not None}
        self._state.info = {**known, **values}
        if self._session.online:  # the client sends it later, and may drop it
            unsaved = {**self._state.unsaved, **values}
            self._state.unsaved = {name: value for name, value in unsaved.items() if value}
            self._info_changed_at = client.monotonic()

    def _alert(self, record: Alert) -> None:
        if record.id in self._sent_file.alerts:
            return
        # Not run.alert: it takes 0 s for its default, by which W&B drops alerts of the same title within a minute.
        private_names.interface(self._run).publish_alert(record.title, record.text, record.level.upper(), 0)
        self._sent_file.alert(record.id)

    def _artifact(self, record: ArtifactRecord) -> None:
        if record.id in self._state.artifacts:
            return
        metadata = {
            key: v for key, v in record.metadata.items() if key != "tags" or not record.tags or v != record.tags
        }
        original = record.source or record.name
        name = artifact_name(original)
        if name != original:
            metadata.setdefault("name", original)
        artifact = private_names.new_artifact(name, record.type, record.description, metadata)
        for file in record.files:
            if file.file:
                source = media_files.path(self._info, file)
                artifact.add_file(str(source), name=relative_path(file.path) or source.name)
            else:
                digest = file.digest.removeprefix("md5:") if file.digest.startswith("md5:") else ""
                private_names.add_reference(artifact, file.path, file.uri, file.size, digest)
        tags = [tag for tag in record.tags if isinstance(tag, str) and ARTIFACT_TAG.fullmatch(tag)]
        logged = self._run.log_artifact(artifact, aliases=[] if record.link else [*record.aliases], tags=tags)
        if self._session.online:
            try:
                logged.wait(timeout=int(ARTIFACT_TIMEOUT_S))
            except ValueError as error:  # wandb raises it when the server refused the artifact
                raise Unavailable(f"artifact {record.name!r} wasn't taken: {error}") from error
        if private_names.is_code(name, record.type):
            private_names.set_config(self._run, {"_wandb": {"code_path": name}})
        if record.link:
            self._link(logged, record)
        self._state.artifacts = [*self._state.artifacts, record.id][-REMEMBERED:]

    def _link(self, logged: Any, record: ArtifactRecord) -> None:
        """Link a version to a collection of W&B's registry, which may be repeated. If W&B refuses, a warning is logged.

        Raises:
            Unavailable: W&B didn't answer; the link is tried again.
        """
        if not self._session.online:
            logger.warning("%s isn't linked: W&B's client links online only, and 'wandb sync' doesn't", record.link)
            return
        try:
            self._run.link_artifact(logged, record.link, [*record.aliases])
        except Exception as error:
            if not client.is_refusal(error):
                raise Unavailable(f"{record.link} can't be linked yet: {' '.join(str(error).split())}") from error
            path = f"{logged.entity}/{logged.project}/{logged.name}"
            logger.warning(
                "W&B didn't link %s to %s (%s): its files are there; once W&B lets you, "
                "wandb.Api().artifact(%r).link(%r) links it",
                path, record.link, " ".join(str(error).split())[:300], path, record.link,
            )  # fmt: skip

    def _confirm(self, allowed: int) -> None:
        """Query the server's last row at intervals; wait while more than ``allowed`` rows are in flight.

        Raises:
            Unavailable: the server accepts no rows.
        """
        now = client.monotonic()
        if self._state.unsaved and now - self._info_changed_at > SAVED_S:
            self._session.check_answers()
            self._state.unsaved = {}
        if self._session.too_long() and not self._warned_too_long:
            self._warned_too_long = True
            logger.warning(
                "W&B's client leaves out the run's results: %s bytes together, and it takes 10 million; rows go on",
                f"{self._session.too_long():,}",
            )
        if not self._session.online:
            if allowed == 0 or now - self._asked_at >= ASK_S:
                self._asked_at = now
                self._note_file_rows()
            return
        if self._sent_step - self._confirmed_step <= allowed and now - self._asked_at < ASK_S:
            return
        while True:
            self._asked_at = client.monotonic()
            last_step = self._session.last_step()
            if last_step > self._confirmed_step or last_step >= self._sent_step:
                self._confirmed_step, self._advanced_at = last_step, self._asked_at
            if self._sent_step - self._confirmed_step <= allowed:
                break
            if self._asked_at - self._advanced_at > STALL_S:
                raise Unavailable(
                    f"W&B has taken no row for {STALL_S:g} s, {self._sent_step - self._confirmed_step} wait"
                )
            time.sleep(0.2)
        latest = self._unconfirmed_media[-1] if self._unconfirmed_media else None
        if (
            latest
            and latest[1] <= self._confirmed_step
            and self._asked_at - latest[2] > UPLOAD_S
            and self._session.uploaded()
        ):
            self._unconfirmed_media.clear()

    def _store_restart_points(self, seq: int) -> None:
        """Store a point to restart from, for when the destination has all rows of the records up to ``seq``."""
        add_restart_point(self._restart_points, self._rows.restart_point(seq))
        self._state.marks = [[point.seq, point.last, point.since] for point in self._restart_points]
        self._state.clock = self._clock.spans
        if self._results.axes:
            known = {int(number): values for number, values in self._state.axes}
            axes = [[point.seq, known.get(point.seq, self._results.axes)] for point in self._restart_points]
            self._state.axes = [[number, name_floats(dict(values))] for number, values in axes]
        before = {int(number): int(count) for number, count in self._state.lines}
        counts = self._console.counts_at([point.seq for point in self._restart_points], before)
        if any(counts.values()):
            self._state.lines = list(map(list, counts.items()))

    def _note_file_rows(self) -> None:
        """Note up to which row the offline file was read: it may be uploaded and removed at any time."""
        self._confirmed_step = max(self._confirmed_step, self._open_file.read_new())
        self._unwritten = [row for row in self._unwritten if row["_step"] > self._open_file.last]
        point = newest_restart_point(self._restart_points, self._confirmed_step)
        self._file_ranges.extend(point.seq)
        if point.seq > RestartPoint(*self._state.filed).seq:
            self._state.filed = [point.seq, point.last]

    @contextlib.contextmanager
    def _abandoning_on_error(self) -> Iterator[None]:
        """Context that ends the client after any error but Rejected: it would delay this process's exit."""
        try:
            yield
        except Rejected:
            raise
        except client.NotTaken as error:
            try:
                if error.rows:
                    alone = self._row_alone.records if self._row_alone is not None else ()
                    self._refusals.sift_rows(self._session, alone, self._rows.last)
                else:
                    self._refusals.sift(self._session, self._config)
            finally:
                client.abandon()
            raise
        except DeliveryError:
            client.abandon()
            self._session.check_answers()  # a foreign answer may have ended the client: raise that error
            raise


def _json_bytes(values: Mapping[str, Any]) -> int:
    """Size of the texts among some values as JSON, in bytes: an upper bound, or exact where they are long."""
    texts = [text for text in values.values() if isinstance(text, str)]
    most = CHARACTER_BYTES * sum(map(len, texts))
    if most < ROW_BYTES // 2:
        return most
    return sum(len(json.dumps(text, ensure_ascii=False).encode("utf-8", "replace")) for text in texts)


def tags_as_taken(tags: Iterable[str]) -> list[str]:
    """Tags as W&B's client accepts them (1 to 64 characters, or it refuses the run): longer ones are cut."""
    return [tag if len(tag) <= TAG_CHARACTERS else f"{tag[: TAG_CHARACTERS - 1]}…" for tag in tags if tag]


def artifact_name(name: str) -> str:
    """A valid artifact name for W&B; a changed name ends with a hash of the original."""
    clean = ARTIFACT_NAME.sub("-", name)
    if clean == name and len(name) <= ARTIFACT_NAME_CHARACTERS:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{clean[: ARTIFACT_NAME_CHARACTERS - 9]}-{digest}"
