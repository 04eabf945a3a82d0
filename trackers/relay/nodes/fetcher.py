"""The main node's side of :mod:`trackers.relay.nodes.carrier`: fetches other nodes' files, and names the run to them.

Without a store, nodes send to it over the network (:mod:`trackers.relay.nodes.landing`).

Files are written where a directory that all nodes share would have them: the ranks' streams beside those of this node's
ranks, samples and console among the run's streams. Reducer and deliveries read them there.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

import msgspec

from trackers.errors import UNDECODABLE, DeliveryError, NotFound, Refused
from trackers.journal.messages import Messages
from trackers.journal.run_directory import RunDirectory, StreamName
from trackers.journal.stream import tail
from trackers.object_storage import launches, layout, mirror
from trackers.object_storage.clock import RESOLUTION_S, StoreClock
from trackers.object_storage.layout import Piece
from trackers.object_storage.store import Listed, Store
from trackers.ranks import launch, meeting, nodes
from trackers.ranks.nodes import Arrival, Arrivals, MainNews, NodeNews
from trackers.records import Metrics
from trackers.relay.nodes.landing import Landing
from trackers.support import confined, run_requests
from trackers.support.terminal import one_line

THREADS = 8
FIRST_S = 0.83
"""Pause between the first passes, until every node has sent news, in seconds; as a carrier's."""
FIRST_COUNT = 60
LANDED_S = 1.0
"""Pause between passes without a store, in seconds: the files are already on this node."""
LAST_S = 0.3
"""Pause between passes after training has ended, in seconds."""
LISTEN_S = 3.0
"""Pause between tries to listen while the port is in use, in seconds."""
HEAR_S = 20.0
"""How long nodes without a store have to find the main node if training has ended meanwhile, in seconds."""
ABSENT_S = 60.0
"""Time after which a node that has sent nothing is named to the user, in seconds."""
PATIENCE_S = 30.0
"""Least time of silence after which a node counts as gone, in seconds."""
PATIENCE = 6
"""The same in intervals between a node's passes."""
SKEW_S = 1.0
"""Difference between clocks above which the user is told, in seconds."""


class FetchTask(msgspec.Struct, kw_only=True):
    """Instructions. store: its address; "": over the network. attempt: number of the run's attempt. parent: process
    with which the fetcher ends. ended: training is over."""

    store: str
    every_s: float
    attempt: int
    parent: int
    ended: bool = False


class Objects(Protocol):
    """The part of a store that a fetcher uses."""

    where: str

    def put(self, name: str, content: bytes) -> str:
        """Write an object."""

    def get(self, name: str, most: int) -> bytes:
        """A small object's content."""

    def objects(self, below: str) -> Iterator[Listed]:
        """All objects whose names begin with ``below/``."""


class Fetcher:
    """Fetches other nodes' files for one attempt.

    Args:
        say: called with one line for the user.

    Attributes:
        problem: why the last pass failed; "" if it didn't. landing: receives files where nodes have no store.
    """

    def __init__(self, run: RunDirectory, task: FetchTask, say: Callable[[str], None]) -> None:
        info = run.read_info()
        entry = next((entry for entry in info.attempts if entry.get("number") == task.attempt), {})
        folder = launch.folder_of(run, info, task.attempt)
        if folder is None:
            raise NotFound(f"attempt {task.attempt} of {run.path} has no values across ranks")
        self._run, self._task, self._say, self._folder = run, task, say, folder
        self._home = nodes.home(folder)
        self._ranks, self._main = int(entry.get("ranks", 1)), int(entry.get("rank", 0))
        self._node, self._nodes = int(entry.get("node", 0)), int(entry.get("nodes", 1))
        self.landing: Landing | None = None
        if not task.store:
            self.landing = Landing(folder, self._node, self._nodes, self._target)
        self._needed = "every node needs the same TRACKER_DIR, and credentials for the store"
        if self.landing is not None:
            self._needed = "every node needs TRACKER_NODES=network, and must reach the port that this one listens at"
        self._store: Objects = self.landing or Store(task.store)
        self._time = float(entry.get("time") or 0.0)
        self._clock = StoreClock()
        self._news: dict[int, NodeNews] = {}
        self._versions: dict[int, str] = {}
        self._skews: set[int] = set()
        self._heard_at: dict[int, float] = {}
        self._last_news: dict[int, tuple[str, float]] = {}
        self._complete: dict[int, float] = {}
        self._streams: dict[int, set[str]] = {}
        self._put_times = (0.0, 0.0)
        self._has_answered = False
        self._began = time.monotonic()
        self._is_absent_named = False
        self.arrivals = nodes.read_arrivals(folder) or Arrivals()
        self.arrivals.patience_s = max(PATIENCE_S, PATIENCE * task.every_s)
        self.problem = ""

    @property
    def has_heard_all(self) -> bool:
        """True once every other node has sent news."""
        return len(self._news) >= self._nodes - 1

    def poll(self, *, over: bool = False) -> bool:
        """One pass: send the main node's news, read the other nodes' and fetch what is new. False: the store failed.

        Args:
            over: the attempt has ended, and this is the last pass.
        """
        began = time.time()
        try:
            self._put_news(over)
            complete_until = self._read_news()
            complete = self._fetch()
        except (DeliveryError, OSError) as error:
            self.problem = str(error)
            return False
        if self.problem or not self._has_answered:
            self.arrivals.since = began
        self.problem, self._has_answered = "", True
        if complete:
            if not self._may_be_heard():
                self.arrivals.looked = began
            for node, as_of in complete_until.items():
                self._apply_news(node, as_of)
        self.arrivals.final = over and complete
        nodes.write_arrivals(self._folder, self.arrivals)
        self._name_absent()
        return True

    def is_complete(self) -> bool:
        """Whether nothing more comes: every node that has sent news is done, or silent for too long. Over the network,
        nodes have some seconds to send their first."""
        if self._may_be_heard():
            return False
        now, patience_s, since = time.time(), self.arrivals.patience_s, self.arrivals.since
        return all(
            news.done or now - max(self._heard_at[node], since) > patience_s for node, news in self._news.items()
        )

    def _may_be_heard(self) -> bool:
        """Whether nodes that haven't found this one yet may have something to send."""
        return self.landing is not None and not self.has_heard_all and time.monotonic() - self._began < HEAR_S

    def _put_news(self, over: bool) -> None:
        news = MainNews(
            project=self._run.path.parent.name, id=self._run.path.name, attempt=self._task.attempt, time=self._time,
            step=self._newest_step(), ahead_s=round(self._clock.ahead_s, 3),
            within_s=round(self._clock.within_s, 3) if self._clock.count else None, over=over,
            agreed=run_requests.read_control(self._folder / run_requests.AGREED).agreed,
        )  # fmt: skip
        put_at = time.time()
        self._store.put(f"{self._home}/{launches.MAIN}", msgspec.json.encode(news))
        self._put_times = put_at, time.time()

    def _newest_step(self) -> int | None:
        path = self._run.stream(StreamName("rank", 0, self._task.attempt))
        steps = [r.step for r in tail(path, 4096) if isinstance(r, Metrics) and r.step is not None]
        return steps[-1] if steps else None

    def _read_news(self) -> dict[int, float]:
        """Read the other nodes' news. Returns, by node, the time up to which the store has everything of it, in Unix
        seconds by this clock; 0.0 if unknown.

        News may arrive long after a node sent it. The pass that ends with news begins after the node's previous news
        has arrived: everything from before that arrival is in the store, then.
        """
        times: dict[int, float] = {}
        for listed in self._store.objects(f"{self._home}/nodes"):
            name = listed.name.rpartition("/")[2]
            if name == "main.json":
                self._clock.add(*self._put_times, listed.time)
            match = nodes.NODE_NAME.fullmatch(name)
            node = int(match[1]) if match is not None else -1
            if not 0 <= node < self._nodes or node == self._node:
                continue
            if self._versions.get(node) != listed.version:
                try:
                    content = self._store.get(listed.name, launches.NEWS_BYTES)
                    self._news[node] = msgspec.json.decode(content, type=NodeNews)
                except (NotFound, *UNDECODABLE):
                    continue
                self._versions[node], self._heard_at[node] = listed.version, time.time()
                sequence_id, before = self._news[node].told, self._last_news.get(node)
                if self._news[node].done:
                    self._complete[node] = listed.time
                elif before is not None and before[0] == sequence_id:
                    self._complete[node] = before[1]
                if sequence_id:
                    self._last_news[node] = sequence_id, listed.time
            if node in self._news:
                times[node] = listed.time  # by the store's clock
        within_s = min(self._clock.within_s, RESOLUTION_S)
        for node in times:
            complete = self._complete.get(node)
            times[node] = 0.0 if complete is None else complete + self._clock.ahead_s - within_s
        return times

    def _fetch(self) -> bool:
        """Copy what is new. False if a file was replaced meanwhile, so that the copy is incomplete."""
        pieces_of: dict[tuple[int, str], dict[Piece, Listed]] = {}
        for listed in self._store.objects(f"{self._home}/streams"):
            text, _, rest = listed.name[len(self._home) + len("/streams/") :].partition("/")
            part = layout.path_of(rest, listed.size) if rest else None
            if part is None or part[1] is None or not text.isdigit():
                continue
            pieces_of.setdefault((int(text[:9]), part[0]), {})[part[1]] = listed
        appends = [
            (*target, pieces) for key, pieces in sorted(pieces_of.items()) if (target := self._target(*key)) is not None
        ]
        (self._folder / launch.OTHERS).mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor(THREADS) as pool:
            return all(list(pool.map(lambda append: mirror.append(self._store, *append), appends)))

    def _target(self, node: int, path: str) -> tuple[Path, str] | None:
        """Directory and path below it for a file of another node; None for one that isn't accepted."""
        if not 0 <= node < self._nodes or node == self._node:
            return None
        rank = nodes.rank_stream(path, self._ranks) if confined.is_inside(path) else None
        if rank is not None:
            self.arrivals.streams.setdefault(str(rank), Arrival())
            self._streams.setdefault(node, set()).add(str(rank))
            return None if (self._folder / path).exists() else (self._folder / launch.OTHERS, path)
        name = StreamName.parse(path.removeprefix("streams/").removesuffix(".jsonl"))
        if name is None or path != f"streams/{name}.jsonl" or name.attempt != self._task.attempt:
            return None
        is_sampler = name.writer == "sampler" and name.number == node
        is_console = name.writer == "console" and name.number < self._ranks and name.number != self._main
        if not (is_sampler or is_console):
            return None
        if path not in self.arrivals.taken:
            if self._run.stream(name).exists():  # written by another process
                return None
            self.arrivals.taken.append(path)
            nodes.write_arrivals(self._folder, self.arrivals)  # before the file exists
        return self._run.path, path

    def _apply_news(self, node: int, as_of: float) -> None:
        news = self._news[node]
        known = news.within_s is not None and self._clock.count > 0
        ahead_s = news.ahead_s - self._clock.ahead_s if known else 0.0
        for name in self._streams.get(node, ()):
            before = self.arrivals.streams.get(name, Arrival())  # perhaps noted by an earlier fetcher
            self.arrivals.streams[name] = Arrival(max(as_of, before.as_of), ahead_s, self._heard_at[node])
        for text in news.said[-nodes.MOST_SAID :]:
            self._say(one_line(text, 500))
        within_s = (news.within_s or 0.0) + self._clock.within_s
        if known and abs(ahead_s) > SKEW_S + within_s and within_s < SKEW_S and node not in self._skews:
            self._skews.add(node)
            direction = "ahead of" if ahead_s > 0 else "behind"
            self._say(
                f"node {node} ({one_line(news.host, 100)}): its clock is {abs(ahead_s):.1f} s {direction} the main "
                f"node's (within {within_s:.1f} s): times of its samples are put right"
            )

    def _name_absent(self) -> None:
        if self._is_absent_named or self.has_heard_all or time.monotonic() - self._began < ABSENT_S:
            return
        self._is_absent_named = True
        main_node = meeting.read(self._folder) if self.landing is not None else None
        port = f" ({main_node.port})" if main_node is not None else ""
        if self.landing is not None and self.landing.stranger:
            port += f"; somebody at {self.landing.stranger}"
        absent = [node for node in range(self._nodes) if node != self._node and node not in self._news]
        self._say(
            f"nothing has come from node {', '.join(map(str, absent[:8]))}{' …' if len(absent) > 8 else ''} within "
            f"{ABSENT_S:.0f} s: {self._needed}{port}; {self._folder} on that node has what its ranks left, and "
            "relay.log there says why"
        )


def _try_open(landing: Landing, messages: Messages) -> bool:
    try:
        landing.open()
    except Refused as error:
        messages.say(f"what other nodes log can't come: {error}", source="ranks")
        return False
    return True


def fetch(run: RunDirectory, messages: Messages, task: FetchTask) -> int:
    """Fetch until the attempt is over, or the parent has ended. SIGTERM means that training is over.

    Returns:
        the exit code: 0 when everything is here.
    """
    ended = [signal.SIGTERM.value] if task.ended else []
    signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))
    fetcher = Fetcher(run, task, lambda text: messages.say(text, source="ranks"))
    landing = fetcher.landing
    if landing is not None:
        if fetcher.arrivals.final:
            return 0
        while not _try_open(landing, messages):
            time.sleep(LISTEN_S)
            if ended or os.getppid() != task.parent:
                return 1
    looks = 0
    printed = ""
    while os.getppid() == task.parent:
        was_ended, began = bool(ended), time.monotonic()
        is_read = fetcher.poll()
        looks += 1
        if fetcher.problem != printed:
            printed = fetcher.problem
            print(f"{time.strftime('%H:%M:%S')} nodes: {printed or 'fetching again'}", flush=True)
        if was_ended and is_read and fetcher.is_complete():
            if not fetcher.poll(over=True):
                return 1
            if landing is not None:  # connected nodes read that the attempt is over
                landing.serve(LAST_S)
                landing.close()
            return 0
        is_starting = looks < FIRST_COUNT and not fetcher.has_heard_all
        pause_s = LAST_S if ended else min(FIRST_S if is_starting else task.every_s, task.every_s)
        if landing is not None:
            pause_s = min(pause_s, LANDED_S)
        wait = time.sleep if landing is None else landing.serve
        while not ended and time.monotonic() - began < pause_s:
            wait(min(0.1, pause_s))
            if os.getppid() != task.parent:
                break
        if ended:
            wait(LAST_S)
    return 1
