"""The changes between streams that make up an order, held in few bytes each: a long run has hundreds of thousands."""

from __future__ import annotations

import bisect
from array import array
from collections.abc import Iterator
from typing import Annotated

import msgspec

NONE = -1
MOST = 2**63 - 1


class Switch(msgspec.Struct, frozen=True):
    """From record ``seq`` on, records come from ``stream``, beginning at byte ``start``."""

    seq: Annotated[int, msgspec.Meta(ge=0, le=MOST)]
    stream: str
    start: Annotated[int, msgspec.Meta(ge=0, le=MOST)]


class OrderLog:
    """A sequence of switches, by ascending ``seq``."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._numbers: dict[str, int] = {}
        self.clear()

    def clear(self) -> None:
        """Forget all of them."""
        self._seqs = array("q")
        self._starts = array("q")
        self._streams = array("q")
        self._next = array("q")  # of the same stream
        self._last: dict[int, int] = {}
        self._stepped_back: set[int] = set()

    def __len__(self) -> int:
        return len(self._seqs)

    def __getitem__(self, index: int) -> Switch:
        return Switch(self._seqs[index], self._names[self._streams[index]], self._starts[index])

    def __iter__(self) -> Iterator[Switch]:
        return (self[index] for index in range(len(self)))

    def append(self, switch: Switch) -> None:
        """Add one behind all others."""
        number = self._numbers.get(switch.stream)
        if number is None:
            number = self._numbers[switch.stream] = len(self._names)
            self._names.append(switch.stream)
        before = self._last.get(number, NONE)
        if before != NONE:
            self._next[before] = len(self)
            if switch.start < self._starts[before]:
                self._stepped_back.add(number)
        self._last[number] = len(self)
        self._seqs.append(switch.seq)
        self._starts.append(switch.start)
        self._streams.append(number)
        self._next.append(NONE)

    def cut(self, seq: int) -> bool:
        """Forget those behind ``seq``; False if there are none."""
        kept = bisect.bisect_right(self._seqs, seq)
        if kept == len(self):
            return False
        switches = [self[index] for index in range(kept)]
        self.clear()
        for switch in switches:
            self.append(switch)
        return True

    def streams(self) -> list[str]:
        """The streams that have any."""
        return [self._names[number] for number in self._last]

    def at(self, seq: int) -> int:
        """The index of the one that record ``seq`` belongs to; -1 if that is before all of them."""
        return bisect.bisect_right(self._seqs, seq) - 1

    def next_start(self, index: int) -> int | None:
        """Where the same stream goes on later; None if it doesn't."""
        later = self._next[index]
        return None if later == NONE else self._starts[later]

    def bound(self, index: int) -> int | None:
        """Where the records of a switch end at the latest: behind lies what was numbered later. None: nowhere."""
        if self._streams[index] not in self._stepped_back:
            return self.next_start(index)
        least, later = None, self._next[index]
        while later != NONE:
            start = self._starts[later]
            least = start if least is None or start < least else least
            later = self._next[later]
        return least

    def last_before(self, index: int) -> list[int]:
        """Of each stream that has one, the last switch before an index."""
        found: dict[int, int] = {}
        for place in range(index - 1, -1, -1):
            if self._streams[place] not in found:
                found[self._streams[place]] = place
                if len(found) == len(self._names):
                    break
        return sorted(found.values())
