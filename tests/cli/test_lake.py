"""``trackers lake``: what it says, and how commands take a lake as a source."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.analysis.support import write_run
from trackers.cli.app import app


def run_cli(*arguments: str) -> Result:
    """The command line, in this process."""
    return CliRunner().invoke(app, list(arguments))


@pytest.fixture
def lake() -> str:
    """A lake of two runs."""
    for number in range(2):
        write_run(f"r{number}", [(step, step, {"loss": 1 / (step + 1) + number}) for step in range(6)])
    done = run_cli("lake", "add", "runs", "lake")
    assert done.stdout == "2 runs added with 12 numbers; 0 unchanged\n"
    return "lake:lake"


def test_add_says_what_it_did(lake: str) -> None:
    """Runs, numbers and what was left out, in words and as JSON; exit code 1 where something was left out."""
    write_run("r2", [(0, 0, {"loss": 1.0})])
    write_run("bad")
    Path("runs/digits/bad/streams/rank-0.1.jsonl").write_bytes(b"")
    Path("runs/digits/bad/run.json").write_bytes(b"{")
    answer = json.loads(run_cli("lake", "add", "runs", "lake", "--json").stdout)
    assert answer["added"] == ["digits/r2"]
    assert answer["values"] == 1


def test_add_needs_two_places() -> None:
    """The lake's place comes last."""
    done = run_cli("lake", "add", "runs")
    assert "needs runs and a place" in str(done.exception)


@pytest.mark.parametrize("command", ["best --metric loss", "compare", "report", "keys"])
def test_commands_read_a_lake(lake: str, command: str) -> None:
    """Without a word about it, like any other source."""
    source = f"{lake}#r0" if command == "keys" else lake
    done = run_cli(*command.split(), source)
    assert done.exit_code == 0, done.output
    assert "r0" in done.stdout


def test_sql_reads_a_lake(lake: str) -> None:
    """The source is named after the query."""
    query = "select run, min(value) as low from metrics group by run order by run"
    done = run_cli("sql", query, lake, "--format", "csv")
    assert done.stdout.splitlines() == ["run,low", "r0,0.16666666666666666", "r1,1.1666666666666667"]
