"""The agent's hold on a fork of it that works for many runs: starts it, hands requests over, ends one that hangs."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Collection, Sequence

from trackers.journal import forked_helper
from trackers.journal.forked_helper import Forked

SILENT_S = 20.0
"""Time after which a fork that doesn't take a request counts as hung, in seconds; who waits for it waits longer."""
TAKEN = b"+"
"""What the fork says of each request that it has taken: one byte."""


class Listener:
    """One fork at a time, in one role.

    Args:
        entry: what the fork begins with. role: the first of its arguments; the second is its end of the socket.
    """

    def __init__(self, entry: forked_helper.Entry, role: str) -> None:
        self._entry = entry
        self._role = role
        self._process: Forked | None = None
        self._control: socket.socket | None = None
        self._leaving: list[Forked] = []
        self._handed = 0
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
        """How long it hasn't taken what was handed over, in seconds."""
        return time.monotonic() - self._silent_since if self._handed else 0.0

    def start(self, *more: str, library_fds: Collection[int]) -> None:
        """Fork it.

        Args:
            more: further arguments. library_fds: descriptors that libraries hold.

        Raises:
            OSError: it can't be forked.
        """
        self._process, self._control = forked_helper.fork_listener(
            self._entry, self._role, *more, library_fds=library_fds
        )

    def send(self, request: bytes, descriptors: Sequence[int]) -> None:
        """Hand a request over.

        Args:
            descriptors: what it gets; they stay open here.

        Raises:
            OSError: it is dead, takes nothing, or the request is too long for a message.
        """
        assert self._control is not None
        if not self._handed:
            self._silent_since = time.monotonic()
        socket.send_fds(self._control, [request], list(descriptors))
        self._handed += 1

    def look(self) -> None:
        """See whether it lives. Takes microseconds."""
        if self._leaving:
            self._leaving = [process for process in self._leaving if process.poll() is None]
        if self._process is None or self._control is None:
            return
        with contextlib.suppress(OSError):
            while taken := self._control.recv(16):
                self._handed -= len(taken)
                self._silent_since = time.monotonic()
        if self._process.poll() is None and self.silent_s < SILENT_S:
            return
        self._process.kill()
        self.close()

    def close(self) -> None:
        """Hand nothing over any more: it ends with the last of its runs."""
        if self._control is not None:
            self._control.close()
        if self._process is not None:
            self._leaving.append(self._process)
        self._process = self._control = None
        self._handed = 0
