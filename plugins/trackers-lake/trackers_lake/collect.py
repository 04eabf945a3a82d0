"""Brings a lake up to date with growing runs, again and again: one writer for all of them.

Each round reads what is new of all runs, and puts it into one commit of each table. Several collectors share the
projects: each says in the lake which it looks after, ``collectors/PROJECT.json`` with its name and how often it has
come by. Who sees that a file hasn't changed for some rounds, by a clock of its own, takes the project over. Two that
hold one project for a moment do the same work twice, and the lake has it once: see :mod:`trackers_lake.tables`.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from trackers.errors import UNDECODABLE, DeliveryError, NotFound
from trackers.journal.run_directory import RunDirectory, find_runs
from trackers.object_storage.store import Store
from trackers.records import escaped
from trackers.support.failpoints import failpoint
from trackers_lake import into_lake
from trackers_lake.tables import KEPT_S, Lake

FOLDER = "collectors"
SILENT_ROUNDS = 3
"""A collector whose file hasn't changed for so many rounds is gone."""
MOST_CLAIM_BYTES = 4096


class Claim(msgspec.Struct):
    """What a collector says of a project. holder: its name, of a process. round: how often it has come by."""

    holder: str
    round: int = 0


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
        mine = msgspec.json.encode(Claim(self.holder, self._round))
        projects = set(projects)
        for project in self.held - projects:
            self._give_up(project)
        held = set()
        for project in sorted(projects):
            name = _name(project)
            there = self._read(name)
            if there is not None and _holder(there) == self.holder:
                self._store.put(name, mine)
                held.add(project)
                continue
            if there is not None and not self._is_silent(project, there):
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
        if there is not None and _holder(there) == self.holder:
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
    roots: Callable[[], list[Path]],
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
        roots: brings copies of stores up to date, and names the directories of runs; called once a round.
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
                tell(_round(roots(), lake, claims, looks))
            except (DeliveryError, NotFound, OSError) as error:
                failed(str(error))
            if wait(max(0.0, began + every_s - time.monotonic())):
                return
    finally:
        with contextlib.suppress(DeliveryError):
            claims.release()


def _round(roots: list[Path], lake: Lake, claims: Claims, looks: into_lake.Looks) -> Round:
    began = time.monotonic()
    found: dict[str, list[RunDirectory]] = {}
    for root in roots:
        for directory in find_runs(root):
            found.setdefault(directory.path.parent.name, []).append(directory)
    held = claims.take(found)
    runs = [run for project in sorted(held) for run in found[project]]
    entries = [entry for entry in map(into_lake.candidate, runs) if entry is not None]
    for key in looks.keys() - {entry.key for entry in entries}:
        del looks[key]
    return Round(len(held), len(found), len(runs), into_lake.fill(lake, entries, looks=looks), time.monotonic() - began)


def _name(project: str) -> str:
    return f"{FOLDER}/{escaped(project)}.json"


def _holder(content: bytes) -> str:
    try:
        return msgspec.json.decode(content, type=Claim).holder
    except UNDECODABLE:
        return ""
