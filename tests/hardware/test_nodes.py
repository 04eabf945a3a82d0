"""Several machines: each samples its own GPUs into the run, and says which machine it is."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.fakes.gpu_drivers.standin import Drivers
from tests.helpers import begun_run, run_info
from tests.stores import read_json
from trackers.hardware.gpus.detect import Gpus
from trackers.hardware.plan import SamplingPlan
from trackers.journal.messages import Messages
from trackers.journal.run_directory import RunDirectory, StreamName, find_runs
from trackers.journal.stream import StreamReader
from trackers.ranks import launch
from trackers.records import Environment, Finish, Metrics, Start, Summary
from trackers.relay.sampling import child
from trackers.relay.sampling.worker import Samples
from trackers.support import processes
from trackers.training.environment import NodePosition, node_position

SCRIPT = """
import sys, time, trackers
from pathlib import Path
run = trackers.init("json", project="p", name="n")
until = time.monotonic() + 60
step = 0
while time.monotonic() < until:
    run.log({"train_loss": 1 / (step + 1)}, step=step)
    step += 1
    streams = list(Path("runs").glob("p/*/streams/sampler-*.jsonl"))
    if len(streams) == 2 and all("energy_total_j" in stream.read_text() for stream in streams):
        break
    time.sleep(0.05)
if len(sys.argv) > 1:
    time.sleep(60)
run.finish(timeout=60)
"""


@pytest.mark.parametrize(
    ("environ", "wanted"),
    [
        ({}, NodePosition(0, 1, True)),
        ({"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}, NodePosition(1, 2, False)),
        ({"GROUP_RANK": "1", "GROUP_WORLD_SIZE": "2", "LOCAL_RANK": "0", "RANK": "4"}, NodePosition(1, 2, True)),
        ({"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}, NodePosition(0, 1, True)),
        ({"SLURM_NODEID": "2", "SLURM_NNODES": "3", "SLURM_LOCALID": "0"}, NodePosition(2, 3, True)),
        ({"SLURM_NODEID": "0", "SLURM_NNODES": "3", "SLURM_STEP_NUM_NODES": "1"}, NodePosition(0, 1, True)),
        (
            {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
             "OMPI_COMM_WORLD_LOCAL_RANK": "0"},
            NodePosition(1, 2, True),
        ),
        ({"GROUP_RANK": "x", "GROUP_WORLD_SIZE": "2"}, NodePosition(0, 1, True)),
    ],
)  # fmt: skip
def test_place_is_what_the_launcher_says(environ: dict[str, str], wanted: NodePosition) -> None:
    """torchrun, srun and mpirun name the machine; without a launcher there is one."""
    assert node_position(environ) == wanted


def start(drivers: Drivers, home: Path, rank: int, *arguments: str) -> subprocess.Popen[str]:
    """One rank of two, each on a machine of its own as torchrun says it; machine 1 has GPU 1."""
    launcher = {
        "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "GROUP_RANK": str(rank),
        "GROUP_WORLD_SIZE": "2", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "job",
    }  # fmt: skip
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *arguments],
        cwd=home,
        stderr=subprocess.PIPE,
        text=True,
        env={
            **os.environ, **drivers.environment("new"), **launcher, "CUDA_VISIBLE_DEVICES": str(rank),
            "TRACKER_SAMPLE": "y", "TRACKER_SAMPLE_RECORD_INTERVAL": "1",
        },
    )  # fmt: skip


def wait_for_relay(run: RunDirectory) -> None:
    """Until the run is delivered and its relay gone."""
    until = time.monotonic() + 60
    while (run.path / "relay.lease").exists():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_each_machine_samples_its_own(drivers: Drivers, tmp_path: Path) -> None:
    """The names carry the machine, each has its own GPU, and all of it is delivered before the run ends."""
    drivers.set(count=2, power__0=100_000, power__1=200_000)
    ranks = [start(drivers, tmp_path, rank) for rank in (0, 1)]
    errors = [rank.communicate(timeout=100)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], errors
    (run,) = find_runs(tmp_path / "runs")
    wait_for_relay(run)
    for node, power in ((0, 100.0), (1, 200.0)):
        records = StreamReader(run.stream(StreamName("sampler", node, 1))).read(10_000)
        found = {n: v for record in records if isinstance(record, Metrics) for n, v in record.values.items()}
        assert all(name.startswith((f"gpu/node{node}/", f"system.node{node}.")) for name in found)
        assert found[f"gpu/node{node}/power_total_w"] == power
        assert found[f"system.node{node}.gpu.{node}.powerWatts"] == power
        assert isinstance(records[-1], Summary)
        assert records[-1].values[f"energy/node{node}/total_kwh"] > 0
    stored = read_json(run.read_info())
    assert stored.metrics["gpu/node1/power_total_w"][0].value == 200.0
    assert stored.summary is not None
    assert stored.summary["energy/node1/total_kwh"] > 0
    assert stored.status == "finished"
    assert errors[1] == ""


@pytest.mark.slow
def test_machine_whose_rank_is_killed_doesnt_hold_up_the_end(drivers: Drivers, tmp_path: Path) -> None:
    """When the other machine's rank dies, its sampler writes its last and ends; the run ends as its main rank says."""
    drivers.set(count=2)
    main, other = start(drivers, tmp_path, 0), start(drivers, tmp_path, 1, "hold")
    until = time.monotonic() + 60
    while not list(tmp_path.glob("runs/p/*/streams/sampler-1.1.jsonl")) and time.monotonic() < until:
        time.sleep(0.05)
    other.kill()
    other.communicate()
    _, error = main.communicate(timeout=100)
    assert main.returncode == 0, error
    (run,) = find_runs(tmp_path / "runs")
    wait_for_relay(run)
    until = time.monotonic() + 30
    while not (run.path / "sampler-1.1.done").exists() and time.monotonic() < until:
        time.sleep(0.05)
    assert (run.path / "sampler-1.1.done").exists()
    node = StreamReader(run.stream(StreamName("node", 0, 1))).read(1000)
    assert isinstance(node[-1], Finish)
    assert node[-1].status == "finished"


def test_samples_go_to_a_run_that_names_the_launch_alone(tmp_path: Path) -> None:
    """Who can write to a launch's folder can name any run there: samples go to the one that says the launch is its."""
    folder = tmp_path / "runs/p/.ranks/launch"
    folder.mkdir(parents=True)
    own, _ = begun_run(tmp_path / "runs/p/own")
    entry = {"number": 1, "launch": os.path.relpath(folder, own.path)}
    own.write_info(run_info(own.path, attempts=[entry]))
    other, _ = begun_run(tmp_path / "elsewhere/p/other")
    other.write_info(run_info(other.path, attempts=[{"number": 1}]))
    plan = SamplingPlan(pid=os.getpid(), pid_start=processes.process_start(os.getpid()))
    gone = RunDirectory(tmp_path / "gone")
    gone.path.mkdir()
    for run in (own, other, gone):
        launch.register(folder, run, 1, 0.0)
    gone.path.rmdir()
    found = child._find_run(folder, plan)
    assert found is not None
    assert (found[0].path, found[1]) == (own.path, 1)


@pytest.mark.parametrize("ahead_s", [0.0, 3600.0, -3600.0])
def test_samples_have_the_main_nodes_time(tmp_path: Path, ahead_s: float) -> None:
    """On a machine whose clock is an hour off, each record of the stream lies among the main node's."""
    run, writer = begun_run(tmp_path / "run")
    plan = SamplingPlan(node=1, nodes=2, ahead_s=ahead_s, within_s=0.1, interval_s=0.01, record_s=0.0)
    began = time.time() - ahead_s
    samples = Samples(run, Messages(run.messages), plan)
    samples.begin(Gpus(samples.say))
    for _ in range(3):
        samples.take()
    samples.finish()
    samples.close()
    writer.release()
    records = list(StreamReader(run.stream(StreamName("sampler", 1, 1))).read())
    assert {type(record) for record in records} >= {Start, Environment, Metrics}
    assert all(began - 1 <= record.time <= time.time() - ahead_s + 1 for record in records)
