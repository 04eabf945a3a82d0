"""What a run printed, line by line, as its journal or another source has it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from trackers.journal.attempts import AttemptHistory
from trackers.journal.run_directory import RunDirectory, StreamName
from trackers.journal.stream import StreamReader, tail
from trackers.records import Console, Record
from trackers.relay.console_collector import uncollected
from trackers.support.redaction import KEY_LINES


class ConsoleLine(NamedTuple):
    """One line.

    time: Unix seconds. stream: stdout, stderr, or output for both. rank: which one printed it. partial: it isn't whole.
    """

    time: float
    stream: str
    rank: int
    text: str
    partial: bool = False


def lines_of(records: Iterable[Record], rank: int = 0) -> Iterator[ConsoleLine]:
    """Lines of records; of an unfinished line its last state.

    Args:
        rank: which one the main rank is.
    """
    waiting: dict[tuple[int | None, str], list[ConsoleLine]] = {}
    for record in records:
        if not isinstance(record, Console):
            continue
        own = rank if record.rank is None else record.rank
        source = record.rank, record.source
        after = record.after if len(record.after) == len(record.lines) else [0.0] * len(record.lines)
        lines = [
            ConsoleLine(record.time + late, record.stream, own, text, record.partial)
            for text, late in zip(record.lines, after, strict=True)
        ]
        if record.left_out:
            yield ConsoleLine(record.time, record.stream, own, f"… {record.left_out:,} bytes left out …")
        if record.partial:
            waiting[source] = lines
        else:
            waiting.pop(source, None)
            yield from lines
    for left in waiting.values():
        yield from left


class RunConsole:
    """The console of a run of ours: what there is of it now, and what comes later.

    Args:
        run: its directory.
    """

    def __init__(self, run: RunDirectory) -> None:
        self._run = run
        self._readers: dict[StreamName, StreamReader] = {}
        self._ends: dict[tuple[int, int, str], int] = {}
        self._before: dict[tuple[int, int, str], list[str]] = {}

    def read(self) -> list[Console]:
        """Records that have come since the last call, by time; those of an attempt that was superseded don't count."""
        history = AttemptHistory(self._run)
        printed: list[Console] = []
        for name in self._run.stream_names():
            if name.writer != "console":
                continue
            reader = self._readers.setdefault(name, StreamReader(self._run.stream(name)))
            while records := reader.read(5000):
                printed.extend(record for record in history.valid(name, records) if isinstance(record, Console))
                for record in records:
                    if isinstance(record, Console) and record.end:
                        source = name.number, name.attempt, record.source
                        self._ends[source] = record.end
                        self._before[source] = [*self._before.get(source, ()), *record.lines][-KEY_LINES:]
        return sorted(printed, key=lambda record: record.time)

    def read_tail(self, most_bytes: int) -> list[Console]:
        """Records at the end of each rank's console, by time."""
        history = AttemptHistory(self._run)
        printed: list[Console] = []
        for name in self._run.stream_names():
            if name.writer == "console":
                valid = history.valid(name, tail(self._run.stream(name), most_bytes))
                printed.extend(record for record in valid if isinstance(record, Console))
        return sorted(printed, key=lambda record: record.time)

    def waiting(self) -> list[Console]:
        """Records of what was printed and isn't in the journal yet, as without a relay until the end."""
        return uncollected(self._run, self._ends, self._before)

    def main(self) -> int:
        """Number of the main rank."""
        attempts = self._run.read_info().attempts
        return int(attempts[-1].get("rank", 0)) if attempts else 0
