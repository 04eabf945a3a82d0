"""Workers that share a store alone: each point is claimed and trained once, whoever is killed."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from trackers_sweeps import store_claims
from trackers_sweeps.plan import SweepPlan, SweepWords, planned, tasks
from trackers_sweeps.program import Sweep
from trackers_sweeps.search import Chooser, Search
from trackers_sweeps.space import Draw
from trackers_sweeps.store_claims import StoreLedger

from tests.helpers import wait_for
from tests.object_storage.support import Failing
from trackers.errors import UsageError
from trackers.support import machines

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="workers are forked here"),
    pytest.mark.usefixtures("quick"),
]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Listings and signs of life follow each other fast."""
    monkeypatch.chdir(tmp_path)
    for name, seconds in {"LOOK_S": 0.1, "BEAT_S": 0.2, "ASK_S": 0.3, "STALE_S": 4.0}.items():
        monkeypatch.setattr(store_claims, name, seconds)


def on_machine(number: int) -> None:
    """Have this process be on another machine."""
    machines.machine = lambda: machines.MachineId(f"node{number}", str(number), "")  # type: ignore[assignment]


def begin(number: int, work: Callable[[], bool]) -> int:
    """Fork a worker on a machine of its own, in a session of its own; its pid."""
    child = os.fork()
    if child == 0:
        code = 3
        try:
            os.setsid()
            on_machine(number)
            random.seed()
            code = 0 if work() else 1
        finally:
            os._exit(code)
    return child


def ended(children: list[int], kill: Callable[[], None]) -> list[int]:
    """Do something to the workers, wait for all, and leave none. Their exit codes."""
    try:
        kill()
        return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    finally:
        for child in children:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)


def sweep(number: int, points: int, command: list[str], where: str) -> Sweep:
    """A worker of the sweep, with a directory of its own."""
    made = tasks("many", [{"lr": place} for place in range(points)])
    plan = SweepPlan(name="many", tasks=made, command=command)
    root = Path(f"machine{number}").absolute()
    return Sweep(plan, root=root, address=where, jobs=1, worker=True, say=lambda line: None)


@pytest.mark.processes
@pytest.mark.heavy
@pytest.mark.parametrize(("workers", "points"), [(4, 12), pytest.param(20, 200, marks=pytest.mark.slow)])
def test_each_point_is_trained_once_by_machines_that_share_a_store(workers: int, points: int, tmp_path: Path) -> None:
    """A machine that goes down with its program loses no point: another one trains it, after a time of silence."""
    (tmp_path / "store").mkdir()
    train(workers, points, f"file://{tmp_path}/store", tmp_path)


def train(workers: int, points: int, where: str, tmp_path: Path) -> None:
    """Have workers train a sweep's points, and kill the one that has the first; all are trained, each once."""
    done, began = tmp_path / "done", tmp_path / "began"
    hold = f"mkdir {began} 2>/dev/null && exec sleep 600"  # the first point of all is never trained to its end
    command = ["/bin/sh", "-c", f"echo $$ > {tmp_path}/$$.pid; {hold}; rm {tmp_path}/$$.pid; echo {{lr}} >> {done}"]
    children = [
        begin(number, lambda number=number: sweep(number, points, command, where).run())  # type: ignore[misc]
        for number in range(workers)
    ]

    def kill() -> None:
        wait_for(began.exists)
        wait_for(lambda: len(done.read_text().split()) >= points - 1 if done.exists() else False)
        (pid,) = (int(path.stem) for path in tmp_path.glob("*.pid"))
        victim = next(child for child in children if _has(child, os.getpgid(pid)))
        os.kill(victim, signal.SIGKILL)
        os.killpg(os.getpgid(pid), signal.SIGKILL)

    codes = ended(children, kill)
    assert sorted(Counter(codes).items()) == [(-signal.SIGKILL, 1), (0, workers - 1)]
    assert Counter(done.read_text().split()) == Counter(str(number) for number in range(points))


def _has(worker: int, program: int) -> bool:
    """Whether a worker has started a program."""
    return f"PPid:\t{worker}\n" in Path(f"/proc/{program}/status").read_text()


def ledger(number: int, tmp_path: Path) -> StoreLedger:
    """What a worker of another machine has."""
    made = StoreLedger(tmp_path / f"m{number}", "many", f"file://{tmp_path}/store", ["a", "b"], print)
    made.begin(shared=True)
    return made


def test_claim_is_one_workers_until_it_is_given_back_silent_or_ended(tmp_path: Path) -> None:
    """Who was taken over hears of it at its next sign of life, and ends its program."""
    (tmp_path / "store").mkdir()
    first, second = ledger(0, tmp_path), ledger(1, tmp_path)
    lease = first.claim("a")
    assert lease is not None
    assert second.claim("a") is None
    lease.release()
    second._looked = -1e9
    taken = second.claim("a")
    assert taken.number == 2
    now = store_claims.monotonic()
    third = ledger(2, tmp_path)
    third._me.token = "another"
    assert third.claim("a") is None
    third._seen = dict.fromkeys(third._seen, now - 60)
    third._holders[("a", 2)] = None  # of a machine that isn't here
    over = third.claim("a")
    assert over.number == 3
    taken._beaten = -1e9
    assert not taken.beat()
    over._beaten = -1e9
    assert over.beat()
    third.tell("a", "finished")
    for one in (first, second):
        one._looked = -1e9
        assert one.claim("a") is None
        assert (one.told("a"), one.outcome("a").ended) == ("finished", "finished")
        assert one.told("b") == ""


@pytest.mark.parametrize("seed", range(5))
def test_store_that_fails_now_and_then_gives_a_claim_to_one(seed: int, tmp_path: Path) -> None:
    """Though answers get lost: whoever isn't told that he has it hasn't, unless his own claim is there."""
    (tmp_path / "store").mkdir()
    workers = [ledger(number, tmp_path) for number in range(3)]
    for number, worker in enumerate(workers):
        worker.store = Failing(f"file://{tmp_path}/store", seed * 10 + number)
    source, has = random.Random(seed), dict[str, int]()
    for _ in range(60):
        number = source.randrange(3)
        point = source.choice("ab")
        workers[number]._looked = -1e9
        if point not in has and workers[number].claim(point) is not None:
            has[point] = number
        elif has.get(point, number) != number:
            assert workers[number].claim(point) is None
    names = sorted(path.name for path in (tmp_path / "store/.sweeps/many/claims").rglob("0*"))
    assert names == ["0001", "0001"]


@pytest.mark.parametrize(
    "name",
    [
        "claims/a/x",
        "claims/a/0001~odd",
        "claims/z/0001",
        "ended/a.odd",
        "ended/q.failed",
        "trials/a.json",
        "command.json",
    ],
)
def test_objects_that_make_no_sense_are_left_alone(name: str, tmp_path: Path) -> None:
    """Who shares the store ends nobody's sweep by them."""
    path = tmp_path / "store/.sweeps/many" / name
    path.parent.mkdir(parents=True)
    path.write_text("{")
    one = ledger(0, tmp_path)
    assert one.command() == []
    assert one.told("a") == ""
    made = Chooser(Search(method="", draws={"x": Draw("uniform", 0, 1)}, metric="loss"), one, "many", ["a", "b"])
    assert made.trial(0) is None
    assert one.claim("b") is not None


def test_trials_of_other_machines_are_known(tmp_path: Path) -> None:
    """A search learns from them as from its own."""
    (tmp_path / "store").mkdir()
    search = Search(method="", draws={}, metric="loss")
    made = [Chooser(search, ledger(number, tmp_path), "many", ["a", "b"]) for number in range(2)]
    assert made[0].choose(0, {"x": 0.5}) == {"x": 0.5}
    trial = made[1].trial(0)
    assert trial is not None
    assert trial.point == {"x": 0.5}


def test_store_that_cannot_be_asked_is_one_line(tmp_path: Path) -> None:
    """Before anything is trained."""
    plan = planned(SweepWords(command=["t.py"], grid=["a=1,2"], gpus="none", name="many"))
    one = Sweep(plan, root=tmp_path / "m", address=f"file://{tmp_path}/store", jobs=1, worker=True, say=print)
    assert isinstance(one.ledger, StoreLedger)
    one.ledger.store = Failing(f"file://{tmp_path}/store", 1, rate=2.0)
    with pytest.raises(UsageError, match="the sweep's claims need the store"):
        one.run()
