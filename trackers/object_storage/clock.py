"""How far this machine's clock is ahead of a store's: machines that see only a store of each other compare so."""

from __future__ import annotations

import math

RESOLUTION_S = 1.0
"""S3 says to the second when an object was written, cut and not rounded."""
EXACT_S = 0.001
"""The resolution of a time that has a fraction."""


class StoreClock:
    """Bounds of the difference between two clocks, which each object that is written here makes narrower.

    An object was written between the request and the answer by this machine's clock, and within a second from the time
    that the store names. So each one bounds the difference to a second or so. Since requests begin at any part of a
    second, all bounds together leave much less.
    """

    def __init__(self) -> None:
        self._low, self._high = -math.inf, math.inf
        self.count = 0

    def add(self, began: float, ended: float, stored: float) -> None:
        """An object was written.

        Args:
            began, ended: when it was asked for and answered, in Unix seconds by this machine's clock.
            stored: when the store wrote it, by its own.
        """
        resolution_s = RESOLUTION_S if stored == int(stored) else EXACT_S
        low, high = began - (stored + resolution_s), ended - stored
        both = max(self._low, low), min(self._high, high)
        agrees = both[0] <= both[1]  # else one of the clocks was set meanwhile, or has gone wrong
        self._low, self._high = both if agrees else (low, high)
        self.count = self.count + 1 if agrees else 1

    @property
    def ahead_s(self) -> float:
        """How far this clock is ahead, in seconds; 0.0 before the first object."""
        return (self._low + self._high) / 2 if self.count else 0.0

    @property
    def within_s(self) -> float:
        """The most by which ``ahead_s`` is wrong, in seconds; infinite before the first object."""
        return (self._high - self._low) / 2
