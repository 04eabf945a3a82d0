"""One writer for the runs of a node: one commit for all, whoever is killed; a run that nobody serves puts itself in."""

from __future__ import annotations

import fcntl
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from lake_support import held
from trackers_lake import node
from trackers_lake import tracker as module
from trackers_lake.node import Lakes, Member
from trackers_lake.tables import Lake
from trackers_lake.tracker import LakeTracker

import trackers
from tests.analysis.support import T0, write_run
from tests.helpers import wait_for
from trackers.configuration import plugin_options
from trackers.records import Finish, Metrics, encode
from trackers.testing.driver import python_path
from trackers.tracker import RunInfo, State, Status

LAKES = Lakes("lake", 1.0, 7.0)
WAIT_S = 120.0


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A directory of this test's alone, where its runs meet; their writers are ended."""
    (tmp_path / "runtime").mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("PYTHONPATH", python_path()["PYTHONPATH"])
    yield
    for process in writers(tmp_path):
        process.kill()


def writers(place: Path) -> list[psutil.Process]:
    """The writers of the runs that meet below a directory."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if words[1:3] == ["-m", "trackers_lake.node"] and words[3].startswith(str(place)):
            found.append(process)
    return found


def begun(number: int, steps: int = 3) -> Path:
    """A run that goes on."""
    rows = [(step, step, {"loss": float(step)}) for step in range(steps)]
    return write_run(f"r{number}", rows, status="running", created=T0).absolute()


def longer(run: Path, first: int, end: int, status: str = "") -> None:
    """The run has gone on, or has ended."""
    new = [encode(Metrics(step=step, time=T0 + step, values={"loss": float(step)})) for step in range(first, end)]
    new += [encode(Finish(time=T0 + end, status=status, exit_code=0))] if status else []
    with (run / "streams/rank-0.1.jsonl").open("ab") as file:
        file.write(b"".join(new))


def member(run: Path, lakes: Lakes = LAKES) -> Member:
    return Member(run, lakes._replace(where=str(Path("lake").absolute())), module._environment())


def counts(steps: int, runs: int) -> dict[tuple[str, str], int]:
    return {("digits", f"r{number}"): steps for number in range(runs)}


def looked(members: list[Member]) -> bool:
    """Have each look after its writer; whether all are served."""
    return False not in [one.is_served() for one in members]


def wait_served(members: list[Member], expected: dict[tuple[str, str], int]) -> None:
    """Wait until their writer has put in what they have, however long this machine takes."""

    def there() -> bool:
        looked(members)
        return Path("lake/metrics").is_dir() and held("lake") == expected

    wait_for(there, WAIT_S)


@pytest.mark.processes
def test_runs_of_a_node_are_put_in_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One process, one commit of each table for all of them; at their end they wait for it, and it ends behind them."""
    monkeypatch.setattr(node, "END_S", WAIT_S)
    runs = [begun(number) for number in range(3)]
    members = [member(run) for run in runs]
    wait_served(members, counts(3, 3))
    wait_for(lambda: looked(members), WAIT_S)
    assert len(writers(tmp_path)) == 1
    for table in ("metrics", "events", "runs"):  # committed one after the other
        wait_for(lambda table=table: Lake("lake").snapshot(table).files, WAIT_S)
        assert {len(file.runs or {}) for file in Lake("lake").snapshot(table).files.values()} == {3}
    for run in runs:
        longer(run, 3, 9)
    wait_served(members, counts(9, 3))
    assert Lake("lake").snapshot("metrics").version <= 3
    for run, one in zip(runs, members, strict=True):
        longer(run, 9, 10, "finished")
        assert one.finish()
    assert held("lake") == counts(10, 3)
    statuses = trackers.sql("select status from runs", ["lake:lake"]).to_pylist()
    assert statuses == [{"status": "finished"}] * 3
    wait_for(lambda: not writers(tmp_path), WAIT_S)
    assert [path.suffix for path in members[0]._folder.iterdir() if path.suffix in (node.NOTE, node.ENDED)] == []


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize("point", ["lake.commit.before", "lake.commit.after", "lake.node.round", "at any time"])
def test_killed_writer_is_followed_by_another(point: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever it dies: each row is in the lake once, and the runs are served again."""
    if point != "at any time":
        monkeypatch.setenv("TRACKERS_FAILPOINT", f"{point}=kill:2")
    monkeypatch.setattr(node, "PAUSES_S", (0.0,))
    runs = [begun(number) for number in range(2)]
    members = [member(run) for run in runs]
    steps = 3
    for _ in range(4):
        for run in runs:
            longer(run, steps, steps + 3)
        steps += 3
        if point == "at any time":
            wait_for(lambda: looked(members) and writers(tmp_path), WAIT_S)
            time.sleep(random.uniform(0.0, 2.0))
            for process in writers(tmp_path):
                process.kill()
        before = sum(one._deaths for one in members)
        wait_for(lambda: (looked(members), sum(one._deaths for one in members))[1] > before, WAIT_S)  # noqa: B023
    monkeypatch.delenv("TRACKERS_FAILPOINT", raising=False)
    for process in writers(tmp_path):
        process.kill()
    last = [member(run) for run in runs]
    wait_served(last, counts(steps, 2))
    wait_for(lambda: looked(last) and len(writers(tmp_path)) == 1, WAIT_S)


@pytest.mark.processes
def test_run_whose_processes_are_gone_is_put_in_as_it_was_left(tmp_path: Path) -> None:
    """Nobody tells the writer of its end: it is seen, and the run is kept no longer."""
    live, dead = begun(0), begun(1)
    members = [member(live), member(dead)]
    wait_served(members, counts(3, 2))
    longer(dead, 3, 5, "crashed")
    expected = {**counts(3, 1), ("digits", "r1"): 5}
    wait_served(members[:1], expected)
    wait_for(lambda: not members[1]._note.exists(), WAIT_S)
    assert members[0]._note.exists()


def locked(one: Member) -> int:
    """The lock of a node's writer, held by somebody who does nothing."""
    fd = os.open(one._folder / node.LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX)
    return fd


def opened(run: Path, monkeypatch: pytest.MonkeyPatch, writer: str = "node") -> tuple[LakeTracker, list[str]]:
    """The tracker of a run, and what it puts in by itself."""
    options = {"TRACKER_LAKE": "lake", "TRACKER_LAKE_EVERY": 1, "TRACKER_LAKE_WRITER": writer}
    info = RunInfo(id="r0", name="r0", project="digits", trackers=["lake"], directory=str(run), cwd=str(Path.cwd()),
                   options=options)  # fmt: skip
    added: list[str] = []
    monkeypatch.setattr(LakeTracker, "_add", lambda self: added.append(str(self._run_directory)))
    tracker = LakeTracker()
    tracker.open(info, State({}))
    return tracker, added


def test_run_that_nobody_serves_puts_itself_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """While it goes on, after three rounds, and at its end, after a while; one that pauses is left to itself, too."""
    monkeypatch.setattr(node, "END_S", 0.3)
    monkeypatch.setattr(node, "LOOK_S", 0.0)
    run = begun(0)
    tracker, added = opened(run, monkeypatch)
    assert tracker._member is not None
    fd = locked(tracker._member)
    tracker._next_add = 0.0
    tracker.tick()
    assert added == []
    tracker._member._served -= node.SILENT_ROUNDS * 1.0
    tracker.tick()
    assert len(added) == 1
    tracker.close(Status("running"))
    assert len(added) == 2
    tracker.close(Status("finished"))
    assert len(added) == 3
    assert not tracker._member._note.exists()
    os.close(fd)


def test_run_has_a_writer_of_its_own_unless_the_node_is_to_have_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the option; also where the run has ended before, or where there can be no folder."""
    run = begun(0)
    assert opened(run, monkeypatch, "run")[0]._member is None
    monkeypatch.setattr(LakeTracker, "ended", Status("finished"))
    assert opened(run, monkeypatch)[0]._member is None
    monkeypatch.setattr(LakeTracker, "ended", None)
    assert opened(run, monkeypatch)[0]._member is not None
    Path(os.environ["XDG_RUNTIME_DIR"], "trackers").chmod(0o777)
    assert opened(run, monkeypatch)[0]._member is None


def test_runs_of_other_lakes_and_credentials_have_other_writers(monkeypatch: pytest.MonkeyPatch) -> None:
    """They don't meet."""
    folders = {LAKES.folder(), LAKES._replace(where="other").folder(), LAKES._replace(keep_days=9.0).folder()}
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "other")
    folders.add(LAKES.folder())
    monkeypatch.setenv("TRACKER_RUN_NAME", "other")
    folders.add(LAKES.folder())
    assert len(folders) == 4


def test_option_is_declared() -> None:
    """Beside the lake's own."""
    assert "TRACKER_LAKE_WRITER" in plugin_options.fragments()["lake"].symbols


TRAIN = """
import os, sys, time
import trackers
run = trackers.init("lake", project="digits", id=sys.argv[1], options={"TRACKER_LAKE": sys.argv[2],
                    "TRACKER_LAKE_EVERY": 5, "TRACKER_LAKE_WRITER": "node"})
step = 0
while step < 30 or not os.path.exists("stop"):
    run.log({"loss": 1 / (step + 1)}, step=step)
    step += 1
    time.sleep(0.15)
run.finish()
"""


def helpers(home: str) -> list[psutil.Process]:
    """All processes but training that work for a home: relays, deliveries, the agent, its forks, and writers."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("HOME") == home and "time.sleep(0.15)" not in " ".join(process.cmdline()):
                found.append(process)
        except psutil.Error:
            pass
    return found


@pytest.mark.slow
@pytest.mark.processes
def test_whoever_is_killed_each_row_is_in_the_lake_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs, their relays and deliveries, the host agent, its forks, the writer; ``sync`` delivers what is left."""
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    monkeypatch.setenv("HOME", str(home))
    lake = str(Path("lake").absolute())
    runs = [f"r{number}" for number in range(4)]
    training = [subprocess.Popen([sys.executable, "-c", TRAIN, run, lake]) for run in runs]
    chance, killed, seen = random.Random(7), 0, set[int]()
    until = time.monotonic() + WAIT_S
    while (killed < 8 or len(seen) < 3) and time.monotonic() < until:
        time.sleep(1.0)
        there = helpers(str(home))
        served = [one for one in there if one.pid in {process.pid for process in writers(tmp_path)}]
        seen.update(one.pid for one in served)
        victims = served if served and chance.random() < 0.4 else there
        if victims:
            chance.choice(victims).kill()
            killed += 1
        if killed == 5:
            training[0].kill()
    Path("stop").touch()
    for process in training:
        process.wait(WAIT_S)
    assert killed >= 8
    assert len(seen) >= 3
    synced = subprocess.run([sys.executable, "-m", "trackers", "sync", "--to", "lake", *runs], capture_output=True,
                            text=True, timeout=300)  # fmt: skip
    assert synced.returncode == 0, synced.stderr
    steps = {("digits", run): len(trackers.load(f"runs/digits/{run}").metrics()) for run in runs}
    assert min(steps["digits", run] for run in runs[1:]) >= 30
    assert held("lake") == steps
    for process in helpers(str(home)):
        process.kill()
