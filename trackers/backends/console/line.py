"""Megatron training lines, one for each interval of steps, printed as soon as all values of the line have arrived.

Values across ranks come late. With several ranks, an interval that lacks a field which the one before had waits for
it, but not for long; training doesn't wait at all.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping

from trackers.backends.console.interval import ITERATION, LOSS, TIMER, ConsoleInterval, field_of
from trackers.backends.shared.step_rows import is_eval
from trackers.formats.megatron_line import STRAGGLER_ENDS, validation
from trackers.records import Number

WAIT_S = 5.0
"""Maximum wait for missing values of a line's interval, in seconds."""
MOST_WAITING = 8

FIRST = "first-step-time"
MARKERS = frozenset({ITERATION, FIRST, "lm loss"})
"""Names that the logging of a whole training loop brings along: runs that have one get these lines."""


class ConsoleLines:
    """The lines of one attempt.

    Args:
        every: steps between two lines. timing_option: "max", "minmax" or "all". timed: the run's loop tells times.
        ends: how many slow and quick ranks are named; 0: stragglers aren't reported.

    Attributes:
        iterations: where training ends, if that is known. ranks: how many train together.
    """

    clock = staticmethod(time.monotonic)

    def __init__(
        self, every: int, timing_option: str = "minmax", *, timed: bool = True, ends: int = STRAGGLER_ENDS
    ) -> None:
        self.iterations: int | None = None
        self.ranks = 1
        self._every = every
        self._option = timing_option
        self._timed = timed
        self._ends = ends
        self._now: ConsoleInterval | None = None
        self._waiting: deque[tuple[ConsoleInterval, float]] = deque()
        self._expected: set[str] = set()
        self._covered: dict[str, int] = {}
        self._due_s: float | None = None

    def add(self, step: int, time: float, values: Mapping[str, Number], late: bool = False) -> Iterator[str]:
        """Take a record's values; the lines that are due. late: it is of all ranks, so training may be ahead of it."""
        if self._now is None or (not late and step < self._now.since and any(field_of(n) == LOSS for n in values)):
            self._now = ConsoleInterval(step - 1)  # the second: training itself goes back
        if FIRST in values:
            self._covered[""] = step
            if self._timed:
                self._expected.add(ITERATION)
        measured = {name: value for name, value in values.items() if is_eval(name)}
        training = {name: value for name, value in values.items() if name not in measured} if measured else values
        if training and step > self._now.step and self._is_due():
            self._set_aside()
        if training:
            self._fold(step, time, training)
        yield from self._known()
        if self._is_due() and LOSS in self._now.latest and self._expected <= self._now.latest:
            self._set_aside()
            yield from self._known()
        if measured:
            yield validation(step, measured)

    def tick(self) -> Iterator[str]:
        """The lines that have waited long enough. Called behind what has come, for it may be what they wait for."""
        if self._now is not None and self._is_due():
            self._due_s = self.clock() if self._due_s is None else self._due_s
            if self.clock() - self._due_s >= WAIT_S:
                self._set_aside()
                yield from self._known(everything=True)
        yield from self._known(late=True)

    def close(self) -> Iterator[str]:
        """What is left: the last interval may be a short one."""
        if self._now is not None and self._now.worth and self._now.step > self._now.since:
            self._set_aside()
        yield from self._known(everything=True)

    def _is_due(self) -> bool:
        now = self._now
        return now is not None and now.worth and now.step // self._every > now.since // self._every

    def _set_aside(self) -> None:
        """The interval is over: its line waits for what is late."""
        assert self._now is not None
        self._waiting.append((self._now, self.clock()))
        self._now = ConsoleInterval(self._now.step)
        self._due_s = None

    def _fold(self, step: int, time: float, values: Mapping[str, Number]) -> None:
        assert self._now is not None
        place = next((one for one, _ in self._waiting if one.since < step <= one.step), None)
        if place is None and step > self._now.since:
            place = self._now
        if place is not None:
            place.add(step, time, values, self._covers)
        else:  # its line is out already: the next one waits for such a value
            fields = {field_of(name) for name in values} - {"", TIMER}
            self._expected |= fields | {ITERATION} if ITERATION in values else fields

    def _covers(self, name: str, step: int) -> int:
        """The steps since a name's last value, or since the first step, which is timed apart."""
        since = self._covered.get(name, self._covered.get(""))
        self._covered[name] = max(step, since or 0)
        return max(1, step - since) if since is not None else 1

    def _known(self, late: bool = False, everything: bool = False) -> Iterator[str]:
        """The lines of the intervals that lack nothing, in order; late: of those, too, that waited long enough."""
        while self._waiting:
            interval, since_s = self._waiting[0]
            whole = self.ranks <= 1 or self._expected <= interval.latest
            over = late and (len(self._waiting) > MOST_WAITING or self.clock() - since_s >= WAIT_S)
            if not (whole or over or everything):
                return
            self._waiting.popleft()
            self._expected = set(interval.latest)
            yield from interval.lines(self.iterations, self._option, self._ends)
