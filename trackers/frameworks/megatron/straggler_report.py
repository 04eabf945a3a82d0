"""Prints each interval's texts once their values are known, in order, without waiting for a GPU or another rank.

What each rank has to say for the console, brought together without anybody waiting.

Each rank posts a short text to a group of its own (gloo, on the host: no GPU is touched) by one asynchronous
``all_gather``, and asks at later iterations whether it is through. A rank that is late delays a report, not training.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from trackers.errors import UNDECODABLE
from trackers.values.deferred import Awaited

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
        until = time.monotonic() + seconds
        while self._waiting and time.monotonic() < until:
            self.advance()
            if self._waiting:
                time.sleep(0.001)
        for entry in list(self._known):
            if entry.posted is not None and not wait(entry.posted, max(0.0, until - time.monotonic())):
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
            self._say(f"report: {type(error).__name__}: {error}")
        try:
            return self._gather.post(value)  # in any case: the other ranks count on it
        except Exception as error:  # the process group is gone
            self._say(f"report: {type(error).__name__}: {error}: it is this rank's own")
            return Posted([value])

    def _try(self, function: Callable[..., None], *arguments: Any) -> None:
        try:
            function(*arguments)
        except Exception as error:
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
    until = time.monotonic() + seconds
    while not posted.ready and time.monotonic() < until:
        time.sleep(0.005)
    return posted.ready


def _decode(text: bytes) -> Any:
    try:
        return msgspec.json.decode(text)
    except UNDECODABLE:
        return None
