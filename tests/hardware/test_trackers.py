"""Where samples appear: each tracker's own place for them, once, and beside training's rows rather than among them."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import socket
import sqlite3
import subprocess
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.backends.wandb.support import ID, driver, server  # noqa: F401
from tests.fakes.wandb_server import WandbServer
from tests.helpers import T0, Driver, run_info, stream, wait_for
from tests.stores import read_json, read_mlflow, read_tensorboard, wandb_files, wandb_records
from trackers import records as kinds
from trackers.backends.console.tracker import ConsoleTracker
from trackers.backends.json.tracker import JsonTracker
from trackers.backends.mlflow.tracker import MlflowTracker
from trackers.backends.tensorboard.tracker import TensorboardTracker
from trackers.backends.trackio.tracker import TrackioTracker
from trackers.backends.wandb import system_metrics
from trackers.backends.wandb.history_rows import HistoryRow, HistoryRows, row_values
from trackers.backends.wandb.system_metrics import SentSamples
from trackers.backends.wandb.tracker import WandbTracker
from trackers.formats import vendor_system_names
from trackers.readers import registry
from trackers.records import Metrics, Record, Start, Text
from trackers.support.machines import boot_id
from trackers.support.processes import process_start

MACHINE = {
    "system.gpu.1.gpu": 75.0,
    "system.gpu.1.gpu.max": 90.0,
    "system.gpu.1.memory": 30.0,
    "system.gpu.1.memoryAllocated": 25.0,
    "system.gpu.1.memoryAllocatedBytes": 2_000_000_000,
    "system.gpu.1.powerWatts": 250.0,
    "system.gpu.1.powerPercent": 50.0,
    "system.gpu.1.smClock": 1755.0,
    "system.gpu.1.temp": 61.0,
    "system.gpu.0.mig.2.memoryAllocatedBytes": 1_000_000,
    "system.cpu": 12.5,
    "system.memory_percent": 40.0,
    "system.memory_used_gb": 8.0,
    "system.proc.memory.rssMB": 512.0,
    "system.disk.availableGB": 5.0,
    "system.network.recv": 3_000_000,
}
JOB = {"gpu/power_total_w": 250.0, "gpu/compute_util_avg": 75.0}


def sampled(start: float = T0) -> list[Record]:
    """Four steps of training, and between them what the sampler writes: at a step, and of the machine."""
    rows = stream([Start(time=start), *[Metrics(step=s, time=start + s, values={"train_loss": 1.0}) for s in range(4)]])
    samples = stream(
        [
            Metrics(time=start + 2.2, values=MACHINE),
            Text(time=start + 2.2, values={"system.gpu.1.throttle": "hardware thermal"}),
            Metrics(step=2, time=start + 2.3, values=JOB),
            Metrics(step=3, time=start + 3.4, values=JOB),
        ],
        name="sampler-0.1",
    )
    merged = sorted([*rows, *samples], key=lambda record: record.time)
    for seq, record in enumerate(merged, 1):
        record.seq = seq
    return merged


def test_trackios_system_metrics_have_its_own_names(tmp_path: Path) -> None:
    """They lie in trackio's table of system metrics, by the names of its own GPU and processor monitors."""
    run = Driver(TrackioTracker, run_info(tmp_path / "run"))
    run.deliver(sampled())
    run.state, run.cursor = {}, 0  # the cursor was lost: all comes again
    run.deliver(sampled())
    database = sqlite3.connect(Path(os.environ["TRACKIO_DIR"], "digits.db"))
    rows = [json.loads(row[0]) for row in database.execute("SELECT metrics FROM system_metrics")]
    steps = [(step, json.loads(row)) for step, row in database.execute("SELECT step, metrics FROM metrics ORDER BY id")]
    database.close()
    row, text = rows
    assert text == {"system.gpu.1.throttle": "hardware thermal"}
    assert row == {
        "gpu/1/utilization": 75.0,
        "gpu/1/utilization_max": 90.0,
        "gpu/1/memory_utilization": 30.0,
        "gpu/1/memory_usage": 0.25,
        "gpu/1/allocated_memory": 2e9 / 2**30,
        "gpu/1/power": 250.0,
        "gpu/1/power_percent": 50.0,
        "gpu/1/sm_clock": 1755.0,
        "gpu/1/temp": 61.0,
        "gpu/0.mig.2/allocated_memory": 1e6 / 2**30,
        "cpu/utilization": 12.5,
        "memory/percent": 40.0,
        "memory/used": 8e9 / 2**30,
        "proc/memory_rss_mb": 512.0,
        "disk/available_gb": 5.0,
        "network/recv": 3_000_000,
    }
    for _, row in steps:
        row.pop("trackers/times", None)
    training = {"train_loss": 1.0}
    assert steps == [(0, training), (1, training), (2, {**training, **JOB}), (3, {**training, **JOB})]
    reader, (source,) = registry.open_source(f"trackio:digits/{run.info.id}")
    texts = [record for record in reader.read(source) if isinstance(record, Text)]
    assert [(text.step, text.values) for text in texts] == [(None, {"system.gpu.1.throttle": "hardware thermal"})]


@pytest.mark.parametrize("vendor", ["trackio", "mlflow"])
def test_names_are_those_that_the_vendor_uses(vendor: str) -> None:
    """Each name that we take for a vendor's own stands in the vendor's own source."""
    import mlflow.system_metrics.metrics as mlflow_metrics
    import trackio

    if vendor == "trackio":
        folder = Path(str(trackio.__file__)).parent
        text = (folder / "gpu.py").read_text() + (folder / "cpu.py").read_text()
        ours = [f"/{name}" for name, _ in vendor_system_names.TRACKIO_GPU.values()]
        ours += [name for name, _ in vendor_system_names.TRACKIO_HOST.values()]
    else:
        folder = Path(str(mlflow_metrics.__file__)).parent
        text = "".join(path.read_text() for path in folder.glob("*_monitor.py"))
        ours = [f"_{name}" for name, _ in vendor_system_names.MLFLOW_GPU.values()]
        ours += [name for name, _ in vendor_system_names.MLFLOW_HOST.values()]
    assert [name for name in ours if not re.search(re.escape(name) + r"\"", text)] == []


@pytest.mark.slow
def test_mlflows_system_metrics_have_its_own_names(tmp_path: Path) -> None:
    """They lie below system/, at training's newest step, in megabytes of 1e6 bytes; once, however often they come."""
    info = run_info(tmp_path / "run", options={"MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db"})
    run = Driver(MlflowTracker, info)
    run.deliver(sampled())
    run.open()
    run.cursor = 0
    run.write(sampled())
    run.close()
    database = sqlite3.connect(tmp_path / "mlflow.db")
    rows = database.execute("SELECT key, step, value FROM metrics WHERE key LIKE 'system%'").fetchall()
    database.close()
    assert {name: value for name, _, value in rows} == {
        "system/gpu_1_utilization_percentage": 75.0,
        "system/gpu_1_utilization_percentage_max": 90.0,
        "system/gpu_1_memory": 30.0,
        "system/gpu_1_memory_usage_percentage": 25.0,
        "system/gpu_1_memory_usage_megabytes": 2000.0,
        "system/gpu_1_power_usage_watts": 250.0,
        "system/gpu_1_power_usage_percentage": 50.0,
        "system/gpu_1_sm_clock": 1755.0,
        "system/gpu_1_temp": 61.0,
        "system/gpu_0.mig.2_memory_usage_megabytes": 1.0,
        "system/cpu_utilization_percentage": 12.5,
        "system/system_memory_usage_percentage": 40.0,
        "system/system_memory_usage_megabytes": 8000.0,
        "system/proc_memory_rss_mb": 512.0,
        "system/disk_available_megabytes": 5000.0,
        "system/network_receive_megabytes": 3.0,
    }
    assert {step for _, step, _ in rows} == {2}
    assert len(rows) == len(MACHINE)
    stored = read_mlflow(info, {}, uri=f"sqlite:///{tmp_path}/mlflow.db")
    assert [p.step for p in stored.metrics["gpu/power_total_w"]] == [2, 3]


def test_tensorboard_groups_the_machine(tmp_path: Path) -> None:
    """One group behind training's, rather than a group for each name."""
    info = run_info(tmp_path / "run")
    Driver(TensorboardTracker, info).deliver(sampled())
    stored = read_tensorboard(info)
    assert stored.metrics["~system/gpu.1.powerWatts"][0].value == 250.0
    assert {name for name in stored.metrics if "system" in name} == {
        name.replace("system.", "~system/", 1) for name in MACHINE
    }
    assert [point.step for point in stored.metrics["gpu/power_total_w"]] == [2, 3]


@pytest.mark.slow
def test_json_log_keeps_samples_out_of_the_iterations(tmp_path: Path) -> None:
    """A sample at a step joins that iteration; one whose iteration is written already makes none of its own."""
    info = run_info(tmp_path / "run")
    late = Metrics(step=1, time=T0 + 9000.0, values=JOB)
    many = [Metrics(step=s, time=T0 + s, values={"train_loss": 1.0}) for s in range(4, 3000)]
    rest = stream([*many, late], first_seq=100)
    rest[-1].id = "sampler-0.1:9000"
    Driver(JsonTracker, info).deliver([*sampled(), *rest])
    (path,) = Path(info.directory).glob("*.json")
    log = json.loads(path.read_text())
    assert [row["iter"] for row in log["training_iterations"]] == list(range(3000))
    assert log["training_iterations"][3]["gpu/power_total_w"] == 250.0
    assert log["samples"][-1]["gpu/power_total_w"] == 250.0
    assert [point.step for point in read_json(info).metrics["gpu/power_total_w"]] == [2, 3, 1]


def test_console_doesnt_show_samples(tmp_path: Path) -> None:
    """What it prints is about training."""
    out = io.StringIO()
    run = Driver(ConsoleTracker, run_info(tmp_path / "run", options={"TRACKER_LOG_INTERVAL": 1}))
    run.open()
    assert isinstance(run.tracker, ConsoleTracker)
    run.tracker._stream = out
    run.write(sampled())
    run.close()
    assert out.getvalue().splitlines() == [f"step {step} | train_loss 1.0000" for step in range(4)]


def test_samples_take_no_step_of_wandbs(tmp_path: Path) -> None:
    """They join the training row at hand, also when it is a few steps further: W&B's _step stays the training step."""
    rows: list[HistoryRow] = []
    builder = HistoryRows(rows.append)
    late = Metrics(step=1, time=T0 + 3.5, values={"gpu/temp_max_c": 60.0}, id="sampler-0.1:5", seq=99)
    for record in [*sampled(), late]:
        if isinstance(record, (Metrics, Text)):
            builder.add(record, row_values(record))
    builder.end()
    assert [(row.number, row.step) for row in rows] == [(0, 0), (1, 1), (2, 2), (3, 3)]
    assert rows[2].values.keys() == {
        "train_loss", *JOB, *(name.replace("system.", "system/") for name in MACHINE), "system/gpu.1.throttle",
    }  # fmt: skip
    assert rows[3].values == {"train_loss": 1.0, **JOB, "gpu/temp_max_c": 60.0}


def here(**more: Any) -> dict[str, Any]:
    """A training that lives on this host: this process."""
    machine = {"host": socket.gethostname(), "boot_id": boot_id()}
    return {**machine, "pid": os.getpid(), "pid_start": process_start(os.getpid()), **more}


def now() -> float:
    """Later than what is opened now, and covered by W&B's agent from then on."""
    import time

    return time.time() + 60.0


def deliver_beside_agent(driving: Driver, records: list[Record]) -> None:
    """Deliver a run, and end that when W&B's own agent has sampled the machine."""
    driving.open()
    driving.write(records)

    def agent_has_sampled() -> bool:
        with contextlib.suppress(Exception):  # its last record is half written
            return any(one.WhichOneof("record_type") == "stats" for one in wandb_records(wandb_files(driving.info)[0]))
        return False

    wait_for(agent_has_sampled)
    driving.close()


def test_wandbs_agent_stands_for_our_samples_while_training_runs_here(server: WandbServer, tmp_path: Path) -> None:  # noqa: F811
    """Delivered beside training W&B's own events are there and ours aren't; gpu/* and throttle reasons are."""
    deliver_beside_agent(driver(tmp_path, **here()), sampled(now()))
    run = server.runs[ID]
    assert run.events
    names = {name for row in run.history for name in row}
    assert set(JOB) <= names
    assert {name for name in names if name.startswith("system")} == {"system/gpu.1.throttle"}


def test_samples_are_in_the_system_tab_where_training_doesnt_run(server: WandbServer, tmp_path: Path) -> None:  # noqa: F811
    """Delivered later, or elsewhere, the agent is off and our samples are there instead, at their own times and at no
    step; texts are in the history."""
    driver(tmp_path, host="node-7", pid=1, pid_start=2.0).deliver(sampled())
    run = server.runs[ID]
    (line,) = run.events
    shown = {**MACHINE, "system.proc.memory.rssMB": 512e6 / 2**20}  # W&B's MB are MiB
    assert {name: line[name] for name in line if not name.startswith("_")} == shown
    assert (line["_timestamp"], line["_runtime"]) == pytest.approx((T0 + 2.2, 2.2), abs=1e-4)
    assert {name for row in run.history for name in row if name.startswith("system")} == {"system/gpu.1.throttle"}
    assert [row["_step"] for row in run.history] == list(range(4))


def ours(events: Iterable[Mapping[str, Any]], name: str) -> list[Mapping[str, Any]]:
    """Lines of the system tab that aren't W&B's agent's: with values of a test's."""
    values = {**MACHINE, "system.node0.cpu": 1.0, "system.node1.cpu": 1.0}
    return [line for line in events if line.get(name) == values[name]]


@pytest.mark.slow
@pytest.mark.parametrize("own", [0, 1])
def test_agent_stands_for_its_own_machine_only(own: int, server: WandbServer, tmp_path: Path) -> None:  # noqa: F811
    """Of a run on two machines the one that delivers has W&B's agent; what the other one sampled lies beside that."""
    samples = [
        Metrics(time=now(), values={f"system.node{node}.cpu": 1.0, f"system.node{node}.gpu.0.powerWatts": 200.0})
        for node in (0, 1)
    ]
    info = here(attempts=[{"number": 1, "node": own, "nodes": 2}])
    deliver_beside_agent(driver(tmp_path, **info), stream([Start(time=T0), *samples], name="sampler-0.1"))
    run = server.runs[ID]
    (line,) = ours(run.events, f"system.node{1 - own}.cpu")
    assert line[f"system.node{1 - own}.gpu.0.powerWatts"] == 200.0
    assert not ours(run.events, f"system.node{own}.cpu")
    assert len(run.events) > 1
    assert not run.history


@pytest.mark.slow
def test_backlog_from_before_the_agent_is_ours(tmp_path: Path) -> None:
    """What was sampled before W&B's client began is sent; what came after is the agent's; nothing twice."""
    info = run_info(tmp_path / "run", **here())
    found = [*sampled(), *(record for record in sampled(now()) if isinstance(record, (Metrics, Text)))]
    for seq, record in enumerate(found, 1):
        record.seq = seq
    deliver_beside_agent(Driver(WandbTracker, info), found)
    (path,) = wandb_files(info)
    stored = list(wandb_records(path))
    names = [[item.key or item.nested_key[0] for item in record.history.item] for record in stored]
    lines = [
        {f"system.{item.key}": json.loads(item.value_json) for item in record.stats.item}
        for record in stored
        if record.WhichOneof("record_type") == "stats"
    ]
    assert len(lines) > 1
    assert len(ours(lines, "system.gpu.1.powerWatts")) == 1
    assert sum("gpu/power_total_w" in row for row in names) == 4


def test_coverage_is_decided_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one process left to the agent, the next one leaves to it as well, whatever it knows besides."""
    clock = [1000.0]
    monkeypatch.setattr(system_metrics.time, "time", lambda: clock[0])
    info = run_info(tmp_path)
    coverage = system_metrics.Coverage(SentSamples(info), agent_runs=True)
    at = [Metrics(time=time, values={"system.cpu": 1.0}) for time in (999.0, 1010.0, 1065.0, 5000.0)]
    assert [coverage.covers(record) for record in at[:3]] == [False, True, True]
    # Killed; opened again where training doesn't live any more.
    with (tmp_path / "wandb-sent.jsonl").open("ab") as file:
        file.write(b'{"agent":[1.0,9e9')
    again = system_metrics.Coverage(SentSamples(info), agent_runs=False)
    assert [again.covers(record) for record in at] == [False, True, True, False]
    again._sent.cover(4999.0, 5001.0, 0)
    assert [again.covers(record) for record in at] == [False, True, True, True]
    assert not again.covers(Metrics(time=1010.0, values={"gpu/power_total_w": 1.0}, step=1))


@pytest.mark.parametrize(
    ("environ", "options", "wanted"),
    [
        ({}, {}, None),
        ({"CUDA": "2,0"}, {}, [2, 0]),
        ({"HIP": "1,-1,3"}, {}, [1]),
        ({"CUDA": "1"}, {"TRACKER_GPU_SCOPE": "node"}, None),
        ({"CUDA": ""}, {}, "off"),
        ({"CUDA": "GPU-1ab0"}, {}, "off"),
        ({"HIP": "0", "ROCR": "1"}, {}, "off"),
        ({}, {"TRACKER_SAMPLE": False}, "off"),
    ],
)
def test_wandbs_agent_is_given_the_jobs_gpus(
    environ: dict[str, str], options: dict[str, Any], wanted: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gets indices; where the job's GPUs can't be said so, or sampling is off, it doesn't run."""
    monkeypatch.setenv("TRACKER_JOB_PASSED", str(os.getpid()))
    for name, value in environ.items():
        monkeypatch.setenv(f"TRACKER_JOB_{name}_VISIBLE_DEVICES", value)
    settings = system_metrics.settings(run_info(tmp_path, options=options, **here()), trains_here=True)
    assert settings["x_disable_stats"] is (wanted == "off")
    if wanted != "off":
        assert settings["x_stats_gpu_device_ids"] == wanted
        assert settings["x_stats_pid"] == os.getpid()


def test_agent_of_a_sync_beside_training_is_given_trainings_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not those of the shell that syncs; where training's environment can't be read, the agent doesn't run."""
    monkeypatch.setenv("TRACKER_JOB_PASSED", "1")
    monkeypatch.setenv("TRACKER_JOB_CUDA_VISIBLE_DEVICES", "7")
    training = subprocess.Popen(["sleep", "60"], env={"PATH": os.environ["PATH"], "CUDA_VISIBLE_DEVICES": "2,3"})
    try:
        info = run_info(tmp_path, **{**here(), "pid": training.pid})
        until = time.monotonic() + 10
        while system_metrics.settings(info, trains_here=True).get("x_stats_gpu_device_ids") != [2, 3]:
            assert time.monotonic() < until  # it is the shell's copy until it has begun
            time.sleep(0.01)
    finally:
        training.kill()
        training.wait()
    assert system_metrics.settings(info, trains_here=True)["x_disable_stats"]


def test_names_of_several_nodes_stay_apart() -> None:
    """The node is a folder in trackio's and MLflow's names."""
    values = {"system.node1.gpu.0.powerWatts": 1.0, "system.node1.cpu": 2.0}
    assert vendor_system_names.trackio(values) == {"node1/gpu/0/power": 1.0, "node1/cpu/utilization": 2.0}
    assert vendor_system_names.mlflow(values) == {
        "system/node1/gpu_0_power_usage_watts": 1.0, "system/node1/cpu_utilization_percentage": 2.0,
    }  # fmt: skip


def test_sample_is_known_by_its_stream() -> None:
    """What a user logs as gpu/… is training's."""
    own, ours = Metrics(time=1.0, values=JOB, id="rank-0.1:5"), Metrics(time=1.0, values=JOB, id="sampler-0.1:5")
    assert (kinds.is_sample(own), kinds.is_sample(ours)) == (False, True)
