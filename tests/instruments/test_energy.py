"""Energy per iteration: the GPU's counter above a stand-in for its driver, pauses left out, no rank waited for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.fakes.cuda import Cuda
from tests.fakes.gpu_drivers.standin import Drivers
from trackers.frameworks.megatron import LoggerConfig, MegatronLog
from trackers.hardware.gpus.base import Gpu, Reading
from trackers.instruments import energy as module
from trackers.instruments.energy import RunEnergy
from trackers.instruments.timers import Timers, TimerSpan
from trackers.records import Metrics
from trackers.reductions import Known
from trackers.training.run import Run

GPU = Gpu(vendor="nvidia", index=0, label="0")
SPAN = SimpleNamespace(ready=True, elapsed_s=4.0)


class Counter:
    """A GPU whose counter a test moves; None: it can't tell."""

    def __init__(self, joules: float | None = 1000.0, power_w: float | None = None) -> None:
        self.joules = joules
        self.power_w = power_w
        self.closed = False

    def read(self, whole: bool = False) -> Sequence[Reading]:
        return [Reading(gpu=GPU, energy_j=self.joules, power_w=self.power_w)]

    def add(self, joules: float) -> None:
        assert self.joules is not None
        self.joules += joules

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def said() -> list[str]:
    return []


def test_energy_is_that_of_the_steps(said: list[str]) -> None:
    """Joules per iteration = what the counter moved ÷ iterations; power = that ÷ seconds per iteration."""
    counter = Counter()
    energy = RunEnergy(said.append, counter)
    counter.add(600.0)
    assert energy.values(3, SPAN) == {"iter-energy/gpu": 200.0, "power/gpu": 150.0}
    counter.add(100.0)
    assert energy.values(2, SPAN) == {"iter-energy/gpu": 50.0, "power/gpu": 25.0}
    energy.close()
    assert (counter.closed, said) == (True, [])


def test_pauses_use_nothing(said: list[str]) -> None:
    """What an evaluation and a checkpoint inside it use is not training's."""
    counter = Counter()
    energy = RunEnergy(said.append, counter)
    counter.add(10.0)
    energy.pause()
    counter.add(5000.0)
    energy.pause()
    counter.add(700.0)
    energy.resume()
    counter.add(300.0)
    energy.resume()
    counter.add(30.0)
    assert energy.take() == pytest.approx(40.0)


@pytest.mark.parametrize("kind", ["loop", "megatron"])
def test_pauses_of_a_loop_pause_energy_too(kind: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an evaluation uses is in no iteration's energy, and neither is the first iteration's."""
    counter = Counter()
    monkeypatch.setattr("trackers.instruments.energy.own_gpu", lambda say: counter)
    monkeypatch.setattr("trackers.frameworks.megatron.training_log.own_gpu", lambda say: counter)
    loop: Any
    if kind == "loop":
        loop = run.loop(4, energy=True, interval=2)
        step = loop.step
    else:
        config = LoggerConfig(log_energy=True, log_interval=2)
        loop = MegatronLog(run, config, train_iters=4, global_batch_size=1, write=lambda text: None)

        def step() -> None:
            loop.training_log({}, {}, 0.1, None, loop._loop.steps + 1, 1.0, False, 0, None, None, None)

    for number in range(1, 5):
        counter.add(900.0 if number == 1 else 30.0)
        step()
        if number % 2:
            with loop.pause("evaluation"):
                counter.add(5000.0)
    run.finish()
    found = [(r.step, r.values["iter-energy/gpu"]) for r in run._recorder.logged()
             if isinstance(r, Metrics) and "iter-energy/gpu" in r.values]  # fmt: skip
    assert found == [(2, 30.0), (4, 30.0)]


def test_counter_that_was_reset_never_takes_energy_back(said: list[str]) -> None:
    """A driver that starts again counts from zero: energy is never negative."""
    counter = Counter(5000.0)
    energy = RunEnergy(said.append, counter)
    counter.joules = 3.0
    counter.add(2.0)
    assert energy.take() == 0.0
    counter.add(8.0)
    assert energy.take() == pytest.approx(8.0)


def test_power_is_integrated_where_there_is_no_counter(said: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU without a counter is measured by its power over time."""
    now = [100.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    counter = Counter(None, power_w=200.0)
    energy = RunEnergy(said.append, counter)
    now[0] += 10.0
    counter.power_w = 400.0
    assert energy.take() == pytest.approx(3000.0)


@pytest.mark.parametrize("how", ["driver gone", "no answer", "in a pause"])
def test_gpu_that_was_lost_used_no_zero(how: str, said: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU that stops telling has no energy until it tells again for a whole interval: 0 J would be wrong."""
    counter = Counter()
    energy = RunEnergy(said.append, counter)
    counter.add(600.0)
    assert energy.values(3, SPAN)["iter-energy/gpu"] == 200.0
    counter.add(100.0)
    tells = counter.read
    found = [] if how == "driver gone" else [Reading(gpu=GPU)]
    monkeypatch.setattr(counter, "read", lambda: found)
    if how == "in a pause":
        energy.pause()
        energy.resume()
    else:
        assert energy.values(3, SPAN) == {}
    monkeypatch.setattr(counter, "read", tells)
    counter.add(100.0)
    assert energy.values(3, SPAN) == {}
    counter.add(30.0)
    assert energy.values(3, SPAN)["iter-energy/gpu"] == 10.0


def test_fault_of_the_driver_in_a_pause_stops_nothing(run: Run, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """Whatever a driver's bindings raise while an evaluation begins or ends is said, and training goes on."""
    counter = Counter()
    monkeypatch.setattr("trackers.instruments.energy.own_gpu", lambda say: counter)
    loop = run.loop(4, energy=True, interval=1)
    loop.step()
    monkeypatch.setattr(counter, "read", lambda whole=False: 1 // 0)
    for _ in range(2):
        with loop.pause("evaluation"):
            pass
        loop.step()
    run.finish()
    assert not [r for r in run._recorder.logged() if isinstance(r, Metrics) and "iter-energy/gpu" in r.values]
    assert capsys.readouterr().err.count("energy: ZeroDivisionError") == 1


def test_power_of_long_ago_is_no_energy(said: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a counter, power that was read too long ago tells nothing of the time since: that is said, once."""
    now = [100.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    energy = RunEnergy(said.append, Counter(None, power_w=200.0))
    for gap_s, used in ((10.0, {"iter-energy/gpu": 200.0, "power/gpu": 500.0}), (270.0, {}), (270.0, {})):
        now[0] += gap_s
        assert energy.values(10, SPAN) == used
    assert set(said) == {
        "energy: a GPU without an energy counter was asked more than 60 s ago: it isn't measured; log more often"
    }
    energy.pause()
    now[0] += 1000.0
    energy.resume()
    now[0] += 10.0
    assert energy.take() == 2000.0


def test_rank_without_a_counter_is_said_and_holds_nobody_up(said: list[str]) -> None:
    """Alone it logs no value, never a 0; among ranks it takes part with a weight of 0, under the same names, so that
    nobody waits for it: the mean is that of those that can tell."""
    blind = RunEnergy(said.append, Counter(None))
    assert blind.values(5, SPAN) == {}
    assert said == ["energy: no GPU here reports its energy or power: this rank's isn't measured"]
    one, other = RunEnergy(said.append, Counter(None), ranks=2), RunEnergy(said.append, source := Counter(), ranks=2)
    source.add(100.0)
    blank = one.values(5, SPAN)
    told = other.values(5, SPAN)
    assert {name: (type(value), value.parts) for name, value in told.items()} == {
        "iter-energy/gpu": (Known, (20.0, 1)),
        "power/gpu": (Known, (25.0, 1)),
    }
    together: dict[str, float] = {}
    for name, value in told.items():
        Known.reduce(together, name, [0, 1], list(zip(blank[name].parts, value.parts, strict=True)))
    assert together == {"iter-energy/gpu": 20.0, "power/gpu": 25.0}
    assert set(blank) == set(told)
    together.clear()
    Known.reduce(together, "power/gpu", [0, 1], [[0.0, 0.0], [0, 0]])
    assert together == {}


def test_power_waits_for_the_gpus_clock_and_nobody_for_it(said: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the steps' time is the GPU's, the power is known when that is."""
    cuda = Cuda()
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    timers = Timers(0)
    timer = timers.get("interval")
    interval = timers.interval()
    with timer:
        cuda.work(500.0)
    span: TimerSpan = interval.take()["interval"]
    counter = Counter()
    energy = RunEnergy(said.append, counter)
    counter.add(50.0)
    power = energy.values(1, span)["power/gpu"]
    assert not power.ready()
    cuda.run()
    assert power.value() == pytest.approx(100.0)


OWN = """
import json, sys, types
uuid = sys.argv[1]
if uuid:
    cuda = types.SimpleNamespace(is_initialized=lambda: True, current_device=lambda: 1,
                                 get_device_properties=lambda number: types.SimpleNamespace(uuid=uuid))
    sys.modules["torch"] = types.SimpleNamespace(cuda=cuda, version=types.SimpleNamespace(hip=None))
from trackers.instruments.energy import own_gpu
said = []
source = own_gpu(said.append)
first = source.read()
second = source.read(whole=True)
print(json.dumps([[r.gpu.index for r in first], second[0].energy_j - first[0].energy_j, said]))
source.close()
"""


@pytest.mark.parametrize(
    ("uuid", "environ", "index"),
    [
        ("", {"LOCAL_RANK": "2"}, 2),
        ("", {"LOCAL_RANK": "1", "CUDA_VISIBLE_DEVICES": "3,0"}, 0),
        ("", {}, 0),
        ("", {"LOCAL_RANK": "2", "CUDA_VISIBLE_DEVICES": "3"}, 3),
        ("GPU 2", {"LOCAL_RANK": "0", "CUDA_VISIBLE_DEVICES": "1,2,3"}, 2),
    ],
)
def test_own_gpu_is_the_one_that_torch_uses(uuid: str, environ: dict[str, str], index: int, drivers: Drivers) -> None:
    """A rank reads its own GPU, through NVIDIA's bindings: by UUID, or by its place among the visible ones."""
    drivers.set(count=4)
    known = drivers.probe("new", scenes=[{"count": 4}])["gpus"]
    real = known[int(uuid.split()[1])]["uuids"][0].removeprefix("GPU-") if uuid else ""
    done = subprocess.run(
        [sys.executable, "-c", OWN, real],
        env={**os.environ, **drivers.environment("new"), **environ},
        cwd=Path(module.__file__).parent.parent.parent,
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found, moved, said = json.loads(done.stdout)
    assert found == [index]
    assert moved >= 0
    assert said == []
