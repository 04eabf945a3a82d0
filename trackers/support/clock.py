"""Clocks that no library replaces: where freezegun has stopped ``time.monotonic``, a wait by it never ends.

It replaces the functions of ``time`` under each name that any module has for one, so these have none: they are
attributes of an object. time-machine leaves all clocks alone but Unix time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple


class _Clocks(NamedTuple):
    monotonic: Callable[[], float]
    at: Callable[[int], float] | None


CLOCKS = _Clocks(time.monotonic, getattr(time, "clock_gettime", None))
"""``time.monotonic``, and ``time.clock_gettime`` where there is one."""


def monotonic() -> float:
    """As ``time.monotonic``."""
    return CLOCKS.monotonic()


def unix_time() -> float:
    """As ``time.time``."""
    return time.time() if CLOCKS.at is None else CLOCKS.at(time.CLOCK_REALTIME)


EXACT_S = 20e-6
"""Time between two readings of a clock that nothing came between, at most, in seconds."""
TRIES = 10


def _offset() -> float:
    """Unix time less monotonic time: of readings that follow each other, for a process that has to wait between the
    two has its clock behind by that long."""
    found = []
    for _ in range(TRIES):
        before, time_, after = monotonic(), unix_time(), monotonic()
        found.append((after - before, time_ - after))
        if after - before <= EXACT_S:
            break
    return min(found)[1]


class Clock:
    """Unix time that never steps: anchored once, then carried by the monotonic clock."""

    def __init__(self) -> None:
        self.offset = _offset()

    def now(self) -> float:
        """Unix seconds."""
        return self.offset + monotonic()
