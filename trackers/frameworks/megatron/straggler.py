"""Slow ranks, as by Megatron's ``StragglerDetector``, and its timers: measured without a wait, gathered, reported."""

from __future__ import annotations

import dataclasses
import math
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

import msgspec

from trackers.errors import UNDECODABLE, UsageError
from trackers.formats.megatron_line import STRAGGLER_ENDS, TRACED, is_forward
from trackers.formats.megatron_line import report as timer_report
from trackers.instruments.timers import NULL, SUFFIX, Interval, NullTimer, Timer, Timers, TimerSpan
from trackers.reductions import Max
from trackers.support.clock import monotonic
from trackers.support.interruption import pass_on
from trackers.values.device_copy import Awaited, deferred_number

DATA = "batch-generator"
FORWARD_PART = 3.0
"""Divisor of an iteration's operations if only the forward pass was traced: two thirds belong to the backward pass."""


@dataclasses.dataclass(kw_only=True)
class StragglerDetectionConfig:
    """Configuration of the stragglers' report: fields as in Megatron. The report is on by default.

    Args:
        log_straggler: print the report. straggler_minmax_count: how many ranks are named at the bottom and the top,
            where there are more; 1: the slowest and the quickest alone.
        enable_straggler_on_startup, disable_straggler_on_startup: likewise, as Megatron Bridge and Megatron-LM call it.
        straggler_ctrlr_port: has no effect: nothing listens on a port here.
    """

    log_straggler: bool = True
    straggler_minmax_count: int = STRAGGLER_ENDS
    enable_straggler_on_startup: bool = True
    disable_straggler_on_startup: bool = False
    straggler_ctrlr_port: int = 65535

    @property
    def enabled(self) -> bool:
        """Whether the report is printed."""
        return self.log_straggler and self.enable_straggler_on_startup and not self.disable_straggler_on_startup

    def check(self) -> None:
        """Raise UsageError for a value that makes no sense."""
        for field in ("log_straggler", "enable_straggler_on_startup", "disable_straggler_on_startup"):
            if not isinstance(getattr(self, field), bool):
                raise UsageError(f"{field}={getattr(self, field)!r}: give True or False")
        count = self.straggler_minmax_count
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise UsageError(f"straggler_minmax_count={count!r}: give the ranks to name, 1 or more")


class StragglerTimer:
    """Traces what tells ranks apart: ``with log.straggler_timer:`` around the forward pass, and
    ``with log.straggler_timer(bdata=True):`` around getting a batch. Has the calls of Megatron's detector.

    Args:
        enabled: else it measures nothing. timers: where it measures. rank, world_size: this process's.
    """

    def __init__(self, enabled: bool, timers: Timers, rank: int, world_size: int) -> None:
        self.enabled = enabled
        self.my_rank = rank
        self.world_size = world_size
        self._timers = timers
        self._work: Timer | NullTimer = NULL
        self._data: Timer | NullTimer = NULL
        self._now: list[Timer | NullTimer] = []
        self._bdata = False
        self._reading: Interval | None = None

    @property
    def configured(self) -> bool:
        """Always: ``trackers.frameworks.megatron.start`` configures it."""
        return True

    def configure(self, *arguments: Any, **more: Any) -> None:
        """Nothing: ``start(straggler=StragglerDetectionConfig(…))`` says how stragglers are reported."""

    def report(self, total_flops: float = 0.0, log_interval: int = 0) -> bool:
        """False: ``training_log`` prints the report each ``log_interval``."""
        return False

    def reset(self) -> None:
        """Nothing: each report is of its own interval."""

    def elapsed(self) -> tuple[float, float, int, int, int, int]:
        """As Megatron's: milliseconds traced and of data since the last call; temperature, power, utilisation and
        clock are in the report alone, here 0."""
        if self._reading is None:
            self._reading = self._timers.interval()
            return 0.0, 0.0, 0, 0, 0, 0
        spans = self._reading.take()
        ms = [1000 * spans[name].elapsed_s if name in spans else 0.0 for name in (TRACED, DATA)]
        work, data = (value if math.isfinite(value) else 0.0 for value in ms)
        return work, data, 0, 0, 0, 0

    def __call__(self, bdata: bool = False) -> StragglerTimer:
        """The same, for what gets a batch where ``bdata`` is true."""
        self._bdata = bdata
        return self

    def start(self) -> None:
        """Begin to trace."""
        bdata, self._bdata = self._bdata, False
        if not self.enabled:
            return
        if self._work is NULL:
            self._work = self._timers.get(TRACED, 0)
            self._data = self._timers.get(DATA, 0, "cpu")
        timer = self._data if bdata else self._work
        self._now.append(timer)
        timer.__enter__()

    def stop(self) -> None:
        """Stop tracing."""
        if self._now:
            self._now.pop().__exit__(None, None, None)

    def __enter__(self) -> StragglerTimer:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._now:
            self._now.pop().__exit__(kind, error, tb)


MOST = 64
"""Intervals whose lines may wait; older ones are given up, for nobody will miss them then."""
FINISH_S = 3.0


class StragglerLines:
    """Lines of one interval.

    Args:
        sources: what must be known first. print_own: prints what is this rank's.
        told: what this rank tells the others, JSON types; None: nothing. print_all: prints what all ranks told.
        joint: ``print_all`` prints the interval's line, too, so that later lines wait for it; ``print_own`` does
            where the other ranks' words don't come.
    """

    def __init__(
        self,
        sources: Sequence[Awaited],
        print_own: Callable[[], None],
        told: Callable[[], Any] | None = None,
        print_all: Callable[[Sequence[Any]], None] | None = None,
        joint: bool = False,
    ) -> None:
        self._sources = sources
        self.print_own = print_own
        self.told = told
        self.print_all = print_all
        self.joint = joint

    @property
    def ready(self) -> bool:
        """Whether everything is known; asks, never waits."""
        return all(source.ready for source in self._sources)


class _Known:
    """A report whose own values are known. posted: what it told the others. lined: its line is printed, or left to
    ``print_all``. told: nothing of other ranks is awaited any more."""

    def __init__(self, report: StragglerLines) -> None:
        self.report = report
        self.posted: Posted | None = None
        self.lined = False
        self.told = report.told is None


class StragglerReports:
    """Prints reports in order, as they become known."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._gather = TextGather()
        self._waiting: deque[StragglerLines] = deque()
        self._known: deque[_Known] = deque()

    @property
    def alone(self) -> bool:
        """Whether they have nothing of other ranks."""
        return self._gather.alone

    def add(self, report: StragglerLines) -> None:
        """Print it when it is known."""
        self._waiting.append(report)
        self.advance()

    def advance(self) -> None:
        """Go on as far as is possible without waiting."""
        while self._waiting and self._waiting[0].ready:
            entry = _Known(self._waiting.popleft())
            self._known.append(entry)
            self._print_lines()
            if entry.report.told is not None:
                entry.posted = self._post(entry.report)
        self._show()

    def together(self, value: Any, seconds: float = FINISH_S) -> Sequence[Any]:
        """The ranks' current values, by rank; after the timeout only this rank's own."""
        posted = self._gather.post(value)
        return posted.rows() if wait(posted, seconds) else [value]

    def finish(self, seconds: float = FINISH_S) -> None:
        """Print the remaining texts, with a limited wait for a GPU and the other ranks."""
        until = monotonic() + seconds
        while self._waiting and monotonic() < until:
            self.advance()
            if self._waiting:
                time.sleep(0.001)
        for entry in list(self._known):
            if entry.posted is not None and not wait(entry.posted, max(0.0, until - monotonic())):
                break
        self._show()
        self._give_up(0)

    def _print_lines(self) -> None:
        """Print the lines that can be, in order."""
        for entry in self._known:
            if entry.lined:
                continue
            if not entry.report.joint:
                self._try(entry.report.print_own)
            elif entry.posted is None or not entry.posted.ready:
                break
            else:
                self._print_all(entry)
            entry.lined = True

    def _show(self) -> None:
        """Print what can be: lines, and what all ranks told, each in order."""
        self._print_lines()
        for entry in self._known:
            if not entry.lined or (not entry.told and (entry.posted is None or not entry.posted.ready)):
                break
            self._print_all(entry)
        while self._known and self._known[0].lined and self._known[0].told:
            self._known.popleft()
        self._give_up(MOST)

    def _print_all(self, entry: _Known) -> None:
        if not entry.told and entry.posted is not None:
            entry.told = True
            if entry.report.print_all is not None:
                self._try(entry.report.print_all, entry.posted.rows())

    def _give_up(self, most: int) -> None:
        """Wait no longer for what other ranks say of all but the newest reports: a line is printed without it."""
        while len(self._known) > most:
            entry = self._known.popleft()
            if not entry.lined:
                self._try(entry.report.print_own)

    def _post(self, report: StragglerLines) -> Posted:
        assert report.told is not None
        value = None
        try:
            value = report.told()
        except Exception as error:
            pass_on(error)
            self._say(f"report: {type(error).__name__}: {error}")
        try:
            return self._gather.post(value)  # in any case: the other ranks count on it
        except Exception as error:  # the process group is gone
            pass_on(error)
            self._say(f"report: {type(error).__name__}: {error}: it is this rank's own")
            return Posted([value])

    def _try(self, function: Callable[..., None], *arguments: Any) -> None:
        try:
            function(*arguments)
        except Exception as error:
            pass_on(error)
            self._say(f"report: {type(error).__name__}: {error}")


SIZE_BYTES = 16384
"""A rank's text; ranks must post the same size. What doesn't fit is left out."""


class Posted:
    """One text of each rank, on its way."""

    def __init__(self, rows: list[Any], work: Any = None) -> None:
        self._rows = rows
        self._work = work

    @property
    def ready(self) -> bool:
        """Asks, never waits."""
        return self._work is None or bool(self._work.is_completed())

    def rows(self) -> list[Any]:
        """By rank, what it posted; None where it can't be read."""
        return self._rows if self._work is None else [_decode(bytes(row.tolist())) for row in self._rows]


class TextGather:
    """Brings ranks' texts together. Every rank makes one at the same place, and posts the same number of times."""

    def __init__(self) -> None:
        distributed = sys.modules.get("torch.distributed")
        self._distributed: Any = None
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            self._distributed = distributed if distributed.get_world_size() > 1 else None
        self._group = self._distributed.new_group(backend="gloo") if self._distributed is not None else None

    @property
    def alone(self) -> bool:
        """Whether there is no group of several ranks: each has only its own text."""
        return self._distributed is None

    def post(self, value: Any) -> Posted:
        """Send this rank's value: JSON types."""
        if self._distributed is None:
            return Posted([value])
        import torch

        text = msgspec.json.encode(value)
        if len(text) > SIZE_BYTES:
            text = b"null"
        own = torch.frombuffer(bytearray(text.ljust(SIZE_BYTES)), dtype=torch.uint8)
        rows = [torch.empty(SIZE_BYTES, dtype=torch.uint8) for _ in range(self._distributed.get_world_size())]
        return Posted(rows, self._distributed.all_gather(rows, own, group=self._group, async_op=True))


def wait(posted: Posted, seconds: float) -> bool:
    """Wait for a text's values, for a limited time: at the end of training."""
    until = monotonic() + seconds
    while not posted.ready and monotonic() < until:
        time.sleep(0.005)
    return posted.ready


def _decode(text: bytes) -> Any:
    try:
        return msgspec.json.decode(text)
    except UNDECODABLE:
        return None


HIGHEST = 2


class MegatronTimers:
    """The timers of a training, called by name.

    Args:
        timers: the run's. traced: where timers above the level are kept for the report of stragglers; None: nowhere.
        option: "max", "minmax" or "all". rank, ranks: this process's, and how many there are.
        reports: what brings ranks' values together. log: called with values and a step. write: prints a line.
        say: called with a line that says what was misused.
    """

    def __init__(
        self, timers: Timers, traced: Timers | None, option: str, *, rank: int, ranks: int, reports: StragglerReports,
        log: Callable[[dict[str, Any], int], Any], write: Callable[[str], Any], say: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._timers = timers
        self._traced = traced
        self._option = option
        self._rank, self._ranks = rank, ranks
        self._reports = reports
        self._log, self._write, self._say = log, write, say

    def __call__(self, name: str, log_level: int | None = None) -> Timer | NullTimer:
        """The timer of this name; without a level it is a frequent one's, 2. Above ``timing_log_level`` it is in
        no log and no report; among several ranks it still tells who is slow."""
        timers, level = self._timers, HIGHEST if log_level is None else log_level
        if level.__class__ is not int or not 0 <= level <= HIGHEST:
            self._say(f"timer {name!r}: log_level={log_level!r}: known are 0, 1 and 2; {HIGHEST} is taken")
            level = HIGHEST
        if level > timers.level and self._traced is not None and isinstance(name, str):
            return self._traced.get(name, 0, "auto" if is_forward(name) else "cpu")
        return timers.get(name, level)

    def log(
        self,
        names: Sequence[str] | None = None,
        rank: int | None = None,
        normalizer: float = 1.0,
        reset: bool = True,
        barrier: bool = False,
    ) -> None:
        """Print the timers' report, once every rank has told its times; every rank must call it. Never waits.

        Args:
            names: which; default all. rank: the one that prints; default the last.
            normalizer: what the times are divided by, such as the iterations of an interval.
            reset: the timers' ``elapsed`` counts from here. barrier: wait first until all ranks are here.
        """
        try:
            spans, divisor = self._laps(names, normalizer, reset, barrier)
            prints = self._rank == (self._ranks - 1 if rank is None else rank)

            def own_row() -> dict[str, Any]:
                return _milliseconds(spans, divisor)

            def print_all(rows: Sequence[Any]) -> None:
                text = self._text(rows)
                if prints and text is not None:
                    self._write(text)

            self._reports.add(StragglerLines(list(spans.values()), lambda: None, own_row, print_all))
        except Exception as error:
            pass_on(error)
            self._say(f"timers.log: {type(error).__name__}: {error}")

    def write(
        self,
        names: Sequence[str] | None,
        writer: Any,
        iteration: int,
        normalizer: float = 1.0,
        reset: bool = True,
        barrier: bool = False,
    ) -> None:
        """Log ``{name}-time`` in seconds, the slowest rank's, at an iteration; every rank must call it. Never waits.

        Args:
            writer: not needed: every tracker of the run gets the values. The others: as for ``log``.
        """
        try:
            spans, divisor = self._laps(names, normalizer, reset, barrier)
            values: dict[str, Any] = {}
            for name, span in spans.items():
                time_s = deferred_number([span], lambda span=span: span.elapsed_s / divisor)  # type: ignore[misc]
                values[name + SUFFIX] = Max(time_s) if self._ranks > 1 else time_s
            if values:
                self._log(values, iteration)
        except Exception as error:
            pass_on(error)
            self._say(f"timers.write: {type(error).__name__}: {error}")

    def get_all_timers_string(
        self,
        names: Sequence[str] | None = None,
        normalizer: float = 1.0,
        reset: bool = True,
        barrier: bool = False,
    ) -> str | None:
        """The report as text; None where nothing was measured. Every rank must call it; waits for the other ranks,
        3 s at most: without them it is this rank's alone. The arguments: as for ``log``."""
        try:
            spans, divisor = self._laps(names, normalizer, reset, barrier)
            for timer in self._timers:
                timer.settle()
            return self._text(self._reports.together(_milliseconds(spans, divisor)))
        except Exception as error:
            pass_on(error)
            self._say(f"timers: {type(error).__name__}: {error}")
            return None

    def _laps(
        self, names: Sequence[str] | str | None, normalizer: float, reset: bool, barrier: bool
    ) -> tuple[dict[str, TimerSpan], float]:
        if barrier:
            self._timers.wait_for_all()
        if not isinstance(normalizer, (int, float)) or not normalizer > 0:
            self._say(f"timers: normalizer={normalizer!r}: give a number above 0; 1 is taken")
            normalizer = 1.0
        chosen = None if names is None else {names} if isinstance(names, str) else set(names)
        spans = {timer.name: timer.lap(reset) for timer in self._timers if chosen is None or timer.name in chosen}
        return {name: span for name, span in spans.items() if span.used}, float(normalizer)

    def _text(self, rows: Sequence[Any]) -> str | None:
        names = dict.fromkeys(name for row in rows if isinstance(row, Mapping) for name in row)
        times = {name: [row.get(name) if isinstance(row, Mapping) else None for row in rows] for name in names}
        return timer_report(times, self._option) or None


def _milliseconds(spans: Mapping[str, TimerSpan], divisor: float) -> dict[str, float]:
    return {name: 1000 * span.elapsed_s / divisor for name, span in spans.items() if span.elapsed_s > 0}
