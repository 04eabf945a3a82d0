"""W&B's ``_runtime``: seconds of training, whenever a run is delivered.

As with W&B's own client, the time between two attempts doesn't count: from the last that training recorded, its end or
what it logged, to the next start. What runs beside training (samples, a relay's word on a killed run) doesn't count.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trackers.records import Record

BESIDE = ("sampler-", "node-", "console-", "alerts-", "edits-")
"""Streams of what runs beside training."""


def is_of_training(record: Record) -> bool:
    """Whether training itself wrote a record, or the values of all ranks are from it."""
    return not record.id.startswith(BESIDE)


class AttemptClock:
    """The attempts' times, from the records.

    Args:
        created: when the run began, in Unix seconds; 0: unknown.
        spans: number, begin and end of each attempt so far, as in :attr:`spans`.
        pauses: begin and end of times within these that don't count.
    """

    def __init__(
        self, created: float, spans: Iterable[Sequence[float]] = (), pauses: Iterable[tuple[float, float]] = ()
    ) -> None:
        self._created = created
        self._pauses = list(pauses)
        self._spans: list[tuple[int, float, float]] = [(int(number), begin, end) for number, begin, end in spans]

    @property
    def spans(self) -> list[list[float]]:
        """Number, begin and end of each attempt, as JSON values."""
        return [list(span) for span in self._spans]

    @property
    def total_s(self) -> float:
        """Seconds of training so far."""
        return sum(self._between(begin, end) for _, begin, end in self._spans)

    def _between(self, begin: float, end: float) -> float:
        """Seconds from one time to another, less the pauses."""
        paused = sum(max(0.0, min(end, until) - max(begin, since)) for since, until in self._pauses)
        return end - begin - paused

    def begin(self, attempt: int, time: float) -> None:
        """An attempt has begun."""
        if not self._spans and self._created:
            time = min(time, self._created)
        if not self._spans or attempt > self._spans[-1][0]:
            self._spans.append((attempt, time, time))

    def see(self, time: float) -> None:
        """Something was recorded at this time by the newest attempt."""
        if not self._spans:
            self.begin(1, time)
        number, begin, end = self._spans[-1]
        self._spans[-1] = number, begin, max(end, time)

    def at(self, time: float) -> float:
        """Seconds of training at a time, 0.0 or more."""
        total = 0.0
        for place, (_, begin, end) in enumerate(self._spans):
            if place + 1 == len(self._spans) or time < self._spans[place + 1][1]:
                return max(0.0, total + self._between(begin, time))
            total += self._between(begin, end)
        return 0.0

    def zero(self, attempt: int, time: float) -> float:
        """When the clock would have begun, had it never stood still: of an attempt that began at ``time``."""
        if not self._spans:
            return min(time, self._created or time)
        if attempt > self._spans[-1][0]:
            return time - self.total_s
        return self._spans[-1][1] - sum(self._between(begin, end) for _, begin, end in self._spans[:-1])
