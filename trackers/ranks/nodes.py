"""Nodes that share no directory: what they tell each other through a store, and where what came from others lies.

Below ``.ranks/<launch>/`` of the store's address:

- ``streams/<node>/…``: what a node's ranks, its sampler and its console have left, in pieces
  (:mod:`trackers.object_storage.layout`);
- ``nodes/<node>.json``: that node's last word, :class:`NodeNews`. It is written after the pieces, so that everything
  from before that time is there;
- ``nodes/main.json``: the main node's, :class:`MainNews`: which run the launch has become.

The main node puts the ranks' streams into ``others/`` of the launch's folder, and notes in ``arrivals.json`` up to when
it has them. Clocks are compared by the times at which the store wrote (:mod:`trackers.object_storage.clock`).
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from pathlib import Path

import msgspec

from trackers.errors import UNDECODABLE
from trackers.journal.run_directory import RunDirectory, StreamName
from trackers.object_storage import launches, place
from trackers.ranks.launch import ARRIVALS, LISTEN, OTHERS
from trackers.ranks.meeting import NETWORK
from trackers.support import confined, process_info
from trackers.tracker import RunInfo

MOST_SAID = 20
"""Messages of a node that are passed on."""
NODE_NAME = re.compile(r"(\d{4,9})\.json")


class NodeNews(msgspec.Struct, omit_defaults=True):
    """A node's last word.

    host: its name. told: the same in words that were told one after the other, each after the one before had arrived.
    ahead_s, within_s: of its clock before the store's, and by how much that may be wrong; within_s None where it isn't
    known. done: nothing more comes. said: what its helpers had to say.
    """

    host: str = ""
    told: str = ""
    ahead_s: float = 0.0
    within_s: float | None = None
    done: bool = False
    said: list[str] = []


class MainNews(msgspec.Struct, omit_defaults=True):
    """The main node's: the run, its attempt, since when; the newest step; its clock as in :class:`NodeNews`.

    over: the attempt has ended, and nobody takes what comes now.
    """

    project: str = ""
    id: str = ""
    attempt: int = 0
    time: float = 0.0
    step: int | None = None
    ahead_s: float = 0.0
    within_s: float | None = None
    over: bool = False


class Arrival(msgspec.Struct, omit_defaults=True):
    """as_of: everything that a stream's writer left before that time is here, in Unix seconds by this clock; 0.0: not
    known of any time. ahead_s: of the writer's clock before this one. heard: the time of its node's last word."""

    as_of: float = 0.0
    ahead_s: float = 0.0
    heard: float = 0.0


class Arrivals(msgspec.Struct, omit_defaults=True):
    """What has come from other nodes.

    looked: when the store last answered. since: when it first did so after it hadn't; nobody is silent before.
    streams: the ranks', by name. taken: files of the run that are copies of what other nodes write. patience_s: a node
    that was silent for longer counts as gone. final: nothing more comes.
    """

    looked: float = 0.0
    streams: dict[str, Arrival] = {}
    taken: list[str] = []
    patience_s: float = 120.0
    since: float = 0.0
    final: bool = False


def store_of(info: RunInfo, folder: Path | None) -> str | None:
    """Through what nodes of a run that share no directory send what they have: a store's address; "": the network.

    Args:
        folder: the launch's.

    Returns:
        None where they don't, or where the main node has everything that came over the network.
    """
    if info.option("TRACKER_NODES", "") == NETWORK:
        return "" if folder is not None and (folder / LISTEN).exists() else None
    where = info.option("TRACKER_DIR", "")
    return place.address(where) if place.is_address(where) and place.TRACKER in info.trackers else None


def home(folder: Path) -> str:
    """A launch's place below the store's address."""
    return launches.home(folder.name)


def node_file(node: int) -> str:
    """Name of a node's last word."""
    return f"{node:04d}.json"


def run_of(folder: Path, news: MainNews) -> RunDirectory | None:
    """Where the run that the launch has become lies, or would lie, on this machine; None for a name that leads
    elsewhere."""
    named = confined.plain(news.project) and confined.plain(news.id)
    if not named or "." in (news.project[0], news.id[0]) or not 0 < news.attempt < 2**31:
        return None
    return RunDirectory(folder.parent.parent / news.project / news.id)


def read_arrivals(folder: Path) -> Arrivals | None:
    """As last written; None where nothing came from other nodes, or the file is damaged."""
    with contextlib.suppress(OSError, *UNDECODABLE):
        return msgspec.json.decode(confined.read(folder / ARRIVALS), type=Arrivals)
    return None


def write_arrivals(folder: Path, arrivals: Arrivals) -> None:
    """Replace the file.

    Raises:
        OSError: it can't be written.
    """
    confined.write_whole(folder / ARRIVALS, msgspec.json.encode(arrivals))


class ArrivalsReader:
    """Reads a launch's arrivals again when they have changed.

    Args:
        expected: ranks on other nodes send what they have to a store.

    Attributes:
        now: as they are.
    """

    def __init__(self, folder: Path, expected: bool) -> None:
        self._folder = folder
        self._expected = expected
        self._seen: tuple[int, int] | None = None
        self.now = Arrivals()

    def look(self) -> None:
        """See what has come."""
        try:
            found = os.stat(self._folder / ARRIVALS)
        except OSError:
            return
        if (found.st_mtime_ns, found.st_ino) != self._seen:
            self._seen = found.st_mtime_ns, found.st_ino
            self.now = read_arrivals(self._folder) or self.now

    def of(self, path: Path) -> Arrival | None:
        """Of a rank's stream; None where its own process writes it here."""
        if path.parent.name != OTHERS:
            return None
        return self.now.streams.get(path.name.removesuffix(".jsonl"), Arrival())

    @property
    def final(self) -> bool:
        """Nothing more comes."""
        return self.now.final or not self._expected

    def may_come(self, due: float) -> bool:
        """Whether a rank that left nothing here before a time of the monotonic clock may have left it elsewhere."""
        return not self.final and time.time() - self.now.looked > time.monotonic() - due


def is_here(host: str, boot_id: str) -> bool:
    """Whether a process that says so of its machine runs on this one."""
    return (host, boot_id) == (process_info.host(), process_info.boot_id())


def rank_stream(name: str, ranks: int) -> StreamName | None:
    """A rank's stream by its file's name; None for another file, or a rank that there isn't."""
    found = StreamName.parse(name.removesuffix(".jsonl")) if name.endswith(".jsonl") else None
    return found if found is not None and found.writer == "rank" and found.number < ranks else None
