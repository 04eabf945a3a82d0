"""Megatron's timers: ``timers("forward-backward", log_level=1).start()``, ``timers.log(names)``, ``timers.write(…)``.

Each timer is one of the run's, so that what is logged and printed doesn't depend on who reads or resets it here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trackers.formats.megatron_line import is_forward
from trackers.formats.timer_report import report as timer_report
from trackers.frameworks.megatron.straggler_report import StragglerLines, StragglerReports
from trackers.instruments.timer_log import SUFFIX
from trackers.instruments.timers import NullTimer, Timer, Timers, TimerSpan
from trackers.reductions import Max
from trackers.values.deferred import number

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
        self,
        timers: Timers,
        traced: Timers | None,
        option: str,
        *,
        rank: int,
        ranks: int,
        reports: StragglerReports,
        log: Callable[[dict[str, Any], int], Any],
        write: Callable[[str], Any],
        say: Callable[[str], None],
    ) -> None:
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

            def told() -> dict[str, Any]:
                return _milliseconds(spans, divisor)

            def print_all(rows: Sequence[Any]) -> None:
                text = self._text(rows)
                if prints and text is not None:
                    self._write(text)

            self._reports.add(StragglerLines(list(spans.values()), lambda: None, told, print_all))
        except Exception as error:
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
            found: dict[str, Any] = {}
            for name, span in spans.items():
                time_s = number([span], lambda span=span: span.elapsed_s / divisor)  # type: ignore[misc]
                found[name + SUFFIX] = Max(time_s) if self._ranks > 1 else time_s
            if found:
                self._log(found, iteration)
        except Exception as error:
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
