"""Selection of a run's valid records: a newer attempt supersedes earlier ones from its start on, and may rewind.

Several attempts write streams of their own. When a new one begins, what an earlier one still writes afterwards (the
old node of a requeued job that still lives) doesn't belong to the run; and a new attempt that began with
``from_step`` supersedes what was logged above that step.

``checkpoint_record`` finds the values of the checkpoint from which training continues.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trackers.journal.checksums import ChecksumReader
from trackers.journal.run_directory import RunDirectory, StreamName
from trackers.journal.stream import BLOCK_BYTES, StreamReader, is_endless, is_hole, last_record, tail
from trackers.metrics.checkpoint_keys import ITERATION
from trackers.metrics.mappings import Overtaken
from trackers.metrics.summary import SummaryFold, folded
from trackers.records import (
    EDITS,
    CorruptLine,
    Define,
    Info,
    Media,
    Metrics,
    Number,
    Record,
    Start,
    Summary,
    Text,
    decode,
)
from trackers.support import confined
from trackers.support.interruption import suppress
from trackers.support.seekable_zstd import open_file

_ITERATION_KEY = f'"{ITERATION}"'.encode()


def checkpoint_record(run: RunDirectory, step: int) -> dict[str, Number]:
    """The values that the newest checkpoint saved at this step was recorded by (``naming.checkpoint``); {} if none was.

    Only lines that name checkpoints are decoded: of a long journal, only the bytes are read.
    """
    for name in reversed(run.stream_names()):
        if name.writer != "rank":
            continue
        with suppress(OSError, ValueError):  # ValueError: it is empty
            path = run.stream(name)
            values = {} if is_hole(path) else _search_checkpoints(path, step)
            if values:
                return values
    return {}


def _search_checkpoints(path: Path, step: int) -> dict[str, Number]:
    import mmap

    with confined.open_file(path) as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        end = len(text)
        while (offset := text.rfind(_ITERATION_KEY, 0, end)) >= 0:
            end = text.rfind(b"\n", 0, offset) + 1
            values = _checkpoint_values(text[end : text.find(b"\n", offset)])
            if values.get(ITERATION) == step:
                return values
    return {}


def _checkpoint_values(line: bytes) -> dict[str, Number]:
    try:
        record = decode(line)
    except CorruptLine:
        return {}
    return record.values if isinstance(record, Metrics) else {}


_TAIL_BYTES = 1 << 20


class AttemptHistory:
    """The attempts of a run as they are now.

    Attributes:
        damaged: how many damaged lines ``records`` and ``results`` have left out.
        overtaken: names that have no value since another process logged, without a record of it, as ``fold`` found.
    """

    def __init__(self, run: RunDirectory) -> None:
        self._run = run
        self._names = run.stream_names()
        self._starts: dict[int, Start] = {}
        self.damaged = 0
        self.overtaken: list[str] = []
        for name in self._names:
            if name.writer == "rank" and name.attempt not in self._starts:
                first = StreamReader(run.stream(name)).read(1)
                if first and isinstance(first[0], Start):
                    self._starts[name.attempt] = first[0]

    def starts(self) -> list[Start]:
        """The first record of each attempt, in their order."""
        return [self._starts[number] for number in sorted(self._starts)]

    def until(self, attempt: int) -> float | None:
        """When the next attempt began, by this one's clock: what it wrote later doesn't count. None for the newest."""
        later = [number for number in self._starts if number > attempt]
        return self._starts[min(later)].cut if later else None

    def limit(self, attempt: int) -> int | None:
        """Steps of this attempt above it were superseded by a rewind. None: none were."""
        steps = [s.from_step for number, s in self._starts.items() if number > attempt and s.from_step is not None]
        return min(steps, default=None)

    def bounds(self, name: StreamName) -> tuple[float | None, int | None]:
        """:meth:`until` and :meth:`limit` of a stream; none for edits, which are of the whole run."""
        return (None, None) if name.writer == EDITS else (self.until(name.attempt), self.limit(name.attempt))

    def valid(self, name: StreamName, records: list[Record]) -> list[Record]:
        """A stream's records that no later attempt has superseded."""
        until, limit = self.bounds(name)
        if until is None and limit is None:
            return records
        return [
            record
            for record in records
            if (until is None or record.time <= until) and (limit is None or (record.step or 0) <= limit)
        ]

    def in_order(self, others: list[Record]) -> list[Record]:
        """Records that came stream by stream; those of an edited run by time, so that the latest change counts."""
        edited = any(name.writer == EDITS for name in self._names)
        return sorted(others, key=lambda record: record.time) if edited else others

    def records(self) -> Iterator[Record]:
        """Every record that counts but what was printed, stream by stream, the earlier attempts first."""
        for name in self._names:
            if name.writer != "console":
                yield from self.of(name)

    def of(self, name: StreamName) -> Iterator[Record]:
        """Every record of a stream that counts."""
        reader = StreamReader(self._run.stream(name))
        while batch := reader.read(5000):
            yield from self.valid(name, batch)
        self.damaged += reader.corrupt

    def results(self) -> tuple[dict[str, Any], list[str]]:
        """The results that follow from the records (:meth:`trackers.metrics.summary.SummaryFold.results`), and those
        that were recorded and are none any more."""
        if not self._asks_for_results():
            return {}, []
        recorded: dict[str, Any] = {}
        fold = self.fold(recorded)
        return fold.results(), fold.replaced(recorded)

    def fold(self, recorded: dict[str, Any]) -> SummaryFold:
        """:func:`trackers.metrics.summary.folded` of all streams in order of time."""
        streams = [self.of(name) for name in self._names if name.writer != "console"]
        overtaken = Overtaken() if self._run.shared.exists() else None  # a process that logs alone knows what it set
        fold = folded(heapq.merge(*streams, key=lambda record: record.time), recorded, overtaken)
        self.overtaken = sorted(overtaken.names) if overtaken is not None else []
        return fold

    def _asks_for_results(self) -> bool:
        """Whether a definition or a result that was set is among the records; only bytes are read for it."""
        kinds = (b'{"kind":"define"', b'{"kind":"summary"', b'"result":true')
        return any(next(self._lines(kind), None) is not None for kind in kinds)

    def summaries(self) -> list[Summary]:
        """Every record of results that counts, in order of time. Only lines that are such records are decoded."""
        return [record for record in self._only(b'{"kind":"summary"') if isinstance(record, Summary)]

    def defines(self) -> list[Define]:
        """Every definition of a metric that counts, as :meth:`summaries`."""
        return [record for record in self._only(b'{"kind":"define"') if isinstance(record, Define)]

    def results_set(self) -> list[Summary | Media]:
        """:meth:`summaries`, and every medium that counts and was set as a result, in order of time."""
        media = self._only(b'{"kind":"media"', b'"result":true')
        found = self.summaries() + [record for record in media if isinstance(record, Media) and record.result]
        return sorted(found, key=lambda record: record.time)

    def _only(self, start: bytes, within: bytes = b"") -> list[Record]:
        return sorted(self._found(start, within), key=lambda record: record.time)

    def changes(self) -> list[Info]:
        """Every change of the run's own attributes that counts, stream by stream.

        Only lines that are such changes are decoded: of a long journal, only the bytes are read.
        """
        found = self._found(b'{"kind":"info"', writers=("rank", "node", EDITS))
        return [record for record in found if isinstance(record, Info)]

    def _found(self, start: bytes, within: bytes = b"", writers: tuple[str, ...] = ()) -> Iterator[Record]:
        for name, line in self._lines(start, writers):
            if within in line and (record := _decoded(line)):
                yield from self.valid(name, [record])

    def _lines(self, needle: bytes, writers: tuple[str, ...] = ()) -> Iterator[tuple[StreamName, bytes]]:
        """The lines that contain ``needle``, of these writers; default: of all but what was printed."""
        for name in self._names:
            if name.writer in writers if writers else name.writer != "console":
                with suppress(OSError):
                    yield from ((name, line) for line in _lines_with(self._run.stream(name), needle))

    def paths(self) -> list[Path]:
        """The ranks' streams, the earlier attempts first."""
        return [self._run.stream(name) for name in self._names if name.writer == "rank"]

    def last_step(self) -> int | None:
        """The step of the last metrics, text or media that count, or the step that the newest attempt went back to."""
        ranks = sorted((name for name in self._names if name.writer == "rank"), key=lambda n: n.attempt, reverse=True)
        for name in ranks:
            ends = [self._last_of(name)]
            reduced = StreamName("reducer", 0, name.attempt)
            if reduced in self._names:
                ends.append(self._last_of(reduced))
            last = max((step for step in ends if step is not None), default=None)
            start = self._starts.get(name.attempt)
            if last is None and start is not None:
                last = start.from_step
            if last is not None:
                return last
        return None

    def _last_of(self, name: StreamName) -> int | None:
        path = self._run.stream(name)
        last = _last_step(self.valid(name, tail(path, _TAIL_BYTES)))
        if last is None and path.stat().st_size > _TAIL_BYTES:
            reader = StreamReader(path)
            while records := reader.read(5000):
                later = _last_step(self.valid(name, records))
                last = later if later is not None else last
        return last

    def axes_at(self, step: int) -> tuple[int | None, dict[str, int], float | None]:
        """The highest axis of the records that count up to a step (``trackers.records.on_axis``), None without one; the
        last one of each metric that has another: below its first of one that has values above the step alone; and the
        time of the last one up to the step, or just before the first one above it, if that is later."""
        until, after = -math.inf, math.inf
        lasts: dict[str, int] = {}
        firsts: dict[str, int] = {}
        for record in self._found(b'"axis":', writers=("rank",)):
            if isinstance(record, (Metrics, Text, Media)) and (axis := record.axis) is not None:
                counts = (record.step or 0) <= step
                until, after = (
                    max(until, record.time if counts else until),
                    min(after, after if counts else record.time),
                )
                for name in [record.name] if isinstance(record, Media) else record.values:
                    if counts:
                        lasts[name] = max(lasts.get(name, axis), axis)
                    else:
                        firsts[name] = min(firsts.get(name, axis), axis)
        highest = max(lasts.values(), default=None)
        each = {name: axis - 1 for name, axis in firsts.items()} | lasts
        since = max(until, after - 0.001) if firsts else None
        return highest, {name: axis for name, axis in each.items() if axis != highest}, since

    def last_time(self, attempt: int | None = None) -> float:
        """The time of the latest record at the end of any stream but the edits; 0.0 before the first.

        Args:
            attempt: only of this one's streams.
        """
        names = [name for name in self._names if name.writer != EDITS and attempt in (None, name.attempt)]
        ends = [last_record(self._run.stream(name)) for name in names]
        return max((record.time for record in ends if record is not None), default=0.0)


def _lines_with(path: Path, needle: bytes) -> Iterator[bytes]:
    """The complete lines of a stream that contain ``needle``; blocks without it are skipped whole."""
    checksums = ChecksumReader(path)
    with open_file(path) as file:
        rest, offset = b"", 0
        while block := file.read(max(BLOCK_BYTES, len(rest))):
            block = rest + block
            end = block.rfind(b"\n") + 1
            rest = block[end:]
            if is_endless(rest):
                return
            if block.find(needle, 0, end) >= 0:
                whole, _ = checksums.patched(offset, block[:end])
                yield from (line for line in whole.split(b"\n") if needle in line)
            offset += end


def _decoded(line: bytes) -> Record | None:
    try:
        return decode(line)
    except CorruptLine:
        return None


def _last_step(records: list[Record]) -> int | None:  # a medium that is a result names one, and is of none
    for record in reversed(records):
        is_row = isinstance(record, (Metrics, Text)) or (isinstance(record, Media) and not record.result)
        if is_row and record.step is not None:
            return record.step
    return None


def results_of_killed(run: RunDirectory, moment: float) -> list[Summary]:
    """The record of the results that training would have written as it ended; [] if there are none.

    Never raises: how a run ended is written in any case.
    """
    with suppress(OSError, ValueError):
        history = AttemptHistory(run)
        results, removed = history.results()
        gone = [Summary(time=moment, values={}, removed=history.overtaken)] if history.overtaken else []
        if results or removed:
            return [*gone, Summary(time=moment, values=results, derived=True, removed=removed)]
        return gone
    return []
