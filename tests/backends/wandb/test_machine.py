"""What W&B shows of the machine is what its own client says of it: the environment, and the system tab of a run that is
delivered later."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT, forked
from tests.backends.wandb.support import CLIENT, ID, driver, metrics, offline_events, offline_rows, server
from tests.fakes.gpu_drivers.standin import Drivers
from tests.fakes.wandb_server import WandbServer
from tests.helpers import T0, run_info
from tests.stores import wandb_records
from trackers.backends.wandb.client import machine_of
from trackers.backends.wandb.private_names import machine_record
from trackers.formats import vendor_system_names
from trackers.hardware.gpus.base import Gpu, Reading
from trackers.hardware.host import HostReading
from trackers.hardware.metric_names import gpu_values, host_values
from trackers.readers import registry
from trackers.records import Environment, Metrics, Start

__all__ = ["server"]
NATIVE = """
import wandb
wandb.init(project="p", settings=wandb.Settings(x_stats_sampling_interval=0.5)).finish()
"""
SAMPLED = """
import glob, time, wandb
settings = wandb.Settings(x_stats_sampling_interval=0.5, x_transaction_log_flush_interval=1)
run = wandb.init(project="p", settings=settings)
while not any(b"\\x03cpu" in open(path, "rb").read() for path in glob.glob("wandb/*/*.wandb")):
    time.sleep(0.05)
run.finish()
"""
OURS = """
import glob, time, trackers
run = trackers.init("json", project="p", options={"TRACKER_MODE": "offline", "TRACKER_SAMPLE_RECORD_INTERVAL": 1})
run.log({"loss": 1.0}, step=0)
while not any('"machines"' in open(path).read() for path in glob.glob("runs/p/*/streams/sampler-*")):
    time.sleep(0.05)
run.finish()
"""
OF_THE_MACHINE = (
    "cpu_count",
    "cpu_count_logical",
    "gpu_type",
    "gpu_count",
    "memory",
    "cpu",
    "gpu_nvidia",
    "cuda_version",
)
CARDS = {
    str(k): {"name": "NVIDIA H100 80GB HBM3", "vendor": "nvidia", "memory_total_bytes": 80_000_000_000, "cuda": "12.4",
             "architecture": "Hopper", "cores": 16896, "uuid": f"GPU-{k}", "bus": f"00000000:0{k}:00.0"}
    for k in range(2)
}  # fmt: skip
MACHINE = {"processor": "AMD EPYC", "cores": 64, "threads": 128, "memory_total_bytes": 2**40,
           "disks": {"/": {"total_bytes": 10**12, "used_bytes": 10**11}}}  # fmt: skip
DESCRIBED = {"gpus": CARDS, "machines": {"node0": MACHINE}}


def environment_of(folder: Path) -> Any:
    """All that a folder's files say of the environment, together."""
    from wandb.proto import wandb_internal_pb2 as protocol

    found = protocol.EnvironmentRecord()
    for path in sorted(folder.rglob("*.wandb")):
        for record in wandb_records(path):
            if record.WhichOneof("record_type") == "environment":
                found.MergeFrom(record.environment)
    return found


def trained(folder: Path, script: str, drivers: Drivers) -> None:
    folder.mkdir()
    here = {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "HOME": str(folder), "PYTHONPATH": str(ROOT)}
    environ = {**os.environ, **here, **drivers.environment("new"), "TRACKER_SAMPLE": "y"}
    subprocess.run([sys.executable, "-c", script], cwd=folder, env=environ, check=True, timeout=120)


@pytest.mark.processes
@pytest.mark.skipif(CLIENT < (0, 31), reason="needs wandb 0.31: older agents call functions that the stand-in lacks")
def test_environment_says_what_the_own_client_says(drivers: Drivers, tmp_path: Path) -> None:
    """GPUs (number, type, memory, cores, architecture, address, CUDA), processor, memory and disk, field by field."""
    drivers.set(count=2, name__1="NVIDIA A100-SXM4-40GB", architecture__1=7, cores__1=6912, total__1=40_000_000_000)
    trained(tmp_path / "native", NATIVE, drivers)
    trained(tmp_path / "ours", OURS, drivers)
    environ = {**os.environ, "HOME": str(tmp_path), "WANDB_MODE": "offline"}
    command = [sys.executable, "-m", "trackers", "sync", "latest", "--to", "wandb"]
    done = forked.run(command, cwd=tmp_path / "ours", env=environ, check=True, preload=forked.HELPERS)
    assert ", W&B's Created is the time of the upload; Start time, Runtime and rows have training's\n" in done.stdout
    native, ours = environment_of(tmp_path / "native"), environment_of(tmp_path / "ours")
    assert native.gpu_count == 2
    for name in OF_THE_MACHINE:
        assert str(getattr(ours, name)) == str(getattr(native, name)), name
    assert ours.disk["/"].total == native.disk["/"].total
    assert ours.disk["/"].used == pytest.approx(native.disk["/"].used, rel=0.05)


def test_environment_of_a_run_that_goes_on_is_that_of_its_newest_machine(server: WandbServer, tmp_path: Path) -> None:
    """Each GPU is told once, though each session tells them and the relay told of the machine before; a second attempt
    elsewhere has its own."""
    run = driver(tmp_path, host="elsewhere", attempts=[{"number": 1}])
    rows = metrics((0, {"loss": 1.0}))
    relay = Environment(time=T0, seq=6, id="relay", values={"machines": {"node0": MACHINE}})
    first = [*rows, relay, Environment(time=T0, seq=7, id="a", values=DESCRIBED)]
    for _ in range(2):
        run.open()
        run.write(first)
        run.write([Environment(time=T0, seq=8, id="again", values=DESCRIBED)])
        run.close()
    shown = server.runs[ID].metadata
    assert (shown["gpu_count"], shown["gpu"], len(shown["gpu_nvidia"])) == (2, CARDS["0"]["name"], 2)
    assert (shown["cudaVersion"], shown["disk"]["/"]["total"]) == ("12.4", "1000000000000")
    if CLIENT >= (0, 31):  # the record of those before has no field for the model of a processor
        assert shown["cpu"]["model"] == "AMD EPYC"
    moved = {"gpus": {"0": CARDS["0"] | {"name": "NVIDIA B200"}}, "machines": {"node0": MACHINE}}
    run.info = run_info(tmp_path / "run", host="elsewhere", attempts=[{"number": 1}, {"number": 2}])
    start = Start(time=T0 + 4, seq=9, id="s", attempt=2)
    run.deliver([*first, start, Environment(time=T0 + 5, seq=10, id="b", values=moved)])
    shown = server.runs[ID].metadata
    assert (shown["gpu_count"], [gpu["name"] for gpu in shown["gpu_nvidia"]]) == (1, ["NVIDIA B200"])


def test_machine_is_that_of_the_node_that_delivers() -> None:
    """Of several machines W&B shows one: its GPUs alone; and what a record lacks or has wrong is left out."""
    values = {
        "gpus": {"node0.0": CARDS["0"], "node1.0": CARDS["1"], "node10.0": CARDS["1"]},
        "machines": {"node1": MACHINE},
    }
    assert machine_of(values, 0) == {}
    assert [gpu["uuid"] for gpu in machine_of(values, 1)["gpus"]] == ["GPU-1"]
    assert machine_of({"machines": {"node0": MACHINE}, "gpus": "two"}, 0)["gpus"] == []
    odd = {"cores": "four", "threads": -1, "processor": 7, "memory_total_bytes": 2**70, "disks": {"/": 3, "/x": {}}}
    wrong = machine_record(
        {"properties": odd, "gpus": [{"vendor": ["nvidia"], "name": 5}, {"vendor": "nvidia", "cores": {}}]}
    )
    assert (wrong.cpu_count, wrong.memory.total, wrong.gpu_count, len(wrong.gpu_nvidia)) == (0, 0, 2, 1)
    amd = machine_record(
        {"properties": {}, "gpus": [{"vendor": "amd", "name": "AMD Instinct MI300X", "uuid": "GPU-7"}]}
    )
    assert (amd.gpu_count, amd.gpu_type, amd.gpu_amd[0].series) == (1, "AMD Instinct MI300X", "AMD Instinct MI300X")


def test_late_samples_are_the_system_tabs_alone(tmp_path: Path) -> None:
    """Each under the name and at the time that W&B's agent gives it, and in no row and no result."""
    sampled = {"system.gpu.0.powerWatts": 125.0, "system.gpu.0.gpu": 50.0, "system.cpu": 12.5,
               "system.proc.memory.rssMB": 512.0, "system.network.sent": 3.0, "system.disk.usagePercent": 40.0,
               "system.disk.usageGB": 22.1}  # fmt: skip
    shown = {name: value for name, value in sampled.items() if "disk" not in name} | {
        "system.proc.memory.rssMB": 512e6 / 2**20, "system.disk./.usagePercent": 40.0,
        "system.disk./.usageGB": 22.1 * 1e9 / 2**30,
    }  # fmt: skip
    run = driver(tmp_path, options={"WANDB_MODE": "offline"})
    rows = metrics((0, {"loss": 1.0}), (1, {"loss": 0.5}))
    samples = [Metrics(time=T0 + 10 * k, seq=100 + k, id=f"s{k}", values=sampled) for k in range(1, 4)]
    run.deliver([*rows, *samples])
    assert offline_events(tmp_path) == [{"_timestamp": T0 + 10 * k, **shown} for k in range(1, 4)]
    reader, (source,) = registry.open_source(f"wandb-file:{run.info.path('wandb')}")
    read = [record for record in reader.read(source) if isinstance(record, Metrics) and record.step is None]
    assert [record.values for record in read] == [sampled] * 3
    assert not [name for row in offline_rows(tmp_path) for name in row if "system" in name or "gpu" in name]
    summaries = [
        json.loads(json.dumps([item.key or ".".join(item.nested_key) for item in record.summary.update]))
        for path in tmp_path.rglob("*.wandb")
        for record in wandb_records(path)
        if record.WhichOneof("record_type") == "summary"
    ]
    assert not [name for names in summaries for name in names if "system" in name or "gpu" in name]


@pytest.mark.processes
@pytest.mark.skipif(CLIENT < (0, 31), reason="needs wandb 0.31: older agents have other names")
def test_names_of_late_samples_are_the_agents(drivers: Drivers, tmp_path: Path) -> None:
    """Where both say something, by the agent's name; beside the agent's own, nothing else is sent."""
    drivers.set(count=2)
    trained(tmp_path / "native", SAMPLED, drivers)
    agent = {
        item.key
        for path in (tmp_path / "native").rglob("*.wandb")
        for record in wandb_records(path) if record.WhichOneof("record_type") == "stats"
        for item in record.stats.item
    }  # fmt: skip
    reading = Reading(
        gpu=Gpu(vendor="nvidia", index=0, label="0"), compute_frac=0.5, memory_busy_frac=0.5, memory_used_bytes=1,
        memory_total_bytes=2, power_w=1.0, power_limit_w=2.0, temp_c=1.0, sm_clock_hz=1.0, memory_clock_hz=1.0,
    )  # fmt: skip
    gpu = gpu_values(reading, 1.0, "system.gpu.0.")
    host = dict.fromkeys(host_values(HostReading(**dict.fromkeys(HostReading.__struct_fields__, 1.0))), 1.0)
    late = vendor_system_names.wandb(gpu | host, agent=True)
    assert late.keys() <= agent
    assert {"disk./.usageGB", "gpu.0.powerPercent", "gpu.0.smClock", "cpu"} <= late.keys()
    left_out = vendor_system_names.wandb(gpu | host).keys() - late.keys()
    assert left_out == {"memory_used_gb", "proc.cpu", "disk.availableGB", "disk.in", "disk.out", "gpu.0.energyJoules"}
