"""The training JSON log: one file per run, valid at every moment, with a summary however the run ends.

Its lists grow in append-only files in the run's directory (``json/``); the log is put together from them, at
most 10 s or 10 % behind while the run goes on, so that the cost of all saves stays in proportion to the run.
"""

from __future__ import annotations

import copy
import heapq
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any

import msgspec

from trackers.backends.json.precheck import JsonPrecheck
from trackers.backends.shared.append_file import (
    DIGESTS,
    FileShrunk,
    digests,
    file_name,
    remove,
    remove_temporary,
    replace,
    take_with_rewinds,
    unavailable,
    unseen,
    verified,
    write_new,
)
from trackers.backends.shared.console_log import STATE as CONSOLE
from trackers.backends.shared.console_log import ConsoleLog
from trackers.backends.shared.directory import option_directory
from trackers.backends.shared.json_document import Lists
from trackers.backends.shared.step_rows import IterationRows, IterationTotals, iso, with_all_keys
from trackers.benchmark.speed import Meter, begun_on, figures, starts
from trackers.formats.ending import lent
from trackers.formats.exclusive_move import move_to_free_name
from trackers.records import (
    ALL_KINDS,
    SUMMARY_PREFIX,
    Alert,
    ArtifactRecord,
    Config,
    Console,
    Environment,
    Finish,
    Info,
    Media,
    Metrics,
    Record,
    Start,
    Summary,
    Text,
    flatten,
    is_sample,
    merge,
    name_floats,
    plain_name,
    take_results,
)
from trackers.support import confined
from trackers.support.confined import local
from trackers.tracker import Cursor, RunInfo, State, Status, Verified

SAVE_S = 10.0
"""Longest time between two saves of a log that is small, or that grew enough."""

GROWTH = 1.1
"""Growth factor between two saves of a log: all saves together write at most 11 times the last one's size."""

HEAD_BYTES = 1 << 16
"""Bytes read to find which run a log belongs to; the run's name comes first."""

SMALL_BYTES = 1 << 20
"""A log below this is saved each SAVE_S, whatever it grew."""

CHECKPOINT_TYPES = ("model", "checkpoint")
METADATA_NAMES = ("world_size", "device", "dtype", "compile", "use_zero1", "backend", "precision")
"""Fields of the log's metadata, taken from the config or the environment where either has them."""


class JsonState(msgspec.Struct):
    """The tracker's state: what a new process must know to go on.

    file: name of the log. lengths, generation: of the lists. seq: highest record taken. rewound: newest attempt
    whose rewind was carried out. time: of the last record. begun: attempts, and when each began; worlds: on how
    many ranks. meter: what speed is made of.
    """

    file: str = ""
    lengths: dict[str, int] = {}
    generation: int = 0
    seq: int = 0
    rewound: int = 0
    time: float = 0.0
    losses: bool = False
    rows: IterationRows = msgspec.field(default_factory=IterationRows)
    totals: IterationTotals = msgspec.field(default_factory=IterationTotals)
    begun: list[tuple[int, float]] = []
    worlds: list[int] = []
    meter: Meter = msgspec.field(default_factory=Meter)
    config: dict[str, Any] = {}
    environment: dict[str, Any] = {}
    results: dict[str, Any] = {}
    attributes: dict[str, Any] = {}
    world_size: int = 0
    finish: dict[str, Any] = {}


class JsonTracker(JsonPrecheck):
    """Writes ``{run name}_{YYYYmmdd_HHMMSS}.json`` to ``JSON_DIR``, or to the run's directory."""

    accepts = ALL_KINDS | {Console}
    clock = staticmethod(time.monotonic)

    @staticmethod
    def own_files(info: RunInfo, state: State) -> list[Path]:
        """What of the run lies outside of its directory (:class:`trackers.tracker.Tracker`)."""
        chosen = option_directory(info, "JSON_DIR")
        name = msgspec.convert(dict(state).get("book", {}), JsonState, strict=False).file
        if chosen is None or not (confined.is_plain_name(name) and _is_log_of(chosen / name, info, chosen)):
            return []
        return [chosen / name, chosen / f"{Path(name).stem}.console.log"]

    def open(self, info: RunInfo, state: State) -> Cursor | None:
        """Find the log and its lists as they were committed, or reserve a new log's name."""
        self._info, self._state = info, state
        self._directory = option_directory(info, "JSON_DIR") or Path(info.directory)
        self._every = int(info.option("JSON_SAVE_INTERVAL", 0))
        self._null = info.option("JSON_NAN", "string") == "null"
        self._evals_only = info.option("JSON_EVAL_ONLY", False) in (True, "y", "true", "True", "1")
        self._temporary = self._directory / f".{file_name(info.name)}-{file_name(info.id)}.json.tmp"
        self._digests = digests(state)
        self._lists = Lists(info.path("json"), digests=self._digests)
        self._saved_at, self._saved_bytes, self._saved_rows = float("-inf"), 0, 0
        self._changed = False
        remove_temporary(self._temporary)
        self._book = msgspec.convert(dict(state).get("book", {}), JsonState, strict=False)  # floats by their names, too
        if self._book.file and not self._may_replace(self._book.file):
            self._book.file = ""
        answer = None
        try:
            self._lists.open(self._book.lengths, self._book.generation)
        except FileShrunk:
            self._book, answer = JsonState(file=self._book.file), Cursor(0)
            self._lists.open({}, 0)
            state.pop(CONSOLE, None)
        if not self._book.file:
            self._book.file = self._reserve()
            state["book"] = name_floats(msgspec.to_builtins(self._book))
            state["url"] = str(self._path)
            if answer is None:
                state.save()
        elif answer or not self._path.exists():
            self._save(None)
        self._console = ConsoleLog(self._path.with_name(f"{self._path.stem}.console.log"), self._directory, state)
        return answer

    def write(self, records: Sequence[Record], cursor: Cursor) -> None:
        """Add the records to the lists, and save the log when it is due."""
        take_with_rewinds(unseen(records, self._book.seq), self._book.rewound, self._take, self._rewind)
        for record in records:
            if isinstance(record, Console):
                self._console.add(record)
        self._save_if_due()

    def verify(self) -> Verified:
        """Read the log and its lists back; see :class:`trackers.tracker.Tracker`."""
        return verified([(self._path, self._directory), *self._lists.paths()], self._digests)

    def tick(self) -> None:
        """Save the log when it is due."""
        self._save_if_due()

    def close(self, status: Status) -> None:
        """Save the log as it is now, with its summary."""
        self._save(status)
        self._lists.close()
        self._console.close()

    @property
    def _path(self) -> Path:
        return self._directory / local(self._book.file)

    def _reserve(self) -> str:
        """A name that no other run has, with a log of this run under it."""
        stamp = datetime.fromtimestamp(self._info.created).strftime("%Y%m%d_%H%M%S")
        stem = file_name(self._info.name)
        stem = stem if stem.endswith(f"_{stamp}") else f"{stem}_{stamp}"  # an automatic name has its time already
        written, _ = write_new(self._temporary, self._pieces(None), self._directory)
        try:
            for number in range(1, 10_000):
                name = f"{stem}.json" if number == 1 else f"{stem}_{number}.json"
                target = self._directory / name
                if self._is_ours(target) or move_to_free_name(written, target):
                    return name
        except OSError as error:
            raise unavailable("make", self._directory / f"{stem}.json", error) from error
        finally:
            remove(written)
        raise unavailable("make", target, OSError("too many logs have that name"))

    def _may_replace(self, name: str) -> bool:
        """Whether a log's name as it was committed is one in its directory that is free or this run's."""
        path = self._directory / name
        return (
            confined.is_plain_name(name)
            and name.endswith(".json")
            and (not os.path.lexists(path) or self._is_ours(path))
        )

    def _is_ours(self, path: Path) -> bool:
        """Whether a process that was killed right after it had reserved this name was ours."""
        return _is_log_of(path, self._info, self._directory)

    def _take(self, batch: Sequence[Record]) -> None:
        """Take a batch, all of it or nothing."""
        if not batch:
            return
        book = copy.copy(self._book)
        book.rows, book.totals = copy.deepcopy(book.rows), copy.copy(book.totals)
        book.meter = copy.deepcopy(book.meter)
        try:
            for record in batch:
                self._record(record, book)
                book.seq = max(book.seq, record.seq)
                book.time = max(book.time, record.time)
            book.lengths = self._lists.flush()
        except BaseException:  # Ctrl-C, too: a part of the batch would come twice
            self._lists.drop()
            raise
        self._commit(book)

    def _commit(self, book: JsonState) -> None:
        self._book = book
        self._state["book"] = name_floats(msgspec.to_builtins(book))
        self._state[DIGESTS] = dict(self._digests)
        self._changed = True

    def _rewind(self, step: int, attempt: int) -> None:
        """Drop what an earlier attempt logged above ``step``."""
        totals = IterationTotals()

        def is_kept(name: str, item: dict[str, Any]) -> bool:
            keep = item.get("iter") is None or item["iter"] <= step
            if keep:
                _fold(totals, name, item)
            return keep

        book = copy.copy(self._book)
        book.rows = copy.deepcopy(book.rows)
        book.rows.rewind(step)
        book.lengths, book.generation = self._lists.rewrite(is_kept)
        book.totals, book.rewound = totals, attempt
        if not self._evals_only:  # else the times of iterations aren't kept
            book.meter = self._measured(book)
        self._commit(book)
        self._saved_bytes = 0

    def _measured(self, book: JsonState) -> Meter:
        """What speed is made of, by the iterations and evaluations that are left."""
        names = book.rows.names
        iterations, evals = copy.deepcopy(book.rows).settled(everything=True)
        rows = (
            chain(self._lists.items("training_iterations"), iterations),
            self._lists.items("samples"),
            chain(self._lists.items("eval_steps"), evals),
        )
        meter, begun = Meter(), begun_on(book.begun, book.worlds)
        coming = next(begun)
        for time_, step, values in heapq.merge(*(_logged(items, names) for items in rows), key=itemgetter(0)):
            while time_ >= coming[1]:
                meter.start(coming[0], coming[2])
                coming = next(begun)
            meter.take(step, time_, values)
        return meter

    def _record(self, record: Record, book: JsonState) -> None:
        step = book.rows.top if record.step is None else record.step
        match record:
            case Metrics():
                self._metrics(record, step, book)
            case Text():
                for name, text in record.values.items():
                    self._add("text", {"iter": step, "name": name, "text": text, "timestamp": iso(record.time)}, book)
            case Media():
                for item in record.items:
                    fields = {
                        key: value for key, value in msgspec.to_builtins(item).items() if value not in (None, "", {})
                    }
                    named = {"iter": step, "name": record.name, "type": record.type, **fields}
                    self._add("media", {**named, "timestamp": iso(record.time)}, book)
            case ArtifactRecord():
                self._artifact(record, step, book)
            case Alert():
                fields = {"title": record.title, "text": record.text, "level": record.level}
                self._add("alerts", {"iter": step, **fields, "timestamp": iso(record.time)}, book)
            case Summary():
                book.results = take_results(dict(book.results), record)
            case Config():
                book.config = merge(copy.deepcopy(book.config), record.values, record.whole)
            case Environment():
                book.environment = merge(copy.deepcopy(book.environment), record.values)
            case Info():
                book.attributes = {**book.attributes, **record.changes()}
            case Start():
                book.world_size, book.finish = max(book.world_size, record.world_size), {}
                if record.rank is not None and not record.id.startswith(("sampler-", "node-", "reducer-")):
                    book.rows.start(record.time)
                    book.begun = [*book.begun, (record.attempt, record.time)]
                    book.worlds = [*book.worlds, record.world_size]
                    book.meter.start(record.attempt, record.world_size)
            case Finish():
                book.finish = {"status": record.status, "exit_code": record.exit_code, "time": record.time}

    def _metrics(self, record: Metrics, step: int, book: JsonState) -> None:
        values: dict[str, Any] = {}
        for name, value in record.values.items():
            if name.startswith(SUMMARY_PREFIX):
                book.results = {**book.results, plain_name(name): value}
            else:
                finite = value == value and abs(value) != _INFINITY  # JSON has no other
                values[name] = value if finite else None if self._null else name_floats(value)
        if not values:
            return
        if record.step is None or (is_sample(record) and not book.rows.takes(step, values)):
            # In an iteration of their own samples would be one without a loss.
            columns = {f"{name}_" if name in ("iter", "time") else name: value for name, value in values.items()}
            for name in values.keys() & {"iter", "time"}:
                book.rows.names.setdefault(f"{name}_", name)
            self._add("samples", {"iter": step, **columns, "time": record.time}, book)
            return
        book.rows.add(step, record.time, values)
        book.meter.take(step, record.time, values)
        iterations, evals = book.rows.settled()
        for row in iterations:
            self._add(*_placed(row, book), book)
            book.losses = book.losses or "loss" in row
        for row in evals:
            self._add("eval_steps", row, book)

    def _artifact(self, record: ArtifactRecord, step: int, book: JsonState) -> None:
        timestamp = iso(record.time)
        if record.type not in CHECKPOINT_TYPES:
            files = msgspec.to_builtins(record.files)
            more = {"metadata": record.metadata} if record.metadata else {}
            named = {"iter": step, "name": record.name, "type": record.type, "files": files, **more}
            self._add("artifacts", {**named, "timestamp": timestamp}, book)
            return
        first = record.files[0] if record.files else None
        stored = (first.uri or str(self._info.path(first.file))) if first else record.name
        loss = record.metadata.get("val_loss", book.rows.val_loss)  # null where nothing was evaluated yet
        item = {"iter": record.metadata.get("iter", step), "val_loss": loss}
        item.update(path=record.metadata.get("path", stored), name=record.name, timestamp=timestamp)
        self._add("checkpoints", item, book)

    def _add(self, name: str, item: dict[str, Any], book: JsonState) -> None:
        _fold(book.totals, name, item)
        if not (self._evals_only and name in ("training_iterations", "samples")):
            self._lists.add(name, item)

    def _save_if_due(self) -> None:
        if not self._changed:
            return
        size = sum(self._book.lengths.values())
        grown = size >= self._saved_bytes * GROWTH
        late = self.clock() - self._saved_at >= SAVE_S
        rows = self._book.totals.rows + len(self._book.rows.iterations)
        if (late and (grown or size < SMALL_BYTES)) or (
            grown and self._every and rows - self._saved_rows >= self._every
        ):
            self._save(None)

    def _save(self, status: Status | None) -> None:
        replace(self._path, self._temporary, self._pieces(status), self._directory, self._digests)
        self._state[DIGESTS] = dict(self._digests)
        self._saved_at, self._saved_bytes = self.clock(), sum(self._book.lengths.values())
        self._saved_rows = self._book.totals.rows + len(self._book.rows.iterations)
        self._changed = False

    def _pieces(self, status: Status | None) -> Any:
        """The log as it is now: rows that may still grow are part of it."""
        book = self._book
        rows, totals = copy.deepcopy(book.rows), copy.copy(book.totals)
        iterations, evals = rows.settled(everything=True)
        waiting: dict[str, list[dict[str, Any]]] = {"eval_steps": evals}
        for name, row in (_placed(row, book) for row in iterations):
            waiting.setdefault(name, []).append(row)
        for name, items in waiting.items():
            for item in items:
                _fold(totals, name, item)
        if self._evals_only:
            waiting = {"eval_steps": evals}
        ended = status is not None and status.name != "running"
        head = self._head(status if ended else None)
        head["names"] = rows.names  # so that a reader can give back what was logged
        settings = dict(flatten(head["config"], "."))
        speed = figures(copy.deepcopy(book.meter), settings, book.results, book.world_size or None)
        reckoned = totals.summary(
            1 / speed.steps_per_s if speed.steps_per_s else None,
            self._steps(waiting.get("training_iterations", [])) if totals.repeats else None,
        )
        if own := [name for name in reckoned if name in book.results]:
            head["results"] = own  # set by the run: the summary has these in place of what the log reckons
        summary = {
            **reckoned,
            **{lent(name): value for name, value in book.results.items()},
            "status": status.name if status and ended else "running",
        }
        if status and ended and status.exit_code is not None:
            summary["exit_code"] = status.exit_code
        if status and ended and status.reason:
            summary["reason"] = status.reason
        return self._lists.pieces(head, {"metadata": self._metadata(book), "summary": summary}, waiting)

    def _head(self, status: Status | None) -> dict[str, Any]:
        """What the run is. status: how it ended, if it has."""
        book, info = self._book, self._info
        head: dict[str, Any] = {"run_name": book.attributes.get("name", info.name), "run_id": info.id}
        head.update(project=info.project, group=book.attributes.get("group", info.group))
        head["tags"] = book.attributes.get("tags", info.tags)
        head["notes"] = book.attributes.get("notes", info.notes)
        head["start_time"] = iso(info.created)
        head["utc_offset"] = datetime.fromtimestamp(info.created).astimezone().isoformat(timespec="seconds")[19:]
        head["end_time"] = iso(status.time or book.time or info.created) if status else None
        head["config"] = book.config or info.config
        return head

    def _steps(self, waiting: Iterable[dict[str, Any]]) -> int | None:
        """At how many steps the loss was logged, in the lists and in rows that wait; None where they aren't kept."""
        if self._evals_only:
            return None
        rows = [(row["iter"], row.get("loss") is not None)
                for row in chain(self._lists.items("training_iterations"), waiting)]  # fmt: skip
        return len({step for step, has_loss in rows if has_loss} or {step for step, _ in rows})

    def _metadata(self, book: JsonState) -> dict[str, Any]:
        info = self._info
        metadata: dict[str, Any] = {"world_size": book.world_size or 1, **starts(book.begun, book.worlds)}
        for source in (book.environment, book.config or info.config):
            leaves: dict[str, Any] = {}
            for path, value in flatten(source):
                leaves.setdefault(path.rpartition("/")[2], value)
            metadata.update({name: leaves[name] for name in METADATA_NAMES if name in leaves})
        known = {"host": info.host, "user": info.user, "python": info.python, "cwd": info.cwd, "git": info.git}
        metadata.update({name: value for name, value in known.items() if value})
        if info.program or info.argv:
            metadata["command"] = [info.program, *info.argv] if info.program not in info.argv else info.argv
        if book.environment:
            metadata["environment"] = book.environment
        return metadata


_INFINITY = float("inf")


def _placed(row: dict[str, Any], book: JsonState) -> tuple[str, dict[str, Any]]:
    """A row of training values with its list's name: once a run has losses, an iteration is what has one."""
    losses = book.losses or any("loss" in other.values for other in book.rows.iterations)
    return ("samples", row) if losses and "loss" not in row else ("training_iterations", with_all_keys(row))


def _logged(rows: Iterable[Mapping[str, Any]], names: Mapping[str, str]) -> Iterator[tuple[float, int, dict[str, Any]]]:
    """Time, step and values of rows, by the names that the values were logged by."""
    for row in rows:
        evaluation = "timestamp" in row and "time" not in row
        own = row.get("logged")
        own = own if isinstance(own, dict) else {}
        known = {"time_ms": "", **names, **own}
        values = {}
        for key, value in row.items():
            name = known.get(key, key)
            repeated = evaluation and key in ("train_loss", "lr") and key not in own
            if name and value is not None and not repeated and key not in ("iter", "time", "timestamp", "logged"):
                values[name] = value
        yield datetime.fromisoformat(row["timestamp"]).timestamp() if evaluation else row["time"], row["iter"], values


def _fold(totals: IterationTotals, name: str, item: Mapping[str, Any]) -> None:
    if name == "training_iterations":
        totals.add_iteration(item)
    elif name == "eval_steps":
        totals.add_eval(item)
    elif name == "checkpoints":
        totals.checkpoints += 1


def _is_log_of(path: Path, info: RunInfo, directory: Path) -> bool:
    try:
        with confined.open_file(path, root=directory) as log:
            return f'"run_id": {msgspec.json.encode(info.id).decode()},'.encode() in log.read(HEAD_BYTES)
    except OSError:
        return False
