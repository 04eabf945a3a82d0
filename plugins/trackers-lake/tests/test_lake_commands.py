"""``trackers lake``: what it says, and how commands take a lake as a source."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.analysis.support import write_run
from trackers.cli.app import app
from trackers.object_storage.shipping import Sender
from trackers.object_storage.store import Store


def run_cli(*arguments: str) -> Result:
    """The command line, in this process."""
    return CliRunner().invoke(app, list(arguments))


@pytest.fixture
def lake() -> str:
    """A lake of two runs."""
    for number in range(2):
        write_run(f"r{number}", [(step, step, {"loss": 1 / (step + 1) + number}) for step in range(6)])
    done = run_cli("lake", "add", "runs", "lake")
    assert done.stdout == "runs: 2 added, 0 unchanged; numbers: 12 added\n"
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


def test_store_without_runs_is_named(tmp_path: Path) -> None:
    """Rather than the directory in which runs would lie without one."""
    done = run_cli("lake", "add", f"file://{tmp_path}/store", "lake")
    assert str(done.exception) == f"no runs in file://{tmp_path}/store"


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


def test_tables_are_listed(lake: str) -> None:
    """Each with its runs, rows, files and version."""
    found = {one["table"]: one for one in json.loads(run_cli("lake", "ls", "lake", "--json").stdout)}
    assert (found["metrics"]["runs"], found["metrics"]["rows"], found["metrics"]["files"]) == (2, 12, 1)
    assert (found["system"]["runs"], found["system"]["version"]) == (0, -1)
    assert run_cli("lake", "ls", "lake").stdout.splitlines()[0].split() == [
        "table", "runs", "rows", "files", "size", "version",
    ]  # fmt: skip


@pytest.mark.heavy
def test_runs_are_removed_once_it_is_said(lake: str) -> None:
    """Without --yes nothing changes; what isn't there is named; vacuum deletes the files."""
    done = run_cli("lake", "rm", "lake", "r0")
    assert done.stdout == "1 runs to remove: digits/r0; nothing was changed; add --yes to do it\n"
    assert run_cli("lake", "rm", "lake", "r0", "--yes").stdout.startswith("1 runs removed: digits/r0\n")
    assert json.loads(run_cli("lake", "ls", "lake", "--json").stdout)[0]["runs"] == 1
    assert "has no run 'r0'" in str(run_cli("lake", "rm", "lake", "r0", "--yes").exception)
    assert "needs runs, or --gone" in str(run_cli("lake", "rm", "lake").exception)
    assert len(json.loads(run_cli("lake", "vacuum", "lake", "--older-than", "0", "--json").stdout)["files"]) > 0
    assert run_cli("lake", "vacuum", "lake", "--older-than", "0").stdout == "0 files deleted, 0 B\n"


@pytest.mark.heavy
def test_runs_that_were_pruned_can_be_removed(lake: str) -> None:
    """Those whose directory has gone; an unmounted disk isn't taken for that."""
    shutil.rmtree("runs/digits/r1")
    assert json.loads(run_cli("lake", "rm", "lake", "--gone", "runs", "--json").stdout)["runs"] == ["digits/r1"]
    assert run_cli("lake", "rm", "lake", "--gone", "runs", "--yes").exit_code == 0
    assert run_cli("lake", "rm", "lake", "--gone", "runs").stdout == "no such runs in the lake\n"
    shutil.rmtree("runs")
    assert "no directory runs" in str(run_cli("lake", "rm", "lake", "--gone", "runs").exception)


@pytest.mark.heavy
def test_files_are_joined(lake: str) -> None:
    """Files before and after, table by table."""
    write_run("r2", [(0, 0, {"loss": 1.0})])
    run_cli("lake", "add", "runs", "lake")
    found = json.loads(run_cli("lake", "compact", "lake", "--json").stdout)
    assert found["metrics"] == {"before": 2, "after": 1}
    assert "metrics: 1 files, now 1" in run_cli("lake", "compact", "lake").stdout


def test_runs_of_a_store_go_into_a_lake(tmp_path: Path) -> None:
    """A store's address is a source here, and so is the directory that --dir names."""
    write_run("r0", [(0, 0, {"loss": 1.0})])
    Store(f"file://{tmp_path}/store").put("digits/r0/run.json", Path("runs/digits/r0/run.json").read_bytes())
    sender = Sender(Store(f"file://{tmp_path}/store"), Path("runs/digits/r0").absolute(), "digits/r0")
    sender.finish()
    done = run_cli("lake", "add", f"file://{tmp_path}/store", "lake")
    assert done.stdout == "runs: 1 added, 0 unchanged; numbers: 1 added\n", done.output
    assert run_cli("lake", "add", "--dir", "runs", "other").stdout == "runs: 1 added, 0 unchanged; numbers: 1 added\n"
