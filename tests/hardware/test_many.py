"""The sampler that the runs of a host agent share: each run has its own records; what hangs or dies holds up no run."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.gpu_drivers.standin import Drivers
from tests.helpers import T0, begun_run, wait_for
from trackers.journal import helper_process
from trackers.journal.run_directory import StreamName
from trackers.journal.stream import StreamReader
from trackers.records import Environment, Finish, Metrics, Record, Start, Summary, encode
from trackers.relay.agent import listener
from trackers.relay.agent.client import AgentSampler
from trackers.relay.agent.sampler import SharedSampler
from trackers.relay.parts.part import Beside
from trackers.relay.sampling.child import TIMES, SamplerProcess, SamplerTimes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: only there are processes forked so")


class Machine:
    """An agent's hold on the shared sampler, without the agent: its sampler is an interpreter of its own."""

    def __init__(self) -> None:
        self.started: list[subprocess.Popen[bytes]] = []
        self.environment: dict[str, str] = {}
        self.held = SharedSampler(lambda arguments: 0)

    def fork(
        self, entry: Any, how: Any, *, log: int, passed: dict[int, int], library_fds: Any
    ) -> subprocess.Popen[bytes]:
        """In the place of ``forked_helper.fork``."""
        environment = helper_process.environment()
        self.started.append(subprocess.Popen(
            helper_process.command(how.arguments), env=environment, pass_fds=tuple(passed), stdout=log, stderr=log
        ))  # fmt: skip
        return self.started[-1]

    def shared(self, run: str, plan: str, nice: int, beat: int) -> AgentSampler:
        """As a relay reaches it."""
        ours, theirs = socket.socketpair()
        request = {"run": run, "plan": json.loads(plan), "environment": self.environment, "nice": nice}
        self.held.hand_over(json.dumps(request).encode(), [theirs.fileno(), beat], ())
        theirs.close()
        return AgentSampler(ours)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """One, with samplers that start at once."""
    found = Machine()
    monkeypatch.setattr(listener.forked_helper, "fork", found.fork)
    yield found
    found.held.close()
    for process in found.started:
        process.kill()
        process.wait()


class Watched:
    """A run, and its relay's view of the sampler."""

    def __init__(
        self, path: Path, machine: Machine, node: int = 0, times: SamplerTimes = TIMES, **options: Any
    ) -> None:
        self.run, self.writer = begun_run(path)
        self.writer.write(encode(Metrics(time=T0, step=5, values={"loss": 0.5})))
        info = self.run.read_info()
        info.pid = os.getpid()
        info.options = {"TRACKER_SAMPLE": True, "TRACKER_SAMPLE_INTERVAL": 0.2, "TRACKER_SAMPLE_RECORD_INTERVAL": 0.2,
                        **options}  # fmt: skip
        self.said: list[str] = []
        beside = Beside(self.run, info, 1, lambda text, _: self.said.append(text), sampler=machine.shared)
        self.sampler = SamplerProcess(beside, times._replace(after_s=0.0))

    def hangs_after(self, hang_s: float) -> None:
        """Have a sampler that is silent for so long count as hung."""
        self.sampler.times = self.sampler.times._replace(hang_s=hang_s)

    def records(self) -> list[Record]:
        return StreamReader(self.run.stream(StreamName("sampler", 0, 1))).read(10_000)

    def values(self, name: str) -> list[float]:
        return [
            record.values[name] for record in self.records() if isinstance(record, Metrics) and name in record.values
        ]


def until(what: Callable[[], Any], *watched: Watched) -> Any:
    """Look after the samplers until something is so."""

    def look() -> Any:
        for one in watched:
            one.sampler.poll()
        return what()

    return wait_for(look, 60)


@pytest.mark.slow
def test_one_process_samples_for_all_runs_and_each_has_its_own_records(
    tmp_path: Path, drivers: Drivers, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own stream, GPUs, process and end: a run that ends has its last interval, the other goes on."""
    drivers.set(count=2, power=250_000, power__0=100_000)
    for name, value in drivers.environment("new").items():
        monkeypatch.setenv(name, value)
    machine.environment = {"CUDA_VISIBLE_DEVICES": "0"}
    first = Watched(tmp_path / "first", machine)
    until(lambda: first.values("gpu/power_total_w"), first)
    machine.environment = {"CUDA_VISIBLE_DEVICES": "1"}
    second = Watched(tmp_path / "second", machine)
    until(lambda: len(second.values("gpu/power_total_w")) > 2, first, second)
    assert len(machine.started) == 1
    assert set(first.values("gpu/power_total_w")) == {100.0}
    assert set(second.values("gpu/power_total_w")) == {250.0}
    for one in (first, second):
        assert [type(record) for record in one.records()[:2]] == [Start, Environment]
        assert max(one.values("system.proc.memory.rssMB")) > 10
        assert one.values("system.cpu")
    first.writer.write(encode(Finish(time=T0 + 1e9, status="finished")))
    first.sampler.close()
    assert isinstance(first.records()[-1], Summary)
    count = len(second.values("system.cpu"))
    until(lambda: len(second.values("system.cpu")) > count + 1, second)
    second.sampler.close()
    assert isinstance(second.records()[-1], Summary)
    assert first.said == second.said == []
    machine.held.close()
    assert machine.started[0].wait(60) == 0, "it ends with its agent, once no run is left"


@pytest.mark.slow
def test_nothing_is_later_than_the_end_of_training(tmp_path: Path, machine: Machine) -> None:
    """Also where a busy relay asks for the last interval long after training has ended."""
    one, other = (Watched(tmp_path / name, machine) for name in ("ended", "other"))
    until(lambda: one.values("system.cpu"), one, other)
    ended = time.time()
    one.writer.write(encode(Finish(time=ended, status="finished")))
    count = len(other.values("system.cpu"))
    until(lambda: len(other.values("system.cpu")) > count + 3, one, other)
    one.sampler.close()
    other.sampler.close()
    assert all(record.time <= ended for record in one.records())


@pytest.mark.slow
def test_sampler_that_dies_is_started_again_for_all(tmp_path: Path, machine: Machine) -> None:
    """Once: the runs that had it share the new one."""
    runs = [Watched(tmp_path / name, machine) for name in ("a", "b")]
    until(lambda: all(one.values("system.cpu") for one in runs), *runs)
    machine.started[0].kill()
    counts = [len(one.values("system.cpu")) for one in runs]
    until(lambda: all(len(one.values("system.cpu")) > count for one, count in zip(runs, counts, strict=True)), *runs)
    assert len(machine.started) == 2
    for one in runs:
        one.sampler.close()
        assert one.said == []


def test_driver_that_hangs_is_left_behind_and_the_next_run_has_a_new_sampler(
    tmp_path: Path, drivers: Drivers, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each relay says so and goes on; a sampler that takes no run any more is killed."""
    for name, value in drivers.environment("new").items():
        monkeypatch.setenv(name, value)
    runs = [Watched(tmp_path / name, machine) for name in ("a", "b")]
    until(lambda: all(one.values("gpu/power_total_w") for one in runs), *runs)
    drivers.set(hang__power=1)
    for one in runs:
        one.hangs_after(0.5)
    until(lambda: all(one.said for one in runs), *runs)
    assert {line for one in runs for line in one.said} == {
        "hardware sampling stopped: a driver hasn't answered for 0 s; all else goes on"
    }
    assert all(one.sampler.end() for one in runs)
    machine.held.hung_s = 0.3
    late = Watched(tmp_path / "late", machine, times=SamplerTimes(hang_s=3600.0, restart_s=(0.0, 0.0, 0.0)))

    def hung_is_gone() -> bool:
        machine.held.poll()
        return machine.started[0].poll() is not None

    until(hung_is_gone, late)
    drivers.set()
    machine.held.hung_s = 3600.0
    until(lambda: late.values("gpu/power_total_w"), late)
    late.sampler.close()
    assert late.said == []


def test_runs_leave_a_sampler_that_hangs_outside_a_driver_for_their_own(tmp_path: Path, machine: Machine) -> None:
    """The directory of one run may hang: the others are sampled as before, and nobody has to be told."""
    runs = [Watched(tmp_path / name, machine) for name in ("a", "b")]
    until(lambda: all(one.values("system.cpu") for one in runs), *runs)
    shared = machine.started[0]
    shared.send_signal(signal.SIGSTOP)
    for one in runs:
        one.hangs_after(1.0)
    until(lambda: all(one.sampler.pid for one in runs), *runs)
    for one in runs:
        one.hangs_after(3600.0)
    counts = [len(one.values("system.cpu")) for one in runs]
    until(lambda: all(len(one.values("system.cpu")) > n + 2 for one, n in zip(runs, counts, strict=True)), *runs)
    shared.send_signal(signal.SIGCONT)
    assert len(machine.started) == 1
    for one in runs:
        one.sampler.close()
        assert one.said == []
    machine.held.close()
    shared.wait(60)


def test_run_whose_directory_is_gone_concerns_no_other(tmp_path: Path, machine: Machine) -> None:
    """Its own sampling ends; the process goes on for the others."""
    gone, stays = Watched(tmp_path / "gone", machine), Watched(tmp_path / "stays", machine)
    gone.run.streams.rename(tmp_path / "elsewhere")
    until(lambda: stays.values("system.cpu"), stays)
    until(lambda: gone.sampler._helper.deaths, gone, stays)
    count = len(stays.values("system.cpu"))
    until(lambda: len(stays.values("system.cpu")) > count + 2, stays)
    assert len(machine.started) == 1
    gone.sampler._abandon()
    stays.sampler.close()
    assert stays.said == []


def test_old_sampler_is_of_no_run_that_left_it() -> None:
    """What its relay's side of the line says once it is closed."""
    ours, theirs = socket.socketpair()
    one = AgentSampler(ours)
    assert one.poll() is None
    one.terminate()
    assert theirs.recv(4) == b"e"
    one.kill()
    assert theirs.recv(4) == b""
    assert one.poll() == 1
    one.terminate()
    theirs.close()
    ours, theirs = socket.socketpair()
    one = AgentSampler(ours)
    theirs.close()
    assert one.poll() == 1
