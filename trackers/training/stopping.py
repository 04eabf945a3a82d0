"""A run's side of requests to stop and to save (:mod:`trackers.support.run_requests`): ``run.should_stop`` and its kin.

A look counts down, and every now and then it looks at the clock; once a second of looking or logging, at the file of
requests. So a look costs what two accesses of an attribute cost.

**Ranks** must stop at the same step, or those that go on wait for the others for ever. No collective is needed for it
where each rank looks equally often: the main rank, which hears of a request, says in a file first that it will be
soon, upon which all of them read that file at each look, and some seconds later at which of their looks they are to
stop. So a pace that changes meanwhile, after a checkpoint was saved, leaves none behind.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trackers.errors import reason
from trackers.journal.messages import Message, show
from trackers.support import run_requests
from trackers.support.clock import monotonic
from trackers.support.interruption import pass_on, suppress
from trackers.support.run_requests import AGREED, ControlState, Request

READ_S = 1.0
"""Minimum time between two looks at the file of requests, in seconds."""
MOST_LOOKS = 100
"""Maximum number of looks without one at the clock."""
SETTLE_S = 2.5
"""How long the main rank measures how often it looks before it says at which look all ranks stop, in seconds; longer
than the others read nothing."""
SOON = -1
"""Said before the look at which all ranks stop, or save, is known."""
AHEAD_S = 4.0
"""How far ahead that is where all ranks share a directory, in seconds: they read it once a second."""
NODES_AHEAD_S = 8.0
"""The same where they share it over a network, whose files are seen late."""


FILES: Any = object()
"""By files, as the ranks of a launch agree."""


class Board:
    """Where the main rank says at which of their looks all ranks stop, and save; (0, 0): not yet.

    Args:
        path: a file that all ranks can read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> tuple[int, int]:
        """What the main rank has said."""
        return run_requests.read_control(self._path).agreed

    def write(self, agreed: tuple[int, int]) -> None:
        """Say it. Raises OSError."""
        run_requests.write_control(self._path, ControlState(agreed=agreed))

    def clear(self) -> None:
        """Take back what an earlier launch of this name has said."""
        if os.path.exists(self._path):
            with suppress(OSError):
                self.write((0, 0))

    def why_not(self) -> str:
        """Why the ranks can't agree; "" where they can, as far as is known."""
        return ""


class Look:
    """Counts how often training has looked for one kind of request.

    Attributes:
        left: number of looks until the next one that does more than count.
        noted: it was written down that training looks.
    """

    __slots__ = ("_at", "_counted", "_granted", "_stopping", "left", "noted")

    def __init__(self, stopping: Stopping) -> None:
        self._stopping = stopping
        self.left = self._granted = self._counted = 0
        self._at = 0.0
        self.noted = False

    @property
    def count(self) -> int:
        """Number of looks so far."""
        return self._granted - self.left

    def due(self, answer: Callable[[int, float], bool], *, each: bool) -> bool:
        """Answer a look, and say how many need no answer. each: none."""
        now = monotonic()
        count = self.count
        answered = answer(count, now)
        passed_s = now - self._at
        rate = (count - self._counted) / passed_s if passed_s > 0 else 0.0
        self._at, self._counted = now, count
        left = 0 if each else min(MOST_LOOKS, int(rate * READ_S / 2))
        self._granted, self.left = count + left, left
        return answered

    def wake(self) -> None:
        """Have the next look answered."""
        self._granted, self.left = self.count, 0


class Stopping:
    """What was asked of an attempt of a run, as its training sees it.

    Args:
        directory: the run's. info: its identity, with the attempts.
        say: called with one line for what goes wrong.
        board: by what ranks agree; None: there is one. Default: a file in the launch's folder.
        quiet: another one says what is asked.

    Attributes:
        request: for which the run stops; None while nobody has asked. stopped: training has been told.
    """

    def __init__(
        self, directory: Path, info: Any, say: Callable[[str], None], *, board: Any = FILES, quiet: bool = False
    ) -> None:
        newest = info.attempts[-1] if info.attempts else {}
        self._directory, self._name, self._say = directory, info.name, say
        self._attempt = int(newest.get("number", 1))
        self._state = ControlState()
        self._known: tuple[int, int] = (0, 0)
        self._heard: set[str] = set()
        self._saves: list[Request] = []
        self._functions: list[Callable[[Request], Any]] = []
        self._read_at = 0.0
        self._quiet = quiet
        self._board: Any = None if board is FILES else board
        if board is FILES and int(newest.get("ranks", 1)) > 1 and newest.get("launch"):
            self._board = Board(Path(os.path.normpath(directory / str(newest["launch"]))) / AGREED)
        self._ahead_s, self._settle_s = AHEAD_S, SETTLE_S
        if int(newest.get("nodes", 1)) > 1:  # what is said takes as long to come there
            self._ahead_s = self._settle_s = NODES_AHEAD_S + 3 * float(info.option("TRACKER_STORE_EVERY", 5))
        self._paces: dict[str, tuple[float, int]] = {}
        self.stop_look, self.save_look = Look(self), Look(self)
        self.request: Request | None = None
        self.stopped = False

    def stop_due(self) -> bool:
        """See :attr:`trackers.training.run.Run.should_stop`."""
        self._note(self.stop_look, "stop")
        return self.stop_look.due(self._stop, each=self._pending or self._board is not None)

    def save_due(self) -> bool:
        """See :attr:`trackers.training.run.Run.should_checkpoint`."""
        self._note(self.save_look, "checkpoint")
        return self.save_look.due(self._save, each=self._pending or self._board is not None)

    @property
    def _pending(self) -> bool:
        return self.request is not None or bool(self._saves)

    def call(self, function: Callable[[Request], Any]) -> None:
        """Call a function once a stop is asked for."""
        self._functions.append(function)
        self._note(None, "stop")
        if self.stopped and self.request is not None:
            self._run_functions(self.request)

    def poll(self) -> None:
        """Look for requests, at most once a second; what is new is said, and the functions are called."""
        now = monotonic()
        if now < self._read_at:
            return
        self._read_at = now + READ_S
        try:
            status = os.stat(self._directory / run_requests.FILE)
        except OSError as error:
            pass_on(error)
            return
        if self._known == (status.st_size, status.st_mtime_ns):
            return
        try:
            requests = run_requests.read(self._directory, self._attempt)
        except OSError as error:
            pass_on(error)
            return
        self._known = (status.st_size, status.st_mtime_ns)
        for asked in requests:
            if asked.id not in self._heard:
                self._hear(asked)

    def _hear(self, asked: Request) -> None:
        self._heard.add(asked.id)
        self._state.heard.append(asked.id)
        if asked.checkpoint:
            self._saves.append(asked)
        if asked.stop and self.request is None:
            self.request = asked
        self._store()
        what = " and ".join(["to stop"] * asked.stop + ["to save a checkpoint"] * asked.checkpoint)
        looks = self._state.stop or (self._state.checkpoint and not asked.stop)
        note = "" if looks else "; the script hasn't looked at run.should_stop so far, so it goes on"
        if not self._quiet:
            show(Message(time.time(), f"run {self._name} is asked {what}, {asked}{note}"))
        self.stop_look.wake()
        self.save_look.wake()
        if self.request is not None and self._functions and not self.stop_look.noted:
            self._agree("stop", 1)
            self._take_stop()

    def _stop(self, count: int, now: float) -> bool:
        self.poll()
        if self.stopped:
            return True
        if self.request is None or (self._saves and self.save_look.noted):  # it saves first
            return False
        if not self._is_time("stop", count, now):
            return False
        self._take_stop()
        return True

    def _take_stop(self) -> None:
        assert self.request is not None
        self.stopped = True
        self._state.stopping = self.request.id
        self._store()
        self._run_functions(self.request)

    def _run_functions(self, asked: Request) -> None:
        functions, self._functions = self._functions, []
        for function in functions:
            try:
                function(asked)
            except Exception as error:
                pass_on(error)
                self._say(f"on_stop: {getattr(function, '__name__', 'its function')}: {reason(error)}")

    def _save(self, count: int, now: float) -> bool:
        self.poll()
        if not self._saves or not self._is_time("checkpoint", count, now):
            return False
        self._state.saved += [asked.id for asked in self._saves]
        self._saves = []
        self._store()
        return True

    def _is_time(self, what: str, count: int, now: float) -> bool:
        """Whether it is the look at which all ranks stop, or save."""
        if self._board is None:
            return True
        index = 0 if what == "stop" else 1
        at = self._state.agreed[index]
        if at > count:
            return False
        if at > 0 and what not in self._paces:
            return True
        if what not in self._paces:
            self._agree(what, SOON)
        began, first = self._paces.setdefault(what, (now, count))
        if now - began < self._settle_s or count - first < 2:  # one look has no pace
            return False
        if why := self._board.why_not():
            self._say(f"asked to {what}, but training goes on: {why}")
            return False
        rate = (count - first) / (now - began)
        self._agree(what, count + max(2, math.ceil(rate * self._ahead_s)))
        del self._paces[what]
        return False

    def _agree(self, what: str, at: int) -> None:
        """Say to the other ranks at which look it is time."""
        stop, save = self._state.agreed
        self._state.agreed = (at, save) if what == "stop" else (stop, at)
        if self._board is not None:
            try:
                self._board.write(self._state.agreed)
            except OSError as error:
                pass_on(error)
                self._say(f"the other ranks can't be told to {what}: {error}")

    def _note(self, look: Look | None, what: str) -> None:
        if look is not None and look.noted:
            return
        if look is not None:
            look.noted = True
        if not getattr(self._state, what):
            setattr(self._state, what, True)
            self._store()

    def _store(self) -> None:
        """Write down what training looks at and has taken, with what another process of the run has noted."""
        path = run_requests.control_path(self._directory, self._attempt)
        other, own = run_requests.read_control(path), self._state
        self._state = ControlState(
            stop=own.stop or other.stop, checkpoint=own.checkpoint or other.checkpoint,
            heard=list(dict.fromkeys([*other.heard, *own.heard])), stopping=own.stopping or other.stopping,
            saved=list(dict.fromkeys([*other.saved, *own.saved])), agreed=own.agreed,
        )  # fmt: skip
        try:
            run_requests.write_control(path, self._state)
        except OSError as error:  # a full disk: it is only said less
            pass_on(error)

    def ending(self) -> Request | None:
        """The request for which training has ended, if it was told of one, in this process or another of the run."""
        if self.stopped or not os.path.exists(self._directory / run_requests.FILE):
            return self.request if self.stopped else None
        try:
            stopping = run_requests.read_control(run_requests.control_path(self._directory, self._attempt)).stopping
            requests = run_requests.read(self._directory, self._attempt)
        except OSError as error:
            pass_on(error)
            return None
        return next((asked for asked in requests if stopping and asked.id == stopping), None)


class RankStopping:
    """The same for a rank that isn't the main one: it does what the main rank has said, at the same look.

    Args:
        board: where that one says it; None: it can't be heard.
    """

    def __init__(self, board: Any, say: Callable[[str], None]) -> None:
        self._board = board
        self._say = say
        self._agreed = (0, 0)
        self._before = self._read()  # of an earlier launch of this name
        self._read_at = 0.0
        self._saved = 0
        self._stops = self._save_looks = 0
        self._functions: list[Callable[[Request], Any]] = []
        self.request: Request | None = None

    def stop_due(self) -> bool:
        """See :attr:`trackers.training.run.Run.should_stop`."""
        self._stops += 1
        self.poll()
        at = self._agreed[0]
        return at > 0 and self._stops >= at

    def save_due(self) -> bool:
        """See :attr:`trackers.training.run.Run.should_checkpoint`."""
        self._save_looks += 1
        self.poll()
        at = self._agreed[1]
        if at <= 0 or at == self._saved or self._save_looks < at:
            return False
        self._saved = at
        return True

    def call(self, function: Callable[[Request], Any]) -> None:
        """Call a function once a stop is asked for."""
        self._functions.append(function)

    @property
    def is_awaited(self) -> bool:
        """Whether functions wait to be called."""
        return bool(self._functions)

    def _read(self) -> tuple[int, int]:
        return (0, 0) if self._board is None else self._board.read()

    def poll(self) -> None:
        """Read what the main rank has said, at most once a second unless it has said that something comes soon."""
        now = monotonic()
        if self._board is None or (now < self._read_at and SOON not in self._agreed):
            return
        self._read_at = now + READ_S
        agreed = self._read()
        self._agreed = (0, 0) if agreed == self._before else agreed
        self._before = self._before if agreed == self._before else (0, 0)
        if self._agreed[0] > 0 and self.request is None:
            self.request = Request(id="", time=time.time(), stop=True, by="the main rank")
        if self.request is not None and self._functions:
            functions, self._functions = self._functions, []
            for function in functions:
                try:
                    function(self.request)
                except Exception as error:
                    pass_on(error)
                    self._say(f"on_stop: {getattr(function, '__name__', 'its function')}: {reason(error)}")
