"""The main node's side of :mod:`trackers.relay.nodes.carrier`: fetches what other nodes sent, and says which run it is.

Where nodes have no store, it has them send it over the network (:mod:`trackers.relay.nodes.landing`).

What comes is put where a directory that all nodes share would have it: the ranks' streams beside those of this node's
ranks, samples and console among the run's streams. Reducer and deliveries read it there.
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
from trackers.support import confined
from trackers.support.terminal import one_line

THREADS = 8
FIRST_S = 0.83
"""Between the first looks, until every node has been heard of, in seconds; as a carrier's."""
FIRST_COUNT = 60
LANDED_S = 1.0
"""Between looks at what nodes sent over the network, in seconds: it is here."""
LAST_S = 0.3
"""Between looks when training has ended, in seconds."""
LISTEN_S = 3.0
"""Between tries to listen where the port isn't free, in seconds."""
HEAR_S = 20.0
"""How long nodes without a store have to find the main node, where training has ended meanwhile, in seconds."""
ABSENT_S = 60.0
"""After that time a node that hasn't been heard of is named, in seconds."""
PATIENCE_S = 30.0
"""A node that was silent for so long counts as gone, in seconds; at least."""
PATIENCE = 6
"""The same in its own sendings."""
SKEW_S = 1.0
"""A difference between clocks that is told, in seconds."""


class FetchTask(msgspec.Struct, kw_only=True):
    """Instructions. store: its address; "": over the network. attempt: whose. parent: the fetcher ends with it.
    ended: training is over."""

    store: str
    every_s: float
    attempt: int
    parent: int
    ended: bool = False


class Objects(Protocol):
    """The part of a store that is used here."""

    where: str

    def put(self, name: str, content: bytes) -> str:
        """Write an object."""

    def get(self, name: str, most: int) -> bytes:
        """A small object's content."""

    def objects(self, below: str) -> Iterator[Listed]:
        """All objects whose names begin with ``below/``."""


class Fetcher:
    """Fetches for one attempt.

    Args:
        say: called with one line for the user.

    Attributes:
        problem: why the last look failed; "" where it didn't. landing: listens, where nodes have no store.
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
            self.landing = Landing(folder, self._node, self._nodes, self._place)
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
        self._words: dict[int, tuple[str, float]] = {}
        self._complete: dict[int, float] = {}
        self._streams: dict[int, set[str]] = {}
        self._asked = (0.0, 0.0)
        self._answered = False
        self._began = time.monotonic()
        self._named = False
        self.arrivals = nodes.read_arrivals(folder) or Arrivals()
        self.arrivals.patience_s = max(PATIENCE_S, PATIENCE * task.every_s)
        self.problem = ""

    @property
    def heard(self) -> bool:
        """Every other node has been heard of."""
        return len(self._news) >= self._nodes - 1

    def look(self, *, over: bool = False) -> bool:
        """Fetch what there is. False: the store couldn't be read.

        Args:
            over: the attempt has ended, and this is the last look.
        """
        began = time.time()
        try:
            self._tell(over)
            came = self._hear()
            complete = self._fetch()
        except (DeliveryError, OSError) as error:
            self.problem = str(error)
            return False
        if self.problem or not self._answered:
            self.arrivals.since = began
        self.problem, self._answered = "", True
        if complete:
            if not self._may_be_heard():
                self.arrivals.looked = began
            for node, as_of in came.items():
                self._note(node, as_of)
        self.arrivals.final = over and complete
        nodes.write_arrivals(self._folder, self.arrivals)
        self._name()
        return True

    def is_complete(self) -> bool:
        """Nothing more comes: every node that was heard of and isn't silent has said so. Over the network all have some
        seconds to be heard of."""
        if self._may_be_heard():
            return False
        now, patience_s, since = time.time(), self.arrivals.patience_s, self.arrivals.since
        return all(
            news.done or now - max(self._heard_at[node], since) > patience_s for node, news in self._news.items()
        )

    def _may_be_heard(self) -> bool:
        """Whether nodes may have left something that haven't found this one yet."""
        return self.landing is not None and not self.heard and time.monotonic() - self._began < HEAR_S

    def _tell(self, over: bool) -> None:
        news = MainNews(
            project=self._run.path.parent.name, id=self._run.path.name, attempt=self._task.attempt, time=self._time,
            step=self._newest_step(), ahead_s=round(self._clock.ahead_s, 3),
            within_s=round(self._clock.within_s, 3) if self._clock.count else None, over=over,
        )  # fmt: skip
        asked = time.time()
        self._store.put(f"{self._home}/{launches.MAIN}", msgspec.json.encode(news))
        self._asked = asked, time.time()

    def _newest_step(self) -> int | None:
        path = self._run.stream(StreamName("rank", 0, self._task.attempt))
        steps = [r.step for r in tail(path, 4096) if isinstance(r, Metrics) and r.step is not None]
        return steps[-1] if steps else None

    def _hear(self) -> dict[int, float]:
        """The other nodes' words; by node, up to when everything it left is in the store, by this clock; 0.0: unknown.

        A word may be long on its way. The node looked for what there was to send after its word before had arrived:
        from that time on, at the latest, everything is here.
        """
        came: dict[int, float] = {}
        for one in self._store.objects(f"{self._home}/nodes"):
            name = one.name.rpartition("/")[2]
            if name == "main.json":
                self._clock.add(*self._asked, one.time)
            match = nodes.NODE_NAME.fullmatch(name)
            node = int(match[1]) if match is not None else -1
            if not 0 <= node < self._nodes or node == self._node:
                continue
            if self._versions.get(node) != one.version:
                try:
                    content = self._store.get(one.name, launches.NEWS_BYTES)
                    self._news[node] = msgspec.json.decode(content, type=NodeNews)
                except (NotFound, *UNDECODABLE):
                    continue
                self._versions[node] = one.version
                told, before = self._news[node].told, self._words.get(node)
                if self._news[node].done:
                    self._complete[node] = one.time
                elif before is not None and before[0] == told:
                    self._complete[node] = before[1]
                self._words[node] = told, one.time
            if node in self._news:
                came[node] = one.time  # by the store's clock
        within_s = min(self._clock.within_s, RESOLUTION_S)
        for node, stored in came.items():
            self._heard_at[node] = stored + self._clock.ahead_s
            complete = self._complete.get(node)
            came[node] = 0.0 if complete is None else complete + self._clock.ahead_s - within_s
        return came

    def _fetch(self) -> bool:
        """Copy what is new. False where something was replaced meanwhile, so that not everything is here."""
        found: dict[tuple[int, str], dict[Piece, Listed]] = {}
        for one in self._store.objects(f"{self._home}/streams"):
            text, _, rest = one.name[len(self._home) + len("/streams/") :].partition("/")
            part = layout.path_of(rest) if rest else None
            if part is None or part[1] is None or one.size != part[1].end - part[1].begin or not text.isdigit():
                continue
            found.setdefault((int(text[:9]), part[0]), {})[part[1]] = one
        wanted = [(*place, pieces) for key, pieces in sorted(found.items()) if (place := self._place(*key)) is not None]
        (self._folder / launch.OTHERS).mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor(THREADS) as pool:
            return all(list(pool.map(lambda one: mirror.append(self._store, *one), wanted)))

    def _place(self, node: int, path: str) -> tuple[Path, str] | None:
        """Where a file of another node goes; None for one that isn't taken."""
        if not 0 <= node < self._nodes or node == self._node:
            return None
        rank = nodes.rank_stream(path, self._ranks) if confined.inside(path) else None
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
            if self._run.stream(name).exists():  # somebody else's
                return None
            self.arrivals.taken.append(path)
            nodes.write_arrivals(self._folder, self.arrivals)  # before it is there
        return self._run.path, path

    def _note(self, node: int, as_of: float) -> None:
        news = self._news[node]
        known = news.within_s is not None and self._clock.count > 0
        ahead_s = news.ahead_s - self._clock.ahead_s if known else 0.0
        for name in self._streams.get(node, ()):
            before = self.arrivals.streams.get(name, Arrival())  # perhaps of the fetcher before this one
            self.arrivals.streams[name] = Arrival(max(as_of, before.as_of), ahead_s, self._heard_at[node])
        for text in news.said[-nodes.MOST_SAID :]:
            self._say(one_line(text, 500))
        within_s = (news.within_s or 0.0) + self._clock.within_s
        if known and abs(ahead_s) > SKEW_S + within_s and within_s < SKEW_S and node not in self._skews:
            self._skews.add(node)
            way = "ahead of" if ahead_s > 0 else "behind"
            self._say(
                f"node {node} ({one_line(news.host, 100)}): its clock is {abs(ahead_s):.1f} s {way} the main node's "
                f"(within {within_s:.1f} s): times of its samples are put right"
            )

    def _name(self) -> None:
        if self._named or self.heard or time.monotonic() - self._began < ABSENT_S:
            return
        self._named = True
        found = meeting.read(self._folder) if self.landing is not None else None
        port = f" ({found.port})" if found is not None else ""
        if self.landing is not None and self.landing.stranger:
            port += f"; somebody at {self.landing.stranger} tried with another secret than this job's"
        absent = [node for node in range(self._nodes) if node != self._node and node not in self._news]
        self._say(
            f"nothing has come from node {', '.join(map(str, absent[:8]))}{' …' if len(absent) > 8 else ''} within "
            f"{ABSENT_S:.0f} s: {self._needed}{port}; {self._folder} on that node has what its ranks left, and "
            "relay.log there says why"
        )


def _opened(landing: Landing, messages: Messages) -> bool:
    try:
        landing.open()
    except Refused as error:
        messages.say(f"what other nodes log can't come: {error}", source="ranks")
        return False
    return True


def fetch(run: RunDirectory, messages: Messages, task: FetchTask) -> int:
    """Fetch until the attempt is over, or the parent is gone. SIGTERM says that training is over.

    Returns:
        the exit code: 0 when everything is here.
    """
    ended = task.ended

    def end(*_: object) -> None:
        nonlocal ended
        ended = True

    signal.signal(signal.SIGTERM, end)
    fetcher = Fetcher(run, task, lambda text: messages.say(text, source="ranks"))
    landing = fetcher.landing
    if landing is not None:
        if fetcher.arrivals.final:
            return 0
        while not _opened(landing, messages):
            time.sleep(LISTEN_S)
            if ended or os.getppid() != task.parent:
                return 1
    looks = 0
    said = ""
    while os.getppid() == task.parent:
        over, began = ended, time.monotonic()
        came = fetcher.look()
        looks += 1
        if fetcher.problem != said:
            said = fetcher.problem
            print(f"{time.strftime('%H:%M:%S')} nodes: {said or 'fetching again'}", flush=True)
        if over and came and fetcher.is_complete():
            if not fetcher.look(over=True):
                return 1
            if landing is not None:  # who is connected hears of it
                landing.serve(LAST_S)
                landing.close()
            return 0
        first = looks < FIRST_COUNT and not fetcher.heard
        pause_s = LAST_S if ended else min(FIRST_S if first else task.every_s, task.every_s)
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
