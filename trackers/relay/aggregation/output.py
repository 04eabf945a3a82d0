"""Output of a reducer, exactly once: the stream of results, and a file that records their inputs.

Before lines are appended, the file is replaced: it holds these lines, how long the stream was before them, and how far
the ranks' streams are used up with them. So whoever goes on after a death appends what is missing, and nothing twice.
Where that file is lost, the stream of results says what was passed on.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import msgspec

from trackers import records
from trackers.journal.run_directory import RunDirectory, StreamName, read_json, replace_file
from trackers.journal.stream import StreamReader, StreamWriter
from trackers.records import Define, Metrics, Start, Summary
from trackers.relay.aggregation.rank_reader import StreamPosition
from trackers.relay.aggregation.window import StepRanges
from trackers.support import process_info
from trackers.support.failpoints import failpoint

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
