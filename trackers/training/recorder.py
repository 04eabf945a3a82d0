"""The journal's side of a run: what a call becomes, and who looks after the disk and the relay meanwhile."""

from __future__ import annotations

import contextlib
import errno
import math
import mmap
import os
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from trackers import errors, records
from trackers.journal.attempts import AttemptHistory
from trackers.journal.messages import printable, show_once
from trackers.journal.run_directory import RunDirectory, replace_file
from trackers.journal.status import last_status
from trackers.journal.stream import RETRY_S, StreamWriter, why_refused
from trackers.metrics.axes import Axes, Positions
from trackers.metrics.definitions import Definition, Definitions
from trackers.metrics.mappings import Mappings
from trackers.metrics.summary import SummaryFold, words_of
from trackers.ranks.contribution import LocalTransport, ReductionRow, Transport, nothing_else
from trackers.records import (
    MAX_STEP,
    ArtifactRecord,
    Config,
    Define,
    Finish,
    Media,
    Metrics,
    Number,
    Record,
    Summary,
    Text,
    plain_name,
)
from trackers.relay.client import RelayClient
from trackers.support import processes
from trackers.support.backlog import Backlog, NotKept
from trackers.support.clock import CLOCKS, monotonic
from trackers.support.interruption import interrupts, pass_on, suppress
from trackers.support.redaction import mask, mask_source, mask_text
from trackers.tracker import RunInfo
from trackers.training.late import say
from trackers.values.coerce import PLAIN_NUMBERS, Split, Unrecordable, read_at_once, whole_step
from trackers.values.device_copy import HeldRecord, PendingRecord, Queue, Transfer, transfer
from trackers.values.wandb_values import converted
from trackers.values.words import by_word

POLL_S = 1.0
"""Interval of checks of disk and relay in a logging process, in seconds; it also prints the relay's messages."""
KNOWN_NAMES = 100_000  # names with ids in them must not fill the memory
READ_CALLS = 64
"""After a call with values that must be read, so many others aren't tried as plain numbers first."""
SOON_S = 0.2
"""Time until the next part of the media and files that waited for the disk is written, in seconds."""
DRAIN_S = 10.0
TURN_S = 0.1
"""Maximum wait for a call of another thread that was the only one so far, in seconds."""
HELD_RECORDS = 1_000_000
"""Maximum number of records that wait for the disk to take their files; what they wait with is bounded in bytes."""
INHERIT_S = 5.0
"""Maximum wait of a child that ends a run to become its owner, in seconds, if the process that began it is gone."""


class Recorder:
    """Turns calls into lines of the rank's stream. No method raises but ``define``.

    Attributes:
        is_main: True: its plain values are recorded; False for another rank's
            (:class:`trackers.training.rank_run.RankRecorder`).
        fast: a line may go straight to ``fd``: nothing waits for a disk or an accelerator.
        known: names of metrics that were found in order, so that the quick way need not look at them again.
        to_read: of how many more calls it is known that their values must be read first: tensors, NumPy's scalars.
        step: of the last record; -1 before the first. following: the step of a call that gives none.
        first_step: of this attempt.
        finished: the finish record is written. ended: nothing more is waited for.
        thread: the only one that has logged without a step; 0 before the first, -1 where there are several.
        holds_steps: as in W&B, a call without a step has the step of the call before it that gave one.
        offset: add the monotonic clock to it for Unix time. monotonic: that clock.
        poll_at: when to look after things next.
        across: the way of values across ranks.
        late: asked now and then, until it answers, for a record of what is known only while training runs.
        pollers: called now and then while training runs. endings: called when it has ended, before its end is written.
    """

    is_main: ClassVar[bool] = True

    def __init__(
        self, info: RunInfo, run: RunDirectory, writer: StreamWriter, relay: RelayClient, *, clock: Callable[[], float],
        first_step: int, inside: Any, across: Transport | None = None,
    ) -> None:  # fmt: skip
        self.info = info
        self.run = run
        self.relay = relay
        self.writer = writer
        self.fd = writer.fd
        self.fast = inside is None
        self.known: set[str] = set()
        self.to_read = 0
        self.fold: SummaryFold | None = None
        self.step = first_step - 1
        self.first_step = self.following = first_step
        self.thread = 0
        self.holds_steps = False
        self.finished = self.ended = False
        self.pid = os.getpid()
        self.monotonic = CLOCKS.monotonic
        self.offset = clock() - monotonic()
        self.poll_at = self.now() + POLL_S
        self.results: dict[str, Any] = {}
        self._replaceable: dict[str, Any] = {}  # results that were set, by plain name
        self._earlier_results: dict[str, Any] | None = None
        self._shown: set[str] = set()  # plain names of media that are results
        self._across_names: set[str] = set()
        self._mappings = Mappings(self.known, self._replaceable, self._shown, self._across_names)
        self.across: Transport = across or LocalTransport()
        self.late: Callable[[], Record | None] | None = None
        self.pollers: list[Callable[[], None]] = []
        self.endings: list[Callable[[], None]] = []
        self.definitions = Definitions()
        self.axes = Axes(self.problem)
        self._folds_all = False  # the fold has all values since the run began
        self._beside: dict[str, Any] = {}
        self._inside = inside
        self._queue = Queue(writer.accept, self._push, writer.has)
        self._backlog: Backlog | None = None
        self._held = self._new_held()
        self._lock = threading.RLock()
        self._turn = threading.RLock()
        self._problems: set[str] = set()
        self._process = self.pid
        self._identity = _print(run.identity)
        self._once: dict[str, tuple[bytes, Record]] = {}
        self._shares = False  # as a child of the process that began the run, and says so
        self._unsure = False  # a call was interrupted: what was folded and what was written may differ
        self._over = mmap.mmap(-1, 1)  # forked children see in it that the run has ended
        self._setter = mmap.mmap(-1, 8)  # and this, which of these processes has set a result last
        self._others_set = False  # another one has set results since the journal was read for them
        self._end_was = "after finish: nothing is recorded any more; call init for a new run"

    def now(self) -> float:
        """Unix seconds, carried by the monotonic clock."""
        return self.offset + monotonic()

    def guard(self, what: str, function: Callable[..., Any], *arguments: Any, **more: Any) -> None:
        """Call a function; what it raises becomes a problem named once, but for what comes from outside."""
        try:
            function(*arguments, **more)
        except BaseException as error:
            if interrupts(error):
                self._unsure = True
                raise
            self._note_lost(error)
            self.problem(f"{what}: {errors.reason(error)}")

    def problem(self, text: str, about: str = "") -> None:
        """Say on stderr, once, what couldn't be done. about: what counts as the same, where the text differs."""
        with suppress(Exception):
            if sys.is_finalizing():
                return say(printable(text))
            show_once(text, self._problems, about)

    def log(self, values: Mapping[str, Any], step: Any, keep: bool | None) -> None:
        """Record values that the quick way can't: other types, NaN, text, media, results, new names.

        Args:
            keep: whether a call without a step has this step, too. None: the step was taken, and the following is set.
        """
        if self.fast and self.log_at_once(values, step, keep):
            return
        if self._is_over("log"):
            return
        now = self.now()
        if not isinstance(values, Mapping):
            self.problem(f"log: values of type {type(values).__name__} can't be recorded: give a mapping")
            self.following = step if keep is None else self.following
            return
        whole = whole_step(step, self.problem)
        step = min(self.following, MAX_STEP) if whole is None else whole
        beside, self._beside = self._beside, {}
        if beside or not (self._log_reductions(values, step, now, keep) or self._log_on_axes(values, step, now, keep)):
            self._log_split(self._split(values, beside), values, step, now, keep)

    def log_in_turn(self, values: Mapping[str, Any], commit: bool | None) -> None:
        """Record a call without a step, of the first thread or one of several: steps are written as they are taken."""
        with self._turn:
            if self.thread > 0 and self.thread != threading.get_ident():
                self.thread = -1
                self._await_turn()
            self.thread = self.thread or threading.get_ident()
            step = self.following
            self.following = step + (commit is not False)
            self.log(values, step, None)

    def _await_turn(self) -> None:
        """Wait until the other thread's call, which has taken its step, has recorded it."""
        until = monotonic() + TURN_S
        while self.step < self.following - 1 and monotonic() < until:
            time.sleep(0)

    def _log_reductions(self, values: Mapping[str, Any], step: int, now: float, keep: bool | None) -> bool:
        """Record values across ranks alone, as the transport can at once. False: nothing is recorded."""
        mapped = self._mappings.names and not self._mappings.names.isdisjoint(values)
        if len(self._queue) or mapped or not nothing_else(values) or not self.across.quick(step, now, values):
            return False
        self._stepped(step, keep)
        if now > self.poll_at:
            self.poll(now)
        return True

    def _split(self, values: Mapping[str, Any], beside: Mapping[str, Any]) -> Split:
        """Values by their kinds. beside: those that were held for this call."""
        split = Split(transfer, converted if self.holds_steps else None)
        if nothing_else(values):
            split.reductions.update(values)
        else:
            split.add(values)
        if beside:
            split.add(beside)
        return split

    def _log_split(self, split: Split, values: Mapping[str, Any], step: int, now: float, keep: bool | None) -> None:
        """Record one call: its results, and one line for each other kind of its values."""
        across = self.across
        added = ReductionRow(split.reductions, across.move, across.batch) if split.reductions else None
        for problem in split.problems + (added.problems if added is not None else []):
            self.problem(f"log: {problem}")
        results, numbers, texts = _results_apart(split)
        positions = self.axes.see(numbers, step) if self.axes else {}
        if self.fold is not None and texts:
            self.fold.update(texts)
        lines = self._text_lines(texts, split.lists, step, now, positions)
        lines.extend(self._media_lines(split.media, step, now, positions))
        waiting = numbers if added is None else {**numbers, **across.begin(step, now, added)}
        moving = any(isinstance(value, Transfer) for value in waiting.values())

        def build(arrived: dict[Any, Number]) -> bytes:
            own = arrived if added is None else self._combined(added, arrived, step, now)
            return self._metrics_line(own, step, now, positions) + b"".join(lines)

        with self._lock:
            if self._is_over("log"):  # finish came in between
                return
            if moving or len(self._queue):  # lines stay in the order of their calls
                self.fast = False
                self._queue.add(PendingRecord(waiting, build))
            else:
                self.append(build(waiting))
            names = (*waiting, *texts, *split.media, *split.reductions)
            within, gone = self._mappings.take(names, split.within)
            if within or gone:
                record = Summary(time=now, step=step, values={}, removed=sorted(gone), within=within)
                if gone:
                    self._give(record)
                self._take(records.encode(record), record)
            if results:
                self.summarize(results, lists=split.lists)
            last = self.step
            self._stepped(step, keep)
            if results and not (waiting or lines):  # no row: what is logged last of all belongs to the last one
                self.step = last
        if len(self.known) < KNOWN_NAMES:
            self.known.update({*numbers, *texts} - self._mappings.names)
            self._across_names.update(split.reductions)
        if now > self.poll_at or not self.fast:
            self.poll(now)

    def _text_lines(
        self, texts: Mapping[str, str], lists: Any, step: int, now: float, positions: Mapping[str, Any]
    ) -> list[bytes]:
        lines = []
        for axis, names in self._by_axis(texts, positions):
            held = {name: texts[name] for name in names}
            own_lists = [name for name in held if name in lists]
            lines.append(records.encode(Text(step=step, time=now, values=held, axis=axis, lists=own_lists)))
        return lines

    def log_at_once(self, values: Any, step: Any, keep: bool | None) -> bool:
        """Record numbers of known names that need but be read, as the quick way does. False: nothing is recorded."""
        line = b""
        try:
            now = self.offset + self.monotonic()
            if type(step) is not int or not -MAX_STEP <= step <= MAX_STEP or not self.known.issuperset(values):
                return False
            numbers = read_at_once(values)
            line = records.encode_lines([Metrics(step=step, time=now, values=numbers)])
            written = os.write(self.fd, line)
            if written != len(line):
                self.take_over(line, written)
            self.to_read = self.to_read - 1 if self.to_read else READ_CALLS
            self._stepped(step, keep)
            if self.fold is not None:
                self.fold.update(numbers)
            if now > self.poll_at:
                self.guard("log", self.poll, now)
        except Unrecordable:
            return False
        except BaseException as error:  # whatever it was, the slow way finds out and says it
            return self.broke_off(line, error)
        return True

    def _log_on_axes(self, values: Mapping[str, Any], step: int, now: float, keep: bool | None) -> bool:
        """Record plain numbers of known names, some of which have a step metric. False: it is nothing so simple."""
        simple = self.axes and not len(self._queue) and self.writer.healthy and self.known.issuperset(values)
        if not (simple and PLAIN_NUMBERS.issuperset(map(type, values.values()))):
            return False
        try:
            if not math.isfinite(sum(values.values(), 0.0)):  # NaN and infinities are written as words
                return False
        except OverflowError:  # an integer that no float holds
            return False
        with self._lock:
            if not self._is_over("log"):
                self.append(self._metrics_line(dict(values), step, now, self.axes.see(values, step)))
                self._stepped(step, keep)
        if now > self.poll_at:
            self.poll(now)
        return True

    def _combined(self, added: ReductionRow, arrived: dict[Any, Number], step: int, now: float) -> dict[str, Number]:
        """This rank's own numbers, and those of all ranks where nobody else records them."""
        own = {name: value for name, value in arrived.items() if type(name) is str}
        for name, value in self.across.end(step, now, added, arrived).items():
            if _is_result(name):
                record = Summary(time=now, step=step, values={name: value})
                self._give(record)
                self.append(records.encode(record))
            else:
                own[name] = value
        return own

    def _metrics_line(self, numbers: dict[str, Number], step: int, now: float, positions: Positions) -> bytes:
        if self.fold is not None and numbers:
            self.fold.update(numbers)
        lines = []
        for axis, names in self._by_axis(numbers, positions):
            own, over = {name: numbers[name] for name in names}, () if axis is None else self.axes.among(names)
            lines.append(records.encode(Metrics(step=step, time=now, values=own, axis=axis, over=over)))
        return b"".join(lines)

    def _by_axis(self, values: Mapping[str, Any], positions: Positions) -> Iterable[tuple[int | None, Iterable[str]]]:
        """Names of values by their places on the axes of their step metrics."""
        if not values:
            return ()
        return self.axes.split(values, positions).items() if positions else ((None, values),)

    def _media_lines(
        self, media: dict[str, Any], step: int, now: float, positions: Positions, *, result: bool = False
    ) -> list[bytes]:
        lines: list[bytes] = []
        if media:
            from trackers import media as kinds

            for name, value in media.items():
                store = self.store()
                try:
                    item = kinds.as_media(value)
                    made = None if item is None else kinds.record(name, item, step, now, store)
                    if made is not None and made.items:  # none: a table that is logged in parts has no new ones
                        made.result = result
                        made.axis = self.axes.position_of(name, positions) if positions else None
                        line = records.encode(made)
                        if not self._hold_back(made, line, store.held):
                            lines.append(line)
                except Exception as error:
                    pass_on(error)
                    self._note_lost(error)
                    self.problem(f"log: {name}: {errors.reason(error)}")
        return lines

    def _stepped(self, step: int, keep: bool | None) -> None:
        self.step = step
        if keep is not None:
            self.following = step if keep else step + 1

    def add_beside(self, values: Mapping[str, Any]) -> None:
        """Values that go along with the next call of ``log``; the newest of a name."""
        self._beside.update(values)
        self.fast = False

    def log_beside(self) -> None:
        """Record values that no call came for, at the next step."""
        if self._beside:
            self.log({}, self.following, False)

    def take(self, record: Metrics | Text | Media) -> None:
        """Write what another library has logged; the next call without a step has the same step."""
        if self._is_over("log"):
            return
        whole = whole_step(record.step, self.problem)
        record.step = min(self.following, MAX_STEP) if whole is None else whole
        if isinstance(record, (Metrics, Text)) and self.fold is not None:
            self.fold.update(record.values)
        if isinstance(record, Text):
            record.values = {name: mask_text(text) for name, text in record.values.items()}
        self.write(record)
        self._stepped(record.step, keep=True)
        if self._beside:
            self.log({}, record.step, True)
        now = self.now()
        if now > self.poll_at:
            self.poll(now)

    def record(self, record: Record) -> None:
        """Write a record; what goes wrong is named once."""
        self.guard(str(type(record).__struct_config__.tag), self.write, record)

    def write(self, record: Record, held: Iterable[str] = ()) -> None:
        """Write a record, behind those that still wait for an accelerator.

        Args:
            held: paths of its files that wait for the disk, beside those that it names.
        """
        if self._is_over(str(record.__struct_config__.tag)):
            return
        line = records.encode(record)
        with self._lock:
            if self._is_over(str(record.__struct_config__.tag)):  # finish came in between
                return
            self._take(line, record, held)

    def _take(self, line: bytes, record: Record, held: Iterable[str] = ()) -> None:
        if self._hold_back(record, line, held):
            return
        if len(self._queue):
            self._queue.add(line)
        else:
            self.append(line)

    def write_once(self, key: str, make: Callable[[], Record]) -> None:
        """Write a record of the run's end: once, however often that is broken off and begun again.

        Args:
            key: what it is.
        """
        made = self._once.get(key)
        if made is None:
            record = make()
            made = self._once[key] = (records.encode(record), record)
        line, record = made
        with self._lock:
            if not line or self._is_over(key):
                return
            try:
                if not self._is_taken(line):
                    self._take(line, record)
            finally:
                if self._is_taken(line):
                    self._once[key] = (b"", record)

    def _is_taken(self, line: bytes) -> bool:
        return self._queue.holds(line) or self._held.holds(line) or self.writer.has(line)

    def _hold_back(self, record: Record, line: bytes, held: Iterable[str]) -> bool:
        """Keep a record of media or files whose content waits for the disk, or that comes after such a record."""
        backlog = self._backlog
        if backlog is None or not isinstance(record, (Media, ArtifactRecord)):
            return False
        names = frozenset((*held, *records.files_of(record)))
        with self._lock:
            if not len(self._held) and not backlog.waits_for(names):
                return False
            if not backlog.has_room(len(line)):
                raise NotKept(errno.ENOSPC, "no room for the record in memory")
            self._held.add(HeldRecord(line, names, backlog))
        return True

    def _note_lost(self, error: BaseException) -> None:
        if isinstance(error, NotKept):
            self._held.lost += 1

    def _release(self, *, all_of_it: bool = False) -> bool:
        """Write what media and files the disk takes now, and their records. True if none waits any more."""
        if self._backlog is not None and (len(self._held) or len(self._backlog)):
            self._backlog.retry(all_of_it=all_of_it)
            self._held.drain()
        return not len(self._held)

    def _why_held(self) -> str:
        error = self._backlog.error if self._backlog is not None else None
        folder = self.run.media
        return why_refused(error, folder) if error is None or isinstance(error, OSError) else str(error)

    def _new_held(self) -> Queue:
        return Queue(self.writer.accept, self._push, self.writer.has, most=HELD_RECORDS)

    def _is_one_of_several(self) -> bool:
        """Whether an earlier attempt or another process has recorded a part of the run."""
        return len(self.info.attempts) > 1 or self._process != self.pid or self.run.shared.exists()

    def append(self, line: bytes) -> None:
        """Append lines to the stream, and pass them to the trackers inside this process."""
        if not line:
            return
        if self._process != self.pid and not self._shares:
            self._shares = True
            self.guard("run directory", replace_file, self.run.shared, b"")  # tells the end to read the whole journal
        self.fast = False  # until all is in the file: later lines would overtake those that wait
        self.writer.accept(line)
        self._push(line)

    def _push(self, line: bytes) -> None:
        self.writer.push(line)
        self.fd = self.writer.fd
        self.fast = self._may_be_fast()
        if self._inside is not None:
            self._inside.pump()

    def config(self, values: dict[str, Any], whole: bool = False) -> None:
        """Record a change of the configuration, secrets masked. whole: as in the record."""
        self.record(Config(time=self.now(), values=mask(values), whole=whole))

    def summarize(self, values: Mapping[str, Any], inside: dict[str, str] | None = None, lists: Any = ()) -> None:
        """Record results; media among them at the last step, under their names.

        Args:
            inside: of names in mappings, the mapping's. lists: names of those that are the JSON texts of lists.
        """
        now, step = self.now(), max(self.step, 0)
        self._note_setter()
        split = Split(transfer, converted if self.holds_steps else None)
        given, by_word, within = self._by_word(values)
        split.add(given)
        split.within.update({**(inside or {}), **within})
        for problem in split.problems + [f"{name}: log a value of all ranks" for name in split.reductions]:
            self.problem(f"summary: {problem}")

        def build(arrived: dict[str, Number]) -> bytes:
            results = {**arrived, **mask(split.texts)}
            removed = self._superseded(values, results, split.media)
            new, gone = self._mappings.take((*results, *split.media), split.within)
            removed = list(dict.fromkeys((*removed, *sorted(gone))))
            if not results and not removed and not new:
                return b""
            named = [name for name in split.texts if name in split.lists or name in lists]
            record = Summary(
                time=now, step=step, values=results, lists=named, removed=removed, by_word=by_word, within=new
            )
            self._give(record)
            return records.encode(record)

        media = b"".join(self._media_lines(split.media, step, now, {}, result=True))
        on_its_way = any(isinstance(value, Transfer) for value in split.numbers.values())
        with self._lock:
            if len(self._queue) or on_its_way:
                self._queue.add(PendingRecord(split.numbers, build))
            elif not self._is_over("summary"):
                self.append(build(split.numbers))
            if media and not self._is_over("summary"):
                self._shown.update(map(plain_name, split.media))
                self.fold = self.fold or SummaryFold(self.definitions, self.results)
                for name in split.media:
                    self.fold.shown(name)
                self.append(media)

    def _by_word(self, values: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[str], dict[str, str]]:
        """:func:`trackers.values.words.by_word` with the run's definitions."""
        if not any(isinstance(value, Mapping) for value in values.values()):
            return values, [], {}
        definitions, resumed = self._all_definitions(), self._is_one_of_several()

        def definition_of(name: str) -> Definition | None:
            nonlocal definitions
            if resumed and definitions.takes_glob(name):  # which one, its first value said
                definitions = AttemptHistory(self.run).fold({}).definitions
            return definitions.known(name)

        return by_word(values, definition_of) if definitions.ask_for_results() else (values, [], {})

    def _all_definitions(self) -> Definitions:
        """Those of earlier attempts and other processes among them."""
        if not self._is_one_of_several():
            return self.definitions
        found = Definitions()
        for define in AttemptHistory(self.run).defines():
            found.define(define)
        return found

    def _superseded(self, values: Mapping[Any, Any], new: Collection[str], media: Collection[str] = ()) -> list[str]:
        """Of the results that are recorded, those that what is set now replaces: under other names, by media, or by
        None and empty mappings, which are no results. What can't be recorded replaces nothing.

        Args:
            new: names of the values that are recorded. media: of the media.
        """
        kept, shown = {*map(plain_name, new)}, {*map(plain_name, media)}
        given = [key for key in values if isinstance(key, str) and _replaces(values[key], key, kept | shown)]
        if not given:
            return []
        # Of what was logged, in an earlier attempt or as text, too, W&B has the last value there.
        recorded = self._recorded()
        inside, resumed = self._mappings.inside(map(plain_name, given)), self._is_one_of_several()
        metrics = [key for key in given if plain_name(key) not in kept]
        metrics = [key for key in metrics if key in self.known or resumed or _is_nothing(values[key])]
        metrics += sorted(inside - kept - (shown & self._shown))
        names = (recorded - kept) | (self._shown - kept - shown)
        if not names:
            return metrics
        definitions, keys = self._all_definitions(), {*map(plain_name, given)}
        keys |= {word for key in given if definitions.known(key) for word in words_of(key)}
        return metrics + sorted((names & keys) - {*metrics})

    def _recorded(self) -> set[str]:
        """Plain names of all recorded results; those of earlier attempts' and other processes' media are noted."""
        if self._earlier_results is None or self._others_set:
            self._earlier_results = {}
            if self._is_one_of_several() or self._others_set:
                self._others_set = False
                for record in AttemptHistory(self.run).results_set():
                    if isinstance(record, Summary):
                        self._mappings.go_on([record.within])
                        records.take_results(self._earlier_results, record)
                    self._note_shown(record)
        return {*self._earlier_results, *map(plain_name, self.results)}

    def _note_setter(self) -> None:
        """Results are set by this process; note whether another one, a parent or a child, has set some since."""
        own, last = os.getpid().to_bytes(8, "little"), self._setter[:]
        if last not in (own, bytes(8)):
            self._others_set = self._unsure = True
        self._setter[:] = own

    def _note_shown(self, record: Summary | Media) -> None:
        if isinstance(record, Media):
            self._shown.add(plain_name(record.name))
        else:
            self._shown.difference_update(map(plain_name, (*record.removed, *record.values)))

    def forget(self, name: str) -> None:
        """Record that a result isn't one any more, with those below its name; its metric's next value may be."""
        self._note_setter()
        removed = [name, *self._superseded({name: None}, ())]
        with self._lock:
            if self._is_over("summary"):
                return
            record = Summary(time=self.now(), step=max(self.step, 0), values={}, removed=list(dict.fromkeys(removed)))
            self._mappings.forget(record.removed)
            self._give(record)
            self.write(record)

    def go_on_with_axes(self) -> None:
        """Take the step metrics that earlier attempts, or a fork's parent, defined, and their values in mappings."""
        self._mappings.go_on(summary.within for summary in AttemptHistory(self.run).summaries())
        for define in AttemptHistory(self.run).defines():
            self.axes.define(define)
        self.fast = self.fast and not self.axes

    def define(self, define: Define) -> None:
        """Record a definition and begin to fold what it asks for, from the start of the run on."""
        if self._is_over("define"):
            return
        self.across.note(define)
        if self.fold is not None:
            self.fold.keep_results(define)
        self.definitions.define(define)
        self.axes.define(define)
        self.fast = self.fast and not self.axes
        missed = self.fold is not None and self.fold.refresh()
        if not self._folds_all and self.definitions.ask_for_results():
            missed = self._folds_all = True
        if missed:
            self.fold = self._refolded()
        if self.fold is not None:
            self.fold.defined(define)
            define.so_far = self.fold.totals(define.name) if define.summary else {}
        self.write(define)

    def _name_unmatched(self) -> None:
        """Name the definitions of metrics that were never logged."""
        names = self.known | self._across_names
        if not self.definitions.unmatched(names):
            return
        for record in self.logged():
            names.update(getattr(record, "values", ()) if isinstance(record, (Metrics, Text, Summary)) else ())
            if isinstance(record, Media):
                names.add(record.name)
        unmatched = self.definitions.unmatched(names)
        if unmatched and names:
            logged = f"; logged were {errors.examples(sorted(names))}"
            hint = errors.did_you_mean(unmatched[0], sorted(names), logged) if len(unmatched) == 1 else logged
            named = errors.examples(map(repr, unmatched))
            self.problem(f"define_metric: nothing was logged as {named}, so it had no effect{hint}")

    def _refolded(self) -> SummaryFold:
        """What the definitions ask for of all that the journal has."""
        anew = SummaryFold(self.definitions, self.results)
        for record in self.logged():
            if isinstance(record, Metrics):
                anew.replay(record.values)
        if self.fold is not None:
            anew.take_over(self.fold)
        return anew

    def _give(self, record: Summary) -> None:
        """Note results that were set: a later value of such a metric replaces it."""
        records.take_results(self.results, record, str)
        records.take_results(self._replaceable, record)
        self._note_shown(record)
        for name in record.removed if self._earlier_results else ():
            self._earlier_results.pop(plain_name(name), None)  # type: ignore[union-attr]
        self.fold = self.fold or SummaryFold(self.definitions, self.results)
        self.fold.give(record)

    def store(self) -> Any:
        """Where media and artifacts are put."""
        from trackers.media import RunMedia

        if self._backlog is None:
            self._backlog = Backlog(RunMedia(self.run.path).place)
        most_bytes = int(self.info.option("TRACKER_MEDIA_MAX_MB", 50)) * 1_000_000
        return RunMedia(self.run.path, most_bytes, self._backlog)

    def logged(self) -> Iterable[Record]:
        """Every record of the run so far that counts, read from its streams."""
        return AttemptHistory(self.run).records()

    def last_logged(self) -> dict[str, Any]:
        """The last value of each name that training logged, or set as a result, read from the streams."""
        last: dict[str, Any] = {}
        with contextlib.suppress(ImportError):  # the interpreter ends
            for record in self.logged():
                if isinstance(record, (Metrics, Text)) and not records.is_sample(record):
                    last.update(record.values)
                elif isinstance(record, Summary) and not record.derived:
                    records.take_results(last, record)
        return last

    def results_by_word(self, name: str) -> dict[str, Number] | None:
        """A metric's results by word, as :meth:`trackers.metrics.summary.SummaryFold.by_word` gives them."""
        if self._unsure and self.fold is not None:
            self.fold = self._refolded()
        with contextlib.suppress(ImportError):  # the interpreter ends
            if self._is_one_of_several():  # what another one defined counts on
                return AttemptHistory(self.run).fold({}).by_word(name)
        return (self.fold or SummaryFold(self.definitions)).by_word(name)

    def _is_over(self, what: str) -> bool:
        """Whether the run has ended, here or in the process that this one was forked from; says so."""
        self.notice_fork()
        if self._over[0] and self._process != self.pid and not self.finished:
            self.finished = True
            self._end_was = f"after process {self.pid} finished the run: what its child logs isn't recorded any more"
        if self.finished:
            self.problem(f"{what} {self._end_was}")
        return self.finished

    def mark_over(self) -> None:
        """The run has ended in another process: say so from now on."""
        self._over[0] = 1

    def notice_fork(self) -> None:
        """In a forked child, at once: it logs into the same stream, never the quick way, which asks nothing.

        Locks may have been held when it began, and what waits in memory is its parent's to write.
        """
        if os.getpid() != self._process:
            self._process = os.getpid()
            self.fast = False
            if not (self.finished or self._over[0]):
                self.relay.register_fork()
            self._lock, self._turn = threading.RLock(), threading.RLock()  # another thread may have held them
            self._queue = Queue(self.writer.accept, self._push, self.writer.has)
            self._backlog, self._held = None, self._new_held()  # what waits is the parent's to write
            self.writer.after_fork()

    def take_over(self, line: bytes, written: int) -> None:
        """A direct write to ``fd`` wrote only a part of a line: cut that off and keep the line until there is space."""
        self.fast = False
        self.writer.repair(line, written)

    def broke_off(self, line: bytes, error: BaseException) -> bool:
        """A direct write to ``fd``, or what belongs to it, ended with an exception, which goes on if it came from
        outside. False: there is no line yet, or the disk has refused it."""
        if line:
            self.fast = False
            self.writer.broke_off(line)
            self._unsure = True
        pass_on(error)
        if not line or isinstance(error, OSError):  # the slow way keeps the line until the disk takes it
            return False
        self.problem(f"log: {errors.reason(error)}")
        return True

    def flush(self, timeout_s: float) -> bool:
        """Write what waits for an accelerator or a disk. True if nothing waits any more."""
        self._queue.finish(timeout_s)
        with self._lock:
            return self._release(all_of_it=True) and self.writer.retry(force=True)

    def look(self) -> None:
        """A step has ended: where trackers run inside this process, let them see now and then what has come."""
        if self._inside is not None and not self.finished and self.now() > self.poll_at:
            self.guard("look", self.poll, self.now())

    def poll(self, now: float) -> None:
        """Look after the queue, the disk and the relay; most of it at most once a second."""
        self.notice_fork()
        with self._lock:
            self._queue.drain()
            if now <= self.poll_at:
                self.fast = self._may_be_fast()
                return
            self.poll_at = now + POLL_S
            if os.getpid() != self.pid:
                self.writer.follow(self._owner_alive)
                self.writer.retry()
                self._release()
                self.fd = self.writer.fd
                self._see_owner()
                return
            if self.finished:
                return
            if not self.writer.healthy and not self.writer.retry():
                self.problem(
                    "the journal can't be written; training goes on, records wait in memory (up to 64 MiB). "
                    + self.writer.why(),
                    "unwritten",
                )
            before = len(self._held)
            if not self._release():
                if len(self._held) < before:  # the disk takes them: the rest soon, a part at a time
                    self.poll_at = now + SOON_S
                self.problem(
                    "media and files can't be written; training goes on, they wait in memory (up to 64 MiB). "
                    + self._why_held(),
                    "unkept",
                )
            self._see_stream_whole()
            self._record_late()
            self.relay.look_after()
            for poll in self.pollers:
                poll()
            if self._inside is not None:  # values across ranks, and what a tracker does by the clock
                self._inside.pump()
            self.fast = self._may_be_fast()

    def _may_be_fast(self) -> bool:
        own = self._process == self.pid
        waiting = len(self._queue) or self.axes or self._beside
        return own and self._inside is None and not waiting and self.writer.healthy

    def _record_late(self) -> None:
        record = self.late() if self.late is not None else None
        if record is not None:
            self.late = None
            self.append(records.encode(record))

    def _see_stream_whole(self) -> None:
        state = self.writer.mend(lambda: self.guard("run directory", self._make_whole))
        self.fd = self.writer.fd
        if state == "closed":
            self.problem(
                f"the descriptor of {self.writer.path} was closed by this program: the file was opened again; "
                "what was logged meanwhile may be missing"
            )
        elif state == "deleted":
            self.problem(f"{self.writer.path} was deleted while it was written: it is put back")
        elif state == "unmended":
            self.problem(
                f"{self.writer.path} was deleted or closed while it was written, and can't be put back yet; "
                f"it is tried again each second. {self.writer.why()}",
                "unmended",
            )
        elif state == "cut":
            self.problem(
                f"{self.writer.path} was cut while it was written: what the trackers had is safe there, "
                "records that they hadn't yet are lost; training goes on"
            )

        self._see_identity()

    def _see_identity(self) -> None:
        """Put the run's identity back if somebody deleted or damaged it: nothing could be delivered any more."""
        stamp = _print(self.run.identity)
        if stamp is not None and stamp == self._identity:
            return
        try:
            self.run.stored_info()
        except OSError as error:
            pass_on(error)
            if error.errno not in (errno.ENOENT, errno.ELOOP, errno.EINVAL):  # the last two: a link, a FIFO
                return
        except (ValueError, RecursionError, MemoryError) as error:
            pass_on(error)
        else:
            self._identity = stamp
            return
        if self._identity is not None:  # else it was never there
            self.problem(f"{self.run.identity} was deleted or damaged while training runs: it is put back", "identity")
        self.guard("run.json", self._make_whole)
        self._identity = _print(self.run.identity)

    def _make_whole(self) -> None:
        self.run.make(str(self.info.option("TRACKER_SHARE", "owner")))
        if not _is_whole(self.run):  # the whole directory: what runs were kept for must be found again
            self.run.write_info(self.info)

    def adopt(self, wait_s: float = INHERIT_S) -> bool:
        """Whether the run is this process's to end: it made it, or the one that made it left it to this child."""
        until = monotonic() + wait_s
        while os.getpid() != self.pid:
            if self.finished or self._over[0] or self._owner_alive():
                return False
            if last_status(self.run).name != "running":
                return False
            late = monotonic() >= until
            if self.relay.inherit(late and wait_s > 0):
                self.pid = self._process = os.getpid()
                self._unsure = True  # of what the other one has logged since
                self.guard("run directory", self.run.write_info, self.info)
                if self._inside is not None:
                    self.guard("trackers", self._inside.inherit)
            elif late:
                return False
            else:
                time.sleep(0.02)
        return True

    def _see_owner(self) -> None:
        """In a forked child: take the run over where it is left to this process, or say that it is over."""
        if not self.adopt(0.0) and not self._owner_alive() and last_status(self.run).name != "running":
            self._over[0] = 1

    def _owner_alive(self) -> bool:
        return processes.alive(self.info.pid, self.info.pid_start)

    def end(
        self, exit_code: int | None, status: str, reason: str, timeout: float, quiet: bool, leaving: bool = False,
        background: bool = False,
    ) -> None:  # fmt: skip
        """Write the finish record, wait for the trackers, say what was lost. leaving: as in the record.

        Args:
            background: don't wait for the trackers.
        """
        with self._lock:
            self.fast = False
            until = monotonic() + timeout
            if not self.finished:
                self.guard("finish", self._write_end, exit_code, status, reason, until, leaving)
            self.finished = True
        self._wait_for_disk(max(0.0, until - monotonic()))
        with self._lock:
            self._see_stream_whole()
            why = self.writer.why()
            self.writer.close()
        lost = self.writer.lost
        if lost:
            self.problem(f"{lost} records were lost: the journal couldn't be written to the end. {why}")
        asked, timeout = timeout, max(0.0, until - monotonic())
        if self._queue.lost:
            self.problem(f"{self._queue.lost} values were given up: {self._queue.why}")
        if self._held.lost:
            self.problem(f"{self._held.lost} records of media and files were lost: {self._why_held()}")
        if self._inside is not None:
            self.guard("finish", self.relay.wait_for_reducer, timeout)
        self.guard("finish", self.relay.finish, timeout, quiet, leaving, asked, background)
        if self._inside is not None:
            self.guard("finish", self._inside.close)
        self.writer.release()
        if not self.relay.enabled and os.getpid() == self.pid:  # else the relay does
            self.guard("finish", self._write_checksums)
        self.ended = True

    def _write_checksums(self) -> None:
        """Write the checksums of the journal, where no relay has done so."""
        from trackers.journal.integrity import JournalChecksums

        JournalChecksums(self.run).end()

    def _write_end(self, exit_code: int | None, status: str, reason: str, until: float, leaving: bool) -> None:
        self._see_stream_whole()
        self._queue.finish(min(until - monotonic(), DRAIN_S))
        self._wait_for_folder(until - monotonic())
        self._record_late()
        if self._unsure or self._is_one_of_several():
            history = AttemptHistory(self.run)
            results, removed = history.results()
            if gone := history.overtaken:
                self.write_once("overtaken", lambda: Summary(time=self.now(), values={}, removed=gone))
            self.summarize_once("summary", results, removed)
        elif self.fold is not None:
            self.summarize_once("summary", self.fold.results(), self.fold.replaced(self._replaceable))
        if self.definitions and status == "finished":
            self._name_unmatched()
        code = (0 if status == "finished" else 1) if exit_code is None else exit_code
        finish = Finish(time=self.now(), status=status, exit_code=code, reason=mask_source(reason), leaving=leaving)
        self.across.close(finish)  # whoever reads that training has ended finds all rows
        if self._inside is not None:
            self._inside.end()
        self._over[0] = 1
        self.write_once("finish", lambda: finish)

    def summarize_once(self, key: str, results: dict[str, Number], removed: Iterable[str] = ()) -> None:
        """Record results at the run's end. key: see :meth:`write_once`. removed: as in the record."""
        gone = list(removed)
        if results or gone:
            self.write_once(
                key,
                lambda: Summary(time=self.now(), step=max(self.step, 0), values=results, derived=True, removed=gone),
            )
            self.results.update(results)

    def _wait_for_folder(self, timeout_s: float) -> None:
        """Wait for the disk to take media and files, whose records come before that of the end."""
        until = monotonic() + timeout_s
        try:
            while not self._release(all_of_it=True) and (left := until - monotonic()) > 0:
                patience = f"up to {timeout_s:.0f} s for the disk"
                self.problem(
                    f"finish: {len(self._held)} records of media and files wait {patience}. {self._why_held()}", "held"
                )
                time.sleep(min(RETRY_S, left))
        except KeyboardInterrupt:
            self.problem("finish: interrupted while it waited for the disk to take media and files")
        self._held.finish(0.0)

    def _wait_for_disk(self, timeout_s: float) -> None:
        waiting = self.writer.waiting
        if not waiting or self.writer.retry(force=True):
            return
        if timeout_s > 0:
            patience = f"up to {timeout_s:.0f} s for the journal to be writable"
            self.problem(f"finish: {waiting} records wait {patience}. {self.writer.why()}")
        try:
            self.writer.flush(timeout_s)
        except KeyboardInterrupt:  # as where it waits for the trackers: it is left at that
            self.problem("finish: interrupted while it waited for the journal to be writable")


def _is_whole(run: RunDirectory) -> bool:
    try:
        run.stored_info()
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        pass_on(error)
        return False
    return True


def _print(path: Path) -> tuple[int, int, int] | None:
    """What tells whether a file is as it was; None where there is none."""
    try:
        status = os.stat(path)
    except OSError as error:
        pass_on(error)
        return None
    return (status.st_ino, status.st_size, status.st_mtime_ns)


def _results_apart(split: Split) -> tuple[dict[str, Any], dict[str, Any], dict[str, str]]:
    """Results, and the numbers and texts that are none; texts without secrets."""
    masked = {name: mask_text(text) for name, text in split.texts.items()}
    results = {name: value for name, value in (*split.numbers.items(), *masked.items()) if _is_result(name)}
    numbers = {name: value for name, value in split.numbers.items() if not _is_result(name)}
    return results, numbers, {name: text for name, text in masked.items() if not _is_result(name)}


def _replaces(value: Any, key: str, recorded: Iterable[str]) -> bool:
    """True if what is set takes the place of earlier results, given the plain names that it is recorded by."""
    below = f"{plain_name(key)}/"
    return value is None or isinstance(value, Mapping) or any(f"{name}/".startswith(below) for name in recorded)


def _is_nothing(value: Any) -> bool:
    with suppress(Exception):
        return value is None or len(value) == 0
    return False  # a mapping that can't be read


def _is_result(name: str) -> bool:
    return name.startswith(records.SUMMARY_PREFIX)
