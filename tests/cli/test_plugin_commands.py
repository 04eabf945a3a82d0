"""Commands of plug-ins stand beside ours, and what is wrong with one stops nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from trackers.cli.app import app
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
    )
    monkeypatch.syspath_prepend(tmp_path / "site")


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
