"""``trackers_sweeps.sweep``: a sweep from Python is the command's."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from trackers_sweeps import sweep

import trackers
from trackers.errors import UsageError
from trackers.journal.run_directory import find_runs

TRAIN = """
import json, sys, trackers
words = dict(word.lstrip("-").split("=", 1) for word in sys.argv[1:])
run = trackers.init("json", project="p", config=words, mode="offline")
run.log({"val_loss": float(words["lr"]) + int(words.get("seed", 0))}, step=1)
run.finish()
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A training in an empty directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRACKER_RELAY", "n")
    Path("train.py").write_text(TRAIN)
    return [sys.executable, "train.py"]


def test_results_the_best_first(program: list[str]) -> None:
    """Each point has its run, value and journal; what has finished isn't trained again, nor by the command."""
    said: list[str] = []
    found = sweep(program, grid={"lr": (0.1, 0.01)}, seeds=2, name="rates", metric="val_loss", jobs=2, say=said.append)
    assert [(row.point, row.status, row.value) for row in found] == [
        ({"lr": lr, "seed": seed}, "finished", pytest.approx(float(lr) + seed))
        for seed in (0, 1)
        for lr in ("0.01", "0.1")
    ]
    assert found.whole
    assert found.metric == "val_loss"
    assert len(said) == 5
    assert trackers.load(found[0].directory).config["lr"] == "0.01"
    assert "<table" in found._repr_html_()
    assert "0.01" in found._repr_html_()
    again = sweep(program, grid={"lr": [0.1, 0.01]}, seeds=2, name="rates", metric="val_loss", say=said.append)
    assert [row.run for row in again] == [row.run for row in found]
    words = ["run", "--grid", "lr=0.1,0.01", "--seeds", "2", "--name", "rates", "--metric", "val_loss", "--", *program]
    told = subprocess.run([sys.executable, "-m", "trackers", *words], capture_output=True, text=True, check=True)
    assert len(list(find_runs(Path("runs")))) == 4
    assert found[0].run in told.stdout.splitlines()[1]


def test_values_arrive_as_they_are(program: list[str]) -> None:
    """Commas, quotes and brackets of a value need no notation of their own; lists are JSON's."""
    texts: list[Any] = ["a,b", "it's", 'say "x"', "[1", [64, 64], True]
    Path("train.py").write_text(TRAIN.replace('float(words["lr"]) + int(words.get("seed", 0))', "1.0"))
    found = sweep(program, grid={"lr": texts}, say=lambda line: None)
    assert {row.point["lr"] for row in found} == {"a,b", "it's", 'say "x"', "[1", "[64, 64]", "True"}
    assert {trackers.load(row.directory).config["lr"] for row in found} == {row.point["lr"] for row in found}


def test_in_another_thread(program: list[str]) -> None:
    """A notebook's or a server's thread can't catch signals, and trains all the same."""
    found: list[Any] = []
    thread = threading.Thread(
        target=lambda: found.append(sweep(program, param={"lr": "0.1..0.2"}, random=2, say=lambda line: None))
    )
    thread.start()
    thread.join()
    assert found[0].whole
    assert all(0.1 <= row.value <= 0.2 for row in found[0])


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"grid": {"lr": "0.1,0.01"}}, "give a list of values"),
        ({"grid": {"lr": 3}}, "give a list of values"),
        ({"grid": {"lr": []}}, "has no values"),
        ({"grid": {"lr": [""]}}, "an empty value"),
        ({"param": {"lr": [1, 2]}}, "--random N"),
        ({}, "a sweep of nothing"),
    ],
)
def test_words_that_make_no_sense(program: list[str], more: dict[str, Any], said: str) -> None:
    """One clear error, and nothing is trained."""
    with pytest.raises(UsageError, match=said):
        sweep(program, **more)
    assert not Path("runs").exists()


def test_a_failed_point_is_a_row(program: list[str]) -> None:
    """It has no value, and comes behind the others."""
    found = sweep(program, grid={"lr": ["none", 1]}, metric="val_loss", say=lambda line: None)
    assert [row.status for row in found] == ["finished", "failed"]
    assert found[1].value is None
    assert not found.whole
