"""What is printed at an interval, once it is known: nothing waits for a GPU or another rank, and order is kept."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from trackers.instruments.later import Awaited
from trackers.megatron.gather import Gather, Posted, wait

MOST = 64
"""Intervals whose lines may wait; older ones are given up, for nobody will miss them then."""
FINISH_S = 3.0


class Report:
    """Lines of one interval.

    Args:
        sources: what must be known first. print_own: prints what is this rank's.
        told: what this rank tells the others, JSON types; None: nothing. print_all: prints what all ranks told.
    """

    def __init__(
        self,
        sources: Sequence[Awaited],
        print_own: Callable[[], None],
        told: Callable[[], Any] | None = None,
        print_all: Callable[[Sequence[Any]], None] | None = None,
    ) -> None:
        self._sources = sources
        self.print_own = print_own
        self.told = told
        self.print_all = print_all

    @property
    def ready(self) -> bool:
        """Whether everything is known; asks, never waits."""
        return all(source.ready for source in self._sources)


class Reports:
    """Prints reports in order, as they become known."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._gather = Gather()
        self._waiting: deque[Report] = deque()
        self._posted: deque[tuple[Report, Posted]] = deque()

    @property
    def alone(self) -> bool:
        """Whether they have nothing of other ranks."""
        return self._gather.alone

    def add(self, report: Report) -> None:
        """Print it when it is known."""
        self._waiting.append(report)
        self.advance()

    def advance(self) -> None:
        """Go on as far as is possible without waiting."""
        while self._waiting and self._waiting[0].ready:
            report = self._waiting.popleft()
            self._try(report.print_own)
            if report.told is not None:
                self._post(report)
        while self._posted and self._posted[0][1].ready:
            self._print_all(*self._posted.popleft())
        while len(self._posted) > MOST:
            self._posted.popleft()

    def finish(self, seconds: float = FINISH_S) -> None:
        """Print what is left, waiting so long at most for a GPU and the other ranks."""
        until = time.monotonic() + seconds
        while self._waiting and time.monotonic() < until:
            self.advance()
            if self._waiting:
                time.sleep(0.001)
        while self._posted and wait(self._posted[0][1], max(0.0, until - time.monotonic())):
            self._print_all(*self._posted.popleft())

    def _post(self, report: Report) -> None:
        assert report.told is not None
        value = None
        try:
            value = report.told()
        except Exception as error:
            self._say(f"report: {type(error).__name__}: {error}")
        self._posted.append((report, self._gather.post(value)))  # in any case: the other ranks count on it

    def _print_all(self, report: Report, posted: Posted) -> None:
        if report.print_all is not None:
            self._try(report.print_all, posted.rows())

    def _try(self, function: Callable[..., None], *arguments: Any) -> None:
        try:
            function(*arguments)
        except Exception as error:
            self._say(f"report: {type(error).__name__}: {error}")
