"""The Tab key: what shells are offered, by the functions that the program gives them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests import ROOT
from tests.analysis.support import T0, write_run
from trackers.cli.app import app
from trackers.records import ArtifactRecord, Media, MediaFile


@pytest.fixture(autouse=True)
def runs() -> None:
    """Runs with a result, of two projects; two share a name; one has a name that a shell would obey."""
    item = MediaFile(format="json", data={})
    media = [Media(time=T0, step=1, name=name, type=kind, items=[item])
             for name, kind in (("samples/x", "histogram"), ("sampled", "table"))]  # fmt: skip
    for number, name in enumerate(("rate0.1", "rate0.01", "same", "same", "$(touch evil)", "`x`", "a b", "-rf")):
        write_run(f"run{number}", [(1, 1, {"val_loss": 1.0, "acc": 0.5})], summary={"best": 1.0}, name=name,
                  config={"lr": 1}, created=T0 + number, more=media if number == 0 else ())  # fmt: skip
    artifact = ArtifactRecord(time=T0, name="dataset", type="dataset")
    write_run("other", [(1, 1, {"val_loss": 1.0})], project="second", more=[artifact])


def offered(*words: str) -> list[str]:
    """What bash is offered for the last word."""
    environ = {
        "_TRACKERS_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(["trackers", *words]),
        "COMP_CWORD": str(len(words)),
    }  # fmt: skip
    shown = CliRunner().invoke(app, [], prog_name="trackers", env=environ).stdout
    return [line for line in shown.splitlines() if line]


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["show", "rate"], ["rate0.01", "rate0.1"]),
        (["show", "run2"], ["run2"]),
        (["show", "digits/run1"], ["digits/run1"]),
        (["show", "second/"], ["second/latest", "second/other"]),
        (["compare", "rate0.1", "la"], ["latest"]),
        (["sync", "sec"], ["second"]),
        (["plot", "dig"], ["digits"]),
        (["ls", "--project", ""], ["digits", "second"]),
        (["ls", "--status", "finished,f"], ["finished,finished", "finished,failed"]),
        (["ls", "--sort", "v"], ["val_loss"]),
        (["ls", "--columns", "name,fin"], ["name,final/best"]),
        (["ls", "--sort", "conf"], ["config.lr"]),
        (["compare", "digits", "--columns", "acc,conf"], ["acc,config.lr"]),
        (["ls", "dig"], ["digits"]),
        (["get", "run0", "samples/x", "samples"], ["samples/x"]),
        (["compare", "digits", "--by", "con"], ["config.lr"]),
        (["compare", "digits", "--by", "s"], ["seed"]),
        (["compare", "digits", "--keys", "a"], ["acc"]),
        (["compare", "digits", "--format", "m"], ["markdown"]),
        (["best", "--metric", "fin"], ["final/best"]),
        (["plot", "digits", "--panel", "b"], ["benchmark"]),
        (["plot", "digits", "--x", ""], ["step", "time", "tokens"]),
        (["sync", "latest", "--to", "csv,tens"], ["csv,tensorboard"]),
        (["get", "run0", "samples"], ["samples/x"]),
        (["get", "nothing", "sam"], []),
        (["tables", "run0", "sam"], ["sampled"]),
        (["tables", "diff", "run0", "run1", "sam"], ["sampled"]),
        (["artifacts", "get", "data"], ["dataset"]),
        (["artifacts", "ge"], ["get"]),
        (["artifacts", "rm", "digits/da"], []),
        (["defconfig", "all-l"], ["all-local"]),
        (["show-config", "--defconfig", "all-l"], ["all-local"]),
        (["comp"], ["compare"]),
        (["ls", "--stat"], ["--status"]),
    ],
    ids=" ".join,
)
def test_words_are_offered(words: list[str], expected: list[str]) -> None:
    """Runs, projects, metrics, columns, panels, defconfigs, trackers, commands and options."""
    assert offered(*words) == expected


def test_shared_names_are_offered_as_ids() -> None:
    """A name that two runs have names neither: their ids are offered."""
    found = offered("show", "")
    assert "same" not in found
    assert {"run2", "run3", "latest", "digits", "second"} <= set(found)


def test_names_that_a_shell_would_obey_are_not_offered() -> None:
    """Names with spaces, quotes and substitutions, and those that would be options, are left out."""
    assert not [word for word in offered("show", "") if not word.replace(".", "").replace("/", "").isalnum()]


def test_dir_says_where_runs_lie(tmp_path: Path) -> None:
    """--dir before the word counts; a directory that isn't there offers nothing."""
    Path("runs").rename(tmp_path / "elsewhere")
    assert offered("show", "rate") == []
    assert offered("show", "--dir", str(tmp_path / "elsewhere"), "rate") == ["rate0.01", "rate0.1"]


@pytest.mark.slow
def test_completion_in_a_real_bash(tmp_path: Path) -> None:
    """bash loads what the program prints, calls its function, and has the words."""
    bash = shutil.which("bash")
    assert bash is not None
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "trackers").write_text(f"#!{sys.executable}\nfrom trackers.cli import main\n\nmain()\n")
    (folder / "trackers").chmod(0o755)
    text = """
        eval "$(_TRACKERS_COMPLETE=source_bash trackers)"
        complete -p trackers
        COMP_WORDS=(trackers show rate); COMP_CWORD=2
        _trackers_completion trackers rate show
        printf 'offered %s\\n' "${COMPREPLY[@]}"
    """
    environ = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([bash, "--norc", "-c", text], env=environ, capture_output=True, text=True, check=True)
    assert "_trackers_completion" in done.stdout
    assert [line for line in done.stdout.splitlines() if line.startswith("offered")] == [
        "offered rate0.01",
        "offered rate0.1",
    ]
    assert not Path("evil").exists()


@pytest.mark.parametrize(("shell", "line"), [("zsh", '"rate0.1":"finished"'), ("fish", "rate0.1\tfinished")])
def test_other_shells_get_their_form(shell: str, line: str) -> None:
    """zsh and fish get the status beside the name."""
    environ = {
        "_TRACKERS_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": "trackers show rate",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args", "_TYPER_COMPLETE_WORD_TO_COMPLETE": "rate",
    }  # fmt: skip
    assert line in CliRunner().invoke(app, [], prog_name="trackers", env=environ).stdout
