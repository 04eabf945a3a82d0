"""Collectors: growing runs into a lake round after round, projects shared, those of a dead one taken over."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lake_support import held
from trackers_lake.collect import Claims, Round, collect
from trackers_lake.tables import Lake

from tests.analysis.support import T0, write_run
from tests.helpers import wait_for
from trackers.errors import Damaged, NotFound, Unavailable
from trackers.object_storage.store import Store
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
    collect(lambda: [Path("runs")], "lake", tell=done.append, wait=rounds([lambda: grow(5), lambda: None]))
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
        collect(lambda: [Path("runs")], f"lake{runs}", tell=lambda done: None, wait=rounds(changes))
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

    def roots() -> list[Path]:
        if next(failing):
            raise problem("s3://bucket can't be reached")
        return [Path("runs")]

    said: list[str] = []
    collect(roots, "lake", failed=said.append, wait=rounds([lambda: None]))
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
