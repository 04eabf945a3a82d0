"""Session logs of real runs against their journals: examples/gpt2 with one and four processes, and a killed run."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from session_files import Session, sessions, unix

from tests import ROOT, forked
from tests.fakes.gpu_drivers.standin import Drivers
from tests.helpers import wait_for
from tests.stores import named_float
from trackers.journal.run_directory import RunDirectory, find_runs
from trackers.journal.status import last_status
from trackers.journal.stream import StreamReader
from trackers.records import Environment, Finish, Metrics, Record, Start, is_sample
from trackers.training import environment as surroundings

OPTIONS = """--n-layer 1 --n-head 2 --n-embd 32 --block-size 32 --batch-size 4 --eval-iters 1 --eval-interval 50
    --warmup-iters 5 --sample-tokens 4 --device cpu --max-iters 100 --log-interval 5 --tracker session"""
GPT2 = [str(ROOT / "examples/gpt2/train.py"), *OPTIONS.split()]
SAMPLED = {"TRACKER_SAMPLE": "y", "TRACKER_SAMPLE_RECORD_INTERVAL": "1", "SESSION_GPU_SNAPSHOT_INTERVAL": "1"}


def records(run: RunDirectory) -> list[Record]:
    """Everything in a run's journal, by time."""
    found: list[Record] = []
    for name in run.stream_names():
        found += StreamReader(run.stream(name)).read(1_000_000)
    return sorted(found, key=lambda record: (record.time, -1 if record.step is None else record.step))


def one() -> tuple[Session, list[Record]]:
    """The session below the working directory, and its run's records."""
    (found,) = sessions(Path("logs"))
    (run,) = find_runs(Path("runs"))
    return found, records(run)


def gpus(journal: list[Record]) -> int | None:
    """GPUs by the sampler's word, else none where the kernel shows no driver; None where neither says."""
    said: dict[str, Any] = {}
    for record in journal:
        if isinstance(record, Environment):
            said.update(record.values)
    return len(said["gpus"]) if "gpus" in said else 0 if said.get("gpu_drivers") == [] else None


def compare(found: Session, journal: list[Record]) -> None:
    """Each value of the summary and of the logs' lines is the journal's."""
    content = found.json()
    names = content["session"]["names"]
    rows = [record for record in journal if isinstance(record, Metrics) and not is_sample(record)]
    rows = [row for row in rows if any(not name.startswith("final/") for name in row.values)]
    entries = []
    for entry in content["training_metrics"]:
        values = {**entry["metrics"], **{names[f]: entry[f] for f in names if entry[f] is not None}}
        entries.append((unix(entry["timestamp"]), entry["step"], {n: named_float(v) for n, v in values.items()}))
    entries.sort(key=lambda entry: (*entry[:2], sorted(entry[2])))  # a rank's row and the ranks' may have one time
    rows.sort(key=lambda row: (round(row.time, 6), row.step, sorted(row.values)))
    assert len(entries) == len(rows)
    for (at, step, values), row in zip(entries, rows, strict=True):
        assert (step, values) == (row.step, row.values)
        assert at == pytest.approx(row.time, abs=1e-5)

    merged: dict[int | None, dict[str, float]] = {}
    for row in rows:
        merged.setdefault(row.step, {}).update(row.values)
    lines = re.findall(r"^Step +(\d+)/100 .*Loss: (\S+) \| LR: (\S+)", found.text("main.log"), re.M)
    assert {int(step) for step, _, _ in lines} >= {5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100}
    for step, loss, rate in lines:
        assert loss == f"{merged[int(step)]['train_loss']:.4f}"
        assert rate == f"{merged[int(step)]['learning_rate']:.2e}"
    blocks = re.findall(
        r"EVALUATION RESULTS:\n  • val_loss: (\S+)\n  • val_perplexity: (\S+)\n", found.text("main.log")
    )
    evaluated = [row.values for row in rows if "val_loss" in row.values]
    assert blocks == [(f"{row['val_loss']:.4f}", f"{row['val_perplexity']:.4f}") for row in evaluated]
    assert len(blocks) == 2


@pytest.mark.slow
def test_run_of_one_process_is_whole(drivers: Drivers) -> None:
    """examples/gpt2 in one process, shown one GPU of two: mode, GPU, each value of its lines as the journal has it."""
    drivers.set(count=2, name="NVIDIA RTX 4090")
    environment = {**os.environ, **SAMPLED, **drivers.environment("new"), "CUDA_VISIBLE_DEVICES": "1"}
    done = forked.run([sys.executable, *GPT2], preload=forked.TORCH, env=environment, timeout=150)
    assert done.returncode == 0, done.stderr
    found, journal = one()
    compare(found, journal)
    session = found.json()["session"]
    modes = {0: "SINGLE-CPU", 1: "SINGLE-GPU", None: "SINGLE-PROCESS"}  # a quick run ends before the sampler begins
    seen = gpus(journal)
    assert (session["mode"], session["gpu_count"], session["status"]) == (modes[seen], seen, "finished")
    assert f" | Mode: {modes[seen]}\n" in found.text("main.log")
    assert "CUDA_VISIBLE_DEVICES=1" in found.text("main.log")
    assert found.text("multigpu.log") == ""
    assert session["total_batch_size"] == 4
    (start,) = [r for r in journal if isinstance(r, Start) and r.id.startswith("rank")]
    assert found.name == time.strftime("training_%Y%m%d_%H%M%S", time.localtime(start.time))
    assert unix(session["start_time"]) == pytest.approx(start.time, abs=1e-5)


@pytest.mark.slow
def test_run_of_four_processes_is_one_session(drivers: Drivers) -> None:
    """In a job of four there is one id; modes, ranks, step lines and timed communication are the run's own."""
    drivers.set(count=4)
    environment = {**os.environ, **SAMPLED, **drivers.environment("new")}
    words = [sys.executable, *GPT2, "--log-communication"]
    done = forked.run(words, preload=forked.TORCH, ranks=4, env=environment, timeout=170)
    assert done.returncode == 0, done.stderr
    found, journal = one()
    compare(found, journal)
    content = found.json()
    session = content["session"]
    modes = {0: "MULTI-CPU", 4: "MULTI-GPU", None: "MULTI-PROCESS"}
    seen = gpus(journal)
    assert (session["mode"], session["gpu_count"], session["world_size"]) == (modes[seen], seen, 4)
    word = {0: "Multi-CPU", 4: "Multi-GPU", None: "Multi-process"}[seen]
    assert f"📡 {modes[seen]} CONFIGURATION:\n  • Accelerator processes: 4\n" in found.text("main.log")
    assert (session["distributed_backend"], session["total_batch_size"]) == ("gloo", 16)
    texts = [line.split(" | ", 3)[-1] for line in found.lines("multigpu")]
    assert texts[:4] == [
        "Distributed backend: gloo", "World size: 4", "Local rank: 0", "Communication | training_start | Rank 0",
    ]  # fmt: skip
    steps = [text for text in texts if " Step " in text]
    # Before the sampler has told of its stand-in's GPUs: what the kernel shows, and before that nothing.
    unknown = [said for text in steps if (said := text.partition(" Step ")[0]) in ("Multi-process", "Multi-CPU")]
    words = sorted(unknown, reverse=True) + [word] * (5 - len(unknown))
    assert steps == [
        f"{said} Step {step} | Processes: 4 | Local rank: 0 | Process index: 0"
        for said, step in zip(words, range(20, 101, 20), strict=True)
    ]
    head = "communication/gradient_sync/"
    timed = [row.values for row in journal if isinstance(row, Metrics) and f"{head}bytes" in row.values]
    assert timed
    assert [text for text in texts if "gradient_sync" in text] == [
        f"Communication | gradient_sync | Rank 0 | Size: {row[head + 'bytes'] / 1e6:.2f}MB | "
        f"Duration: {row[head + 'duration_ms']:.2f}ms | Bandwidth: {row[head + 'bandwidth_mb_per_sec']:.2f}MB/s"
        for row in timed
    ]
    logged = [entry for entry in content["communication_logs"] if entry["operation"] == "gradient_sync"]
    assert [(entry["count"], entry["data_size_mb"], entry["duration_ms"]) for entry in logged] == [
        (row[head + "count"], row[head + "bytes"] / 1e6, row[head + "duration_ms"]) for row in timed
    ]
    (line,) = re.findall(r"Avg step time: (\S+)s \| Throughput: (\S+) samples/s", found.text("performance.log"))
    assert 16 / float(line[1]) == pytest.approx(float(line[0]), abs=0.0006)


KILLED = """
import sys, time, trackers
from pathlib import Path
run = trackers.init("session", project="p", name="n", config={"max_steps": 100_000, "model_name": "tiny"})
step = 0
while True:
    step += 1
    run.log({"train_loss": 1 / step, "lr": 1e-3}, step=step)
    time.sleep(0.005)
"""


def kill(drivers: Drivers) -> None:
    """A training that is killed with SIGKILL once GPUs were seen, and whose relay has ended."""
    drivers.set(count=2, utilization=45, utilization__1=95, used__1=78_000_000_000, temperature__0=85)
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED], env={**os.environ, **SAMPLED, **drivers.environment("new")},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait_for(
            lambda: any('"system.gpu.1.gpu"' in path.read_text() for path in Path("runs").glob("*/*/streams/sampl*"))
        )
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    (run,) = find_runs(Path("runs"))
    wait_for(lambda: last_status(run).name == "crashed" and not (run.path / "relay.lease").exists())


def compare_snapshots(killed: Session, journal: list[Record]) -> None:
    """Utilisation, memory, temperature and names are what the driver said, and warned of where it is due."""
    samples = [r for r in journal if isinstance(r, Metrics) and r.step is None and is_sample(r)]
    snapshots = killed.json()["gpu_snapshots"]
    assert snapshots
    assert len(snapshots) <= len(samples)
    for snapshot in snapshots:
        time = pytest.approx(unix(snapshot["timestamp"]), rel=0, abs=1e-6)
        (values,) = [record.values for record in samples if record.time == time]
        assert snapshot["system"]["cpu_percent"] == values["system.cpu"]
        for gpu in snapshot["gpus"]:
            head = f"system.gpu.{gpu['id']}."
            assert gpu["utilization"] == values[f"{head}gpu"]
            assert gpu["memory_percent"] == values[f"{head}memoryAllocated"]
            assert gpu["memory_used_mb"] == pytest.approx(values[f"{head}memoryAllocatedBytes"] / 1e6, abs=1e-3)
            assert gpu["temperature"] == values[f"{head}temp"]
    (told,) = [r.values["gpus"] for r in journal if isinstance(r, Environment) and "gpus" in r.values]
    assert {str(gpu["id"]): (gpu["name"], gpu["memory_total_mb"]) for gpu in snapshots[0]["gpus"]} == {
        label: (gpu["name"], gpu["memory_total_bytes"] / 1e6) for label, gpu in told.items()
    }
    warned = {line.split(" | ", 3)[-1] for line in killed.lines("performance") if "WARNING" in line}
    full = snapshots[0]["gpus"][1]["memory_percent"]
    assert warned == {
        "GPU 0 utilization low: 45.0%", "GPU 0 temperature high: 85 °C", f"GPU 1 memory high: {full:.1f}%",
    }  # fmt: skip


@pytest.mark.slow
def test_killed_run_leaves_complete_files(drivers: Drivers) -> None:
    """SIGKILL: both summaries, the true ending, each step that was logged; a sync from the start changes nothing."""
    kill(drivers)
    found, journal = one()
    compare_snapshots(found, journal)
    content = found.json()
    rows = [r for r in journal if isinstance(r, Metrics) and r.id.startswith("rank")]
    assert [entry["step"] for entry in content["training_metrics"]] == [row.step for row in rows]
    assert [entry["loss"] for entry in content["training_metrics"]] == [row.values["train_loss"] for row in rows]
    session = content["session"]
    assert (session["status"], session["mode"]) == ("crashed", "SINGLE-GPU")
    ends = [record for record in journal if isinstance(record, Finish)]
    assert unix(session["end_time"]) == pytest.approx(ends[-1].time, abs=1e-5)
    assert re.search(r"\| ERROR \| ❌ TRAINING SESSION CRASHED: killed by SIGKILL", found.text("main.log"))
    assert "Status: crashed" in found.text("summary.txt")
    assert f"Steps: {rows[-1].step}" in found.text("summary.txt")

    (run,) = find_runs(Path("runs"))
    before = {path.name: path.read_bytes() for path in found.directory.iterdir()}
    for stale in ("delivery/session.json", "delivery/session.order"):
        (run.path / stale).unlink()
    done = subprocess.run([sys.executable, "-m", "trackers", "sync", str(run.path)], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert {path.name: path.read_bytes() for path in found.directory.iterdir()} == before


DISTRIBUTED = """
import os, sys, trackers, torch.distributed as dist
run = trackers.init("session", project="p", name="n", id="late")
if sys.argv[1] == "fails":
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:1", rank=1, world_size=2,
                            timeout=__import__("datetime").timedelta(seconds=1))
dist.init_process_group("gloo")
run.log({"train_loss": 1.0}, step=1)
dist.destroy_process_group() if sys.argv[1] == "gone" else None
run.finish()
"""


def distributed(word: str, port: int, started: int = 2) -> list[int]:
    """Ranks of a script, two by their own account, that makes its process group after the run; their exit codes."""
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2",
              "TRACKER_RUN_ID": "late", "NCCL_DEBUG": "INFO"}  # fmt: skip
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", DISTRIBUTED, word],
            env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for rank in range(started)
    ]
    return [rank.wait(timeout=120) for rank in ranks]


@pytest.mark.slow
def test_process_group_that_comes_later_is_told_of(unused_port: int) -> None:
    """A script that calls init before init_process_group has its backend in the log all the same."""
    assert distributed("well", unused_port) == [0, 0]
    found, journal = one()
    assert found.json()["session"]["distributed_backend"] == "gloo"
    assert "Distributed backend: gloo" in found.text("multigpu.log")
    told = [r.values for r in journal if isinstance(r, Environment) and ("distributed" in r.values)]
    assert told[0]["distributed"] == {"local_rank": 0, "local_world_size": 2}
    assert told[0]["variables"]["NCCL_DEBUG"] == "INFO"
    assert told[0]["variables"]["NCCL_DEBUG_FILE"].endswith("/nccl/rank-0.%h.%p.log")
    assert told[1]["distributed"] == {"backend": "gloo"}


@pytest.mark.slow
def test_process_group_that_fails_is_an_error_in_the_log(unused_port: int) -> None:
    """Where init_process_group raises, the run failed, and the multi-GPU log says why."""
    assert distributed("fails", unused_port, started=1) == [1]
    found, journal = one()
    reason = next(record.reason for record in journal if isinstance(record, Finish))
    errors = [line.split(" | ") for line in found.lines("multigpu") if "ERROR" in line]
    assert len(errors) == 1
    assert errors[0][3].startswith("Distributed backend initialization failed: Dist")
    assert reason[:60] in errors[0][3]
    assert found.json()["session"]["status"] == "failed"


@pytest.fixture
def unused_port() -> int:
    """A port of the loopback that nobody listens on."""
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_nccl_file_is_placed_only_where_it_was_asked_for(tmp_path: Path) -> None:
    """NCCL_DEBUG with the session tracker and no file of the user's: a file for each rank in a folder that is there."""
    asked = {"NCCL_DEBUG": "INFO"}
    surroundings.direct_nccl_log(["json", "session"], tmp_path, 3, asked)
    assert asked["NCCL_DEBUG_FILE"] == str(tmp_path / "nccl/rank-3.%h.%p.log")
    assert (tmp_path / "nccl").is_dir()
    for names, environ in (
        (["json"], {"NCCL_DEBUG": "INFO"}),
        (["session"], {}),
        (["session"], {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": "/tmp/mine"}),
    ):
        before = dict(environ)
        surroundings.direct_nccl_log(names, tmp_path / "other", 0, environ)
        assert environ == before
    assert not (tmp_path / "other").exists()
    (tmp_path / "file").write_text("")
    blocked = dict(asked := {"NCCL_DEBUG": "INFO"})
    surroundings.direct_nccl_log(["session"], tmp_path / "file", 0, blocked)
    assert blocked == asked
