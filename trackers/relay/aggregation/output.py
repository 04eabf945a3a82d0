"""Input and output of a reducer, exactly once: ranks' streams, the stream of results, and a record of its inputs.

Before lines are appended, the record of inputs is replaced: it has these lines, the size of the stream before them, and
the positions in the ranks' streams after them. So a reducer that follows a killed one appends what is missing, and
nothing twice. If that file is lost, the steps already passed on are read from the stream of results.

``RankFile`` is one rank's stream: its rows, the position up to which they are passed on, and whether more can come.
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
from trackers.support import machines, processes
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
    """What is passed on of a stream: everything before ``offset``, the rows at the offsets in ``done`` and, of those in
    ``partly``, all values but the named. columns: offsets of the column records before ``offset``.
    """

    offset: int = 0
    done: list[int] = []
    partly: dict[int, list[str]] = {}
    columns: list[int] = []


class RankFile:
    """Reads one stream from a position on.

    Args:
        arrivals: state of the streams copied from other nodes.

    Attributes:
        rank: the writer's. path: of the file. start: its first record, None before that exists. rows: it has had a row.
        current: monotonic time at which it was last read to its end; 0.0 while there is more.
    """

    def __init__(
        self, name: StreamName, path: Path, position: StreamPosition | None = None,
        arrivals: ArrivalsReader | None = None,
    ) -> None:  # fmt: skip
        self._arrivals = arrivals
        self.name = name
        self.rank = name.number
        self.path = path
        self.lines: deque[WindowRow] = deque()
        self.rows = False
        self.current = 0.0
        self._position = position or StreamPosition()
        self._skip = set(self._position.done)
        self._reader = StreamReader(path, self._position.offset)
        self._columns: dict[int, StreamColumns] = {}
        self._columns_at = list(self._position.columns)
        self._finish: Finish | None = None
        self._died_at = 0.0
        self._heard_at = time.monotonic()
        first = StreamReader(path).read(1)
        self.start: Start | None = first[0] if first and isinstance(first[0], Start) else None
        for offset in self._position.columns:
            for record in StreamReader(path, offset).read(1):
                self._note(record)

    def read(self, defines: list[Define]) -> Iterator[tuple[RankRow, WindowRow, StreamColumns, list[str] | None]]:
        """The next rows, each with its columns and the names of values that count (None: all)."""
        if len(self.lines) >= MOST_LINES:
            self.current = 0.0
            return
        now = time.monotonic()
        arrival = self._arrivals and self._arrivals.arrival_of(self.path)
        if arrival:  # a copy from another node is complete up to an earlier time only
            now = min(now, max(now - (time.time() - arrival.as_of), NEVER))
        block = self._reader.read(BLOCK, BLOCK_BYTES)
        if self._reader.cut:  # the file was truncated: continue at its end
            self._reader.offset = self._reader.size()
        self.current = now if len(block) < BLOCK else 0.0
        if block:
            self._heard_at = time.monotonic()
        for record in block:
            offset = records.offset_of(record)
            match record:
                case RankRow():
                    columns = self._columns.get(record.columns)
                    self.rows = True
                    if columns is not None and offset not in self._skip and len(record.values) == columns.width:
                        line = WindowRow(offset, len(columns.slices))
                        self.lines.append(line)
                        yield record, line, columns, self._position.partly.get(offset)
                case Define():
                    defines.append(record)
                case _:
                    self._note(record, offset)

    def _note(self, record: Record, offset: int | None = None) -> None:
        match record:
            case records.RankColumns():
                self._columns[record.number] = StreamColumns(record.names, record.kinds)
                if offset is not None:
                    self._columns_at.append(offset)
            case Finish():
                self._finish = record
            case Start():
                self.start = record

    def position(self, partly: dict[WindowRow, list[str]]) -> StreamPosition:
        """Position up to which the stream is passed on. partly: of rows passed on in part, the names in open cells."""
        lines = self.lines
        while lines and not lines[0].left:
            lines.popleft()
        offset = lines[0].offset if lines else self._reader.offset
        done = [line.offset for line in lines if not line.left]
        done += [at for at in self._position.done if at >= self._reader.offset]  # not read again yet after a restart
        open_names = {line.offset: names for line, names in partly.items()}
        open_names |= {at: names for at, names in self._position.partly.items() if at >= self._reader.offset}
        return StreamPosition(offset, done, open_names, [at for at in self._columns_at if at < offset])

    @property
    def reason(self) -> str:
        """Why the rank failed; "" if it didn't, or gave no reason."""
        return self._finish.reason if self._finish is not None else ""

    def partly(self) -> list[WindowRow]:
        """Rows of which some values are passed on, but not all."""
        return [line for line in self.lines if 0 < line.left < line.width]

    def state(self) -> str:
        """State of the rank: finished, failed, dead, stopped, alive, or out of sight (on another machine)."""
        if self._finish is not None:
            return FAILED if self._finish.status == "failed" else FINISHED
        start = self.start
        if start is None or not machines.is_here(start):  # no process of this machine
            return UNSEEN
        if not processes.alive(start.pid, start.pid_start):
            return DEAD
        return STOPPED if _is_stopped(start.pid) else ALIVE

    def is_finished(self) -> bool:
        """Whether nothing more comes, and everything was read."""
        if not self.current:
            return False
        state = self.state()
        if self._finish is not None:
            return True
        if state == DEAD:  # its last rows may have been written after the last read
            self._died_at = self._died_at or time.monotonic()
            return self.current > self._died_at
        return state == UNSEEN and self.silent_s() > self._patience_s()

    def _patience_s(self) -> float:
        remote = self._arrivals is not None and self._arrivals.arrival_of(self.path) is not None
        return self._arrivals.now.patience_s if remote and self._arrivals is not None else SILENT_S

    @property
    def began(self) -> float | None:
        """When its writer began, in Unix seconds by this machine's clock; None before that is known."""
        arrival = self._arrivals and self._arrivals.arrival_of(self.path)
        return None if self.start is None else self.start.time - (arrival.ahead_s if arrival else 0.0)

    @property
    def may_grow(self) -> bool:
        """Whether it is copied from another node, and more of it may come."""
        return (
            self._arrivals is not None and self._arrivals.arrival_of(self.path) is not None and not self._arrivals.final
        )

    def silent_s(self) -> float:
        """Time since something of it came, in seconds by this machine's clock."""
        if self._arrivals is not None and (arrival := self._arrivals.arrival_of(self.path)) is not None:
            now = self._arrivals.now
            heard = arrival.heard or arrival.as_of  # an older version noted the latter alone
            return now.looked - max(heard, now.since) if heard else 0.0
        return time.monotonic() - self._heard_at

    def __str__(self) -> str:
        start = self.start
        return f"rank {self.rank}" + (f" (process {start.pid} on {start.host})" if start is not None else "")


def _is_stopped(pid: int) -> bool:
    try:
        text = Path(f"/proc/{processes.number_in_proc(pid)}/stat").read_text()
        return text[text.rindex(")") + 2] in "Tt"
    except (OSError, ValueError, IndexError):
        return False


WRITER = "reducer"
"""The kind of stream that results are in: ``reducer-0.<attempt>``."""
_SUFFIX = re.compile(r"/(min|max|rank_\d+)$")


class SeriesState(msgspec.Struct, omit_defaults=True):
    """State of a name. never: ranks that never logged it. waived: ranks that aren't waited for. owed: by rank, steps
    passed on without it, see ``window.StepRanges``."""

    kind: str
    never: list[int] = []
    waived: list[int] = []
    owed: dict[int, list[list[int]]] = {}


class OutputState(msgspec.Struct, omit_defaults=True):
    """size: of the stream of results before ``lines``. marked: ranks that were named as missing. done: it is over."""

    size: int = 0
    lines: str = ""
    streams: dict[str, StreamPosition] = {}
    series: dict[str, SeriesState] = {}
    defines: list[Define] = []
    marked: list[int] = []
    time: float = 0.0
    done: bool = False


def state_path(run: RunDirectory, attempt: int) -> Path:
    """File of the state."""
    return run.path / f"{WRITER}.{attempt}.json"


def read_state(run: RunDirectory, attempt: int) -> OutputState:
    """The stored state; an empty one if there is none, or it is damaged."""
    try:
        return msgspec.convert(read_json(state_path(run, attempt)), OutputState, strict=False)
    except msgspec.ValidationError:
        return OutputState()


class Reduced:
    """The stream of results of one attempt, with its state.

    Attributes:
        state: as last written. seeds: by name, steps of results that the state doesn't have.
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
        while block := reader.read(5000):
            for record in block:
                if isinstance(record, (Metrics, Summary)) and record.step is not None:
                    for name in {part for full in record.values for part in (full, _SUFFIX.sub("", full))}:
                        self.seeds.setdefault(name, StepRanges()).add(record.step)

    def _open(self) -> StreamWriter:
        if self._writer is None:
            self._writer = StreamWriter(self._path)
        return self._writer

    def restore_if_deleted(self) -> None:
        """Create the stream again if it was deleted."""
        if self._writer is not None:
            self._writer.mend(lambda: None)  # training creates its folder again

    def append(self, lines: list[bytes], state: OutputState) -> bool:
        """Append lines, and store the state after them. False: nothing was done; try again later.

        Args:
            state: its ``size`` and ``lines`` are set here.
        """
        try:
            writer = self._open()
            self.restore_if_deleted()
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
        return records.encode(Start(time=time, attempt=self._attempt, host=machines.host(), pid=os.getpid()))

    def results(self) -> list[Any]:
        """Every record in the stream of results."""
        reader, results = StreamReader(self._path), []
        while block := reader.read(5000):
            results += block
        return results

    def close(self) -> None:
        """Release the stream of results."""
        if self._writer is not None:
            self._writer.release()
            self._writer = None


def _time_of(line: bytes) -> float:
    record = records.decode(line.rstrip(b"\n"))
    return record.time if record is not None else 0.0
