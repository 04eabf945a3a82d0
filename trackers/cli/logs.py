"""``trackers logs``: what a run printed."""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trackers.cli.common import OneRun, RunsDir, open_runs

if TYPE_CHECKING:
    from trackers.readers.console import ConsoleLine, RunConsole
    from trackers.readers.reader import Reader, SourceRun

POLL_S = 0.5


def logs(
    run: OneRun = "latest",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the run has ended, or Ctrl-C.")] = False,
    rank: Annotated[int | None, typer.Option(min=0, help="Only what this rank printed.")] = None,
    stdout: Annotated[bool, typer.Option("--stdout", help="Only standard output.")] = False,
    stderr: Annotated[bool, typer.Option("--stderr", help="Only standard error.")] = False,
    count: Annotated[int | None, typer.Option("-n", min=0, metavar="LINES", help="Only the last so many.")] = None,
    times: Annotated[bool, typer.Option("--times", help="Begin each line with the time.")] = False,
    directory: RunsDir = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object a line.")] = False,
) -> None:
    """Print what a run printed: progress bars as they were last, secrets masked; of several ranks, which one.

    Example: trackers logs latest --follow; trackers logs latest --stderr -n 50
    """
    from trackers.errors import UsageError, examples

    count = None if count is None else min(count, sys.maxsize)
    if stdout and stderr:
        raise UsageError("--stdout and --stderr: only one of them; both without either")
    reader, runs = open_runs(run, directory, one=True)
    stream = "stdout" if stdout else "stderr" if stderr else ""
    line_filter = _LineFilter(rank, stream, times, as_json)
    if follow:
        _follow(runs[0], count, line_filter)
        return
    lines = deque(filter(line_filter.has, _console_lines(reader, runs[0])), maxlen=count)
    if rank is not None and line_filter.ranks and rank not in line_filter.ranks:
        print(
            f"trackers: rank {rank} printed nothing; these did: {examples(sorted(line_filter.ranks))}", file=sys.stderr
        )
    line_filter.several = len({line.rank for line in lines}) > 1
    for line in lines:
        line_filter.print(line)


class _LineFilter:
    """Which lines are printed, and how."""

    def __init__(self, rank: int | None, stream: str, times: bool, as_json: bool) -> None:
        self._rank = rank
        self._streams = (stream, "output") if stream else ()
        self._times = times
        self._as_json = as_json
        self.several = False
        self.ranks: set[int] = set()

    def has(self, line: ConsoleLine) -> bool:
        self.ranks.add(line.rank)
        return (self._rank is None or line.rank == self._rank) and (not self._streams or line.stream in self._streams)

    def print(self, line: ConsoleLine) -> None:
        if self._as_json:
            print(json.dumps({"time": line.time, "stream": line.stream, "rank": line.rank, "text": line.text}))
            return
        when = time.strftime("%Y-%m-%d %H:%M:%S ", time.localtime(line.time)) if self._times else ""
        who = f"[rank {line.rank}] " if self.several else ""
        print(when + who + _harmless(line.text))


def _harmless(text: str) -> str:
    """A line without what a terminal would obey, but whole."""
    return "".join(char if char.isprintable() or char == "\t" else "\N{REPLACEMENT CHARACTER}" for char in text)


def _console_lines(reader: Reader, run: SourceRun) -> Iterable[ConsoleLine]:
    from trackers.readers.console import lines_of

    if reader.scheme != "run":
        return lines_of(reader.read(run))
    console = _console(run)
    records = console.read()
    return sorted(lines_of([*records, *console.waiting()], console.main()), key=lambda line: line.time)


def _console(run: SourceRun) -> RunConsole:
    from trackers.journal.run_directory import RunDirectory
    from trackers.readers.console import RunConsole

    return RunConsole(RunDirectory(run.directory))


def _follow(run: SourceRun, count: int | None, line_filter: _LineFilter) -> None:
    from trackers.errors import UsageError
    from trackers.journal.run_directory import RunDirectory
    from trackers.journal.status import observe
    from trackers.readers.console import lines_of

    if not run.directory or not (Path(run.directory) / "streams").is_dir():
        raise UsageError("--follow needs a run of ours")
    directory, console = RunDirectory(run.directory), _console(run)
    main = console.main()

    def fresh() -> Iterator[ConsoleLine]:
        return filter(line_filter.has, lines_of(console.read(), main))

    first = deque(fresh(), maxlen=count)
    line_filter.several = len({line.rank for line in first}) > 1
    over = False
    lines: Iterable[ConsoleLine] = first
    while True:
        for line in lines:
            line_filter.print(line)
        sys.stdout.flush()
        if over:
            break
        over = observe(directory).name != "running"
        if not over:
            time.sleep(POLL_S)
        lines = fresh()
    for line in filter(line_filter.has, lines_of(console.waiting(), main)):
        line_filter.print(line)
