"""Turns of deliveries: a relay asks this machine's agent for a work slot for each of its deliveries.

Without an agent, deliveries lock slots themselves (:mod:`trackers.relay.agent.slot_locks`), and a relay that finds none
free starts an agent. A relay runs its deliveries one after the other if no agent comes, if an agent died that they had
waited for, and while an agent doesn't answer: so they don't all start at once, and don't wait for a hung agent.

The protocol is one JSON array a line: ``["want", number, tracker, size, urgency, has]`` (has: it works already; sent
again when it gets more urgent), ``["done", number]`` and, while a delivery waits, ``["still", 0]``; the agent answers
``["go", number]``, ``["end", number]`` and ``["yes", 0]``.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import socket
import time
from typing import Any, NamedTuple

import msgspec

from trackers.relay.agent import endpoint
from trackers.relay.agent.client import LENGTH, READY
from trackers.relay.agent.slot_locks import SlotLocks
from trackers.relay.agent.work_slots import ENDED, GROWN, LATE_S, SlotRequest, WorkSlots, default_slots

LINE_BYTES = 1 << 16
"""Maximum length of an incomplete message, in bytes."""


class MessageLine:
    """Messages over a non-blocking socket."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.socket = connection
        self._incomplete = b""

    def send(self, *message: Any) -> None:
        """Send one message.

        Raises:
            OSError: the other side is gone, or doesn't read.
        """
        text = json.dumps(message).encode() + b"\n"
        if self.socket.send(text) != len(text):
            raise OSError("the other side doesn't listen")

    def receive(self) -> list[Any]:
        """Messages received since the last call.

        Raises:
            OSError: the other side is gone, or sent something that isn't a message.
        """
        try:
            received = self.socket.recv(LINE_BYTES)
        except BlockingIOError:
            return []
        *lines, self._incomplete = (self._incomplete + received).split(b"\n")
        if not received or len(self._incomplete) > LINE_BYTES:
            raise OSError("the other side is gone")
        try:
            return [msgspec.json.decode(line) for line in lines]
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise OSError("not a message") from error

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()


class TurnTimes(NamedTuple):
    """Of a run's turns, in seconds.

    retry_s: between attempts to connect to an agent. patience_s: wait for one that listens and doesn't answer; then
    deliveries work one by one. silent_s: after which such an agent counts as hung: another one then replaces it. ask_s:
    between questions to an agent whether it lives, while deliveries wait. comes_s: wait for an agent to start when no
    slot is free; then deliveries work one by one. look_s: between attempts to lock a slot without an agent.
    """

    retry_s: float = 2.0
    patience_s: float = 5.0
    silent_s: float = 15.0
    ask_s: float = 5.0
    comes_s: float = 60.0
    look_s: float = 0.5


TIMES = TurnTimes()


class Turns:
    """Decides which deliveries of one run may work.

    Attributes:
        hung: an agent listened and didn't answer: it can be replaced.
        slot_locks: the slots that deliveries lock without an agent.

    Args:
        name: the agent's key; "": no agent, and all may always work.
        limit: maximum number of processes that the agent lets work at once; 0: its default.
        beginning: see :class:`SlotLocks`, ``fd``.
    """

    def __init__(self, name: str = "", limit: int = 0, beginning: int = -1, times: TurnTimes = TIMES) -> None:
        self.name, self.times = name, times
        self.hung = False
        self.slot_locks = SlotLocks(name, limit or default_slots(), beginning)
        self._limit = limit
        self._line: MessageLine | None = None
        self._ready = False
        self._try_at = self._pinged_at = self._answered_at = self._short_since = self._lock_at = 0.0
        self._numbers = itertools.count(1)
        self._requests: dict[str, tuple[int, SlotRequest]] = {}
        self._own_slots: WorkSlots | None = None
        self._crowded = False

    @property
    def enabled(self) -> bool:
        """Whether deliveries may have to take turns."""
        return bool(self.name)

    @property
    def is_short(self) -> bool:
        """Whether a delivery found no slot: an agent should be started now."""
        return bool(self._short_since)

    @property
    def descriptor(self) -> int:
        """Readable when the agent has sent a message; -1 without an agent."""
        return -1 if self._line is None else self._line.socket.fileno()

    def poll(self) -> bool:
        """Process the agent's messages; False if it is gone. Takes microseconds."""
        if not self.name:
            return True
        now = time.monotonic()
        line_before = self._line
        if self._line is None and now >= self._try_at:
            self._try_at = now + self.times.retry_s * random.uniform(0.7, 1.0)
            self._connect(now)
        if self._line is not None:
            self._listen(now)
        self._decide_alone(now)
        return line_before is None or self._line is not None

    def request(self, tracker: str, size: int, urgency: int) -> bool:
        """Request a slot, or update the request; returns whether the delivery has a slot.

        Args:
            size: number of processes of the delivery. urgency: see :mod:`trackers.relay.agent.work_slots`.
        """
        if not self.name:
            return True
        number, request = self._requests.get(tracker, (0, None))
        if request is None or (request.began is None and urgency < request.urgency):
            number = number or next(self._numbers)
            if request is None:
                request = SlotRequest(tracker, size, urgency)
                self._requests[tracker] = number, request
            request.urgency = urgency
            if self._own_slots is not None:
                self._own_slots.add(request)
            elif self._ready:
                self._send("want", number, tracker, size, urgency, False)
                self._ping(time.monotonic())
            self._lock_at = 0.0
            self._decide_alone(time.monotonic())
        return request.began is not None

    @property
    def waits(self) -> bool:
        """Whether a delivery waits for a slot."""
        return any(request.began is None for _, request in self._requests.values())

    def is_over(self, tracker: str) -> bool:
        """Whether a delivery is to give its slot back."""
        _, request = self._requests.get(tracker, (0, None))
        return request is not None and request.asked is not None

    def done(self, tracker: str) -> None:
        """Give a delivery's slot back: it has stopped working."""
        number, request = self._requests.pop(tracker, (0, None))
        if request is not None:
            self.slot_locks.unlock(tracker)
            if self._own_slots is not None:
                self._own_slots.remove(request)
            self._send("done", number)

    def close(self) -> None:
        """Give all slots back and disconnect."""
        if self._line is not None:
            self._line.close()
            self._line = None
        self.slot_locks.close()
        self.name = ""

    def _decide_alone(self, now: float) -> None:
        """Decide which deliveries work while no agent answers."""
        if self._line is not None and self._own_slots is None:
            if not self._pinged_at or now - self._pinged_at <= self.times.patience_s:
                return
            self._go_one_by_one()
        if self._own_slots is not None:
            self._own_slots.assign(now)
        elif now >= self._lock_at:
            self._lock_at = now + self.times.look_s
            self._lock_slots(now)

    def _lock_slots(self, now: float) -> None:
        waiting = [request for _, request in self._requests.values() if request.began is None]
        for request in sorted(waiting, key=lambda request: request.urgency):
            if self.slot_locks.acquire(request.tracker, request.size):
                request.began, request.asked = now, None
                continue
            self._short_since = self._short_since or now
            if now - self._short_since > self.times.comes_s:
                self._go_one_by_one()
            return
        self._short_since = 0.0

    def _go_one_by_one(self) -> None:
        self._own_slots = WorkSlots(1)
        for _, request in self._requests.values():
            self._own_slots.add(request)

    def _connect(self, now: float) -> None:
        line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        line.setblocking(False)
        try:
            folder = endpoint.open_directory(endpoint.directory())
            try:
                line.connect(endpoint.address(folder, self.name))
            finally:
                os.close(folder)
            if endpoint.peer(line) != os.geteuid():
                raise PermissionError("another user listens")
            text = json.dumps({"places": self._limit}).encode()
            line.sendall(LENGTH.pack(len(text)) + text)
        except OSError:
            line.close()
            return
        self._line, self._ready, self._pinged_at = MessageLine(line), False, now

    def _listen(self, now: float) -> None:
        assert self._line is not None
        try:
            if not self._ready:
                self._await_greeting(now)
            if self._ready:
                self._receive(now)
        except (OSError, ValueError, TypeError):
            self._disconnect()

    def _receive(self, now: float) -> None:
        assert self._line is not None
        messages = self._line.receive()
        if messages:
            self._mark_alive(now)
        for message in messages:
            self._apply(message, now)
        if self._pinged_at and now - self._pinged_at > self.times.silent_s:
            self.hung = True
            raise OSError("it hangs")
        waits = any(request.began is None for _, request in self._requests.values())
        if waits and now - self._answered_at > self.times.ask_s:
            self._ping(now)

    def _ping(self, now: float) -> None:
        """Ask the agent whether it lives, unless an answer is pending."""
        if not self._pinged_at:
            self._pinged_at = now
            self._send("still", 0)

    def _await_greeting(self, now: float) -> None:
        assert self._line is not None
        try:
            if self._line.socket.recv(1) != READY:
                raise OSError("it has no time")
        except BlockingIOError:
            if now - self._pinged_at > self.times.silent_s:
                self.hung = True
                raise
            return
        self._ready = True
        self._mark_alive(now, greeted=True)

    def _mark_alive(self, now: float, greeted: bool = False) -> None:
        """Note that the agent has answered: from now on it decides which deliveries work."""
        assert self._line is not None
        self._pinged_at, self._answered_at, self._short_since, self.hung = 0.0, now, 0.0, False
        if self._own_slots is None and not greeted:
            return
        self._own_slots = None
        for number, request in self._requests.values():
            request.asked = None  # it keeps slots taken without an agent
            self._line.send("want", number, request.tracker, request.size, request.urgency, request.began is not None)

    def _apply(self, message: Any, now: float) -> None:
        action, number = message
        for request_number, request in self._requests.values():
            if request_number != number:
                continue
            if action == "go":
                request.began = now
            elif action == "end" and request.began is not None:
                request.asked, self._crowded = now, True

    def _send(self, *message: Any) -> None:
        if self._line is not None and self._ready:
            try:
                self._line.send(*message)
            except OSError:
                self._disconnect()

    def _disconnect(self) -> None:
        if self._line is not None:
            self._line.close()
        waited = self._ready and any(request.began is None for _, request in self._requests.values())
        self._line, self._ready, self._pinged_at = None, False, 0.0
        self._crowded = self._crowded or waited
        if self._crowded or self.hung or self._own_slots is not None:
            self._go_one_by_one()
            return
        for _, request in self._requests.values():
            if request.began is not None:
                self.slot_locks.acquire(request.tracker, request.size)


class TurnServer:
    """The agent's side: connections of all relays, and which of their deliveries work.

    Args:
        name: the agent's key; "": no other relay has locked slots.
    """

    def __init__(self, name: str = "") -> None:
        self._name = name
        self._began = time.monotonic()
        self._lines: dict[int, tuple[MessageLine, dict[int, SlotRequest]]] = {}
        self._owners: dict[SlotRequest, tuple[int, int]] = {}
        self.slots = WorkSlots(default_slots())

    def __len__(self) -> int:
        return len(self._lines)

    def descriptors(self) -> list[int]:
        """Descriptors of the connections, to be polled."""
        return list(self._lines)

    def busy(self) -> bool:
        """Whether it must be polled again even without a message."""
        return self.slots.contended()

    def add(self, connection: socket.socket, limit: int) -> None:
        """Serve a relay that has connected; takes ownership of the socket."""
        self.slots.limit = limit or default_slots()
        self._lines[connection.fileno()] = MessageLine(connection), {}

    def poll(self, ready: set[int]) -> None:
        """Process messages of readable connections, and send decisions."""
        for fd in ready.intersection(self._lines):
            line, requests = self._lines[fd]
            try:
                for message in line.receive():
                    self._handle(fd, requests, message)
            except (OSError, ValueError, TypeError):
                self._drop(fd)
        for action, requests_of in zip(("go", "end"), self.slots.assign(time.monotonic(), self._beside()), strict=True):
            for request in requests_of:
                if request in self._owners:
                    fd, number = self._owners[request]
                    try:
                        self._lines[fd][0].send(action, number)
                    except OSError:
                        self._drop(fd)

    def close(self) -> None:
        """Close all connections; their deliveries go on without an agent."""
        for fd in list(self._lines):
            self._drop(fd)
        self._began = time.monotonic()

    def _beside(self) -> int:
        """The number of slots locked by relays that haven't told of it yet, and of those that begin.

        One that doesn't tell within a minute hangs.
        """
        if not self._name or not self.slots.contended() or time.monotonic() - self._began > LATE_S:
            return 0
        told = sum(request.size for request in self._owners if request.told)
        taken, beginning = SlotLocks(self._name, int(self.slots.limit)).taken()
        return max(0, taken - told) + beginning

    def _handle(self, fd: int, requests: dict[int, SlotRequest], message: Any) -> None:
        action, number, *more = message
        if action == "done":
            finished = requests.pop(number, None)
            if finished is not None:
                self._forget(finished)
            return
        if action == "still":
            self._lines[fd][0].send("yes", 0)
            return
        tracker, size, urgency, has = more
        request = requests.get(number)
        if request is None:
            request = requests[number] = SlotRequest(str(tracker), max(1, int(size)))
            request.began, request.told = time.monotonic() if has else None, bool(has)
            self._owners[request] = fd, number
            self.slots.add(request)
        elif has and request.began is None:  # it didn't wait for an answer
            request.began, request.told = time.monotonic(), True
        request.urgency = min(GROWN, max(ENDED, int(urgency)))

    def _forget(self, request: SlotRequest) -> None:
        self.slots.remove(request)
        self._owners.pop(request, None)

    def _drop(self, fd: int) -> None:
        line, requests = self._lines.pop(fd)
        for request in requests.values():
            self._forget(request)
        line.close()
