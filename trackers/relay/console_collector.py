"""Appends the output of training's processes to the journal: redrawn lines folded, secrets masked, size bounded.

The relay reads the spools (:mod:`trackers.journal.console_spool`) of the run, and those of the launch's other ranks;
where training's output is a regular file, that file from where the run began in it. It appends ``Console`` records to
the streams ``console-<rank>.<attempt>``. Each record says up to where its source is in the journal, so that a relay
that was killed is followed by one that goes on there.

A line that hasn't ended (a progress bar) is recorded as it is after :data:`PARTIAL_S`, then after twice as long, and so
on. Beyond ``TRACKER_CONSOLE_MAX_MB`` for a rank, only the last :data:`TAIL_BYTES` of each source are recorded, when it
has ended.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from trackers import records
from trackers.errors import reason
from trackers.formats.terminal_text import TerminalLine, TerminalText
from trackers.journal.console_spool import (
    PrintedFile,
    SegmentName,
    copying,
    forget_copying,
    forget_ends,
    forget_files,
    has_ended,
    noted_files,
    read_times,
    segments,
)  # fmt: skip
from trackers.journal.run_directory import CONSOLE, RunDirectory, StreamName
from trackers.journal.stream import StreamReader, StreamWriter
from trackers.ranks import launch
from trackers.records import Console
from trackers.relay.console_sources import BLOCK_BYTES, FileSource, SpoolFiles, SpoolSource, open_printed_file
from trackers.relay.parts.part import TRAINING, RelayMoment, RelayPart
from trackers.support import confined
from trackers.support.interruption import pass_on, suppress
from trackers.support.redaction import KEY_LINES, LineMask
from trackers.tracker import RunInfo

PARTIAL_S = (5.0, 60.0)
"""Time after which a line that hasn't ended is recorded as it is, at first and at most, in seconds."""
TURN_BYTES = 512 * 1024
"""Maximum number of bytes read of one source in a turn while training runs, so that the relay can do other work."""
CUT = "… the file that this was printed into was truncated: lines before this one may be missing …"
TAIL_BYTES = 64 * 1024
MAX_MB = 32
LOOK_S = (0.5, 5.0)
"""Interval between reads, at first and at most, in seconds: it grows while lines keep coming."""
RECORD_CHARACTERS = 128_000
RANKS_S = 2.0
"""Maximum wait for other ranks when the main one has ended, in seconds."""


class SourceLines:
    """Turns the bytes of one source into folded and masked lines.

    Args:
        name: of the source, among those of its rank. rank: as records have it. before: its last lines that another
            collector has masked; empty: it is read from its begin.

    Attributes:
        behind: the last read stopped at its limit; there may be more.
    """

    def __init__(
        self, source: SpoolSource | FileSource, name: str, rank: int | None, before: Sequence[str] = ()
    ) -> None:
        self.source = source
        self.name = name
        self._rank = rank
        self.behind = False
        self._text = TerminalText(source.offset)
        self._mask = LineMask()
        if before:
            self._mask.go_on(before)
        self._shown_rows: tuple[TerminalLine, ...] = ()
        self._shown_rows_since = 0.0
        self._pause_s = PARTIAL_S[0]

    @property
    def settled(self) -> int:
        """Offset up to which all lines were given as records."""
        return self._text.settled

    def take(self, limit: int, spool_files: SpoolFiles, skipping: bool) -> Iterator[Console]:
        """Records of new output, of at most ``limit`` bytes. skipping: count the bytes as left out instead."""
        taken_bytes = 0
        while taken_bytes < limit:
            block, written = self.source.read(min(BLOCK_BYTES, limit - taken_bytes), spool_files)
            if self.source.was_cut:
                self.source.was_cut = False
                yield self._console([CUT], written)
            if not block:
                break
            if self.source.offset != self._text.offset:
                self._text.skip(self.source.offset)
            block = block[: max(1, self.source.until(self.source.offset) - self.source.offset)]
            self.source.offset += len(block)
            taken_bytes += len(block)
            if skipping:
                self.source.left_out += len(block)
                self._text.skip(self.source.offset)
            else:
                yield from self._records(self._text.feed(block, written))
        self.behind = taken_bytes >= limit
        if not skipping:
            yield from self._unfinished()

    def finish(self, spool_files: SpoolFiles, skipped_from: int | None) -> Iterator[Console]:
        """Records of the rest of a source that has ended. skipped_from: offset from which output was left out."""
        if skipped_from is not None:
            first, last = self.source.span(spool_files)
            begin = max(skipped_from, first, last - TAIL_BYTES)
            self.source.left_out = begin - skipped_from
            self.source.offset = begin
            self._text.skip(begin)
            self._mask.go_on(())
        while True:
            before = self.source.offset
            yield from self.take(1 << 62, spool_files, False)
            if self.source.offset == before:
                break
        yield from self._records(self._text.finish())

    def _records(self, lines: list[TerminalLine]) -> Iterator[Console]:
        if lines:
            self._shown_rows, self._pause_s, self._shown_rows_since = (), PARTIAL_S[0], 0.0
            record = self._console(self._mask.lines([line.text for line in lines]), lines[0].time)
            record.end = self._text.settled
            yield record

    def _unfinished(self) -> Iterator[Console]:
        rows = tuple(self._text.unfinished())
        now = time.monotonic()
        if not rows or [row.text for row in rows] == [row.text for row in self._shown_rows]:
            return
        self._shown_rows_since = self._shown_rows_since or now
        if now - self._shown_rows_since >= self._pause_s:
            self._shown_rows, self._shown_rows_since = rows, now
            self._pause_s = min(PARTIAL_S[1], 2 * self._pause_s)
            lines = copy.copy(self._mask).lines([row.text for row in rows])
            yield self._console(lines, max(row.time for row in rows), partial=True)

    def _console(self, lines: list[str], at: float, partial: bool = False) -> Console:
        left_out, self.source.left_out = self.source.left_out, 0
        return Console(
            time=at or time.time(), lines=lines, stream=self.source.name.stream, rank=self._rank, partial=partial,
            left_out=left_out, source=self.name,
        )  # fmt: skip


def merged(collected: list[Console]) -> list[Console]:
    """Records of one read merged into few records with one time: every delivery writes down each change between the
    journal's streams, so lines that alternate with metrics would be costly."""
    joined: list[Console] = []
    begin = min(record.time for record in collected)
    for record in sorted(collected, key=lambda record: record.time):
        delay_s = max(0.0, round(record.time - begin, 3))
        last = joined[-1] if joined else None
        joins = last is not None and not (last.partial or record.partial or record.left_out)
        if last is not None and joins and last.source == record.source and _characters(last) < RECORD_CHARACTERS:
            if delay_s and not last.after:
                last.after = [0.0] * len(last.lines)
            last.lines += record.lines
            if last.after:
                last.after += [delay_s] * len(record.lines)
            last.end = record.end or last.end
            continue
        record.time = begin
        record.after = [delay_s] * len(record.lines) if delay_s else []
        joined.append(record)
    return joined


def _characters(record: Console) -> int:
    return sum(map(len, record.lines))


class RankConsole:
    """The console of one rank: its sources, and the stream that they go to."""

    def __init__(self, run: RunDirectory, rank: int, attempt: int, main: bool, most_bytes: int) -> None:
        self._path = run.stream(StreamName("console", rank, attempt))
        self._rank = None if main else rank
        self._most_bytes = most_bytes
        self._ends: dict[str, int] = {}
        self._before: dict[str, deque[str]] = {}
        self._size = 0
        self._skipped: dict[str, int] = {}
        self._writer: StreamWriter | None = None
        self.sources: dict[str, SourceLines] = {}
        if self._path.exists():
            self._read_back()

    def add_spool(self, folder: Path, name: SegmentName, beside: bool) -> None:
        """Add a spool as a source, if it is new. beside: it is another rank's, which numbers its attempts itself."""
        known = f"{name.source}.{name.attempt}" if beside else name.source
        if known not in self.sources:
            source = SpoolSource(folder, name, self._ends.get(known, 0))
            self.sources[known] = SourceLines(source, known, self._rank, self._last(known))

    def add_file(
        self, name: SegmentName, file: PrintedFile, pid: int, read_note: Callable[[], PrintedFile | None]
    ) -> None:
        """Add a regular file that the main rank's process prints into, if it is new."""
        if name.source not in self.sources:
            fd = open_printed_file(pid, file)
            if fd >= 0:
                source = FileSource(fd, name, self._ends.get(name.source, file.begin), read_note)
                self.sources[name.source] = SourceLines(source, name.source, self._rank, self._last(name.source))

    def take(self, spool_files: SpoolFiles, limit: int = TURN_BYTES) -> bool:
        """Append new output. False if there was none.

        Raises:
            OSError: the stream can't be open_printed_file; nothing was taken.
        """
        self._open()
        batch: list[Console] = []
        for source in self.sources.values():
            batch += self._counted(self._records_of(source, spool_files, limit))
        return self._append(batch)

    def finish(self, spool_files: SpoolFiles) -> None:
        """Append the rest, and remove the spools, whose content is in the journal.

        Raises:
            OSError: the stream can't be open_printed_file; the spools are left.
        """
        self._open()
        batch: list[Console] = []
        before: list[int] = []
        while self._size < self._most_bytes and before != (now := self._offsets()):
            before = now
            for source in self.sources.values():
                batch += self._counted(self._records_of(source, spool_files, TURN_BYTES))
            if sum(map(_characters, batch)) > TURN_BYTES:
                self._append(batch)
                batch = []
        for name, source in self.sources.items():
            if self._size >= self._most_bytes:
                self._skipped.setdefault(name, source.settled)
            batch += self._counted(source.finish(spool_files, self._skipped.get(name)))
        self._append(batch)
        if self._writer is None or self._writer.flush(1.0):
            for source in self.sources.values():
                source.source.remove(spool_files)

    def _offsets(self) -> list[int]:
        return [source.source.offset for source in self.sources.values()]

    def mend(self) -> None:
        """Put the stream back, if somebody deleted it: deliveries wait for it."""
        if self._writer is not None:
            self._writer.mend(lambda: confined.make_folder(self._path.parent))

    def close(self) -> None:
        """Close the stream."""
        if self._writer is not None:
            self._writer.release()
            self._writer = None

    def _records_of(self, source: SourceLines, spool_files: SpoolFiles, limit: int) -> Iterator[Console]:
        full = self._size >= self._most_bytes
        if full:
            self._skipped.setdefault(source.name, source.settled)
        yield from source.take(limit, spool_files, full)

    def _counted(self, new_records: Iterator[Console]) -> Iterator[Console]:
        for record in new_records:
            self._size += _characters(record)
            yield record

    def _append(self, batch: list[Console]) -> bool:
        if not batch:
            return False
        self.mend()
        if self._writer is not None:
            self._writer.write(b"".join(map(records.encode, merged(batch))))
        return True

    def _open(self) -> None:
        if self._writer is None and self.sources:
            confined.make_folder(self._path.parent)
            self._writer = StreamWriter(self._path)

    def _last(self, source: str) -> list[str]:
        return list(self._before.get(source, ()))

    def _read_back(self) -> None:
        reader = StreamReader(self._path)
        while batch := reader.read():
            for record in batch:
                if isinstance(record, Console):
                    self._size += sum(map(len, record.lines))
                    if record.end:
                        self._before.setdefault(record.source, deque(maxlen=KEY_LINES)).extend(record.lines)
                        self._ends[record.source] = max(self._ends.get(record.source, 0), record.end)


def uncollected(
    run: RunDirectory, ends: Mapping[tuple[int, int, str], int], before: Mapping[tuple[int, int, str], Sequence[str]]
) -> list[Console]:
    """Records of the main rank's output that isn't in the journal yet; nothing is changed.

    Args:
        ends: up to where each source is in the journal, by rank, attempt and source. before: its last lines there.
    """
    spool_files = {run.console: segments(run.console)}
    printed: list[Console] = []
    for name in {name[:3]: name for name in reversed(spool_files[run.console])}.values():
        source = SpoolSource(run.console, name, ends.get(name[:3], 0), keep=True)
        printed.extend(SourceLines(source, name.source, None, before.get(name[:3], ())).finish(spool_files, None))
    return sorted(printed, key=lambda record: record.time)


class ConsoleCollector(RelayPart):
    """Collects for one attempt of a run.

    Args:
        attempt: its number; None: all attempts, all of which have ended.
        watched: pid of training's own process, where this is its own relay; 0: files that it names aren't read.
        say: called once with one line, if output can't be read.
    """

    name = "console"

    def __init__(
        self,
        run: RunDirectory,
        info: RunInfo,
        attempt: int | None,
        watched: int = 0,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._watched = watched
        self._say = say
        self._complained = False
        self._run = run
        self._info = info
        self._attempt = attempt
        self._most_bytes = int(info.option("TRACKER_CONSOLE_MAX_MB", MAX_MB)) * 1_000_000
        self._ranks: dict[tuple[int, int], RankConsole] = {}
        self._look_at = 0.0
        self._pause_s = LOOK_S[0]
        self._end_at = 0.0
        self._over = False
        self._files: dict[str, PrintedFile] = {}
        numbers = [number for entry in info.attempts if isinstance(number := entry.get("number"), int)]
        numbers = [number for number in numbers if attempt in (None, number)]
        folders = [(number, launch.folder_of(run, info, number)) for number in numbers]
        self._launch_folders = [(number, folder) for number, folder in folders if folder is not None]

    def poll(self, moment: RelayMoment = TRAINING) -> None:
        """Append new output."""
        now = time.monotonic()
        if self._over or now < self._look_at:
            return
        self._look_at = now + self._pause_s
        with self._isolated():
            spool_files = self._list_spools()
            grew = False
            for rank in self._ranks.values():
                grew = rank.take(spool_files) or grew
                rank.mend()
            behind = any(source.behind for rank in self._ranks.values() for source in rank.sources.values())
            self._pause_s = min(LOOK_S[1], 1.5 * self._pause_s) if grew and not behind else LOOK_S[0]

    def end(self) -> bool:
        """Training is over: append the rest. False while other ranks may still print, for :data:`RANKS_S` at most."""
        if self._over:
            return True
        now = time.monotonic()
        self._end_at = self._end_at or now + RANKS_S
        with self._isolated():
            spool_files = self._list_spools()
            if self._attempt is not None and self._still_printing(spool_files) and now < self._end_at:
                return False
            self._finish(spool_files)
        self._over = True
        self.close()
        return True

    def _finish(self, spool_files: SpoolFiles) -> None:
        for (number, attempt), rank in self._ranks.items():
            rank.finish(spool_files)
            rank.mend()
            forget_files(self._run.console, number, attempt)
            forget_copying(self._run.console, number, attempt)
        with suppress(OSError):
            self._run.console.rmdir()
        for _, folder in self._launch_folders:
            if (folder / CONSOLE).is_dir():
                forget_ends(folder / CONSOLE)
                launch.remove_if_empty(folder)

    @contextlib.contextmanager
    def _isolated(self) -> Iterator[None]:
        """Report the first error once, and go on: deliveries don't depend on the console."""
        try:
            yield
        except Exception as error:
            pass_on(error)
            if not self._complained:
                self._complained = True
                self._say(f"what training prints can't be taken into the journal now: {reason(error)}")

    def ranks(self) -> set[int]:
        """Ranks that have printed."""
        return {rank for rank, _ in self._ranks}

    def close(self) -> None:
        """Close the streams."""
        for rank in self._ranks.values():
            rank.close()
        self._ranks.clear()

    def _list_spools(self) -> SpoolFiles:
        spool_files = {self._run.console: segments(self._run.console)}
        for name in spool_files[self._run.console]:
            if self._attempt in (None, name.attempt):
                main = self._main(name.attempt)
                self._rank(name.rank, name.attempt, main in (None, name.rank)).add_spool(self._run.console, name, False)
        if self._watched and self._attempt is not None:
            self._add_files(self._attempt)
        for attempt, folder in self._launch_folders:
            spools = folder / CONSOLE
            spool_files[spools] = segments(spools)
            span = launch.span(folder, self._run, attempt) if spool_files[spools] else None
            for name in spool_files[spools]:
                if span is not None and name.rank != self._main(attempt) and _within(spools, name, span):
                    self._rank(name.rank, attempt, False).add_spool(spools, name, True)
        return spool_files

    def _add_files(self, attempt: int) -> None:
        main = self._main(attempt) or 0
        self._files = noted_files(self._run.console, main, attempt)
        for stream, file in self._files.items():
            read_note = functools.partial(lambda name: self._files.get(name), stream)
            self._rank(main, attempt, True).add_file(
                SegmentName(main, attempt, stream, 0), file, self._watched, read_note
            )

    def _rank(self, rank: int, attempt: int, main: bool) -> RankConsole:
        key = rank, attempt
        if key not in self._ranks:
            self._ranks[key] = RankConsole(self._run, rank, attempt, main, self._most_bytes)
        return self._ranks[key]

    def _main(self, attempt: int) -> int | None:
        """The main rank of an attempt, where there are several."""
        entries = [entry for entry in self._info.attempts if entry.get("number") == attempt]
        return int(entries[0]["rank"]) if entries and "rank" in entries[0] else None

    def _still_printing(self, spool_files: SpoolFiles) -> bool:
        """Whether another rank hasn't marked its end yet, or output of the main rank is still being copied."""
        main = self._main(self._attempt or 0) or 0
        if copying(self._run.console, main, self._attempt or 0):
            return True
        return any(
            name.stream == name.source and not has_ended(folder / CONSOLE, name)
            for _, folder in self._launch_folders
            for name in spool_files[folder / CONSOLE]
        )


def _within(folder: Path, name: SegmentName, span: tuple[float, float]) -> bool:
    times = read_times(folder / str(name))
    return not times or span[0] < times[0][0] <= span[1]
