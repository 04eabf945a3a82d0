"""Who delivers: of several that wait for a holder that is gone, one gets its place, whoever dies on the way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import forked
from tests.faults.driven import ROOT
from trackers.journal import lease as module
from trackers.journal.lease import Lease, read_holder

WORK = """
import os, sys, time, json
from pathlib import Path
from trackers.journal import lease as module
module.STALE_S = module.HALF_WRITTEN_S = 0.25
path, rounds = Path(sys.argv[1]), int(sys.argv[2])
guard = path.with_name("guard")
for number in range(rounds):
    lease = module.Lease(path)
    while not lease.acquire():
        time.sleep(0.001)
    os.close(os.open(guard, os.O_CREAT | os.O_EXCL))  # raises where two are inside
    os.write(1, b"held\\n")
    time.sleep(0.003)
    os.unlink(guard)
    if number % 3 == 0:
        lease.release()
    elif number % 3 == 1:  # as a machine that goes down
        path.write_text(json.dumps({**json.loads(path.read_bytes()), "host": "elsewhere"}))
    else:  # as a process that dies while it writes
        path.write_text("{")
"""


def work(path: Path, rounds: int, failpoint: str = "") -> subprocess.Popen[bytes]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TRACKERS_FAILPOINT": failpoint}
    command = [sys.executable, "-c", WORK, str(path), str(rounds)]
    env = {name: value for name, value in env.items() if value}
    return forked.Program(command, preload=forked.PACKAGE, stdout=subprocess.PIPE, env=env)


def elsewhere(path: Path, token: str = "gone") -> None:
    """A lease whose holder is on a machine that can't be asked."""
    path.write_text(json.dumps({"token": token, "host": "elsewhere", "boot_id": "b", "pid": 1, "pid_start": 1.0}))


@pytest.mark.slow
def test_waiters_on_holders_that_went_silent_never_hold_at_once(tmp_path: Path) -> None:
    """Four processes, holders that die on machines that can't be seen or leave half a file: one after the other."""
    path = tmp_path / "x.lease"
    elsewhere(path)
    workers = [work(path, 6) for _ in range(4)]
    outputs = [worker.communicate(timeout=120)[0] for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * 4
    assert [output.count(b"held") for output in outputs] == [6] * 4
    assert not list(tmp_path.glob("*.taken"))


@pytest.mark.slow
def test_waiter_that_dies_while_it_takes_over_is_followed_by_one(tmp_path: Path) -> None:
    """Three die one after the other between their claim and the lease; of two that follow, one holds at a time."""
    path = tmp_path / "x.lease"
    elsewhere(path)
    for _ in range(3):
        dying = work(path, 1, "lease.claim.after=kill")
        dying.communicate(timeout=60)
        assert dying.returncode == -signal.SIGKILL
    assert len(list(tmp_path.glob("*.taken"))) == 3
    workers = [work(path, 3) for _ in range(2)]
    for worker in workers:
        assert worker.communicate(timeout=60)[0].count(b"held") == 3
        assert worker.returncode == 0
    assert not list(tmp_path.glob("*.taken"))


def test_waiter_on_another_machine_that_died_while_it_took_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its claim goes stale as a lease does: it doesn't keep the run from everybody for ever."""
    monkeypatch.setattr(module, "STALE_S", 0.0)
    path = tmp_path / "x.lease"
    elsewhere(path)
    elsewhere(tmp_path / "x.lease.gone.taken", "rival")
    lease = Lease(path)
    assert any(lease.acquire() for _ in range(10))
    holder = read_holder(path)
    assert holder is not None
    assert holder.pid == os.getpid()
    assert [entry.name for entry in tmp_path.glob("x*")] == ["x.lease"]


def test_holder_that_gives_signs_keeps_the_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A holder elsewhere whose count goes up is alive, whatever its clock says."""
    monkeypatch.setattr(module, "STALE_S", 0.0)
    path = tmp_path / "x.lease"
    lease = Lease(path)
    for count in range(20):
        holder = {"token": "t", "host": "elsewhere", "pid": 1, "pid_start": 1.0, "count": count, "time": 0.0}
        path.write_text(json.dumps(holder))
        assert not lease.acquire()
