"""A relay's part in the order of deliveries: it asks this machine's agent for a place for each.

Without an agent deliveries take places by themselves (:mod:`trackers.relay.agent.slots`); a relay that finds none has
an agent started. Each relay has its deliveries work one after the other where none comes, where an agent died that many
had waited for, and while an agent doesn't answer: what it kept in order doesn't start all at once, and nothing waits
for one that hangs.

What is said, one JSON array a line: ``["want", number, tracker, size, urgency, has]`` (has: it works already; said
again where it got more urgent), ``["done", number]`` and, while a delivery waits, ``["still", 0]``; the agent answers
``["go", number]``, ``["end", number]`` and ``["yes", 0]``.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import socket
import time
from typing import Any

import msgspec

from trackers.relay.agent import place
from trackers.relay.agent.elsewhere import LENGTH, READY
from trackers.relay.agent.places import ENDED, GROWN, Places, Wish, usual
from trackers.relay.agent.slots import Slots

RETRY_S = 2.0
"""Between looks for an agent, in seconds."""
PATIENCE_S = 5.0
"""How long deliveries wait for an agent that listens and doesn't answer, in seconds; then they work one by one."""
SILENT_S = 15.0
"""Time after which such an agent counts as hung, in seconds: another one is to take its place."""
ASK_S = 5.0
"""While deliveries wait, their agent is asked so often whether it lives, in seconds."""
COMES_S = 60.0
"""How long deliveries that found no place wait for an agent to come, in seconds; then they work one by one."""
LOOK_S = 0.5
"""Between looks for a place where there is no agent, in seconds."""
LINE_BYTES = 1 << 16
"""Maximum length of what the other side has begun to say."""


class Line:
    """Messages over a socket that nobody waits for."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.socket = connection
        self._begun = b""

    def say(self, *message: Any) -> None:
        """Send one message.

        Raises:
            OSError: the other side is gone, or doesn't listen.
        """
        text = json.dumps(message).encode() + b"\n"
        if self.socket.send(text) != len(text):
            raise OSError("the other side doesn't listen")

    def hear(self) -> list[Any]:
        """What was said since.

        Raises:
            OSError: the other side is gone, or says what isn't a message.
        """
        try:
            said = self.socket.recv(LINE_BYTES)
        except BlockingIOError:
            return []
        *lines, self._begun = (self._begun + said).split(b"\n")
        if not said or len(self._begun) > LINE_BYTES:
            raise OSError("the other side is gone")
        try:
            return [msgspec.json.decode(line) for line in lines]
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise OSError("not a message") from error

    def close(self) -> None:
        """Hang up."""
        self.socket.close()


class Turns:
    """Knows which deliveries of one run may work.

    Attributes:
        hung: an agent listened and didn't answer: it can be replaced.
        slots: the places that deliveries take where no agent gives them.

    Args:
        name: the agent's key; "" for none: then all may, always.
        limit: how many processes the agent is to let work at once; 0: as many as it finds right.
    """

    def __init__(self, name: str = "", limit: int = 0) -> None:
        self.name = name
        self.hung = False
        self.slots = Slots(name, limit or usual())
        self._limit = limit
        self._line: Line | None = None
        self._ready = False
        self._try_at = self._asked_at = self._heard_at = self._short_since = self._look_at = 0.0
        self._numbers = itertools.count(1)
        self._wishes: dict[str, tuple[int, Wish]] = {}
        self._own: Places | None = None
        self._crowded = False

    @property
    def taken(self) -> bool:
        """Whether deliveries may have to take turns."""
        return bool(self.name)

    @property
    def short(self) -> bool:
        """Whether a delivery found no place: an agent is wanted now."""
        return bool(self._short_since)

    @property
    def descriptor(self) -> int:
        """Readable where the agent has something to say; -1 where there is none."""
        return -1 if self._line is None else self._line.socket.fileno()

    def tend(self) -> bool:
        """Hear what the agent says; False where it is gone. Takes microseconds."""
        if not self.name:
            return True
        now = time.monotonic()
        before = self._line
        if self._line is None and now >= self._try_at:
            self._try_at = now + RETRY_S * random.uniform(0.7, 1.0)
            self._connect(now)
        if self._line is not None:
            self._listen(now)
        self._begin_alone(now)
        return before is None or self._line is not None

    def wants(self, tracker: str, size: int, urgency: int) -> bool:
        """Ask for a place, or again; whether there is one.

        Args:
            size: of how many processes the delivery consists. urgency: see :mod:`trackers.relay.agent.places`.
        """
        if not self.name:
            return True
        number, wish = self._wishes.get(tracker, (0, None))
        if wish is None or (wish.began is None and urgency < wish.urgency):
            number = number or next(self._numbers)
            if wish is None:
                wish = Wish(tracker, size, urgency)
                self._wishes[tracker] = number, wish
            wish.urgency = urgency
            if self._own is not None:
                self._own.add(wish)
            elif self._ready:
                self._say("want", number, tracker, size, urgency, False)
                self._ask(time.monotonic())
            self._look_at = 0.0
            self._begin_alone(time.monotonic())
        return wish.began is not None

    @property
    def waits(self) -> bool:
        """Whether some delivery waits for a place."""
        return any(wish.began is None for _, wish in self._wishes.values())

    def is_over(self, tracker: str) -> bool:
        """Whether a delivery that has a place is to give it back."""
        _, wish = self._wishes.get(tracker, (0, None))
        return wish is not None and wish.asked is not None

    def done(self, tracker: str) -> None:
        """It doesn't work any more."""
        number, wish = self._wishes.pop(tracker, (0, None))
        if wish is not None:
            self.slots.give(tracker)
            if self._own is not None:
                self._own.remove(wish)
            self._say("done", number)

    def close(self) -> None:
        """Give everything back."""
        if self._line is not None:
            self._line.close()
            self._line = None
        self.slots.close()
        self.name = ""

    def _begin_alone(self, now: float) -> None:
        """Where no agent answers, have those work that may."""
        if self._line is not None and self._own is None:
            if not self._asked_at or now - self._asked_at <= PATIENCE_S:
                return
            self._go_one_by_one()
        if self._own is not None:
            self._own.look(now)
        elif now >= self._look_at:
            self._look_at = now + LOOK_S
            self._take_slots(now)

    def _take_slots(self, now: float) -> None:
        waiting = [wish for _, wish in self._wishes.values() if wish.began is None]
        for wish in sorted(waiting, key=lambda wish: wish.urgency):
            if self.slots.take(wish.tracker, wish.size):
                wish.began, wish.asked = now, None
                continue
            self._short_since = self._short_since or now
            if now - self._short_since > COMES_S:
                self._go_one_by_one()
            return
        self._short_since = 0.0

    def _go_one_by_one(self) -> None:
        self._own = Places(1)
        for _, wish in self._wishes.values():
            self._own.add(wish)

    def _connect(self, now: float) -> None:
        line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        line.setblocking(False)
        try:
            folder = place.open_directory(place.directory())
            try:
                line.connect(place.address(folder, self.name))
            finally:
                os.close(folder)
            if place.peer(line) != os.geteuid():
                raise PermissionError("another user listens")
            text = json.dumps({"places": self._limit}).encode()
            line.sendall(LENGTH.pack(len(text)) + text)
        except OSError:
            line.close()
            return
        self._line, self._ready, self._asked_at = Line(line), False, now

    def _listen(self, now: float) -> None:
        assert self._line is not None
        try:
            if not self._ready:
                self._greet(now)
            if self._ready:
                self._hear(now)
        except (OSError, ValueError, TypeError):
            self._lose()

    def _hear(self, now: float) -> None:
        assert self._line is not None
        messages = self._line.hear()
        if messages:
            self._answered(now)
        for message in messages:
            self._take(message, now)
        if self._asked_at and now - self._asked_at > SILENT_S:
            self.hung = True
            raise OSError("it hangs")
        if now - self._heard_at > ASK_S and any(wish.began is None for _, wish in self._wishes.values()):
            self._ask(now)

    def _ask(self, now: float) -> None:
        """Ask the agent whether it lives, unless it was asked."""
        if not self._asked_at:
            self._asked_at = now
            self._say("still", 0)

    def _greet(self, now: float) -> None:
        assert self._line is not None
        try:
            if self._line.socket.recv(1) != READY:
                raise OSError("it has no time")
        except BlockingIOError:
            if now - self._asked_at > SILENT_S:
                self.hung = True
                raise
            return
        self._ready = True
        self._answered(now, greeted=True)

    def _answered(self, now: float, greeted: bool = False) -> None:
        """The agent lives: from now on it says who works."""
        assert self._line is not None
        self._asked_at, self._heard_at, self._short_since, self.hung = 0.0, now, 0.0, False
        if self._own is None and not greeted:
            return
        self._own = None
        for number, wish in self._wishes.values():
            wish.asked = None  # it keeps what it took alone: runs that the agent hasn't heard of yet count it
            self._line.say("want", number, wish.tracker, wish.size, wish.urgency, wish.began is not None)

    def _take(self, message: Any, now: float) -> None:
        what, number = message
        for known, wish in self._wishes.values():
            if known != number:
                continue
            if what == "go":
                wish.began = now
            elif what == "end" and wish.began is not None:
                wish.asked, self._crowded = now, True

    def _say(self, *message: Any) -> None:
        if self._line is not None and self._ready:
            try:
                self._line.say(*message)
            except OSError:
                self._lose()

    def _lose(self) -> None:
        if self._line is not None:
            self._line.close()
        waited = self._ready and any(wish.began is None for _, wish in self._wishes.values())
        self._line, self._ready, self._asked_at = None, False, 0.0
        self._crowded = self._crowded or waited
        if self._crowded or self.hung or self._own is not None:
            self._go_one_by_one()
            return
        for _, wish in self._wishes.values():
            if wish.began is not None:
                self.slots.take(wish.tracker, wish.size)


class Order:
    """The agent's part: the lines of all relays, and who among their deliveries works."""

    def __init__(self) -> None:
        self._lines: dict[int, tuple[Line, dict[int, Wish]]] = {}
        self._owners: dict[Wish, tuple[int, int]] = {}
        self.places = Places(usual())

    def __len__(self) -> int:
        return len(self._lines)

    def descriptors(self) -> list[int]:
        """Of the lines: to be waited for."""
        return list(self._lines)

    def busy(self) -> bool:
        """Whether it must look again without having heard anything."""
        return self.places.contended()

    def take(self, connection: socket.socket, limit: int) -> None:
        """Serve a relay that has asked to be; the socket is taken over."""
        self.places.limit = limit or usual()
        self._lines[connection.fileno()] = Line(connection), {}

    def turn(self, ready: set[int]) -> None:
        """Hear the lines that have something to say, and say what there is to say."""
        for fd in ready.intersection(self._lines):
            line, wishes = self._lines[fd]
            try:
                for message in line.hear():
                    self._do(fd, wishes, message)
            except (OSError, ValueError, TypeError):
                self._drop(fd)
        for word, wishes_of in zip(("go", "end"), self.places.look(time.monotonic()), strict=True):
            for wish in wishes_of:
                if wish in self._owners:
                    fd, number = self._owners[wish]
                    try:
                        self._lines[fd][0].say(word, number)
                    except OSError:
                        self._drop(fd)

    def close(self) -> None:
        """Hang up on all; their deliveries go on without."""
        for fd in list(self._lines):
            self._drop(fd)

    def _do(self, fd: int, wishes: dict[int, Wish], message: Any) -> None:
        what, number, *more = message
        if what == "done":
            wish = wishes.pop(number, None)
            if wish is not None:
                self._forget(wish)
            return
        if what == "still":
            self._lines[fd][0].say("yes", 0)
            return
        tracker, size, urgency, has = more
        known = wishes.get(number)
        if known is None:
            known = wishes[number] = Wish(str(tracker), max(1, int(size)))
            known.began = time.monotonic() if has else None
            self._owners[known] = fd, number
            self.places.add(known)
        elif has and known.began is None:  # it didn't wait for an answer
            known.began = time.monotonic()
        known.urgency = min(GROWN, max(ENDED, int(urgency)))

    def _forget(self, wish: Wish) -> None:
        self.places.remove(wish)
        self._owners.pop(wish, None)

    def _drop(self, fd: int) -> None:
        line, wishes = self._lines.pop(fd)
        for wish in wishes.values():
            self._forget(wish)
        line.close()
