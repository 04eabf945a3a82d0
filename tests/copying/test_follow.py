"""`trackers copy --follow`: a machine that reaches both sides brings over what training goes on writing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import trackers
from tests import forked
from tests.helpers import wait_for
from tests.training.test_stores import deliver
from trackers.copying import CopyReport, follow, transfer
from trackers.copying.destinations import CopyDestination
from trackers.errors import NotFound, Unavailable, UsageError
from trackers.readers import registry
from trackers.training.run import Run


def begin(run_id: str, where: str = "runs") -> Run:
    """A run whose records stay on this machine."""
    run = trackers.init("json", project="digits", id=run_id, dir=where, options={"TRACKER_RELAY": False},
                        reinit="create_new")  # fmt: skip
    assert isinstance(run, Run)
    return run


class Followed:
    """A copy that goes on beside the test."""

    def __init__(self, source: str, destination: str, **more: Any) -> None:
        self.reports: list[CopyReport] = []
        self.complaints: list[str] = []
        self._stop = threading.Event()
        often = {"every_s": 0.05, "again_s": 1.0}
        told: Any = {"stopping": self._stop.is_set, "say": self.complaints.append, **often, **more}
        self._thread = threading.Thread(
            target=lambda: self.reports.extend(follow(lambda: [source], destination, **told)), daemon=True
        )
        self._thread.start()

    def end(self) -> None:
        """Stop it."""
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()


@pytest.fixture
def followed() -> Iterator[Any]:
    """Begins copies that end with the test."""
    begun: list[Followed] = []

    def start(source: str, destination: str, **more: Any) -> Followed:
        begun.append(Followed(source, destination, **more))
        return begun[-1]

    yield start
    for one in begun:
        one.end()


def losses(source: str) -> list[list[float]]:
    """The metric of each run that is there; [] before the first."""
    try:
        runs = trackers.load_all(source)
    except NotFound:
        return []
    return sorted(run.metrics()["loss"].to_pylist() for run in runs if run.keys())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("destination", "there"),
    [("csv:out", "csv:out/*/metrics.csv"), ("mlflow:sqlite:///m.db#digits", "mlflow:sqlite:///m.db#digits")],
)
def test_runs_are_copied_as_they_grow_and_as_they_begin(followed: Any, destination: str, there: str) -> None:
    """Each value once, those of a run that goes on too; a run that has ended and agrees isn't read again."""
    run = begin("a")
    for step in range(10):
        run.log({"loss": float(step)}, step=step)
    copying = followed("digits", destination)
    wait_for(lambda: losses(there) == [[float(step) for step in range(10)]])
    for step in range(10, 20):
        run.log({"loss": float(step)}, step=step)
    wait_for(lambda: losses(there) == [[float(step) for step in range(20)]])
    run.finish()
    other = begin("b")
    other.log({"loss": 0.5}, step=0)
    other.finish()
    wait_for(lambda: losses(there) == [[float(step) for step in range(20)], [0.5]])
    wait_for(lambda: {one.expected.status for one in copying.reports[-2:]} == {"finished"})
    count = len(copying.reports)
    copying.end()
    assert len(copying.reports) == count
    assert all(report.agrees for report in copying.reports), [str(report) for report in copying.reports]
    assert copying.complaints == []


def test_run_that_does_not_agree_is_told_once(followed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is repeated while nothing changes; a run that hasn't changed isn't read again for a while."""
    run = begin("a")
    run.log({"loss": 1.0}, step=0)
    run.finish()
    read: list[str] = []
    real = transfer._copy_run

    def differs(reader: Any, run: Any, *more: Any) -> CopyReport:
        read.append(run.source)
        report = real(reader, run, *more)
        report.differences = ["something"]
        return report

    monkeypatch.setattr(transfer, "_copy_run", differs)
    copying = followed("digits", "csv:out", again_s=600.0)
    wait_for(lambda: len(copying.reports) == 1)
    other = begin("b")
    other.log({"loss": 0.5}, step=0)
    other.finish()
    wait_for(lambda: len(copying.reports) > 1 and copying.reports[-1].expected.status == "finished")
    copying.end()
    assert read.count(copying.reports[0].source) == 1
    copying = followed("digits", "csv:out", again_s=0.0)
    wait_for(lambda: len(read) > 8)
    copying.end()
    assert len(copying.reports) == 2


def test_what_fails_is_tried_again(followed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A destination that is away, a source that is; each complaint once."""
    run = begin("a")
    run.log({"loss": 1.0}, step=0)
    run.finish()
    returns = threading.Event()
    read_back = transfer._read_back

    def unreachable(source: str, target: CopyDestination) -> Any:
        if returns.is_set():
            return read_back(source, target)
        raise Unavailable("no answer")

    monkeypatch.setattr(transfer, "_read_back", unreachable)
    copying = followed("digits", "csv:out")
    wait_for(lambda: len(copying.reports) == 1)
    assert copying.reports[0].error == "no answer"
    real = registry.open_source

    def away(source: str, root: Any = None) -> Any:
        if source == "digits":
            raise Unavailable("no route to the store")
        return real(source, root)

    monkeypatch.setattr(registry, "open_source", away)
    wait_for(lambda: copying.complaints == ["no route to the store"])
    monkeypatch.setattr(registry, "open_source", real)
    returns.set()
    wait_for(lambda: len(copying.reports) == 2)
    assert copying.reports[1].agrees
    assert losses("csv:out/*/metrics.csv") == [[1.0]]
    assert copying.complaints == ["no route to the store"]


def test_source_that_is_not_there_is_said_at_once() -> None:
    """As without --follow: a misspelt project isn't waited for."""
    begin("a").finish()
    with pytest.raises(NotFound, match="did you mean"):
        next(follow(lambda: ["digit"], "csv:out", lambda: False))
    with pytest.raises(UsageError):
        next(follow(lambda: ["digits"], "nothing:out", lambda: False))


@pytest.mark.processes
def test_gateway_brings_a_stores_runs_to_another_tracker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command, on a machine that has nothing but the store's address; SIGTERM ends it, with 0 where all agree."""
    store = f"file://{tmp_path}/store"
    monkeypatch.setenv("TRACKER_STORE_DIR", str(tmp_path / "node"))
    run = begin("a", store)
    run.log({"loss": 0.0}, step=0)
    deliver(run)
    gateway = forked.Program(
        [sys.executable, "-m", "trackers", "copy", "--follow", "digits", "csv:out"], preload=forked.HELPERS,
        env={**os.environ, "TRACKER_DIR": store, "TRACKER_STORE_DIR": str(tmp_path / "gateway")},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        wait_for(lambda: losses("csv:out/*/metrics.csv") == [[0.0]])
        run.log({"loss": 1.0}, step=1)
        run.finish()
        deliver(run)
        wait_for(lambda: losses("csv:out/*/metrics.csv") == [[0.0, 1.0]])
        gateway.send_signal(signal.SIGTERM)
        out, err = gateway.communicate(timeout=60)
    finally:
        gateway.kill()
    assert (gateway.returncode, err) == (0, "")
    assert out.splitlines()[-1].endswith(": 2 values, finished: agrees")
    told = forked.run([sys.executable, "-m", "trackers", "sync", "--follow", "--dir", store], preload=forked.HELPERS)
    assert told.returncode == 2
    assert "to bring them to another tracker as they grow: trackers copy --follow" in told.stderr
