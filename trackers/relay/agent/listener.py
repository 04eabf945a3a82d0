"""A fork of the agent that serves many runs: start it, send it requests, kill it if it hangs."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Collection, Sequence

from trackers.journal import forked_helper
from trackers.journal.forked_helper import Forked

TAKEN = b"+"
"""The fork's acknowledgement of a request."""


class Listener:
    """Handle of the fork, of which there is at most one at a time.

    Args:
        entry: what the fork begins with. role: the first of its arguments; the second is its end of the socket.
    """

    hung_s = 20.0
    """A fork that acknowledges no request for so many seconds counts as hung. Those who wait for one wait longer."""

    def __init__(self, entry: forked_helper.Entry, role: str) -> None:
        self._entry = entry
        self._role = role
        self._process: Forked | None = None
        self._control: socket.socket | None = None
        self._leaving: list[Forked] = []
        self._pending = 0
        self._silent_since = 0.0

    @property
    def is_started(self) -> bool:
        """Whether there is a fork to hand requests to."""
        return self._process is not None

    @property
    def is_gone(self) -> bool:
        """Whether no fork is left, not even one that is ending."""
        self._leaving = [process for process in self._leaving if process.poll() is None]
        return self._process is None and not self._leaving

    @property
    def silent_s(self) -> float:
        """Seconds since the last acknowledgement; 0 while no request is pending."""
        return time.monotonic() - self._silent_since if self._pending else 0.0

    def start(self, *more: str, library_fds: Collection[int]) -> None:
        """Start the fork.

        Args:
            more: further arguments. library_fds: descriptors that libraries hold.

        Raises:
            OSError: it can't be forked.
        """
        self._process, self._control = forked_helper.fork_listener(
            self._entry, self._role, *more, library_fds=library_fds
        )

    def send(self, request: bytes, descriptors: Sequence[int]) -> None:
        """Send the fork a request.

        Args:
            descriptors: sent with the request; they stay open here.

        Raises:
            OSError: the fork is dead, its socket is full, or the request is too long for a message.
        """
        assert self._control is not None
        if not self._pending:
            self._silent_since = time.monotonic()
        socket.send_fds(self._control, [request], list(descriptors))
        self._pending += 1

    def poll(self) -> None:
        """Read acknowledgements; kill a fork that hangs. Takes microseconds."""
        if self._leaving:
            self._leaving = [process for process in self._leaving if process.poll() is None]
        if self._process is None or self._control is None:
            return
        with contextlib.suppress(OSError):
            while received := self._control.recv(16):
                self._pending -= len(received)
                self._silent_since = time.monotonic()
        if self._process.poll() is None and self.silent_s < self.hung_s:
            return
        self._process.kill()
        self.close()

    def close(self) -> None:
        """Send no further requests: the fork ends after the last of its runs."""
        if self._control is not None:
            self._control.close()
        if self._process is not None:
            self._leaving.append(self._process)
        self._process = self._control = None
        self._pending = 0
