"""Collectors: growing runs into a lake round after round, projects shared, those of a dead one taken over."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from lake_support import held
from trackers_lake.collect import Claim, Claims, Directory, Round, Stored, collect
from trackers_lake.tables import Lake

from tests.analysis.support import T0, write_run
from tests.helpers import wait_for
from trackers.errors import Damaged, NotFound, Unavailable
from trackers.journal.run_directory import find_runs
from trackers.object_storage.shipping import Sender
from trackers.object_storage.store import Store
from trackers.support import machines, processes
from trackers.testing.driver import python_path


def grow(steps: int, runs: int = 4) -> None:
    """Runs of two projects as they are after so many steps."""
    for number in range(runs):
        rows = [(step, step, {"loss": float(step)}) for step in range(steps)]
        write_run(f"r{number}", rows, project=f"p{number % 2}", created=T0, status="running")


def rounds(changes: list[Callable[[], None]]) -> Callable[[float], bool]:
    """A pause that makes the next change; stops after the last."""
    left = iter(changes)

    def wait(_: float) -> bool:
        change = next(left, None)
        if change is not None:
            change()
        return change is None

    return wait


def test_rounds_put_in_what_is_new_by_one_commit_of_each_table() -> None:
    """All runs at once, and nothing where nothing is new."""
    grow(3)
    done: list[Round] = []
    collect([Directory(Path("runs"))], "lake", tell=done.append, wait=rounds([lambda: grow(5), lambda: None]))
    assert [(one.projects, one.runs, len(one.added.added), one.added.unchanged) for one in done] == [
        (2, 4, 4, 0), (2, 4, 4, 0), (2, 4, 0, 4),
    ]  # fmt: skip
    lake = Lake("lake")
    assert held("lake") == {(f"p{number % 2}", f"r{number}"): 5 for number in range(4)}
    assert lake.snapshot("metrics").version == 1
    assert not list(Path("lake/collectors").glob("*"))


def test_round_of_many_runs_takes_no_more_requests_than_one_of_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is asked of the lake's store depends on projects and tables."""
    asked: list[int] = []
    call = Store._call

    def counted(self: Store, what: Callable[[], Any]) -> Any:
        asked.append(1)
        return call(self, what)

    monkeypatch.setattr(Store, "_call", counted)
    counts = []
    for runs in (4, 30):
        grow(2, runs)
        changes: list[Callable[[], None]] = [lambda runs=runs: (grow(4, runs), asked.clear())]  # type: ignore[misc]
        collect([Directory(Path("runs"))], f"lake{runs}", tell=lambda done: None, wait=rounds(changes))
        counts.append(len(asked))
    assert counts[0] == counts[1]


def test_two_share_projects_and_one_takes_over_from_the_other(tmp_path: Path) -> None:
    """A project has one collector; a silent one loses all of it to the next, not before its time, and not for ever."""
    store = Lake("lake", make=True).store
    one, two = Claims(store, 0.3), Claims(store, 0.3)
    assert one.take(["a", "b"]) == {"a", "b"}
    assert two.take(["a", "b", "c"]) == {"c"}
    assert one.take(["a", "b", "c"]) == {"a", "b"}
    two.take(["a", "b", "c"])
    time.sleep(0.4)
    assert one.take(["a", "b", "c"]) == {"a", "b"}
    assert two.take(["a", "b", "c"]) == {"c"}  # one came by meanwhile
    time.sleep(0.4)
    assert two.take(["a", "b", "c"]) == {"a", "b", "c"}
    assert one.take(["a", "b", "c"]) == set()
    two.release()
    assert one.take(["a", "b", "c"]) == {"a", "b", "c"}
    assert one.take(["a"]) == {"a"}
    assert two.take(["b", "c"]) == {"b", "c"}


def test_damaged_claim_is_taken_over_when_nobody_changes_it(tmp_path: Path) -> None:
    """Whatever lies there: it isn't ours, and not for ever another's."""
    lake = Lake("lake", make=True)
    lake.store.put("collectors/a.json", b"\xff" * 100)
    claims = Claims(lake.store, 0.0)
    assert claims.take(["a"]) == set()
    assert claims.take(["a"]) == {"a"}


@pytest.mark.parametrize("problem", [Unavailable, NotFound, Damaged, OSError])
def test_outage_costs_a_round(problem: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    """What failed is said, and the next round does it: a store that can't be reached, or whose object another has
    deleted, and a disk without room."""
    grow(3)
    failing = iter([True, False])

    class Failing(Directory):
        def projects(self) -> Iterable[str]:
            if next(failing):
                raise problem("s3://bucket can't be reached")
            return super().projects()

    said: list[str] = []
    collect([Failing(Path("runs"))], "lake", failed=said.append, wait=rounds([lambda: None]))
    assert said == ["s3://bucket can't be reached"]
    assert len(held("lake")) == 4


def start(every: str = "1") -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "trackers", "lake", "collect", "runs", "lake:lake", "--every", every, "--json"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=python_path())


@pytest.mark.slow
@pytest.mark.processes
def test_killed_collectors_lose_and_double_nothing() -> None:
    """Two collectors, one of which is killed again and again while runs grow; the one that is left does all."""
    source = random.Random(5)
    grow(1)
    stays, killed = start(), start()
    for steps in range(2, 14):
        time.sleep(source.uniform(0.2, 1.0))
        grow(steps)
        if steps % 3 == 0:
            killed.kill()
            killed.communicate()
            killed = start()
    killed.kill()
    killed.communicate()
    expected = {(f"p{number % 2}", f"r{number}"): 13 for number in range(4)}
    wait_for(lambda: held("lake") == expected)
    os.kill(stays.pid, signal.SIGTERM)
    said = [json.loads(line) for line in stays.communicate()[0].splitlines()]
    assert stays.returncode == 0
    assert said[-1]["projects"] == said[-1]["of"] == 2
    assert not list(Path("lake/collectors").glob("*"))


def test_what_is_no_directory_is_named() -> None:
    """And what is needed is said."""
    from test_lake_commands import run_cli

    assert "is no directory of runs" in str(run_cli("lake", "collect", "nothing", "lake").exception)
    assert "needs runs and a lake" in str(run_cli("lake", "collect", "runs").exception)


def test_project_of_a_process_that_is_gone_is_taken_over_at_once() -> None:
    """On its machine the others needn't wait; a process of another machine may live on."""
    store = Lake("lake", make=True).store
    gone = subprocess.Popen([sys.executable, "-c", ""])
    here, start = machines.machine(), processes.process_start(gone.pid)
    gone.wait()
    for project, claim in {
        "gone": Claim("other", 1, *here, gone.pid, start),
        "reused": Claim("other", 1, *here, os.getpid(), 1.0),
        "lives": Claim("other", 1, *here, os.getpid(), processes.process_start(os.getpid())),
        "elsewhere": Claim("other", 1, "other", "boot", "1", gone.pid, start),
        "before": Claim("other", 1),
        "hostile": Claim("other", 1, *here, 2**62, 1e300),
    }.items():
        store.put(f"collectors/{project}.json", msgspec.json.encode(claim))
    store.put("collectors/wrong.json", b'{"holder": "other", "pid": "1"}')
    projects = ["gone", "reused", "lives", "elsewhere", "before", "hostile", "wrong"]
    assert Claims(store, 1000.0).take(projects) == {"gone", "reused", "hostile"}


def test_collectors_copy_the_runs_of_their_own_projects_alone(tmp_path: Path) -> None:
    """What another looks after isn't fetched; a project that was taken over is; a run that was removed goes."""
    where = f"file://{tmp_path}/store"
    grow(3)
    for run in find_runs(Path("runs")):
        Sender(Store(where), run.path, "/".join(run.path.parts[-2:])).finish()
    other = Claims(Lake("lake", make=True).store, 1000.0)
    assert other.take(["p1"]) == {"p1"}
    seen: list[tuple[int, int, int, set[str]]] = []

    def tell(one: Round) -> None:
        copied = {run.path.name for run in find_runs(tmp_path / "copy")}
        seen.append((one.projects, one.all_projects, one.runs, copied))

    def remove() -> None:
        store = Store(where)
        store.delete([entry.name for entry in store.objects("p0/r2")])

    source = Stored(where, tmp_path / "copy")
    collect([source], "lake", tell=tell, wait=rounds([remove, other.release]))
    assert seen == [(1, 2, 2, {"r0", "r2"}), (1, 2, 1, {"r0"}), (2, 2, 3, {"r0", "r1", "r3"})]
