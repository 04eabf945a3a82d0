"""A wrong directory or project is named, and the right one suggested, by every command that looks for runs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.analysis.support import said_in_one_line, write_run

NAMED = ("show", "keys", "compare", "report", "plot", "best", "logs", "tables", "files", "sql", "sync", "ls")
"""Commands that take runs, with what else each needs."""
MORE = {"best": ["--metric", "loss"], "plot": ["--keys", "loss"], "sql": ["select 1"]}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory with runs of a project, in the usual place."""
    monkeypatch.chdir(tmp_path)
    for number in range(2):
        write_run(f"r{number}", [(1, 1, {"loss": 1.0})], project="digits-mlp")


@pytest.mark.parametrize("directory", ["/nope", "run"])
@pytest.mark.parametrize("command", NAMED)
def test_wrong_directory(
    command: str, directory: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each says which one it is, that it isn't there, and where runs are."""
    arguments = [command, *MORE.get(command, [] if command in ("watch", "sync", "ls") else ["r0"]), "--dir", directory]
    if command in ("best", "plot"):
        arguments.insert(1, "r0")
    monkeypatch.setattr(sys, "stdout", sys.stderr)  # `ls` of no runs is an answer, too
    _, text = said_in_one_line(arguments, capsys, monkeypatch)
    assert f"no runs in {directory}, which does not exist; 2 runs are in runs: --dir runs" in text


@pytest.mark.parametrize("command", [name for name in NAMED if name not in ("sql", "sync")])
def test_wrong_project(command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The nearest name is suggested, also where the project is the argument itself."""
    _, text = said_in_one_line([command, "digits-mpl", *MORE.get(command, [])], capsys, monkeypatch)
    assert "did you mean 'digits-mlp'?" in text
