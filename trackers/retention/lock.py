"""Having a run for oneself: the leases of its relay and of all deliveries, held together."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from trackers.errors import UsageError
from trackers.journal.lease import Lease
from trackers.journal.run_directory import RunDirectory
from trackers.retention.eligibility import leases

ALLOW_S = 3600.0
"""A file of a run is packed, or read back, in less time: so long may pass between two signs of life."""


class RunLock:
    """The leases, held. Each is given back as it was found: free."""

    def __init__(self, run: RunDirectory) -> None:
        self._run = run
        self._leases = [Lease(path) for path in leases(run)]

    def acquire(self) -> None:
        """Take all of them.

        Raises:
            UsageError: somebody has one, or its directory can't be written.
        """
        for lease in self._leases:
            if not lease.acquire():
                if not os.access(lease.path.parent, os.W_OK):
                    raise UsageError(f"{lease.path.parent} can't be written: nothing was changed")
                raise UsageError(f"{self._run.path}: {lease.holder() or 'somebody'} works on it; try again later")
        self.beat()

    def beat(self) -> None:
        """Give a sign of life.

        Raises:
            UsageError: a lease was lost.
        """
        for lease in self._leases:
            if not lease.beat(ALLOW_S):
                raise UsageError(f"{self._run.path}: {lease.holder() or 'somebody'} has taken it over; nothing is lost")

    def release(self) -> None:
        """Give all back."""
        for lease in self._leases:
            lease.release()


@contextlib.contextmanager
def held(run: RunDirectory) -> Iterator[RunLock]:
    """A run held for a block.

    Raises:
        UsageError: somebody else works on it.
    """
    hold = RunLock(run)
    try:
        hold.acquire()
        yield hold
    finally:
        hold.release()
