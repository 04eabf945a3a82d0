"""The four scripts that query W&B, against the stand-in through the real client, and against offline files."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT, forked
from tests.backends.wandb.support import server
from tests.backends.wandb.test_datastore import framed
from tests.fakes.wandb_reads import HeldRun
from tests.fakes.wandb_server import Fault, WandbServer
from tests.helpers import T0
from trackers.analysis import gpu_report
from trackers.cli.scripts import wandb_runs
from trackers.errors import CredentialsMissing, NotFound, UsageError

__all__ = ["server"]
# The client's thread complains where a test's service was stopped before what it had opened was collected.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
GIB = 1 << 30
WHERE = ["--entity", "someone", "--project", "digits"]
PROGRAMS: dict[str, Callable[[Sequence[str]], int]] = {
    "query_wandb_gpu": wandb_runs.history,
    "query_wandb_gpu_full": wandb_runs.system,
    "inspect_wandb_keys": wandb_runs.keys,
    "compare_wandb_runs": wandb_runs.compare,
}


def held(server: WandbServer, id: str = "v2h4vzbc", gpus: int = 2, history: bool = True, **fields: Any) -> HeldRun:
    """A run with samples 10 s, 10 s and 100 s apart, whose GPUs peak at different times."""
    values: dict[str, Any] = {"display_name": "base", "exit_code": 0, "complete": True, "created": T0, **fields}
    run = HeldRun(id, "someone", "digits", **values)
    for step in range(600):
        row = {"_step": step, "_timestamp": T0 + step, "train_loss": 1.0}
        if history:
            row |= {"gpu/compute_util_avg": 100.0 if step < 300 else 0.0, "gpu/memory_util_avg": 25.0}
        run.rows.append(row)
    for number, seconds in enumerate((0, 10, 20, 120)):
        row = {"_timestamp": T0 + seconds, "_runtime": seconds, "system.cpu": 5.0}
        for gpu in range(gpus):
            used = 8 * GIB if number == 1 + gpu % 2 else 4 * GIB
            row |= {
                f"system.gpu.{gpu}.memoryAllocatedBytes": used,
                f"system.gpu.{gpu}.memoryAllocated": 100 * used / (24 * GIB),
                f"system.gpu.{gpu}.memory": 33.0,
                f"system.gpu.{gpu}.gpu": 0.0 if number == 0 else 90.0,
                f"system.gpu.{gpu}.powerWatts": 245.25,
                f"system.gpu.{gpu}.temp": 72.0,
                f"system.gpu.process.{gpu}.memoryAllocatedBytes": 1.0,
            }
        run.event_rows.append(row)
    server.runs[id] = run
    return run


@pytest.mark.slow
def test_script_runs_from_a_checkout(server: WandbServer, tmp_path: Path) -> None:
    """Each script is a program of its own: documented flags, documented head, nothing on stderr, no process left."""
    held(server)
    for name in PROGRAMS:
        command = [sys.executable, str(ROOT / f"scripts/{name}.py"), *WHERE, "--run-name", "base"]
        done = forked.run(command, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        if name != "compare_wandb_runs":
            head = done.stdout.splitlines()[:4]
            url = f"URL: {server.url}/someone/digits/runs/v2h4vzbc"
            assert head == ["Run: base (v2h4vzbc)", "State: finished", url, "-" * 80]


def test_full_report_has_the_documented_form(server: WandbServer, capsys: pytest.CaptureFixture[str]) -> None:
    """Memory in GB with its share, utilisation, power and temperature of each GPU; averages weighted by time."""
    held(server, gpus=1)
    assert wandb_runs.system([*WHERE, "--run-name", "base"]) == 0
    out = capsys.readouterr().out
    # 4 GiB for 5 s, 8 for 10 s, 4 for the other 105 s
    assert (
        out.split("-" * 80)[1]
        == """

Detected 1 active GPU

GPU 0:
  Memory Allocated:
    Current:  4.00 GB (16.7%)
    Average:  4.33 GB (18.1%)
    Maximum:  8.00 GB (33.3%)
  GPU Utilization:
    Current:  90.0%
    Average:  86.2%
    Maximum:  90.0%
  Power:
    Current:  245.2 W
    Average:  245.2 W
    Maximum:  245.2 W
  Temperature:
    Current:  72°C
    Average:  72°C
    Maximum:  72°C

TOTAL ACROSS ALL 1 GPUs:
  Current Total Memory:  4.0 GB
  Average Total Memory:  4.3 GB
  Maximum Total Memory:  8.0 GB
"""
    )


@pytest.mark.slow
def test_total_is_the_maximum_of_the_sum(server: WandbServer, capsys: pytest.CaptureFixture[str]) -> None:
    """Two GPUs that peak one after the other never have the sum of both peaks; sixteen are all shown."""
    held(server, gpus=16)
    assert wandb_runs.system(WHERE) == 0
    out = capsys.readouterr().out
    assert "Detected 16 active GPUs" in out
    assert [line for line in out.splitlines() if line.startswith("GPU ")] == [f"GPU {gpu}:" for gpu in range(16)]
    assert "TOTAL ACROSS ALL 16 GPUs:" in out
    assert "Maximum Total Memory:  96.0 GB" in out  # 8 x 8 + 8 x 4, not 16 x 8


def test_absent_values_are_not_zero(server: WandbServer, capsys: pytest.CaptureFixture[str]) -> None:
    """A field that one GPU lacks has no section, and doesn't pull an average down; NaN is left out."""
    run = held(server, gpus=2)
    for row in run.event_rows:
        del row["system.gpu.1.powerWatts"]
    run.event_rows[1]["system.gpu.0.gpu"] = "NaN"
    del run.event_rows[0]["system.gpu.0.temp"]
    assert wandb_runs.system([*WHERE, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert "powerWatts" not in found["gpus"]["1"]
    assert found["gpus"]["0"]["temp"] == {"current": 72.0, "average": 72.0, "maximum": 72.0}
    assert found["total"]["powerWatts"]["maximum"] == 245.25
    assert found["gpus"]["0"]["memory"]["average"] == 33.0


@pytest.mark.slow
def test_history_report_has_the_documented_form(server: WandbServer, capsys: pytest.CaptureFixture[str]) -> None:
    """Memory in MB and GB from bytes, never from W&B's `memory`; what the trainer logged over all GPUs is there."""
    held(server, gpus=4)
    assert wandb_runs.history([*WHERE, "--run-id", "v2h4vzbc"]) == 0
    out = capsys.readouterr().out
    assert (
        """GPU 0:
  Memory Used:
    Current:  4096.0 MB (4.00 GB)
    Average:  4437.3 MB (4.33 GB)
    Maximum:  8192.0 MB (8.00 GB)
  Memory Allocated (%):
    Current:  16.7%
"""
        in out
    )
    assert "  GPU Utilization (%):\n    Current:  90.0%" in out
    assert "TOTAL ACROSS ALL 4 GPUs:" in out
    assert "  gpu/compute_util_avg:\n    Current:  0\n    Average:  50" in out
    assert "33.0" not in out


@pytest.mark.slow
def test_newest_run_is_taken(server: WandbServer, capsys: pytest.CaptureFixture[str]) -> None:
    """With neither --run-name nor --run-id it is the run that was made last."""
    held(server, created=T0 + 5, id="newest00", display_name="newest")
    held(server)
    for program in (wandb_runs.history, wandb_runs.system, wandb_runs.keys):
        assert program(WHERE) == 0
        assert capsys.readouterr().out.startswith("Run: newest (newest00)")


@pytest.mark.slow
def test_run_without_gpu_metrics_is_said(server: WandbServer, capsys: pytest.CaptureFixture[str]) -> None:
    """The documented words, what to check, and exit code 1."""
    held(server, gpus=0, history=False)
    for program in (wandb_runs.history, wandb_runs.system):
        assert program(WHERE) == 1
        found = capsys.readouterr()
        assert "State: finished" in found.out
        assert found.err.startswith("No GPU metrics found in this run\n")
        assert "pip install nvidia-ml-py" in found.err


def test_samples_in_our_history_are_found(server: WandbServer, capsys: pytest.CaptureFixture[str]) -> None:
    """A run that was delivered later has its samples in the history: both programs find them."""
    run = held(server, gpus=0, history=False)
    run.config = {"_wandb": {"value": {"m": [{"1": "global_step", "6": [3]}, {"2": "*", "5": 1, "6": [1]}]}}}
    for row in run.rows:
        row |= {"global_step": row["_step"], "system/gpu.3.memoryAllocatedBytes": 2 * GIB,
                "system/gpu.3.memoryAllocatedBytes.max": 5 * GIB}  # fmt: skip
    for program in (wandb_runs.history, wandb_runs.system):
        assert program(WHERE) == 0
        out = capsys.readouterr().out
        assert "GPU 3:" in out
        assert "Maximum:  5120.0 MB (5.00 GB)" in out or "Maximum:  5.00 GB" in out


def test_keys_are_listed_whole(server: WandbServer, capsys: pytest.CaptureFixture[str]) -> None:
    """Every name once, in one group, however many there are."""
    run = held(server, gpus=16)
    for number in range(60):
        run.rows[0][f"metric_{number:02d}"] = 1.0
    run.rows[0] |= {"val_loss": 1.0, "learning_rate": 1.0}
    run.summary_sent = {"final/best_val_loss": 0.5}
    assert wandb_runs.keys([*WHERE, "--run-name", "base"]) == 0
    out = capsys.readouterr().out
    names = [line.removeprefix("  - ") for line in out.splitlines() if line.startswith("  - ")]
    assert len(names) == len(set(names))
    assert f"Total unique keys: {len(names)}" in out
    sections = {part.split(":")[0]: part for part in out.split("\n\n") if part.split(":")[0].endswith("keys")}
    assert "  - gpu/compute_util_avg" in sections["GPU-related keys"]
    assert "  - system.gpu.15.memory" in sections["GPU-related keys"]
    assert all(f"metric_{number:02d}" in sections["Training metrics keys"] for number in range(60))
    assert "  - val_loss" in sections["Training metrics keys"]
    assert "  - final/best_val_loss" in sections["Final keys"]
    assert "  - system.cpu" in sections["System keys"]
    assert not any(request.endswith("HistoryPage") for request in server.requests)


def test_empty_run_has_no_keys(server: WandbServer, capsys: pytest.CaptureFixture[str]) -> None:
    """A run without anything is said to have none, with exit code 1."""
    run = held(server, gpus=0, history=False)
    run.rows, run.event_rows = [], []
    assert wandb_runs.keys(WHERE) == 1
    assert "Total unique keys: 0" in capsys.readouterr().out


def test_runs_are_compared(server: WandbServer, capsys: pytest.CaptureFixture[str]) -> None:
    """The document's own comparison: averages over the whole history, a run that isn't there is named."""
    held(server)
    other = held(server, id="other000", display_name="other", history=False)
    other.config = {"run_name": {"value": "by-config"}}
    assert wandb_runs.compare([*WHERE, "--run-name", "base", "by-config"]) == 0
    assert capsys.readouterr().out == (
        "base:\n  GPU Memory Util: 25.00%\n  GPU Compute Util: 50.00%\n\n"
        "other:\n  GPU Memory Util: 33.00%\n  GPU Compute Util: 86.25%\n\n"
    )
    assert wandb_runs.compare([*WHERE, "--run-name", "base", "nope", "--json"]) == 1
    found = capsys.readouterr()
    assert "Run not found: nope" in found.err
    assert [run["averages"] for run in json.loads(found.out)] == [
        {"gpu/memory_util_avg": 25.0, "gpu/compute_util_avg": 50.0}
    ]


def test_metrics_of_choice_are_compared(server: WandbServer, capsys: pytest.CaptureFixture[str]) -> None:
    """--keys names any metric; without names the newest runs are compared."""
    held(server)
    assert wandb_runs.compare([*WHERE, "--keys", "train_loss"]) == 0
    assert capsys.readouterr().out == "base:\n  train_loss: 1\n\n"


@pytest.mark.parametrize("name", PROGRAMS)
def test_offline_files_are_read(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--offline needs no server, no login and no project."""
    from wandb.proto import wandb_internal_pb2 as protocol

    run = protocol.Record()
    run.run.run_id, run.run.display_name, run.run.project = "abcd1234", "mine", "digits"
    run.run.start_time.FromNanoseconds(int(T0 * 1e9))
    row = protocol.Record()
    row.history.step.num = 0
    row.history.item.add(nested_key=["gpu/compute_util_avg"], value_json="50")
    row.history.item.add(nested_key=["gpu/memory_util_avg"], value_json="20")
    sample = protocol.Record()
    sample.stats.timestamp.FromNanoseconds(int(T0 * 1e9))
    sample.stats.item.add(key="gpu.0.memoryAllocatedBytes", value_json=str(3 * GIB))
    place = tmp_path / "wandb/offline-run-20251121_000000-abcd1234"
    place.mkdir(parents=True)
    file = place / "run-abcd1234.wandb"
    file.write_bytes(framed([record.SerializeToString() for record in (run, row, sample)]))
    assert PROGRAMS[name](["--offline", str(tmp_path), "--run-name", "mine"]) == 0
    out = capsys.readouterr().out
    shown = {
        "query_wandb_gpu": "Current:  3072.0 MB (3.00 GB)",
        "query_wandb_gpu_full": "Current:  3.00 GB",
        "inspect_wandb_keys": "  - system.gpu.0.memoryAllocatedBytes",
        "compare_wandb_runs": "GPU Compute Util: 50.00%",
    }
    assert shown[name] in out
    if name != "compare_wandb_runs":
        assert f"File: {file}" in out
        with pytest.raises(NotFound, match=r"no run 'nope'.*mine \(abcd1234\)"):
            PROGRAMS[name](["--offline", str(tmp_path), "--run-name", "nope"])


@pytest.mark.slow
def test_wrong_use_and_missing_things_are_one_line(server: WandbServer, tmp_path: Path) -> None:
    """No project, no such project or run, no login, two runs of a name: one line, exit code 1 or 2, no traceback."""
    held(server)
    held(server, id="again000")
    script = str(ROOT / "scripts/query_wandb_gpu.py")
    no_key = {name: value for name, value in os.environ.items() if name != "WANDB_API_KEY"}
    for arguments, code, text, environ in (
        ([], 2, "give --project", None),
        (["--entity", "someone", "--project", "nope"], 1, "no project someone/nope on ", None),
        ([*WHERE, "--run-name", "nope"], 1, "no run 'nope'", None),
        ([*WHERE, "--run-name", "base"], 1, "2 runs", None),
        (WHERE, 2, "wandb login", no_key),
        (["--offline", str(tmp_path)], 1, "no .wandb file there", None),
    ):
        done = forked.run([sys.executable, script, *arguments], env=environ)
        assert done.returncode == code, done.stderr
        assert text in done.stderr
        assert len(done.stderr.splitlines()) == 1, done.stderr


def test_missing_package_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without wandb the message says what to install."""
    import importlib.util

    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "wandb" else real(name))
    with pytest.raises(UsageError, match="needs the wandb package: pip install"):
        wandb_runs.history(WHERE)


def test_refused_login_is_said(server: WandbServer) -> None:
    """An authentication error names the command that mends it."""
    server.fault = Fault("status", "[Vv]iewer", status=401)
    with pytest.raises(CredentialsMissing, match="wandb login"):
        wandb_runs.keys(WHERE)


def test_average_is_weighted_by_time() -> None:
    """A value that held for long counts for long; one sample is its own average."""
    assert gpu_report.average([(0.0, 10.0), (1.0, 10.0), (100.0, 0.0)]) == pytest.approx(505 / 100)
    assert gpu_report.average([(5.0, 3.0)]) == 3.0
    assert gpu_report.average([(5.0, 3.0), (5.0, 5.0)]) == 4.0


def test_sum_waits_for_all_series() -> None:
    """Series at their own times are summed by their last values, once each has one."""
    one, other = [(0.0, 1.0), (10.0, 2.0)], [(5.0, 10.0), (10.0, 20.0)]
    assert gpu_report.summed([one, other]) == [(5.0, 11.0), (10.0, 22.0)]


def test_gpus_of_several_nodes_are_apart() -> None:
    """GPU 0 of one node isn't GPU 0 of another; processes' own values aren't GPUs; GPUs stand in order."""
    from trackers.records import Metrics

    names = ("system.node1.gpu.0.temp", "system.node0.gpu.10.temp", "system.node0.gpu.2.temp",
             "system.gpu.process.0.temp")  # fmt: skip
    found = gpu_report.GpuSeries().gather([Metrics(time=0.0, values=dict.fromkeys(names, 1.0))])
    assert found.names == ["node0.2", "node0.10", "node1.0"]
