"""The lake as a tracker: when a run is put in, what it is at its end, and what is said of a lake that fails."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from trackers_lake import into_lake
from trackers_lake import tracker as module
from trackers_lake.precheck import LakePrecheck
from trackers_lake.tables import Lake
from trackers_lake.tracker import LakeTracker

import trackers
from tests.analysis.support import write_run
from tests.helpers import Time
from trackers.errors import Fatal, Refused, Unavailable, UsageError
from trackers.journal.run_directory import RunDirectory
from trackers.tracker import Cursor, RunInfo, State, Status

COUNT = "select run, count(*) as n from metrics group by run"


@pytest.fixture
def info() -> RunInfo:
    """A run in a directory, to be put into a lake beside it."""
    run = write_run("abc", [(0, 0, {"loss": 1.0})], status="running")
    return opened(run)


def opened(run: Path, lake: str = "lake") -> RunInfo:
    options = {"TRACKER_LAKE": lake, "TRACKER_LAKE_EVERY": 60, "TRACKER_LAKE_KEEP": 30}
    return RunInfo(id="abc", name="a", project="digits", trackers=["lake"], directory=str(run), cwd=str(Path.cwd()),
                   options=options)  # fmt: skip


def count() -> int:
    return int(trackers.sql(COUNT, ["lake:lake"]).to_pylist()[0]["n"]) if Path("lake").is_dir() else 0


@pytest.mark.slow
@pytest.mark.processes
def test_run_is_put_in_when_it_is_time_and_at_its_end(info: RunInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the pause, whether records come or not; at the end with all of it and its status."""
    clock = Time(1000.0)
    monkeypatch.setattr(module, "time", clock)
    tracker, state = LakeTracker(), State({})
    tracker.open(info, state)
    assert state["url"] == f"lake:{Path.cwd()}/lake#digits/abc"
    tracker.write([], Cursor(1))
    assert count() == 0
    clock.now += 61
    tracker.tick()
    assert count() == 1
    write_run("abc", [(step, step, {"loss": 1.0}) for step in range(5)], status="running")
    clock.now += 50
    tracker.tick()
    assert count() == 1
    write_run("abc", [(step, step, {"loss": 1.0}) for step in range(7)])
    tracker.close(Status("finished", exit_code=0))
    assert count() == 7
    assert trackers.sql("select status from runs", ["lake:lake"]).to_pylist() == [{"status": "finished"}]


def test_long_run_is_put_in_less_often(info: RunInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pause is about twenty times as long as it took."""
    clock = Time(0.0)
    added: list[float] = []

    def run(command: list[str], **named: object) -> object:
        assert command[command.index("--keep") + 1] == "30"
        added.append(clock.now)
        clock.now += 20
        return subprocess.CompletedProcess([], 0)

    monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(module.subprocess, "run", run)
    tracker = LakeTracker()
    tracker.open(info, State({}))
    for now in (100.0, 120 + 0.9 * 400 - 1, 120 + 1.1 * 400 + 1):
        clock.now = now
        tracker.tick()
    assert added == [100.0, 120 + 1.1 * 400 + 1]


@pytest.mark.processes
def test_lake_that_cannot_be_used_is_said(info: RunInfo) -> None:
    """One line, of the command; what another call may mend is tried again."""
    Path("other").mkdir()
    Path("other/file.txt").write_text("x")
    tracker = LakeTracker()
    tracker.open(opened(Path(info.directory), "other"), State({}))
    with pytest.raises(Refused, match="has files and is no lake"):
        tracker.close(Status("finished"))
    tracker.open(opened(Path("runs/digits/nothing")), State({}))
    with pytest.raises(Unavailable):
        tracker.close(Status("finished"))


def test_place_is_needed_before_the_first_step() -> None:
    """Without TRACKER_LAKE, or with a store that isn't known, ``init`` says so."""
    with pytest.raises(UsageError, match="TRACKER_LAKE=s3://bucket/lake"):
        LakePrecheck.check({})
    with pytest.raises(UsageError, match="is no store"):
        LakePrecheck.check({"TRACKER_LAKE": "s4://bucket"})
    with pytest.raises(Fatal, match="no lake"):
        LakeTracker().open(RunInfo(id="a", name="a", project="p"), State({}))


@pytest.mark.slow
@pytest.mark.processes
def test_run_trained_with_the_tracker_is_in_the_lake(monkeypatch: pytest.MonkeyPatch) -> None:
    """From init to finish: all of the run, and a place where it is found."""
    monkeypatch.setenv("TRACKER_LAKE", "lake")  # relative to where training was started
    run = trackers.init("lake", project="digits", id="abc", config={"lr": 0.1})
    for step in range(5):
        run.log({"loss": 1 / (step + 1)}, step=step)
    run.finish()
    assert count() == 5
    assert trackers.load("lake:lake#digits/abc").status == "finished"


def test_removed_run_goes_out_of_the_lake_and_comes_back() -> None:
    """By ``trackers rm``; another run of that name, begun at another time, stays."""
    run = RunDirectory(write_run("abc", [(0, 0, {"loss": 1.0})], trackers=["lake"]))
    assert into_lake.add([str(run.path)], "lake").values == 1
    info = opened(run.path)
    info.created = run.read_info().created
    assert LakeTracker.remove(info, State({})).startswith("taken out of the lake in /")
    assert Lake("lake").all_runs() == []
    assert LakeTracker.remove(info, State({})).endswith("doesn't have it")
    into_lake.add([str(run.path)], "lake")
    info.created += 1
    assert "has another run of that name" in LakeTracker.remove(info, State({}))
    assert Lake("lake").all_runs() == [("digits", "abc")]
