"""Reads a run of ours repeatedly: each time only what was added to its streams."""

from __future__ import annotations

import contextlib
from pathlib import Path

from trackers.journal.attempts import AttemptHistory
from trackers.journal.run_directory import RunDirectory, StreamName
from trackers.readers.boundary import boundary
from trackers.readers.columns import Block, ColumnBlocks, within
from trackers.readers.journal import blocks, preceding_bytes, read_stream
from trackers.records import EDITS, Finish, Record
from trackers.support.seekable_zstd import size_of

Bounds = tuple[float | None, int | None]
"""Time and step up to which a stream's records count; None: all do."""


class FollowedRun:
    """Records of a run as far as they were read.

    Attributes:
        chunks: the metrics that count, in the order in which they were read; later ones are appended.
        others: all other records that count, but for the ends of attempts and what was printed.
        generation: grows when ``chunks`` isn't what it was plus something new: after a rewind, or a file replaced.
    """

    def __init__(self, directory: RunDirectory) -> None:
        self._directory = directory
        self._streams: dict[StreamName, _Stream] = {}
        self._bounds: dict[StreamName, Bounds] = {}
        self.chunks: list[Block] = []
        self.others: list[Record] = []
        self.generation = 0

    def read(self) -> bool:
        """Read on. True if there was something, or what was read no longer counts.

        Raises:
            Damaged, NotFound: what is there can't be read.
        """
        with boundary(str(self._directory.path)):
            return self._read()

    def _read(self) -> bool:
        names = [name for name in self._directory.stream_names() if name.writer != "console"]
        if names != list(self._streams):
            self._find_streams(names)
        fresh: list[tuple[StreamName, list[Block], list[Record]]] = []
        replaced = False
        for name, stream in self._streams.items():
            try:
                if stream.replaced():
                    self._streams[name] = stream = _Stream(stream.path)
                    replaced = True
                new_blocks, others = stream.read()
            except FileNotFoundError:
                continue
            if new_blocks or others:
                fresh.append((name, new_blocks, others))
        if replaced:
            self._gather()
        else:
            for name, new_blocks, others in fresh:
                self._add_counting(name, new_blocks, others)
        if fresh and any(name.writer == EDITS for name in names):
            self.others.sort(key=lambda record: record.time)
        return replaced or bool(fresh)

    def _find_streams(self, names: list[StreamName]) -> None:
        """Find the streams, and up to where the records of each count."""
        history = AttemptHistory(self._directory)
        bounds = {name: history.bounds(name) for name in names}
        known = {name: stream for name, stream in self._streams.items() if name in bounds}
        changed = len(known) < len(self._streams) or any(bounds[name] != self._bounds[name] for name in known)
        self._streams = {name: known.get(name) or _Stream(self._directory.stream(name)) for name in names}
        self._bounds = bounds
        if changed:
            self._gather()

    def _gather(self) -> None:
        self.generation += 1
        self.chunks, self.others = [], []
        for name, stream in self._streams.items():
            self._add_counting(name, stream.chunks, stream.others)

    def _add_counting(self, name: StreamName, new_blocks: list[Block], others: list[Record]) -> None:
        until, limit = self._bounds[name]
        counting = (within(block, until, limit) for block in new_blocks)
        self.chunks += [block for block in counting if len(block.rows)]
        self.others += [
            record
            for record in others
            if type(record) is not Finish
            and (until is None or record.time <= until)
            and (limit is None or (record.step or 0) <= limit)
        ]


class _Stream:
    """One stream, as far as it was read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.chunks: list[Block] = []
        self.others: list[Record] = []
        self._offset = -1
        self._size = -1
        self._count = 0
        self._preceding = ""

    def replaced(self) -> bool:
        """Whether the file was truncated or replaced since it was read."""
        if self._offset <= 0:
            return False
        size = size_of(self.path)
        if size == self._size:
            return False
        with contextlib.suppress(OSError, ValueError):
            return size < self._offset or preceding_bytes(self.path, self._offset) != self._preceding
        return True

    def read(self) -> tuple[list[Block], list[Record]]:
        size = size_of(self.path)
        if size == self._size:
            return [], []
        if self._offset < 0:
            content = read_stream(self.path)
            new_blocks, others, self._count, self._offset, _ = content
        else:
            columns, others, new_blocks = ColumnBlocks(self._count), [], []
            for records, offset in blocks(self.path, self._offset):
                self._offset = offset
                others.extend(columns.add(records))
                columns.flush()
            new_blocks, self._count = columns.blocks(), columns.count
        self._size = size
        self._preceding = preceding_bytes(self.path, self._offset)
        self.chunks += new_blocks
        self.others += others
        return new_blocks, others
