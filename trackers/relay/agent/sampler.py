"""The agent's hold on the sampler that its runs share: starts it, hands runs over, ends one that hangs."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Collection, Sequence

from trackers.journal import forked_helper
from trackers.journal.forked_helper import Forked

SILENT_S = 20.0
"""Time after which a sampler that doesn't take a run counts as hung in a driver, in seconds; relays wait longer."""


class SharedSampler:
    """A fork of this process that samples for all runs, while one wants it.

    Args:
        entry: what forks begin with.
    """

    def __init__(self, entry: forked_helper.Entry) -> None:
        self._entry = entry
        self._process: Forked | None = None
        self._control: socket.socket | None = None
        self._handed = 0
        self._silent_since = 0.0

    def hand_over(self, request: bytes, descriptors: Sequence[int], kept: Collection[int]) -> None:
        """Have a run sampled.

        Args:
            request: a :class:`trackers.relay.sampling.many.Request`, as JSON.
            descriptors: the line to the run's relay, and the pipe that it listens to; they stay open here.
            kept: descriptors that libraries hold.

        Raises:
            OSError: it can't be started, or takes nothing.
        """
        self.look()
        if self._process is None:
            self._process, self._control = forked_helper.fork_listener(self._entry, "sampler", library_fds=kept)
        assert self._control is not None
        if not self._handed:
            self._silent_since = time.monotonic()
        socket.send_fds(self._control, [request], list(descriptors))
        self._handed += 1

    def look(self) -> None:
        """See whether it lives. Takes microseconds."""
        if self._process is None or self._control is None:
            return
        with contextlib.suppress(OSError):
            while taken := self._control.recv(16):
                self._handed -= len(taken)
                self._silent_since = time.monotonic()
        if self._process.poll() is None and (not self._handed or time.monotonic() - self._silent_since < SILENT_S):
            return
        self._process.kill()
        self.close()

    def close(self) -> None:
        """Hand nothing over any more: it ends with the last of its runs."""
        if self._control is not None:
            self._control.close()
        self._process = self._control = None
        self._handed = 0
