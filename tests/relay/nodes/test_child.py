"""A node's carrier as its first rank sees it: started, started again where it was killed, waited for at the end."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from trackers.hardware.plan import SamplingPlan
from trackers.relay.nodes import child
from trackers.relay.nodes.carrier import CarryTask
from trackers.relay.nodes.child import Carrying


class Process:
    """A process that says nothing. code: how it ended; None: it works. ends: it does so once it is waited for."""

    def __init__(self, ends: bool = True) -> None:
        self.code: int | None = None
        self.returncode: int | None = None
        self._ends = ends

    def poll(self) -> int | None:
        return self.code

    def wait(self, timeout: float) -> int:
        if not self._ends:
            raise child.subprocess.TimeoutExpired("carry", timeout)
        self.code = self.code or 0
        return self.code


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Process]:
    """What was started."""
    found: list[Process] = []

    def start(*_: Any, **__: Any) -> Process:
        found.append(Process())
        return found[-1]

    monkeypatch.setattr(child.helper_process, "start", start)
    return found


def carrying(tmp_path: Path) -> Carrying:
    return Carrying(
        tmp_path / "launch", CarryTask(store="file:///x", every_s=1, main=0, ranks=2, plan=SamplingPlan(node=1))
    )


def test_carrier_that_was_killed_begins_again(started: list[Process], tmp_path: Path) -> None:
    """One that works, or has ended, is left as it is; one that dies again and again isn't started for ever."""
    one = carrying(tmp_path)
    one.poll()
    assert len(started) == 1
    started[0].code = -9
    one.poll()
    one.poll()
    assert len(started) == 2
    for _ in range(100):
        started[-1].code = -9
        one.poll()
    assert len(started) == 1 + child.MOST_DEATHS
    before = len(os.listdir("/proc/self/fd"))
    started[-1].code = 0
    one.poll()
    assert one.end(1.0) == ""
    assert len(os.listdir("/proc/self/fd")) == before - 1


def test_carrier_that_is_not_done_is_named_and_goes_on(
    started: list[Process], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of a rank waits no longer than it was told."""
    one = carrying(tmp_path)
    started[0]._ends = False
    log = tmp_path / "launch" / "relay.log"
    assert one.end(0.0) == f"what node 1 has isn't all in the store yet; its carrier goes on: {log}"
    assert started[0].code is None


@pytest.mark.parametrize("well", [False, True])
def test_carrier_that_is_not_done_is_named_with_its_problem(started: list[Process], tmp_path: Path, well: bool) -> None:
    """The last one that it wrote to its log, beside whatever else is there, unless it is over."""
    one = carrying(tmp_path)
    started[0]._ends = False
    log = tmp_path / "launch" / "relay.log"
    last = "12:00:02 node 1: sending again\n" if well else ""
    log.write_text(f"12:00:01 node 1: no such bucket\nsomething else\n{last}")
    why = "" if well else " (no such bucket)"
    assert one.end(0.0) == f"what node 1 has isn't all in the store yet{why}; its carrier goes on: {log}"


def test_carrier_that_failed_is_named(started: list[Process], tmp_path: Path) -> None:
    """With the file that says why."""
    one = carrying(tmp_path)
    started[0].code = None
    started[0].wait = lambda timeout: 1  # type: ignore[method-assign]
    assert f"isn't all in the store; {tmp_path}/launch/relay.log says why" in one.end(1.0)


def test_carrier_that_cannot_be_started_again_harms_nobody(
    started: list[Process], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No more processes: the rank ends, with what there is to say."""
    one = carrying(tmp_path)
    started[0].code = -9

    def full(*_: Any, **__: Any) -> Process:
        raise OSError("no more processes")

    monkeypatch.setattr(child.helper_process, "start", full)
    with pytest.raises(OSError, match="no more processes"):
        one.poll()
    assert "its carrier can't start: no more processes" in one.end(0.0)
