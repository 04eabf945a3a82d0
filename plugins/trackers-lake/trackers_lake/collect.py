"""Brings a lake up to date with growing runs, again and again: one writer for all of them.

Each round reads what is new of all runs, and puts it into one commit of each table. Several collectors share the
projects: each says in the lake which it looks after, ``collectors/PROJECT.json`` with its name and how often it has
come by. Who sees that a file hasn't changed for some rounds, by a clock of its own, takes the project over; on the same
machine at once, where the other's process is gone. Two that hold one project for a moment do the same work twice, and
the lake has it once: see :mod:`trackers_lake.tables`.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from trackers.errors import UNDECODABLE, DeliveryError, NotFound
from trackers.journal.run_directory import RunDirectory, find_runs
from trackers.object_storage import mirror
from trackers.object_storage.store import Store
from trackers.records import escaped
from trackers.support import machines, processes, sightings
from trackers.support.failpoints import failpoint
from trackers_lake import into_lake
from trackers_lake.tables import KEPT_S, Lake

FOLDER = "collectors"
SILENT_ROUNDS = 3
"""A collector whose file hasn't changed for so many rounds is gone."""
MOST_CLAIM_BYTES = 4096


class Claim(msgspec.Struct):
    """What a collector says of a project. holder: its name, of a process, whose machine, pid and start follow.
    round: how often it has come by."""

    holder: str
    round: int = 0
    host: str = ""
    boot_id: str = ""
    pid_namespace: str = ""
    pid: int = 0
    pid_start: float = 0.0

    def is_dead(self) -> bool:
        """Whether its process was one of this machine, and is gone."""
        return self.pid > 0 and machines.is_here(self) and not processes.alive(self.pid, self.pid_start)


class Source(Protocol):
    """Where growing runs lie."""

    def projects(self) -> Iterable[str]:
        """The projects that are there now; called once a round, before :meth:`bring`."""

    def bring(self, projects: Collection[str]) -> Iterable[RunDirectory]:
        """The runs of some of them, as they are now."""


class Directory:
    """A directory of runs."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._runs: list[RunDirectory] = []

    def projects(self) -> Iterable[str]:
        self._runs = list(find_runs(self._root))
        return (run.path.parent.name for run in self._runs)

    def bring(self, projects: Collection[str]) -> Iterable[RunDirectory]:
        return (run for run in self._runs if run.path.parent.name in projects)


class Stored:
    """A store's runs: those of the wanted projects alone are copied to this machine.

    Args:
        where: its address. root: the directory of the copy, which other collectors of this machine may share.
    """

    def __init__(self, where: str, root: Path) -> None:
        self._store, self._root = Store(where), root

    def projects(self) -> Iterable[str]:
        self._began = sightings.now()
        self._listed = mirror.stored_runs(self._store)
        return (run.project for run in self._listed)

    def bring(self, projects: Collection[str]) -> Iterable[RunDirectory]:
        mirror.refresh_runs(
            self._store, self._root, self._listed, self._began, lambda run: run.project in projects
        )  # fmt: skip
        there = {(run.project, run.id) for run in self._listed if run.project in projects}
        return (run for run in find_runs(self._root) if (run.path.parent.name, run.path.name) in there)


class Claims:
    """The projects that this collector looks after.

    Args:
        silent_s: how long another's file stays as it is before its project is taken over, in seconds.
    """

    def __init__(self, store: Store, silent_s: float) -> None:
        self.holder = f"{socket.gethostname()[:60]}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self.held: set[str] = set()
        self._store, self._silent_s = store, silent_s
        self._round = 0
        self._seen: dict[str, tuple[bytes, float]] = {}

    def take(self, projects: Iterable[str]) -> set[str]:
        """Take the projects that nobody else looks after, and say that this one goes on with those it has.

        Raises:
            Unavailable, Refused: the lake's store fails.
        """
        self._round += 1
        here, pid = machines.machine(), os.getpid()
        mine = msgspec.json.encode(Claim(self.holder, self._round, *here, pid, processes.process_start(pid)))
        projects = set(projects)
        for project in self.held - projects:
            self._give_up(project)
        held = set()
        for project in sorted(projects):
            name = _name(project)
            there = self._read(name)
            if there is not None and _claim(there).holder == self.holder:
                self._store.put(name, mine)
                held.add(project)
                continue
            if there is not None and not (_claim(there).is_dead() or self._is_silent(project, there)):
                continue
            if there is not None:
                failpoint("lake.claim.before")
                self._store.delete([name])
            if self._store.create(name, mine):
                held.add(project)
        self.held = held
        return held

    def release(self) -> None:
        """Leave all projects to others, at once."""
        for project in self.held:
            self._give_up(project)
        self.held = set()

    def _give_up(self, project: str) -> None:
        there = self._read(_name(project))
        if there is not None and _claim(there).holder == self.holder:
            self._store.delete([_name(project)])

    def _read(self, name: str) -> bytes | None:
        try:
            return self._store.get(name, MOST_CLAIM_BYTES)
        except NotFound:
            return None

    def _is_silent(self, project: str, content: bytes) -> bool:
        now = time.monotonic()
        before, since = self._seen.get(project, (b"", now))
        if before != content:
            self._seen[project] = content, now
            return False
        return now - since >= self._silent_s


class Round(NamedTuple):
    """What a round did. projects: that this collector looks after, of all. added: runs. seconds: what it took."""

    projects: int
    all_projects: int
    runs: int
    added: into_lake.Added
    seconds: float


def collect(
    sources: Sequence[Source],
    where: str | Path,
    *,
    every_s: float = 60.0,
    keep_s: float = KEPT_S,
    tell: Callable[[Round], None] = lambda done: None,
    failed: Callable[[str], None] = lambda text: None,
    wait: Callable[[float], bool],
) -> None:
    """Put what is new of all runs into a lake every so often, until it is asked to stop.

    Args:
        sources: where the runs lie.
        where: the lake; made where nothing is yet. every_s: from the begin of a round to that of the next, in seconds.
        keep_s: as for :func:`trackers_lake.into_lake.add`. tell: called after a round.
        failed: called with what kept a round from its end: the next one goes on.
        wait: waits for so many seconds; True: stop.

    Raises:
        UsageError: the lake's place can't be used.
    """
    lake = Lake(where, make=True, keep_s=keep_s)
    claims = Claims(lake.store, SILENT_ROUNDS * every_s)
    looks: into_lake.Looks = {}
    try:
        while True:
            began = time.monotonic()
            try:
                tell(_round(sources, lake, claims, looks))
            except (DeliveryError, NotFound, OSError) as error:
                failed(str(error))
            if wait(max(0.0, began + every_s - time.monotonic())):
                return
    finally:
        with contextlib.suppress(DeliveryError):
            claims.release()


def _round(sources: Sequence[Source], lake: Lake, claims: Claims, looks: into_lake.Looks) -> Round:
    began = time.monotonic()
    found = [set(source.projects()) for source in sources]
    held = claims.take(set().union(*found))
    runs = [
        run
        for source, there in zip(sources, found, strict=True)
        for run in sorted(source.bring(held & there), key=lambda run: run.path)
    ]
    entries = [entry for entry in map(into_lake.candidate, runs) if entry is not None]
    for key in looks.keys() - {entry.key for entry in entries}:
        del looks[key]
    added = into_lake.fill(lake, entries, looks=looks)
    return Round(len(held), len(set().union(*found)), len(runs), added, time.monotonic() - began)


def _name(project: str) -> str:
    return f"{FOLDER}/{escaped(project)}.json"


def _claim(content: bytes) -> Claim:
    try:
        return msgspec.json.decode(content, type=Claim)
    except UNDECODABLE:
        return Claim("")
