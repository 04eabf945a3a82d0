"""Watches a run for alerts while the relay works: follows the journal's streams, applies rules, writes their alerts.

An alert of a rule is an ``Alert`` record in the stream ``alerts-0.<attempt>``, so that every tracker gets it. Each has
a key from the rule and the record at which its condition began to hold, and a key is written once: the watch that
follows a killed one continues from its last state, finds the same alerts again, and skips those in the stream. Rules
use the times of records, not the clock, so that both find the same; only ``stall`` uses the clock, and its key is the
record after which nothing came.

All alerts, those of ``run.alert`` too, are appended to ``alerts.jsonl``, for the process that sends them
(:mod:`trackers.relay.alerting.sender`).
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from trackers import records
from trackers.alerts import rules, windows
from trackers.alerts.rules import Rule
from trackers.errors import UNDECODABLE, did_you_mean, examples
from trackers.journal.run_directory import RunDirectory, StreamName, read_small, replace_file
from trackers.journal.stream import StreamReader, StreamWriter
from trackers.metrics.roles import direction
from trackers.records import Alert, Finish, Media, Metrics, Record, Start, Summary, Text, final_name
from trackers.relay.alerting.files import OutboxEntry, alert_id, digest, outbox, read_outbox
from trackers.relay.parts.part import TRAINING, RelayMoment, RelayPart
from trackers.support import confined, run_requests
from trackers.support.failpoints import failpoint
from trackers.support.redaction import mask_source
from trackers.tracker import RunInfo

WRITER = "alerts"
"""The kind of stream that alerts of rules are in."""
LOOK_S = 0.5
"""Time between two reads of the streams, in seconds."""
SAVE_S = 10.0
"""Maximum time between two writes of the watch's state, in seconds."""
TURN_RECORDS = 5000
"""Maximum records read from one stream at a time while training runs."""
MOST_ALERTS = 1000
"""Maximum number of alerts that rules raise in a run, and of those that are sent."""
MOST_WATCHED = 5000
"""Maximum number of metrics that patterns are followed for."""
_TRAINING = ("rank", "reducer")


class Seen(msgspec.Struct, omit_defaults=True):
    """A metric for which a rule's condition holds. since, key: since when, and at which record it began."""

    since: float
    key: str
    fired: bool = False


class Best(msgspec.Struct, omit_defaults=True):
    """The best value of a metric so far. since: number of values after it."""

    value: float
    since: int = 0


class Fired(msgspec.Struct, omit_defaults=True):
    """Alerts of a rule. time: of the newest. held: number held back since; last …: the newest of those."""

    count: int = 0
    time: float = 0.0
    held: int = 0
    last: str = ""
    last_step: int | None = None
    last_key: str = ""
    last_time: float = 0.0


class Last(msgspec.Struct, omit_defaults=True):
    """Time, id and step of a record."""

    time: float
    id: str
    step: int | None = None


class WatchState(msgspec.Struct, omit_defaults=True):
    """State of a watch. offsets: by stream. seen: by rule and metric, where the condition holds. best: of plateaus.
    windows: by metric, the last values that are finite; by pattern, those of the newest record. met: rules that matched
    a metric. fired: by rule. last: by attempt, training's last record. over: attempts that have ended.
    """

    offsets: dict[str, int] = {}
    seen: dict[str, dict[str, Seen]] = {}
    best: dict[str, dict[str, Best]] = {}
    windows: dict[str, list[float]] = {}
    met: list[str] = []
    fired: dict[str, Fired] = {}
    last: dict[str, Last] = {}
    over: list[str] = []


def has_alerts(info: RunInfo) -> bool:
    """Whether a run has rules, or destinations for its alerts."""
    return bool(info.option("TRACKER_ALERTS") or info.option("TRACKER_ALERT_TO"))


class AlertWatch(RelayPart):
    """Watches one run. Only the process with the relay's lease may do so.

    Args:
        attempt: the running one; alerts are written to its stream.
        say: called with one line for the user.
    """

    name = "alerts"

    def __init__(self, run: RunDirectory, info: RunInfo, attempt: int, say: Callable[[str], None]) -> None:
        self._run = run
        self._attempt = attempt
        self._say = say
        self._state_path = run.path / "alerts.state.json"
        self._rules: tuple[Rule, ...] = ()
        try:
            self._rules = rules.parse(str(info.option("TRACKER_ALERTS", "")))
        except ValueError as error:
            say(f"TRACKER_ALERTS: {error}: no rule is watched")
        self._run_id = info.id
        self._lengths: dict[str, int] = {}
        for rule in self._rules:
            for side in filter(None, (rule.left, rule.right)):
                for name, length in windows.lengths(side).items():
                    self._lengths[name] = max(self._lengths.get(name, 0), length)
        self._readers: dict[str, StreamReader] = {}
        self._matching: dict[str, tuple[Rule, ...]] = {}
        self._unwritten: list[bytes] = []
        self._unsent: list[bytes] = []
        self._writer: StreamWriter | None = None
        self._look_at = self._saved_at = 0.0
        self._is_dirty = False
        entries, self._outbox_is_whole = read_outbox(run)
        self._forwarded = {entry.id for entry in entries}
        self._state = self._read_state()
        self._keys = self._read_keys()

    def poll(self, moment: RelayMoment = TRAINING) -> None:
        """Process new records."""
        now = time.monotonic()
        if moment.phase != "training" or now < self._look_at:
            return
        self._look_at = now + LOOK_S
        self._write_lines()
        self._flush()
        if self._read(TURN_RECORDS):
            self._tick(time.time())
        if self._is_dirty and now - self._saved_at >= SAVE_S:
            self._save()

    def ended(self, finish: Finish) -> None:
        """The attempt is over: process the rest, and raise alerts of its end. May be called again with another end."""
        self._read(None)
        for rule in self._rules:
            if rule.kind == finish.status:
                code = f"exit code {finish.exit_code}" if finish.exit_code is not None else ""
                text = "; ".join(filter(None, (finish.reason, code)))
                last = self._state.last.get(str(self._attempt))
                step = last.step if last is not None else None
                self._raise(rule, f"run {finish.status}", text, finish.time, step, f"end.{self._attempt}")
            self._raise_summary(rule, finish.time)
        if str(self._attempt) not in self._state.over:
            self._state.over.append(str(self._attempt))
            self._warn_unmatched()
        self._save()

    def close(self) -> None:
        """Save the state, and release the stream."""
        if self._is_dirty:
            self._save()
        if self._writer is not None:
            self._writer.release()
            self._writer = None

    def _read(self, limit: int | None) -> bool:
        """Process new records, at most ``limit`` of each stream. True if there are no more."""
        complete = True
        for name in self._run.stream_names():
            if name.writer not in ("console", WRITER):
                try:
                    complete = self._read_stream(name, limit) and complete
                except OSError:  # a file server doesn't answer: the next read may
                    complete = False
        return complete

    def _read_stream(self, name: StreamName, limit: int | None) -> bool:
        reader = self._reader(str(name))
        left = limit
        while left is None or left > 0:
            if reader.size() == reader.offset:
                return True
            block = reader.read(TURN_RECORDS)
            if reader.cut:  # the file was replaced: records read again raise nothing again
                reader.offset = 0
                continue
            if not block:
                return True
            for record in block:
                self._process(name, record)
            self._state.offsets[str(name)] = reader.offset
            self._is_dirty = True
            left = None if left is None else left - len(block)
        return False

    def _process(self, name: StreamName, record: Record) -> None:
        match record:
            case Metrics():
                self._compare(record, record.values)
            case Summary():
                numbers = {final_name(name): n for name, n in record.values.items() if type(n) in (int, float)}
                self._compare(record, numbers)
            case Alert():
                self._forward(record)
        if name.writer in _TRAINING and isinstance(record, (Metrics, Text, Media, Start)):
            self._note_progress(name, record)

    def _compare(self, record: Record, values: dict[str, records.Number]) -> None:
        hits: dict[str, tuple[Rule, list[str], str]] = {}
        across: dict[str, dict[str, float]] = {}
        for metric, number in values.items():
            matching = self._matching.get(metric)
            if matching is None:
                matching = self._match(metric)
            for rule in matching:
                if rule.kind == "windows":
                    for pattern in rule.names if math.isfinite(_float(number)) else ():
                        if not self._lengths[pattern] and fnmatchcase(metric, pattern):
                            across.setdefault(pattern, {})[metric] = _float(number)
                    continue
                if rule.kind == "plateau":
                    text = self._plateau(rule, metric, _float(number))
                    if text:
                        hits.setdefault(rule.text, (rule, [], f"{record.id}:{metric}"))[1].append(text)
                    continue
                of_rule = self._state.seen.setdefault(rule.text, {})
                seen = of_rule.get(metric)
                value = _float(number)
                if not rule.holds(value, seen is not None):
                    of_rule.pop(metric, None)
                    continue
                if seen is None:
                    seen = of_rule[metric] = Seen(record.time, record.id)
                if not seen.fired and record.time - seen.since >= rule.hold_s:
                    seen.fired = True
                    shown = f"{metric} = {value:.6g}"
                    hits.setdefault(rule.text, (rule, [], f"{seen.key}:{metric}"))[1].append(shown)
            self._fill_window(metric, _float(number))
        self._state.windows.update((pattern, list(found.values())) for pattern, found in across.items())
        filled = values.keys() | across.keys()
        for rule in self._rules:
            if rule.kind == "windows" and not filled.isdisjoint(rule.names):
                self._compare_windows(rule, record, hits)
        for rule, shown_values, anchor in hits.values():
            duration = f" for {_time(rule.hold_s)}" if rule.hold_s else ""
            self._raise(rule, rule.text, examples(shown_values, 5) + duration, record.time, record.step, anchor)

    def _fill_window(self, metric: str, value: float) -> None:
        length = self._lengths.get(metric, 0)
        if length and math.isfinite(value):
            window = self._state.windows.setdefault(metric, [])
            window.append(value)
            if len(window) >= 2 * length:  # not with each value: a window may be long
                del window[:-length]

    def _compare_windows(self, rule: Rule, record: Record, hits: dict[str, Any]) -> None:
        left, right = (windows.value(side, self._state.windows) for side in (rule.left, rule.right))
        of_rule = self._state.seen.setdefault(rule.text, {})
        if left is None or right is None or not rules.OPERATORS[rule.sign](left, right):
            of_rule.pop("", None)
            return
        seen = of_rule.get("")
        if seen is None:
            seen = of_rule[""] = Seen(record.time, record.id)
        if not seen.fired and record.time - seen.since >= rule.hold_s:
            seen.fired = True
            shown = [
                f"{windows.text(side)} = {value:.6g}"
                for side, value in ((rule.left, left), (rule.right, right))
                if side[0] != "number"
            ]
            hits[rule.text] = (rule, shown, seen.key)

    def _plateau(self, rule: Rule, metric: str, value: float) -> str:
        """Count a value. Returns the alert's text once the rule's number of values have no new best, else ""."""
        falls = (rule.sign or direction(metric) or "min") == "min"
        bests = self._state.best.setdefault(rule.text, {})
        best = bests.get(metric)
        if best is None or (value < best.value if falls else value > best.value):
            if math.isfinite(value):
                bests[metric] = Best(value)
            return ""
        best.since += 1
        side = "below" if falls else "above"
        return f"{metric}: none of {best.since:,} values is {side} {best.value:.6g}" if best.since == rule.value else ""

    def _match(self, metric: str) -> tuple[Rule, ...]:
        matching = tuple(rule for rule in self._rules if rule.names and rule.matches(metric))
        if len(self._matching) >= MOST_WATCHED:
            return ()
        self._matching[metric] = matching
        self._state.met.extend(rule.text for rule in matching if rule.text not in self._state.met)
        return matching

    def _note_progress(self, name: StreamName, record: Record) -> None:
        """Note training's newest record, and check for a stall before it."""
        attempt = str(name.attempt)
        last = self._state.last.get(attempt)
        if last is not None and record.time < last.time:
            return
        if last is not None:
            self._check_stalls(attempt, last, record.time, over=True)
        step = record.step if record.step is not None or last is None else last.step
        self._state.last[attempt] = Last(record.time, record.id, step)

    def _tick(self, now: float) -> None:
        attempt = str(self._attempt)
        last = self._state.last.get(attempt)
        if last is not None and attempt not in self._state.over:
            self._check_stalls(attempt, last, now, over=False)
        for rule in self._rules:
            fired = self._state.fired.get(rule.text)
            if fired is not None and fired.held and now - fired.time >= rule.every_s:
                self._raise_summary(rule, fired.last_time)

    def _check_stalls(self, attempt: str, last: Last, now: float, over: bool) -> None:
        for rule in self._rules:
            if rule.kind == "stall" and now - last.time >= rule.hold_s:
                text = f"no training record for {_time(rule.hold_s)}"
                if over:
                    text = f"no training record for {_time(now - last.time)}; training goes on"
                self._raise(rule, rule.text, text, last.time + rule.hold_s, last.step, f"{attempt}:{last.id}")

    def _raise(self, rule: Rule, title: str, text: str, at: float, step: int | None, anchor: str) -> None:
        """A rule's condition holds: write an alert, or count it if the rule raised one a short time ago."""
        key = digest(self._run_id, rule.text, anchor)
        if key in self._keys:
            fired = self._state.fired.setdefault(rule.text, Fired())
            fired.time, fired.count, fired.held = max(fired.time, self._keys[key]), max(fired.count, 1), 0
            return
        fired = self._state.fired.setdefault(rule.text, Fired())
        self._is_dirty = True
        if fired.count and at - fired.time < rule.every_s:
            if fired.last_key != key:
                fired.held += 1
                fired.last, fired.last_step, fired.last_key, fired.last_time = text, step, key, at
            return
        if fired.held:
            text = f"{text}; {_times(fired.held)} since the last alert"
            fired.held = 0
        self._write(rule, title, text, at, step, key, fired)

    def _raise_summary(self, rule: Rule, at: float) -> None:
        """Write an alert of how often a rule's condition held since its last alert."""
        fired = self._state.fired.get(rule.text)
        if fired is None or not fired.held:
            return
        text = f"{_times(fired.held)} since the last alert, the last: {fired.last}"
        key = digest(self._run_id, rule.text, f"more.{fired.last_key}")
        fired.held = 0
        if key not in self._keys:
            self._write(rule, rule.text, text, fired.last_time, fired.last_step, key, fired)

    def _write(self, rule: Rule, title: str, text: str, at: float, step: int | None, key: str, fired: Fired) -> None:
        if len(self._keys) >= MOST_ALERTS:
            return
        fired.count, fired.time = fired.count + 1, at
        last = len(self._keys) == MOST_ALERTS - 1
        text = mask_source(text) + (f"; this is alert {MOST_ALERTS:,}, the last of this run's rules" if last else "")
        record = Alert(time=at, step=step, title=title, text=text, level=rule.level, rule=rule.text, key=key)
        self._unwritten.append(records.encode(record))
        self._keys[key] = at
        self._write_lines()
        self._forward(record)
        self._ask(rule, record)
        self._save()

    def _ask(self, rule: Rule, record: Alert) -> None:
        """Ask the run to do what the rule says: once for an alert, however often that is found again."""
        if not rule.actions:
            return
        asked = run_requests.Request(
            id=record.key, time=time.time(), stop="stop" in rule.actions, checkpoint="checkpoint" in rule.actions,
            reason=record.text, by=f"alert {rule.text}", attempt=self._attempt,
        )  # fmt: skip
        try:
            run_requests.ask(self._run.path, asked)
        except OSError as error:
            self._say(f"the run can't be asked to {' and to '.join(rule.actions)}: {error}")

    def _write_lines(self) -> None:
        """Append unwritten alerts to the stream; what fails is retried later."""
        with contextlib.suppress(OSError):
            while self._unwritten:
                if self._writer is None:
                    self._writer = StreamWriter(self._run.stream(StreamName(WRITER, 0, self._attempt)))
                self._writer.mend(lambda: confined.make_folder(self._run.streams))
                failpoint("alerts.record.before")
                self._writer.write(self._unwritten[0])
                self._unwritten.pop(0)
                failpoint("alerts.record.after")

    def _forward(self, record: Alert) -> None:
        """Put an alert into the outbox, unless it is there."""
        own_id = alert_id(self._run_id, record)
        if own_id in self._forwarded or len(self._forwarded) >= MOST_ALERTS:
            return
        self._forwarded.add(own_id)
        self._is_dirty = True
        text = record.text
        if len(self._forwarded) == MOST_ALERTS:
            text += f"\nThis is alert {MOST_ALERTS:,}: later ones aren't sent; `trackers alerts` lists them."
        entry = OutboxEntry(own_id, record.time, record.title, text, record.level, record.step, record.rule)
        self._unsent.append(msgspec.json.encode(entry) + b"\n")
        self._flush()

    def _flush(self) -> None:
        """Append unsent alerts to the outbox; if the disk is full, they are retried later."""
        with contextlib.suppress(OSError):
            while self._unsent:
                line = (b"" if self._outbox_is_whole else b"\n") + self._unsent[0]
                with confined.open_file(outbox(self._run), "ab", buffering=0) as file:
                    self._outbox_is_whole = file.write(line) == len(line)
                if self._outbox_is_whole:
                    self._unsent.pop(0)
        failpoint("alerts.outbox.after")

    def _warn_unmatched(self) -> None:
        """Name rules for metrics that the run didn't have: most likely a typing error."""
        known = [name for name in self._matching if not name.startswith("system.")]
        for rule in self._rules:
            if rule.names and rule.text not in self._state.met and known:
                near = did_you_mean(rule.names[0], known, f"; there are {examples(known, 5)}")
                self._say(f"TRACKER_ALERTS: the run had no metric of rule {rule.text!r}{near}")

    def _reader(self, name: str) -> StreamReader:
        if name not in self._readers:
            path = self._run.streams / f"{name}.jsonl"
            self._readers[name] = StreamReader(path, self._state.offsets.get(name, 0))
        return self._readers[name]

    def _read_state(self) -> WatchState:
        with contextlib.suppress(OSError, *UNDECODABLE):
            return msgspec.json.decode(read_small(self._state_path), type=WatchState)
        return WatchState()

    def _read_keys(self) -> dict[str, float]:
        """Keys of the alerts in the journal, with their times."""
        keys: dict[str, float] = {}
        for name in self._run.stream_names():
            if name.writer == WRITER:
                reader = StreamReader(self._run.stream(name))
                while block := reader.read():
                    for record in block:
                        if isinstance(record, Alert):
                            keys[record.key] = record.time
                            self._forward(record)
        return keys

    def _save(self) -> None:
        self._saved_at = time.monotonic()
        if self._unwritten or self._unsent or not (self._writer is None or self._writer.retry(force=True)):
            return  # a state ahead of the stream would lose alerts
        self._is_dirty = False
        with contextlib.suppress(OSError):  # a full disk: the same alerts are found again
            replace_file(self._state_path, msgspec.json.encode(self._state))


def _float(number: records.Number) -> float:
    try:
        return float(number)
    except OverflowError:  # an integer of hundreds of digits
        return math.inf if number > 0 else -math.inf


def _times(count: int) -> str:
    return f"{count:,} more time" + ("s" if count != 1 else "")


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:g} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
