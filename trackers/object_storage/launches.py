"""A launch's prefix in a store, where its nodes leave what the main node fetches (:mod:`trackers.ranks.nodes`)."""

from __future__ import annotations

import msgspec

from trackers.errors import UNDECODABLE, NotFound
from trackers.object_storage.store import Store
from trackers.support import confined

MAIN = "nodes/main.json"
"""The main node's last message."""
NEWS_BYTES = 64 * 1024
"""Maximum length of a node's last message, in bytes."""
AT_ONCE = 1000


class _Over(msgspec.Struct):
    over: bool = False


def home(launch: str) -> str:
    """The prefix of a launch below the store's address."""
    return f"{confined.LAUNCHES}/{launch}"


def forget(store: Store, launch: str, *, superseded: bool = False) -> None:
    """Remove a launch's objects, if the main node has reported that it has all; that report itself stays.

    Args:
        superseded: the run has gone on with another launch: the report is removed, too.

    Raises:
        Unavailable, Refused: it is there still, or a part of it.
    """
    if not confined.is_plain_name(launch):
        return
    kept_name = "" if superseded else f"{home(launch)}/{MAIN}"
    try:
        news = msgspec.json.decode(store.get(f"{home(launch)}/{MAIN}", NEWS_BYTES), type=_Over)
    except (NotFound, *UNDECODABLE):
        news = _Over()
    if not (news.over or superseded):
        return
    names = [entry.name for entry in store.objects(home(launch)) if entry.name != kept_name]
    for first in range(0, len(names), AT_ONCE):
        store.delete(names[first : first + AT_ONCE])
