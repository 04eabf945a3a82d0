"""Taking a run out of a store, so that a machine that has it, and was away meanwhile, doesn't send it again.

In the place of each claim of an attempt, and of the next attempt's, a note stays: who removed the run, and digests of
its attempts' first lines. A sender whose attempts are among them stops; a new run of that id takes the note away.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

import msgspec

from trackers.errors import UNDECODABLE, Fatal, NotFound, Refused, Unavailable
from trackers.object_storage import launches, layout
from trackers.object_storage.store import Store
from trackers.support import confined, machines
from trackers.support.failpoints import failpoint

REMOVED = "removed"
MOST_BYTES = 1024 * 1024
AT_ONCE = 1000
_DIGEST = re.compile("[0-9a-f]{4,64}")
_CLAIM = re.compile(rf"{layout.CLAIMS}/(\d{{6,10}})")


class Claim(NamedTuple):
    """What an object of :func:`trackers.object_storage.layout.claim` says.

    attempts: digests of the attempts that it is of: one, or where the run was removed all. host: whose, or who removed
    it. removed: whether it was.
    """

    attempts: frozenset[str]
    host: str
    removed: bool

    @classmethod
    def parse(cls, content: bytes) -> Claim:
        """What an object says.

        Raises:
            Unavailable: it is no claim: a proxy's page came in its place, or it was damaged on the way.
        """
        words = content.decode("utf-8", "replace").split()
        if words[:1] == [REMOVED]:
            return cls(frozenset(words[2:]), "".join(words[1:2])[:100], True)
        if not words or not _DIGEST.fullmatch(words[0]):
            raise Unavailable("what came for the claim of an attempt is none: it is asked again")
        return cls(frozenset(words[:1]), "".join(words[1:2])[:100], False)


def newest(store: Store, home: str) -> tuple[int, str]:
    """The newest attempt that a process has claimed, though it may have sent nothing, and its host; 0 for none.

    Raises:
        Unavailable, Refused: the store can't be asked.
    """
    names = [entry.name[len(home) + 1 :] for entry in store.objects(f"{home}/{layout.CLAIMS}")]
    active = [(number, claim.host) for number, claim in _claims(store, home, names).items() if not claim.removed]
    return max(active, default=(0, ""))


def _claims(store: Store, home: str, names: Iterable[str]) -> dict[int, Claim]:
    """The claims among a run's objects, by attempt."""
    claims = {}
    for name in names:
        if match := _CLAIM.fullmatch(name):
            with contextlib.suppress(NotFound):  # a note that was taken away meanwhile
                claims[int(match[1])] = Claim.parse(store.get(f"{home}/{name}", MOST_BYTES))
    return claims


class _Attempt(msgspec.Struct):
    launch: str | None = None


class _News(msgspec.Struct):
    id: str = ""


class _Identity(msgspec.Struct):
    attempts: list[_Attempt] = []


def remove(store: Store, home: str, here: Collection[int] | None = None) -> int:
    """Delete all of a run; how many bytes. Called again after a kill, it goes on.

    Args:
        home: the run's prefix, ``<project>/<run id>``.
        here: numbers of the attempts that are kept elsewhere: others are not to be lost. None: all may go.

    Raises:
        Refused: an attempt goes on elsewhere, or isn't among ``here``. Unavailable: some of it may be there still.
    """
    objects = {entry.name[len(home) + 1 :]: entry for entry in store.objects(home) if entry.name.startswith(f"{home}/")}
    claims = _claims(store, home, objects)
    sent = set(filter(None, (layout.newest_attempt([name.split("/")[1]]) for name in objects if name.count("/") > 0)))
    attempts = sent | {number for number, claim in claims.items() if not claim.removed}
    if here is not None:
        _need_none_lost(store, home, attempts, sent, here)
    if not claims and not objects:
        return 0
    digests = sorted({digest for claim in claims.values() for digest in claim.attempts})
    note = " ".join([REMOVED, machines.host(), *digests]).encode() + b"\n"
    last = max(attempts, default=0)
    if attempts and last + 1 not in claims:
        _claim_following(store, home, last + 1, note)
    failpoint("store.remove.noted")
    for number in sorted(attempts):
        store.put(f"{home}/{layout.claim(number)}", note)
    _forget_launches(store, home)
    going = sorted(name for name in objects if not _CLAIM.fullmatch(name))
    for first in range(0, len(going), AT_ONCE):
        store.delete([f"{home}/{name}" for name in going[first : first + AT_ONCE]])
        failpoint("store.remove.deleted")
    with contextlib.suppress(Refused):  # who may not has no catalogue
        store.put(layout.mark(home), note)
    return sum(objects[name].size for name in going)


def _need_none_lost(
    store: Store, home: str, attempts: Collection[int], sent: Collection[int], here: Collection[int]
) -> None:
    """Raise Refused where an attempt is in the store alone."""
    # One of which nothing was sent, and which a later one has followed, has nothing that counts.
    lost = {number for number in set(attempts) - set(here) if number in sent or number > max(here, default=0)}
    if lost:
        raise Refused(
            f"{store.where}/{home} has attempt {max(lost)}, which isn't here: remove it with --dir {store.where}"
        )


def _claim_following(store: Store, home: str, number: int, note: bytes) -> None:
    """Take the number that the next attempt would have. Raise Refused where one has it: the run goes on elsewhere."""
    following = f"{home}/{layout.claim(number)}"
    if not store.create(following, note):
        with contextlib.suppress(NotFound):  # an answer that was lost: it is this note that is there
            if not Claim.parse(store.get(following, MOST_BYTES)).removed:
                raise Refused(f"{store.where}/{home} goes on elsewhere, as attempt {number}: it stays")


def allow(store: Store, home: str) -> None:
    """Remove the notes: the run may be sent again.

    Raises:
        Unavailable, Refused: some may be there still.
    """
    names = [entry.name for entry in store.objects(f"{home}/{layout.CLAIMS}")]
    store.delete([name for name in names if Claim.parse(store.get(name, MOST_BYTES)).removed])


def may_pass(store: Store, name: str, claim: Claim, attempts: Callable[[], frozenset[str]], run_id: str) -> None:
    """Remove a note that another run of this id has left.

    Args:
        name: the note's. claim: what it says. attempts: digests of this run's.

    Raises:
        Fatal: it is this run that was removed.
    """
    if claim.attempts & attempts():
        raise Fatal(
            f"run {run_id} was removed from {store.where} on {claim.host}: it isn't sent any more; to remove it here, "
            f"too: trackers rm {run_id}"
        )
    store.delete([name])


def _forget_launches(store: Store, home: str) -> None:
    """Remove what other nodes than the main one sent for the run."""
    try:
        identity = msgspec.json.decode(store.get(f"{home}/run.json", MOST_BYTES * 16), type=_Identity)
    except (NotFound, *UNDECODABLE):
        return
    for attempt in identity.attempts:
        name = (attempt.launch or "").rpartition("/")[2]
        if confined.is_plain_name(name) and _is_for(store, name, home.rpartition("/")[2]):
            launches.forget(store, name, superseded=True)


def _is_for(store: Store, launch: str, run_id: str) -> bool:
    """Whether a launch's main node says that it is this run's: ``run.json`` may name any launch."""
    with contextlib.suppress(NotFound, *UNDECODABLE):
        content = store.get(f"{launches.home(launch)}/{launches.MAIN}", launches.NEWS_BYTES)
        return msgspec.json.decode(content, type=_News).id == run_id
    return False
