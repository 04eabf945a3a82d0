"""The run of a framework's logger: taken where there is one, begun where there is none, ended by who began it."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import trackers
from trackers.errors import UsageError
from trackers.frameworks.shared import RunHandle, guarded


@pytest.fixture(autouse=True)
def _journal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKER_RELAY", "n")
    monkeypatch.setenv("TRACKER_MODE", "offline")


def losses(run: Any) -> list[tuple[int, float]]:
    """Steps and values of "loss" in the journal of a run, or of the run in a directory."""
    frame = trackers.load(str(getattr(run, "dir", run))).metrics(["loss"]).to_pandas()
    return [(int(step), float(value)) for step, value in zip(frame["step"], frame["loss"], strict=True)]


def status(run: Any) -> str:
    return str(trackers.load(run.dir).status)


def test_current_run_is_used_and_left_open(capsys: pytest.CaptureFixture[str]) -> None:
    """A run that the user began gets the values and the configuration, and isn't ended by the logger."""
    run = trackers.init("json", project="mine", config={"lr": 0.1})
    handle = RunHandle("csv", project="other", config={"depth": 2})
    handle.run.log({"loss": 1.0}, step=0)
    handle.finish()
    handle.fail(RuntimeError("x"))
    assert handle.run is run
    assert not run.finished
    assert dict(run.config) == {"lr": 0.1, "depth": 2}
    assert "project, trackers of the logger is ignored" in capsys.readouterr().err
    run.finish()
    assert losses(run) == [(0, 1.0)]


def test_own_run_is_begun_at_the_first_use_and_ended() -> None:
    """Without a run the logger begins one with its arguments, and ends it; a later use continues that run."""
    handle = RunHandle("json", project="p", name="n", config={"lr": 0.1}, tags=["a"])
    assert handle.known is None
    assert not Path("runs").exists()
    first = handle.run
    assert (first.project, first.name, dict(first.config), first.tags) == ("p", "n", {"lr": 0.1}, ("a",))
    first.log({"loss": 1.0}, step=0)
    handle.finish()
    assert (first.finished, status(first)) == (True, "finished")
    handle.run.log({"loss": 0.5}, step=1)
    assert handle.run.id == first.id
    handle.finish()
    assert losses(first) == [(0, 1.0), (1, 0.5)]


def test_two_loggers_have_a_run_each() -> None:
    """A logger doesn't take another logger's run for the user's, and one that rests is ended when the next begins."""
    one, two, three = (RunHandle("json", project="p", name=name) for name in ("one", "two", "three"))
    for step in range(2):
        one.run.log({"loss": 1.0 + step}, step=step)
        two.run.log({"loss": 3.0 + step}, step=step)
    assert losses(one.run) == [(0, 1.0), (1, 2.0)]
    assert losses(two.run) == [(0, 3.0), (1, 4.0)]
    one.rest()
    assert three.run.id not in (one.id, two.id)
    assert one.known is not None
    assert one.known.finished
    assert not two.run.finished
    two.finish()
    three.finish()


def test_failure_is_recorded_with_its_reason() -> None:
    """The exception that is being handled is the run's end."""
    handle = RunHandle("json", project="p")
    run = handle.run
    try:
        raise ValueError("loss is NaN")
    except ValueError:
        handle.fail()
    found = trackers.load(run.dir)
    assert found.status == "failed"
    assert "loss is NaN" in Path(run.dir, "streams/rank-0.1.jsonl").read_text()


def test_rewind_replaces_what_came_after_the_step() -> None:
    """Values after the step are no longer part of the run once it is logged again from there."""
    handle = RunHandle("json", project="p")
    for step in range(4):
        handle.run.log({"loss": float(step)}, step=step)
    handle.rewind(1)
    handle.run.log({"loss": 9.0}, step=2)
    handle.finish()
    assert losses(handle.known) == [(0, 0.0), (1, 1.0), (2, 9.0)]


def test_copies_share_the_run() -> None:
    """A deep copy and a pickled copy in this process log to the same run, begun before or after."""
    handle = RunHandle("json", project="p")
    early = pickle.loads(pickle.dumps(handle))
    run = handle.run
    late = pickle.loads(pickle.dumps(handle))
    for number, copied in enumerate((early, late, copy.deepcopy(handle), handle)):
        copied.run.log({"loss": float(number)}, step=number)
        assert copied.run is run
    handle.finish()
    assert losses(run) == [(0, 0.0), (1, 1.0), (2, 2.0), (3, 3.0)]


def _log(handle: RunHandle, step: int) -> None:
    handle.run.log({"loss": float(step)}, step=step)


@pytest.mark.slow
@pytest.mark.processes
def test_spawned_process_continues_the_run() -> None:
    """What a spawned process logs, and the parent before and after it, is one run."""
    handle = RunHandle("json", project="p")
    handle.run.log({"loss": 0.0}, step=0)
    for step in (1, 2):
        process = multiprocessing.get_context("spawn").Process(target=_log, args=(handle, step))
        process.start()
        process.join()
        assert process.exitcode == 0
    handle.run.log({"loss": 3.0}, step=3)
    handle.finish()
    assert losses(handle.known) == [(step, float(step)) for step in range(4)]
    assert status(handle.known) == "finished"


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize("users", [False, True])
def test_spawned_process_logs_to_the_run_of_its_parent(users: bool) -> None:
    """A run that wasn't begun yet, or is the script's own, goes on after what a spawned process logged to it."""
    own = trackers.init("json", project="p") if users else None
    handle = RunHandle("json", project="p")
    process = multiprocessing.get_context("spawn").Process(target=_log, args=(handle, 0))
    process.start()
    process.join()
    handle.run.log({"loss": 1.0}, step=1)
    run = handle.run
    assert own in (None, run)
    run.finish()
    assert losses(run) == [(0, 0.0), (1, 1.0)]
    assert len(list(Path("runs/p").iterdir())) == 1


LATER = """
import pickle, sys
handle = pickle.load(open("handle", "rb"))
handle.run.log({"loss": 5.0}, step=5)
handle.finish()
"""


@pytest.mark.processes
def test_copy_of_a_process_that_is_gone_continues_its_run() -> None:
    """A logger that was stored continues the run by its id."""
    script = (
        "import pickle; from trackers.frameworks.shared import RunHandle; handle = RunHandle('json', project='p'); "
        "handle.run.log({'loss': 1.0}, step=1); pickle.dump(handle, open('handle', 'wb'))"
    )
    for code in (script, LATER):
        subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    (path,) = Path("runs/p").iterdir()
    assert losses(path) == [(1, 1.0), (5, 5.0)]


class Logger:
    """As frameworks' loggers are made."""

    def __init__(self, **options: Any) -> None:
        self._handle = RunHandle(**options)

    @guarded
    def log(self, value: Any) -> None:
        self._handle.run.log({"loss": {1: 1.0}[value]}, step=1)


def test_faults_are_errors_before_the_first_step_and_one_line_after(capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown tracker is raised at once; what fails later is printed once."""
    with pytest.raises(UsageError, match="unknown tracker 'jsonn'"):
        Logger(trackers="jsonn").log(1)
    logger = Logger(trackers="json", project="p")
    for value in (1, 0, 0):
        logger.log(value)
    assert capsys.readouterr().err.count("Logger.log: KeyError: 0; training goes on") == 1
    logger._handle.finish()
