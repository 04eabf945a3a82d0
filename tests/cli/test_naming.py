"""Commands take runs by the same references: a project, a pattern, the newest of a project, a condition."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.analysis.support import T0, write_run
from trackers.cli import sync
from trackers.cli.app import app
from trackers.errors import NotFound, TrackersError, UsageError


def run_cli(*arguments: str) -> Result:
    """The command line, in this process."""
    return CliRunner().invoke(app, list(arguments))


@pytest.fixture(autouse=True)
def runs() -> None:
    """Three runs of a project, one of another."""
    for number, rate in enumerate((0.1, 0.01, 0.001)):
        write_run(
            f"run{number}", [(1, 1, {"val_loss": rate})], name=f"lr{rate}", config={"lr": rate}, created=T0 + number
        )
    write_run("other", [(1, 1, {"val_loss": 9.0})], project="second", config={"lr": 5.0})


def names(*words: str) -> list[str]:
    """The names of the runs that ``compare`` compares."""
    done = run_cli("compare", *words, "--json")
    assert done.exit_code == 0, done.output or done.exception
    return [run["run_name"] for run in json.loads(done.stdout)["runs"]]


@pytest.mark.parametrize(
    ("reference", "found"),
    [
        ("lr0.0*", ["lr0.001", "lr0.01"]),
        ("where:config.lr < 0.05", ["lr0.001", "lr0.01"]),
        ("where:project == 'second'", ["other"]),
        ("where:last.val_loss > 0.05 and project == 'digits'", ["lr0.1"]),
        ("digits", ["lr0.001", "lr0.01", "lr0.1"]),
    ],
)
def test_compare_takes_patterns_projects_and_conditions(reference: str, found: list[str]) -> None:
    """Each form names its runs, the newest first."""
    assert names(reference) == found


def test_conditions_and_names_together_name_each_run_once() -> None:
    """A run that two references name is there once."""
    assert names("lr0.1", "where:config.lr < 1 and config.lr > 0.005") == ["lr0.1", "lr0.01"]


SINGLE: tuple[list[str], ...] = (
    ["show", "{}"], ["argv", "{}"], ["diff", "{}", "lr0.1"], ["files", "{}"], ["get", "{}", "x"],
)  # fmt: skip
MANY: tuple[list[str], ...] = (
    ["compare", "{}"], ["report", "{}"], ["plot", "{}", "--json"], ["keys", "{}"],
    ["best", "{}", "--metric", "val_loss", "-n", "9"], ["sql", "select name from runs", "{}"], ["archive", "{}"],
    ["restore", "{}"], ["prune", "{}"], ["copy", "{}", "csv:copied"], ["sync", "{}", "--to", "csv"], ["ls", "{}"],
)  # fmt: skip


def given(words: list[str], reference: str) -> Result:
    """A command with a reference in its place."""
    return run_cli(*(reference if word == "{}" else word for word in words))


@pytest.mark.heavy
@pytest.mark.parametrize("words", [*SINGLE, *MANY], ids=lambda words: words[0])
def test_every_command_says_what_is_near(words: list[str]) -> None:
    """A wrong name is one line with the nearest, in every command; so is a condition that no run fulfils."""
    for reference, said in (("lr0.2", "did you mean 'lr0.1'"), ("where:config.lr > 99", "none of 4 runs fulfils")):
        done = given(words, reference)
        assert isinstance(done.exception, NotFound), (done.output, done.exception)
        assert said in str(done.exception)
    assert isinstance(given(words, "where:lr >").exception, UsageError)


@pytest.mark.parametrize("words", [words for words in SINGLE if words[0] != "get"], ids=lambda words: words[0])
def test_commands_of_one_run_take_every_reference_to_one(words: list[str]) -> None:
    """The newest of a project, a pattern and a condition that fit one run; of several they ask for one."""
    for reference in ("second/latest", "digits/run1", "lr0.00*", "where:config.lr == 0.01"):
        done = given(words, reference)
        assert not isinstance(done.exception, UsageError), (reference, done.exception)
    for reference in ("digits", "where:config.lr < 1"):
        assert "names 3 runs" in str(given(words, reference).exception)


@pytest.mark.heavy
@pytest.mark.parametrize(
    "words",
    [pytest.param(words, marks=[pytest.mark.processes] if words[0] == "sync" else []) for words in MANY],
    ids=lambda words: words[0],
)
def test_commands_of_many_runs_take_projects_patterns_and_conditions(words: list[str]) -> None:
    """What names several runs is all of them."""
    for reference in ("digits", "lr*", "where:project == 'digits'"):
        sync._printed.clear()  # lines that it has printed before in this process
        done = given(words, reference)
        assert not isinstance(done.exception, TrackersError), (reference, done.exception)
        shown = done.output
        assert all(f"lr{rate}" in shown or f"run{number}" in shown for number, rate in enumerate((0.1, 0.01))), shown


@pytest.mark.parametrize("option", ["--keys", "--metrics"])
@pytest.mark.parametrize("command", ["compare", "plot"])
def test_metrics_are_chosen_by_the_same_options(command: str, option: str) -> None:
    """Whichever of the two names somebody knows from another command."""
    done = run_cli(command, "digits", option, "val_*")
    assert done.exit_code == 0, done.output or done.exception
    assert "val_loss" in done.output


def test_follow_of_a_project_takes_its_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    """``sync --follow PROJECT`` follows the project's directory, where new runs will lie; a pattern the runs."""
    seen: list[list[Path]] = []

    class Follower:
        def __init__(self, places: list[Path], *_: Any, **__: Any) -> None:
            seen.append(places)

        def serve(self, _: object) -> bool:
            return True

    monkeypatch.setattr("trackers.relay.sync.Follower", Follower)
    for reference in ("digits", "lr0.0*"):
        run_cli("sync", reference, "--follow")
    assert [sorted(map(str, places)) for places in seen] == [
        ["runs/digits"], ["runs/digits/run1", "runs/digits/run2"],
    ]  # fmt: skip
