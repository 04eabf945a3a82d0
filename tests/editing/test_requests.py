"""Asking a run to stop: what the one who asks is told, in a directory and through a store."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import trackers
from tests.helpers import wait_for
from trackers.backends.storage.tracker import StorageTracker
from trackers.cli.app import app
from trackers.editing import requests
from trackers.errors import UsageError
from trackers.journal.run_directory import RunDirectory, is_run
from trackers.journal.status import last_status
from trackers.object_storage.addresses import normalize
from trackers.support import run_requests
from trackers.tracker import State
from trackers.training import stopping
from trackers.training.run import Run


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run without a relay that looks at requests at once."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(stopping, "READ_S", 0.0)
    made = trackers.init("json", project="p", name="one", mode="offline", options={"TRACKER_RELAY": False})
    assert isinstance(made, Run)
    return made


def stop(*words: str) -> tuple[int, str]:
    """``trackers stop``, without any wait for training."""
    done = CliRunner().invoke(app, ["stop", "--wait", "0", *words])
    return done.exit_code, done.output


def test_training_that_never_looks_is_named_with_what_ends_it(run: Run) -> None:
    """Whoever asks isn't left to wait: the command says that nobody looks, and how the process is ended."""
    code, output = stop("latest")
    assert code == 1
    assert "training has never looked at run.should_stop, so it goes on; to end it: kill -INT" in output
    run.finish()


@pytest.mark.parametrize("words", [("stop", "--wait", "0"), ("edit", "--notes", "x")])
def test_link_in_the_place_of_a_run_is_not_followed(words: tuple[str, ...], tmp_path: Path) -> None:
    """Nothing is written to where a link in a directory of runs leads: whoever can write there has laid it."""
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "streams").mkdir(parents=True)
    (elsewhere / "run.json").write_text("{}")
    link = tmp_path / "runs" / "p" / "linked"
    link.parent.mkdir(parents=True)
    link.symlink_to(elsewhere)
    done = CliRunner().invoke(app, [words[0], str(link), *words[1:]])
    assert done.exit_code == 1
    assert "is a link to a directory, and only that one can be changed" in done.output.replace("\n", " ")
    assert sorted(path.name for path in elsewhere.iterdir()) == ["run.json", "streams"]


def test_training_that_looks_is_waited_for_and_told_of(run: Run) -> None:
    """Before its next look that is said; then that it stops; then how it ended."""
    assert not run.should_stop
    directory = RunDirectory(run.path)
    asked = requests.ask(directory, reason="why", by="trackers stop")
    assert requests.answer(directory, asked).state == "unheard"
    assert any(run.should_stop for _ in range(20))
    assert requests.answer(directory, asked).state == "stopping"
    run.finish()
    ended = requests.answer(directory, asked)
    assert ended.state == "ended"
    assert "it was stopped: by" in ended.text
    assert "why" in ended.text


@pytest.mark.processes
def test_exit_code_decides_how_it_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script that fails after it was told to stop has failed: while its process ends, nothing else is said."""
    monkeypatch.chdir(tmp_path)
    script = """
import atexit, os, sys, time, trackers
def last():
    while not os.path.exists("go"):
        time.sleep(0.01)
atexit.register(last)
run = trackers.init("json", project="p", name="one", id="one")
while not run.should_stop:
    run.log({"loss": 1.0})
    time.sleep(0.01)
sys.exit(4)
"""
    child = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.DEVNULL)
    try:
        directory = RunDirectory(tmp_path / "runs" / "p" / "one")
        wait_for(lambda: is_run(directory.path))
        asked = requests.ask(directory, by="trackers stop")
        wait_for(lambda: last_status(directory).name != "running")
        assert requests.answer(directory, asked).state == "stopping"
        (tmp_path / "go").touch()
        assert requests.wait(directory, asked, 60.0, ended=True).text == "it has failed: exit code 4"
    finally:
        (tmp_path / "go").touch()
        child.wait()


def test_checkpoint_alone_is_answered_when_it_is_taken(run: Run) -> None:
    """A run that saves goes on: its state is "saving"."""
    assert not run.should_checkpoint
    directory = RunDirectory(run.path)
    asked = requests.ask(directory, stop=False, checkpoint=True)
    assert any(run.should_checkpoint for _ in range(20))
    assert requests.wait(directory, asked, 0.0).state == "saving"
    run.finish()


def test_run_that_has_ended_cant_be_asked(run: Run) -> None:
    """Nothing is left in the directory of a run that nobody trains."""
    run.finish()
    with pytest.raises(UsageError, match=r"isn't running \(it has finished\)"):
        requests.ask(RunDirectory(run.path))
    code, output = stop("latest")
    assert code == 1
    assert "nobody is there to ask" in output
    assert not (Path(run.path) / run_requests.FILE).exists()


def test_both_kinds_of_checkpoint_at_once_are_refused(run: Run) -> None:
    """--checkpoint stops, --only-checkpoint goes on."""
    code, _ = stop("latest", "--checkpoint", "--only-checkpoint")
    assert code != 0
    run.finish()
    assert not (Path(run.path) / run_requests.FILE).exists()


def test_request_through_a_store_reaches_training_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever sees only the store leaves the request there, and the delivery that sends the run hands it on."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(stopping, "READ_S", 0.0)
    monkeypatch.setenv("TRACKER_STORE_DIR", str(tmp_path / "node-a"))
    where = f"file://{tmp_path}/store"
    run = trackers.init("json", project="p", name="one", dir=where, options={"TRACKER_RELAY": False})
    assert isinstance(run, Run)
    assert not run.should_stop
    here = RunDirectory(run.path)
    asked = requests.ask(here, checkpoint=True, reason="why", by="trackers stop", store=normalize(where))
    assert not (here.path / run_requests.FILE).exists()
    (here.delivery / "storage.json").write_text("{}")
    sender = StorageTracker()
    sender.open(here.read_info(), State())
    for _ in range(2):
        sender._sent_at = sender._ask_at = 0.0
        sender.tick()
    assert run_requests.read(here.path) == [asked]
    assert any(run.should_stop for _ in range(20))
    run.finish()
