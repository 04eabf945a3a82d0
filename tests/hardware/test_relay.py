"""The sampler beside real runs: what it writes, when it ends, and that nothing waits for one that hangs."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import trackers
from tests.fakes.gpu_drivers.standin import Drivers
from tests.helpers import wait_for
from tests.stores import read_json, wandb_files, wandb_records
from trackers.analysis.run_list import overview
from trackers.journal.run_directory import RunDirectory, StreamName, find_runs
from trackers.journal.status import last_status
from trackers.journal.stream import StreamReader
from trackers.records import Environment, Finish, Metrics, Record, Start, Summary
from trackers.relay.parts import part
from trackers.relay.sampling import child as sampler_module
from trackers.relay.sampling.child import TIMES, SamplerProcess, SamplerTimes

SCRIPT = """
import sys, time, trackers
from pathlib import Path
run = trackers.init(sys.argv[1], project="p", name="n", id="sampled", config={"lr": 0.1})
def wandb_has_sampled():
    from trackers.formats import wandb_datastore
    found = (record for file in Path().rglob("*.wandb") for record in wandb_datastore.records(file))
    return any(record.WhichOneof("record_type") == "stats" for record in found)
until = time.monotonic() + 60
step = 0
while time.monotonic() < until:
    run.log({"train_loss": 1 / (step + 1)}, step=step)
    step += 1
    stream = Path(run.dir, "streams", "sampler-0.1.jsonl")
    text = stream.read_text() if stream.exists() else ""
    if text.count("gpu/energy_total_j") >= 2 and "gpu/power_total_w" in text:
        if "wandb" not in sys.argv[1] or wandb_has_sampled():
            break
    time.sleep(0.02)
print(step, flush=True)
if "hold" in sys.argv:
    time.sleep(60)
run.finish(timeout=60)
"""

ENVIRONMENT = {"TRACKER_SAMPLE": "y", "TRACKER_SAMPLE_RECORD_INTERVAL": "1", "TRACKER_CO2_G_PER_KWH": "400"}


def sampler_records(run: RunDirectory, attempt: int = 1) -> list[Record]:
    """What the sampler of an attempt wrote."""
    return StreamReader(run.stream(StreamName("sampler", 0, attempt))).read(10_000)


def train(drivers: Drivers, home: Path, *arguments: str, **environ: str) -> subprocess.Popen[str]:
    """A training process with two of the stand-in's GPUs, of which it sees the second."""
    drivers.set(count=2, power=250_000, power__0=999_000)
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *(arguments or ["json"])],
        cwd=home,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **ENVIRONMENT, **drivers.environment("new"), "CUDA_VISIBLE_DEVICES": "1", **environ},
    )


@pytest.mark.slow
def test_samples_reach_the_trackers_and_the_run_ends_as_ever(drivers: Drivers, tmp_path: Path) -> None:
    """gpu/* lies at training's steps, system.* beside, the energy in the results; the end is the relay's word."""
    process = train(drivers, tmp_path, "json,trackio,wandb")
    out, error = process.communicate(timeout=100)
    assert process.returncode == 0, error
    (run,) = find_runs(tmp_path / "runs")
    wait_for(lambda: not (run.path / "relay.lease").exists())
    steps = int(out)
    samples = [record for record in sampler_records(run) if isinstance(record, Metrics)]
    job = [record for record in samples if record.step is not None]
    assert {name for record in job for name in record.values} >= {"gpu/power_total_w", "gpu/memory_total_gb"}
    assert all(record.values["gpu/power_total_w"] == 250.0 for record in job)  # not GPU 0's
    assert all(0 <= (record.step or 0) < steps for record in job)
    machine = [record for record in samples if record.step is None]
    assert {"system.cpu", "system.gpu.1.powerWatts", "system.proc.memory.rssMB"} <= set(machine[0].values)
    assert "system.gpu.0.powerWatts" not in machine[0].values

    assert overview(run).step == steps - 1  # training's, not an earlier one of the last sample
    info = run.read_info()
    stored = read_json(info)
    assert [point.step for point in stored.metrics["loss"]] == list(range(steps))
    assert [(p.step, p.value) for p in stored.metrics["gpu/power_total_w"]] == [(r.step, 250.0) for r in job]
    assert len(stored.metrics["system.cpu"]) == len(machine)
    assert stored.summary is not None
    kwh = stored.summary["energy/total_kwh"]
    assert kwh > 0
    assert stored.summary["energy/co2_g"] == pytest.approx(kwh * 400)
    assert stored.summary["energy/source"] == "hardware counter"
    assert stored.status == "finished"

    node = StreamReader(run.stream(StreamName("node", 0, 1))).read(1000)
    assert isinstance(node[-1], Finish)
    assert all(record.time <= node[-1].time for record in sampler_records(run))
    assert error.splitlines()[1:] == []  # the start line, and nothing to complain of

    database = sqlite3.connect(Path(os.environ["TRACKIO_DIR"], "p.db"))
    system = [json.loads(row) for (row,) in database.execute("SELECT metrics FROM system_metrics")]
    database.close()
    powers = [row["gpu/1/power"] for row in system if "gpu/1/power" in row]
    assert powers == pytest.approx([250.0] * len(machine))
    assert [row["gpu/total_power"] for row in system if "gpu/total_power" in row] == pytest.approx([250.0] * len(job))

    (file,) = wandb_files(info)
    kept = list(wandb_records(file))
    names = {item.key or item.nested_key[0] for record in kept for item in record.history.item}
    assert "gpu/power_total_w" in names
    assert any(record.WhichOneof("record_type") == "stats" for record in kept)  # W&B's own agent
    # Only what was sampled before W&B's client began may be ours there.
    assert sum(item.key == "system/cpu" for record in kept for item in record.history.item) <= 1
    rows = [{item.key or item.nested_key[0]: item.value_json for item in record.history.item} for record in kept]
    assert [int(row["global_step"]) for row in rows if "train_loss" in row] == list(range(steps))
    history = [record.history.step.num for record in kept if record.WhichOneof("record_type") == "history"]
    assert history == sorted(set(history))  # a sample that came late has a row of its own


@pytest.mark.slow
def test_killed_training_still_gets_its_last_samples(drivers: Drivers, tmp_path: Path) -> None:
    """When training is killed, the sampler writes its last interval and the totals before the run counts as crashed."""
    process = train(drivers, tmp_path, "json", "hold", TRACKER_MODE="offline")
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    process.communicate()
    (run,) = find_runs(tmp_path / "runs")
    wait_for(lambda: last_status(run).name == "crashed")
    records = sampler_records(run)
    assert isinstance(records[-1], Summary)
    assert records[-1].values["energy/total_kwh"] > 0
    wait_for(lambda: not (run.path / "relay.lease").exists())


HUNG = """
import time, trackers
from pathlib import Path
run = trackers.init("json", project="p", name="n")
for step in range(100):
    run.log({"train_loss": 1 / (step + 1)}, step=step)
until = time.monotonic() + 60
while time.monotonic() < until:
    stream = Path(run.dir, "streams", "sampler-0.1.jsonl")
    if stream.exists() and stream.stat().st_size:
        break
    time.sleep(0.05)
print(run.flush(60), flush=True)
run.finish(timeout=60)
"""


@pytest.mark.slow
def test_hung_driver_holds_up_neither_delivery_nor_end(drivers: Drivers, tmp_path: Path) -> None:
    """A driver that never answers from its start on: all is delivered, the run ends as finished, one line says so."""
    drivers.set(hang__init=1)
    environ = {**os.environ, **ENVIRONMENT, **drivers.environment("new")}
    done = subprocess.run(
        [sys.executable, "-c", HUNG], cwd=tmp_path, capture_output=True, text=True, check=False, env=environ
    )
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
    (found,) = find_runs(tmp_path / "runs")
    stored = read_json(found.read_info())
    assert len(stored.metrics["loss"]) == 100
    assert stored.status == "finished"
    line, end = done.stderr.splitlines()[1:]
    assert "the hardware sampler didn't answer when training ended" in line
    assert end.startswith("trackers: json: delivered; ")  # which is said where finish had to wait


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunDirectory]:
    """A run that nobody delivers or samples."""
    started = trackers.init("json", mode="offline", options={"TRACKER_RELAY": False})
    started.log({"loss": 1.0}, step=5)
    yield RunDirectory(Path(str(started.dir)))
    started.finish()


class Beside:
    """A sampler as the relay holds it, without the relay."""

    def __init__(
        self, run: RunDirectory, monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], times: SamplerTimes = TIMES,
        **options: Any,
    ) -> None:  # fmt: skip
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        info = run.read_info()
        info.options = {**info.options, "TRACKER_SAMPLE": True, "TRACKER_SAMPLE_RECORD_INTERVAL": 1, **options}
        self.run = run
        self.said: list[str] = []
        beside = part.Beside(run, info, 1, lambda text, _: self.said.append(text))
        self.sampler = SamplerProcess(beside, times._replace(after_s=0.0))

    def give(self, **times: float) -> None:
        """Have the sampler's times be others from now on."""
        self.sampler.times = self.sampler.times._replace(**times)

    def until(self, what: Callable[[], Any]) -> Any:
        """Look after the sampler until something is so."""

        def look() -> Any:
            self.sampler.poll()
            return what()

        return wait_for(look)

    def writes(self, name: str, count: int = 1) -> bool:
        """Whether its stream has so many records with this metric."""
        return len(self.values(name)) >= count

    def values(self, name: str) -> list[float]:
        """What its stream has under this metric."""
        records = [record for record in sampler_records(self.run) if isinstance(record, Metrics)]
        return [record.values[name] for record in records if name in record.values]

    def processes(self) -> list[psutil.Process]:
        """The sampler's processes."""
        samplers = []
        for child in psutil.Process().children():
            with contextlib.suppress(psutil.NoSuchProcess):  # it may end between the two questions
                if child.status() != psutil.STATUS_ZOMBIE and "sample" in child.cmdline():
                    samplers.append(child)
        return samplers


@pytest.mark.slow
def test_sampler_starts_once_and_ends_when_asked(
    run: RunDirectory, drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It writes at training's newest step; asked to end, it writes the rest and is gone."""
    beside = Beside(run, monkeypatch, drivers.environment("new"))
    beside.until(lambda: beside.writes("gpu/power_total_w"))
    assert len(beside.processes()) == 1
    beside.sampler.close()
    records = sampler_records(run)
    assert [type(record) for record in records].count(Start) == 1
    assert {record.step for record in records if isinstance(record, Metrics)} == {None, 5}
    assert isinstance(records[-1], Summary)
    assert beside.said == []
    wait_for(lambda: not beside.processes())


def test_sampling_can_be_switched_off(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """TRACKER_SAMPLE=n starts nothing, and there is nothing to wait for."""
    beside = Beside(run, monkeypatch, {}, TRACKER_SAMPLE=False)
    for _ in range(5):
        beside.sampler.poll()
    assert beside.processes() == []
    assert beside.sampler.end()


@pytest.mark.parametrize("gpus", [True, False])
def test_run_that_ends_before_the_sampler_is_due_has_its_gpus(
    gpus: bool, run: RunDirectory, drivers: Drivers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the kernel has GPUs, the sampler is started at the end to describe them; it samples nothing any more."""
    drivers.set(count=2)
    device = tmp_path / "nvidiactl"
    if gpus:
        device.touch()
    monkeypatch.setattr(sampler_module, "NVIDIA_DEVICE", device)
    times = SamplerTimes(first_s=3600.0, begins_s=3600.0)
    beside = Beside(run, monkeypatch, drivers.environment("new"), times)
    beside.sampler.close()
    assert beside.said == []
    found = sampler_records(run) if gpus else []
    assert [type(record) for record in found] == ([Start, Environment] if gpus else [])
    if gpus:
        assert [gpu["vendor"] for gpu in found[-1].values["gpus"].values()] == ["nvidia"] * 2


@pytest.mark.parametrize("comes", [True, False])
def test_sampler_of_a_short_run_on_a_busy_host_is_waited_for(
    comes: bool, run: RunDirectory, drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that hasn't begun when training ends, since its host is busy (here it is stopped as it starts), takes its
    sample all the same; where it never comes, the line says so and blames no driver."""
    begin = sampler_module.helper_process.start

    def stopped(*given: Any, **more: Any) -> Any:
        started = begin(*given, **more)
        os.kill(started.pid, signal.SIGSTOP)
        return started

    monkeypatch.setattr(sampler_module.helper_process, "start", stopped)
    times = SamplerTimes(end_s=0.0, begins_s=3600.0 if comes else 0.0)
    beside = Beside(run, monkeypatch, drivers.environment("new"), times)
    beside.until(lambda: beside.sampler._helper.process is not None)
    process = beside.sampler._helper.process
    assert process is not None
    if not comes:
        beside.sampler.close()
        assert len(beside.said) == 1
        assert "hadn't begun when training ended (a busy host)" in beside.said[0]
        assert "driver" not in beside.said[0]
        return
    assert not beside.sampler.end()
    beside.give(end_s=3600.0, first_s=3600.0)
    os.kill(process.pid, signal.SIGCONT)
    beside.sampler.close()
    assert beside.said == []
    assert len(beside.values("gpu/power_total_w")) == 1
    assert isinstance(sampler_records(run)[-1], Summary)


@pytest.mark.heavy
def test_sampler_that_is_slow_where_no_driver_is_asked_blames_none(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine without GPUs a sampler that has begun and has no sample yet waits for the processor alone."""
    beside = Beside(run, monkeypatch, {}, SamplerTimes(begins_s=0.0, first_s=3600.0))
    monkeypatch.setattr(sampler_module, "BEAT", b"never")  # as if the first sample didn't come
    beside.until(lambda: beside.sampler._has_begun and not beside.sampler._is_reading)
    beside.sampler.close()
    (line,) = beside.said
    assert "had no sample when training ended (a busy host)" in line


@pytest.mark.parametrize("seen", [False, True])
def test_driver_that_hangs_at_the_end_isnt_waited_for(
    seen: bool, run: RunDirectory, drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sampler inside a driver call that doesn't return is killed after the bound, with one line; one that has been
    in there for a second is at once, whatever the bound is."""
    times = SamplerTimes(end_s=3600.0 if seen else 0.2)
    beside = Beside(run, monkeypatch, drivers.environment("new"), times)
    beside.until(lambda: beside.writes("gpu/power_total_w"))
    drivers.set(hang__power=1)
    size = run.stream(StreamName("sampler", 0, 1)).stat().st_size
    if seen:
        sampler = beside.sampler
        beside.until(lambda: sampler._is_reading and time.monotonic() - sampler._heard_at > TIMES.reads_s)
        assert sampler.end()
    else:
        beside.sampler.close()
    (line,) = beside.said
    assert "didn't answer when training ended" in line
    assert run.stream(StreamName("sampler", 0, 1)).stat().st_size >= size
    wait_for(lambda: not beside.processes())


@pytest.mark.slow
def test_slow_disk_is_no_driver_that_hangs(
    run: RunDirectory, drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sampler that is stopped beside its readings, here by hand, is waited for, and then has the last word."""
    beside = Beside(run, monkeypatch, drivers.environment("new"))
    beside.until(lambda: beside.writes("gpu/power_total_w"))
    (process,) = beside.processes()
    beside.give(end_s=3600.0)

    def stopped_beside_a_reading() -> bool:
        process.suspend()
        wait_for(lambda: process.status() == psutil.STATUS_STOPPED)
        beside.sampler.poll()
        if beside.sampler._is_reading:
            process.resume()
        return not beside.sampler._is_reading

    beside.until(stopped_beside_a_reading)
    assert not beside.sampler.end()
    time.sleep(2 * TIMES.reads_s)
    assert not beside.sampler.end()
    process.resume()
    beside.sampler.close()
    assert beside.said == []
    assert isinstance(sampler_records(run)[-1], Summary)


@pytest.mark.slow
def test_driver_that_hangs_mid_run_stops_sampling_with_one_line(
    run: RunDirectory, drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a while without a sample the sampler is left behind; the end has nothing to wait for any more."""
    drivers.set(hang__init=1)
    beside = Beside(run, monkeypatch, drivers.environment("new"), SamplerTimes(hang_s=1.0))
    beside.until(lambda: beside.said)
    assert beside.sampler.end()
    (line,) = beside.said
    assert line == "hardware sampling stopped: a driver hasn't answered for 1 s; all else goes on"


@pytest.mark.slow
def test_sampler_that_dies_is_started_again_and_keeps_count(
    run: RunDirectory, drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a crash inside a driver sampling goes on in a new process, and the energy goes on from where it was."""
    beside = Beside(run, monkeypatch, drivers.environment("new"), SamplerTimes(restart_s=(0.0,)))
    beside.until(lambda: beside.writes("gpu/energy_total_j", 2))
    beside.processes()[0].kill()
    before = beside.values("gpu/energy_total_j")
    beside.until(lambda: beside.writes("gpu/energy_total_j", len(before) + 2))
    beside.sampler.close()
    totals = beside.values("gpu/energy_total_j")
    assert totals == sorted(totals)
    assert totals[len(before)] >= before[-1] > 0
    assert beside.said == []


def test_sampler_that_always_dies_is_given_up_with_one_line(
    run: RunDirectory, drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sampler that can't live is tried a few times only."""
    run.streams.rename(run.path / "elsewhere")
    beside = Beside(run, monkeypatch, drivers.environment("new"), SamplerTimes(restart_s=(0.0, 0.0)))
    beside.until(lambda: beside.said)
    (run.path / "elsewhere").rename(run.streams)
    (line,) = beside.said
    assert line.startswith("hardware sampling stopped: it died 3 times, the last with exit code 1")
    assert beside.sampler.end()


@pytest.mark.slow
def test_job_without_a_variable_has_all_gpus(
    run: RunDirectory, drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Helpers see no GPU themselves; that training had no CUDA_VISIBLE_DEVICES is passed on as such."""
    from trackers.journal import helper_process

    drivers.set(count=3)
    inherited = helper_process.environment({**os.environ, **drivers.environment("new")})
    assert inherited["CUDA_VISIBLE_DEVICES"] == ""
    beside = Beside(run, monkeypatch, inherited)
    beside.until(lambda: beside.writes("system.gpu.2.powerWatts"))
    beside.sampler.close()


@pytest.mark.slow
@pytest.mark.processes
def test_host_is_sampled_without_gpus(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without drivers gives host metrics, no gpu/* name and no complaint."""
    beside = Beside(run, monkeypatch, {})
    beside.until(lambda: beside.writes("system.cpu"))
    beside.sampler.close()
    assert not any(name.startswith("gpu/") for r in sampler_records(run) for name in getattr(r, "values", ()))
    assert beside.said == []
    assert not (run.messages.exists() and run.messages.read_text())
