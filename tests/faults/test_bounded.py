"""What nobody takes waits on the disk, not in memory; and a run leaves nothing behind in its process."""

from __future__ import annotations

import gc
import threading
from pathlib import Path

import psutil
import pytest

import trackers
from benchmarks.common import helpers
from tests.fakes.wandb_server import Fault, WandbServer
from tests.faults import backlog
from tests.helpers import wait_for
from trackers.relay.delivery.cursor_file import read_account

DEAD = {"MLFLOW_TRACKING_URI": "http://127.0.0.1:9", "TRACKIO_SERVER_URL": "http://127.0.0.1:9/"}
ABOVE_BYTES = 150 << 20
"""What a delivery may take beside what its vendor's client takes when it is loaded."""
GROWTH_BYTES = 16 << 20
"""Between two measurements of the same thing."""
SHORT, LONG = 8_000, 80_000


@pytest.mark.slow
@pytest.mark.parametrize("tracker", ["mlflow", pytest.param("trackio", marks=pytest.mark.soak)])
def test_backlog_behind_a_dead_server_takes_no_memory(tracker: str, tmp_path: Path) -> None:
    """Ten times as many records behind it: the same memory, little more than the vendor's own."""
    least = backlog.bare(tracker, DEAD)
    short, long = (
        backlog.fail(backlog.write(tmp_path / str(count), tracker, count, DEAD), tracker, DEAD, 2)
        for count in (SHORT, LONG)
    )
    assert long - least < ABOVE_BYTES
    assert long - short < GROWTH_BYTES


@pytest.mark.soak
def test_backlog_behind_wandb_takes_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """W&B's server dies while rows are on their way: its client holds a bounded number, the journal the rest."""
    monkeypatch.delenv("WANDB_DIR", raising=False)
    peaks = {}
    for count in (SHORT, LONG):
        with WandbServer() as server:
            env = {"WANDB_MODE": "online", "WANDB_BASE_URL": server.url, "WANDB_API_KEY": "k" * 40}
            run = backlog.write(tmp_path / str(count), "wandb", count, env)
            work = backlog.Delivering(run, "wandb", env)
            try:
                wait_for(lambda work=work, run=run: work.look() and read_account(run, "wandb").seq)
                server.fault = Fault("refuse")
                wait_for(lambda work=work: not work.look(), 120)
            finally:
                work.end()
            assert read_account(run, "wandb").failures
            peaks[count] = work.peak
    least = backlog.bare("wandb", {})
    assert max(peaks.values()) - least < ABOVE_BYTES
    assert peaks[LONG] - peaks[SHORT] < 2 * GROWTH_BYTES


def left_behind() -> dict[str, int]:
    """What a process holds that a run may have taken."""
    gc.collect()
    own = psutil.Process()
    return {
        "descriptors": own.num_fds(),
        "processes": len(own.children(recursive=True)) + len(helpers(Path.cwd())),
        "threads": threading.active_count(),
    }


def more_than(before: dict[str, int]) -> dict[str, tuple[int, int]]:
    """What there is more of than before; a thread of an earlier test may have ended meanwhile."""
    return {what: (before[what], now) for what, now in left_behind().items() if now > before[what]}


def strays(root: Path) -> list[str]:
    """Files that have no meaning once a run is over."""
    ends = (".tmp", ".taken", ".lease", ".new")
    return [str(path) for path in root.rglob("*") if path.name.endswith(ends)]


def run_once(number: int, trackers_: str) -> None:
    run = trackers.init(trackers_, project="many", id=f"r{number}")
    for step in range(3):
        run.log({"loss": step / 7}, step=step)
    run.log_artifact(__file__)
    run.finish(timeout=60)


@pytest.mark.slow
def test_hundreds_of_runs_in_one_process_leave_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No descriptor, no process, no thread, no stray file, after three hundred runs that only write their journals."""
    monkeypatch.setenv("TRACKER_MODE", "offline")
    monkeypatch.setenv("TRACKER_RELAY", "n")
    run_once(0, "json,tensorboard")
    before = left_behind()
    for number in range(1, 301):
        run_once(number, "json,tensorboard")
    assert not more_than(before)
    assert not strays(tmp_path / "runs")
    assert len(list((tmp_path / "runs/many").glob("[!.]*"))) == 301


@pytest.mark.slow
def test_runs_with_a_relay_leave_nothing(tmp_path: Path) -> None:
    """The same for runs with processes beside them: none of these stays, not even as a zombie."""
    processes = left_behind()["processes"]
    run_once(0, "json,csv")
    wait_for(lambda: left_behind()["processes"] == processes)  # the first relay's last moment is over
    before = left_behind()
    for number in range(1, 6):
        run_once(number, "json,csv")
    wait_for(lambda: not more_than(before))
    wait_for(lambda: not strays(tmp_path / "runs"))


@pytest.mark.slow
def test_runs_inside_training_leave_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same where the trackers run in training's process."""
    monkeypatch.setenv("TRACKER_INLINE", "y")
    run_once(0, "json,csv,tensorboard")
    before = left_behind()
    for number in range(1, 21):
        run_once(number, "json,csv,tensorboard")
    assert not more_than(before)
    assert not strays(tmp_path / "runs")
