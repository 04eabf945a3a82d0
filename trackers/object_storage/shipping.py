"""Sending a run to a store while it grows: what the store lacks, so that nothing is named before it is there.

Nothing is remembered on disk. Who begins lists what the store has, and goes on from there: a kill at any point, a
second sender and a request that was carried out though its answer was lost change nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import time
from pathlib import Path
from typing import Any

import msgspec

from trackers.errors import UNDECODABLE, Fatal, NotFound, Refused, Unavailable
from trackers.object_storage import layout, removal
from trackers.object_storage.growing import GrowingFiles
from trackers.object_storage.layout import FIXED, GROWING, MOST_BYTES, SMALL, SMALL_BYTES
from trackers.object_storage.store import Store
from trackers.support import confined, machines

HEARTBEAT_S = 20.0
"""Interval of heartbeats in the store, in seconds; see :data:`trackers.journal.status.SILENT_S`."""
LEASE = "relay.lease"
IDENTITY = "run.json"
DEPTH = 6
CHECKS = 3
REFUSED_AT_ONCE = 3
"""After so many refusals, and nothing that was taken, the others aren't tried: they are for all objects."""


class Sender:
    """Sends one run.

    Args:
        home: the run's prefix below the store's address, ``<project>/<run id>``.
        heartbeat_s: between heartbeats in the store. bytes_s: rate of a slow connection, in bytes a second: an object
            may take so long that readers must be told.

    Attributes:
        is_new: whether the store had nothing of the run yet, not even a note that it was removed.

    Raises:
        Unavailable, Refused: the store can't be listed. Fatal: the run is somebody else's now; see :meth:`send`.
    """

    def __init__(
        self, store: Store, run: Path, home: str, heartbeat_s: float = HEARTBEAT_S, bytes_s: float = 1e6
    ) -> None:
        self._store, self._run, self._home = store, run, home
        self.heartbeat_s, self.bytes_s = heartbeat_s, bytes_s
        self._growing = GrowingFiles(store, home, self._beat)
        self._whole = {path: (size, -1) for path, size in self._growing.list_objects().items()}
        self.is_new = self._growing.is_new
        self._claimed = 0
        self._beaten = -math.inf

    def announce(self) -> int:
        """Send what says that the run is there and lives: its relay's lease and its identity. As :meth:`send`.

        Raises:
            see :meth:`send`.
        """
        self._claim()
        self._beat()
        return self._sent(IDENTITY, SMALL, last=False)

    def send(self, *, last: bool = False) -> int:
        """Send what the store lacks, after :meth:`announce`. Returns how many objects that took.

        Args:
            last: the run has ended: large files that change are sent, too.

        Raises:
            Unavailable, Refused: not everything was sent; where single objects are refused, all others are.
            Fatal: another process has this attempt or a later one.
        """
        objects = self.announce()
        refused: list[Refused] = []
        files = self._files()
        for kind in (FIXED, GROWING, SMALL):
            for path in files.get(kind, []):
                if path.endswith(layout.CHECKSUMS) and not last:  # a request more each time
                    continue
                try:
                    objects += self._sent(path, kind, last=last)
                except Refused as error:
                    refused.append(error)
                    if not objects and len(refused) >= REFUSED_AT_ONCE:
                        raise
        if refused:
            raise refused[0]
        return objects

    def _sent(self, path: str, kind: str, *, last: bool) -> int:
        try:
            if kind == GROWING:
                return self._growing.send(path, self._run / path, self._run)
            return self._changed(path, kind, last)
        except FileNotFoundError:  # deleted or renamed meanwhile
            return 0
        except OSError as error:
            raise Unavailable(f"{self._run / path} can't be read: {error.strerror or error}") from None

    def _beat(self, size: int = 0) -> None:
        """Send the relay's lease, if the last time is long ago, or a long request follows.

        Args:
            size: bytes of the next request; the lease then says how long the run may be silent.
        """
        allow_s = size / self.bytes_s
        if time.monotonic() - self._beaten < self.heartbeat_s and allow_s < self.heartbeat_s:
            return
        try:
            content = confined.read(self._run / LEASE, root=self._run)
            holder = msgspec.json.decode(content, type=dict[str, Any])
        except (OSError, *UNDECODABLE):  # no relay works now
            return
        if allow_s >= self.heartbeat_s:
            content = msgspec.json.encode({**holder, "allow_s": allow_s})
        self._store.put(f"{self._home}/{LEASE}", content)
        self._beaten = time.monotonic()

    def finish(self) -> None:
        """Send all and check that the store has it, since it may lose what it accepted. Remove superseded pieces.

        Raises:
            Unavailable: it lacks something after three tries. Refused, Fatal: see :meth:`send`.
        """
        for _ in range(CHECKS):
            self.send(last=True)
            ends, whole = self._growing.ends(), self._whole
            listed = self._growing.list_objects()
            has = self._growing.ends()
            lost = [path for path, end in ends.items() if has.get(path, 0) < end]
            gone = whole.keys() - listed.keys()
            self._whole = {path: whole.get(path, (size, -1)) for path, size in listed.items()}
            if not lost and not gone:
                self._growing.remove_replaced()
                return
        raise Unavailable(f"{self._store.where}: it has lost objects that it had accepted, {len(lost) + len(gone)} now")

    def _claim(self) -> None:
        """Claim this attempt in the store, and check that no later one was begun elsewhere."""
        newest = layout.attempt_in(self._run)
        if newest > self._claimed:
            claim_attempt(self._store, self._run, self._home, newest)
            self._claimed = newest
        following = f"{self._home}/{layout.claim(newest + 1)}"
        if self._store.exists(following):
            claim = removal.Claim.parse(self._store.get(following, removal.MOST_BYTES))
            if claim.removed:
                removal.may_pass(self._store, following, claim, lambda: _identities(self._run), self._run.name)
                return
            raise Fatal(
                f"run {self._run.name} goes on elsewhere, as attempt {newest + 1}: {self._unsent(newest)} that weren't "
                f"sent before lie in {self._run} only"
            )

    def _unsent(self, attempt: int) -> str:
        """How many lines of an attempt's streams the store lacks, as text."""
        lines = 0
        for path, sent in ((path, self._growing.ends().get(path, 0)) for path in self._files().get(GROWING, [])):
            if f".{attempt}." in path and path.endswith(".jsonl"):  # checksums lie beside
                with contextlib.suppress(OSError), confined.open_file(self._run / path, root=self._run) as file:
                    file.seek(sent)
                    lines += sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(MOST_BYTES), b""))
        return "1 record" if lines == 1 else f"{lines:,} records"

    def _files(self) -> dict[str, list[str]]:
        files: dict[str, list[str]] = {}
        waiting = [""]
        while waiting:
            folder = waiting.pop()
            try:
                entries = sorted(os.scandir(self._run / folder), key=lambda entry: entry.name)
            except OSError:
                continue
            for entry in entries:
                path = f"{folder}/{entry.name}" if folder else entry.name
                if entry.is_dir(follow_symlinks=False):
                    if not entry.name.startswith((".", "@")) and path.count("/") < DEPTH:
                        waiting.append(path)
                elif entry.is_file(follow_symlinks=False) and (kind := layout.kind(path)) is not None:
                    files.setdefault(kind, []).append(path)
        return files

    def _changed(self, path: str, kind: str, last: bool) -> int:
        """Send a file whole if it isn't as it was sent last."""
        seen = os.stat(self._run / path)
        known = self._whole.get(path)
        state = (seen.st_size, seen.st_mtime_ns)
        if known == state or (kind == FIXED and known is not None and known[0] == seen.st_size):
            return 0
        if kind == SMALL and seen.st_size > SMALL_BYTES and not last:
            return 0
        self._beat(seen.st_size)
        if seen.st_size > MOST_BYTES:
            self._store.put(f"{self._home}/{path}", self._run / path)
        else:
            content = confined.read(self._run / path, root=self._run)
            self._store.put(f"{self._home}/{path}", content)
        self._whole[path] = state
        return 1


def claim_attempt(store: Store, run: Path, home: str, attempt: int) -> None:
    """Claim an attempt for the process whose stream begins as this one does.

    Raises:
        Fatal: another process has it, or the run was removed. Unavailable, Refused: the store can't be asked.
    """
    me = _identity(run, attempt)
    name = f"{home}/{layout.claim(attempt)}"
    content = f"{me} {machines.host()}\n".encode()
    if store.create(name, content):
        return
    try:
        claim = removal.Claim.parse(store.get(name, removal.MOST_BYTES))
    except NotFound:
        raise Unavailable(f"{store.where}/{name} was there and is gone") from None
    if claim.removed:
        removal.may_pass(store, name, claim, lambda: _identities(run), run.name)
        if store.create(name, content):
            return
        raise Unavailable(f"{store.where}/{name} was taken by another process meanwhile")
    if me not in claim.attempts:
        where = claim.host or "another machine"
        raise Fatal(f"run {run.name}: attempt {attempt} was begun on {where}, too, and is that one's")


def _identities(run: Path) -> frozenset[str]:
    """The identities of all local attempts, as their claims hold them."""
    identities = set()
    for attempt in range(1, layout.attempt_in(run) + 1):
        with contextlib.suppress(Unavailable):
            identities.add(_identity(run, attempt))
    return frozenset(identities)


def _identity(run: Path, attempt: int) -> str:
    path = run / layout.first_stream(attempt)
    try:
        with confined.open_file(path, root=run) as file:
            head = file.readline(MOST_BYTES)
    except OSError as error:
        raise Unavailable(f"{path} can't be read: {error.strerror or error}") from None
    if not head.endswith(b"\n"):
        raise Unavailable(f"{path} has no complete line yet")
    return hashlib.sha256(head).hexdigest()
