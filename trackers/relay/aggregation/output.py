"""Input and output of a reducer, exactly once: ranks' streams, the stream of results, and a record of its inputs.

Before lines are appended, the file is replaced: it holds these lines, how long the stream was before them, and how far
the ranks' streams are used up with them. So whoever goes on after a death appends what is missing, and nothing twice.
Where that file is lost, the stream of results says what was passed on.

``RankFile`` is one rank's stream: its rows, how far they are used up, and whether more can come.
"""

from __future__ import annotations

import os
import re
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from trackers import records
from trackers.journal.run_directory import RunDirectory, StreamName, read_json, replace_file
from trackers.journal.stream import StreamReader, StreamWriter
from trackers.ranks.nodes import ArrivalsReader
from trackers.records import Define, Finish, Metrics, RankRow, Record, Start, Summary
from trackers.relay.aggregation.window import StepRanges, StreamColumns, WindowRow
from trackers.support import process_info
from trackers.support.failpoints import failpoint

BLOCK = 500
"""Rows read at a time, so that no rank gets far ahead of the others."""
BLOCK_BYTES = 64 * 1024 * 1024
MOST_LINES = 20_000
"""Maximum lead of a rank over the slowest, in rows, before it is read further; a late rank doesn't count."""
SILENT_S = 120.0
"""Silence after which a rank on another machine isn't waited for any more, in seconds."""
NEVER = 1e-9
"""A monotonic time before all others."""
FINISHED, FAILED, DEAD, STOPPED, ALIVE, UNSEEN = "finished", "failed", "dead", "stopped", "late", "out of sight"
ENDED = frozenset({FINISHED, FAILED, DEAD})


class StreamPosition(msgspec.Struct, omit_defaults=True):
    """Position in a stream: everything before ``offset``, the rows at ``done`` and, of those in ``partly``, all
    values but the named. columns: where its column records before that lie.
    """

    offset: int = 0
    done: list[int] = []
    partly: dict[int, list[str]] = {}
    columns: list[int] = []


class RankFile:
    """Reads one stream from a mark on.

    Args:
        arrivals: what has come from other nodes.

    Attributes:
        rank: whose it is. path: of the file. start: its first record, None before it came. rows: it has had one.
        current: monotonic time of the last look that read it to its end; 0.0 while there is more.
    """

    def __init__(
        self, name: StreamName, path: Path, mark: StreamPosition | None = None,
        arrivals: ArrivalsReader | None = None,
    ) -> None:  # fmt: skip
        self._arrivals = arrivals
        self.name = name
        self.rank = name.number
        self.path = path
        self.lines: deque[WindowRow] = deque()
        self.rows = False
        self.current = 0.0
        self._mark = mark or StreamPosition()
        self._skip = set(self._mark.done)
        self._reader = StreamReader(path, self._mark.offset)
        self._columns: dict[int, StreamColumns] = {}
        self._columns_at = list(self._mark.columns)
        self._finish: Finish | None = None
        self._died = 0.0
        first = StreamReader(path).read(1)
        self.start: Start | None = first[0] if first and isinstance(first[0], Start) else None
        for offset in self._mark.columns:
            for record in StreamReader(path, offset).read(1):
                self._note(record)

    def read(self, defines: list[Define]) -> Iterator[tuple[RankRow, WindowRow, StreamColumns, list[str] | None]]:
        """The next rows, each with what its numbers mean and which of them count (None: all)."""
        if len(self.lines) >= MOST_LINES:
            self.current = 0.0
            return
        now = time.monotonic()
        arrival = self._arrivals and self._arrivals.of(self.path)
        if arrival:  # what comes from another node is complete up to a while ago
            now = min(now, max(now - (time.time() - arrival.as_of), NEVER))
        found = self._reader.read(BLOCK, BLOCK_BYTES)
        if self._reader.cut:  # what is gone is gone; what comes now counts
            self._reader.offset = self._reader.size()
        self.current = now if len(found) < BLOCK else 0.0
        for record in found:
            offset = records.offset_of(record)
            if isinstance(record, RankRow):
                columns = self._columns.get(record.columns)
                self.rows = True
                if columns is not None and offset not in self._skip and len(record.values) == columns.width:
                    line = WindowRow(offset, len(columns.places))
                    self.lines.append(line)
                    yield record, line, columns, self._mark.partly.get(offset)
            elif isinstance(record, Define):
                defines.append(record)
            else:
                self._note(record, offset)

    def _note(self, record: Record, offset: int | None = None) -> None:
        if isinstance(record, records.RankColumns):
            self._columns[record.number] = StreamColumns(record.names, record.kinds)
            if offset is not None:
                self._columns_at.append(offset)
        elif isinstance(record, Finish):
            self._finish = record
        elif isinstance(record, Start):
            self.start = record

    def mark(self, partly: dict[WindowRow, list[str]]) -> StreamPosition:
        """How far the stream is used up now. partly: of lines that are used up in part, the names still open."""
        lines = self.lines
        while lines and not lines[0].left:
            lines.popleft()
        offset = lines[0].offset if lines else self._reader.offset
        done = [line.offset for line in lines if not line.left]
        done += [at for at in self._mark.done if at >= self._reader.offset]  # not come to yet, after a restart
        open_names = {line.offset: names for line, names in partly.items()}
        open_names |= {at: names for at, names in self._mark.partly.items() if at >= self._reader.offset}
        return StreamPosition(offset, done, open_names, [at for at in self._columns_at if at < offset])

    @property
    def reason(self) -> str:
        """Why it failed; "" where it didn't or doesn't say."""
        return self._finish.reason if self._finish is not None else ""

    def partly(self) -> list[WindowRow]:
        """Lines some of whose values are used up."""
        return [line for line in self.lines if 0 < line.left < line.width]

    def state(self) -> str:
        """How the rank stands: finished, failed, dead, stopped, alive, or out of sight (on another machine)."""
        if self._finish is not None:
            return FAILED if self._finish.status == "failed" else FINISHED
        start = self.start
        if start is None or (start.host, start.boot_id) != (process_info.host(), process_info.boot_id()):
            return UNSEEN
        if not process_info.alive(start.pid, start.pid_start):
            return DEAD
        return STOPPED if _is_stopped(start.pid) else ALIVE

    def gone(self) -> bool:
        """Nothing more comes, and everything there is was read."""
        if not self.current:
            return False
        state = self.state()
        if self._finish is not None:
            return True
        if state == DEAD:  # its last rows may have come after the last look
            self._died = self._died or time.monotonic()
            return self.current > self._died
        return state == UNSEEN and self.silent_s() > self._patience_s()

    def _patience_s(self) -> float:
        remote = self._arrivals is not None and self._arrivals.of(self.path) is not None
        return self._arrivals.now.patience_s if remote and self._arrivals is not None else SILENT_S

    @property
    def began(self) -> float | None:
        """When its writer began, in Unix seconds by this machine's clock; None before that is known."""
        arrival = self._arrivals and self._arrivals.of(self.path)
        return None if self.start is None else self.start.time - (arrival.ahead_s if arrival else 0.0)

    @property
    def comes(self) -> bool:
        """It comes from another node, and more of it may."""
        return self._arrivals is not None and self._arrivals.of(self.path) is not None and not self._arrivals.final

    def silent_s(self) -> float:
        """How long nothing was added, by the clocks of two machines perhaps."""
        if self._arrivals is not None and (arrival := self._arrivals.of(self.path)) is not None:
            now = self._arrivals.now
            heard = arrival.heard or arrival.as_of  # an older version noted the latter alone
            return now.looked - max(heard, now.since) if heard else 0.0
        try:
            return time.time() - os.stat(self._reader.path).st_mtime
        except OSError:
            return 0.0

    def __str__(self) -> str:
        start = self.start
        return f"rank {self.rank}" + (f" (process {start.pid} on {start.host})" if start is not None else "")


def _is_stopped(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
        return text[text.rindex(")") + 2] in "Tt"
    except (OSError, ValueError, IndexError):
        return False


WRITER = "reducer"
"""The kind of stream that results are in: ``reducer-0.<attempt>``."""
_SUFFIX = re.compile(r"/(min|max|rank_\d+)$")


class SeriesState(msgspec.Struct, omit_defaults=True):
    """State of a name. never: ranks that never logged it. waived: ranks that aren't waited for.
    owed: by rank, see ``gathering.StepRanges``."""

    kind: str
    never: list[int] = []
    waived: list[int] = []
    owed: dict[int, list[list[int]]] = {}


class OutputState(msgspec.Struct, omit_defaults=True):
    """size: of the stream of results before ``lines``. marked: ranks that were said to be missing. done: it is over."""

    size: int = 0
    lines: str = ""
    streams: dict[str, StreamPosition] = {}
    series: dict[str, SeriesState] = {}
    defines: list[Define] = []
    marked: list[int] = []
    time: float = 0.0
    done: bool = False


def state_path(run: RunDirectory, attempt: int) -> Path:
    """Where the state lies."""
    return run.path / f"{WRITER}.{attempt}.json"


def read_state(run: RunDirectory, attempt: int) -> OutputState:
    """As it was left; a fresh one where there is none, or it is damaged."""
    try:
        return msgspec.convert(read_json(state_path(run, attempt)), OutputState, strict=False)
    except msgspec.ValidationError:
        return OutputState()


class Reduced:
    """The stream of results of one attempt, with its state.

    Attributes:
        state: as last written. seeds: by name, steps of results that the state knows nothing of.
    """

    def __init__(self, run: RunDirectory, attempt: int) -> None:
        self._run = run
        self._attempt = attempt
        self._path = run.stream(StreamName(WRITER, 0, attempt))
        self._writer: StreamWriter | None = None
        self.state = read_state(run, attempt)
        self.seeds: dict[str, StepRanges] = {}
        if self._path.exists() or self.state.lines:
            self._recover()

    def _recover(self) -> None:
        writer = self._open()
        size, lines = os.fstat(writer.fd).st_size, self.state.lines.encode()
        missing = lines[max(0, size - self.state.size) :] if size < self.state.size + len(lines) else b""
        if missing:
            writer.write(missing)
        elif size > self.state.size + len(lines):
            self._seed(self.state.size + len(lines) if self.state.lines else 0)

    def _seed(self, offset: int) -> None:
        reader = StreamReader(self._path, offset)
        while found := reader.read(5000):
            for record in found:
                if isinstance(record, (Metrics, Summary)) and record.step is not None:
                    for name in {part for full in record.values for part in (full, _SUFFIX.sub("", full))}:
                        self.seeds.setdefault(name, StepRanges()).add(record.step)

    def _open(self) -> StreamWriter:
        if self._writer is None:
            self._writer = StreamWriter(self._path)
        return self._writer

    def see_there(self) -> None:
        """Put the stream back, if somebody deleted it."""
        if self._writer is not None:
            self._writer.mend(lambda: None)  # its folder is for training to put back

    def append(self, lines: list[bytes], state: OutputState) -> bool:
        """Pass lines on, with the state that is true once they are there. False: not now; nothing was done.

        Args:
            state: its ``size`` and ``lines`` are set here.
        """
        try:
            writer = self._open()
            self.see_there()
            if not writer.retry() or writer.waiting:
                return False
            size = os.fstat(writer.fd).st_size
            block = b"".join(lines)
            if block and not size:
                block = self._start(_time_of(lines[0])) + block
            state.size, state.lines = size, block.decode()
            failpoint("reducer.state.before")
            replace_file(state_path(self._run, self._attempt), msgspec.json.encode(state))
            failpoint("reducer.append.before")
        except OSError:
            return False
        self.state = state
        if block:
            writer.write(block)
        failpoint("reducer.append.after")
        return True

    def _start(self, time: float) -> bytes:
        return records.encode(Start(time=time, attempt=self._attempt, host=process_info.host(), pid=os.getpid()))

    def results(self) -> list[Any]:
        """Every record that was passed on."""
        reader, found = StreamReader(self._path), []
        while part := reader.read(5000):
            found += part
        return found

    def close(self) -> None:
        """Leave the file."""
        if self._writer is not None:
            self._writer.release()
            self._writer = None


def _time_of(line: bytes) -> float:
    record = records.decode(line.rstrip(b"\n"))
    return record.time if record is not None else 0.0
