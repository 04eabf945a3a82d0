"""W&B, through the real client: online or offline.

What goes where: metrics, text and media are rows of the history (:mod:`trackers.backends.wandb.history_rows`), each
with its original time; results are the summary; configuration, names and tags are W&B's own. Once and only once: the
server's word, or offline the rows that lie in the ``.wandb`` files, decides from where the stream is sent again,
and rows that are there already are skipped; their images are sent again if their upload wasn't seen to end. What
isn't a row (configuration, summary, definitions) may be sent again without harm and is, on every open; alerts and
artifacts are remembered by the record's id. An alert in flight when the client is killed can be lost.

What the server refuses for good it refuses late: W&B's client sends the configuration, and the name, tags, notes and
group, as one request a while after it took them, and many rows and all results as another; it drops what is refused
with all that was sent together with it. So the server is asked which part it is, part by part; that one is set aside
(``refused``), and the next client sends all others.

Offline files that are gone were uploaded and cleaned (``wandb clean``): the rows that were seen in them aren't written
again, as long as the delivery's state is there.

Ends: finished is exit code 0, failed its own exit code, crashed 255 (W&B shows both as "failed"; its "crashed" is
a run whose client went silent), preempted is marked so and ends with exit code 1. A pause leaves the run running.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import msgspec

from trackers.backends.shared import media_files
from trackers.backends.wandb import client, datastore_writer, precheck, summary, system_metrics
from trackers.backends.wandb import console as logs
from trackers.backends.wandb import media as wandb_media
from trackers.backends.wandb.history_rows import (
    STEP,
    Held,
    HistoryRow,
    HistoryRows,
    RowStart,
    There,
    remember,
    resume_mark,
    row_values,
)
from trackers.backends.wandb.precheck import WandbPrecheck
from trackers.backends.wandb.summary import Definitions
from trackers.backends.wandb.system_metrics import Sent
from trackers.errors import DeliveryError, Rejected, Unavailable
from trackers.records import (
    Alert,
    ArtifactRecord,
    Config,
    Console,
    Define,
    Finish,
    Info,
    Media,
    MediaFile,
    Metrics,
    Record,
    Start,
    Summary,
    Text,
    decode,
    encode,
    merge,
)
from trackers.support import confined
from trackers.tracker import Cursor, RunInfo, State, Status, Verified

logger = logging.getLogger("trackers.wandb")

IDLE_S = 5.0
"""Time without further values of its step after which a row is sent, in seconds."""
ASK_S = 10.0
"""Between questions to the server, how much of what was sent it has."""
IN_FLIGHT_ROWS = 20_000
"""Maximum number of unconfirmed rows at the client; further ones wait in the journal, not in memory."""
STALL_S = 60.0
"""Time without a confirmed row, while some are in flight, after which the client is restarted, in seconds."""
UPLOAD_S = 30.0
"""Time after a file's row was sent after which an idle client means that the file has arrived, in seconds."""
REMEMBERED = 1000
"""Ids of delivered alerts, and of artifacts, that are kept."""
ARTIFACT_TIMEOUT_S = 1500.0
ARTIFACT_NAME = re.compile(r"[^\w.-]")
"""Artifact names: letters, digits, "-", "_" and ".", at most 128 (https://docs.wandb.ai/ref/python/artifact)."""
ARTIFACT_NAME_CHARACTERS = 128
TAG_CHARACTERS = 64
BEGIN_APART_S = 1.0
"""Between beginnings of runs that come together, in seconds: less with each that W&B takes, which takes 80 requests a
second for beginnings of a project (https://docs.wandb.ai/platform/hosting/hosting-options/dedicated-cloud/rate-limits);
a run needs two or three."""
SAVED_S = 120.0
"""Time after which a change of the name, tags, notes or group is at the server, or the client has said why it isn't."""
SIFTS = 2
"""How often nothing of ours is found to be what the server refuses, before that counts as the client's own."""
BLAMED_ROWS = 3
"""Number of rows in a row that the server refuses, each alone, after which it counts as refusing every one."""
ROW_BYTES = 9_000_000
"""Bytes of a row's texts: a row of more than 10,383,360 bytes of JSON W&B's client leaves out (0.31: the server's limit
is 10 MiB)."""
CHARACTER_BYTES = 6
"""The most that a character takes in JSON ("\\u0001")."""
ATTRIBUTES = {"name": "displayName", "group": "groupName", "job_type": "jobType", "tags": "tags", "notes": "notes"}
"""Attributes of a run as ``wandb.init`` names them, and as the server does."""
EXIT_CODES = {"finished": 0, "failed": 1, "crashed": 255, "preempted": 1, "running": 0}


def inside(path: str) -> str:
    """A file's path in an artifact, without parts that lead out of it."""
    return "/".join(confined.parts(path))


class WandbTracker(WandbPrecheck):
    """W&B as a tracker. ``restart_after_error``: after a failure, open it in a new process."""

    accepts: frozenset[type[Record]] = frozenset(
        {Start, Config, Metrics, Text, Media, ArtifactRecord, Summary, Define, Alert, Info, Finish, Console}
    )
    deadline_s = 1800.0
    batch_records = 1000
    restart_after_error = True
    removes_for_good = True
    begin_refused: Callable[[], object] | None = None

    @staticmethod
    def begin_apart_s(info: RunInfo) -> float:
        """Between beginnings of runs on one machine, in seconds. See :class:`trackers.tracker.Tracker`."""
        return BEGIN_APART_S if precheck.mode(info.options) == "online" else 0.0

    @staticmethod
    def remove(info: RunInfo, state: State) -> str | None:
        """Delete the run on the server, for good; None where it is in offline files."""
        return client.delete(info) if precheck.mode(info.options) == "online" else None

    @staticmethod
    def preload() -> None:
        """Import what deliveries need (:class:`trackers.tracker.Tracker`)."""
        client.preload()

    def open(self, info: RunInfo, state: State) -> Cursor | None:
        """Open the run in W&B and find out which rows it has. See :class:`trackers.tracker.Tracker`."""
        self._info = info
        self._state = state
        self._marks = [RowStart(*mark) for mark in state.get("marks", [])]
        self._config: dict[str, Any] = dict(state.get("config") or info.config)
        self._config.setdefault("run_name", info.name)
        self._row_records: list[Record] = []
        self._alone = False
        self._told_too_long = False
        self._changed_info = client.monotonic()
        fields = self._fields()
        try:
            try:
                self._session = self._new_session(fields)
            except client.NotTaken:
                if not any(fields.values()):
                    raise
                self._session = self._new_session({})
                state["unsaved"] = {name: value for name, value in fields.items() if value}
                state.save()
        except client.NotTaken as error:  # not even with its id alone
            raise client.refused(str(error)) from error
        self._session.forgives = state.get("sifted", 0) >= SIFTS
        self._run = self._session.run
        self._limited = 0
        with self._giving_up():
            if state.get("unsaved") and self._session.online:
                self._sift_attributes()
            return self._begin()

    def _new_session(self, fields: dict[str, Any]) -> client.WandbSession:
        refused = self.begin_refused or int
        return client.WandbSession(self._info, resume=bool(self._state), fields=fields, refused=refused)

    def _begin(self) -> Cursor:
        state = self._state
        state["native_id"] = self._info.id
        state["url"] = self._session.url
        state.save()
        self._sent_file = Sent(self._info)
        self._coverage = system_metrics.Coverage(
            self._sent_file, state, self._session.agent, system_metrics.node(self._info)
        )
        held = self._held_step()
        self._begun = self._session.online
        self._shares = datastore_writer.Shares(
            [] if self._begun else state.get("files"), self._root(), self._earlier_files()
        )
        if not self._session.online:
            state["files"] = self._shares.kept
        filed = RowStart(*state.get("filed", (0, -1)))
        cleaned = not self._session.online and filed.last > held
        uploaded = state.get("media_from")
        marks = [mark for mark in self._marks if uploaded is None or mark.seq <= uploaded]
        lines = {int(seq): int(count) for seq, count in state.get(logs.STATE, [])}
        held_lines = self._held_lines()
        if held_lines is not None:  # W&B may have rows that were sent after lines which it hasn't
            marks = [mark for mark in marks if lines.get(mark.seq, 0) <= held_lines]
        mark = filed if cleaned else resume_mark(marks, held)
        begin = lines.get(mark.seq, 0)
        known_lines = cleaned or held_lines is None
        self._console = logs.ConsoleLines(self._run, begin, begin if known_lines else held_lines or 0)
        if cleaned:
            held = filed.last
            logger.warning(
                "offline files of this run are gone, so its rows up to _step %d count as uploaded; to have all of them "
                "written again, delete %s",
                held,
                self._info.path("delivery", "wandb.json"),
            )
        self._media: list[tuple[int, int, float]] = []
        self._sent = self._confirmed = held
        self._asked = self._advanced = self._changed = client.monotonic()
        self._taken = mark.seq
        self._marks = [kept for kept in self._marks if kept.seq <= mark.seq]
        self._rows = HistoryRows(self._send, held, There(self._held_rows(mark.last + 1, held)), mark)
        self._growing = datastore_writer.Growing(self._session.file)
        self._scratch = tempfile.TemporaryDirectory(prefix="trackers-wandb-")
        self._reapply()
        return Cursor(mark.seq)

    def write(self, records: Sequence[Record], cursor: Cursor) -> None:
        """Deliver records; see :class:`trackers.tracker.Tracker`."""
        with self._giving_up():
            for record in records:
                if record.seq > self._taken:
                    self._take(record)
                    self._taken = record.seq
            self._taken = max(self._taken, cursor.seq)
            if records:
                self._changed = client.monotonic()
            self._remember(cursor.seq)
            self._definitions.summarize()
            self._confirm(IN_FLIGHT_ROWS)
            self._state["media_from"] = self._media[0][0] if self._media else None

    def refused(self) -> Iterator[tuple[Record, str]]:
        """What the server has refused for good; see :class:`trackers.tracker.Tracker`."""
        while waiting := self._state.get("refused"):
            id, line, why = waiting[0]
            record = decode(line.encode())
            if record is not None:
                yield msgspec.structs.replace(record, id=id), why
            self._state["refused"] = waiting[1:]

    def tick(self) -> None:
        """Send a row that has waited long enough for more values, and hear what the server has."""
        with self._giving_up():
            if self._rows.waiting and client.monotonic() - self._changed >= IDLE_S:
                self._rows.flush()
            self._confirm(IN_FLIGHT_ROWS)

    def limited(self) -> bool:
        """Whether the server has asked for fewer requests; see :class:`trackers.tracker.Tracker`."""
        before, self._limited = self._limited, self._session.limited()
        return self._limited > before

    def verify(self) -> Verified:
        """Have every row looked for by its step, time and names. See :class:`trackers.tracker.Tracker`."""
        if not self._session.online and not self._earlier_files():
            return Verified("", unchecked="the offline files are gone; W&B's server can't be asked offline")
        if not self._shares.known():
            return Verified("", unchecked="offline files are gone, and which rows they held isn't known")
        self._state["marks"] = []
        self._state.pop("filed", None)
        gone = self._shares.gone()
        files = f"{gone} offline files that are" if gone > 1 else "an offline file that is"
        but = f" but those of {files} gone" if gone else ""
        return Verified(f"every row by its step, time and names{but}", cursor=Cursor(0))

    def held(self) -> int | None:
        """How many rows there are of this run."""
        if self._session.online:
            return sum(1 for _ in self._session.there(0, self._session.held()))
        return sum(1 for _ in datastore_writer.there(datastore_writer.offline_files(self._root(), self._info.id)))

    def close(self, status: Status) -> None:
        """Upload everything, make sure that the server has it, and end the run so; see the module's text."""
        with self._giving_up():
            self._end(status)

    def _end(self, status: Status) -> None:
        running = status.name == "running"
        self._rows.flush()
        if not running:
            self._rows.end()
        self._remember(self._taken)
        self._definitions.summarize()
        if status.name == "preempted":
            self._run.mark_preempting()
        if self._session.online:
            self._session.held()  # a server that is away shows here at once, and at the end only after long
        code = EXIT_CODES[status.name]
        if status.name in ("failed", "preempted") and status.exit_code:
            code = status.exit_code
        self._session.end(code, complete=not running, timeout_s=client.FINISH_TIMEOUT_S)
        if self._session.online and self._state.get("cleared"):
            self._session.clear(self._state["cleared"])
            self._state["cleared"] = []
        self._state["unsaved"] = {}
        self._advanced = client.monotonic()
        self._confirm(0)
        self._state["media_from"] = None
        self._scratch.cleanup()

    def _fields(self) -> dict[str, Any]:
        known = self._state.get("info") or {}
        if self._session_known():
            return {}
        info = self._info
        return {
            "name": known.get("name") or info.name,
            "group": known.get("group") or info.group,
            "job_type": info.job_type,
            "tags": tags_as_taken(known.get("tags", info.tags)) or None,
            "notes": known.get("notes") or info.notes,
        }

    def _session_known(self) -> bool:
        # Online a resumed run has its name and tags; who changed them in the browser meant it.
        return bool(self._state.get("native_id")) and precheck.mode(self._info.options) == "online"

    def _held_step(self) -> int:
        """The ``_step`` of the last row that the destination holds; -1 if there is none."""
        if self._session.online:
            return self._run.starting_step - 1 if self._run.resumed else -1
        paths = self._earlier_files()
        datastore_writer.await_writers(paths)
        for path in paths:
            datastore_writer.repair(path)
        kept = [path for path in paths if not datastore_writer.drop_empty(path)]
        dropped = {path.parent.name for path in set(paths) - set(kept)}
        if "files" in self._state:  # what was removed here wasn't uploaded
            self._state["files"] = [share for share in self._state["files"] if share[0] not in dropped]
        return max(map(datastore_writer.last_step, kept), default=-1)

    def _held_lines(self) -> int | None:
        """Number of lines of the console that the destination holds; None where offline files are gone."""
        if self._session.online:
            return self._session.held_lines() if self._run.resumed else 0
        paths = self._earlier_files()
        kept = {str(share[0]) for share in self._state.get("files", [])}
        return None if kept - {path.parent.name for path in paths} else logs.lines_in(paths)

    def _held_rows(self, first: int, last: int) -> Iterable[Held]:
        """The rows that the destination holds, by ``_step`` from first to last."""
        if last < first:
            return ()
        if self._session.online:
            return self._session.there(first, last)
        return datastore_writer.there(self._earlier_files(), first)

    def _root(self) -> Path:
        """The directory of W&B's offline files."""
        return client.directory(self._info) / "wandb"

    def _earlier_files(self) -> list[Path]:
        """The run's offline files but the open one; none online."""
        if self._session.online:
            return []
        paths = datastore_writer.offline_files(self._root(), self._info.id)
        return [path for path in paths if path.parent != self._session.files]

    def _reapply(self) -> None:
        """Say again what isn't a row: W&B's client may have lost it without losing rows that came later."""
        self._update_config(self._wanted(self._config))
        self._run.define_metric(STEP, hidden=True)
        self._run.define_metric("*", step_metric=STEP)
        self._definitions = Definitions(self._run, self._state)
        for name, value in self._state.get("summary", {}).items():
            self._run.summary[name] = value
        for key, value in self._state.get("charts", []):
            self._run._config_callback(key=tuple(key), val=value)

    def _describe_chart(self, record: Media) -> None:
        """Say in the configuration how a chart's table is drawn, as W&B's client does."""
        found = wandb_media.chart(record)
        said = self._state.get("charts", [])
        if found is None or [list(found[0]), found[1]] in said:
            return
        key, value = found
        self._state["charts"] = [*(one for one in said if one[0] != list(key)), [list(key), value]]
        self._run._config_callback(key=key, val=value)

    def _take(self, record: Record) -> None:
        if isinstance(record, Metrics) and self._coverage.covers(record):
            return
        if isinstance(record, (Metrics, Text, Media)) and self._shares.uploaded(record.seq):
            self._rows.end()
        elif isinstance(record, (Metrics, Text, Media)):
            media = None
            if isinstance(record, Media):
                # Made at once, so that what W&B won't take is refused with this record, not with the row's last one.
                scratch = Path(self._scratch.name, str(record.seq))
                media = wandb_media.value(self._info, record, scratch)
                self._describe_chart(record)
            if record.id in self._state.get("refused_rows", []):
                return
            values = row_values(record, media)
            if isinstance(record, Text):
                self._see_length(values)
            self._definitions.see(record.seq, values)
            self._rows.add(record, values)
            if self._rows.waiting:
                self._row_records.append(record)
        elif isinstance(record, Start) and record.from_step is not None:
            self._rewind(record, record.from_step)
        elif isinstance(record, (Start, Finish)):
            self._rows.end()
        elif isinstance(record, Console):
            self._console.add(record)
        else:
            self._take_other(record)

    def _rewind(self, record: Start, step: int) -> None:
        """Have the server forget the rows above a training step, where it can; where not, the new rows follow.

        If this comes again after a kill, what precedes it in the stream came again too, and it is done again.
        """
        self._rows.end()
        if not self._session.online or record.attempt in self._state.get("not_rewound", []):
            return
        self._end(Status("running", time=record.time))
        self._session, number = summary.reopen(self._session, self._info, self._state, record.attempt, step)
        self._session.forgives = self._state.get("sifted", 0) >= SIFTS
        self._run = self._session.run
        self._console.reopened(self._run)
        self._coverage = system_metrics.Coverage(
            self._sent_file, self._state, self._session.agent, system_metrics.node(self._info)
        )
        last = self._rows.last if number is None else number
        self._marks = [mark for mark in self._marks if mark.last <= last]
        if number is None:
            self._rows = HistoryRows(self._send, last, self._rows.there, self._rows.again)
        else:
            self._rows = HistoryRows(self._send, last)
        self._sent = self._confirmed = last
        self._advanced = self._changed = client.monotonic()
        self._media = []
        self._scratch = tempfile.TemporaryDirectory(prefix="trackers-wandb-")
        counted = self._state.pop("aggregates", None) if number is not None else None
        self._reapply()
        if counted and number is not None:
            summary.count_again(self._session, self._definitions, number, record.seq)

    def _take_other(self, record: Record) -> None:
        try:
            if isinstance(record, Config):
                merge(self._config, record.values)
                self._state["config"] = self._config
                self._update_config(self._wanted({name: self._config[name] for name in record.values}))
            elif isinstance(record, Summary):
                self._state["summary"] = {**self._state.get("summary", {}), **record.values}
                for name, value in record.values.items():
                    self._run.summary[name] = value
            elif isinstance(record, Define):
                self._definitions.add(record)
            elif isinstance(record, Info):
                self._rename(record)
            elif isinstance(record, Alert):
                self._alert(record)
            elif isinstance(record, ArtifactRecord):
                self._artifact(record)
        except Exception as error:
            client.raise_translated(error)

    def _update_config(self, values: dict[str, Any]) -> None:
        """Set values of the configuration, as data.

        W&B's client takes texts that begin with ``wandb-artifact://`` and mappings of the type ``artifactVersion`` for
        artifacts, and asks the server that the text names for them, with the login of whoever delivers the run.
        """
        config = self._run.config
        config._set_artifact_callback(lambda key, value: value)
        object.__setattr__(config, "_raise_value_error_on_nested_artifact", lambda *_, **__: None)
        config.update(values, allow_val_change=True)

    def _send(self, row: HistoryRow) -> None:
        values = {"_timestamp": row.time, **row.values}
        if row.step is not None:
            values[STEP] = row.step
        if not self._begun and not row.held:
            self._begun = True
            self._shares.begin(self._session.file, row.begin)
            self._state.save()  # before the row is in the file
        try:
            self._session.log(values, row.number, upload_only=row.held)
        except Exception as error:
            client.raise_translated(error)
        self._sent = max(self._sent, row.number)
        if not row.held:
            if row.number <= self._state.get("careful", -1):
                self._await(row)
            self._row_records = []
        if row.media:
            self._media.append((row.begin, row.number, client.monotonic()))
            for made in Path(self._scratch.name).iterdir():
                if int(made.name) <= self._taken:  # not that of the record which begins the next row
                    shutil.rmtree(made, ignore_errors=True)

    def _wanted(self, values: dict[str, Any]) -> dict[str, Any]:
        """Values of the configuration but those that the server has refused."""
        refused = self._state.get("refused_config", {})
        return {name: value for name, value in values.items() if name not in refused or refused[name] != value}

    def _see_length(self, values: dict[str, Any]) -> None:
        """Begin a new row where texts would make this one longer than W&B's client takes.

        Raises:
            Rejected: it is longer by itself.
        """
        length = _json_bytes(values)
        if length > ROW_BYTES:
            raise Rejected(f"{length:,} bytes of text in one record; W&B's client takes 10 million")
        if sum(_json_bytes(one.values) for one in self._row_records if isinstance(one, Text)) + length > ROW_BYTES:
            self._rows.end()

    def _await(self, row: HistoryRow) -> None:
        """Wait until the server has a row that is the only one on its way.

        Raises:
            Unavailable: it takes none.
        """
        since = client.monotonic()
        self._alone = True
        while self._session.held() < row.number:
            if client.monotonic() - since > STALL_S:
                raise Unavailable(f"W&B has taken no row for {STALL_S:g} s")
            time.sleep(0.2)
        self._alone = False
        self._state["blamed"] = 0

    def _sift(self) -> None:
        """Find out what of the run's configuration, name, tags, notes and group the server refuses, and leave it out.

        Raises:
            DeliveryError: the server can't be asked.
        """
        found = self._sift_attributes() if self._state.get("unsaved") else False
        config = self._run.config.as_dict()
        own = {name: {"value": config[name]} for name in ("_wandb",) if name in config}

        def ask(names: list[str]) -> str:
            values = {**own, **{name: {"value": config[name]} for name in names}}
            return self._session.refusal({"config": json.dumps(values, default=str)})

        names = [name for name in config if name not in own]
        for name, why in sift(names, ask):
            found = True
            value = self._config.get(name)
            self._state["refused_config"] = {**self._state.get("refused_config", {}), name: value}
            self._refuse(Config(time=0.0, values={name: value}), f"config/{name}", why)
        self._state["sifted"] = 0 if found else self._state.get("sifted", 0) + 1
        if self._state["sifted"] == SIFTS:
            logger.warning(
                "W&B refuses what its client says about the run's metrics and charts: rows, configuration and results "
                "are there; the x axes and custom charts may be missing"
            )
        self._state.save()

    def _sift_attributes(self) -> bool:
        """Set the name, group, job type, tags and notes that aren't saved yet, and leave out what the server refuses.

        Returns:
            whether it has refused something.
        """
        found = False
        for name, value in self._state["unsaved"].items():
            refused = sift(list(value) if name == "tags" else [value], partial(self._refusal, name))
            if refused:
                found = True
                given = [item for item, _ in refused] if name == "tags" else value
                record: Record = Config(time=0.0, values={name: given})
                if name != "job_type":
                    record = msgspec.structs.replace(Info(time=0.0), **{name: given})
                self._refuse(record, name, refused[0][1])
        self._state["unsaved"] = {}
        self._state.save()
        return found

    def _refusal(self, attribute: str, items: list[Any]) -> str:
        """Set an attribute of the run; why the server refuses that."""
        return self._session.refusal({ATTRIBUTES[attribute]: items if attribute == "tags" else items[0]})

    def _sift_rows(self) -> None:
        """The server refuses a request of the file stream: find out which result or row it is, and leave that out.

        Of results the server is asked. Rows are sent again one by one by the next client; the one that was alone on
        its way then is it.

        Raises:
            DeliveryError: the server can't be asked.
        """
        kept = self._state.get("summary", {})

        def ask(names: list[str]) -> str:
            return self._session.refusal({"summaryMetrics": json.dumps({one: kept[one] for one in names}, default=str)})

        for name, why in sift([*kept], ask):
            self._state["summary"] = {one: value for one, value in self._state["summary"].items() if one != name}
            self._refuse(Summary(time=0.0, values={name: kept[name]}), f"summary/{name}", why)
        blamed = self._state.get("blamed", 0)
        if self._alone and blamed < BLAMED_ROWS:
            self._state["blamed"] = blamed + 1
            for record in self._row_records:
                self._refuse(record, record.id, "W&B's server refuses this row")
            ids = [record.id for record in self._row_records]
            self._state["refused_rows"] = [*self._state.get("refused_rows", []), *ids][-REMEMBERED:]
        self._state["careful"] = max(self._sent, self._state.get("careful", -1))
        self._state.save()

    def _refuse(self, record: Record, id: str, why: str) -> None:
        """Have a record set aside (:meth:`refused`), under the time of now where it has none."""
        line = encode(record)
        if not record.id:  # a part of one, or of several
            id = f"{id}/{hashlib.sha256(line).hexdigest()[:8]}"
            line = encode(msgspec.structs.replace(record, time=time.time()))
        entry = [id, line.decode().rstrip("\n"), why]
        self._state["refused"] = [*self._state.get("refused", []), entry]

    def _rename(self, record: Info) -> None:
        if record.name is not None:
            self._run.name = record.name
            self._update_config({"run_name": record.name})
        if record.tags is not None:
            self._run.tags = tuple(tags_as_taken(record.tags))
        if record.notes is not None:
            self._run.notes = record.notes
        if record.group is not None and record.group != (self._run.group or None):
            self._run._settings.run_group = record.group or None
            self._run._interface.publish_run(self._run)
        changed = {"name": record.name, "tags": record.tags, "notes": record.notes, "group": record.group}
        cleared = set(self._state.get("cleared", []))
        for name in ("tags", "notes", "group"):
            if changed[name] is not None:
                cleared = cleared - {name} if changed[name] else cleared | {name}
        self._state["cleared"] = sorted(cleared)
        known = dict(self._state.get("info") or {})
        given = {name: value for name, value in changed.items() if value is not None}
        self._state["info"] = {**known, **given}
        if self._session.online:  # the client sends it later, and may drop it
            unsaved = {**self._state.get("unsaved", {}), **given}
            self._state["unsaved"] = {name: value for name, value in unsaved.items() if value}
            self._changed_info = client.monotonic()

    def _alert(self, record: Alert) -> None:
        from wandb.sdk.wandb_alerts import AlertLevel

        if record.id in self._sent_file.alerts or record.id in self._done("alerts"):
            return
        # W&B keeps alerts of one title apart by a minute unless told otherwise, and drops the rest.
        self._run.alert(record.title, record.text, level=AlertLevel(record.level.upper()), wait_duration=0)
        self._sent_file.alert(record.id)

    def _artifact(self, record: ArtifactRecord) -> None:
        import wandb
        from wandb.sdk.artifacts.artifact_manifest_entry import ArtifactManifestEntry

        if record.id in self._done("artifacts"):
            return
        metadata = dict(record.metadata)
        given = record.source or record.name
        name = artifact_name(given)
        if name != given:
            metadata.setdefault("name", given)
        artifact = wandb.Artifact(name, type=record.type, description=record.description, metadata=metadata)
        for file in record.files:
            if file.file:
                source = media_files.path(self._info, MediaFile(format="file", file=file.file))
                artifact.add_file(str(source), name=inside(file.path) or source.name)
            else:
                # Not add_reference: it asks the cloud, with the cloud's own packages and login.
                entry = ArtifactManifestEntry(path=file.path, digest=file.uri, ref=file.uri, size=file.size)
                artifact.manifest.add_entry(entry)
        logged = self._run.log_artifact(artifact, aliases=[] if record.link else [*record.aliases])
        if self._session.online:
            try:
                logged.wait(timeout=int(ARTIFACT_TIMEOUT_S))
            except ValueError as error:  # what wandb raises when the server wouldn't take it
                raise Unavailable(f"artifact {record.name!r} wasn't taken: {error}") from error
        if record.link:
            self._link(logged, record)
        self._do("artifacts", record)

    def _link(self, logged: Any, record: ArtifactRecord) -> None:
        """Link a version to a collection of W&B's registry; done twice it is one link. What W&B won't link is said.

        Raises:
            Unavailable: no answer; it is tried again.
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

    def _done(self, kind: str) -> list[str]:
        return cast("list[str]", self._state.get(kind, []))

    def _do(self, kind: str, record: Record) -> None:
        self._state[kind] = [*self._done(kind), record.id][-REMEMBERED:]

    def _confirm(self, allowed: int) -> None:
        """Ask the server how far it is, now and then; wait while more than ``allowed`` rows are on their way.

        Raises:
            Unavailable: the server takes no rows.
        """
        now = client.monotonic()
        if self._state.get("unsaved") and now - self._changed_info > SAVED_S:
            self._session.see_answers()
            self._state["unsaved"] = {}
        if self._session.too_long() and not self._told_too_long:
            self._told_too_long = True
            logger.warning(
                "W&B's client leaves out the run's results: %s bytes together, and it takes 10 million; rows go on",
                f"{self._session.too_long():,}",
            )
        if not self._session.online:
            if allowed == 0 or now - self._asked >= ASK_S:
                self._asked = now
                self._see_file()
            return
        if self._sent - self._confirmed <= allowed and now - self._asked < ASK_S:
            return
        while True:
            self._asked = client.monotonic()
            held = self._session.held()
            if held > self._confirmed or held >= self._sent:
                self._confirmed, self._advanced = held, self._asked
            if self._sent - self._confirmed <= allowed:
                break
            if self._asked - self._advanced > STALL_S:
                raise Unavailable(f"W&B has taken no row for {STALL_S:g} s, {self._sent - self._confirmed} wait")
            time.sleep(0.2)
        latest = self._media[-1] if self._media else None
        if latest and latest[1] <= self._confirmed and self._asked - latest[2] > UPLOAD_S and self._session.uploaded():
            self._media.clear()

    def _remember(self, seq: int) -> None:
        """Keep from where to go on if the destination has all rows of the records up to ``seq``."""
        remember(self._marks, self._rows.mark(seq))
        self._state["marks"] = [[mark.seq, mark.last] for mark in self._marks]
        before = {int(number): int(count) for number, count in self._state.get(logs.STATE, [])}
        counted = self._console.at([mark.seq for mark in self._marks], before)
        if any(counted.values()):
            self._state[logs.STATE] = list(map(list, counted.items()))

    def _see_file(self) -> None:
        """Remember up to where the rows were seen in the offline file: whoever uploads it may remove it afterwards."""
        self._confirmed = max(self._confirmed, self._growing.look())
        seen = resume_mark(self._marks, self._confirmed)
        self._shares.reach(seen.seq)
        if seen.seq > RowStart(*self._state.get("filed", (0, -1))).seq:
            self._state["filed"] = [seen.seq, seen.last]

    @contextlib.contextmanager
    def _giving_up(self) -> Iterator[None]:
        """After a failure that isn't a record's, end the client: it would hold up the end of this process."""
        try:
            yield
        except Rejected:
            raise
        except client.NotTaken as error:
            try:
                if error.rows:
                    self._sift_rows()
                else:
                    self._sift()
            finally:
                client.abandon()
            raise
        except DeliveryError:
            client.abandon()
            self._session.see_answers()  # it may have been ended for what it had been answered: that is what failed
            raise


def sift(items: list[Any], refusal: Callable[[list[Any]], str]) -> list[tuple[Any, str]]:
    """Those of the items that are refused, each with why. All others are taken together in the end.

    Args:
        refusal: try to have some taken, in the place of those that were taken before; why they are refused, "": taken.
    """
    taken: list[Any] = []
    refused: list[tuple[Any, str]] = []

    def add(some: list[Any]) -> None:
        if not some:
            return
        why = refusal([*taken, *some])
        if not why:
            taken.extend(some)
        elif len(some) == 1:
            refused.append((some[0], why))
        else:
            add(some[: len(some) // 2])
            add(some[len(some) // 2 :])

    add(items)
    return refused


def _json_bytes(values: Mapping[str, Any]) -> int:
    """Bytes of texts as JSON."""
    texts = [text for text in values.values() if isinstance(text, str)]
    most = CHARACTER_BYTES * sum(map(len, texts))
    if most < ROW_BYTES // 2:
        return most
    return sum(len(json.dumps(text, ensure_ascii=False).encode("utf-8", "replace")) for text in texts)


def tags_as_taken(tags: Iterable[str]) -> list[str]:
    """Tags as W&B's client takes them (1 to 64 characters, else it refuses the run): what is longer is cut."""
    return [tag if len(tag) <= TAG_CHARACTERS else f"{tag[: TAG_CHARACTERS - 1]}…" for tag in tags if tag]


def artifact_name(name: str) -> str:
    """A name as W&B takes it for an artifact; a name that had to be changed gets a hash of the original."""
    clean = ARTIFACT_NAME.sub("-", name)
    if clean == name and len(name) <= ARTIFACT_NAME_CHARACTERS:
        return name
    mark = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{clean[: ARTIFACT_NAME_CHARACTERS - 9]}-{mark}"
