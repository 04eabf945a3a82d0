"""Our own journals, as a lake takes them: a run whole, or what came since a collector last looked.

A record's row is its place among those of its own stream, and above :data:`STREAM_BITS` the stream's: what comes to one
stream moves no row of another. The records of an edited run stand in the order of time.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from trackers.journal.attempts import AttemptHistory
from trackers.journal.run_directory import RunDirectory, StreamName
from trackers.journal.status import observe
from trackers.readers.columns import FLOAT, Block, ColumnBlocks, merge_blocks, within
from trackers.readers.journal import blocks, note_damage, preceding_bytes, read_stream
from trackers.readers.reader import SourceRun
from trackers.records import EDITS, Config, Define, Environment, Finish, Info, Record, Start, Summary

STREAM_BITS = 40
HEADS = (Config, Define, Environment, Info, Start, Summary)
"""Kinds of records that a run's settings and results follow from."""
Kinds = dict[tuple[str, ...], tuple[int, ...]]


class StreamEnd(NamedTuple):
    """How far a stream was read. mark: the bytes before. numbers, others: its records of metrics, and all others."""

    offset: int
    mark: str
    numbers: int
    others: int


class End(NamedTuple):
    """How far a run was read. kinds: of its numbers, by the names of a record. heads: records of :data:`HEADS`."""

    streams: dict[StreamName, StreamEnd]
    kinds: Kinds
    heads: Sequence[Record]


class Content(NamedTuple):
    """What was read. rows: of the other records. end: None where a later look would have to read the run whole."""

    blocks: Sequence[Block]
    others: Sequence[Record]
    rows: Sequence[int]
    end: End | None = None


def read_whole(run: SourceRun) -> Content:
    """All of a run but what was printed."""
    directory = RunDirectory(run.directory)
    history = AttemptHistory(directory)
    names = directory.stream_names()
    found: list[Block] = []
    others: list[tuple[int, Record]] = []
    ends: dict[StreamName, StreamEnd] = {}
    damaged = 0
    for number, name in enumerate(names):
        if name.writer == "console":
            continue
        path = directory.stream(name)
        stream = read_stream(path, keep=False)
        damaged += stream.damaged
        found += _placed((within(block, *history.bounds(name)) for block in stream.blocks), number)
        valid = set(map(id, history.valid(name, stream.others)))
        others += [(row, one) for row, one in _numbered(stream.others, number) if id(one) in valid]
        mark = preceding_bytes(path, stream.offset)
        ends[name] = StreamEnd(stream.offset, mark, stream.records, len(stream.others))
    note_damage(run, damaged)
    if edited := any(name.writer == EDITS for name in names):
        others = list(enumerate(record for _, record in sorted(others, key=lambda other: other[1].time)))
    merged = merge_blocks(found)
    end = End(ends, {block.names: block.kinds for block in merged}, _heads(record for _, record in others))
    finish = _finish(directory)
    if finish is not None:
        others.append((len(names) << STREAM_BITS, finish))
    goes_on = finish is None and not edited and not damaged and all(end.offset for end in ends.values())
    return Content(merged, [one for _, one in others], [row for row, _ in others], end if goes_on else None)


def read_new(run: SourceRun, before: End) -> Content | None:
    """What came to a run that goes on; None where it has to be read whole, as more has changed."""
    directory = RunDirectory(run.directory)
    names = directory.stream_names()
    if {name for name in names if name.writer != "console"} != before.streams.keys():
        return None
    newest = max((name.attempt for name in names), default=0)
    found: list[Block] = []
    others: list[tuple[int, Record]] = []
    ends = dict(before.streams)
    damaged: list[int] = []
    for number, name in enumerate(names):
        known = before.streams.get(name)
        if known is None:
            continue
        path = directory.stream(name)
        if preceding_bytes(path, known.offset) != known.mark:
            return None
        offset, columns = known.offset, ColumnBlocks(known.numbers)
        new: list[Record] = []
        for batch, offset in blocks(path, known.offset, damaged.append):  # noqa: B007 - the last one is kept
            new += columns.add(batch)
            columns.flush()
        if offset == known.offset and not damaged:
            continue
        if damaged or name.attempt != newest:
            return None
        found += _placed(columns.blocks(), number)
        others += _numbered(new, number, known.others)
        mark = preceding_bytes(path, offset)
        ends[name] = StreamEnd(offset, mark, columns.count, known.others + len(new))
    kinds = dict(before.kinds)
    merged = []
    for block in merge_blocks(found):
        kind = kinds.setdefault(block.names, block.kinds)
        if kind != tuple(a if a == b else FLOAT for a, b in zip(kind, block.kinds, strict=True)):
            return None
        merged.append(block._replace(kinds=kind))
    end = End(ends, kinds, [*before.heads, *_heads(record for _, record in others)])
    return Content(merged, [one for _, one in others], [row for row, _ in others], end)


def _placed(parts: Iterable[Block], number: int) -> list[Block]:
    return [block._replace(rows=block.rows + (number << STREAM_BITS)) for block in parts if len(block.rows)]


def _numbered(records: Iterable[Record], number: int, first: int = 0) -> list[tuple[int, Record]]:
    """Records with their rows, but for the end, which follows from the run's state."""
    base = (number << STREAM_BITS) + first
    return [(base + at, record) for at, record in enumerate(records) if type(record) is not Finish]


def _heads(records: Iterable[Record]) -> list[Record]:
    return [record for record in records if isinstance(record, HEADS)]


def _finish(directory: RunDirectory) -> Finish | None:
    status = observe(directory)
    if status.name == "running":
        return None
    return Finish(time=status.time or time.time(), status=status.name, exit_code=status.exit_code, reason=status.reason)
