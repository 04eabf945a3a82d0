"""Runs of ours, by any reference of :mod:`trackers.journal.naming`.

A run that is still being written reads as far as whole lines go. What a newer attempt superseded is left out; the
streams of ranks and nodes come merged by time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from trackers import records
from trackers.journal.attempts import AttemptHistory
from trackers.journal.checksums import ChecksumReader
from trackers.journal.integrity import damage_note
from trackers.journal.naming import runs_named
from trackers.journal.run_directory import RunDirectory, StreamName
from trackers.journal.status import observe
from trackers.journal.stream import BLOCK_BYTES, HOLE_BYTES, PRECEDING_BYTES, StreamReader, is_endless
from trackers.object_storage import addresses
from trackers.readers import helpers
from trackers.readers.boundary import add_note, bounded
from trackers.readers.cache import Cache
from trackers.readers.columns import Block, ColumnBlocks, merge_blocks, within
from trackers.readers.helpers import merged
from trackers.readers.reader import Reader, SourceRun
from trackers.records import Finish, Record
from trackers.support.seekable_zstd import open_file, size_of

CACHED_BYTES = 64 * 1024
"""Minimum size of new lines that are cached as columns; reading fewer costs less than a cache file."""


@bounded
class JournalReader(Reader):
    """Reads our journals.

    Args:
        root: where runs lie; default what ``TRACKER_DIR`` says.
    """

    scheme = "run"

    def __init__(self, root: Path | None = None) -> None:
        self._root = root

    def runs(self, where: str) -> list[SourceRun]:
        """See :class:`trackers.readers.reader.Reader`."""
        runs = helpers.those_of(self.find(where), source_run)
        return sorted(runs, key=lambda run: run.created, reverse=True)

    def read(self, run: SourceRun, *, files: Path | None = None) -> Iterator[Record]:
        """See :class:`trackers.readers.reader.Reader`. Media and artifacts lie in the run's directory."""
        directory = RunDirectory(run.directory)
        directory.read_info()
        history = AttemptHistory(directory)
        damaged: list[int] = []
        streams = [
            _counting(history, name, directory.stream(name), damaged.append) for name in directory.stream_names()
        ]
        for record in merged(streams):
            if type(record) is not Finish:
                yield record
        note_damage(run, sum(damaged))
        finish = _finish(directory)
        if finish is not None:
            yield finish

    def columns(self, run: SourceRun, *, keep: bool = True) -> tuple[list[Block], list[Record]]:
        """The run's metrics as blocks, and all other records but what was printed; only what came since is read.

        Without ``keep`` nothing is written to the cache, for who keeps what it makes of the columns.
        """
        directory = RunDirectory(run.directory)
        history = AttemptHistory(directory)
        valid_blocks: list[Block] = []
        others: list[Record] = []
        base = damaged = 0
        for name in directory.stream_names():
            if name.writer == "console":
                continue
            stream = read_stream(directory.stream(name), keep)
            for block in (within(block, *history.bounds(name)) for block in stream.blocks):
                if len(block.rows):
                    valid_blocks.append(block._replace(rows=block.rows + base) if base else block)
            others.extend(record for record in history.valid(name, stream.others) if type(record) is not Finish)
            base += stream.records
            damaged += stream.damaged
        note_damage(run, damaged)
        return merge_blocks(valid_blocks), [*history.in_order(others), *filter(None, [_finish(directory)])]

    def find(self, where: str) -> list[RunDirectory]:
        """The directories of the runs that ``where`` names, unread; errors as :meth:`runs`."""
        return runs_named(where, self.root())

    def root(self) -> Path:
        """Where runs lie."""
        if self._root is None:
            from trackers import configuration

            options = configuration.resolve()
            where = str(options["TRACKER_DIR"])
            self._root = in_store(where, str(options["TRACKER_STORE_DIR"] or "")) or Path(where).expanduser()
        return self._root


def in_store(where: str, base: str = "") -> Path | None:
    """The copy of a store's runs on this machine; None where ``where`` is no store's address."""
    store = addresses.store_of(where)
    if not store:
        return None
    from trackers.object_storage import mirror

    return mirror.update_copy(store, base)


def note_damage(run: SourceRun, lines: int) -> None:
    """Say in a run's note how many damaged lines of its journal are left out."""
    if lines:
        add_note(run, damage_note(lines, run.directory or run.source))


def blocks(
    path: Path, offset: int = 0, damaged: Callable[[int], object] = lambda lines: None
) -> Iterator[tuple[list[Record], int]]:
    """The records of a stream, a few thousand at a time, and where the next line begins; as far as it has got.

    Args:
        damaged: told how many damaged lines were left out, whenever some were.
    """
    checksums = ChecksumReader(path)
    with open_file(path) as file:
        size = BLOCK_BYTES
        while True:
            file.seek(offset)
            block = file.read(size)
            end = block.rfind(b"\n") + 1
            if not end:
                if len(block) < size or is_endless(block):
                    return
                size *= 2  # one line longer than a block
                continue
            try:
                if checksums.damaged(offset, offset + end):
                    raise records.CorruptLine("a line isn't as it was written")
                batch = records.decode_block(block[:end])
                offset += end
            except records.CorruptLine:
                reader = StreamReader(path, offset)
                batch = reader.read(limit=end, end=offset + end)
                if reader.offset == offset:
                    return  # bytes that are still on their way
                offset = reader.offset
                if reader.corrupt:
                    damaged(reader.corrupt)
            yield batch, offset


def _counting(
    history: AttemptHistory, name: StreamName, path: Path, damaged: Callable[[int], object]
) -> Iterator[list[Record]]:
    end = 0
    for batch, offset in blocks(path, damaged=damaged):
        yield history.valid(name, batch)
        end = offset
    damaged(size_of(path) - end >= HOLE_BYTES)


class StreamContent(NamedTuple):
    """blocks: a stream's metrics. others: its other records. records: metrics records. offset: bytes read.

    damaged: lines that were left out.
    """

    blocks: list[Block]
    others: list[Record]
    records: int
    offset: int
    damaged: int


def read_stream(path: Path, keep: bool = True) -> StreamContent:
    """All of a stream, from the cache as far as that goes.

    Args:
        keep: write what is new to the cache.
    """
    cache = Cache(f"stream {path.resolve()}")
    cached = cache.load()
    if cached is not None and not _is_unchanged(path, cached.state):
        cached = None
    offset = start = int(cached.state["offset"]) if cached is not None else 0
    columns = ColumnBlocks(cached.count if cached is not None else 0)
    others: list[Record] = []
    damage = [int(cached.state["damaged"])] if cached is not None else []
    for batch, end in blocks(path, start, damage.append):
        offset = end
        others.extend(columns.add(batch))
        columns.flush()
    fresh, hole = columns.blocks(), size_of(path) - offset >= HOLE_BYTES  # not in the cache: it is found each time
    if keep and offset - start >= CACHED_BYTES:
        write = cache.append if cached is not None else cache.replace
        state = {"offset": offset, "mark": preceding_bytes(path, offset), "damaged": sum(damage)}
        write(state, columns.count, fresh, others)
    if cached is None:
        return StreamContent(fresh, others, columns.count, offset, sum(damage) + hole)
    joined = merge_blocks([*cached.blocks, *fresh])
    return StreamContent(joined, [*cached.others, *others], columns.count, offset, sum(damage) + hole)


def _is_unchanged(path: Path, state: dict[str, Any]) -> bool:
    """Whether the stream still begins with what was read: it was neither truncated nor replaced."""
    try:
        return "damaged" in state and bool(preceding_bytes(path, int(state["offset"])) == state["mark"])
    except (OSError, KeyError, ValueError):
        return False


def preceding_bytes(path: Path, offset: int) -> str:
    """The bytes before an offset, as hex. They tell whether a file was replaced, since they hold a time."""
    with open_file(path) as file:
        file.seek(max(0, offset - PRECEDING_BYTES))
        return file.read(min(offset, PRECEDING_BYTES)).hex()


def _finish(run: RunDirectory) -> Finish | None:
    status = observe(run)
    if status.name == "running":
        return None
    return Finish(time=status.time or time.time(), status=status.name, exit_code=status.exit_code, reason=status.reason)


def source_run(run: RunDirectory) -> SourceRun:
    """A run's directory as a source.

    Raises:
        NotFound: no readable ``run.json`` there.
    """
    info = run.read_info()
    return SourceRun(
        source=info.directory,
        id=info.id,
        name=info.name,
        project=info.project,
        group=info.group,
        tags=info.tags,
        notes=info.notes,
        created=info.created,
        status=observe(run).name,
        directory=info.directory,
        native={"identity": f"run:{info.project}/{info.id}", "attempts": info.attempts},
    )
