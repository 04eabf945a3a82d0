"""Records of several streams in the order of their times."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trackers.records import Record


def merged(streams: Iterable[Iterator[list[Record]]]) -> Iterator[Record]:
    """Streams as one, by time; the order inside each stays."""
    heads: list[tuple[list[Record], int, Iterator[list[Record]]]] = []
    for stream in streams:
        _advance(heads, stream)
    while len(heads) > 1:
        heads.sort(key=lambda head: head[0][head[1]].time)
        (first, at, stream), until = heads[0], heads[1][0][heads[1][1]].time
        start, at = at, at + 1  # the first one in any case: a time that is no number is later than none
        while at < len(first) and first[at].time <= until:
            at += 1
        yield from first[start:at]
        heads.pop(0)
        if at < len(first):
            heads.append((first, at, stream))
        else:
            _advance(heads, stream)
    for found, at, stream in heads:
        yield from found[at:]
        for more in stream:
            yield from more


def _advance(heads: list[tuple[list[Record], int, Iterator[list[Record]]]], stream: Iterator[list[Record]]) -> None:
    found = next((found for found in stream if found), None)
    if found is not None:
        heads.append((found, 0, stream))
