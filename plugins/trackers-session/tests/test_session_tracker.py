"""Session logs as a fold over records: lines, cadence, warnings, modes, endings, values."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from session_files import Session, sessions, unix
from trackers_session import commands as analyze_logs
from trackers_session import files
from trackers_session.facts import warnings
from trackers_session.fold import HEAD_S, slow
from trackers_session.tracker import SessionTracker

from tests.helpers import T0, Driver, check_console_file, run_info, stream
from trackers.backends.registry import check
from trackers.errors import Unavailable, UsageError
from trackers.records import (
    Alert,
    ArtifactRecord,
    Config,
    Environment,
    Finish,
    Metrics,
    Record,
    Start,
    Summary,
    Text,
)
from trackers.support import failpoints
from trackers.tracker import Status

GPUS = {str(k): {"name": "NVIDIA RTX 4090", "memory_total_bytes": 24_000_000_000} for k in range(2)}
CONFIG = {"model_name": "unsloth/qwen-7b-qlora", "mixed_precision": "bf16", "max_steps": 1000, "total_batch_size": 2}
START = "Distributed backend initialization failed: "
STAMP = f"{datetime.fromtimestamp(T0):%Y%m%d_%H%M%S}"
CLOCK = f"{datetime.fromtimestamp(T0):%H:%M:%S}"


def begin(processes: int = 2, gpus: Any = GPUS, **facts: Any) -> list[Record]:
    """The first records of a run, with what training's process and the sampler say."""
    told = {"distributed": {"backend": "nccl", "local_rank": 0}, "variables": {"CUDA_VISIBLE_DEVICES": "0,1"}}
    if processes == 1:
        told = {}
    return [
        Start(time=T0, rank=0, world_size=processes, attempt=1),
        Config(time=T0, values=CONFIG),
        Environment(time=T0, values={**told, **facts}),
        *([Environment(time=T0 + 1, values={"gpus": gpus})] if gpus is not None else []),
    ]


def rows(last: int, first: int = 1, every_s: float = 0.4, **more: float) -> list[Record]:
    """A row for each step."""
    return [
        Metrics(step=k, time=T0 + 2 + k * every_s, values={"train_loss": 3 - k / 1000, "lr": 1.5e-4, **more})
        for k in range(first, last + 1)
    ]


def deliver(tmp_path: Path, records: Sequence[Record], status: Status | None = None, **fields: Any) -> Session:
    """The one session that these records make."""
    options = {"SESSION_DIR": "./logs", "TRACKER_SAMPLE": True, **fields.pop("options", {})}
    info = run_info(tmp_path / "run", cwd=str(tmp_path), options=options, **fields)
    numbered = records if records and records[0].id else stream(records)
    Driver(SessionTracker, info).deliver(numbered, status=status)
    (found,) = sessions(tmp_path / "logs")
    return found


def sampled(seconds: float, **values: float) -> Record:
    """A record of the sampler."""
    return Metrics(time=T0 + seconds, values=values, id="sampler-0.1:0")


def sampled_stream(records: Sequence[Record]) -> list[Record]:
    """Numbered, the sampler's ids kept."""
    numbered = stream(records)
    return [
        msgspec.structs.replace(new, id=f"sampler-0.1:{new.seq}") if old.id.startswith("sampler") else new
        for old, new in zip(records, numbered, strict=True)
    ]


def test_main_log_is_the_documents(tmp_path: Path) -> None:
    """Head, configuration, step line with its metrics, evaluation: character by character as in the example."""
    evaluation = Metrics(step=50, time=T0 + 22.1, values={"eval_loss": 1.8765, "eval_perplexity": 6.5432})
    found = deliver(tmp_path, [*begin(), *rows(49), Metrics(step=50, time=T0 + 22, values={
        "train_loss": 2.1234, "lr": 1.5e-4, "step_duration": 0.4, "samples_per_second": 5.0}), evaluation])  # fmt: skip
    assert found.name == f"training_{STAMP}"
    text = found.text("main.log")
    assert text.startswith(
        f"""{CLOCK} | INFO  | 🚀 TRAINING SESSION STARTED
{CLOCK} | INFO  | Session ID: training_{STAMP}
{CLOCK} | INFO  | Mode: MULTI-GPU
{CLOCK} | INFO  | GPU Count: 2
{CLOCK} | INFO  | Model: unsloth/qwen-7b-qlora
{CLOCK} | INFO  | CUDA_VISIBLE_DEVICES=0,1

📡 MULTI-GPU CONFIGURATION:
  • Accelerator processes: 2
  • Current process rank: 0
  • Mixed precision: bf16
  • GPU 0: NVIDIA RTX 4090 (24.0GB)
  • GPU 1: NVIDIA RTX 4090 (24.0GB)

Step    1/1000 ( 0.1%) | Loss: 2.9990 | LR: 1.50e-04
"""
    )
    assert (
        """
Step   50/1000 ( 5.0%) | Loss: 2.1234 | LR: 1.50e-04 | Speed: 2.5 steps/s | ETA: 6.3min
  └─ Metrics: step_duration: 0.400, samples_per_second: 5.0

📊 EVALUATION RESULTS:
  • eval_loss: 1.8765
  • eval_perplexity: 6.5432

"""
        in text
    )
    assert " | INFO  | ✅ TRAINING SESSION FINISHED\n" in text
    assert text.endswith(" | INFO  | Duration: 1000.0s (16.7min)\n")


def test_cadence_is_the_documents(tmp_path: Path) -> None:
    """Lines at the first ten steps, each 50 and each tenth; multi-GPU each 20; performance each 100."""
    records = [*begin(), Config(time=T0, values={"max_steps": 370}), *rows(370)]
    found = deliver(tmp_path, records)
    wanted = {*range(1, 11), *range(50, 371, 50), *range(37, 371, 37)}
    assert [int(step) for step in re.findall(r"^Step +(\d+)/370", found.text("main.log"), re.M)] == sorted(wanted)
    assert [int(step) for step in re.findall(r"Multi-GPU Step (\d+) ", found.text("multigpu.log"))] == list(
        range(20, 371, 20)
    )
    assert [int(step) for step in re.findall(r"Step (\d+) ", found.text("performance.log"))] == [100, 200, 300]


def test_settings_change_the_cadence(tmp_path: Path) -> None:
    """A session log's settings are options: step and performance interval, snapshots, communication."""
    options = {
        "SESSION_LOG_INTERVAL_STEPS": 30,
        "SESSION_PERFORMANCE_LOG_STEPS": 40,
        "SESSION_GPU_SNAPSHOT_INTERVAL": 30,
        "SESSION_DETAILED_COMMUNICATION_LOGS": False,
    }
    timed = {"communication/gradient_sync/bytes": 1e6, "communication/gradient_sync/duration_ms": 1.0}
    records: list[Record] = [*begin(), *rows(90, **timed)]
    records += [sampled(10.0 * k, **{"system.gpu.0.gpu": 60.0}) for k in range(1, 8)]
    found = deliver(tmp_path, sampled_stream(records), options=options)
    steps = [int(step) for step in re.findall(r"^Step +(\d+)", found.text("main.log"), re.M)]
    assert [step for step in steps if step > 10] == [30, 60, 90]
    assert re.findall(r"Performance \| Step (\d+)", found.text("performance.log")) == ["40", "80"]
    assert "gradient_sync" not in found.text("multigpu.log")
    content = found.json()
    assert [entry["operation"] for entry in content["communication_logs"]] == ["training_start"]
    assert [unix(entry["timestamp"]) - T0 for entry in content["gpu_snapshots"]] == pytest.approx([10, 40, 70])


def test_step_that_is_never_logged_doesnt_silence_the_next(tmp_path: Path) -> None:
    """A run that logs each 7th step has its line at the first one past each 50."""
    records = [*begin(), *[row for row in rows(210) if row.step is not None and row.step % 7 == 0]]
    found = deliver(tmp_path, records)
    steps = [int(step) for step in re.findall(r"^Step +(\d+)", found.text("main.log"), re.M)]
    assert steps == [7, 56, 105, 154, 203]


def test_values_of_a_step_in_several_records_are_one_line(tmp_path: Path) -> None:
    """What is logged apart, even after newer steps (values across ranks come late), is on its step's line."""
    records: list[Record] = begin()
    for step in (49, 50, 51, 52):
        records.append(Metrics(step=step, time=T0 + step, values={"lr": 1e-3}))
    records.append(Metrics(step=50, time=T0 + 50, values={"train_loss": 1.25, "grad_norm": 0.5}))
    found = deliver(tmp_path, [*records, *rows(60, 53)])
    assert re.findall(r"^Step +50/.*\n.*", found.text("main.log"), re.M) == [
        "Step   50/1000 ( 5.0%) | Loss: 1.2500 | LR: 1.00e-03 | Speed: 1.0 steps/s | ETA: 15.8min\n"
        "  └─ Metrics: step_duration: 1.000, samples_per_second: 2.0, grad_norm: 0.500"
    ]


def test_strange_values_are_shown_as_they_are(tmp_path: Path) -> None:
    """NaN, infinity and negative values stand in the line and, as JSON's strings, in the summary; nothing is hidden."""
    values = [math.nan, -1.5, math.inf]
    records = [*begin(), *(Metrics(step=k, time=T0 + k, values={"loss": v, "x": v}) for k, v in enumerate(values, 1))]
    found = deliver(tmp_path, records)
    assert re.findall(r"Loss: (\S+)", found.text("main.log")) == ["nan", "-1.5000", "inf"]
    assert re.findall(r"x: (\S+)", found.text("main.log")) == ["nan", "-1.500", "inf"]
    assert [entry["loss"] for entry in found.json()["training_metrics"]] == ["NaN", -1.5, "Infinity"]


def test_line_is_shorter_where_values_are_missing(tmp_path: Path) -> None:
    """No total, no loss, no rate, no batch: the line has what there is, and nothing is divided by zero."""
    start = [Start(time=T0, rank=0, world_size=1), Environment(time=T0, values={"gpus": {}})]
    records = [
        *start,
        *(Metrics(step=k, time=T0, values={"x": k}) for k in range(3)),
        Finish(time=T0, status="finished"),
    ]
    found = deliver(tmp_path, records, Status("finished", 0, T0))
    lines = found.lines("main")
    assert [line for line in lines if line.startswith("Step")] == ["Step    0", "Step    1", "Step    2"]
    assert found.text("performance.log") == ""
    assert found.json()["session"]["duration_seconds"] == 0


def test_fewer_than_ten_steps(tmp_path: Path) -> None:
    """A run of seven steps has seven lines, of which the last is at 100 %."""
    found = deliver(tmp_path, [*begin(), Config(time=T0, values={"max_steps": 7}), *rows(7)])
    steps = re.findall(r"^Step +(\d+)/7 \( *([\d.]+)%\)", found.text("main.log"), re.M)
    assert len(steps) == 7
    assert steps[-1] == ("7", "100.0")


def test_multigpu_log_is_the_documents(tmp_path: Path) -> None:
    """Backend, world size and rank, the step line, and timed communication with its measured bandwidth."""
    timed = {"count": 3, "bytes": 45.67e6, "duration_ms": 12.34, "bandwidth_mb_per_sec": 3701.46}
    row = Metrics(step=20, time=T0 + 10, values={f"communication/gradient_sync/{k}": v for k, v in timed.items()})
    found = deliver(tmp_path, [*begin(), *rows(19), row])
    stamp = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \| INFO     \| MainProcess  \| "
    text = found.text("multigpu.log")
    lines = [re.sub(f"^{stamp}", "", line) for line in text.splitlines()]
    assert all(re.match(stamp, line) for line in text.splitlines())
    assert lines == [
        "Distributed backend: nccl",
        "World size: 2",
        "Local rank: 0",
        "Communication | training_start | Rank 0",
        "Communication | gradient_sync | Rank 0 | Size: 45.67MB | Duration: 12.34ms | Bandwidth: 3701.46MB/s",
        "Multi-GPU Step 20 | Processes: 2 | Local rank: 0 | Process index: 0",
    ]
    entry = found.json()["communication_logs"][-1]
    assert (entry["operation"], entry["process_rank"], entry["data_size_mb"], entry["duration_ms"]) == (
        "gradient_sync", 0, 45.67, 12.34,
    )  # fmt: skip
    assert unix(entry["timestamp"]) == pytest.approx(T0 + 10, abs=1e-6)


def test_bandwidth_that_wasnt_measured_is_absent(tmp_path: Path) -> None:
    """Bytes without a time are a size and no rate; a run that timed nothing has no communication at all."""
    row = Metrics(step=1, time=T0 + 3, values={"communication/gradient_sync/bytes": 1e6, "train_loss": 1.0})
    text = deliver(tmp_path, [*begin(), row]).text("multigpu.log")
    assert text.splitlines()[-1].endswith("Communication | gradient_sync | Rank 0 | Size: 1.00MB")
    silent = deliver(tmp_path / "silent", [*begin(), *rows(100)])
    assert "Bandwidth" not in silent.text("multigpu.log")
    assert "gradient_sync" not in silent.text("multigpu.log")


def test_performance_line_and_warnings(tmp_path: Path) -> None:
    """Average step time by the clock, throughput from the batch; slow steps and few samples are warned of."""
    found = deliver(tmp_path, [*begin(), *rows(100, every_s=15.1)])
    lines = [line.split(" | ", 3) for line in found.lines("performance")]
    assert lines[-3][1:] == ["INFO    ", "MainProcess ",
        "Performance | Step 100 | Avg step time: 15.100s | Throughput: 0.1 samples/s | Total batch size: 2",
    ]  # fmt: skip
    assert [(level.strip(), text) for _, level, _, text in lines[-2:]] == [
        ("WARNING", "Slow training detected: 15.1s per step"),
        ("WARNING", "Low throughput: 0.13 samples/s"),
    ]
    assert "Slow training" not in deliver(tmp_path / "quick", [*begin(), *rows(100)]).text("performance.log")


def test_measured_step_time_is_taken_before_the_clock(tmp_path: Path) -> None:
    """What training measured of its steps is their average; the clock has evaluations in it."""
    found = deliver(tmp_path, [*begin(), *rows(100, every_s=2.0, **{"perf/iter_time_sec": 0.38})])
    assert "Step 100 | Avg step time: 0.380s | Throughput: 5.3 samples/s" in found.text("performance.log")


def test_snapshots_and_their_warnings(tmp_path: Path) -> None:
    """Each snapshot is in the summary with its GPUs' names, MB and percent, and what is out of bounds is warned of."""
    gpu = {"gpu": 45.2, "gpu.max": 97.5, "memoryAllocatedBytes": 23e9, "memoryAllocated": 95.8, "temp": 81.0}
    host = {"system.cpu": 12.5, "system.memory_percent": 40.0}
    first = sampled(10, **{f"system.gpu.1.{k}": v for k, v in gpu.items()}, **host)
    fine = {"gpu": 50.0, "memoryAllocated": 90.0, "temp": 80.0}
    found = deliver(
        tmp_path,
        sampled_stream(
            [
                *begin(),
                first,
                sampled(13, **{"system.gpu.1.gpu": 1.0}),
                sampled(20, **{f"system.gpu.1.{k}": v for k, v in fine.items()}),
            ]
        ),
    )
    one, two = found.json()["gpu_snapshots"]
    assert one["gpus"] == [
        {
            "id": 1, "name": "NVIDIA RTX 4090", "utilization": 45.2, "memory_used_mb": 23000.0,
            "memory_total_mb": 24000.0, "memory_percent": 95.8, "temperature": 81.0, "utilization_peak": 97.5,
        }
    ]  # fmt: skip
    assert one["system"] == {"cpu_percent": 12.5, "memory_percent": 40.0}
    assert unix(two["timestamp"]) == pytest.approx(T0 + 20, abs=1e-6)
    assert two["gpus"][0]["memory_used_mb"] is None
    assert [line.split(" | ", 3)[1::2] for line in found.lines("performance")] == [
        ["WARNING ", "GPU 1 utilization low: 45.2%"],
        ["WARNING ", "GPU 1 memory high: 95.8%"],
        ["WARNING ", "GPU 1 temperature high: 81 °C"],
    ]
    assert "GPU 1: 47.6% avg util, 97.5% peak, 92.9% avg memory" in found.text("summary.txt")


def test_warnings_begin_at_their_bounds() -> None:
    """Below 50 % utilisation, above 90 % memory and 80 °C; above 10 s a step, below one sample a second."""
    gpu = {"id": 0, "utilization": 50.0, "memory_percent": 90.0, "temperature": 80.0}
    assert warnings({"gpus": [gpu]}) == []
    assert warnings({"gpus": [{**gpu, "utilization": 49.9}]}) == ["GPU 0 utilization low: 49.9%"]
    assert warnings({"gpus": [{**gpu, "memory_percent": 90.1}]}) == ["GPU 0 memory high: 90.1%"]
    assert warnings({"gpus": [{**gpu, "temperature": 81.0}]}) == ["GPU 0 temperature high: 81 °C"]
    assert slow(10.0, 1.0) == slow(None, None) == []
    assert slow(10.1, 0.99) == ["Slow training detected: 10.1s per step", "Low throughput: 0.99 samples/s"]


def test_all_snapshots_are_kept(tmp_path: Path) -> None:
    """Not the last hundred: all of them."""
    records = [*begin(), *(sampled(10.0 * k, **{"system.gpu.0.gpu": float(k % 100)}) for k in range(1, 301))]
    content = deliver(tmp_path, sampled_stream(records)).json()
    assert [entry["gpus"][0]["utilization"] for entry in content["gpu_snapshots"]] == [k % 100 for k in range(1, 301)]


@pytest.mark.parametrize(
    ("processes", "gpus", "facts", "mode", "count"),
    [
        (2, GPUS, {}, "MULTI-GPU", 2),
        (1, GPUS, {}, "SINGLE-GPU", 1),
        (1, {}, {}, "SINGLE-CPU", 0),
        (1, None, {"gpu_drivers": []}, "SINGLE-CPU", 0),
        (1, None, {}, "SINGLE-PROCESS", None),
        (8, None, {}, "MULTI-GPU", 8),
        (4, {}, {"distributed": {"backend": "gloo"}}, "MULTI-CPU", 0),
        (4, GPUS, {"distributed": {"backend": "gloo"}}, "MULTI-GPU", 2),
        (4, None, {"distributed": {"backend": "gloo"}}, "MULTI-PROCESS", None),
        (4, {"0": {}}, {"distributed": {"backend": "gloo"}}, "MULTI-PROCESS", 1),
    ],
)
def test_mode_is_what_is_known(
    processes: int, gpus: Any, facts: dict[str, Any], mode: str, count: int | None, tmp_path: Path
) -> None:
    """NCCL has a GPU for each rank; else what was seen, no more than processes; without a word no GPU is claimed."""
    found = deliver(tmp_path, [*begin(processes, gpus, **facts), *rows(40)])
    session = found.json()["session"]
    assert (session["mode"], session["gpu_count"], session["world_size"]) == (mode, count, processes)
    text = found.text("main.log")
    assert f" | Mode: {mode}\n" in text
    assert re.findall(r"GPU Count: (\d+)", text) == ([] if count is None else [str(count)])
    assert (found.text("multigpu.log") == "") == (processes == 1)


def test_forced_single_gpu_mode(tmp_path: Path) -> None:
    """Asked for by flag or configuration, it is said with the GPU that is used; with several processes it isn't so."""
    facts = {"variables": {"CUDA_VISIBLE_DEVICES": "3"}}
    wanted = "FORCED SINGLE GPU MODE - Using GPU 3 only"
    gpus = {"3": {"name": "NVIDIA H200"}}
    flagged = deliver(tmp_path / "a", begin(1, gpus, **facts), argv=["--force-single-gpu"]).text("main.log")
    assert [line.split(" | ")[2] for line in flagged.splitlines()[2:8]] == [
        "Mode: SINGLE-GPU", "GPU Count: 1", "Model: unsloth/qwen-7b-qlora", wanted, "CUDA_VISIBLE_DEVICES=3",
        "GPU 3: NVIDIA H200",
    ]  # fmt: skip
    config = Config(time=T0, values={"training": {"force_single_gpu": True}})
    assert wanted in deliver(tmp_path / "b", [config, *begin(1, gpus, **facts)]).text("main.log")
    assert "FORCED" not in deliver(tmp_path / "c", [config, *begin(2)]).text("main.log")
    assert "FORCED" not in deliver(tmp_path / "d", begin(1, gpus, **facts)).text("main.log")


def test_head_waits_for_the_sampler_but_not_for_long(tmp_path: Path) -> None:
    """Step lines follow the head, though GPUs are known later; without them it comes after some seconds."""
    late = [*begin(1, None), *rows(5), Environment(time=T0 + 4.5, values={"gpus": GPUS}), *rows(9, 6)]
    text = deliver(tmp_path / "late", late).text("main.log")
    assert text.index("GPU Count: 1") < text.index("Step    1")
    assert text.count("Mode: ") == 1
    later = T0 + HEAD_S + 20
    corrected = deliver(
        tmp_path / "later",
        [*begin(1, None), *rows(20, every_s=1.0), Environment(time=later, values={"gpus": GPUS}), *rows(30, 21)],
    )
    text = corrected.text("main.log")
    assert re.findall(r"Mode: (\S+)", text) == ["SINGLE-PROCESS", "SINGLE-GPU"]
    assert text.index("SINGLE-PROCESS") < text.index("Step    1") < text.index("SINGLE-GPU")


def test_levels_decide_which_lines_are_written(tmp_path: Path) -> None:
    """WARNING leaves warnings and errors; DEBUG, or a number up to it, has a line for each logged step."""
    records = [*begin(), *rows(100, every_s=15.0)]
    crash = Status("crashed", None, T0 + 2000, "the process was killed or died")
    quiet = deliver(
        tmp_path / "a", records, crash, options={"TRAINING_LOG_LEVEL": "warning", "MULTIGPU_LOG_LEVEL": "30"}
    )
    assert [line.split(" | ")[1:] for line in quiet.lines("main")] == [
        ["ERROR", "❌ TRAINING SESSION CRASHED: the process was killed or died"]
    ]
    assert quiet.text("multigpu.log") == ""
    assert {line.split(" | ")[1] for line in quiet.lines("performance")} == {"WARNING "}
    loud = deliver(tmp_path / "b", records, options={"TRAINING_LOG_LEVEL": "10", "MULTIGPU_LOG_LEVEL": "DEBUG"})
    assert len(re.findall(r"^Step ", loud.text("main.log"), re.M)) == 100
    assert len(re.findall(r"Multi-GPU Step", loud.text("multigpu.log"))) == 100
    assert len(loud.json()["training_metrics"]) == len(quiet.json()["training_metrics"]) == 100


def test_level_that_is_none_is_an_error_at_the_start() -> None:
    """``init`` names the variable, and what it takes."""
    with pytest.raises(UsageError, match="MULTIGPU_LOG_LEVEL=loud: give a number, or one of DEBUG, INFO"):
        check("session", {"MULTIGPU_LOG_LEVEL": "loud"})
    check("session", {"TRAINING_LOG_LEVEL": "Debug", "MULTIGPU_LOG_LEVEL": "15"})


@pytest.mark.parametrize(
    ("reason", "level", "text"),
    [
        ("DistNetworkError: The client socket has timed out after 60000ms", "ERROR", START),
        ("RuntimeError: init_process_group failed", "ERROR", START),
        ("DistStoreError: Timed out after 901 seconds waiting for clients. 1/2 clients joined.", "ERROR", START),
        ("DistBackendError: NCCL collective operation timeout: WorkNCCL", "WARNING", "NCCL communication timeout: "),
        ("RuntimeError: [gloo] Timed out waiting 9ms for recv operation", "WARNING", "Communication timeout: "),
        ("ValueError: the data loader timed out", "", ""),
    ],
)  # fmt: skip
def test_failures_of_communication_are_said(reason: str, level: str, text: str, tmp_path: Path) -> None:
    """An exception that ended the run, and speaks of ranks that didn't meet or wait, is in the multi-GPU log."""
    finish = Finish(time=T0 + 9, status="failed", exit_code=1, reason=reason)
    found = deliver(tmp_path, [*begin(), *rows(3), finish], Status("failed", 1, T0 + 9, reason))
    problems = [line.split(" | ", 3) for line in found.lines("multigpu") if "INFO" not in line]
    assert [(one[1].strip(), one[3]) for one in problems] == ([(level, text + reason)] if level else [])
    assert found.lines("main")[-2].endswith(f" | ERROR | ❌ TRAINING SESSION FAILED: {reason}")
    assert found.json()["session"]["reason"] == reason


def test_texts_alerts_and_artifacts_are_lines(tmp_path: Path) -> None:
    """What has no place in the summary's lists is a line: on one line, with its level, without control characters."""
    records = [
        *begin(),
        Text(step=1, time=T0 + 2, values={"sample": "two\nlines \x1b[31mred"}),
        Alert(time=T0 + 3, title="loss spike", text="at step 7", level="WARN"),
        ArtifactRecord(time=T0 + 4, name="checkpoint", type="model"),
        Text(time=T0 + 5, values={"system.gpu.0.throttle": "hw slowdown"}, id="sampler-0.1:0"),
        Summary(time=T0 + 6, values={"final/best": 0.5, "final/energy/total_kwh": 0.25}),
    ]
    found = deliver(tmp_path, sampled_stream(records))
    lines = [line.split(" | ", 1)[1] for line in found.lines("main") if line.startswith(CLOCK[:2])]
    assert lines[-5:-2] == [
        "INFO  | sample: two\\nlines \\x1b[31mred",
        "WARNING | loss spike: at step 7",
        "INFO  | Saved model: checkpoint",
    ]
    assert found.lines("performance")[0].endswith("WARNING  | MainProcess  | GPU 0 throttled: hw slowdown")
    session = found.json()["session"]
    assert (session["results"], session["measured"]) == ({"best": 0.5}, {"energy/total_kwh": 0.25})
    assert "  Results:\n    best: 0.500\n  Measured:\n    energy/total_kwh: 0.250\n" in found.text("summary.txt")


def test_two_runs_of_one_second_have_two_sessions(tmp_path: Path) -> None:
    """The second gets a number behind its id; each finds its own again when its state is lost."""
    options = {"SESSION_DIR": "./logs"}
    records = stream([*begin(), *rows(20)])
    for run in ("first", "second", "first", "second"):
        info = run_info(tmp_path / run, id=run, cwd=str(tmp_path), options=options)
        Driver(SessionTracker, info).deliver(records)
    found = sessions(tmp_path / "logs")
    assert [one.name for one in found] == [f"training_{STAMP}", f"training_{STAMP}_2"]
    assert [one.json()["session"]["run_id"] for one in found] == ["first", "second"]
    assert len(found[1].json()["training_metrics"]) == 20


def test_directory_that_is_gone_is_built_anew(tmp_path: Path) -> None:
    """Who deleted the logs gets them whole again, at the next sync, under the same id."""
    info = run_info(tmp_path / "run", cwd=str(tmp_path), options={"SESSION_DIR": "./logs"})
    driver = Driver(SessionTracker, info)
    records = stream([*begin(), *rows(60)])
    driver.deliver(records)
    (found,) = sessions(tmp_path / "logs")
    before = {path.name: path.read_text() for path in found.directory.iterdir()}
    for path in found.directory.iterdir():
        path.unlink()
    found.directory.rmdir()
    driver.deliver(records)
    assert {path.name: path.read_text() for path in found.directory.iterdir()} == before


def test_machine_without_trainings_directory_keeps_the_logs_with_the_run(tmp_path: Path) -> None:
    """A sync elsewhere makes no directories of another machine's: ./logs is then in the run's own."""
    info = run_info(tmp_path / "run", cwd="/nowhere/at/all", options={"SESSION_DIR": "./logs"})
    Driver(SessionTracker, info).deliver(stream(begin()))
    assert len(sessions(tmp_path / "run/logs")) == 1


def test_attempts_are_one_session(tmp_path: Path) -> None:
    """A run killed and continued from its checkpoint: both in the logs, superseded metrics not in the summary."""
    first = [*begin(), *rows(30), Finish(time=T0 + 20, status="crashed", reason="killed")]
    again = T0 + 100
    second: list[Record] = [
        Start(time=again, rank=0, world_size=1, attempt=2, from_step=20),
        Environment(time=again + 1, values={"gpus": GPUS}),
        *(Metrics(step=k, time=again + k, values={"train_loss": 100.0 + k}) for k in range(21, 26)),
    ]
    numbered = stream([*first, *second])
    info = run_info(tmp_path / "run", cwd=str(tmp_path), options={"SESSION_DIR": "./logs"})
    driver = Driver(SessionTracker, info)
    driver.deliver(numbered[: len(first)], status=Status("crashed", None, T0 + 20, "killed"))
    driver.deliver(numbered, status=Status("finished", 0, T0 + 200))
    (found,) = sessions(tmp_path / "logs")
    content = found.json()
    assert [entry["step"] for entry in content["training_metrics"]] == [*range(1, 21), *range(21, 26)]
    assert content["training_metrics"][20]["loss"] == 121.0
    text = found.text("main.log")
    assert text.count("TRAINING SESSION CRASHED: killed") == 1
    assert text.count("TRAINING SESSION CONTINUED (attempt 2)") == 1
    assert "WARNING | Goes back to step 20: what was logged above it counts no more" in text
    assert text.count("TRAINING SESSION FINISHED") == 1
    assert re.findall(r"Mode: (\S+)", text) == ["MULTI-GPU", "SINGLE-GPU"]
    assert content["session"]["mode"] == "SINGLE-GPU"


def test_nccl_line_without_an_end_is_taken_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that is longer than what is read at a time holds nothing up; the rest waits for its end, or the run's."""
    monkeypatch.setattr(files, "NCCL_BLOCK_BYTES", 8)
    (tmp_path / "rank-0.log").write_text("one\n" + "x" * 18)
    offsets: dict[str, int] = {}
    taken = [files.gather_nccl([tmp_path], offsets) for _ in range(4)]
    assert taken == [["one"], ["xxxxxxxx"], ["xxxxxxxx"], []]
    assert files.gather_nccl([tmp_path], offsets, last=True) == ["xx"]
    assert files.gather_nccl([tmp_path], offsets, last=True) == []


def test_nccl_output_is_gathered_as_it_grows(tmp_path: Path) -> None:
    """Lines of all ranks' files are in the multi-GPU log, once, by their level; a timeout is warned of."""
    info = run_info(
        tmp_path / "run", cwd=str(tmp_path), options={"SESSION_DIR": "./logs", "MULTIGPU_LOG_LEVEL": "INFO"},
        attempts=[{"number": 1, "launch": "../.ranks/abc"}],
    )  # fmt: skip
    folder = tmp_path / ".ranks/abc/nccl"
    folder.mkdir(parents=True)
    file = folder / "rank-1.node7.42.log"
    file.write_text("node7:42:42 [1] NCCL INFO Bootstrap : Using eth0\nnode7:42:42 [1] NCCL TR")
    driver = Driver(SessionTracker, info)
    records = stream([*begin(), *rows(40)])
    driver.open()
    driver.write(records[:10])
    with file.open("a") as more:
        more.write("ACE x\nnode7:42:42 [1] NCCL WARN Timeout waiting for connection from peer\n")
    driver.open()  # killed, and begun anew
    driver.write(records)
    driver.close()
    driver.deliver(records)
    (found,) = sessions(tmp_path / "logs")
    lines = [line for line in found.lines("multigpu") if "NCCL" in line]
    assert [line.split("| MainProcess  | ")[-1] for line in lines] == [
        "node7:42:42 [1] NCCL INFO Bootstrap : Using eth0",
        "node7:42:42 [1] NCCL WARN Timeout waiting for connection from peer",
        "NCCL communication timeout: node7:42:42 [1] NCCL WARN Timeout waiting for connection from peer",
    ]
    assert [path.name for path in (tmp_path / "run/nccl").iterdir()] == [file.name]  # it goes where the run goes
    assert not folder.exists()


class Watch:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_quiet_run_shows_what_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing more comes, a step's line waits two seconds and the head five; the summary is saved every ten."""
    watch = Watch()
    monkeypatch.setattr(SessionTracker, "clock", staticmethod(watch))
    driver = Driver(SessionTracker, run_info(tmp_path / "run", cwd=str(tmp_path), options={"SESSION_DIR": "./logs"}))
    driver.open()
    driver.write(stream([*begin(1, None), *rows(2)]))
    tracker = driver.tracker
    assert isinstance(tracker, SessionTracker)
    (found,) = sessions(tmp_path / "logs")
    assert len(found.json()["training_metrics"]) == 2
    driver.write(stream([*begin(1, None), *rows(3)]))
    seen = []
    for seconds in (1, 1, 3, 5):
        watch.now += seconds
        tracker.tick()
        steps = len(re.findall("^Step", found.text("main.log"), re.M))
        seen.append(("STARTED" in found.text("main.log"), steps, len(found.json()["training_metrics"])))
    assert seen == [(False, 0, 2), (False, 0, 2), (True, 3, 2), (True, 3, 3)]
    driver.close()


@pytest.mark.slow
def test_disk_that_is_full_leaves_whole_lines(tmp_path: Path) -> None:
    """A write that fails takes back what it began, in every file; the same batch is taken once there is space."""
    options = {"SESSION_DIR": "./logs"}
    timed = {"communication/gradient_sync/bytes": 1e6, "communication/gradient_sync/duration_ms": 1.0}
    records = stream([*begin(), *rows(120, **timed)])
    contents = []
    for failing in range(6):
        place = tmp_path / str(failing)
        driver = Driver(SessionTracker, run_info(place / "run", cwd=str(place), options=options))
        driver.open()
        driver.write(records[:20])
        failpoints.arm(f"owned.write.before=raise:{failing}" if failing else "")
        try:
            if failing:
                with pytest.raises(Unavailable):
                    driver.write(records, batch=200)
        finally:
            failpoints.arm("")
        driver.write(records, batch=200)
        driver.close()
        (found,) = sessions(place / "logs")
        contents.append({path.name: path.read_text() for path in found.directory.iterdir()})
    assert all(content == contents[0] for content in contents)


def test_gpus_of_several_machines_are_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each machine's snapshots are its own, at its own times; analyze_logs has a line for each GPU."""
    gpus = {"node0.0": {"name": "A"}, "node1.0": {"name": "B"}}
    values = [(10, 0, 60.0), (11, 1, 80.0), (20, 0, 62.0), (21, 1, 82.0)]
    more = [sampled(at, **{f"system.node{node}.gpu.0.gpu": busy}) for at, node, busy in values]
    found = deliver(tmp_path, sampled_stream([*begin(2, gpus), *rows(3), *more]))
    snapshots = [entry["gpus"][0] for entry in found.json()["gpu_snapshots"]]
    assert [(gpu["id"], gpu["name"], gpu["utilization"]) for gpu in snapshots] == [
        ("node0.0", "A", 60.0), ("node1.0", "B", 80.0), ("node0.0", "A", 62.0), ("node1.0", "B", 82.0),
    ]  # fmt: skip
    assert analyze_logs.main(["--log-dir", str(tmp_path / "logs")]) == 0
    out = capsys.readouterr().out
    assert "  GPU node0.0: 62.0% avg util, 62.0% peak" in out
    assert "  GPU node1.0: 82.0% avg util, 82.0% peak" in out


def test_summary_reads_back_as_the_journal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Our reader gives every value under its name; analyze_logs counts calls, not records, and says the true ending."""
    from trackers_session.reader import SessionReader

    timed = {"count": 9, "bytes": 67.23e6, "duration_ms": 5.0, "bandwidth_mb_per_sec": 13446.0}
    more = {f"communication/gradient_sync/{name}": value for name, value in timed.items()}
    records = [*begin(), *rows(5, **more), sampled(10, **{"system.gpu.0.gpu": 80.0, "system.gpu.0.gpu.max": 95.0})]
    records.append(Summary(time=T0 + 30, values={"best": 0.5}))
    found = deliver(tmp_path, sampled_stream(records), Status("crashed", None, T0 + 40, "killed"))
    reader = SessionReader()
    (run,) = reader.runs(str(found.directory))
    read = list(reader.read(run))
    logged = [record for record in records if isinstance(record, Metrics) and record.step is not None]
    assert [(r.step, r.values) for r in read if isinstance(r, Metrics) and r.step is not None] == [
        (r.step, r.values) for r in logged
    ]
    assert [r.time for r in read if isinstance(r, Metrics) and r.step] == pytest.approx([r.time for r in logged])
    (finish,) = [record for record in read if isinstance(record, Finish)]
    assert (finish.status, finish.reason) == ("crashed", "killed")
    assert [record.values for record in read if isinstance(record, Summary)] == [{"best": 0.5}]
    assert analyze_logs.main(["--log-dir", str(tmp_path / "logs"), "--session-id", found.name]) == 0
    out = capsys.readouterr().out
    for line in (
        "  GPUs: 2",
        "  Steps: 5",
        "  Final Loss: 2.9950",
        "  GPU 0: 80.0% avg util, 95.0% peak, – avg memory",
        "    gradient_sync: 45 occurrences",
        "      Avg data size: 67.23MB",
        "      Total data: 3025.35MB",
        "    training_start: 1 occurrences",
    ):
        assert line in out.splitlines(), out
    assert "gradient_sync: 45 occurrences" in found.text("summary.txt")
    assert "Total data: 3025.35MB" in found.text("summary.txt")


STEPS = st.lists(st.tuples(st.integers(0, 60), st.sampled_from(["train_loss", "val_loss", "x"])), max_size=40)


@pytest.mark.heavy
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS, batch=st.integers(1, 9), cuts=st.lists(st.integers(0, 40), max_size=3))
def test_logs_are_the_same_however_they_were_delivered(
    steps: list[tuple[int, str]], batch: int, cuts: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Any steps in any order, any batches, kills before a commit: the same files, to the last character."""
    records = stream(
        [
            *begin(),
            *(Metrics(step=step, time=T0 + 2 + k, values={name: k / 7}) for k, (step, name) in enumerate(steps)),
            Finish(time=T0 + 99, status="finished", exit_code=0),
        ]
    )
    contents = []
    for killed in (False, True):
        tmp_path = tmp_path_factory.mktemp("delivered")
        info = run_info(tmp_path / "run", cwd=str(tmp_path), options={"SESSION_DIR": "./logs"})
        driver = Driver(SessionTracker, info)
        if killed:
            for cut in sorted(cuts):
                driver.open()
                driver.write(records[:cut], batch)
                driver.write(records[: cut + batch], batch, commit=False)
        driver.deliver(records, batch if killed else 1000)
        (found,) = sessions(tmp_path / "logs")
        contents.append({path.name: path.read_text() for path in found.directory.iterdir()})
    assert contents[0] == contents[1]


def test_what_training_printed_is_a_file_beside_the_logs(tmp_path: Path) -> None:
    """Each line once, though a delivery was killed between; a run that printed nothing has none."""
    info = run_info(tmp_path / "run", cwd=str(tmp_path))
    check_console_file(functools.partial(Driver, SessionTracker, info), tmp_path)
