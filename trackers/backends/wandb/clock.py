"""W&B's ``_runtime``: seconds of training, whenever a run is delivered.

As with W&B's own client, the time between two attempts doesn't count.
"""

from __future__ import annotations

from collections.abc import Iterable


class AttemptClock:
    """The attempts' times, from the records.

    Args:
        created: when the run began, in Unix seconds; 0: unknown.
        spans: number, begin and end of each attempt so far, as in :attr:`spans`.
    """

    def __init__(self, created: float, spans: Iterable[tuple[int, float, float]] = ()) -> None:
        self._created = created
        self._spans: list[tuple[int, float, float]] = [(int(number), begin, end) for number, begin, end in spans]

    @property
    def spans(self) -> list[list[float]]:
        """Number, begin and end of each attempt, as JSON values."""
        return [list(span) for span in self._spans]

    @property
    def total_s(self) -> float:
        """Seconds of training so far."""
        return sum(end - begin for _, begin, end in self._spans)

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
                return max(0.0, total + time - begin)
            total += end - begin
        return 0.0

    def zero(self, attempt: int, time: float) -> float:
        """When the clock would have begun, had it never stood still: of an attempt that began at ``time``."""
        if not self._spans:
            return min(time, self._created or time)
        if attempt > self._spans[-1][0]:
            return time - self.total_s
        return self._spans[-1][1] - sum(end - begin for _, begin, end in self._spans[:-1])
