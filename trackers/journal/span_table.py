"""What is logged of a run's spans at its end, for trackers without spans: a table, and the sums of tokens.

Training keeps both while it runs. For a run that was killed they are made from the journal.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from trackers.errors import UNDECODABLE, TrackersError
from trackers.formats import gen_ai
from trackers.journal.run_directory import RunDirectory
from trackers.media import RunMedia, Table
from trackers.media import record as media_record
from trackers.records import CorruptLine, Media, Record, Span, Summary, decode, final_name, name_floats, plain_name
from trackers.support.backlog import Backlog
from trackers.support.interruption import suppress
from trackers.support.seekable_zstd import open_file
from trackers.tracker import RunInfo

ROWS = 10_000
"""Maximum number of spans in the table."""
CELL = 2000
"""Maximum length of a text in it, in characters."""
TABLE = "spans"
COLUMNS = ("trace", "span", "parent", "name", "kind", "step", "start", "seconds", "status", "inputs", "outputs",
           "error", "attributes")  # fmt: skip
BLOCK_BYTES = 4 * 1024 * 1024
LONGEST_BYTES = 16 * 1024 * 1024
"""Maximum length of a line that is looked at: no span is longer."""
STREAM_BYTES = 8 * 1024 * 1024 * 1024
"""Maximum number of bytes of a stream that are searched after a run was killed, which takes some seconds."""
_SPAN = b'{"kind":"span"'
_MEDIA = b'{"kind":"media"'


class SpanTable:
    """The table and the sums of a run's spans; threads may add to it at once."""

    def __init__(self) -> None:
        self.rows: list[list[Any]] = []
        # Each thread its own, for nothing is added twice and no lock is held where a process forks.
        self._sums: dict[int, dict[str, int]] = {}
        self._counts: dict[int, int] = {}

    @property
    def count(self) -> int:
        """Number of spans added as rows, also beyond :data:`ROWS`."""
        return sum(self._counts.copy().values())

    def add(self, span: Span, *, row: bool = True) -> None:
        """Add a span's tokens to the sums. row: add the span to the table, too."""
        thread = threading.get_ident()
        sums = self._sums.setdefault(thread, {})
        for name, number in gen_ai.tokens(span.attributes).items():
            sums[name] = sums.get(name, 0) + number
        if row:
            self._counts[thread] = self._counts.get(thread, 0) + 1
            if len(self.rows) < ROWS:
                self.rows.append(_row(span))

    def results(self) -> dict[str, int]:
        """The sums of tokens, by the names of results."""
        totals: dict[str, int] = {}
        for sums in self._sums.copy().values():
            for name, number in sums.copy().items():
                totals[final_name(name)] = totals.get(final_name(name), 0) + number
        return totals

    def table(self) -> Table:
        """The table."""
        return Table(columns=list(COLUMNS), data=self.rows)


def add_earlier(table: SpanTable, run: RunDirectory, attempt: int) -> None:
    """Add the tokens of all attempts before this one.

    Raises:
        OSError: a stream can't be read.
    """
    for name in run.stream_names():
        if name.writer == "rank" and name.attempt < attempt:
            for record in _read(run.stream(name)):
                if isinstance(record, Span):
                    table.add(record, row=False)


def of_killed(run: RunDirectory, number: int, at: float, info: RunInfo, backlog: Backlog | None = None) -> list[Record]:
    """The records that training would have written at the end of an attempt, if it had spans and hasn't.

    Never raises: how a run ended is written in any case.

    Args:
        backlog: takes what the disk refuses; without one nothing is recorded then.
    """
    with suppress(OSError, TrackersError, *UNDECODABLE):
        most_bytes = int(info.option("TRACKER_MEDIA_MAX_MB", 50)) * 1_000_000
        return _of_killed(run, number, at, RunMedia(run.path, most_bytes, backlog))
    return []


def _of_killed(run: RunDirectory, attempt: int, time: float, store: RunMedia) -> list[Record]:
    table, step = SpanTable(), 0
    for name in run.stream_names():
        if name.writer not in ("rank", "node") or name.attempt > attempt:
            continue
        for record in _read(run.stream(name)):
            if isinstance(record, Span):
                table.add(record, row=name.attempt == attempt)
                step = max(step, record.step or 0)
            elif record.name == TABLE and name.attempt == attempt:
                return []
    if not table.rows:
        return []
    results = {plain_name(name): number for name, number in table.results().items()}
    made: list[Record] = [Summary(time=time, step=step, values=results)] if results else []
    return [*made, media_record(TABLE, table.table(), step, time, store)]


def as_text(value: Any) -> str:
    """A value as JSON; a text as it is."""
    return value if isinstance(value, str) else msgspec.json.encode(name_floats(value)).decode()


def _read(path: Path) -> Iterator[Span | Media]:
    """Spans and media of a stream; of a very large one those of its beginning: who awaits the end awaits this."""
    with open_file(path) as file:
        rest, read = b"", 0
        while (block := file.read(BLOCK_BYTES)) and read < STREAM_BYTES:
            read += len(block)
            block = rest + block
            end = block.rfind(b"\n") + 1
            if not end and not block.strip(b"\0"):  # a hole
                return
            rest = block[end:] if len(block) - end < LONGEST_BYTES else b""
            if _SPAN in block or _MEDIA in block:
                for line in block[:end].split(b"\n"):
                    if line.startswith((_SPAN, _MEDIA)):
                        try:
                            record = decode(line)
                        except CorruptLine:
                            continue
                        if isinstance(record, (Span, Media)):
                            yield record


def _row(span: Span) -> list[Any]:
    cells = (span.inputs, span.outputs, span.error or None, span.attributes or None)
    inputs, outputs, error, attributes = (None if value is None else as_text(value)[:CELL] for value in cells)
    return [span.trace, span.span, span.parent, span.name, span.type, span.step, span.start, span.seconds,
            span.status, inputs, outputs, error, attributes]  # fmt: skip
