"""``trackers tables``: a run's tables listed, printed, written to files, put side by side, and what differs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.analysis.support import T0, said_in_one_line, write_run
from trackers.cli.app import app
from trackers.records import Media, MediaFile

IMAGE = {"_type": "image", "format": "npy", "file": "media/0a.npy", "caption": "a \x1b[2J four"}
ROWS = [[0, "cat", 0.25, IMAGE], [1, "dog\n\x1b[31mred", 4.0, IMAGE], [2, "=1+1", "NaN", None]]


def run_cli(*words: str) -> Result:
    """A command, as typer runs it."""
    return CliRunner().invoke(app, ["tables", *words], catch_exceptions=False)


def table(step: int | None, rows: list[list[Any]], name: str = "predictions") -> Media:
    """A record of a table."""
    data = {"columns": ["id", "answer", "loss", "image"], "rows": rows}
    return Media(name=name, type="table", items=[MediaFile(format="json", data=data)], step=step, time=T0)


@pytest.fixture(autouse=True)
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs with tables, and one without."""
    monkeypatch.chdir(tmp_path)
    broken = Media(name="broken", type="table", items=[MediaFile(format="json", file="media/1.json")], time=T0)
    write_run("one", more=[table(1, ROWS[:2]), table(2, ROWS), broken])
    write_run(
        "two", more=[table(2, [[0, "cat", 0.5, IMAGE], [1, "dog\n\x1b[31mred", 4.0, IMAGE], [7, "new", 1.0, None]])]
    )
    write_run("none")


def test_tables_of_a_run_are_listed() -> None:
    """By name: how often, at which steps, and what the last one holds; one that can't be read says why."""
    result = run_cli("one")
    assert result.exit_code == 0
    head, first, second = result.stdout.splitlines()
    assert head.split() == ["table", "logged", "steps", "rows", "columns"]
    assert first.split() == ["predictions", "2", "1", "to", "2", "3", "id,", "answer,", "loss,", "image"]
    assert "media/1.json can't be read" in second
    found = json.loads(run_cli("ls", "one", "--json").stdout)
    assert found[0] == {
        "name": "predictions", "count": 2, "steps": [1, 2], "rows": 3,
        "columns": {"id": "integer", "answer": "text", "loss": "number", "image": "media"},
    }  # fmt: skip
    result = run_cli("none")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "has no tables" in result.stderr


def test_table_is_printed() -> None:
    """The last one or of a step; of all steps with a column; no escape sequence of a cell reaches the terminal."""
    result = run_cli("one", "predictions")
    assert result.stdout.splitlines()[0].split() == ["id", "answer", "loss", "image"]
    assert "\x1b" not in result.stdout
    assert len(result.stdout.splitlines()) == 4
    assert len(run_cli("one", "predictions", "--step", "1").stdout.splitlines()) == 3
    every = json.loads(run_cli("one", "predictions", "--step", "all", "--json").stdout)
    assert [row["step"] for row in every] == [1, 1, 2, 2, 2]
    assert every[0]["image"] == {"type": "image", "file": "media/0a.npy", "format": "npy", "caption": "a \x1b[2J four"}
    assert every[4]["loss"] == "NaN"


def test_rows_are_chosen_and_sorted() -> None:
    """By a search, a column, a number; what isn't shown is said."""
    result = run_cli(
        "one", "predictions", "--where", "loss>0", "--sort", "-loss", "--columns", "l*,id", "--format", "csv"
    )
    assert result.stdout.splitlines() == ["loss,id", "4.0,1", "0.25,0"]
    result = run_cli("one", "predictions", "-n", "1")
    assert "the first 1 of 3 rows" in result.stderr
    result = run_cli("one", "predictions", "--where", "nothing")
    assert "no rows" in result.stderr


def test_table_is_written_to_a_file(tmp_path: Path) -> None:
    """Whole, its form told by the ending; texts as they are; nothing is replaced unasked."""
    import pyarrow.parquet as pq

    assert "Saved t.csv" in run_cli("one", "predictions", "-o", "t.csv").stdout
    assert '1,"dog\n\x1b[31mred",4.0,media/0a.npy' in (tmp_path / "t.csv").read_text()
    run_cli("one", "predictions", "-o", "t.parquet")
    assert pq.read_table("t.parquet").column("id").to_pylist() == [0, 1, 2]
    run_cli("one", "predictions", "-o", "t.json")
    assert len(json.loads((tmp_path / "t.json").read_text())) == 3
    assert "| id |" in run_cli("one", "predictions", "--format", "markdown").stdout


@pytest.mark.heavy
def test_differences_are_printed() -> None:
    """How many rows, each column's change, then the rows; the largest change first where that is asked for."""
    result = run_cli("diff", "one", "two", "predictions", "--on", "id")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].startswith("- one (")
    assert lines[0].endswith("predictions at step 2, 3 rows")
    assert lines[2] == "rows: 1 changed, 1 added, 1 removed, 1 the same"
    assert next(line.split() for line in lines if line.startswith("loss")) == [
        "loss",
        "1",
        "2.125",
        "2.25",
        "0.125",
        "0.25",
    ]
    assert "\x1b" not in result.stdout
    found = json.loads(
        run_cli("diff", "one", "two", "predictions", "--on", "id", "--json", "--where", "state:chan").stdout
    )
    assert (found["changed"], found["added"], found["removed"]) == (1, 1, 1)
    assert found["rows"] == [{"state": "changed", "id": 0, "loss -": 0.25, "loss +": 0.5, "loss change": 0.25}]
    result = run_cli("diff", "one", "one", "predictions")
    assert "rows: 0 changed, 0 added, 0 removed, 3 the same" in result.stdout
    assert (
        len(run_cli("diff", "one", "two", "predictions", "--on", "id", "--all", "--format", "csv").stdout.splitlines())
        == 5
    )


def test_tables_are_put_side_by_side() -> None:
    """Of any number of runs, by key."""
    result = run_cli("join", "one", "two", "predictions", "--on", "id", "--columns", "id,loss*", "--format", "csv")
    assert result.stdout.splitlines() == ["id,loss (one),loss (two)", "0,0.25,0.5", "1,4.0,4.0", "2,NaN,", "7,,1.0"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["one", "prediction"], "has no table 'prediction': did you mean 'predictions'?"),
        (["one", "predictions", "--step", "9"], "wasn't logged at step 9; its steps: 1, 2"),
        (["one", "predictions", "--step", "x"], "--step takes a number or all, not 'x'"),
        (["one", "predictions", "--sort", "los"], "no column 'los': did you mean 'loss'?"),
        (["one", "predictions", "--columns", "nothing"], "no column 'nothing'"),
        (["one", "predictions", "--format", "parquet"], "parquet is written to a file"),
        (["one", "predictions", "--format", "xlsx"], "unknown format 'xlsx'"),
        (["one", "predictions", "-o", "x.doc"], "the file's ending must be one of"),
        (["one", "--where", "x"], "--where is for one table: name it"),
        (["one", "broken"], "media/1.json can't be read"),
        (["join", "predictions"], "which runs, and which table?"),
        (["diff", "one", "two", "predictions", "--on", "ident"], "no column 'ident'"),
        (["nobody"], "'nobody'"),
    ],
    ids=lambda value: " ".join(value)[:30] if isinstance(value, list) else "",
)
def test_wrong_use_is_one_line(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says what is known."""
    code, error = said_in_one_line(["tables", *words], capsys, monkeypatch)
    assert code in (1, 2)
    assert said in error
