"""``trackers sync`` of many runs: several at once, a bar and a line for what is lacking, plain lines in a pipe."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from collections import Counter

import pytest
from typer.testing import CliRunner

from tests.analysis.support import write_run
from trackers.cli.app import app
from trackers.journal.checksums import ChecksumWriter
from trackers.journal.lease import living_holder
from trackers.journal.run_directory import RunDirectory
from trackers.relay.sync import RunSync, sync


def runs(count: int) -> list[RunDirectory]:
    """So many runs that nobody has delivered."""
    return [RunDirectory(write_run(f"r{number}", [(0, 0, {"loss": 1.0})])) for number in range(count)]


@pytest.mark.slow
@pytest.mark.processes
def test_so_many_runs_are_served_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """And no more; what is through is counted."""
    active = most = 0
    begin, end = RunSync.begin, RunSync.end

    def begun(self: RunSync) -> None:
        nonlocal active, most
        active, most = active + 1, max(most, active + 1)
        begin(self)

    def ended(self: RunSync) -> None:
        nonlocal active
        active -= 1
        end(self)

    monkeypatch.setattr(RunSync, "begin", begun)
    monkeypatch.setattr(RunSync, "end", ended)
    told: list[tuple[int, int]] = []
    assert sync(runs(5), (), lambda run: None, jobs=2, tell=lambda done, total: told.append((done, total)))
    assert (active, most) == (0, 2)
    assert told[-1] == (5, 5)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


@pytest.mark.processes
def test_damaged_line_is_named_with_each_tracker() -> None:
    """By `sync` as by `show`, which has it in the run's note, too."""
    path = write_run("r0", [(step, step, {"loss": 50.0 + step}) for step in range(9)])
    stream = path / "streams" / "rank-0.1.jsonl"
    while ChecksumWriter(stream).poll(final=True):
        pass
    content = bytearray(stream.read_bytes())
    content[content.index(b'"loss":52.0') + 7] ^= 1  # 42.0
    stream.write_bytes(content)
    result = CliRunner().invoke(app, ["sync", str(path), "--to", "csv"])
    assert ", 1 damaged line of the journal skipped" in result.stdout, result.output
    shown = CliRunner().invoke(app, ["show", str(path)]).stdout
    assert (
        f"note       1 damaged line of the journal skipped; `trackers sync {path.resolve()} --verify` names it" in shown
    )
    assert re.search(r"csv +delivered, \d+ records, 1 damaged line of the journal skipped", shown), shown


@pytest.mark.processes
def test_stopped_sync_begins_no_other_run() -> None:
    """Those at work are ended; it isn't complete."""
    shown: Counter[str] = Counter()
    stopping = False

    def show(run: RunSync) -> None:
        nonlocal stopping
        stopping = True
        shown[run.info.id] += 1

    assert not sync(runs(3), (), show, stopping=lambda: stopping)
    assert list(shown) == ["r0"]


@pytest.mark.slow
@pytest.mark.processes
def test_pipe_gets_a_line_for_each_run() -> None:
    """As for one run; with --json objects."""
    runs(3)
    done = CliRunner().invoke(app, ["sync", "runs", "--jobs", "2"])
    assert done.exit_code == 0
    final = [line for line in done.stdout.splitlines() if "json: delivered" in line]
    assert sorted(line.split()[0] for line in final) == ["digits/r0", "digits/r1", "digits/r2"]
    again = CliRunner().invoke(app, ["sync", "runs", "--json"])
    assert {json.loads(line)["state"] for line in again.stdout.splitlines()} == {"delivered"}


@pytest.mark.processes
def test_terminal_gets_a_bar_and_lines_for_what_is_lacking(monkeypatch: pytest.MonkeyPatch) -> None:
    """How many of how many; of those that can't be delivered each why."""
    runs(3)
    write_run("other", [(0, 0, {"loss": 1.0})], trackers=["nosuch"])
    drawn = io.StringIO()
    drawn.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("TRACKERS_PROGRESS_S", "0")
    monkeypatch.setattr(sys, "stdout", drawn)
    monkeypatch.setattr(sys, "stderr", drawn)
    monkeypatch.setattr(sys, "argv", ["trackers", "sync", "runs"])
    from trackers.cli import main

    with pytest.raises(SystemExit) as end:
        main()
    text = drawn.getvalue()
    assert end.value.code == 1
    assert "delivering" in text
    assert "/4" in text
    assert "unknown tracker 'nosuch'" in text
    assert "3 of 4 runs delivered" in text
    assert "r0 json: delivered" not in text


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize("how", [("--json",), ("--follow",), ()], ids=["json", "follow", "lines"])
def test_output_that_nobody_reads_is_no_runs_failure(how: tuple[str, ...]) -> None:
    """``trackers sync | head -1`` said of each further run that it can't be delivered (BrokenPipeError)."""
    made = runs(2)
    command = [sys.executable, "-m", "trackers", "sync", *how]
    if "--follow" not in how:
        assert subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode == 0
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as nobody:
        done = subprocess.run(command, stdout=nobody, stderr=subprocess.PIPE, text=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (141, "")
    assert all(run.path.exists() for run in made)
    assert not any(living_holder(run.delivery / "json.lease") for run in made)


def test_disk_that_takes_no_more_lines_is_no_runs_failure() -> None:
    """``trackers sync > file`` on a full disk says that once, and of no run."""
    runs(1)
    command = [sys.executable, "-m", "trackers", "sync", "--json"]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (1, "trackers: standard output: No space left on device\n")
