"""``log:FILE``: console logs of the programs whose tables are in :mod:`trackers_console_logs.programs`.

A program is told by its own lines, and each line that looks like one of its rows is read whole, or counted: the run's
note says how many weren't understood. What launchers put before each line changes nothing. Values keep their size and
unit and get the names that other runs have. Times are the lines' own stamps, in this machine's time zone where they
name none; a log without stamps begins at another line's first stamp, else at its file's modification time, and goes
on by the time that iterations took. Copies of a line that several ranks or two handlers wrote count once, by iteration.
Where training went back, and a checkpoint's line, a later time or a counter says so, a Start record does, too, and what
it trained again is left out of what was before (standard input, which passes but once, has both).
"""

from __future__ import annotations

import ast
import contextlib
import functools
import glob
import io
import itertools
import math
import re
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from trackers.errors import NotFound, UsageError, examples
from trackers.formats import text_file
from trackers.readers import helpers
from trackers.readers.boundary import bounded, one_line
from trackers.readers.reader import Reader, SourceRun
from trackers.records import Config, Environment, Finish, Metrics, Number, Record, Start, Summary, Text
from trackers.support.descriptors import readable
from trackers_console_logs import own_format
from trackers_console_logs.bars import ROWS as ROWS_PAIRED
from trackers_console_logs.bars import BarSteps, Paired, bar_steps
from trackers_console_logs.forms import program as kinds
from trackers_console_logs.forms.program import EVAL, NEXT, RESULT, RESUME, ROWS, TRAIN, Program
from trackers_console_logs.lines import COLOR, find_time, pieces
from trackers_console_logs.programs import ALL, megatron, primus
from trackers_console_logs.rows import BEGUN, BROKEN, LineReader, LogRow
from trackers_console_logs.wrapping import HEAD_BYTES, LINE_BYTES, NO_PAGE, Page, Probe, Said, page_of, unwrapped

REMEMBERED = 4096
"""Number of latest lines that are remembered to detect copies."""
WRAPPED_LINES = 3
"""Maximum number of lines that a wrapped line extends over."""
BLOCK_BYTES = 4 << 20
SHOWN = 120
_STEP = re.compile(rb"(?<!at )iteration {1,20}(\d{1,18})(?: {0,20}/ {0,20}\d{1,18})? {0,20}\|")


COPY, MORE, ANEW = "copy", "more", "anew"
"""What a line of a step that was read before is: its copy, more values of the same step, or the step trained again."""


class _Seen(NamedTuple):
    """What was read before a row of training.

    step: the row's. tail, time: of the latest line of that step; None if there was none. before: the newest row of the
    same writer; newest: its step, -1 if there was none. top: the highest step of this attempt, whoever wrote it.
    """

    step: int
    tail: int | None
    time: float | None
    before: LogRow | None
    newest: int
    top: int


class LogStream:
    """Reads one log once.

    Args:
        name: of the log, for messages.
        time: Unix seconds for the first line of a log without time stamps; what follows is placed by the time that
            each iteration took.
        year, latest: of time stamps without a year: :func:`trackers_console_logs.lines.find_time`.
        survey: what an earlier reading found; what a later attempt trained again is left out.
        formats: a user's own programs.
    """

    def __init__(
        self,
        name: str,
        time: float,
        year: int,
        survey: Survey | None = None,
        *,
        latest: float = math.inf,
        formats: Sequence[Program] = (),
    ) -> None:
        survey = survey or Survey()
        limits = survey.restarts
        self._limits = [min(limits[number:], default=None) for number in range(len(limits))]
        self._survey, self.bars = survey, survey.bars
        self._probe = _probe(year, formats)
        self.lines = LineReader(year, latest, formats, survey.told)
        self.facts = MachineFacts()
        self.attempt = 0
        self.rows = 0
        self.total: int | None = None
        self.world: int | None = None
        self.formats: list[str] = []
        self.cut = False
        self.account = Account()
        self._name = name
        self._clock = time
        self._first_line = b""
        self._words: set[str] = set()  # of lines before the first row
        self._pending: LogRow | None = None
        self._line = 0  # that row's
        self._held: LogRow | None = None  # its step follows from the line behind it
        self._held_line = 0
        self._bars: dict[int, int] = {}  # how far progress bars were before that
        self._spent: dict[int, float] = {}  # and for how long
        self.paired: defaultdict[str, list[Paired]] = defaultdict(list)  # rows by kind, with progress bars
        self._next: dict[str, Any] = {}  # values of the next row of training
        self._known_keys = 0  # number of names that Config records have named
        self._seen_keys = 0  # and of those of the row at hand
        self._new_keys = False  # it has some that no row before it had
        self._arguments = 0
        self._machine = 0
        self._releases: dict[str, tuple[int, str]] = {}  # by program
        self._attempt_began = 0.0
        self._bar_length: int | None = None  # of the bar that told a row's step
        self._trained_s = 0.0  # by the newest row
        self._bar: Any = None  # that says so
        self._bar_began: float | None = None  # when it showed nothing yet
        self._newest: dict[Any, LogRow] = {}  # the row of the highest step by who wrote what
        self._latest = 0.0  # time of the row with the highest iteration of this attempt
        self._first_time: float | None = None
        self._shift_s = 0.0  # by which a clock was set back
        self._first = 0  # step of this attempt
        self._clocked = 0  # step of training that the clock stands at
        self._pace_s = 0.0  # of a step, by the times of the last rows
        self._evidence = False  # since the last row of training a line said that training begins
        self._fits = 0
        self._counted: list[tuple[float, int]] = []
        self._evaluated = 0, 0.0  # number and epoch of the newest evaluation of those
        self._begins = 0  # how often such lines came behind rows of training
        self._resumed: int | None = None  # the step that the last of them says
        self._ahead: list[LogRow] = []  # evaluations behind such a line: they are of the attempt that begins
        self._ended = ""
        self._ignored = False  # the exception that the next line tells of, as Python says
        self._copies, self._nodes = _Copies(), _Copies()
        self._step = 0
        self._steps: dict[Program, int] = {}  # of each program's row that was read last
        self._main = survey.main

    def read(self, file: BinaryIO) -> Iterator[Record]:
        """The records; see :class:`trackers_console_logs.reader.LogReader`.

        Raises:
            NotFound: no line is of a form known here.
        """
        wrapped = 0.0
        lines = self.lines
        for number, line in unwrapped(_read_lines(file, self._say_cut), self._survey.page, self._probe):
            lines.number = number
            parts = pieces(line)
            for place, (text, whole) in enumerate(parts, 1):
                rows = lines.rows(text, whole, place == len(parts))
                if self._held is not None and (rows or text.strip()):
                    yield from self._take_held(rows)
                for row in rows:
                    if row.kind in ROWS:
                        wrapped = 0
                        yield from self._take(row, text)
                    else:
                        wrapped = math.inf if row.kind == BROKEN else wrapped  # what follows is that row's
                        self._see_event(row, text)
                if rows:
                    continue
                most = math.inf if self._pending is not None and self._pending.form.lines else WRAPPED_LINES
                if self._pending is not None and wrapped < most:
                    values = lines.goes_on(self._pending, wrapped >= WRAPPED_LINES)
                    if values is None:
                        self.account.spoil(self._pending, number, text)
                    elif values:
                        self._add(self._pending, values)
                        wrapped = 0 if self._pending.form.lines else wrapped + 1
                    else:  # of several lines, another's is the end
                        wrapped += WRAPPED_LINES if self._pending.form.lines and _WORD.search(lines.text) else 1
                    if values is None or values:
                        continue
                self._see_other_line(text, lines.text)
        yield from self._take_held(())
        yield from self._leave_pending()
        yield from self._leave_ahead()
        if not self.rows:
            raise NotFound(self._nothing())
        self.account.close(self)
        status = self._status()
        if status:
            yield Finish(time=self._clock, status=status, step=self._step)

    def note(self) -> str:
        """What a reader of the records must know; "" if nothing."""
        return "; ".join(filter(None, (CUT if self.cut else "", *self.account.notes())))

    def _take(self, row: LogRow, text: bytes) -> Iterator[Record]:
        """The records that a row leads to: those of the row before it."""
        if row.step is None and (row.kind == TRAIN or row.form.step_key or row.program.by_bar):
            if row.program.by_bar:
                self._held, self._held_line = row, self.lines.number
                self._bars, self._spent = dict(self.lines.bars), dict(self.lines.spent)
            else:
                row.bad = True
                self.account.count(row, self.lines.number, text)
            return
        began = self._admit(row)
        if began is None:
            self.account.count(row, self.lines.number, text, copy=True)
            return
        if row.kind == NEXT:
            self.lines.fill(row)
            self._next.update(row.values)
            self._recognise(row)
            self._note_release(row.program, row)
            self.account.count(row, self.lines.number, text)
            return
        if self._pending is not None and _begins(self._pending, row):
            self.account.spoil(self._pending, self.lines.number, text)
        yield from self._leave_pending()
        yield from began
        if row.kind == TRAIN:
            yield from self._leave_ahead(began)
        self.lines.fill(row)
        if row.kind == TRAIN and self._next:
            row.values = {**self._next, **row.values}
            self._next = {}
        self._pending, self._line = row, self.lines.number
        self._steps[row.program] = row.step or 0
        self._recognise(row)
        if len(self.lines.keys) != self._seen_keys:
            self._seen_keys, self._new_keys = len(self.lines.keys), True
        if row.form.ends:
            self._ended = "finished"
        self.account.count(row, self.lines.number, text)

    @property
    def _limit(self) -> int | None:
        """The highest step of this attempt that no later one trained again."""
        return self._limits[self.attempt - 1] if self.attempt <= len(self._limits) else None

    def _add(self, row: LogRow, values: dict[str, Number]) -> None:
        """Add what a line behind a row says; what is there already, and otherwise, is another process's."""
        if any(not _same(value, row.values.get(name, value)) for name, value in values.items()):
            self.account.others.append((row.step or 0, self.lines.number))
        row.values = {**row.values, **values, **row.values}

    def _take_held(self, rows: Sequence[LogRow]) -> Iterator[Record]:
        """The records of a row whose step a progress bar tells, which is often written anew behind it."""
        row, self._held = self._held, None
        if row is None:
            return
        self.lines.fill(row)
        bars, row_after = self._bars, rows[0] if rows and rows[0].kind == kinds.BAR else None
        behind = (row_after.total or 0, row_after.step or 0) if row_after is not None else None
        last = 0 if self._evidence or self._is_second(row) else self._steps.get(row.program, 0)
        epoch = row.values.get("epoch")
        step = self.bars.step_of(epoch, bars, behind, last)
        counted = row.kind == TRAIN and not row.form.ends
        if step is None and counted and self.bars.length:  # which tells other rows' steps
            row.bad = True
            self.account.count(row, self._held_line, row.line)
            return
        length = self.bars.length_of(bars, step)
        if length is not None:
            self._bar_length, row.elapsed = length, self._spent[length]
        elif row_after is not None and row_after.step == step:
            self._bar_length, row.elapsed = row_after.total, row_after.elapsed
        if step is None and self._is_nodes_copy(row):
            self.account.count(row, self._held_line, row.line, copy=True)
            return
        self.account.late |= self.bars.late
        self.account.by_bar |= step is not None
        row.bar = self._bar_length
        row.step = self._count(row, epoch, counted) if step is None else step
        if epoch is not None and len(self.paired[row.kind]) < ROWS_PAIRED:
            at_end = {of: of for of in bars} if row.form.ends else bars
            self.paired[row.kind].append(Paired(float(epoch), at_end, None if row.form.ends else behind))
        number, self.lines.number = self.lines.number, self._held_line
        yield from self._take(row, row.line)
        self.lines.number = number

    def _is_nodes_copy(self, row: LogRow) -> bool:
        """Whether another node wrote a row that is only counted, too."""
        known = self._nodes.get(row.tail)
        if row.source and known is None:
            self._nodes.put(row.tail, row.source)
        return bool(row.source) and known not in (None, row.source)

    def _count(self, row: LogRow, epoch: float | None, counted: bool) -> int:
        """The number of a row that is only counted; where training went back, behind those of epochs before. An
        evaluation has that of the row before it, unless one of another epoch has it."""
        fell = epoch is not None and any(epoch < known for known, _ in self._counted[-1:])
        count = self._steps.get(row.program, 0)
        if self._evidence or fell:
            count = 0 if epoch is None else max((n for known, n in self._counted if known < epoch), default=0)
        self.account.numbered |= not self.bars.length
        if row.kind == EVAL and epoch is not None:
            counted = self._evaluated[0] == count and self._evaluated[1] < epoch
            self._evaluated = (count + counted, float(epoch))
        if epoch is not None and len(self._counted) < ROWS_PAIRED:
            self._counted.append((float(epoch), count + 1))
        return count + counted

    def _recognise(self, row: LogRow) -> None:
        self.lines.recognise(row.program)
        family, named = row.program.family, self.lines.named
        if family and row.primus:
            named[family] = primus.PROGRAM
        elif family and family not in named and row.program is not megatron.PROGRAM:
            named[family] = row.program

    def _say_cut(self) -> None:
        self.cut = True

    def _see_event(self, row: LogRow, text: bytes) -> None:
        """Take note of a line that has no values, and is one of a program's."""
        if row.kind == BROKEN:
            self.account.count(row, self.lines.number, text)
        elif row.kind in (RESUME, kinds.BEGIN):
            if not self._evidence:
                self._begins, self._resumed = self._begins + 1, None
                self.lines.bars.clear()
            self._evidence = True
            self._resumed = row.step if row.kind == RESUME and row.step is not None else self._resumed
        elif row.kind == kinds.END:
            self._ended = "finished"
        elif row.kind == kinds.BAR:
            fell = row.total == self._bar_length and (row.step or 0) < self._steps.get(row.program, 0)
            if self._ended == "finished":  # what comes is of a training of its own
                self.lines.bars = {of: at for of, at in self.lines.bars.items() if at < of}
            elif fell:
                self._evidence = True

    def _see_other_line(self, line: bytes, text: bytes) -> None:
        """Look at a line without values. text: the part that the program wrote."""
        if not self._first_line and line.strip():
            self._first_line = line.strip()
        if not self.rows and len(self._words) < WORDS:
            self._words.update(_WORDS.findall(text[:LONGEST].decode("utf-8", "replace").lower()))
        ignored, self._ignored = self._ignored, text.startswith(b"Exception ignored in")
        ended = _ENDS.search(text, 0, FACT_BYTES) if (self.rows or self._pending is not None) and not ignored else None
        if (match := ended) is not None:
            self._ended = next(status for name, status in _STATUSES.items() if match[name])
        self.facts.scan(text)

    def _status(self) -> str:
        """How the run ended, by its log; "" where that doesn't say."""
        if self.total is not None and self._step >= self.total:
            return "finished"
        return self._ended

    def _admit(self, row: LogRow) -> tuple[Record, ...] | None:
        """Records that precede a row's: mostly none. None: the row is another's copy and doesn't count."""
        if row.kind != TRAIN:
            return self._admit_other(row)
        step = row.step or 0
        if row.form.ends:  # what was loaded before it is the best, and no training begins
            self._evidence = False
        plain = row.form is megatron.TRAINING
        key = step if plain else (row.form, step)
        series = row.source if plain else (row.source, row.form)
        known, known_time = self._copies.get(key) or (None, None)
        before = self._newest.get(series)
        newest = -1 if before is None else before.step or 0
        top = self._top()
        began: tuple[Record, ...] = ()
        if step <= newest or known is not None or (self._evidence and newest < 0 and step < top):
            seen = _Seen(step, known, known_time, before, newest, top)
            said = self._said_again(row, seen)
            if said != ANEW:
                return () if said == MORE else None
            began = self._go_back(row, seen)
        elif self.attempt == 0 or self._goes_on(step):
            began = self._begin_attempt(row, newest)
        self._copies.put(key, (row.tail, row.time))
        others = before is None and any(other.form is row.form for other in self._newest.values())
        self.account.mixed = self.account.mixed or others
        self._newest[series] = row
        self._evidence, self._fits = False, self.lines.fits
        if not row.form.bar or self._ended != "finished":  # a bar is drawn once more at the end
            self._ended = ""
        self._latest = row.time if row.time is not None else self._latest
        return began

    def _said_again(self, row: LogRow, seen: _Seen) -> str:
        """What a line is whose step, or a later one, was read before: a COPY, MORE of the same step, or that step ANEW.

        What a copy has and the row at hand lacks is added to that.
        """
        newest = seen.step == seen.newest
        past = None if seen.time is None or row.time is None else row.time - seen.time
        beside = past is not None and abs(past) < BESIDE_S
        if self._is_second(row):
            return ANEW
        if seen.tail == row.tail and not self._may_repeat(row, seen, past):
            self._complete(row)
            return COPY
        if not self._evidence:
            if newest and self._join(row, seen.before):
                return MORE if row.values else COPY
            if beside and not row.form.bar and not row.program.rounded:
                self._complete(row)
                self._note_other(row, seen)
                return COPY
            if newest and row.form.bar and seen.before is not None:
                return self._redrawn(row)
        if self._is_anew(row, seen):
            return ANEW
        if newest and row.program.rounded:
            return MORE
        self._complete(row)
        self._note_other(row, seen)
        return COPY

    def _may_repeat(self, row: LogRow, seen: _Seen, past: float | None) -> bool:
        """Whether a row that says the same as one before may be trained again. past: seconds since that."""
        back = seen.step < seen.newest
        if self._evidence:
            return back or not row.form.bar or row.form.lines != "" or self._loaded_before(seen.step)
        if row.form.lines:  # the first of several lines says little
            return past is None or abs(past) >= BESIDE_S
        return back and past is not None and past > SET_BACK_S

    def _redrawn(self, row: LogRow) -> str:
        """What a bar is whose step was read before: drawn once more, or ANEW behind another first epoch."""
        if self.lines.fits != self._fits:
            return ANEW
        self._replace(row)
        return COPY

    def _is_anew(self, row: LogRow, seen: _Seen) -> bool:
        """Whether training began again from a checkpoint: the same writer says a lower iteration, and other values."""
        anew = seen.step < seen.newest or self._is_renamed(row, seen)
        rounded = row.program.rounded and not self._evidence  # so that several rows have a step
        anew = anew or (seen.step == seen.newest and not rounded and self._again(row, seen.before))
        late = row.time is not None and row.time < self._attempt_began
        return anew and not late

    def _is_renamed(self, row: LogRow, seen: _Seen) -> bool:
        """Whether a writer that is new may be an earlier one: after a restart a process or a pod has another name, and
        a smaller world another last rank."""
        if seen.newest >= 0:
            return False
        if row.program.alone:  # of these another process of that name is another attempt
            names = {_DIGITS.sub("", source) for source in (row.source, *(known for known, _ in self._newest))}
            return seen.step <= seen.top and len(names) == 1
        said = self._loaded_before(seen.step)
        is_top = seen.step == seen.top  # of the newest step another rank writes its line a moment later
        if row.time is None:
            if is_top:  # a rank that loads late says what the attempt began with
                return said and self._first <= (self._resumed or 0)
            return seen.step < seen.top and (seen.tail is None or (said and seen.tail != row.tail))
        return row.time > self._latest + BESIDE_S * is_top > 0 and (seen.step < seen.top or (is_top and said))

    def _loaded_before(self, step: int) -> bool:
        """Whether a line since the last row of training says that a checkpoint of an earlier step was loaded."""
        return self._evidence and self._resumed is not None and self._resumed < step

    def _go_back(self, row: LogRow, seen: _Seen) -> tuple[Record, ...]:
        """Begin an attempt with a step that is trained again, if anything but the step says so; else it is noted."""
        if not self._is_second(row) and (self._again(row, seen.before) or self._is_renamed(row, seen)):
            return self._begin_attempt(row, max(seen.newest, seen.top))
        self.account.fell.append((seen.newest, seen.step, self.lines.number))
        self._copies.clear()
        self._newest.clear()
        return ()

    def _is_second(self, row: LogRow) -> bool:
        """Whether a row of training comes behind one that was done, and no checkpoint was loaded since."""
        return row.program.by_bar and not row.form.ends and self._ended == "finished" and not self._evidence

    def _top(self) -> int:
        """The highest step of this attempt, whoever wrote it; -1 before its first row."""
        return max((row.step or 0 for row in self._newest.values()), default=-1)

    def _goes_on(self, step: int) -> bool:
        """Whether a line behind the newest row says that a checkpoint of no earlier step was loaded: nothing is trained
        again, and yet training began anew. A rank that loads the first one late names an earlier step; on another
        number of ranks another one writes the rows."""
        newest = self._top()
        return self._evidence and self._resumed is not None and 0 <= newest <= self._resumed <= step

    def _again(self, row: LogRow, before: LogRow | None) -> bool:
        """Whether there is evidence that training began again: a line that said so, a later time, a falling counter."""
        if self._evidence or (row.time is not None and row.time > self._latest > 0):
            return True
        if before is None:
            return False
        self.lines.fill(row)
        pairs = [(before.values[name], row.values[name]) for name in COUNTERS
                 if name in before.values and name in row.values]  # fmt: skip
        return bool(pairs) and all(later < earlier for earlier, later in pairs)

    def _join(self, row: LogRow, before: LogRow | None) -> bool:
        """Add a line to the row of its step where it has other values than that: each has some that the other lacks, or
        it says the same and more.

        What the row has already, and otherwise, stays the line's own; how long training has run by then is left out.
        """
        if before is None or before.cut or row.form.bar or row.program.rounded:
            return False
        self.lines.fill(row)
        if row.program.trained_ms in before.values and row.values.keys() - before.values.keys():
            clocks = (row.program.trained_ms, "step_avg_ms")
            row.values = {name: value for name, value in row.values.items() if name not in clocks}
        fresh = {name: value for name, value in row.values.items() if name not in before.values}
        common = row.values.keys() & before.values.keys()
        more = bool(before.values.keys() - row.values.keys())
        if not fresh or row.bad or not (more or all(_same(row.values[name], before.values[name]) for name in common)):
            return False
        at_hand = before is self._pending
        row.values = {name: value for name, value in row.values.items()
                      if not (at_hand if name in fresh else _same(value, before.values[name]))}  # fmt: skip
        before.values = {**before.values, **fresh}
        if at_hand:
            before.texts = {**row.texts, **before.texts}
        return True

    def _note_other(self, row: LogRow, seen: _Seen) -> None:
        """Take note of a line that isn't read because one of its step was, where it says other values than that."""
        before = seen.before
        if before is None or before.step != row.step:
            before = self._pending  # another's, such as a process's that took its place
        if before is None or before.cut:
            return
        self.lines.fill(row)
        if before.step == row.step and before.form is row.form:
            others = any(not _same(value, before.values.get(name, value)) for name, value in row.values.items())
        else:  # of that line, further back, no more is known than its tail
            others = seen.tail not in (None, row.tail) and not (row.form.bar or row.quiet)
        ranked = row.time is not None and row.source != before.source  # it says which rank it is, or who wrote it
        if others and not row.cut:
            (self.account.ranked if ranked else self.account.others).append((row.step or 0, self.lines.number))

    def _replace(self, row: LogRow) -> None:
        """What a progress bar says later of the same step takes the place of what it said."""
        pending = self._pending
        self.lines.fill(row)
        if pending is not None and pending.form is row.form and pending.step == row.step and not row.bad:
            pending.values.update(row.values)
            pending.elapsed = pending.elapsed if row.elapsed is None else row.elapsed

    def _admit_other(self, row: LogRow) -> tuple[Record, ...] | None:
        if row.kind == NEXT:
            key: Any = (row.form, row.tail, self.rows)
        else:
            row.ahead, row.placed = self._evidence and self.attempt > 0, row.step is not None
            if row.step is None:
                row.step = max((self._pending.step or 0) if self._pending else self._step, self.lines.reached)
            begins = self._begins if row.ahead else 0
            key = (row.kind, row.step, row.part, row.form, begins, self.lines.tests)
        known = self._copies.get(key)
        if known is not None:
            before = self._pending
            row.again |= row.program.counted and before is not None and before.line[before.end :] == row.line[row.end :]
            if row.form.bar or row.again:
                self._replace(row)
            if row.form.bar or row.again or known[0] == row.tail or known[1] != row.source:
                return None
        began = self._begin_attempt(row, -1) if self.attempt == 0 and row.kind != NEXT else ()
        self._copies.put(key, (row.tail, row.source))
        return began

    def _complete(self, row: LogRow) -> None:
        """A copy of a line that was cut may have what was lost, and another rank what one doesn't know."""
        pending = self._pending
        if row.form.bar:
            self._replace(row)
        lacks = pending is not None and (pending.cut or pending.quiet)
        if pending is not None and lacks and pending.step == row.step and pending.kind == row.kind:
            self.lines.fill(row)
            pending.values = {**row.values, **pending.values}

    def _begin_attempt(self, row: LogRow, newest: int) -> tuple[Record, ...]:
        finished = tuple(self._leave_pending())
        self.attempt += 1
        self._first = row.step or 0
        self._clocked, self._bar_began = self._first - 1, None
        if self.attempt > 1 and (row.step or 0) <= newest:
            self.account.again.append((newest, row.step or 0, self.lines.number))
        self._copies.clear()
        self._newest.clear()
        self.lines.reached = 0
        self.lines.forget_tails(row)
        self._shift_s = 0.0
        self._clock = row.time if row.time is not None else self._clock
        self._attempt_began = self._clock
        above = (row.step or 0) - 1 if self.attempt > 1 else None
        world = row.world or 0
        return *finished, Start(time=self._clock, attempt=self.attempt, rank=0, world_size=world, from_step=above)

    def _leave_pending(self) -> Iterator[Record]:
        """The records of the row at hand, if there is one."""
        row, self._pending = self._pending, None
        if row is not None and row.ahead:
            self._ahead.append(row)
        elif row is not None:
            yield from self._records_of(row)

    def _leave_ahead(self, began: Sequence[Record] = ()) -> Iterator[Record]:
        """The records of evaluations that came before the first row of training behind a line that says that it begins.

        Args:
            began: the records with which an attempt began by that row; none if it goes on.
        """
        rows, self._ahead = self._ahead, []
        start = next((record for record in began if isinstance(record, Start)), None)
        for row in rows:
            if not row.placed and self._resumed is not None:
                row.step = self._resumed
            elif not row.placed and start is not None:
                row.step = start.from_step
            yield from self._records_of(row)

    def _records_of(self, row: LogRow) -> Iterator[Record]:
        step = row.step or 0
        if self._is_news(row, step):
            yield from self._describe(row)
        if self._limit is not None and step > self._limit:
            return
        if row.values and row.kind == RESULT:
            yield Summary(time=self._clock, values=self._named(row))
        elif row.values:
            yield Metrics(step=step, time=self._clock, values=self._named(row))
        if row.texts:
            yield Text(step=step, time=self._clock, values=row.texts)

    def _named(self, row: LogRow) -> dict[str, Number]:
        """Values by name; those of a program that isn't the log's have its name before theirs."""
        program = row.program.family or row.program.name
        if not self._main and not row.program.helper:
            self._main = program
        if program == self._main or not self._main:
            return row.values
        head = program.lower().replace(" ", "-")
        self.account.foreign[row.program.name] = head
        return {f"{head}/{name}": value for name, value in row.values.items()}

    def _is_news(self, row: LogRow, step: int) -> bool:
        """Count a row and set the clock by it. Whether it, or what preceded it, says something of the run itself."""
        if not row.values:
            return False
        self.rows += 1
        before, self._step = self._step, max(step, self._step) if row.kind != TRAIN else step
        if row.time is not None:
            self._clock = self._set_clock(row, step, before)
        elif row.elapsed is not None:
            began, bar = self._bar_began, self._bar_of(row)
            if began is None or bar != self._bar or row.elapsed < self._trained_s:
                anew = began is not None and row.program.trained_ms  # as behind a warm-up: of a first step unknown
                self._bar_began = began = self._clock - (row.elapsed if anew else 0.0)
            self._bar, self._trained_s = bar, row.elapsed
            self._clock = max(self._clock, began + row.elapsed)
        elif row.kind == TRAIN and self.rows > 1:
            self._clock += (1 if step < self._clocked else step - self._clocked) * _seconds(row)
        if row.kind == TRAIN and (row.time is not None or row.elapsed is not None or _seconds(row)):
            self._clocked = step  # else the next row's time is for this one, too
        return (
            len(self.lines.keys) != self._known_keys
            or self._new_keys
            or row.total != self.total
            or len(self.facts.arguments) != self._arguments
        )

    def _bar_of(self, row: LogRow) -> Any:
        """What tells the bar that says how long a row took: each epoch has its own, and each evaluation."""
        if row.program.by_bar:
            return row.bar
        return row.step if row.kind != TRAIN else row.values.get("epoch") if row.form.bar else None

    def _set_clock(self, row: LogRow, step: int, before: int) -> float:
        """The time of a row's stamp. A clock that was set back goes on where it was."""
        time, more = (row.time or 0.0) + self._shift_s, max(0, step - before)
        if self.rows > 1 and self._clock - time > SET_BACK_S:
            due = self._clock + more * (_seconds(row) or self._pace_s)
            self.account.set_back.append((self._clock - time, self._line))
            self._shift_s += due - time
            return due
        if more and self.rows > 1:
            self._pace_s = (time - self._clock) / more
        return time

    def _describe(self, row: LogRow) -> list[Record]:
        """Records of what is new about the run itself."""
        config: dict[str, Any] = {}
        if len(self.facts.arguments) != self._arguments:
            config.update(self.facts.arguments)
            self._arguments = len(self.facts.arguments)
        log: dict[str, Any] = {}
        if row.total is not None and row.total != self.total:
            self.total = config["train_iters"] = row.total
        if row.world is not None and row.world != self.world:
            self.world = config["world_size"] = row.world
        keys = self.lines.keys
        if len(keys) != self._known_keys or self._new_keys:
            new = dict(list(keys.items())[self._known_keys :])
            log.update({"names": new} if new else {})
            self._known_keys, self._new_keys = len(keys), False
            log.update(self._about(row))
        if log:
            config["log"] = log
        records: list[Record] = []
        if len(self.facts.machine) != self._machine:
            records.append(Environment(time=self._clock, values=dict(self.facts.machine)))
            self._machine = len(self.facts.machine)
        if config:
            records.append(Config(time=self._clock, values=config))
        return records

    def _about(self, row: LogRow) -> dict[str, str]:
        """The log's programs and the releases of their formats, where these aren't known yet."""
        lines = self.lines
        program = row.program
        for member in ALL:
            if member.family and member.family == program.family and member.marks & set(lines.keys.values()):
                lines.named.setdefault(member.family, member)
        named = lines.named.get(program.family) or program
        name = lines.name(program)
        if row.primus and not program.family:
            name = f"Primus ({name} back end)"
        self.formats = [other for other in self.formats if other not in (program.name, name)]
        self.formats.append(name)
        self.formats.sort(key=lambda name: name in HELPERS)
        self._note_release(named, row)
        about = {"format": ", ".join(self.formats)}
        if program.helper and self.formats[0] not in HELPERS:  # the release is the training program's
            return about
        releases = [self._releases[name] for name in (named.name, program.name) if name in self._releases][:1]
        known = [label for rank, label in releases]
        return {**about, "release": ", ".join(known)} if known else about

    def _note_release(self, program: Program, row: LogRow) -> None:
        """Note the release whose form a row has, the most particular one of all rows."""
        rank, _ = self._releases.get(program.name, (len(program.releases), ""))
        for place, (pattern, label) in enumerate(program.releases[:rank]):
            if re.search(pattern.encode(), row.line):
                self._releases[program.name] = place, label
                break

    def _nothing(self) -> str:
        first = self._first_line[:SHOWN].decode("utf-8", "replace")
        shown = "".join(character if character.isprintable() else "?" for character in first)
        empty = "its packed content is cut or damaged" if self.cut else "it is empty"
        detail = f"its first line is: {shown}" if shown else empty
        known = ", ".join(program.name for program in ALL)
        near = self._nearest()
        nearest = f"; nearest are {', '.join(program.name for program in near)} (`{near[0].shown}`)" if near else ""
        own = "; --log-format FILE.toml reads lines of your own: docs/console-logs.md"
        detail += f"; a table is read as csv:{self._name}" if _TABLE_HEAD.fullmatch(self._first_line[:SHOWN]) else ""
        return f"{self._name}: no line with training values; known are {known}{nearest}{own}; {detail}"

    def _nearest(self) -> list[Program]:
        """Programs whose lines are most like the log's: those that some line may be of, else by their words."""
        maybe = sorted(self.lines.maybe.items(), key=lambda item: -item[1].lines)
        if maybe:
            return [program for program, _ in maybe[:NEAREST]]
        shared = {program: len(self._words & set(_WORDS.findall(program.shown.lower()))) for program in ALL}
        near = sorted((program for program in ALL if shared[program] > 1), key=lambda program: -shared[program])
        return near[:NEAREST]


_DIGITS = re.compile(r"\d")
NEAREST = 3
WORDS = 1000
LONGEST = 1000
"""How many programs a refusal names, by so many words of a log, in so many bytes of a line."""
_WORDS = re.compile(r"[a-z_]{2,40}")
_WORD = re.compile(rb"\w")
_TABLE_HEAD = re.compile(rb"[\w./()%@-]{1,40}(?:[,;\t][\w./()%@-]{1,40}){1,100}")
"""A first line as a table has it: Keras' CSVLogger is mostly told to write training.log."""
COUNTERS = ("consumed_samples", "consumed_tokens", "global_step", "training/global_step", "num_tokens", "total_tokens")
"""Names whose values grow with training: where they fall with the step, training began again."""
BESIDE_S = 2.0
"""Another rank writes its line of a step within that time; training that begins again takes longer."""
SET_BACK_S = 60.0
"""By how much a clock goes back at least, if it was set back; less is another rank's clock."""
_STATUSES = {"failed": "failed", "killed": "crashed", "preempted": "preempted"}
_ENDS = re.compile(
    rb"(?P<failed>^Traceback \(most recent call last\):|ChildFailedError|OutOfMemoryError|^FATAL\b|Segmentation fault"
    rb"|Aborting training due to (?:NaN|Inf))"
    rb"|(?P<preempted>\*\*\* (?:JOB|STEP) .{0,200}DUE TO PREEMPTION|DUE TO PREEMPTION|after receiving SIGTERM)"
    rb"|(?P<killed>DUE TO TIME LIMIT|oom[-_]kill|\*\*\* (?:JOB|STEP) .{0,200}CANCELLED|Signal 9 \(SIGKILL\)|^Killed$)"
)
"""What is written where a run doesn't end by itself; rows behind it say that it went on."""


_FELL = (
    "the step falls from",
    ", and no checkpoint, time or counter says that training began again: the values of both are kept",
)


class Account:
    """What became of the lines that look like rows, and what a reader of the values must know of them.

    again, fell: where training went back, and where the step fell and nothing says why: the steps before and behind,
    and the line. others: steps and lines that say other values of a step than the line before; ranked: those that say
    whose they are, which matters where the rows that are read are of several (mixed). set_back: seconds by
    which a clock was, and the line. foreign: a second program, and what stands before its values' names.
    """

    def __init__(self) -> None:
        self.seen = self.bad = 0
        self.first: tuple[int, bytes] | None = None
        self.numbered = self.late = self.unsure = self.by_bar = self.twice = False
        self.again: list[tuple[int, int, int]] = []
        self.fell: list[tuple[int, int, int]] = []
        self.others: list[tuple[int, int]] = []
        self.ranked: list[tuple[int, int]] = []
        self.mixed = False
        self.set_back: list[tuple[float, int]] = []
        self.foreign: dict[str, str] = {}

    def count(self, row: LogRow, line: int, text: bytes, *, copy: bool = False) -> None:
        """Take a line that looks like a row."""
        self.seen += 1
        if row.kind == BROKEN or (not copy and (row.bad or row.cut)):
            self._add_bad(1, line, text)

    def spoil(self, row: LogRow, line: int, text: bytes) -> None:
        """A line that continues a row can't be read."""
        if not row.bad:
            row.bad = True
            self._add_bad(1, line, text)

    def close(self, stream: LogStream) -> None:
        """Add what was found only behind the lines that it is about, such as which programs there are."""
        self.unsure, self.twice = stream.lines.unsure, stream.lines.twice
        found = paired_steps(stream.paired)
        odd = len(stream.lines.bars) > 1 or found.late or (found.behind and not found.again)
        self.by_bar &= not found.sure or (odd and not stream.bars.length)  # of a log that is read but once
        for program, known in stream.lines.maybe.items():
            if stream.lines.is_known(program):
                self.seen += known.lines
                self._add_bad(known.lines, known.line, known.text)

    def notes(self) -> Iterator[str]:
        """One line each."""
        if self.bad and self.first is not None:
            line, text = self.first
            shown = one_line(text.decode("utf-8", "replace"), SHOWN)
            yield (
                f"read {self.seen - self.bad:,} of {self.seen:,} rows; {self.bad:,} not understood, first at line "
                f"{line:,}: {shown}"
            )
        for places, said, ends in ((self.again, "training went back from step", ""), (self.fell, *_FELL)):
            if places:
                newest, step, line = places[0]
                more = f", and {len(places) - 1} times more" if len(places) > 1 else ""
                yield f"{said} {newest:,} to {step:,} at line {line:,}{more}{ends}"
        others = sorted([*self.others, *(self.ranked if self.mixed else ())], key=lambda place: place[1])
        if others:
            step, line = others[0]
            yield (
                f"{len(others):,} lines say other values of a step than the line before them, as another rank's "
                f"would, first at line {line:,}, of step {step:,}: the first of each step is read"
            )
        for by_s, line in self.set_back[:1]:
            yield f"the clock was set back by {by_s:,.0f} s at line {line:,}: later times go on from there"
        for program, head in self.foreign.items():
            yield f"values of {program}'s rows are called {head}/…"
        if self.numbered:
            yield "the log has no steps: its rows are numbered"
        if self.twice:
            yield "epochs begin twice, as where two processes write: rows are of either, and may be of the epoch before"
        if self.unsure:
            yield "the log doesn't say how long epochs were, nor shows each step: steps behind the first may be too low"
        if self.late:
            yield "steps are a progress bar's, and the epochs don't agree with it: it may be late, and steps too low"
        elif self.by_bar:
            yield "steps are a progress bar's, and too few rows tell whether it is training's"

    def _add_bad(self, count: int, line: int, text: bytes) -> None:
        self.bad += count
        if self.first is None or line < self.first[0]:
            self.first = line, text


class Survey(NamedTuple):
    """What a first reading of a log tells a second.

    restarts: from which step on each attempt after the first superseded what was trained before. main: the program (or
    family) of most rows. bars: how progress bars tell rows' steps. told: all programs (or families) with rows.
    """

    restarts: Sequence[int] = ()
    main: str = ""
    bars: BarSteps = BarSteps()
    told: Collection[str] = ()
    page: Page = NO_PAGE


def paired_steps(paired: Mapping[str, Sequence[Paired]]) -> BarSteps:
    """How bars tell the steps of a log's rows of training; of evaluations, which may have one of their own, if none."""
    return bar_steps(paired.get(TRAIN) or paired.get(EVAL, ()))


Opened = Callable[[], contextlib.AbstractContextManager[BinaryIO]]


def looked_through(opened: Opened, year: int, formats: Sequence[Program] = ()) -> Survey:
    """See :func:`survey`; most logs of Megatron's kind need none, which is told quickly."""
    with opened() as file:
        page = _page(file, year, formats)
    with opened() as file:
        if not formats and not page.width and not may_restart(file):
            return Survey()
    return survey(opened, year, formats, page)


def survey(opened: Opened, year: int, formats: Sequence[Program] = (), page: Page = NO_PAGE) -> Survey:
    """Read a log through for what :class:`LogStream` must know before its first row.

    Args:
        opened: gives the log, from its beginning; it is read twice where progress bars tell its steps, for restarts
            are told by these. year: as for :class:`LogStream`. page: the log's.
    """
    found = Survey(page=page)
    while True:
        stream = LogStream("", 0.0, year, Survey(bars=found.bars, page=page), formats=formats)
        steps = []
        with opened() as file, contextlib.suppress(NotFound):
            steps = [record.from_step for record in stream.read(file) if isinstance(record, Start)]
        counts = {name: count for name, count in stream.lines.known.items() if name not in HELPERS}
        main = max(counts, key=lambda name: counts[name], default="")
        bars = paired_steps(stream.paired)
        again = bars != found.bars and found.bars == BarSteps()
        found = Survey([step for step in steps if step is not None], main, bars, tuple(stream.lines.known), page)
        if not again:
            return found


def _page(file: BinaryIO, year: int, formats: Sequence[Program]) -> Page:
    """Whether a log's lines were wrapped."""
    return page_of(_read_lines(file), partial(_said, year, formats), partial(_probe, year, formats))


def _said(year: int, formats: Sequence[Program], text: bytes, page: Page) -> Said:
    """What a part of a log says, as a page."""
    stream = LogStream("", 0.0, year, Survey(page=page), formats=formats)
    rows: list[dict[str, Number]] = []
    with contextlib.suppress(NotFound):
        rows += [one.values for one in stream.read(io.BytesIO(text)) if isinstance(one, (Metrics, Summary))]
    return Said(list(map(str, rows)), sum(map(len, rows)), stream.account.bad)


def _probe(year: int, formats: Sequence[Program]) -> Probe:
    """Tells whether a line of a log is a row, and whole."""
    reader = LineReader(year, formats=formats)

    def probe(line: bytes) -> bool | None:
        reader.forget_tails()  # a row's own beginning may have been tried before
        rows = [row for row in reader.rows(line) if row.kind in (*ROWS, BROKEN)]
        for row in rows:
            reader.fill(row)
            if row.kind != BROKEN:
                reader.recognise(row.program)
        return not any(row.bad or row.cut or row.kind == BROKEN for row in rows) if rows else None

    return probe


HELPERS = frozenset(program.name for program in ALL if program.helper)
_HELPERS_WORDS = sorted({form.literal for program in ALL if program.helper for form in program.forms})


def may_restart(file: BinaryIO) -> bool:
    """Whether :func:`survey` is needed: an iteration comes again, rows of a helper may stand among Megatron's, or there
    are none of its kind. Several times quicker.
    """
    last: list[int] = []
    rest = b""
    try:
        while block := file.read1(BLOCK_BYTES):  # type: ignore[attr-defined]
            text = rest + block
            end = text.rfind(b"\n") + 1 or (len(text) if len(text) > LINE_BYTES else 0)
            rest = text[end:]
            if _comes_again(text[:end], last) or b"\0" in text or any(word in text for word in _HELPERS_WORDS):
                return True
    except text_file.PackedError:
        pass
    return _comes_again(rest, last) or any(word in rest for word in _HELPERS_WORDS) or not last


def _comes_again(text: bytes, last: list[int]) -> bool:
    """Whether a step isn't above the one before it. last: that, which the text's takes the place of."""
    text = COLOR.sub(b"", text) if b"\x1b" in text else text
    steps = [*last, *(map(int, _STEP.findall(text)) if b"iteration " in text else ())]
    last[:] = steps[-1:]
    return any(later <= step for step, later in itertools.pairwise(steps))


class _Copies:
    """Hashes of lines by what they are about, of the latest :data:`REMEMBERED` or up to twice as many."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self._new: dict[Any, Any] = {}
        self._old: dict[Any, Any] = {}

    def get(self, key: Any) -> Any:
        known = self._new.get(key)
        return self._old.get(key) if known is None and self._old else known

    def put(self, key: Any, text: Any) -> None:
        self._new[key] = text
        if len(self._new) > REMEMBERED:
            self._old, self._new = self._new, {}


def _same(one: Number, other: Number) -> bool:
    """Whether two lines say the same value, which one may round."""
    return math.isclose(one, other, rel_tol=1e-3) or (math.isnan(one) and math.isnan(other))


def _begins(row: LogRow, later: LogRow) -> bool:
    """Whether a field of a row begins on the line of a later row, before that."""
    same = row.form.following is None or later.line.startswith(row.line)
    return not same and BEGUN.match(later.line[: later.begin]) is not None


def _seconds(row: LogRow) -> float:
    """How long an iteration took, by its line; 0.0 where that isn't said."""
    if "perf/iter_ms" in row.values:
        return max(0.0, float(row.values["perf/iter_ms"])) / 1000.0
    return max(0.0, float(row.values.get("perf/iter_time_sec", 0.0)))


def _read_lines(file: BinaryIO, say_cut: Callable[[], object] = lambda: None) -> Iterator[bytes]:
    """Lines as far as they can be read: a packed file that was cut, or unpacks to far too much, ends; that is said."""
    try:
        for line in iter(partial(file.readline, LINE_BYTES), b""):
            yield line if b"\0" not in line else text_file.narrowed(line).replace(b"\0", b"")  # as truncation leaves
    except text_file.PackedError:
        say_cut()


STDIN = "-"
CUT = "the packed log is cut or damaged: this is what could be read of it"
BUFFER_BYTES = 1 << 20
SOON_S = 0.1
"""How long another part of standard input may take, whose beginning is looked at: from one program to the next."""
IN_MEMORY_BYTES = 16 << 20
"""Of standard input that are kept in memory; more go to a file."""


class _KeptInput:
    """A stream that passes but once, for several readers: what has passed lies in a temporary file."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._file = tempfile.SpooledTemporaryFile(IN_MEMORY_BYTES)  # noqa: SIM115
        self._length = 0

    def read(self, offset: int, size: int) -> bytes:
        """At most ``size`` bytes from ``offset`` on; waits for the stream where none of them has passed."""
        if offset < self._length:
            self._file.seek(offset)
            return self._file.read(size)
        data: bytes = self._stream.read1(size)  # type: ignore[attr-defined]
        self._file.seek(self._length)
        self._file.write(data)
        self._length += len(data)
        return data

    def reader(self) -> BinaryIO:
        """The stream from its beginning; goes on as it does."""
        return io.BufferedReader(_KeptInputReader(self), HEAD_BYTES)

    def head(self) -> BinaryIO:
        """What the stream gives at once, at its beginning: a program that still writes isn't waited for any longer."""
        data = self.read(0, HEAD_BYTES)
        while len(data) < HEAD_BYTES and (len(data) < self._length or self._has_more()):
            more = self.read(len(data), HEAD_BYTES - len(data))
            if not more:
                break
            data += more
        return io.BufferedReader(io.BytesIO(data))

    def _has_more(self) -> bool:
        """Whether the stream gives something soon, or has ended."""
        try:
            return readable(self._stream.fileno(), SOON_S)
        except (OSError, ValueError):  # no file of the system's
            return True


class _KeptInputReader(io.RawIOBase):
    """One reading of a :class:`_KeptInput`."""

    def __init__(self, kept: _KeptInput) -> None:
        self._kept, self._offset = kept, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._kept.read(self._offset, len(buffer))
        buffer[: len(data)] = data
        self._offset += len(data)
        return len(data)


@functools.lru_cache(maxsize=1)
def _kept_input(stream: BinaryIO) -> _KeptInput:
    return _KeptInput(stream)


@bounded
class LogReader(Reader):
    """Console logs as runs: a file (perhaps packed), a glob, or ``-`` for standard input, which is kept."""

    scheme = "log"
    form = 19

    def runs(self, where: str) -> list[SourceRun]:
        """One run for each file, the one changed last first. See :class:`trackers.readers.reader.Reader`."""
        if where == STDIN:
            created = _first_stamp(_kept_input(sys.stdin.buffer).head(), time.time())
            return [SourceRun(source="log:-", id="stdin", name="stdin", created=created, native={"path": STDIN})]
        if not where:
            raise UsageError("log: name a file, as in log:training.log, or log:- for standard input")
        paths = sorted(_paths(where), key=lambda path: -path.stat().st_mtime)
        return helpers.those_of(paths, _run)

    def version(self, run: SourceRun) -> str:
        """The file's size and time, this machine's time zone, and a user's formats; "" for standard input."""
        try:
            stat = Path(str(run.native["path"])).stat()
        except OSError:
            return ""
        return f"{stat.st_size}:{stat.st_mtime_ns}:{time.timezone}:{own_format.version()}"

    def read(self, run: SourceRun, *, files: Path | None = None) -> Iterator[Record]:
        """The log's records. See :class:`trackers.readers.reader.Reader`.

        Raises:
            NotFound: the file has gone, or holds no line of a known program; the message shows its first line.
        """
        path = str(run.native["path"])
        if path == STDIN:
            now = time.time()
            began, year = run.created or now, time.localtime(now).tm_year
            formats = own_format.programs()
            page = _page(text_file.as_text(_kept_input(sys.stdin.buffer).head()), year, formats)
            stream = LogStream("standard input", began, year, Survey(page=page), formats=formats)
            yield from stream.read(text_file.as_text(_kept_input(sys.stdin.buffer).reader()))
            run.note = stream.note()
            return
        try:
            changed = Path(path).stat().st_mtime
            year = time.localtime(changed).tm_year
            formats = own_format.programs()
            known = looked_through(lambda: _opened(path), year, formats)
            with open(path, "rb", buffering=BUFFER_BYTES) as file:
                stream = LogStream(path, run.created or changed, year, known, latest=changed, formats=formats)
                yield from stream.read(text_file.as_text(file))
                run.note = stream.note()
        except FileNotFoundError:
            raise NotFound(f"{path}: no such file") from None
        except OSError as error:
            raise NotFound(f"{path} can't be read: {error.strerror or error}") from None


@contextlib.contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    """A log as text, from its beginning."""
    with open(path, "rb", buffering=BUFFER_BYTES) as file:
        yield text_file.as_text(file)


def _paths(where: str) -> list[Path]:
    path = Path(where).expanduser()
    if path.is_file():
        return [path]
    if path.is_dir():
        raise NotFound(f"{where} is a directory: name a log in it, or several as log:{where.rstrip('/')}/*.log")
    paths = [Path(name) for name in glob.glob(str(path), recursive=True) if Path(name).is_file()]
    if not paths:
        near = sorted(item.name for item in path.parent.glob("*.log*")) if path.parent.is_dir() else []
        raise NotFound(f"{where}: no such file" + (f"; there are {examples(near, 5)}" if near else ""))
    return paths


HEAD_OF_LINE = 60
"""Bytes of a line in which its stamp stands, if it has one."""


def _began(path: Path) -> float:
    """When a run began: the first stamp at the beginning of a line, else the file's modification time."""
    changed = path.stat().st_mtime
    with contextlib.suppress(OSError), open(path, "rb") as file:
        return _first_stamp(file, changed)
    return changed


def _first_stamp(file: BinaryIO, latest: float) -> float:
    """The first stamp at the beginning of a line, at most ``latest``; that if there is none."""
    year = time.localtime(latest).tm_year
    left = HEAD_BYTES
    for line in _read_lines(text_file.as_text(file)):
        stamp = find_time(COLOR.sub(b"", line[:HEAD_OF_LINE]), year, latest)
        left -= len(line)
        if stamp is not None:
            return stamp
        if left < 0:
            break
    return latest


def _run(path: Path) -> SourceRun:
    helpers.check_size(path)
    native: dict[str, Any] = {"path": str(path)}
    return SourceRun(
        source=f"log:{path}",
        id=helpers.log_id(path),
        name=helpers.log_name(path) or path.name,
        project=path.resolve().parent.name,
        created=_began(path),
        native=native,
    )


_ARGUMENT = re.compile(rb"(?:^|[\s\]:])([A-Za-z_][\w.]*) \.{3,} (\S.*)")
_FACTS = {
    "gpu": re.compile(
        rb"\b(AMD Instinct MI\d+\w*|AMD Radeon(?: \w+){1,3}|Tesla [A-Z]\d+[\w-]*"
        rb"|NVIDIA (?:RTX |GeForce |TITAN )?(?:GB?|GH|H|A|B|L|V|T)?\d{2,4}\w*(?:[ -](?:SXM\d?|PCIe|NVL|HBM\w*|\d+GB))*)"
    ),
    "pytorch_version": re.compile(
        rb"\b(?:py)?torch(?:[ _.]+version)?_*['\"]?\s*[:=]+\s*['\"]?v?(\d+\.\d[\w.+-]*)", re.I
    ),
    "rocm_version": re.compile(rb"\b(?:rocm|hip)[ _-]?(?:version)?['\"]?\s*[:=]\s*['\"]?v?(\d+\.\d[\w.-]*)", re.I),
    "cuda_version": re.compile(rb"\bcuda[ _-]?(?:version)?['\"]?\s*[:=]\s*['\"]?v?(\d+\.\d[\w.-]*)", re.I),
}
_HINT = re.compile(rb"amd|nvidia|tesla|torch|rocm|hip|cuda", re.IGNORECASE)
_BUILD = re.compile(r"\+(rocm|cu)(\d[\d.]*)")
FACT_BYTES = 4096
"""Bytes of a line that are searched for them."""
LINES = 20_000
"""Number of first lines without values that are searched for arguments and machines."""


class MachineFacts:
    """Gathers what lines without values say. ``arguments``: the program's own; ``machine``: gpu and versions."""

    def __init__(self) -> None:
        self.arguments: dict[str, Any] = {}
        self.machine: dict[str, str] = {}
        self._lines_left = LINES

    def scan(self, line: bytes) -> None:
        """Look for facts about the machine and for arguments in a line."""
        if self._lines_left <= 0:
            return
        self._lines_left -= 1
        line = line[:FACT_BYTES]
        if b"\x1b" in line:
            line = COLOR.sub(b"", line)
        if b" ..." in line and (match := _ARGUMENT.search(line)):
            self.arguments.setdefault(match[1].decode(), _value(match[2].decode("utf-8", "replace").rstrip()))
        elif _HINT.search(line):
            for name, pattern in _FACTS.items():
                if name not in self.machine and (match := pattern.search(line)):
                    self.machine[name] = match[1].decode("utf-8", "replace").strip()
            build = _BUILD.search(self.machine.get("pytorch_version", ""))
            if build:
                name, digits = ("rocm_version" if build[1] == "rocm" else "cuda_version"), build[2]
                self.machine.setdefault(name, digits if "." in digits else f"{digits[:-1]}.{digits[-1]}")


def _value(text: str) -> Any:
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
    return value if isinstance(value, (int, float, bool, str, type(None), list)) else text
