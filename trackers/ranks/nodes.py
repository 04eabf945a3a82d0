"""Nodes that share no directory: the news they exchange, and the files copied from other nodes.

Below ``.ranks/<launch>/`` of the store's address:

- ``streams/<node>/…``: the streams of a node's ranks, its sampler and its console, in pieces
  (:mod:`trackers.object_storage.layout`);
- ``nodes/<node>.json``: that node's news, :class:`NodeNews`. It is written after the pieces, so that everything from
  before that time is in the store;
- ``nodes/main.json``: the main node's news, :class:`MainNews`: which run belongs to the launch.

The main node copies the ranks' streams to ``others/`` of the launch's folder, and notes in ``arrivals.json`` up to
which time they are complete. Clocks are compared by the times at which the store wrote
(:mod:`trackers.object_storage.clock`).
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from pathlib import Path
from typing import Annotated

import msgspec

from trackers.errors import UNDECODABLE
from trackers.journal.run_directory import RunDirectory, StreamName
from trackers.object_storage import addresses, launches
from trackers.ranks.launch import ARRIVALS, LISTEN, OTHERS
from trackers.ranks.meeting import NETWORK
from trackers.records import TIME_MAX
from trackers.support import confined
from trackers.tracker import RunInfo

MOST_SAID = 20
"""Maximum messages in a node's news."""
Seconds = Annotated[float, msgspec.Meta(ge=-TIME_MAX, le=TIME_MAX)]
"""A time, or a difference of times, as another node says it."""
NODE_NAME = re.compile(r"(\d{4,9})\.json")


class NodeNews(msgspec.Struct, omit_defaults=True):
    """State of a node.

    host: its name. told: id of an unbroken sequence of news, each sent after the one before had arrived; "" for news
    sent amid the files, which says nothing of them. ahead_s, within_s: by how much its clock is ahead of the store's,
    and the error of that; within_s None if unknown. done: nothing more comes. said: messages of its helpers.
    """

    host: str = ""
    told: str = ""
    ahead_s: Seconds = 0.0
    within_s: Seconds | None = None
    done: bool = False
    said: list[str] = []


class MainNews(msgspec.Struct, omit_defaults=True):
    """State of the main node: the run, its attempt and when that began; the newest step; its clock as in NodeNews.

    over: the attempt has ended, and nothing more is fetched. agreed: at which of their looks all ranks stop and save
    (:class:`trackers.support.run_requests.ControlState`).
    """

    project: str = ""
    id: str = ""
    attempt: int = 0
    time: Seconds = 0.0
    step: int | None = None
    ahead_s: Seconds = 0.0
    within_s: Seconds | None = None
    over: bool = False
    agreed: tuple[int, int] = (0, 0)


class Arrival(msgspec.Struct, omit_defaults=True):
    """A copied stream. as_of: the copy has everything written before that time, in Unix seconds by this clock; 0.0:
    unknown. ahead_s: by how much the writer's clock is ahead of this one. heard: when its node's last news came."""

    as_of: Seconds = 0.0
    ahead_s: Seconds = 0.0
    heard: Seconds = 0.0


class Arrivals(msgspec.Struct, omit_defaults=True):
    """State of the files copied from other nodes.

    looked: when the store last answered. since: when it first answered after a failure: silence counts from then.
    streams: the ranks', by name. taken: files of the run that are copies from other nodes. patience_s: a node that was
    silent for longer counts as gone. final: nothing more comes.
    """

    looked: float = 0.0
    streams: dict[str, Arrival] = {}
    taken: list[str] = []
    patience_s: float = 120.0
    since: float = 0.0
    final: bool = False


def store_of(info: RunInfo, folder: Path | None) -> str | None:
    """How nodes of a run that share no directory send their files: a store's address; "": the network.

    Args:
        folder: the launch's.

    Returns:
        None if they share a directory, or the main node has everything that came over the network.
    """
    if info.option("TRACKER_NODES", "") == NETWORK:
        return "" if folder is not None and (folder / LISTEN).exists() else None
    where = info.option("TRACKER_DIR", "")
    return addresses.normalize(where) if addresses.is_address(where) and addresses.STORAGE in info.trackers else None


def home(folder: Path) -> str:
    """Path of a launch's objects below the store's address."""
    return launches.home(folder.name)


def node_file(node: int) -> str:
    """File name of a node's news."""
    return f"{node:04d}.json"


def run_of(folder: Path, news: MainNews) -> RunDirectory | None:
    """Directory of the launch's run on this machine, existing or not; None for a name that leads elsewhere."""
    named = confined.is_plain_name(news.project) and confined.is_plain_name(news.id)
    if not named or "." in (news.project[0], news.id[0]) or not 0 < news.attempt < 2**31:
        return None
    return RunDirectory(folder.parent.parent / news.project / news.id)


def read_arrivals(folder: Path) -> Arrivals | None:
    """The file's content; None if nothing came from other nodes, or the file is damaged."""
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
    """Reads a launch's arrivals again after each change.

    Args:
        expected: ranks on other nodes send their streams.

    Attributes:
        now: as last read.
    """

    def __init__(self, folder: Path, expected: bool) -> None:
        self._folder = folder
        self._expected = expected
        self._version: tuple[int, int] | None = None
        self.now = Arrivals()

    def refresh(self) -> None:
        """Read the file again if it has changed."""
        try:
            status = os.stat(self._folder / ARRIVALS)
        except OSError:
            return
        if (status.st_mtime_ns, status.st_ino) != self._version:
            self._version = status.st_mtime_ns, status.st_ino
            self.now = read_arrivals(self._folder) or self.now

    def arrival_of(self, path: Path) -> Arrival | None:
        """State of a rank's stream; None if its process writes it on this node."""
        if path.parent.name != OTHERS:
            return None
        return self.now.streams.get(path.name.removesuffix(".jsonl"), Arrival())

    @property
    def final(self) -> bool:
        """Nothing more comes."""
        return self.now.final or not self._expected

    def may_come(self, due: float) -> bool:
        """Whether a rank without a stream here may have written on another node before a monotonic time."""
        return not self.final and time.time() - self.now.looked > time.monotonic() - due


def rank_stream(name: str, ranks: int) -> StreamName | None:
    """A rank's stream by its file name; None for another file, or a rank out of range."""
    stream = StreamName.parse(name.removesuffix(".jsonl")) if name.endswith(".jsonl") else None
    return stream if stream is not None and stream.writer == "rank" and stream.number < ranks else None
