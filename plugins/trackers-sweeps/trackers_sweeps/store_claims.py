"""A sweep's claims, outcomes and trials in a store, for workers that share nothing else: by exclusive creation alone.

::

    .sweeps/NAME/claims/POINT/0001         who has the point; the next claim of it is 0002
    .sweeps/NAME/claims/POINT/0001~beat    written anew as a sign of life
    .sweeps/NAME/claims/POINT/0001~free    it was given back
    .sweeps/NAME/ended/POINT.finished      or .failed
    .sweeps/NAME/trials/POINT.json         of a search
    .sweeps/NAME/command.json

Stores have no rename and not all have conditional writes, but of several writers of a new object one wins
(:meth:`trackers.object_storage.store.Store.create`). A claim whose sign of life stays the same for a minute, by the
clock of who looks, is succeeded by the next one; its holder sees that one, and ends its program.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from trackers.errors import UNDECODABLE, DeliveryError, NotFound, UsageError
from trackers.journal.lease import STALE_S, Holder
from trackers.object_storage.store import Store
from trackers.support import machines, processes
from trackers.support.clock import monotonic
from trackers_sweeps.ledger import SWEEPS, Ledger, PointOutcome

LOOK_S = 5.0
"""Minimum time between two listings, in seconds."""
BEAT_S = 10.0
"""Minimum time between two signs of life of a claim, in seconds."""
ASK_S = 5.0
"""How long a claim shows no sign of life before it is read whose it is, in seconds."""
TRIES = 5
MOST_BYTES = 1_000_000
_ENDS = ("finished", "failed")


class _Claim(NamedTuple):
    """The newest claim of a point. sign: changes with each sign of life. free: it was given back."""

    number: int = 0
    sign: str = ""
    free: bool = False


class StoreLease:
    """One claim that this worker has. number: how manieth of its point it is."""

    def __init__(self, ledger: StoreLedger, point: str, number: int) -> None:
        self._ledger, self._point, self.number = ledger, point, number
        self._beaten = monotonic()
        self._count = 0

    def beat(self) -> bool:
        """Give a sign of life, now and then. False if another worker has taken the point over."""
        now = monotonic()
        if now - self._beaten < BEAT_S:
            return True
        self._beaten, self._count = now, self._count + 1
        with contextlib.suppress(DeliveryError):  # the next one may get through
            if self._ledger.store.exists(self._ledger.claim_name(self._point, self.number + 1)):
                return False
            self._ledger.store.put(f"{self._name}~beat", str(self._count).encode())
        return True

    def release(self) -> None:
        """Give it back, unless it has ended."""
        if not self._ledger.told(self._point):
            with contextlib.suppress(DeliveryError):
                self._ledger.store.put(f"{self._name}~free", b"")

    @property
    def _name(self) -> str:
        return self._ledger.claim_name(self._point, self.number)


class StoreLedger(Ledger):
    """The folder of a sweep on this machine, and what its workers share in a store.

    Args:
        where: the store's address. ids: of the points.
        say: called with one line for what goes wrong.
    """

    def __init__(self, root: Path, name: str, where: str, ids: Sequence[str], say: Callable[[str], object]) -> None:
        super().__init__(root, name)
        self.store = Store(where)
        self._say = say
        self._ids = frozenset(ids)
        self._below = f"{SWEEPS}/{self.folder.name}"
        here, pid = machines.machine(), os.getpid()
        self._me = Holder(
            token=secrets.token_hex(8), host=here.host, boot_id=here.boot_id, pid_namespace=here.pid_namespace, pid=pid,
            pid_start=processes.process_start(pid), time=time.time(),
        )  # fmt: skip
        self._looked = -1e9
        self._newest: dict[str, _Claim] = {}
        self._seen: dict[tuple[str, str], float] = {}
        self._holders: dict[tuple[str, int], Holder | None] = {}
        self._ended: dict[str, str] = {}

    def claim_name(self, point: str, number: int) -> str:
        """The object of a claim."""
        return f"{self._below}/claims/{point}/{number:04d}"

    def begin(self, *, shared: bool = False, share: str = "owner") -> None:
        """See :class:`Ledger`.

        Raises:
            UsageError: the store can't be asked.
        """
        super().begin(shared=shared, share=share)
        try:
            self._look()
        except DeliveryError as error:
            raise UsageError(f"the sweep's claims need the store: {error}") from None

    def claim(self, point_id: str) -> Any:
        """See :class:`Ledger`."""
        try:
            if monotonic() - self._looked >= LOOK_S:
                self._look()
            newest = self._newest.get(point_id, _Claim())
            if point_id in self._ended:
                return None
            if newest.number and not newest.free and not self._is_over(point_id, newest):
                return None
            number = newest.number + 1
            if not self.store.create(self.claim_name(point_id, number), msgspec.json.encode(self._me)):
                self._newest[point_id] = _Claim(number)
                return None
        except DeliveryError:  # whether it was written is seen when it is listed
            self._looked = -1e9
            return None
        self._newest[point_id] = _Claim(number, "mine")
        return StoreLease(self, point_id, number)

    def _look(self) -> None:
        newest: dict[str, _Claim] = {}
        for found in self.store.objects(self._below):
            kind, _, rest = found.name.removeprefix(f"{self._below}/").partition("/")
            point, _, last = rest.partition("/")
            if kind == "ended":
                point, _, how = rest.rpartition(".")
                if how in _ENDS and point in self._ids:
                    self._ended[point] = how
            elif kind == "claims" and point in self._ids:
                number, _, what = last.partition("~")
                known = newest.get(point, _Claim())
                if number.isdigit() and len(number) < 9 and int(number) >= known.number:
                    if int(number) > known.number:
                        known = _Claim(int(number))
                    sign = known.sign + found.version
                    newest[point] = _Claim(known.number, sign, known.free or what == "free")
        self._newest, self._looked = newest, monotonic()

    def _is_over(self, point: str, claim: _Claim) -> bool:
        """Whether who has a claim is gone: dead on this machine, or silent for too long."""
        now = monotonic()
        silent_s = now - self._seen.setdefault((point, f"{claim.number} {claim.sign}"), now)
        if silent_s < ASK_S:
            return False
        key = (point, claim.number)
        if key not in self._holders:
            self._holders[key] = None
            with contextlib.suppress(NotFound, *UNDECODABLE):
                content = self.store.get(self.claim_name(*key), MOST_BYTES)
                self._holders[key] = msgspec.json.decode(content, type=Holder)
        holder = self._holders[key]
        return silent_s > STALE_S or (holder is not None and (holder.dead() or holder.token == self._me.token))

    def told(self, point_id: str) -> str:
        """See :class:`Ledger`."""
        return self._ended.get(point_id, "")

    def tell(self, point_id: str, ended: str) -> None:
        """See :class:`Ledger`."""
        if ended not in _ENDS:
            return
        for attempt in range(TRIES):
            try:
                self.store.put(f"{self._below}/ended/{point_id}.{ended}", b"")
            except DeliveryError as error:
                if attempt + 1 == TRIES:
                    self._say(f"{point_id} has {ended}, which the store doesn't know: {error}")
                time.sleep(1.0)
            else:
                self._ended[point_id] = ended
                return

    def outcome(self, run_id: str) -> PointOutcome:
        """See :class:`Ledger`."""
        outcome = super().outcome(run_id)
        if not outcome.ended and not outcome.lives() and run_id in self._ended:
            outcome.ended = self._ended[run_id]
        return outcome

    def command(self) -> list[str]:
        """See :class:`Ledger`."""
        with contextlib.suppress(DeliveryError, NotFound, *UNDECODABLE):
            return msgspec.json.decode(self.store.get(f"{self._below}/command.json", MOST_BYTES), type=list[str])
        return super().command()

    def note_command(self, words: Sequence[str]) -> None:
        """See :class:`Ledger`."""
        super().note_command(words)
        with contextlib.suppress(DeliveryError):
            self.store.put(f"{self._below}/command.json", msgspec.json.encode(list(words)))

    def read_trial(self, point_id: str) -> bytes:
        """See :class:`Ledger`."""
        try:
            return self.store.get(f"{self._below}/trials/{point_id}.json", MOST_BYTES)
        except (DeliveryError, NotFound) as error:
            raise OSError(str(error)) from None

    def write_trial(self, point_id: str, content: bytes) -> None:
        """See :class:`Ledger`."""
        try:
            self.store.put(f"{self._below}/trials/{point_id}.json", content)
        except DeliveryError as error:
            raise OSError(str(error)) from None
