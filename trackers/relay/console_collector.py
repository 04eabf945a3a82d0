"""Puts what training's processes printed into the journal: lines folded, secrets masked, bounded, each once.

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
import functools
import time
from collections.abc import Callable, Iterator, Mapping
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
from trackers.relay.console_sources import BLOCK_BYTES, FileSource, Found, SpoolSource, opened
from trackers.support import confined
from trackers.support.redaction import LineMask
from trackers.tracker import RunInfo

PARTIAL_S = (5.0, 60.0)
"""Time after which a line that hasn't ended is recorded as it is, at first and at most, in seconds."""
TURN_BYTES = 512 * 1024
"""Bytes taken of one source at a turn while training runs, so that the relay sees to other things, too."""
TAIL_BYTES = 64 * 1024
MAX_MB = 32
LOOK_S = (0.5, 5.0)
"""Between looks, in seconds: the longer, the longer lines have come without a pause."""
RECORD_CHARACTERS = 128_000
RANKS_S = 2.0
"""Maximum wait for other ranks when the main one has ended, in seconds."""


class SourceLines:
    """Lines of one source: what is read of it, folded and masked.

    Args:
        name: of the source, among those of its rank. rank: as records have it.

    Attributes:
        behind: there was more than was to be taken at once.
    """

    def __init__(self, source: SpoolSource | FileSource, name: str, rank: int | None) -> None:
        self.source = source
        self.name = name
        self._rank = rank
        self.behind = False
        self._text = TerminalText(source.offset)
        self._mask = LineMask()
        self._waiting: tuple[TerminalLine, ...] = ()
        self._since = 0.0
        self._pause_s = PARTIAL_S[0]

    def take(self, limit: int, found: Found, skipping: bool) -> Iterator[Console]:
        """Records of what has come since, of at most so many bytes. skipping: they are passed over."""
        taken = 0
        while taken < limit:
            block, written = self.source.read(min(BLOCK_BYTES, limit - taken), found)
            if not block:
                break
            if self.source.offset != self._text.offset:
                self._text.skip(self.source.offset)
            block = block[: max(1, self.source.until(self.source.offset) - self.source.offset)]
            self.source.offset += len(block)
            taken += len(block)
            if skipping:
                self.source.left_out += len(block)
                self._text.skip(self.source.offset)
            else:
                yield from self._records(self._text.feed(block, written))
        self.behind = taken >= limit
        if not skipping:
            yield from self._unfinished()

    def finish(self, found: Found, skipped_from: int | None) -> Iterator[Console]:
        """Records of the rest; nothing more comes. skipped_from: from where on it was passed over."""
        if skipped_from is not None:
            first, last = self.source.span(found)
            begin = max(skipped_from, first, last - TAIL_BYTES)
            self.source.left_out = begin - skipped_from
            self.source.offset = begin
            self._text.skip(begin)
        while True:
            before = self.source.offset
            yield from self.take(1 << 62, found, False)
            if self.source.offset == before:
                break
        yield from self._records(self._text.finish())

    def _records(self, lines: list[TerminalLine]) -> Iterator[Console]:
        if lines:
            self._waiting, self._pause_s, self._since = (), PARTIAL_S[0], 0.0
            record = self._console(self._mask.lines([line.text for line in lines]), lines[0].time)
            record.end = self._text.settled
            yield record

    def _unfinished(self) -> Iterator[Console]:
        rows = tuple(self._text.unfinished())
        now = time.monotonic()
        if not rows or [row.text for row in rows] == [row.text for row in self._waiting]:
            return
        self._since = self._since or now
        if now - self._since >= self._pause_s:
            self._waiting, self._since = rows, now
            self._pause_s = min(PARTIAL_S[1], 2 * self._pause_s)
            lines = LineMask().lines([row.text for row in rows])
            yield self._console(lines, max(row.time for row in rows), partial=True)

    def _console(self, lines: list[str], at: float, partial: bool = False) -> Console:
        left_out, self.source.left_out = self.source.left_out, 0
        return Console(
            time=at or time.time(), lines=lines, stream=self.source.name.stream, rank=self._rank, partial=partial,
            left_out=left_out, source=self.name,
        )  # fmt: skip


def together(made: list[Console]) -> list[Console]:
    """Records of one look as few records of one time: each change between the journal's streams is written down by
    every delivery, so that lines and metrics that alternate would cost more than they are."""
    found: list[Console] = []
    begin = min(record.time for record in made)
    for record in sorted(made, key=lambda record: record.time):
        after = max(0.0, round(record.time - begin, 3))
        last = found[-1] if found else None
        joins = last is not None and not (last.partial or record.partial or record.left_out)
        if last is not None and joins and last.source == record.source and _characters(last) < RECORD_CHARACTERS:
            if after and not last.after:
                last.after = [0.0] * len(last.lines)
            last.lines += record.lines
            if last.after:
                last.after += [after] * len(record.lines)
            last.end = record.end or last.end
            continue
        record.time = begin
        record.after = [after] * len(record.lines) if after else []
        found.append(record)
    return found


def _characters(record: Console) -> int:
    return sum(map(len, record.lines))


class RankConsole:
    """The console of one rank: its sources, and the stream that they go to."""

    def __init__(self, run: RunDirectory, rank: int, attempt: int, main: bool, most_bytes: int) -> None:
        self._path = run.stream(StreamName("console", rank, attempt))
        self._rank = None if main else rank
        self._most_bytes = most_bytes
        self._ends: dict[str, int] = {}
        self._size = 0
        self._skipped: dict[str, int] = {}
        self._writer: StreamWriter | None = None
        self.sources: dict[str, SourceLines] = {}
        if self._path.exists():
            self._read_back()

    def see(self, folder: Path, name: SegmentName, beside: bool) -> None:
        """There is a source. beside: of another rank, whose numbers of attempts are its own."""
        known = f"{name.source}.{name.attempt}" if beside else name.source
        if known not in self.sources:
            source = SpoolSource(folder, name, self._ends.get(known, 0))
            self.sources[known] = SourceLines(source, known, self._rank)

    def see_file(self, name: SegmentName, file: PrintedFile, pid: int, said: Callable[[], PrintedFile | None]) -> None:
        """A stream of the main rank's process is a regular file."""
        if name.source not in self.sources:
            fd = opened(pid, file)
            if fd >= 0:
                source = FileSource(fd, name, self._ends.get(name.source, file.begin), said)
                self.sources[name.source] = SourceLines(source, name.source, self._rank)

    def take(self, found: Found, limit: int = TURN_BYTES) -> bool:
        """Append what has come. False if that was nothing.

        Raises:
            OSError: the stream can't be opened; nothing was taken.
        """
        self._open()
        return self._append(record for source in self.sources.values() for record in self._of(source, found, limit))

    def finish(self, found: Found) -> None:
        """Append the rest, and remove the spools, whose content is in the journal.

        Raises:
            OSError: the stream can't be opened; the spools are left.
        """
        self._open()
        self._append(
            record for name, source in self.sources.items() for record in source.finish(found, self._skipped.get(name))
        )
        if self._writer is None or self._writer.settle(1.0):
            for source in self.sources.values():
                source.source.remove(found)

    def mend(self) -> None:
        """Put the stream back, if somebody deleted it: deliveries wait for it."""
        if self._writer is not None:
            self._writer.mend(lambda: confined.make_folder(self._path.parent))

    def close(self) -> None:
        """Leave the stream."""
        if self._writer is not None:
            self._writer.release()
            self._writer = None

    def _of(self, source: SourceLines, found: Found, limit: int) -> Iterator[Console]:
        full = self._size >= self._most_bytes
        if full:
            self._skipped.setdefault(source.name, source.source.offset)
        yield from source.take(limit, found, full)

    def _append(self, made: Iterator[Console]) -> bool:
        batch = []
        for record in made:
            batch.append(record)
            self._size += sum(map(len, record.lines))
        if not batch:
            return False
        self.mend()
        if self._writer is not None:
            self._writer.write(b"".join(map(records.encode, together(batch))))
        return True

    def _open(self) -> None:
        if self._writer is None and self.sources:
            confined.make_folder(self._path.parent)
            self._writer = StreamWriter(self._path)

    def _read_back(self) -> None:
        reader = StreamReader(self._path)
        while found := reader.read():
            for record in found:
                if isinstance(record, Console):
                    self._size += sum(map(len, record.lines))
                    if record.end:
                        self._ends[record.source] = max(self._ends.get(record.source, 0), record.end)


def uncollected(run: RunDirectory, ends: Mapping[tuple[int, int, str], int]) -> list[Console]:
    """What the main rank printed that isn't in the journal yet; nothing is changed.

    Args:
        ends: up to where each source is in the journal, by rank, attempt and source.
    """
    found = {run.console: segments(run.console)}
    made: list[Console] = []
    for name in {name[:3]: name for name in reversed(found[run.console])}.values():
        source = SpoolSource(run.console, name, ends.get(name[:3], 0), keep=True)
        made.extend(SourceLines(source, name.source, None).finish(found, None))
    return sorted(made, key=lambda record: record.time)


class ConsoleCollector:
    """Collects for one attempt of a run.

    Args:
        attempt: which; None: all of them, none of which goes on.
        watched: pid of training's own process, where this is its own relay; 0: files that it names aren't read.
        say: called once with a line, if something can't be taken.
    """

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
        self._beside = [(number, folder) for number, folder in folders if folder is not None]

    def poll(self) -> None:
        """Append what has come. Takes microseconds when nothing has."""
        now = time.monotonic()
        if self._over or now < self._look_at:
            return
        self._look_at = now + self._pause_s
        with self._isolated():
            found = self._found()
            came = False
            for rank in self._ranks.values():
                came = rank.take(found) or came
                rank.mend()
            behind = any(source.behind for rank in self._ranks.values() for source in rank.sources.values())
            self._pause_s = min(LOOK_S[1], 1.5 * self._pause_s) if came and not behind else LOOK_S[0]

    def end(self) -> bool:
        """Training is over: append the rest. False while other ranks may still print, for :data:`RANKS_S` at most."""
        if self._over:
            return True
        now = time.monotonic()
        self._end_at = self._end_at or now + RANKS_S
        with self._isolated():
            found = self._found()
            if self._attempt is not None and self._print_on(found) and now < self._end_at:
                return False
            self._finish(found)
        self._over = True
        self.close()
        return True

    def _finish(self, found: Found) -> None:
        for (number, attempt), rank in self._ranks.items():
            rank.finish(found)
            rank.mend()
            forget_files(self._run.console, number, attempt)
            forget_copying(self._run.console, number, attempt)
        with contextlib.suppress(OSError):
            self._run.console.rmdir()
        for _, folder in self._beside:
            if (folder / CONSOLE).is_dir():
                forget_ends(folder / CONSOLE)
                launch.tidy(folder)

    @contextlib.contextmanager
    def _isolated(self) -> Iterator[None]:
        """Whatever goes wrong here is said once, and is no reason to deliver nothing else."""
        try:
            yield
        except Exception as error:
            if not self._complained:
                self._complained = True
                self._say(f"what training prints can't be taken into the journal now: {reason(error)}")

    def ranks(self) -> set[int]:
        """Which ranks have printed."""
        return {rank for rank, _ in self._ranks}

    def close(self) -> None:
        """Leave the streams."""
        for rank in self._ranks.values():
            rank.close()
        self._ranks.clear()

    def _found(self) -> Found:
        found = {self._run.console: segments(self._run.console)}
        for name in found[self._run.console]:
            if self._attempt in (None, name.attempt):
                main = self._main(name.attempt)
                self._rank(name.rank, name.attempt, main in (None, name.rank)).see(self._run.console, name, False)
        if self._watched and self._attempt is not None:
            self._see_files(self._attempt)
        for attempt, folder in self._beside:
            spools = folder / CONSOLE
            found[spools] = segments(spools)
            span = launch.span(folder, self._run, attempt) if found[spools] else None
            for name in found[spools]:
                if span is not None and name.rank != self._main(attempt) and _within(spools, name, span):
                    self._rank(name.rank, attempt, False).see(spools, name, True)
        return found

    def _see_files(self, attempt: int) -> None:
        main = self._main(attempt) or 0
        self._files = noted_files(self._run.console, main, attempt)
        for stream, file in self._files.items():
            said = functools.partial(lambda name: self._files.get(name), stream)
            self._rank(main, attempt, True).see_file(SegmentName(main, attempt, stream, 0), file, self._watched, said)

    def _rank(self, rank: int, attempt: int, main: bool) -> RankConsole:
        key = rank, attempt
        if key not in self._ranks:
            self._ranks[key] = RankConsole(self._run, rank, attempt, main, self._most_bytes)
        return self._ranks[key]

    def _main(self, attempt: int) -> int | None:
        """The main rank of an attempt, where there are several."""
        found = [entry for entry in self._info.attempts if entry.get("number") == attempt]
        return int(found[0]["rank"]) if found and "rank" in found[0] else None

    def _print_on(self, found: Found) -> bool:
        """Whether a rank beside the main one hasn't said that it has ended, or output of the main one still comes."""
        main = self._main(self._attempt or 0) or 0
        if copying(self._run.console, main, self._attempt or 0):
            return True
        return any(
            name.stream == name.source and not has_ended(folder / CONSOLE, name)
            for _, folder in self._beside
            for name in found[folder / CONSOLE]
        )


def _within(folder: Path, name: SegmentName, span: tuple[float, float]) -> bool:
    times = read_times(folder / str(name))
    return not times or span[0] < times[0][0] <= span[1]
