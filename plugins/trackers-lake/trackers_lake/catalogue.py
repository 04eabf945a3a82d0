"""A catalogue of a store's runs: what lists and comparisons need of those that have ended, in few objects.

It lies beside the runs::

    .catalogue/marks/PROJECT/RUN/…   a run that was changed since the catalogue has it: who sends or removes it says so
    .catalogue/packs/000000000012    heads of runs

The catalogue is a copy, never the truth. Of a run the newest head counts, unless there is a mark: then the run is read.
So is each run that the store has and no head is of. The rules that make that sound:

* Who sends a run first has ``delivery/storage.json`` say that it isn't closed, then makes a mark of a new name.
* Who gathers heads lists marks first, then asks whether the run is closed, reads it, puts the head into a pack, and
  only then removes the marks that it had listed. One that came meanwhile has another name, and stays.
* Who reads lists marks first, then the packs.
* A pack's number can be created once. ``since`` says which earlier ones it stands for, and these go. Whose number was
  taken by another leaves out the runs of which the other has put in heads. Where a pack is damaged, or is missing,
  nothing older counts.

A kill at any point leaves marks or old packs behind, which cost requests.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import zlib
from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec

from trackers.analysis import collect
from trackers.analysis.run_stats import RunStats
from trackers.errors import UNDECODABLE, NotFound, Refused
from trackers.object_storage import addresses, layout, mirror
from trackers.object_storage.mirror import StoredRun
from trackers.object_storage.store import Longer, Store
from trackers.support import confined
from trackers.support.failpoints import failpoint

PACKS = ".catalogue/packs"
CLOSED_FILE = "delivery/storage.json"
MOST_CLOSED_BYTES = 1024 * 1024
MOST_PACK_BYTES = 64 * 1024 * 1024
MOST_UNPACKED_BYTES = 512 * 1024 * 1024
MOST_HEADS = 1_000_000
"""Of a pack; a small one can unpack to far more, each of which takes memory."""
MOST_NUMBER = 10**12 - 1
MOST_PACKS = 64
"""Of so many, the newest, packs are read: there are some ten of a million runs."""
THREADS = 8
FEW = 64
"""Of more runs than so many the store is listed whole: 1,000 objects a request."""
TOGETHER = 200
"""Runs that are copied before they are read."""
HEADS = 5000
"""Maximum number of new heads of a pack."""
TRIES = 10


class Head(msgspec.Struct, array_like=True, gc=False):
    """A run as lists have it. home: ``<project>/<run id>``, its folders. gone: there is no such run. version, facts:
    see :func:`trackers.analysis.collect.kept_facts`. The others: see :class:`trackers.readers.reader.SourceRun`.
    """

    home: str
    gone: bool = False
    id: str = ""
    name: str = ""
    project: str = ""
    group: str | None = None
    tags: list[str] = []
    notes: str | None = None
    created: float = 0.0
    status: str = ""
    version: str = ""
    facts: bytes = b""

    def word(self) -> str:
        """What differs when the run was read anew, and was another."""
        return hashlib.blake2b(self.facts, digest_size=16).hexdigest()


class Pack(msgspec.Struct):
    """since: the first of the packs that it stands for; its own number where it is one beside them."""

    since: int
    heads: Annotated[list[Head], msgspec.Meta(max_length=MOST_HEADS)]


class Look(NamedTuple):
    """names: the runs' folders in the store. heads: of those of them that needn't be read."""

    names: list[str]
    heads: dict[str, Head]


class Gathered(NamedTuple):
    """What a round did. put_in: runs whose heads were put in. going_on: runs that aren't closed. problems: why others
    were left out."""

    put_in: int
    going_on: int
    problems: list[str]


class _Account(msgspec.Struct):
    closed: str = ""


class Catalogue:
    """The catalogue of a store. Keeps the packs that it has read."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.store = _Folders(where)
        self.top = 0
        self._packs: dict[int, Pack | None] = {}

    def look(self) -> Look:
        """The runs that there are, and what is known of them.

        Raises:
            Unavailable, Refused: the store can't be read.
        """
        marks = self.marks()
        with ThreadPoolExecutor(THREADS) as pool:
            named = pool.submit(self.names)
            heads = heads_of(self.chain())
            names = named.result()
        # A run that was removed has claims left: they are no run.
        gone = {home for home, head in heads.items() if head.gone and home not in marks}
        names = [home for home in names if home not in gone]
        return Look(names, {home: heads[home] for home in names if home in heads and home not in marks})

    def marks(self) -> dict[str, list[str]]:
        """Names of the marks, by run."""
        marks: dict[str, list[str]] = {}
        for entry in self.store.objects(layout.MARKS):
            home, _, last = entry.name[len(layout.MARKS) + 1 :].rpartition("/")
            if last and _is_home(home):
                marks.setdefault(home, []).append(entry.name)
        return marks

    def names(self) -> list[str]:
        """The folders of all runs in the store."""
        projects = [name for name in self.store.folders("") if _is_name(name)]
        with ThreadPoolExecutor(THREADS) as pool:
            below = pool.map(self.store.folders, projects)
            found = zip(projects, below, strict=True)
            return [f"{project}/{name}" for project, names in found for name in names if _is_name(name)]

    def chain(self) -> list[tuple[int, Pack]]:
        """The packs that count, with their numbers, the newest first. ``top`` is the highest number that is taken."""
        chain: list[tuple[int, Pack]] = []
        for _ in range(TRIES):
            numbers = self._numbers()
            self.top = numbers[0] if numbers else 0
            self._packs = {number: pack for number, pack in self._packs.items() if number in numbers}
            missing = [number for number in numbers[:MOST_PACKS] if number not in self._packs]
            with ThreadPoolExecutor(THREADS) as pool:
                packs = list(pool.map(self._pack, missing))
            self._packs.update({number: pack for number, (pack, _) in zip(missing, packs, strict=True)})
            chain, at = [], self.top
            while (pack := self._packs.get(at)) is not None:
                chain.append((at, pack))
                at = pack.since - 1
            if not any(gone for _, gone in packs):
                break  # else another stands for it by now
            self._packs = {number: pack for number, pack in self._packs.items() if pack is not None}
        return chain

    def _numbers(self) -> list[int]:
        found = []
        for entry in self.store.objects(PACKS):
            last = entry.name[len(PACKS) + 1 :]
            if len(last) == 12 and last.isascii() and last.isdigit():
                found.append(int(last))
        return sorted(found, reverse=True)

    def _pack(self, number: int) -> tuple[Pack | None, bool]:
        """A pack, None if it can't be read; and whether it has gone."""
        try:
            content = self.store.get(_pack_name(number), MOST_PACK_BYTES)
        except NotFound:
            return None, True
        except Longer:
            return None, False
        return decoded(content, number), False

    def put(self, heads: dict[str, Head], seen: int, theirs: set[str]) -> set[str]:
        """Put in heads; the runs of which they were: not those of which another has put in heads meanwhile.

        Args:
            heads: by run. seen: the highest number that was taken when the runs' marks were listed, or of the pack
                that this one has put in since. theirs: runs of others' packs since then; these are added.

        Raises:
            Unavailable, Refused: the store can't be read, or written.
        """
        for _ in range(TRIES):
            chain = self.chain()
            theirs.update(head.home for number, other in chain if number > seen for head in other.heads)
            heads = {home: head for home, head in heads.items() if home not in theirs}
            if not heads:
                break
            if self.top >= MOST_NUMBER:
                raise Refused(f"{self.store.where}/{PACKS} has a pack of the highest number: remove .catalogue")
            number, kept = self.top + 1, list(chain)
            pack = Pack(number, list(heads.values()))
            if not chain or chain[0][0] != self.top:  # the newest can't be read, so that nothing older would count
                kept, pack = [], Pack(1, list((heads_of(chain) | heads).values()))
            while kept and len(kept[0][1].heads) <= 2 * len(pack.heads):
                last = kept.pop(0)
                pack = Pack(last[1].since, list(heads_of([(number, pack), last]).values()))
            failpoint("catalogue.pack.before")
            if self.store.create(_pack_name(number), encoded(pack)):
                failpoint("catalogue.pack.after")
                current = {one for one, _ in kept}
                spent = [one for one in self._numbers() if one < number and one not in current]
                self.store.delete([_pack_name(one) for one in spent])
                self.top = number
                return set(heads)
        return set()

    def gather(self, *, again: bool = False) -> Gathered:
        """Put in the heads of all closed runs that the catalogue lacks.

        Args:
            again: also of those that it has.

        Raises:
            Unavailable, Refused: the store can't be read, or written. NotFound: it has no runs, and had none. OSError:
            no room for copies of the runs.
        """
        marks = self.marks()
        heads = heads_of(self.chain())
        names = set(self.names())
        if not names and not heads:
            raise NotFound(f"{self.where} has no runs: give the place that TRACKER_DIR named, or that `--dir` takes")
        wanted = sorted((names if again else names - heads.keys()) | marks.keys())
        with ThreadPoolExecutor(THREADS) as pool:
            closed = dict(zip(wanted, pool.map(self._closed, wanted), strict=True))
        done, problems, fresh = 0, list[str](), dict[str, Head]()
        seen, theirs = self.top, set[str]()

        def put() -> None:
            nonlocal done, seen
            took = self.put(fresh, seen, theirs) if fresh else set()
            failpoint("catalogue.marks.before")
            self.store.delete([name for home in took for name in marks.get(home, [])])
            done, seen = done + len(took), self.top
            fresh.clear()

        none = [home for home in wanted if closed[home] is None]
        there = {f"{run.project}/{run.id}" for run in runs_of(self.store, none)}
        fresh.update({home: Head(home, gone=True) for home in none if home in marks and home not in there})
        ended = runs_of(self.store, [home for home in wanted if closed[home]])
        for first in range(0, len(ended), TOGETHER):
            made, why = self._heads(ended[first : first + TOGETHER], closed)
            problems += why
            fresh.update(made)
            if len(fresh) >= HEADS:
                put()
        put()
        return Gathered(done, len([home for home in wanted if closed[home] == "" or home in there]), problems)

    def _closed(self, home: str) -> str | None:
        """How a run has ended for who sends it; "" if it hasn't; None if that isn't known."""
        try:
            content = self.store.get(f"{home}/{CLOSED_FILE}", MOST_CLOSED_BYTES)
            return msgspec.json.decode(content, type=_Account).closed
        except (NotFound, Longer, *UNDECODABLE):
            return None

    def _heads(self, runs: list[StoredRun], closed: dict[str, str | None]) -> tuple[dict[str, Head], list[str]]:
        """Heads of runs that have ended; and why others have none. closed: how they have ended."""
        heads, problems = {}, []
        with tempfile.TemporaryDirectory(prefix="trackers-catalogue-") as folder:
            copied = mirror.copy_runs(self.store, Path(folder).resolve(), [_without_media(run) for run in runs])
            for path in copied:
                stats = collect.read_one(Path(path))
                home = "/".join(Path(path).parts[-2:])
                if isinstance(stats, str):
                    problems.append(stats)
                elif stats.status == closed[home]:  # else it goes on by now
                    stats.source = ""
                    heads[home] = _head(home, stats)
        return heads, problems


class _Folders(Store):
    """A store whose folders can be listed without what is in them."""

    def folders(self, below: str) -> list[str]:
        """Names of the folders in a folder.

        Raises:
            Unavailable, Refused: they can't be listed.
        """
        if isinstance(self._store, Path):  # a directory, whose links aren't followed
            top = self._store / below
            if not top.is_dir() or top.resolve() != self._store.resolve() / below:
                return []
            return [entry.name for entry in os.scandir(top) if entry.is_dir(follow_symlinks=False)]
        found: dict[str, Any] = self._call(lambda: self._client.list_with_delimiter(self._store, prefix=below or None))
        return [str(name).rstrip("/").rpartition("/")[2] for name in found["common_prefixes"]]


def encoded(pack: Pack) -> bytes:
    """A pack's object."""
    return zlib.compress(msgspec.msgpack.encode(pack), 6)


def decoded(content: bytes, number: int) -> Pack | None:
    """The pack of an object; None if it is damaged."""
    unpack = zlib.decompressobj()
    with contextlib.suppress(zlib.error, *UNDECODABLE):
        text = unpack.decompress(content, MOST_UNPACKED_BYTES)
        pack = msgspec.msgpack.decode(text, type=Pack) if unpack.eof else None
        return pack if pack is not None and 1 <= pack.since <= number else None
    return None


def heads_of(chain: Iterable[tuple[int, Pack]]) -> dict[str, Head]:
    """The newest head of each run."""
    heads: dict[str, Head] = {}
    for _, pack in chain:
        for head in pack.heads:
            heads.setdefault(head.home, head)
    return heads


def runs_of(store: Store, homes: Collection[str]) -> list[StoredRun]:
    """Some runs as a listing has them: one of all where they are many.

    Raises:
        Unavailable, Refused: the store can't be listed.
    """
    if len(homes) > FEW:
        wanted = set(homes)
        found = [run for run in mirror.stored_runs(store) if f"{run.project}/{run.id}" in wanted]
    else:
        with ThreadPoolExecutor(THREADS) as pool:
            found = [run for runs in pool.map(lambda home: mirror.stored_runs(store, home), homes) for run in runs]
    return [run for run in found if "run.json" in run.whole or run.attempt()]


def copy_beside(where: str, name: str) -> Path:
    """A directory on this machine beside that of the copy of a store's runs, for a copy of some of them."""
    from trackers import configuration

    base = str(configuration.resolve()["TRACKER_STORE_DIR"] or "")
    return addresses.copy_directory(where, base).with_name(name)


def _head(home: str, stats: RunStats) -> Head:
    return Head(
        home, False, stats.id, stats.name, stats.project, stats.group, stats.tags, stats.notes, stats.created,
        stats.status, collect.FACTS_VERSION, msgspec.msgpack.encode(stats),
    )  # fmt: skip


def _without_media(run: StoredRun) -> StoredRun:
    whole = {path: entry for path, entry in run.whole.items()
             if "/" not in path or path.startswith(("streams/", "delivery/"))}  # fmt: skip
    return run._replace(whole=whole)


def _pack_name(number: int) -> str:
    return f"{PACKS}/{number:012d}"


def _is_name(name: str) -> bool:
    return bool(name) and name[0] != "." and confined.is_plain_name(name)


def _is_home(home: str) -> bool:
    return home.count("/") == 1 and all(map(_is_name, home.split("/")))
