"""The supervisor's own stream: what a relay says of a run, though an earlier relay died while it said it."""

from __future__ import annotations

import os
import sys
from importlib import metadata
from pathlib import Path
from unittest import mock

import psutil
import pytest

from tests.helpers import T0, run_info
from trackers.journal.run_directory import RunDirectory, StreamName
from trackers.journal.stream import StreamReader, StreamWriter
from trackers.provenance import packages
from trackers.records import Environment, Finish, Start, encode, files_of
from trackers.relay import supervisor as supervisor_module
from trackers.relay.agent.work_slots import SlotRequest
from trackers.relay.deliveries import Deliveries
from trackers.relay.parts.part import TRAINING, RelayMoment, RelayPart
from trackers.relay.supervisor import Supervisor
from trackers.support import machines, processes


def begun(tmp_path: Path) -> tuple[RunDirectory, tuple[int, float], StreamWriter]:
    """A run that this process trains: its directory, the process (pid, start), and the stream of its first attempt."""
    run = RunDirectory(tmp_path / "run")
    run.make()
    own = os.getpid(), processes.process_start(os.getpid())
    run.write_info(run_info(run.path, host=machines.host(), pid=own[0], pid_start=own[1]))
    training = StreamWriter(run.stream(StreamName("rank", 0, 1)))
    training.write(encode(Start(time=T0)))
    return run, own, training


@pytest.mark.parametrize("before", [b"", encode(Start(time=T0, node=0)), encode(Start(time=T0))[:20]])
def test_environment_is_recorded_once_though_a_relay_died_first(tmp_path: Path, before: bytes) -> None:
    """Killed before, within or after its first line, a relay's successor still records what the run ran on."""
    run, own, _ = begun(tmp_path)
    stream = run.stream(StreamName("node", 0, 1))
    stream.write_bytes(before)
    for _ in range(2):
        supervisor = Supervisor(run, [], watch=own, say=lambda text, name: None)
        supervisor.begin()
        supervisor.end()
    start, environment = StreamReader(stream).read(10)
    assert isinstance(start, Start)
    assert isinstance(environment, Environment)
    machine = environment.values["machines"]["node0"]  # also of a run that is too short for the sampler
    assert machine["memory_total_bytes"] == psutil.virtual_memory().total


@pytest.mark.heavy
def test_installed_packages_are_those_that_python_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names and versions are read as ``importlib.metadata`` reads them, whatever stands in a description."""
    system = tmp_path / "system"
    for name, text in (
        ("system/one_1-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: one-1\nVersion: 1\n"),
        ("system/two-2.dist-info/METADATA", "Metadata-Version: 2.1\nName: two\nVersion: 2\n"),
        ("One_1-2.dist-info/METADATA", "Metadata-Version: 2.1\r\nNAME: One.1 \r\nVersion: 2\r\n\r\nName: Other\n"),
        ("two-3.egg-info/PKG-INFO", "Name: two\nVersion: 3+cu128\nSummary: Name: it\n Version: 4\n"),
        ("broken-1.dist-info/METADATA", "Metadata-Version: 2.1\n"),
    ):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_bytes(text.encode())
    (system / "three-3.egg-info").write_text("Metadata-Version: 1.1\nName: three\nVersion: 3\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path, str(system)])
    told = packages.installed()
    assert (told["One.1"], told["two"], told["three"]) == ("2", "3+cu128", "3")
    assert not {"Other", "it", "", "one-1"} & set(told)
    assert told == {name: metadata.version(name).strip() for name in told}, "the first of the path is imported"
    names = {one.metadata["Name"].strip() for one in metadata.distributions() if "Name" in one.metadata}
    assert set(told) == names - {"one-1"}


class Keeper(RelayPart):
    """A part that notes what it is told."""

    name = "code"
    idle = False

    def __init__(self) -> None:
        self.moments: list[RelayMoment] = []
        self.gave_way = 0

    def poll(self, moment: RelayMoment) -> None:
        self.moments.append(moment)

    def give_way(self) -> None:
        self.gave_way += 1


@pytest.fixture
def keeper(monkeypatch: pytest.MonkeyPatch) -> Keeper:
    """The only part of supervisors."""
    keeper = Keeper()
    monkeypatch.setattr(supervisor_module, "parts_of", lambda beside: [keeper])
    return keeper


@pytest.mark.parametrize(("processors", "late"), [(1, True), (2, False)])
def test_parts_know_whether_a_processor_is_free_when_training_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keeper: Keeper, processors: int, late: bool
) -> None:
    """When training ends, a delivery has the only processor; beside another one nothing waits."""
    run, own, training = begun(tmp_path)
    training.write(encode(Finish(time=T0, status="completed")))
    monkeypatch.setattr(machines, "processors", lambda: processors)
    monkeypatch.setattr(Deliveries, "poll", lambda self, settled: None)
    supervisor = Supervisor(run, ["json", "storage"], watch=own, say=lambda text, name: None)
    supervisor.begin()
    assert supervisor.step()
    assert bool(keeper.gave_way) is late
    assert (keeper.moments[-1].phase, keeper.moments[-1].crowded) == ("over", late)
    next(child for child in supervisor.deliveries.children if child.name == "json").done = True
    assert supervisor.step()
    assert not keeper.moments[-1].crowded
    supervisor.end()


def test_deliveries_are_started_before_parts_are_polled_when_training_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keeper: Keeper
) -> None:
    """Training that ended at once waits for both, and for the delivery longer."""
    run, own, training = begun(tmp_path)
    done: list[str] = []
    monkeypatch.setattr(keeper, "poll", lambda moment: done.append("code") if moment.phase == "over" else None)
    monkeypatch.setattr(machines, "processors", lambda: 2)
    monkeypatch.setattr(supervisor_module, "SETTLE_S", 3600.0)  # no delivery starts before, however long begin takes
    monkeypatch.setattr(Deliveries, "start", lambda self, child, deaths: done.append(child.name) or mock.Mock(pid=0))
    supervisor = Supervisor(run, ["json"], watch=own, say=lambda text, name: None)
    supervisor.begin()
    tend = supervisor.deliveries.poll

    def poll(*, settled: bool) -> None:
        tend(settled=settled)
        if not done and not supervisor._ended_at and not supervisor._is_over():
            training.write(encode(Finish(time=T0, status="completed")))

    monkeypatch.setattr(supervisor.deliveries, "poll", poll)
    assert supervisor.step()
    assert done[:2] == ["json", "code"]
    monkeypatch.setattr(supervisor.deliveries, "children", [])
    supervisor.end()


def test_parts_know_whether_deliveries_wait_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keeper: Keeper
) -> None:
    """Of many runs that begin at once each would have one process more than there are slots for."""
    run, own, _ = begun(tmp_path)
    monkeypatch.setattr(Deliveries, "poll", lambda self, settled: None)
    supervisor = Supervisor(run, ["json"], watch=own, say=lambda text, name: None)
    supervisor.begin()
    request = SlotRequest("json")
    requests = supervisor.deliveries.turns._requests
    requests["json"] = 1, request
    assert supervisor.step()
    assert keeper.moments[-1] == RelayMoment("training", crowded=True)
    request.began = 1.0
    assert supervisor.step()
    assert keeper.moments[-1] == TRAINING
    requests.clear()
    assert supervisor.step()
    assert keeper.moments[-1] == TRAINING
    supervisor.end()


def test_files_of_a_killed_run_wait_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the disk refuses what training would have kept, its end isn't written; after a minute without it."""
    run, own, _ = begun(tmp_path)
    (run.path / "files").mkdir()
    (run.path / "files" / "own.txt").write_text("mine")
    run.media.rmdir()
    run.media.write_text("no folder")
    said: list[str] = []
    supervisor = Supervisor(run, [], watch=own, say=lambda text, name: said.append(text))
    supervisor.begin()
    finish = Finish(time=T0, status="crashed")
    assert not supervisor._end_with(finish)
    assert StreamReader(run.stream(StreamName("node", 0, 1))).read(10)[-1] != finish
    assert supervisor._last is not None
    monkeypatch.setattr(supervisor._last, "_until", 0.0)
    patient = supervisor._last.placed(supervisor._say)
    assert patient == []
    assert len(said) == 1
    assert said[0].startswith("1 records of files of the killed run were lost: ")
    run.media.unlink()
    assert supervisor._end_with(finish)
    supervisor.end()
    *_, kept, end = StreamReader(run.stream(StreamName("node", 0, 1))).read(10)
    assert [(run.path / file).read_text() for file in files_of(kept)] == ["mine"]
    assert isinstance(end, Finish)
