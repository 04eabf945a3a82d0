"""A node's carrier: sends what its ranks, its sampler and its console leave to the store, or over the network to the
main node, until they have ended.

Its first rank starts it. Nothing in training waits for it: ranks write to the node's own disk. It tells the store's
clock from this machine's, learns from the main node which run this is, and starts the sampler then.

A carrier that was killed is followed by one that lists what the store has, and goes on from there.
"""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import msgspec

from trackers.errors import UNDECODABLE, DeliveryError, Fatal, NotFound, TrackersError
from trackers.hardware.plan import Plan
from trackers.journal import helper_process
from trackers.journal.messages import MessageReader
from trackers.journal.run_directory import RunDirectory, StreamName
from trackers.journal.stream import StreamReader, find_finish, tail
from trackers.object_storage import launches
from trackers.object_storage.clock import StoreClock
from trackers.object_storage.growing import GrowingFiles
from trackers.object_storage.store import Store
from trackers.ranks import launch, nodes
from trackers.ranks.nodes import MainNews, NodeNews
from trackers.records import RankRow, Start
from trackers.relay.nodes import sent
from trackers.relay.nodes.link import Link
from trackers.support import confined, process_info
from trackers.support.process_info import readable

TURN_S = 0.5
"""Between looks whether the ranks have ended, in seconds."""
FIRST_S = 0.83
"""Between the first sendings, until the clocks are compared and the run is known, in seconds: no divisor of a second,
since each comparison is to begin at another part of one."""
FIRST_COUNT = 8
MAIN_KNOWN_S = 0.5
"""The same of the main node's clock, where this one has been compared for a while."""
SAMPLE_COUNT = 5
"""Sendings since the main node was heard of, after which samples begin with what is known of the clocks."""
UNKNOWN_COUNT = 40
"""Sendings after which they begin in any case."""
CLOCK_S = 60.0
"""Between two comparisons of the clocks after that, in seconds."""
KNOWN_S = 0.3
"""The clocks' difference is known well enough, in seconds, for samples to begin."""
AFTER_S = 3600.0
"""How long it goes on after the end of its ranks while the store can't be reached, in seconds."""
LEAVE_S = 25.0
"""The same where it was asked to end: schedulers kill 30 s after they asked."""
HEAR_S = 12.0
"""How long it waits at its end for the main node's first word, without which there is no console, in seconds."""
SAMPLER_S = 5.0
"""Maximum wait for the sampler's last record, in seconds."""
RESTART_S = 10.0
SENDING_AGAIN = "sending again"
"""What it writes to its log where a sending has failed and a later one hasn't."""


class CarryTask(msgspec.Struct, kw_only=True):
    """Instructions. store: its address; "" to send to the main node over the network. main: the main rank. ranks: how
    many there are. plan: the sampler's, with the first rank's process. bell: a pipe over which that rank says that it
    has ended; -1 for none."""

    store: str
    every_s: float
    main: int
    ranks: int
    plan: Plan
    sample: bool = True
    nice: int = 0
    bell: int = -1
    console_mb: int = 32


class Collects(Protocol):
    """The part of :class:`trackers.relay.console_collector.ConsoleCollector` that is used here."""

    def poll(self) -> None:
        """Take what was printed."""

    def end(self) -> bool:
        """Take the rest; False while more may come."""

    def ranks(self) -> set[int]:
        """Which ranks have printed."""


class Way(Protocol):
    """To the main node. Each method raises Unavailable, Refused or Fatal where it can't do that."""

    def look(self) -> None:
        """Begin: see what is there of this node's files."""

    def hear(self) -> bytes:
        """The main node's last word. Raises NotFound where there is none."""

    def send(self, path: str, file: Path, root: Path) -> Any:
        """Send what is new of a file that only grows; root: the directory that it must lie beneath."""

    def tell(self, content: bytes) -> None:
        """Leave this node's last word."""

    def told(self) -> float:
        """When it came, in Unix seconds by the clock at the other end."""


class StoreWay:
    """Through a store that all nodes reach.

    Args:
        home: the launch's place in it.
    """

    def __init__(self, store: Store, home: str, node: int) -> None:
        self._store, self._home, self._node = store, home, node
        self._growing: GrowingFiles | None = None
        self._name = f"{home}/nodes/{nodes.node_file(node)}"

    def look(self) -> None:
        """See what the store has of this node."""
        growing = GrowingFiles(self._store, f"{self._home}/streams/{self._node:04d}")
        growing.look()
        self._growing = growing

    def hear(self) -> bytes:
        """The main node's last word."""
        return self._store.get(f"{self._home}/{launches.MAIN}", launches.NEWS_BYTES)

    def send(self, path: str, file: Path, root: Path) -> None:
        """Send pieces of a file that the store lacks."""
        assert self._growing is not None
        self._growing.send(path, file, root)

    def tell(self, content: bytes) -> None:
        """Leave this node's last word."""
        self._store.put(self._name, content)

    def told(self) -> float:
        """When that was written."""
        return self._store.written(self._name)


class Carrier:
    """Carries for one node.

    Args:
        folder: the launch's.
        collect: makes what takes the ranks' console into streams of a run, for an attempt.

    Attributes:
        over: nobody takes what is sent from now on. problem: why the last sending failed; "" where it didn't.
    """

    def __init__(self, folder: Path, task: CarryTask, collect: Callable[[RunDirectory, int], Collects]) -> None:
        self._folder, self._task, self._collect = folder, task, collect
        self._way: Way
        if task.store:
            self._way = StoreWay(Store(task.store), nodes.home(folder), task.plan.node)
        else:
            self._way = Link(folder, task.plan.node)
        self._has_looked = False
        self._clock = StoreClock()
        self._compared = -math.inf
        self._main: MainNews | None = None
        self._run: RunDirectory | None = None
        self._console: Collects | None = None
        self._sampler: Any = None
        self._sampler_at = 0.0
        self._heard = 0
        self._messages: MessageReader | None = None
        self._is_shared = False  # the main node has this directory, too
        self._said: list[str] = []
        self._here: dict[str, bool] = {}
        self._step: tuple[str, int, int | None] = ("", 0, None)
        self._next = 0.0
        self._passes = 0
        self._told = secrets.token_hex(4)
        self.over = False
        self.problem = ""

    def turn(self) -> None:
        """Look after everything, and send what there is, if it is time."""
        if self._console is not None:
            self._console.poll()
        self._note_step()
        self._see_sampler()
        if time.monotonic() >= self._next:
            self.send()
            first = self._passes - self._heard < FIRST_COUNT or (self._main is None and self._passes < 10 * FIRST_COUNT)
            self._next = time.monotonic() + min(FIRST_S if first else math.inf, self._task.every_s)

    def send(self, *, done: bool = False) -> bool:
        """Send what the store lacks, and say so there. False: not everything was sent.

        Args:
            done: nothing more comes.
        """
        self._passes += 1
        try:
            if not self._has_looked:
                self._way.look()
                self._has_looked = True
            self._hear()
            for path, file, root in self._files():
                with contextlib.suppress(FileNotFoundError):
                    self._way.send(path, file, root)
            self._tell(done)
        except Fatal as error:
            self.problem = f"nothing more is sent: {error}"
            self.over = True
            return False
        except (DeliveryError, OSError) as error:
            self.problem = str(error)
            self._told = secrets.token_hex(4)  # what was told may still arrive
            self._has_looked = self._has_looked and not done  # what it said it took is looked for at the end
            return False
        self.problem = ""
        return True

    def note_sent(self) -> None:
        """Note that the store has everything, for those who need the disk."""
        if self._task.store and not self._is_shared:
            with contextlib.suppress(OSError):
                sent.note(self._folder, [file for _, file, _ in self._files()])

    @property
    def is_known(self) -> bool:
        """The main node has said which run this is."""
        return self._main is not None

    def has_ended(self) -> bool:
        """Whether every rank that left anything here has ended, or its process is gone."""
        for name, path in launch.rank_streams(self._folder).items():
            if path.parent == self._folder and self._is_here(str(name), path) and find_finish(path) is None:
                start = _start(path)
                if start is not None and process_info.alive(start.pid, start.pid_start):
                    return False
        return True

    def finish(self) -> None:
        """The ranks have ended: take the rest."""
        if self._sampler is not None and self._sampler.poll() is None:
            self._sampler.terminate()
        until = time.monotonic() + SAMPLER_S
        while time.monotonic() < until:
            collected = self._console is None or self._console.end()
            if collected and (self._sampler is None or self._sampler.poll() is not None):
                break
            time.sleep(0.05)
        if self._sampler is not None and self._sampler.poll() is None:
            self._sampler.kill()

    def _hear(self) -> None:
        """What the main node says."""
        try:
            news = msgspec.json.decode(self._way.hear(), type=MainNews)
        except NotFound:
            self.over = self._main is not None
            return
        except UNDECODABLE:
            return
        if self._main is not None and news.attempt == self._main.attempt:
            self._main, self.over = news, news.over
        elif not news.over and (run := nodes.run_of(self._folder, news)) is not None:
            self._take_up(run, news)

    def _take_up(self, run: RunDirectory, main: MainNews) -> None:
        """From here on samples and console are this run's."""
        run.streams.mkdir(parents=True, exist_ok=True)
        if self._sampler is not None and self._sampler.poll() is None:
            self._sampler.terminate()
        self._sampler, self._sampler_at, self._heard = None, 0.0, self._passes
        self._run, self._messages, self._console = run, MessageReader(run.messages), None
        self._is_shared = _has_attempt(run, main.attempt)
        if not self._is_shared:
            launch.claim(self._folder, run, main.attempt, main.time)
            self._console = self._collect(run, main.attempt)
        self._main = main

    def _see_sampler(self) -> None:
        """Start the sampler once the run and the clock are known, and again where it died."""
        if self._run is None or self._main is None or not self._task.sample or self.over:
            return
        now = time.monotonic()
        if self._sampler is not None and self._sampler.poll() is None:
            return
        known = self._clock.count > 0 and self._main.within_s is not None
        within_s = self._clock.within_s + (self._main.within_s or 0.0) if known else math.inf
        main_knows = self._main.within_s is not None and self._main.within_s < MAIN_KNOWN_S
        compared = known and (
            self._passes - self._heard >= SAMPLE_COUNT or (self._clock.count >= SAMPLE_COUNT and main_knows)
        )
        if now < self._sampler_at or not (within_s < KNOWN_S or compared or self._passes > UNKNOWN_COUNT):
            return
        self._sampler_at = now + RESTART_S
        ahead_s = self._clock.ahead_s - self._main.ahead_s
        plan = msgspec.structs.replace(
            self._task.plan, attempt=self._main.attempt, steps=str(self._steps()), within_s=within_s if known else None,
            ahead_s=ahead_s if known and abs(ahead_s) > within_s else 0.0,
        )  # fmt: skip
        arguments = ["sample", str(self._run.path), msgspec.json.encode(plan).decode()]
        with contextlib.suppress(OSError):  # it is tried again
            self._sampler = helper_process.start(
                RunDirectory(self._folder), arguments, new_session=False, nice=self._task.nice
            )

    def _steps(self) -> Path:
        return self._folder / f"step-{self._task.plan.node}"

    def _note_step(self) -> None:
        """Note the newest step for the sampler: by the first rank's rows, or as the main node says."""
        found = self._main.step if self._main is not None else None
        own = [path for path in launch.rank_streams(self._folder).values() if path.parent == self._folder]
        with contextlib.suppress(OSError):
            if own and (size := own[0].stat().st_size):
                if (str(own[0]), size) != self._step[:2]:
                    rows = [r.step for r in tail(own[0], 4096) if isinstance(r, RankRow) and r.step is not None]
                    self._step = str(own[0]), size, rows[-1] if rows else self._step[2]
                found = max((step for step in (found, self._step[2]) if step is not None), default=None)
            if found is not None:
                confined.write_whole(self._steps(), b"%d\n" % found)

    def _files(self) -> list[tuple[str, Path, Path]]:
        """What is sent: its name below the node's place, the file, and what it lies beneath."""
        if self._is_shared:
            return []
        found = [
            (path.name, path, self._folder)
            for name, path in launch.rank_streams(self._folder).items()
            if path.parent == self._folder and self._is_here(str(name), path)
        ]
        if self._run is not None and self._main is not None:
            attempt, node = self._main.attempt, self._task.plan.node
            own = StreamName("sampler", node, attempt)
            ranks = {StreamName.parse(path.removesuffix(".jsonl")) for path, _, _ in found}
            numbers = {name.number for name in ranks if name is not None} | self._printing()
            for name in self._run.stream_names():
                if name == own or (name.writer == "console" and name.attempt == attempt and name.number in numbers):
                    found.append((f"streams/{name}.jsonl", self._run.stream(name), self._run.path))
        return found

    def _printing(self) -> set[int]:
        """Ranks whose console is taken here."""
        return set() if self._console is None else self._console.ranks()

    def _is_here(self, name: str, path: Path) -> bool:
        """Whether a stream is one of this machine's: the folder may be on a disk that other nodes have, too."""
        if name not in self._here:
            start = _start(path)
            if start is None:
                return False
            self._here[name] = nodes.is_here(start.host, start.boot_id)
        return self._here[name]

    def _tell(self, done: bool) -> None:
        """The node's last word; and what that tells of the clocks."""
        if self._messages is not None:
            self._said += [message.text for message in self._messages.read()]
            del self._said[: -nodes.MOST_SAID]
        news = NodeNews(
            host=process_info.host(), told=self._told, ahead_s=round(self._clock.ahead_s, 3),
            within_s=round(self._clock.within_s, 3) if self._clock.count else None, done=done, said=self._said,
        )  # fmt: skip
        asked = time.time()
        self._way.tell(msgspec.json.encode(news))
        answered = time.time()
        if self._clock.count < FIRST_COUNT or time.monotonic() - self._compared > CLOCK_S:
            self._compared = time.monotonic()
            self._clock.add(asked, answered, self._way.told())


def _has_attempt(run: RunDirectory, attempt: int) -> bool:
    """Whether this is the main node's own directory: a disk that it shares."""
    with contextlib.suppress(TrackersError, OSError):
        return any(entry.get("number") == attempt for entry in run.read_info().attempts)
    return False


def _start(path: Path) -> Start | None:
    first = StreamReader(path).read(1)
    return first[0] if first and isinstance(first[0], Start) else None


def carry(folder: Path, task: CarryTask, collect: Callable[[RunDirectory, int], Collects]) -> int:
    """Carry until the ranks here have ended and the store has everything. Returns the exit code."""
    asked = False

    def ask(*_: object) -> None:
        nonlocal asked
        asked = True

    signal.signal(signal.SIGTERM, ask)
    carrier = Carrier(folder, task, collect)
    sent.forget(folder.parent, folder)
    told = False
    said = ""
    while True:
        told = told or _rang(task.bell) or not process_info.alive(task.plan.pid, task.plan.pid_start)
        if told and carrier.has_ended():
            break
        carrier.turn()
        if carrier.problem != said:
            said = carrier.problem
            print(f"{time.strftime('%H:%M:%S')} node {task.plan.node}: {said or SENDING_AGAIN}", flush=True)
        if carrier.over:
            break
        if told or task.bell < 0:
            time.sleep(TURN_S)
        else:
            readable(task.bell, TURN_S)
    return _carry_rest(carrier, folder, lambda: LEAVE_S if asked else AFTER_S)


def _carry_rest(carrier: Carrier, folder: Path, limit_s: Callable[[], float]) -> int:
    """The ranks here have ended: send the rest. Returns the exit code.

    The main node's first word is waited for: it may come later than a short run's end, or the store was away.
    """
    ended, answered, finished = time.monotonic(), math.inf, False
    while not carrier.over:
        if carrier.is_known and not finished:
            carrier.finish()
            finished = True
        waits = not carrier.is_known and time.monotonic() - answered < HEAR_S
        is_sent = carrier.send(done=not waits)
        now = time.monotonic()
        answered = min(answered, now) if is_sent else answered
        if is_sent and not waits and carrier.is_known == finished:
            if carrier.is_known:
                carrier.note_sent()
            return 0
        if not is_sent and now - ended > limit_s():
            print(f"{carrier.problem}; what wasn't sent lies in {folder}", flush=True)
            return 1
        if waits or not is_sent:
            time.sleep(TURN_S)
    if not finished:
        carrier.finish()
    return 0


def _rang(bell: int) -> bool:
    """Whether the first rank has said that it ended, or its process has."""
    if bell < 0 or not readable(bell, 0.0):
        return False
    with contextlib.suppress(BlockingIOError):
        os.read(bell, 64)
        return True
    return False
