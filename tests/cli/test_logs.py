"""``trackers logs``: what a run printed, from its journal, its spools and other sources."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.helpers import T0, begun_run
from trackers.cli import logs
from trackers.cli.app import app
from trackers.errors import UsageError
from trackers.journal.console_spool import ConsoleSpool
from trackers.journal.run_directory import RunDirectory, StreamName
from trackers.journal.stream import StreamWriter
from trackers.records import Console, Finish, Record, encode


def run_cli(*arguments: str) -> Result:
    """The command line, in this process."""
    return CliRunner().invoke(app, list(arguments))


def written(run: RunDirectory, rank: int, *found: Record) -> None:
    """Append to a rank's console."""
    writer = StreamWriter(run.stream(StreamName("console", rank, 1)))
    writer.write(b"".join(map(encode, found)))
    writer.release()


def ended(run: RunDirectory) -> None:
    """The run says that it has finished."""
    writer = StreamWriter(run.stream(StreamName("rank", 0, 1)))
    writer.write(encode(Finish(time=T0 + 100, status="finished", exit_code=0)))
    writer.release()


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """A run whose main rank printed on both streams, and another rank a line."""
    directory, writer = begun_run(tmp_path / "runs/digits/abcd1234")
    writer.release()
    written(
        directory,
        0,
        Console(time=T0, lines=["one", "two"], source="stdout"),
        Console(time=T0 + 2, lines=["10%"], stream="stderr", source="stderr", partial=True),
        Console(time=T0 + 3, lines=["careful \x1b[31m"], stream="stderr", source="stderr"),
        Console(time=T0 + 4, lines=["50%"], stream="stderr", source="stderr", partial=True),
    )
    written(directory, 1, Console(time=T0 + 1, lines=["other"], rank=1, source="stdout.1"))
    ended(directory)
    return directory


def test_lines_of_all_ranks_are_printed_by_time(run: RunDirectory) -> None:
    """A bar that goes on is there as it was last; escape sequences are not obeyed."""
    assert run_cli("logs", "latest").stdout.splitlines() == [
        "[rank 0] one",
        "[rank 0] two",
        "[rank 1] other",
        "[rank 0] careful \N{REPLACEMENT CHARACTER}[31m",
        "[rank 0] 50%",
    ]


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (["--rank", "1"], ["other"]),
        (["--stderr", "-n", "1"], ["50%"]),
        (["--stdout", "--rank", "0"], ["one", "two"]),
        (["-n", "0"], []),
    ],
)
def test_options_choose_lines(run: RunDirectory, options: list[str], wanted: list[str]) -> None:
    """By rank, stream and number."""
    assert run_cli("logs", "latest", *options).stdout.splitlines() == wanted


def test_json_has_all_of_each_line(run: RunDirectory) -> None:
    """An object a line."""
    found = [json.loads(line) for line in run_cli("logs", "latest", "--json", "-n", "3").stdout.splitlines()]
    assert found[0] == {"time": T0 + 1, "stream": "stdout", "rank": 1, "text": "other"}
    assert found[1]["text"] == "careful \x1b[31m"


def test_times_begin_lines(run: RunDirectory) -> None:
    """Local times, to the second."""
    (line,) = run_cli("logs", "latest", "--times", "--rank", "1").stdout.splitlines()
    assert line.endswith(" other")
    assert len(line) == len("2025-11-21 01:20:01 other")


def test_what_no_relay_has_collected_is_printed(run: RunDirectory) -> None:
    """Folded and masked, and left where it is."""
    spool = ConsoleSpool(run.console, 0, 1, "stdout", 1 << 30)
    spool.add("late hf_abcdefghijklmnopqrstuvwxyzabcdefgh\nunended")
    spool.flush()
    assert run_cli("logs", "latest", "--rank", "0").stdout.splitlines()[-2:] == ["late ***", "unended"]
    assert len(list(run.console.iterdir())) == 2


def test_both_streams_at_once_is_said_to_be_the_default(run: RunDirectory) -> None:
    """Two options that exclude each other are an error."""
    assert isinstance(run_cli("logs", "latest", "--stdout", "--stderr").exception, UsageError)


def test_rank_that_printed_nothing_is_said(run: RunDirectory) -> None:
    """With those that did; any number of lines may be asked for."""
    found = run_cli("logs", "latest", "--rank", "7", "-n", "9" * 30)
    assert (found.exit_code, found.stdout) == (0, "")
    assert found.stderr == "trackers: rank 7 printed nothing; these did: 0, 1\n"


def test_run_that_printed_nothing_has_no_lines(tmp_path: Path) -> None:
    """Nor an error."""
    begun_run(tmp_path / "runs/digits/abcd1234")[1].release()
    found = run_cli("logs", "latest")
    assert (found.exit_code, found.stdout) == (0, "")


def test_follow_prints_what_comes_until_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line once, the last ones too."""
    directory, writer = begun_run(tmp_path / "runs/digits/abcd1234")
    writer.release()
    written(directory, 0, Console(time=T0, lines=["first"]))
    looks = 0

    def look(_: float) -> None:
        nonlocal looks
        looks += 1
        written(directory, 0, Console(time=T0 + looks, lines=[f"line {looks}"]))
        if looks == 3:
            ended(directory)

    monkeypatch.setattr(logs.time, "sleep", look)
    monkeypatch.setattr("trackers.journal.status._unfinished_status", lambda run: logs_running())
    found = run_cli("logs", "latest", "--follow")
    assert found.stdout.splitlines() == ["first", "line 1", "line 2", "line 3"]


def logs_running() -> object:
    """A run that goes on."""
    from trackers.tracker import Status

    return Status("running", time=T0)


def test_follow_needs_a_run_of_ours(tmp_path: Path) -> None:
    """Another source is read as it is."""
    file = tmp_path / "a.csv"
    file.write_text("step,loss\n1,1.0\n")
    assert run_cli("logs", f"csv:{file}").exit_code == 0
    assert isinstance(run_cli("logs", f"csv:{file}", "--follow").exception, UsageError)


def test_show_names_the_command_where_there_is_something(run: RunDirectory, tmp_path: Path) -> None:
    """A run that printed nothing has no such line."""
    assert "  console    trackers logs abcd1234" in run_cli("show", "latest").stdout.splitlines()
    begun_run(tmp_path / "runs/digits/silent")[1].release()
    assert "console" not in run_cli("show", "silent").stdout
