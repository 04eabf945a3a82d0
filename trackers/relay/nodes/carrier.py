"""A node's carrier: sends the files of its ranks, its sampler and its console to the store, or over the network to the
main node, until they have ended.

The node's first rank starts it. Training never waits for it: ranks write to the node's own disk. It compares this
machine's clock with the store's, learns from the main node which run this is, and then starts the sampler.

A carrier that was killed is replaced by one that lists what the store has, and continues from there.
"""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import signal
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import msgspec

from trackers.errors import UNDECODABLE, DeliveryError, Fatal, NotFound, TrackersError
from trackers.hardware.plan import SamplingPlan
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
from trackers.relay.nodes.link import NetworkTransport
from trackers.relay.parts.plans import arguments
from trackers.support import confined, machines, processes, run_requests
from trackers.support.descriptors import readable

TURN_S = 0.5
"""Pause between checks whether the ranks have ended, in seconds."""
FIRST_S = 0.83
"""Pause between the first passes, until the clocks are compared and the run is known, in seconds: not a divisor of a
second, so that each comparison begins at another fraction of one."""
FIRST_COUNT = 8
MAIN_KNOWN_S = 0.5
"""Maximum error of the main node's clock for samples to begin, once this one was compared often enough, in seconds."""
SAMPLE_COUNT = 5
"""Passes since the run is known after which samples begin with what is known of the clocks."""
UNKNOWN_COUNT = 40
"""Passes after which samples begin in any case."""
CLOCK_S = 60.0
"""Pause between later comparisons of the clocks, in seconds."""
KNOWN_S = 0.3
"""Maximum error of the clocks' difference for samples to begin at once, in seconds."""
AFTER_S = 3600.0
"""How long the carrier retries after its ranks have ended while the store can't be reached, in seconds."""
LEAVE_S = 25.0
"""The same after SIGTERM, in seconds: schedulers kill 30 s after it."""
HEAR_S = 12.0
"""Maximum wait at its end for the main node's first news, without which no console is collected, in seconds."""
SAMPLER_S = 5.0
"""Maximum wait for the sampler's last record, in seconds."""
RESTART_S = 10.0
SPEAK_S = 10.0
"""Time without news after which a node says that it lives, in seconds: it counts as gone after 30."""
SENDING_AGAIN = "sending again"
"""Log line of the first successful pass after a failed one."""


class CarryTask(msgspec.Struct, kw_only=True):
    """Instructions. store: its address; "" to send to the main node over the network. main: the main rank. ranks:
    number of ranks. plan: the sampler's, with the first rank's process. bell: read end of a pipe to which that rank
    writes when it ends; -1 for none. tls: encrypt what goes over the network."""

    store: str
    every_s: float
    main: int
    ranks: int
    plan: SamplingPlan
    sample: bool = True
    nice: int = 0
    bell: int = -1
    console_mb: int = 32
    tls: bool = True


class ConsoleSource(Protocol):
    """The part of :class:`trackers.relay.console_collector.ConsoleCollector` that is used here."""

    def poll(self) -> None:
        """Collect what was printed since the last call."""

    def end(self) -> bool:
        """Collect the rest; False while more may come."""

    def ranks(self) -> set[int]:
        """Ranks that have printed."""


class NodeTransport(Protocol):
    """Sends a node's files and news to the main node. Every method raises Unavailable, Refused or Fatal on failure.

    Attributes:
        meanwhile: to be called before each request with a part of a file.
    """

    meanwhile: Callable[[], None]

    def connect(self) -> None:
        """Reach the other end, and learn what it has of this node's files."""

    def fetch_main_news(self) -> bytes:
        """Encoded :class:`MainNews`, as the main node last sent it. Raises NotFound if it has sent none."""

    def send_file(self, path: str, file: Path, root: Path) -> Any:
        """Send what an append-only file has gained; root: the directory that must contain it."""

    def send_news(self, content: bytes) -> None:
        """Send this node's encoded :class:`NodeNews`, which replaces any earlier."""

    def news_time(self) -> float:
        """When the news arrived, in Unix seconds by the clock at the other end."""


class StoreTransport:
    """Transport through a store that all nodes reach.

    Args:
        home: path of the launch's objects in the store.
    """

    def __init__(self, store: Store, home: str, node: int) -> None:
        self._store, self._home, self._node = store, home, node
        self._growing: GrowingFiles | None = None
        self._name = f"{home}/nodes/{nodes.node_file(node)}"
        self.meanwhile: Callable[[], None] = lambda: None

    def connect(self) -> None:
        """List what the store has of this node."""
        growing = GrowingFiles(self._store, f"{self._home}/streams/{self._node:04d}", lambda: self.meanwhile())
        growing.list_objects()
        self._growing = growing

    def fetch_main_news(self) -> bytes:
        """Encoded :class:`MainNews`."""
        return self._store.get(f"{self._home}/{launches.MAIN}", launches.NEWS_BYTES)

    def send_file(self, path: str, file: Path, root: Path) -> None:
        """Upload the pieces of a file that the store lacks."""
        assert self._growing is not None
        self._growing.send(path, file, root)

    def send_news(self, content: bytes) -> None:
        """Write this node's news."""
        self._store.put(self._name, content)

    def news_time(self) -> float:
        """When the news was written, by the store's clock."""
        return self._store.written_at(self._name)


class Carrier:
    """Sends what one node's processes leave on its disk.

    Args:
        folder: the launch's.
        collect: opens a collector of the ranks' console output for an attempt of a run.

    Attributes:
        over: nothing sent from now on is accepted. problem: why the last pass failed; "" if it didn't.
    """

    def __init__(self, folder: Path, task: CarryTask, collect: Callable[[RunDirectory, int], ConsoleSource]) -> None:
        self._folder, self._task, self._collect = folder, task, collect
        self._transport: NodeTransport
        if task.store:
            self._transport = StoreTransport(Store(task.store), nodes.home(folder), task.plan.node)
        else:
            self._transport = NetworkTransport(folder, task.plan.node, tls=task.tls)
        self._transport.meanwhile = self._speak
        self._spoken_at = -math.inf
        self._is_connected = False
        self._clock = StoreClock()
        self._compared_at = -math.inf
        self._main: MainNews | None = None
        self._run: RunDirectory | None = None
        self._console: ConsoleSource | None = None
        self._sampler: Any = None
        self._sampler_at = 0.0
        self._run_pass = 0
        self._messages: MessageReader | None = None
        self._is_shared = False  # the main node has the same directory
        self._helper_messages: list[str] = []
        self._local_streams: dict[str, bool] = {}
        self._step: tuple[str, int, int | None] = ("", 0, None)
        self._send_at = 0.0
        self._passes = 0
        self._sequence_id = secrets.token_hex(4)
        self.over = False
        self.problem = ""

    def step(self) -> None:
        """Poll the console and the sampler; send what is new when the next pass is due."""
        if self._console is not None:
            self._console.poll()
        self._note_step()
        self._keep_sampler()
        if time.monotonic() >= self._send_at:
            self.send()
            is_starting = self._passes - self._run_pass < FIRST_COUNT or (
                self._main is None and self._passes < 10 * FIRST_COUNT
            )
            self._send_at = time.monotonic() + min(FIRST_S if is_starting else math.inf, self._task.every_s)

    def send(self, *, done: bool = False) -> bool:
        """Send what the other end lacks, then this node's news. False: not everything was sent.

        Args:
            done: this node sends nothing after it.
        """
        self._passes += 1
        try:
            if not self._is_connected:
                self._transport.connect()
                self._is_connected = True
            self._read_main_news()
            if math.isfinite(self._spoken_at):
                self._spoken_at = time.monotonic()
            self._speak()
            for path, file, root in self._files():
                with contextlib.suppress(FileNotFoundError):
                    self._transport.send_file(path, file, root)
            self._send_news(done)
        except Fatal as error:
            self.problem = f"nothing more is sent: {error}"
            self.over = True
            return False
        except (DeliveryError, OSError) as error:
            self.problem = str(error)
            self._sequence_id = secrets.token_hex(4)  # the failed news may still arrive
            self._is_connected = self._is_connected and not done  # at the end, check again what the other end has
            return False
        self.problem = ""
        return True

    def note_sent(self) -> None:
        """Note that the store has every file, so that later launches may delete them."""
        if self._task.store and not self._is_shared:
            with contextlib.suppress(OSError):
                sent.note(self._folder, [file for _, file, _ in self._files()])

    @property
    def is_known(self) -> bool:
        """True once the main node has named the run."""
        return self._main is not None

    def has_ended(self) -> bool:
        """Whether every rank with a stream on this node has ended, or its process is gone."""
        for name, path in launch.rank_streams(self._folder).items():
            if path.parent == self._folder and self._is_local(str(name), path) and find_finish(path) is None:
                start = _read_start(path)
                if start is not None and processes.alive(start.pid, start.pid_start):
                    return False
        return True

    def finish(self) -> None:
        """The ranks have ended: end the sampler, and collect the rest of the console."""
        if self._sampler is not None and self._sampler.poll() is None:
            self._sampler.terminate()
        deadline = time.monotonic() + SAMPLER_S
        while time.monotonic() < deadline:
            collected = self._console is None or self._console.end()
            if collected and (self._sampler is None or self._sampler.poll() is not None):
                break
            time.sleep(0.05)
        if self._sampler is not None and self._sampler.poll() is None:
            self._sampler.kill()

    def _read_main_news(self) -> None:
        """Read the main node's news."""
        try:
            news = msgspec.json.decode(self._transport.fetch_main_news(), type=MainNews)
        except NotFound:
            self.over = self._main is not None
            return
        except UNDECODABLE:
            return
        self._pass_on(news.agreed)
        if self._main is not None and news.attempt == self._main.attempt:
            self._main, self.over = news, news.over
        elif not news.over and (run := nodes.run_of(self._folder, news)) is not None:
            self._adopt_run(run, news)

    def _pass_on(self, agreed: tuple[int, int]) -> None:
        """Tell this node's ranks at which of their looks all ranks stop, and save."""
        path = self._folder / run_requests.AGREED
        if run_requests.read_control(path).agreed != agreed:
            with contextlib.suppress(OSError):  # with the next news
                run_requests.write_control(path, run_requests.ControlState(agreed=agreed))

    def _adopt_run(self, run: RunDirectory, main: MainNews) -> None:
        """Write samples and console to this run from now on."""
        confined.make_own(run.path, stat.S_IMODE(self._folder.stat().st_mode))
        confined.make_folder(run.streams)
        if self._sampler is not None and self._sampler.poll() is None:
            self._sampler.terminate()
        self._sampler, self._sampler_at, self._run_pass = None, 0.0, self._passes
        self._run, self._messages, self._console = run, MessageReader(run.messages), None
        self._is_shared = _has_attempt(run, main.attempt)
        if not self._is_shared:
            launch.register(self._folder, run, main.attempt, main.time)
            self._console = self._collect(run, main.attempt)
        self._main = main

    def _keep_sampler(self) -> None:
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
            self._passes - self._run_pass >= SAMPLE_COUNT or (self._clock.count >= SAMPLE_COUNT and main_knows)
        )
        if now < self._sampler_at or not (within_s < KNOWN_S or compared or self._passes > UNKNOWN_COUNT):
            return
        self._sampler_at = now + RESTART_S
        ahead_s = self._clock.ahead_s - self._main.ahead_s
        plan = msgspec.structs.replace(
            self._task.plan, attempt=self._main.attempt, steps=str(self._step_file()),
            within_s=within_s if known else None, ahead_s=ahead_s if known and abs(ahead_s) > within_s else 0.0,
        )  # fmt: skip
        words = arguments("sample", self._run.path, plan)
        with contextlib.suppress(OSError):  # retried after RESTART_S
            self._sampler = helper_process.start(
                RunDirectory(self._folder), words, new_session=False, nice=self._task.nice
            )

    def _step_file(self) -> Path:
        return self._folder / f"step-{self._task.plan.node}"

    def _note_step(self) -> None:
        """Write the newest step to the sampler's file: from the first rank's rows, or from the main node's news."""
        newest = self._main.step if self._main is not None else None
        own = [path for path in launch.rank_streams(self._folder).values() if path.parent == self._folder]
        with contextlib.suppress(OSError):
            if own and (size := own[0].stat().st_size):
                if (str(own[0]), size) != self._step[:2]:
                    rows = [r.step for r in tail(own[0], 4096) if isinstance(r, RankRow) and r.step is not None]
                    self._step = str(own[0]), size, rows[-1] if rows else self._step[2]
                newest = max((step for step in (newest, self._step[2]) if step is not None), default=None)
            if newest is not None:
                confined.write_whole(self._step_file(), b"%d\n" % newest)

    def _files(self) -> list[tuple[str, Path, Path]]:
        """Files to send: path below the node's objects, file, and the directory that must contain it."""
        if self._is_shared:
            return []
        files = [
            (path.name, path, self._folder)
            for name, path in launch.rank_streams(self._folder).items()
            if path.parent == self._folder and self._is_local(str(name), path)
        ]
        if self._run is not None and self._main is not None:
            attempt, node = self._main.attempt, self._task.plan.node
            own = StreamName("sampler", node, attempt)
            ranks = {StreamName.parse(path.removesuffix(".jsonl")) for path, _, _ in files}
            numbers = {name.number for name in ranks if name is not None}
            numbers |= set() if self._console is None else self._console.ranks()
            for name in self._run.stream_names():
                if name == own or (name.writer == "console" and name.attempt == attempt and name.number in numbers):
                    files.append((f"streams/{name}.jsonl", self._run.stream(name), self._run.path))
        return files

    def _is_local(self, name: str, path: Path) -> bool:
        """Whether this machine writes a stream: the folder may be on a disk that other nodes share."""
        if name not in self._local_streams:
            start = _read_start(path)
            if start is None:
                return False
            self._local_streams[name] = machines.is_here(start)
        return self._local_streams[name]

    def _speak(self) -> None:
        """Send this node's news before the first pass, and amid one that takes long: that it is there, and lives."""
        if time.monotonic() - self._spoken_at >= SPEAK_S:
            self._put_news(done=False, told="")

    def _send_news(self, done: bool) -> None:
        """Send this node's news, and compare the clocks by the time at which they arrive."""
        sent_at = time.time()
        self._put_news(done=done, told=self._sequence_id)
        answered_at = time.time()
        if self._clock.count < FIRST_COUNT or time.monotonic() - self._compared_at > CLOCK_S:
            self._compared_at = time.monotonic()
            self._clock.add(sent_at, answered_at, self._transport.news_time())

    def _put_news(self, *, done: bool, told: str) -> None:
        if self._messages is not None:
            self._helper_messages += [message.text for message in self._messages.read()]
            del self._helper_messages[: -nodes.MOST_SAID]
        news = NodeNews(
            host=machines.host(), told=told, ahead_s=round(self._clock.ahead_s, 3),
            within_s=round(self._clock.within_s, 3) if self._clock.count else None, done=done,
            said=self._helper_messages,
        )  # fmt: skip
        self._transport.send_news(msgspec.json.encode(news))
        self._spoken_at = time.monotonic()


def _has_attempt(run: RunDirectory, attempt: int) -> bool:
    """Whether the run already has the attempt: its directory is on a disk shared with the main node."""
    with contextlib.suppress(TrackersError, OSError):
        return any(entry.get("number") == attempt for entry in run.read_info().attempts)
    return False


def _read_start(path: Path) -> Start | None:
    first = StreamReader(path).read(1)
    return first[0] if first and isinstance(first[0], Start) else None


def carry(folder: Path, task: CarryTask, collect: Callable[[RunDirectory, int], ConsoleSource]) -> int:
    """Send until the ranks of this node have ended and everything was sent. Returns the exit code."""
    is_terminated = False

    def terminate(*_: object) -> None:
        nonlocal is_terminated
        is_terminated = True

    signal.signal(signal.SIGTERM, terminate)
    carrier = Carrier(folder, task, collect)
    sent.forget(folder.parent, folder)
    first_ended = False
    printed = ""
    while True:
        first_ended = first_ended or _has_rung(task.bell) or not processes.alive(task.plan.pid, task.plan.pid_start)
        if first_ended and carrier.has_ended():
            break
        carrier.step()
        if carrier.problem != printed:
            printed = carrier.problem
            print(f"{time.strftime('%H:%M:%S')} node {task.plan.node}: {printed or SENDING_AGAIN}", flush=True)
        if carrier.over:
            break
        if first_ended or task.bell < 0:
            time.sleep(TURN_S)
        else:
            readable(task.bell, TURN_S)
    return _carry_rest(carrier, folder, lambda: LEAVE_S if is_terminated else AFTER_S)


def _carry_rest(carrier: Carrier, folder: Path, limit_s: Callable[[], float]) -> int:
    """The ranks of this node have ended: send the rest. Returns the exit code.

    Waits for the main node's first news: it may come later than a short run's end, or the store was unavailable.
    """
    ended_at, answered_at, finished = time.monotonic(), math.inf, False
    while not carrier.over:
        if carrier.is_known and not finished:
            carrier.finish()
            finished = True
        awaits_news = not carrier.is_known and time.monotonic() - answered_at < HEAR_S
        is_sent = carrier.send(done=not awaits_news)
        now = time.monotonic()
        answered_at = min(answered_at, now) if is_sent else answered_at
        if is_sent and not awaits_news and carrier.is_known == finished:
            if carrier.is_known:
                carrier.note_sent()
            return 0
        if not is_sent and now - ended_at > limit_s():
            print(f"{carrier.problem}; what wasn't sent lies in {folder}", flush=True)
            return 1
        if awaits_news or not is_sent:
            time.sleep(TURN_S)
    if not finished:
        carrier.finish()
    return 0


def _has_rung(bell: int) -> bool:
    """Whether the first rank has written to the pipe, or closed it."""
    if bell < 0 or not readable(bell, 0.0):
        return False
    with contextlib.suppress(BlockingIOError):
        os.read(bell, 64)
        return True
    return False
