"""Libraries that stop a program's clocks, as freezegun and time-machine do, and machines' clocks that jump."""

from __future__ import annotations

import datetime
import os
import sys
import time
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

import trackers
from tests.helpers import run_info
from trackers.journal.lease import Lease
from trackers.journal.run_directory import RunDirectory
from trackers.journal.stream import StreamReader
from trackers.records import Metrics
from trackers.relay import deliveries
from trackers.relay.agent.turns import Turns
from trackers.relay.client import RelayClient
from trackers.relay.parts.part import Beside
from trackers.support.clock import Clock

FROZEN = datetime.datetime(2030, 1, 1, tzinfo=datetime.timezone.utc).timestamp()
STOPPED = ("time", "monotonic", "perf_counter")


@pytest.fixture
def frozen(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As freezegun does it: in the module ``time``, and wherever a module has its own name for one of its functions."""
    replaced = {id(getattr(time, name)): lambda: FROZEN for name in STOPPED}
    with monkeypatch.context() as patched:
        for module in [module for name, module in sys.modules.items() if name.startswith("trackers")]:
            for name, value in list(vars(module).items()):
                if id(value) in replaced:
                    patched.setattr(module, name, replaced[id(value)])
        for name in STOPPED:
            patched.setattr(time, name, lambda: FROZEN)
        yield


def test_finish_ends_while_clocks_stand_still(frozen: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its timeout is over though a relay goes on that delivers nothing."""
    run = RunDirectory(tmp_path / "run")
    run.make()
    relay = RelayClient(run, run_info(run.path), ["json"])
    relay._process = types.SimpleNamespace(poll=lambda: None, wait=lambda _: None, returncode=None)
    relay.finish(0.1, quiet=True)
    assert "json: not delivered within 0 s" in capsys.readouterr().err


def test_jump_of_the_clock_ends_no_delivery(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For how long a delivery has been silent is measured by the monotonic clock; one that is stuck is ended."""
    run = RunDirectory(tmp_path / "run")
    run.make()
    run.delivery.mkdir(exist_ok=True)
    lease = Lease(run.delivery / "json.lease")
    assert lease.acquire()
    assert lease.beat(60.0)
    now, said, killed = [1000.0], [], []
    monkeypatch.setattr(deliveries, "time", types.SimpleNamespace(time=lambda: 1e10, monotonic=lambda: now[0]))
    beside = Beside(run, run_info(run.path), 1, lambda text, name: said.append(text))
    serving = deliveries.Deliveries(beside, ["json"], attempt=1, turns=Turns())
    child = serving.children[0]
    child.helper.process = types.SimpleNamespace(pid=os.getpid(), kill=lambda: killed.append(now[0]))
    for seconds in (0, 60, 4, 2):
        now[0] += seconds
        serving._end_if_stuck(child)
    assert killed == [1066.0]
    assert said == ["no progress for 66 s: its delivery is started again from its cursor"]


def test_records_have_their_times_whenever_clocks_stood_still(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """A run that began before goes on at its times."""
    monkeypatch.setenv("TRACKER_RELAY", "n")
    run = trackers.init("json", project="p", mode="offline")
    run.log({"loss": 1.0})
    before = Clock().now()
    request.getfixturevalue("frozen")
    run.log({"loss": 2.0})
    run.log({"loss": 3, "text": "a"})
    run.finish(timeout=0.1)
    records = StreamReader(next(Path(run.dir).glob("streams/rank-0.*.jsonl"))).read()
    times = [record.time for record in records if isinstance(record, Metrics)]
    assert len(times) == 3
    assert times == sorted(times)
    assert before <= times[1] <= times[2] < before + 3600
