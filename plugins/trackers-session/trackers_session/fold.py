"""A session as a fold over its run's records: lines for its logs, entries for its summary, totals.

A step's values come in several records, some late; here is also chosen which steps get a line.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from trackers.benchmark import speed
from trackers.metrics import roles
from trackers.metrics.groups import group_of
from trackers.records import (
    SUMMARY_PREFIX,
    Alert,
    ArtifactRecord,
    Config,
    Environment,
    Finish,
    Info,
    Metrics,
    Number,
    Record,
    Start,
    Summary,
    Text,
    is_sample,
    name_floats,
    plain_name,
    take_results,
)
from trackers.tracker import RunInfo
from trackers_session import files
from trackers_session import log_lines as lines
from trackers_session.facts import SessionFacts, SessionTotals, Snapshots, forced_by, iso, warnings
from trackers_session.files import COMMUNICATION, SNAPSHOTS, TRAINING
from trackers_session.log_lines import MAIN, MULTIGPU, PERFORMANCE, UNKNOWN, PagePosition, Pages
from trackers_session.precheck import SessionSettings

FIRST = 10
"""Number of first steps that get a line each."""
PARTS = 10
"""And each tenth of the run."""
WINDOW = 16
"""Number of newer steps after which a line no longer waits for its loss: values across ranks come late."""
SLOW_S, FEW_SAMPLES = 10.0, 1.0
"""Warnings: a step longer than this, fewer samples in a second."""
LOSSES = (*roles.LOSSES, "train/lm loss")
_UNSHOWN = (roles.BATCH, roles.SAMPLES_COUNTED, roles.TOKENS_COUNTED)
_STEP_NAMES = ("iteration", "step", "iter", "global_step")
RATES = ("learning_rate", "lr", "learning-rate", "train/learning_rate", "train/lr")
TIMED = "communication/"


class LinesDue(msgspec.Struct):
    """The lines that a step gets."""

    main: bool = False
    multigpu: bool = False
    performance: bool = False

    @property
    def any(self) -> bool:
        """It gets one."""
        return self.main or self.multigpu or self.performance


class StepRow(msgspec.Struct):
    """A step that gets a line. age: newer steps seen since."""

    step: int
    time: float
    due: LinesDue
    values: dict[str, Number] = {}
    age: int = 0

    def loss(self) -> tuple[str, Number] | None:
        """Its loss, and the name it was logged by."""
        return next(((name, self.values[name]) for name in LOSSES if name in self.values), None)


class StepTime(msgspec.Struct):
    """A step, and when it was logged."""

    step: int
    time: float


class StepSums(msgspec.Struct):
    """Sums over the steps since a line. time_s: the sum of step times, of which there are ``count``."""

    since: StepTime | None = None
    time_s: float = 0.0
    count: int = 0

    def step_s(self, step: int, time: float) -> float | None:
        """Seconds of a step: measured, else by the clock between two lines; None without either."""
        if self.count:
            return self.time_s / self.count
        return between(self.since, step, time)

    def begin(self, step: int, time: float) -> None:
        """A line was written."""
        self.since, self.time_s, self.count = StepTime(step, time), 0.0, 0


class LineSteps(msgspec.Struct):
    """The steps of one attempt, as far as lines matter.

    top: the newest step. rate, batch: samples/s and samples of a step as last logged.
    """

    rows: list[StepRow] = []
    top: int | None = None
    line: StepTime | None = None
    pace: StepSums = msgspec.field(default_factory=StepSums)
    rate: float | None = None
    batch: float | None = None

    def add(
        self, step: int, time: float, values: Mapping[str, Number], settings: SessionSettings, total: int | None
    ) -> None:
        """Take what was logged of training at a step."""
        if self.line is None:
            self.line = StepTime(step, time)
            self.pace.begin(step, time)
        if self.top is None or step > self.top:
            for row in self.rows:
                row.age += 1
            due = due_at(step, self.top, settings, total)
            self.top = step
            if due.any:
                self.rows.append(StepRow(step, time, due))
        for row in reversed(self.rows):
            if row.step == step:
                row.values.update(values)
                break
        for name, value in values.items():
            role = roles.role_of(name)
            if role is not None and value == value and value > 0:
                self._measured(role.kind, float(value) * role.factor)

    def _measured(self, kind: str, value: float) -> None:
        if kind == roles.STEP_TIME:
            self.pace.time_s += value
            self.pace.count += 1
        elif kind == roles.SAMPLES:
            self.rate = value
        elif kind == roles.BATCH:
            self.batch = value

    def ready(self, everything: bool = False, aged: int = 1) -> list[StepRow]:
        """Take out the rows that no later record is waited for.

        Args:
            aged: how many newer steps a row with its loss has to see.
        """
        count = len(self.rows) if everything else 0
        for number, row in enumerate(self.rows[count:], 1):
            if row.age >= WINDOW or (row.age >= aged and row.loss() is not None):
                count = number
        ready = self.rows[:count]
        del self.rows[:count]
        return ready


def due_at(step: int, before: int | None, settings: SessionSettings, total: int | None) -> LinesDue:
    """The lines of a step, where ``before`` is the newest step so far: at it, or where it went past one that is due."""
    last = max(0, step - 1 if before is None else before)
    tenth = total is not None and step * PARTS // total > last * PARTS // total
    return LinesDue(
        main=step <= FIRST or tenth or _passed(step, last, settings.log_steps) or settings.training_level <= 10,
        multigpu=_passed(step, last, settings.multigpu_steps) or settings.multigpu_level <= 10,
        performance=_passed(step, last, settings.performance_steps),
    )


def _passed(step: int, last: int, every: int) -> bool:
    return step // every > last // every


def between(start: StepTime | None, step: int, time: float) -> float | None:
    """Seconds per step since ``start``; None where no time has passed, or no step."""
    if start is None or step <= start.step or time <= start.time:
        return None
    return (time - start.time) / (step - start.step)


@lru_cache(maxsize=20_000)
def kind_of(name: str) -> str:
    """What a metric is to these logs: loss, rate, evaluation, communication, hardware or training."""
    if name in LOSSES:
        return "loss"
    if name in RATES:
        return "rate"
    if name.startswith(TIMED):
        return "communication"
    if name.endswith("-time"):  # a timer's: evaluation-time is no result of an evaluation
        return "training"
    group = group_of(name)
    return {"validation": "evaluation", "gpu": "hardware", "system": "hardware"}.get(group, "training")


def line_details(row: StepRow, step_s: float | None, batch: float | None) -> dict[str, Any]:
    """The values on the line below a step: its time and rate, logged or calculated, then all other logged ones."""
    details: dict[str, Any] = {}
    rest: dict[str, Any] = {}
    for name, value in row.values.items():
        role = roles.role_of(name)
        kind = role.kind if role is not None else ""
        if kind == roles.STEP_TIME and role is not None and "step_duration" not in details:
            details["step_duration"] = value * role.factor
        elif kind == roles.SAMPLES and "samples_per_second" not in details:
            details["samples_per_second"] = value
        elif kind_of(name) == "training" and kind not in _UNSHOWN and name not in _STEP_NAMES:
            rest[name] = value
    step_s = details.get("step_duration", step_s)
    if step_s is not None:
        details.setdefault("step_duration", step_s)
        if batch is not None and step_s > 0:
            details.setdefault("samples_per_second", batch / step_s)
    order = ("step_duration", "samples_per_second")
    return {**{name: details[name] for name in order if name in details}, **rest}


def slow(step_s: Any, samples: Any) -> list[str]:
    """Warnings of a step's time in seconds, and of its samples in a second, where they are known."""
    texts = []
    if isinstance(step_s, (int, float)) and step_s > SLOW_S:
        texts.append(f"Slow training detected: {step_s:.1f}s per step")
    if isinstance(samples, (int, float)) and 0 <= samples < FEW_SAMPLES:
        texts.append(f"Low throughput: {samples:.2f} samples/s")
    return texts


HEAD_S = 5.0
"""Maximum wait of a log's head for the sampler's list of GPUs, in seconds."""
ALERTS = {"WARN": logging.WARNING, "WARNING": logging.WARNING, "ERROR": logging.ERROR}


class Evaluation(msgspec.Struct):
    """An evaluation whose block isn't written yet: its values may come in several records."""

    step: int | None
    values: dict[str, Number]


class SessionState(msgspec.Struct):
    """What a new process must know to go on.

    attempt: the newest. since: when it began. told: lines of its head so far. finish: how it ended, by its own word.
    ended: the ending that the main log has. meter: what speed is made of. begun: attempts, and when each began;
    worlds: on how many ranks.
    """

    attempt: int = 0
    since: float = 0.0
    told: list[str] = []
    place: PagePosition = msgspec.field(default_factory=PagePosition)
    finish: Finish | None = None
    ended: str = ""
    seq: int = 0
    facts: SessionFacts = msgspec.field(default_factory=SessionFacts)
    steps: LineSteps = msgspec.field(default_factory=LineSteps)
    evaluation: Evaluation | None = None
    meter: speed.Meter = msgspec.field(default_factory=speed.Meter)
    begun: list[tuple[int, float]] = []
    worlds: list[int] = []
    snapshots: Snapshots = msgspec.field(default_factory=Snapshots)
    totals: SessionTotals = msgspec.field(default_factory=SessionTotals)
    attributes: dict[str, Any] = {}

    def speed(self) -> speed.Speed:
        """How fast training was so far."""
        facts = self.facts
        return speed.figures(copy.deepcopy(self.meter), facts.settings, self.totals.results, facts.gpus_that_train)


class SessionFold:
    """Takes records, and keeps what is to be written in ``pages.texts`` (by log) and ``items`` (list and entry)."""

    def __init__(self, name: str, info: RunInfo, settings: SessionSettings, book: SessionState) -> None:
        self.book = book
        self.pages = Pages(book.place, settings)
        self.items: list[tuple[str, dict[str, Any]]] = []
        self._name = name
        self._info = info
        self._settings = settings
        book.facts.flagged = forced_by(info.argv)
        book.facts.scope_is_job = info.option("TRACKER_GPU_SCOPE", "job") != "node"

    def take(self, record: Record) -> None:
        """Fold one record in."""
        book = self.book
        if not book.since:
            book.since = record.time
        book.totals.began = min(book.totals.began or record.time, record.time)
        book.totals.ended = max(book.totals.ended, record.time)
        match record:
            case Metrics():
                self._metrics(record)
            case Start():
                if not record.id.startswith(("sampler-", "node-", "reducer-")):
                    self._start(record)
            case Config() | Environment():
                book.facts.learn(record)
                self._write_head(record.time)
            case Text():
                self._text(record)
            case Summary():
                take_results(book.totals.results, msgspec.structs.replace(record, values=name_floats(record.values)))
            case Alert():
                self._alert(record)
            case ArtifactRecord():
                for row in book.steps.ready(aged=0):
                    self._row(row)
                self.pages.say(MAIN, record.time, logging.INFO, f"Saved {record.type}: {record.name}")
            case Info():
                book.attributes.update(record.changes())
            case Finish():
                self._finish(record)
        if book.place.waiting and record.time - book.since >= HEAD_S:
            self.release()

    @property
    def batch(self) -> float | None:
        """Samples of one step, of all processes; None where it would be a guess."""
        facts = self.book.facts
        return speed.batch(self.book.meter, facts.settings, facts.gpus_that_train)

    def flush(self, everything: bool = True) -> None:
        """Write the lines of steps and of an evaluation that nothing more is waited for."""
        for row in self.book.steps.ready(everything):
            self._row(row)
        if everything:
            self._evaluated()

    def release(self) -> None:
        """Write the head of the logs, with what is known by now, and what was held back for it."""
        book = self.book
        if not book.place.waiting:
            return
        waiting = self.pages.release()
        began = book.since or self._info.created
        again = f" (attempt {book.attempt})" if book.attempt > 1 else ""
        self.pages.say(MAIN, began, logging.INFO, f"🚀 TRAINING SESSION {'CONTINUED' if again else 'STARTED'}{again}")
        self.pages.say(MAIN, began, logging.INFO, f"Session ID: {self._name}")
        self._write_head(began, first=True)
        self.pages.follow(waiting, book.facts.step_word)

    def end(self, status: str, reason: str, exit_code: int | None, time: float) -> None:
        """Write how an attempt ended, unless that is written."""
        book = self.book
        word = f"{book.attempt} {status}"
        if status == "running" or book.ended == word:
            return
        self.flush()
        self.release()
        book.ended = word
        level, sign = {
            "finished": (logging.INFO, "✅"),
            "preempted": (logging.WARNING, "⏸"),
            "stopped": (logging.WARNING, "⏹"),
        }.get(status, (logging.ERROR, "❌"))
        why = f": {reason}" if reason else f" (exit code {exit_code})" if exit_code else ""
        self.pages.blank()
        self.pages.say(MAIN, time, level, f"{sign} TRAINING SESSION {status.upper()}{why}")
        if time > book.totals.began:
            self.pages.say(MAIN, time, logging.INFO, f"Duration: {lines.duration(time - book.totals.began)}")

    def nccl(self, nccl_lines: list[str]) -> None:
        """Take lines that NCCL wrote."""
        for line in nccl_lines:
            text = lines.clean(line)
            level = files.nccl_level(line)
            self.pages.add(MULTIGPU, level, text)
            trouble = files.nccl_timeout(line) if level >= logging.WARNING else ""
            if trouble:
                self._warn(MULTIGPU, self.book.totals.ended, trouble)

    def _start(self, record: Start) -> None:
        book = self.book
        if book.begun:
            self.flush()
            self.release()
            if book.finish is not None:
                self.end(book.finish.status, book.finish.reason, book.finish.exit_code, book.finish.time)
            self.pages.blank()
            book.facts.restart()
            book.steps = LineSteps(top=record.from_step)
            book.told, book.finish, book.since = [], None, record.time
            self.pages.hold_back()
        book.attempt = record.attempt
        book.begun.append((record.attempt, record.time))
        book.worlds.append(record.world_size)
        book.meter.start(record.attempt, record.world_size)
        book.facts.rank, book.facts.processes = record.rank or 0, max(1, record.world_size)
        if record.from_step is not None and record.attempt > 1:
            text = f"Goes back to step {record.from_step}: what was logged above it counts no more"
            self.pages.say(MAIN, record.time, logging.WARNING, text)
        if book.facts.processes > 1:
            self._event(record.time, "training_start")
        if not self._settings.sampled:
            self.release()

    def _event(self, time: float, operation: str) -> None:
        rank = self.book.facts.rank
        self.pages.say(MULTIGPU, time, logging.INFO, lines.communication_line(operation, rank))
        self.book.totals.count(operation, 1, None, None)
        entry = {"timestamp": iso(time), "operation": operation, "process_rank": rank, "count": 1}
        self.items.append((COMMUNICATION, {**entry, "data_size_mb": None, "duration_ms": None}))

    def _write_head(self, time: float, first: bool = False) -> None:
        """Write the lines of the head that weren't written yet."""
        book = self.book
        if book.place.waiting:
            if book.facts.gpus is not None:
                self.release()
            return
        for log, head in ((MAIN, book.facts.head()), (MULTIGPU, book.facts.multigpu())):
            fresh = [line for line in head if f"{log} {line}" not in book.told]
            book.told.extend(f"{log} {line}" for line in fresh)
            if log == MAIN and fresh and not first:
                self.pages.blank()
            for line in fresh:
                self.pages.say(log, time, logging.INFO, line)
        block = book.facts.block()
        if block and f"block {block}" not in book.told:
            book.told.append(f"block {block}")
            self.pages.block(block)

    def _metrics(self, record: Metrics) -> None:
        if is_sample(record):
            if record.step is None:
                self._snapshot(record)
            return
        values = {}
        for name, value in record.values.items():
            if name.startswith(SUMMARY_PREFIX):
                self.book.totals.results[plain_name(name)] = name_floats(value)
            else:
                values[name] = value
        if not values:
            return
        kinds: dict[str, dict[str, Number]] = {}
        for name, value in values.items():
            kinds.setdefault(kind_of(name), {})[name] = value
        self._entry(record, values, kinds)
        if record.step is not None:
            self.book.meter.take(record.step, record.time, values)
        training = {**kinds.get("loss", {}), **kinds.get("rate", {}), **kinds.get("training", {})}
        evaluation = kinds.get("evaluation", {})
        if TIMED.rstrip("/") in kinds:
            self._communication(record, kinds[TIMED.rstrip("/")])
        if record.step is not None and (training or not evaluation):
            self._training(record.step, record.time, training)
        if evaluation:
            self._evaluate(record.step, evaluation)

    def _entry(self, record: Metrics, values: dict[str, Number], kinds: Mapping[str, Mapping[str, Number]]) -> None:
        """An entry of ``training_metrics``: everything, the loss and the learning rate apart."""
        totals = self.book.totals
        rest = dict(values)
        entry: dict[str, Any] = {"step": record.step, "loss": None, "learning_rate": None}
        for field, kind in (("loss", "loss"), ("learning_rate", "rate")):
            name = next(iter(kinds.get(kind, ())), None)
            if name is not None and totals.names.setdefault(field, name) in rest:
                entry[field] = rest.pop(totals.names[field])
        if entry["loss"] is not None:
            totals.loss = entry["loss"]
        totals.rows += 1
        entry["timestamp"] = iso(record.time)
        entry["process_rank"] = self.book.facts.rank
        entry["metrics"] = rest
        self.items.append((TRAINING, entry))

    def _training(self, step: int, time: float, values: dict[str, Number]) -> None:
        book = self.book
        steps, totals = book.steps, book.totals
        newest = steps.top is None or step > steps.top
        steps.add(step, time, values, self._settings, book.facts.total_steps)
        if not newest:
            return
        if book.evaluation is not None:
            for row in steps.ready():
                self._row(row)
            self._evaluated()
        totals.top = step
        for row in steps.ready():
            self._row(row)

    def _row(self, row: StepRow) -> None:
        """The lines of a step."""
        book, settings = self.book, self._settings
        steps, total = book.steps, book.facts.total_steps
        batch = steps.batch if steps.batch is not None else self.batch
        if row.due.main:
            step_s = between(steps.line, row.step, row.time)
            details = line_details(row, step_s, batch)
            if step_s is None and isinstance(details.get("step_duration"), (int, float)):
                step_s = details["step_duration"] if details["step_duration"] > 0 else None
            steps.line = StepTime(row.step, row.time)
            loss = row.loss()
            rate = next((value for name, value in row.values.items() if kind_of(name) == "rate"), None)
            line = lines.step_line(row.step, total, loss[1] if loss else None, rate, 1 / step_s if step_s else None)
            level = logging.INFO if settings.training_level > logging.DEBUG else logging.DEBUG
            self.pages.add(MAIN, level, *filter(None, (line, lines.metrics_line(details))))
            if not row.due.performance:
                self._slow(row.time, details.get("step_duration", step_s), details.get("samples_per_second"))
        if row.due.multigpu and book.facts.processes > 1:
            facts = book.facts
            word = UNKNOWN if book.place.waiting else facts.step_word
            line = lines.multigpu_step_line(word, row.step, facts.processes, facts.local_rank, facts.rank)
            self.pages.say(MULTIGPU, row.time, logging.INFO, line)
        if row.due.performance:
            step_s = steps.pace.step_s(row.step, row.time)
            throughput = batch / step_s if batch is not None and step_s else steps.rate
            steps.pace.begin(row.step, row.time)
            line = lines.performance_line(row.step, step_s, throughput, batch)
            self.pages.say(PERFORMANCE, row.time, logging.INFO, line)
            self._slow(row.time, step_s, throughput)

    def _slow(self, time: float, step_s: Any, samples: Any) -> None:
        for text in slow(step_s, samples):
            self._warn(PERFORMANCE, time, text)

    def _evaluate(self, step: int | None, values: dict[str, Number]) -> None:
        book = self.book
        waiting = book.evaluation
        if waiting is not None and (waiting.step != step or not waiting.values.keys().isdisjoint(values)):
            self.flush(False)
            self._evaluated()
            waiting = None
        if waiting is None:
            book.evaluation = Evaluation(step, dict(values))
        else:
            waiting.values.update(values)

    def _evaluated(self) -> None:
        evaluation, self.book.evaluation = self.book.evaluation, None
        if evaluation is not None:
            self.book.totals.evaluation.update(evaluation.values)
            self.pages.block(lines.evaluation_lines(evaluation.values))

    def _communication(self, record: Metrics, values: Mapping[str, Number]) -> None:
        if not self._settings.communication:
            return
        book = self.book
        operations: dict[str, dict[str, Number]] = {}
        for name, value in values.items():
            operation, _, field = name[len(TIMED) :].rpartition("/")
            if operation:
                operations.setdefault(operation, {})[field] = value
        for operation, fields in operations.items():
            size, took = fields.get("bytes"), fields.get("duration_ms")
            if size is None and took is None:
                continue
            calls = int(fields.get("count", 1))
            rate = fields.get("bandwidth_mb_per_sec")
            line = lines.communication_line(operation, book.facts.rank, size, took, rate)
            self.pages.say(MULTIGPU, record.time, logging.INFO, line)
            book.totals.count(operation, calls, size, took)
            entry: dict[str, Any] = {"timestamp": iso(record.time), "operation": operation}
            entry.update(process_rank=book.facts.rank, data_size_mb=None if size is None else size / lines.MB)
            entry.update(duration_ms=took, bandwidth_mb_per_sec=rate, count=calls, step=record.step)
            self.items.append((COMMUNICATION, entry))

    def _snapshot(self, record: Metrics) -> None:
        book = self.book
        snapshot = book.snapshots.take(record.time, record.values, book.facts.gpus or {}, self._settings.snapshot_s)
        if snapshot is None:
            return
        self.items.append((SNAPSHOTS, {"timestamp": iso(record.time), **snapshot}))
        for text in warnings(snapshot):
            self._warn(PERFORMANCE, record.time, text)

    def _text(self, record: Text) -> None:
        for name, text in record.values.items():
            if name.startswith(SUMMARY_PREFIX):
                self.book.totals.results[plain_name(name)] = text
            elif is_sample(record) and name.endswith(".throttle"):
                label = name.removeprefix("system.").removeprefix("gpu.").removesuffix(".throttle")
                if text == "none":
                    self.pages.say(PERFORMANCE, record.time, logging.INFO, f"GPU {label} throttled no more")
                else:
                    self._warn(PERFORMANCE, record.time, f"GPU {label} throttled: {text}")
            else:
                self.pages.say(MAIN, record.time, logging.INFO, f"{name}: {text}")

    def _alert(self, record: Alert) -> None:
        text = f"{record.title}: {record.text}" if record.text else record.title
        self.pages.say(MAIN, record.time, ALERTS.get(record.level, logging.INFO), text)
        if trouble := files.nccl_timeout(text):
            self._warn(MULTIGPU, record.time, trouble)

    def _finish(self, record: Finish) -> None:
        first = self.book.finish is None
        self.book.finish = msgspec.structs.replace(record, id="", seq=0)
        if not first or record.status == "finished" or not record.reason:
            return
        if failure := files.nccl_failed_start(record.reason):
            self.pages.say(MULTIGPU, record.time, logging.ERROR, failure)
        elif trouble := files.nccl_timeout(record.reason):
            self._warn(MULTIGPU, record.time, trouble)

    def _warn(self, log: str, time: float, text: str) -> None:
        self.book.totals.warnings += 1
        self.pages.say(log, time, logging.WARNING, text)


def logged(entry: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """What was logged, of an entry of ``training_metrics``."""
    apart = {names[field]: entry[field] for field in names if entry.get(field) is not None}
    return {**apart, **entry["metrics"]}
