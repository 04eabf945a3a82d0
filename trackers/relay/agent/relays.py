"""The relays that a process of the agent has forked, and the one that forks those of runs without a vendor's package.

To fork a process that has loaded five vendors' packages takes 15 ms, and 19 more when the fork ends: its page table is
copied, and freed, for 200 MB. So the agent keeps a fork of itself from before it loaded any. That one forks the relays
of runs whose trackers need no package (``json``, ``csv``), which wait for three such forks at their end.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec

from trackers.backends import registry
from trackers.errors import UsageError
from trackers.journal import forked_helper, helper_process
from trackers.journal.detached_helper import CODE, NAME
from trackers.journal.forked_helper import Forked
from trackers.relay.agent.client import DESCRIPTORS
from trackers.relay.agent.listener import TAKEN, Listener
from trackers.support import processes

REQUEST_BYTES = 1 << 20
PATIENCE_S = 1.0
"""Time after which a process that hasn't taken what it was asked for is asked for no more, in seconds."""
REAP_S = 0.2
"""Interval between checks for ended relays in case a signal is missed, in seconds."""


def are_light(trackers: Iterable[str]) -> bool:
    """Whether an agent may import all, and none needs a package: deliveries load little that it hasn't."""
    try:
        return all(registry.preloads(name) and not registry.precheck(name).needs for name in trackers)
    except UsageError:
        return False


class Relays:
    """Relays that this process has forked, with the connections of those that requested them.

    Args:
        entry: main function of helper processes.
    """

    def __init__(self, entry: forked_helper.Entry) -> None:
        self._entry = entry
        self._lines: dict[Forked, socket.socket] = {}

    def __len__(self) -> int:
        return len(self._lines)

    def fork(
        self, line: socket.socket, request: dict[str, Any], received: Sequence[int], library_fds: Collection[int]
    ) -> None:
        """Fork a relay, and send its pid.

        Args:
            line: the requester's connection; owned by this object.
            request: fields of :class:`trackers.journal.forked_helper.ForkJob`, and ``passed``, the numbers by which it
                knows the descriptors received, of which the first is its log.
            library_fds: descriptors that libraries hold.

        Raises:
            OSError: it can't be forked; the requester is told.
            ValueError, msgspec.ValidationError: the request is invalid.
        """
        _, *numbers = request.pop("passed")
        if len(received) != 1 + len(numbers):
            raise ValueError(f"a log and {numbers}: {len(received)} descriptors")
        start = msgspec.convert(request, forked_helper.ForkJob)

        def begin(arguments: Sequence[str]) -> int:
            helper_process.forks_with(self._entry, library_fds)
            return self._entry(arguments)

        try:
            relay = forked_helper.fork(
                begin,
                start,
                log=received[0],
                passed=dict(zip(numbers, received[1:], strict=True)),
                library_fds=library_fds,
            )
        except OSError:
            line.sendall(NAME.pack(0, 0.0))
            raise
        self._lines[relay] = line
        line.sendall(NAME.pack(relay.pid, processes.process_start(relay.pid)))

    def reap(self) -> bool:
        """Send the exit codes of relays that have ended; returns whether there are any."""
        ended = [(relay, code) for relay in list(self._lines) if (code := relay.poll()) is not None]
        for relay, code in ended:
            with contextlib.suppress(OSError), self._lines.pop(relay) as line:
                line.sendall(CODE.pack(code))
        return bool(ended)


class LightParent(Listener):
    """The agent's hold on the process that forks relays of runs without a vendor's package.

    Args:
        entry: main function of the forks.
    """

    def __init__(self, entry: forked_helper.Entry) -> None:
        super().__init__(entry, "relays")

    def begin(self, library_fds: Collection[int]) -> None:
        """Fork it, before this process has loaded what is heavy. library_fds: descriptors that libraries hold.

        If that fails, all relays are forks of this process.
        """
        with contextlib.suppress(OSError):
            self.start(json.dumps(sorted(library_fds)), library_fds=library_fds)

    def hand_over(
        self, line: socket.socket, request: dict[str, Any], trackers: Sequence[str], received: Sequence[int]
    ) -> bool:
        """Have a relay forked; False where it can't be, or may hang, and this process is to do it.

        Args:
            line, request, received: see :meth:`Relays.fork`; they stay open here.
            trackers: whose modules are loaded first.
        """
        self.poll()
        if not self.is_started or self.silent_s > PATIENCE_S:
            return False
        try:
            self.send(json.dumps({**request, "trackers": trackers}).encode(), [line.fileno(), *received])
        except OSError:
            return False
        return True


def serve(entry: forked_helper.Entry, control: int, library_fds: Collection[int]) -> int:
    """Fork relays until the agent is gone and its relays have ended; returns the exit code.

    Args:
        entry: main function of helper processes. control: descriptor of the agent's socket.
        library_fds: descriptors that libraries hold.
    """
    helper_process.ignore_interrupts()
    helper_process.usual_priority([])  # the agent gave way as it forked this one
    woken, wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    os.set_inheritable(control, False)
    relays = Relays(entry)
    poll = select.poll()
    poll.register(woken, select.POLLIN)
    with socket.socket(fileno=control) as agent:
        poll.register(agent, select.POLLIN)
        listens = True
        while listens or relays:
            ready = {fd for fd, _ in poll.poll(REAP_S * 1000 if relays else None)}
            if woken in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(woken, 4096)
            relays.reap()
            if listens and control in ready and not _fork_next(agent, relays, library_fds):
                poll.unregister(agent)
                listens = False
    return 0


def _fork_next(agent: socket.socket, relays: Relays, library_fds: Collection[int]) -> bool:
    """Fork the next relay that the agent requests; False once the agent is gone."""
    try:
        text, descriptors, _, _ = socket.recv_fds(agent, REQUEST_BYTES, 1 + DESCRIPTORS)
    except OSError:
        return False
    if not text:
        return False
    with contextlib.suppress(OSError):
        agent.send(TAKEN)
    if not descriptors:
        return True
    for fd in descriptors:
        os.set_inheritable(fd, False)
    line = socket.socket(fileno=descriptors[0])
    try:
        request = json.loads(text)
        for name in request.pop("trackers"):
            with contextlib.suppress(Exception):  # its delivery will complain
                registry.load(name)
        relays.fork(line, request, descriptors[1:], library_fds)
    except (OSError, ValueError, KeyError, TypeError, msgspec.ValidationError):  # who asked can start its own
        line.close()
    finally:
        for fd in descriptors[1:]:
            os.close(fd)
    return True
