"""What runs beside a training: each part dies, hangs, is asked to end twice; parts of plug-ins hurt nobody."""

from __future__ import annotations

import os
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import T0, run_info
from trackers.journal import helper_process
from trackers.journal.run_directory import RunDirectory, StreamName
from trackers.journal.stream import StreamReader, StreamWriter
from trackers.records import Finish, Start, encode
from trackers.relay import beside as beside_module
from trackers.relay.alerting.files import outbox
from trackers.relay.beside import OWN, Isolated, parts_of
from trackers.relay.parts.part import Beside, RelayMoment, RelayPart
from trackers.relay.supervisor import Supervisor
from trackers.support import machines, plugins, processes

OVER = RelayMoment("over", ended_s=100.0)
NAMES = ["sample", "fetch", "reduce", "console", "code", "alerts", "checksums", "send"]


class Process:
    """A helper that does what the test says."""

    pid = 0

    def __init__(self, code: int | None) -> None:
        self.code = code
        self.killed = False

    def poll(self) -> int | None:
        return -9 if self.killed else self.code

    def terminate(self) -> None:
        """Not listened to."""

    def kill(self) -> None:
        self.killed = True

    def wait(self, timeout: float | None = None) -> int:
        return -9


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Beside:
    """A run on two nodes of a store, with alerts, whose parts all have work; what they start does nothing."""
    monkeypatch.chdir(tmp_path)
    run = RunDirectory(tmp_path / "run")
    run.make()
    options = {
        "TRACKER_SAMPLE": True, "TRACKER_ALERTS": "nan(loss)", "TRACKER_ALERT_TO": "log", "TRACKER_CODE": True,
        "TRACKER_REDUCE_WAIT": 0, "TRACKER_STORE_EVERY": 0.01, "TRACKER_DIR": f"file://{tmp_path}/store",
    }  # fmt: skip
    own = os.getpid(), processes.process_start(os.getpid())
    attempt = {"number": 1, "launch": "launch", "rank": 0, "nodes": 2, "ranks": 2}
    info = run_info(run.path, options=options, host=machines.host(), pid=own[0], pid_start=own[1], mode="online")
    info.attempts = [attempt]
    run.write_info(info)
    StreamWriter(run.stream(StreamName("rank", 0, 1))).write(encode(Start(time=T0)))
    (run.path / "code-1.modules").touch()
    outbox(run).write_bytes(b"{}\n")
    monkeypatch.setattr("trackers.relay.alerting.child.destinations_of", lambda info: ())
    monkeypatch.setattr("trackers.relay.aggregation.child.Reducing._has_work", lambda self: True)
    monkeypatch.setattr("trackers.relay.nodes.child.nodes.store_of", lambda info, folder: "file:///store")
    monkeypatch.setattr("trackers.relay.nodes.child.folder_of", lambda run, info, attempt: tmp_path)
    return Beside(run, info, 1, lambda text, source: None, pid=own[0])


def test_parts_stand_in_the_order_of_the_table(beside: Beside) -> None:
    """What one comes after stands before it, and no name is there twice."""
    parts = parts_of(beside)
    assert [part.name for part in parts] == NAMES
    for number, part in enumerate(parts):
        assert set(part.after) <= set(NAMES[:number])
    assert len(OWN) == len(NAMES)


def moved(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that all parts look at; it moves by a second at each look."""
    now = [time.monotonic() + 60.0]

    def monotonic() -> float:
        now[0] += 1.0
        return now[0]

    monkeypatch.setattr(time, "monotonic", monotonic)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    return now


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("code", [-9, 1, None], ids=["killed", "fails", "hangs"])
def test_part_whose_process_dies_or_hangs_ends_in_time(
    beside: Beside, monkeypatch: pytest.MonkeyPatch, name: str, code: int | None
) -> None:
    """Its process is started again, the end of the run waits for a bounded time, and nothing is left running."""
    started: list[Process] = []

    def start(*_: Any, **__: Any) -> Process:
        started.append(Process(code))
        return started[-1]

    monkeypatch.setattr(helper_process, "start", start)
    said: list[str] = []
    beside.say = lambda text, source: said.append(text)
    part = next(part for part in parts_of(beside) if part.name == name)
    moved(monkeypatch)
    part.begin()
    for _ in range(100):
        part.poll(RelayMoment())
    has_process = name in ("sample", "fetch", "reduce", "code", "send")
    assert (len(started) > 1) is (has_process and code is not None)
    assert bool(started) is has_process
    rounds = 0
    while not part.end():
        rounds += 1
        assert rounds < 400, "it holds up the end of the run"
        part.pause(OVER)
    assert part.end(), "asked again, it has still ended"
    part.ended(Finish(time=T0, status="finished"))
    for _ in range(20):
        part.poll(OVER)
    part.close()
    part.close()
    assert part.pid == 0
    assert all(process.code is not None or process.killed for process in started), "nothing is left running"
    if code is not None and has_process:
        assert said, "what doesn't work is said"


class Bad(RelayPart):
    """A plug-in's part, one of whose methods raises, or that never ends."""

    name = "bad"
    where = ""

    def _at(self, where: str) -> None:
        if self.where == where:
            raise ValueError(f"oops in {where}")

    @property
    def idle(self) -> bool:
        self._at("idle")
        return self.where != "never idle"

    @property
    def pid(self) -> int:
        self._at("pid")
        return 0

    def begin(self) -> None:
        self._at("begin")

    def poll(self, moment: RelayMoment) -> None:
        self._at("poll")

    def end(self) -> bool:
        self._at("end")
        return self.where != "never ends"

    def ended(self, finish: Finish) -> None:
        self._at("ended")

    def give_way(self) -> None:
        self._at("give_way")

    def pause(self, moment: RelayMoment) -> bool:
        self._at("pause")
        return False

    def close(self) -> None:
        self._at("close")


def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Beside], Any]) -> tuple[list[str], Finish]:
    """A run that ends while its supervisor works: what the user is told of, and the run's end."""
    monkeypatch.setattr(beside_module, "OWN", ())
    monkeypatch.setattr(beside_module, "END_S", 0.2)
    monkeypatch.setattr(plugins, "targets", lambda group: {"bad": "there:make"} if group == "trackers.parts" else {})
    monkeypatch.setattr(plugins, "load", lambda what, target: make)
    monkeypatch.setattr(machines, "processors", lambda: 0)
    run = RunDirectory(tmp_path / "run")
    run.make()
    own = os.getpid(), processes.process_start(os.getpid())
    run.write_info(run_info(run.path, host=machines.host(), pid=own[0], pid_start=own[1]))
    training = StreamWriter(run.stream(StreamName("rank", 0, 1)))
    training.write(encode(Start(time=T0)))
    said: list[str] = []
    supervisor = Supervisor(run, [], watch=own, say=lambda text, name: said.append(text), limit_s=0.2, nice=1)
    supervisor.begin()
    supervisor.step()
    supervisor._pause()
    training.write(encode(Finish(time=T0, status="finished", exit_code=0)))
    until = time.monotonic() + 60
    while supervisor.step():
        supervisor._pause()
        assert time.monotonic() < until
    supervisor.end()
    end = StreamReader(run.stream(StreamName("node", 0, 1))).read(100)[-1]
    assert isinstance(end, Finish)
    return said, end


@pytest.mark.parametrize(
    "where", ["begin", "poll", "end", "ended", "give_way", "pause", "idle", "pid", "close", "never ends"]
)
def test_part_of_a_plugin_that_fails_is_left_out_and_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """The run ends as it should."""
    part = Bad()
    part.where = where
    said, end = serve(tmp_path, monkeypatch, lambda beside: part)
    why = "it hadn't ended 0 s after training" if where == "never ends" else f"ValueError: oops in {where}"
    assert said == [f"plugin bad is left out from now on: {why}"]
    assert end.status == "finished"


def test_part_of_a_plugin_that_is_never_idle_is_waited_for_no_longer_than_deliveries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The relay goes on for as long as it does for a tracker that can't be reached."""
    part = Bad()
    part.where = "never idle"
    assert serve(tmp_path, monkeypatch, lambda beside: part)[0] == []


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (None, []),
        (types.SimpleNamespace(), ["part 'bad' of bad made no RelayPart but SimpleNamespace: see docs/plugins.md"]),
        (ValueError("no"), ["part 'bad' of bad can't be made: ValueError: no"]),
    ],
    ids=["isn't needed", "another class", "raises"],
)
def test_plugin_that_makes_no_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: object, said: list[str]
) -> None:
    """What isn't needed is silent; what is wrong is one line."""

    def make(beside: Beside) -> object:
        if isinstance(made, Exception):
            raise made
        return made

    assert serve(tmp_path, monkeypatch, make)[0] == said


def test_part_of_a_plugin_works_beside_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told of the run, begins, is polled, ends after what it names, hears of the end, and is closed."""
    calls: list[str] = []

    class Good(RelayPart):
        name = "good"
        after = ("sample", "bad")

        def begin(self) -> None:
            calls.append("begin")

        def poll(self, moment: RelayMoment) -> None:
            if calls[-1] != moment.phase:
                calls.append(moment.phase)

        def end(self) -> bool:
            calls.append("end")
            return True

        def ended(self, finish: Finish) -> None:
            calls.append(finish.status)

        def close(self) -> None:
            calls.append("close")

    def make(beside: Beside) -> RelayPart:
        assert (beside.attempt, beside.pid) == (1, os.getpid())
        return Good()

    assert serve(tmp_path, monkeypatch, make)[0] == []
    assert calls == ["begin", "training", "end", "finished", "over", "close"]
    assert Isolated("good", Good(), print).after == ("sample", "bad")
