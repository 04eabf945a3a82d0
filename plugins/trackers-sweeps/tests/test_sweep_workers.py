"""Workers of one sweep: each point is trained once, whoever is killed, and whatever failed is left alone."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from trackers_sweeps import program
from trackers_sweeps.ledger import Ledger, PointOutcome
from trackers_sweeps.plan import SweepPlan, tasks
from trackers_sweeps.program import Sweep, _Program

from tests.helpers import wait_for
from trackers.errors import TrackersError, UsageError
from trackers.support import machines, processes

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="workers are forked here")


def work(points: int, command: list[str]) -> Sweep:
    """A worker of the sweep."""
    made = tasks("many", [{"lr": number} for number in range(points)])
    plan = SweepPlan(name="many", tasks=made, command=command)
    return Sweep(plan, root=Path("runs").absolute(), jobs=1, worker=True, say=lambda line: None)


def start(points: int, command: list[str]) -> int:
    """Fork a worker; its pid. It ends as a process of its own would."""
    child = os.fork()
    if child == 0:
        code = 3
        try:
            random.seed()
            code = 0 if work(points, command).run() else 1
        finally:
            os._exit(code)
    return child


def trained(path: Path) -> list[str]:
    """The points that programs have trained to their end, as often as they did."""
    return path.read_text().split() if path.exists() else []


@pytest.mark.processes
@pytest.mark.parametrize(
    ("workers", "points", "kills"),
    [
        (4, 12, 2),
        pytest.param(20, 200, 5, marks=pytest.mark.slow),
        pytest.param(100, 1000, 20, marks=[pytest.mark.soak, pytest.mark.timeout(900)]),
    ],
)
def test_each_point_is_trained_once_though_workers_are_killed(
    workers: int, points: int, kills: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed worker's point comes back: the program that it left is waited for, and not begun again."""
    monkeypatch.chdir(tmp_path)
    done = tmp_path / "done"
    command = ["/bin/sh", "-c", f"sleep 0.05; echo {{lr}} >> {done}"]
    children = [start(points, command) for _ in range(workers)]
    try:
        for victim in children[:kills]:
            seen = len(trained(done))
            wait_for(lambda seen=seen: len(trained(done)) > seen or len(trained(done)) >= points)  # type: ignore[misc]
            os.kill(victim, signal.SIGKILL)
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    finally:
        for child in children:
            try:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
            except (ProcessLookupError, ChildProcessError):
                pass
    assert set(codes[kills:]) == {0}
    counts = Counter(trained(done))
    assert counts == Counter(str(number) for number in range(points))


@pytest.mark.processes
def test_what_has_failed_isnt_trained_again_by_another_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or workers would train it for ever; the command without --worker does it again."""
    monkeypatch.chdir(tmp_path)
    command = ["/bin/sh", "-c", f"echo {{lr}} >> {tmp_path}/done; exit $(( {{lr}} == 2 ))"]
    first = work(4, command)
    assert not first.run()
    second = work(4, command)
    assert not second.run()
    assert sorted(trained(tmp_path / "done")) == ["0", "1", "2", "3"]
    assert [task.status for task in second.tasks] == ["there", "there", "failed", "there"]
    plan = SweepPlan(name="many", tasks=tasks("many", [{"lr": 2}]), command=command)
    alone = Sweep(plan, root=Path("runs").absolute(), jobs=1, say=lambda line: None)
    alone.run()
    assert trained(tmp_path / "done").count("2") == 2


def test_worker_counts_what_has_finished_and_refuses_another_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says how many points had finished before it claimed any; points of other flags don't count as trained."""
    monkeypatch.chdir(tmp_path)
    assert work(4, ["/bin/sh", "-c", "echo {lr} >> done"]).run()
    said: list[str] = []
    more = work(6, ["/bin/sh", "-c", "echo {lr} >> done"])
    more._tell = said.append
    assert more.run()
    assert "sweep many: 6 runs, 4 finished before; " in said[0]
    other = work(6, ["/bin/sh", "-c", "echo {lr} again >> done"])
    with pytest.raises(UsageError, match="has 6 of these points from another command"):
        other.run()
    assert sorted(trained(tmp_path / "done")) == list("012345")


def test_point_that_another_worker_has_isnt_claimed(tmp_path: Path) -> None:
    """Until it is given back."""
    first, second = Ledger(tmp_path, "many"), Ledger(tmp_path, "many")
    for ledger in (first, second):
        ledger.begin(shared=True)
    lease = first.claim("a")
    assert lease is not None
    assert second.claim("a") is None
    lease.release()
    assert second.claim("a") is not None


def test_point_that_was_taken_over_is_ended_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that seemed dead to the others ends its program, so that none is trained twice at once."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(program, "PASS_S", 60.0)
    sweep = work(1, ["/bin/sh", "-c", "sleep 600"])
    began = time.monotonic()

    def lose(line: str, *_: object) -> None:
        for lease in sweep._claimed.values():
            lease.path.write_bytes(lease.path.read_bytes().replace(b'"token":"', b'"token":"z'))
            lease._beaten = 0.0

    sweep._show = lose
    assert not sweep.run()
    assert sweep.tasks[0].status == "stopped"
    assert time.monotonic() - began < 600


@pytest.mark.processes
def test_link_in_place_of_an_exit_code_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who shares the directory plants no link through which a worker's program writes elsewhere."""
    monkeypatch.chdir(tmp_path)
    mine = tmp_path / "mine"
    mine.write_text("precious")
    worker = work(1, ["/bin/sh", "-c", f"echo {{lr}} >> {tmp_path}/done"])
    worker.ledger.folder.mkdir(parents=True)
    worker.ledger.exit_code(worker.tasks[0].id).symlink_to(mine)
    with contextlib.suppress(TrackersError):
        worker.run()
    assert mine.read_text() == "precious"
    assert trained(tmp_path / "done") == []


def test_processes_that_somebody_else_names_get_no_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The state of a point says whose process trains it: one that another user wrote sends ours no signal."""
    ledger = Ledger(tmp_path, "many")
    ledger.begin(shared=True)
    ledger.note("a", PointOutcome(pid=os.getpid()))
    assert ledger.is_mine("a")
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    assert not ledger.is_mine("a")
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "killpg", lambda pid, number: sent.append((pid, number)))
    task = tasks("many", [{"lr": 1}])[0]
    here, pid = machines.machine(), os.getpid()
    outcome = PointOutcome(pid=pid, start=processes.process_start(pid), host=here.host, boot_id=here.boot_id,
                           pid_namespace=here.pid_namespace)  # fmt: skip
    for mine in (False, True):
        seen = _Program(task, None, outcome, 0.0, is_mine=mine)
        seen.signal(signal.SIGTERM)
        assert seen.signalled == mine
    assert sent == [(os.getpid(), signal.SIGTERM)]
