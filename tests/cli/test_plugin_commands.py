"""Commands of plug-ins stand beside ours, and what is wrong with one stops nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from trackers.cli.app import app, commands
from trackers.errors import UsageError

MODULE = """
import typer

app = typer.Typer(help="Look after the toy store.")

@app.command()
def vacuum(dry: bool = False) -> None:
    "Give space back."
    print("vacuumed", dry)

@app.command()
def count() -> None:
    "Count rows."
    print(3)

one = typer.Typer()

@one.command()
def alone(name: str) -> None:
    "Say a name."
    print("alone", name)

def columns(file):
    '''Names of the columns,
    a line each.

    More of it.
    '''
    print("columns", file)
"""


@pytest.fixture
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = tmp_path / "site/trackers_toy-1.dist-info"
    metadata.mkdir(parents=True)
    (tmp_path / "site/trackers_toy_commands.py").write_text(MODULE)
    (tmp_path / "site/trackers_bad_commands.py").write_text("raise ValueError('bad luck')\n")
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: trackers-toy\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(
        "[trackers.commands]\ntoy = trackers_toy_commands:app\none = trackers_toy_commands:one\n"
        "bad = trackers_bad_commands:app\nodd = trackers_toy_commands:vacuum\nls = trackers_toy_commands:app\n"
        "benchmark.toy = trackers_toy_commands:one\nbenchmark.compare = trackers_toy_commands:one\n"
        "[trackers.flags]\ntoy-columns = trackers_toy_commands:columns\nbad-flag = trackers_bad_commands:columns\n"
        "odd-flag = trackers_toy_commands:one\njson = trackers_toy_commands:columns\n"
    )
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.setattr(commands, "_built", {})


@pytest.mark.usefixtures("_installed")
def test_commands_run_and_are_listed() -> None:
    """Several under the plug-in's name, one alone as itself; help and the program's list show them."""
    runner = CliRunner()
    assert runner.invoke(app, ["toy", "vacuum", "--dry"]).output == "vacuumed True\n"
    assert runner.invoke(app, ["toy", "count"]).output == "3\n"
    assert runner.invoke(app, ["one", "it"]).output == "alone it\n"
    assert "Give space back." in runner.invoke(app, ["toy", "--help"]).output
    listed = runner.invoke(app, ["--help"])
    assert listed.exit_code == 0
    assert "Look after the toy store" in listed.output


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("bad", "command 'bad' of trackers-toy can't be loaded from 'trackers_bad_commands:app': ValueError: bad luck"),
        ("odd", "command 'odd' of trackers-toy: 'trackers_toy_commands:vacuum' is no typer.Typer: see docs/plugins.md"),
    ],
)
def test_command_that_is_broken_says_so_when_it_is_run(name: str, line: str) -> None:
    """One line that names its distribution; the list of commands names it, too, and goes on."""
    done = CliRunner().invoke(app, [name, "--whatever", "it"])
    assert isinstance(done.exception, UsageError)
    assert str(done.exception) == line
    assert CliRunner().invoke(app, ["--help"]).exit_code == 0


@pytest.mark.usefixtures("_installed")
def test_a_name_of_ours_stays_ours() -> None:
    """``trackers ls`` lists runs, whatever a plug-in calls its own."""
    assert "runs" in CliRunner().invoke(app, ["ls", "--help"]).output
    assert "vacuum" not in CliRunner().invoke(app, ["ls", "--help"]).output


@pytest.mark.usefixtures("_installed")
def test_command_of_a_group_of_ours_stands_in_it() -> None:
    """``benchmark.toy`` is ``trackers benchmark toy``; a name that the group has stays ours, and ``doctor`` says so."""
    runner = CliRunner()
    assert runner.invoke(app, ["benchmark", "toy", "it"]).output == "alone it\n"
    listed = runner.invoke(app, ["benchmark", "--help"]).output
    assert "Say a name." in listed
    assert "Compare benchmark results" in listed
    assert "Say a name." not in runner.invoke(app, ["--help"]).output
    found = {check["name"]: check["text"] for check in json.loads(runner.invoke(app, ["doctor", "--json"]).stdout)}
    assert found["plug-in trackers-toy, commands benchmark.compare"] == "ignored: 'benchmark.compare' is built in"
    assert "plug-in trackers-toy, commands benchmark.toy" not in found


@pytest.mark.usefixtures("_installed")
def test_flag_is_one_of_all_commands_that_take_sources() -> None:
    """Its function gets all that was given, before a source is read; help shows it with its docstring's beginning."""
    Path("a.csv").write_text("step,loss\n1,0.5\n")
    runner = CliRunner(env={"COLUMNS": "200", "TERMINAL_WIDTH": "200"})
    for command in ("show", "keys", "compare"):
        done = runner.invoke(app, [command, "--toy-columns", "a", "csv:a.csv", "--toy-columns", "b"])
        assert done.exit_code == 0, done.output
        assert done.output.startswith("columns ['a', 'b']\n")
        shown = " ".join(runner.invoke(app, [command, "--help"]).output.split())
        assert re.search(r"--toy-columns +FILE +Names of the columns, a line each\.", shown)
        assert "More of it" not in shown
    assert "columns" not in runner.invoke(app, ["show", "csv:a.csv", "--json"]).output  # a flag of ours stays ours
    assert "--toy-columns" not in runner.invoke(app, ["doctor", "--help"]).output


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("bad-flag", "can't be loaded from 'trackers_bad_commands:columns': ValueError: bad luck"),
        (
            "odd-flag",
            "'trackers_toy_commands:one' is no function of one parameter with a docstring: see docs/plugins.md",
        ),
    ],
)
def test_flag_that_is_broken_says_so_when_it_is_given(name: str, line: str) -> None:
    """One line that names its distribution, also of ``doctor``; commands go on without it."""
    Path("a.csv").write_text("step,loss\n1,0.5\n")
    assert CliRunner().invoke(app, ["show", "csv:a.csv"]).exit_code == 0
    done = CliRunner().invoke(app, ["show", "csv:a.csv", f"--{name}", "x"])
    assert isinstance(done.exception, UsageError)
    assert re.fullmatch(f"flag '--{name}' of trackers-toy:? {re.escape(line)}", str(done.exception))
    found = json.loads(CliRunner().invoke(app, ["doctor", "--json"]).stdout)
    assert [check["text"] for check in found if check["name"] == f"plug-in trackers-toy, flags {name}"] == [
        str(done.exception)
    ]
