"""A launch's place in a store, where its nodes leave what the main node fetches (:mod:`trackers.ranks.nodes`)."""

from __future__ import annotations

import msgspec

from trackers.errors import UNDECODABLE, NotFound
from trackers.object_storage.store import Store
from trackers.support import confined

MAIN = "nodes/main.json"
"""The main node's last word."""
NEWS_BYTES = 64 * 1024
"""No node's last word is longer."""
AT_ONCE = 1000


class _Over(msgspec.Struct):
    over: bool = False


def home(launch: str) -> str:
    """The place of a launch below the store's address."""
    return f"{confined.LAUNCHES}/{launch}"


def forget(store: Store, launch: str, *, superseded: bool = False) -> None:
    """Remove what nodes left there, if the main node has said that it has all; that it has said so stays.

    Args:
        superseded: the run has gone on with another launch: all of it goes.

    Raises:
        Unavailable, Refused: it is there still, or a part of it.
    """
    if not confined.plain(launch):
        return
    kept = "" if superseded else f"{home(launch)}/{MAIN}"
    try:
        news = msgspec.json.decode(store.get(f"{home(launch)}/{MAIN}", NEWS_BYTES), type=_Over)
    except (NotFound, *UNDECODABLE):
        news = _Over()
    if not (news.over or superseded):
        return
    names = [one.name for one in store.objects(home(launch)) if one.name != kept]
    for first in range(0, len(names), AT_ONCE):
        store.delete(names[first : first + AT_ONCE])
