"""``scripts/analyze_logs.py`` and ``scripts/compare_results.py``: documented flags and output, also on poor files."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT, forked
from trackers.analysis.benchmark_results import Result, from_document
from trackers.analysis.compare import compare_runs
from trackers.analysis.report import benchmark_markdown, warnings, winner
from trackers.cli.scripts import analyze_logs, compare_results
from trackers.errors import NotFound, UsageError
from trackers.readers.run_data import load

SCRIPTS = ROOT / "scripts"
BEGAN = datetime(2024, 12, 6, 14, 0, 0)


def stamp(seconds: float) -> str:
    """A time of a session, as its files have it."""
    return (BEGAN + timedelta(seconds=seconds)).isoformat()


def write_session(name: str, gpus: int, rate: float, loss: float, *, metrics: dict[str, Any] | None = None) -> Path:
    """A session with 1000 steps at a rate, its GPUs busy at 80 %, then 90 % for twice as long."""
    duration = 1000 / rate
    snapshots = [
        {"timestamp": stamp(t), "gpus": [
            {"id": k, "name": "NVIDIA RTX 4090", "utilization": used, "memory_used_mb": 18000, "memory_total_mb": 24000,
             "memory_percent": 75.0, "temperature": 60} for k in range(gpus)],
         "system": {"cpu_percent": 20.0, "memory_percent": 30.0}}
        for t, used in ((0, 80.0), (10, 80.0), (30, 90.0))
    ]  # fmt: skip
    content = {
        "session": {"id": name, "start_time": stamp(0), "end_time": stamp(duration), "duration_seconds": duration,
                    "mode": "MULTI-GPU" if gpus > 1 else "SINGLE-GPU", "gpu_count": gpus, "model_name": "qwen",
                    "dataset_name": "alpaca"},
        "training_metrics": [
            {"step": step, "loss": 3.0 if step < 1000 else loss, "learning_rate": 1e-4, "timestamp": stamp(step / rate),
             "process_rank": 0, "metrics": metrics or {}} for step in range(50, 1001, 50)],
        "gpu_snapshots": snapshots,
        "communication_logs": [
            {"timestamp": stamp(k), "operation": "gradient_sync", "process_rank": 0, "data_size_mb": 67.0 + k % 2,
             "duration_ms": 12.0} for k in range(4)] + [
            {"timestamp": stamp(0), "operation": "training_start", "process_rank": 0}] if gpus > 1 else [],
    }  # fmt: skip
    path = Path("logs", name, f"{name}_summary.json")
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(content))
    return path


def script(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A script as users start it, in a process of its own."""
    return forked.run([sys.executable, str(SCRIPTS / name), *arguments])


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What ``analyze_logs`` prints."""
    assert analyze_logs.main(arguments) == 0
    return capsys.readouterr().out


def test_comparison_has_all_that_is_documented(capsys: pytest.CaptureFixture[str]) -> None:
    """Every line of the documented output, with its numbers: 0.83 and 1.54 steps/s make 1.85 times."""
    write_session("training_20241206_140000", 1, 1000 / 1200.5, 1.2345)
    write_session("training_20241206_143022", 2, 1000 / 650.2, 1.2340)
    out = printed(capsys, "--compare")
    assert out.startswith(f"SINGLE GPU vs MULTI-GPU COMPARISON\n{'=' * 60}\n\n📱 SINGLE GPU SESSIONS (1):\n")
    for line in (
        "  Session: training_20241206_140000", "  Duration: 1200.5s (20.0min)", "  GPUs: 1", "  Steps: 1000",
        "  Final Loss: 1.2345", "  Steps/sec: 0.83", "  GPU 0: 86.7% avg util, 90.0% peak, 75.0% avg memory",
        "🔗 MULTI-GPU SESSIONS (1):", "  Duration: 650.2s (10.8min)", "  GPUs: 2", "  Final Loss: 1.2340",
        "  Steps/sec: 1.54", "  GPU 1: 86.7% avg util, 90.0% peak, 75.0% avg memory", "⚡ PERFORMANCE COMPARISON:",
        "Single GPU Average:", "Multi-GPU Average:", "  GPU utilization: 86.7%",
        "🚀 Multi-GPU Speedup: 1.85x (steps/s: no session says its samples/s, equal batches are taken for granted)",
        "📊 GPU Efficiency: 92.3%",
    ):  # fmt: skip
        assert line in out.splitlines(), line


def test_speedup_is_from_samples(capsys: pytest.CaptureFixture[str]) -> None:
    """Where sessions say samples/s, the speed-up counts the batch: the same steps/s with twice the batch is twice."""
    write_session("single", 1, 1.0, 1.0, metrics={"samples_per_second": 4.0})
    write_session("multi", 2, 1.0, 1.0, metrics={"samples_per_second": 8.0})
    out = printed(capsys, "--compare").splitlines()
    assert "🚀 Multi-GPU Speedup: 2.00x" in out
    assert "📊 GPU Efficiency: 100.0%" in out
    assert "  Samples/sec: 8.00" in out


def test_speedup_of_each_number_of_gpus(capsys: pytest.CaptureFixture[str]) -> None:
    """Sessions on two and on four GPUs have their own speed-up and efficiency, not one of their mixture."""
    for name, gpus, rate in (("one", 1, 1.0), ("two", 2, 1.5), ("four", 4, 2.0)):
        write_session(name, gpus, rate, 1.0)
    out = printed(capsys, "--compare")
    assert "🚀 Multi-GPU Speedup (2 GPUs): 1.50x" in out
    assert "📊 GPU Efficiency (4 GPUs): 50.0%" in out


@pytest.mark.parametrize("measured", [True, False])
def test_speedup_is_of_gpus_that_trained(measured: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """A session on processors alone is in no average of GPUs, one that died before its first step in none at all, and
    one that doesn't say its GPUs is apart: 2.00 times, whichever lie beside."""
    for name, gpus in (("one", 1), ("two", 2)):
        write_session(name, gpus, float(gpus), 1.0, metrics={"samples_per_second": 8.0 * gpus} if measured else {})
    odd: dict[str, dict[str, Any]] = {
        "processor": {"gpu_count": 0, "mode": "SINGLE-CPU"}, "unknown": {"gpu_count": None, "mode": ""},
        "by mode": {"gpu_count": None, "mode": "SINGLE-CPU"}, "by count": {"gpu_count": 0, "mode": ""},
        "died": {},
    }  # fmt: skip
    for name, session in odd.items():
        path = write_session(name, 1, 1.0, 1.0, metrics={"samples_per_second": 1.0} if measured else {})
        content = json.loads(path.read_text())
        content["session"].update(session)
        content["gpu_snapshots"] = [] if session else content["gpu_snapshots"]
        content["training_metrics"] = content["training_metrics"] if session else []
        path.write_text(json.dumps(content))
    out = printed(capsys, "--compare")
    said = "" if measured else " (steps/s: no session says its samples/s, equal batches are taken for granted)"
    assert f"🚀 Multi-GPU Speedup: 2.00x{said}\n📊 GPU Efficiency: 100.0%\n" in out
    assert "Single GPU Average (without died: no steps):\n" in out
    assert "📱 SINGLE GPU SESSIONS (2):\n" in out
    others = out.split("📎 OTHER SESSIONS (4):\n")[1]
    for name in ("by mode", "by count"):
        assert f"Session: {name}\n  Duration: 1000.0s (16.7min)\n  GPUs: 0\n" in others
    assert "Session: processor\n  Duration: 1000.0s (16.7min)\n  GPUs: 0\n" in others
    assert "Session: unknown\n  Duration: 1000.0s (16.7min)\n  GPUs: –\n" in others


def test_slow_session_is_not_still(capsys: pytest.CaptureFixture[str]) -> None:
    """A step in three minutes is 0.0056 steps/s, not 0.00."""
    write_session("slow", 1, 1 / 180, 1.0)
    assert "  Steps/sec: 0.0056\n" in printed(capsys, "--session-id", "slow")


def test_communication_has_all_that_is_documented(capsys: pytest.CaptureFixture[str]) -> None:
    """Operations with their counts and sizes; no bandwidth is made up; an event without a size has none."""
    write_session("training_20241206_143022", 2, 1.0, 1.0)
    assert printed(capsys, "--communication") == (
        "📡 Session: training_20241206_143022\n  GPUs: 2\n  Communication Operations:\n"
        "    gradient_sync: 4 occurrences\n      Avg data size: 67.50MB\n      Total data: 270.00MB\n"
        "      Avg duration: 12.00ms\n    training_start: 1 occurrences\n"
    )


def test_one_session_and_report(capsys: pytest.CaptureFixture[str]) -> None:
    """--session-id shows that session alone; --report writes comparison and communication to a file it names."""
    write_session("single", 1, 1.0, 1.0)
    write_session("multi", 2, 1.5, 1.0)
    out = printed(capsys, "--session-id", "multi")
    assert "Session: multi" in out
    assert "single" not in out
    assert printed(capsys, "--report") == "Report saved to logs/session_report.txt\n"
    report = Path("logs/session_report.txt").read_text()
    assert "SINGLE GPU vs MULTI-GPU COMPARISON" in report
    assert "COMMUNICATION" in report


POOR: list[Any] = [
    {"session": {}},
    {"session": None, "training_metrics": None, "gpu_snapshots": None, "communication_logs": None},
    {"training_metrics": []},
    {"training_metrics": [{}, None, {"step": "x"}, {"step": 3, "loss": None}, {"loss": "NaN", "step": 4}]},
    {"session": {"gpu_count": 0, "duration_seconds": 0}, "training_metrics": [{"step": 1, "loss": math.nan}]},
    {"session": {"gpu_count": 2, "start_time": "yesterday", "end_time": 5}, "gpu_snapshots": [{"gpus": [{}, None]}]},
    {"gpu_snapshots": [{"timestamp": 1.0, "gpus": [{"utilization": None}, {"id": 3, "utilization": 50.0}]}]},
    {"communication_logs": [{}, {"operation": "a/b\x1b[31m"}, {"operation": "x", "data_size_mb": 0, "duration_ms": 0}]},
    {"session": {"duration_seconds": -5, "gpu_count": 8},
     "training_metrics": [{"step": 5, "loss": 1, "process_rank": 3}, {"step": 5, "loss": 2, "process_rank": 1}]},
]  # fmt: skip


@pytest.mark.parametrize("content", POOR)
def test_session_with_missing_fields_is_analyzed(content: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever is absent, null, zero or of another type shows as – and crashes nothing, beside a whole session too."""
    Path("logs").mkdir()
    Path("logs/poor_summary.json").write_text(json.dumps(content))
    for flags in ([], ["--compare"], ["--communication"], ["--report"], ["--session-id", "poor"]):
        assert "\x1b" not in printed(capsys, *flags)
    write_session("single", 1, 1.0, 1.0)
    write_session("multi", 2, 1.0, 1.0)
    assert "Speedup" in printed(capsys, "--compare", "--communication")


def test_truncated_and_foreign_files_are_left_out_and_said(capsys: pytest.CaptureFixture[str]) -> None:
    """A summary that was cut, and one of another kind, are named; the others are analyzed."""
    path = write_session("single", 1, 1.0, 1.0)
    Path("logs/cut_summary.json").write_text(path.read_text()[:500])
    Path("logs/other_summary.json").write_text('{"summary": 3}')
    assert analyze_logs.main(["--compare"]) == 0
    found = capsys.readouterr()
    assert "No multi-GPU session to compare with." in found.out
    assert "cut_summary.json isn't whole JSON" in found.err
    assert "other_summary.json is no session's summary" in found.err


def test_session_is_a_source_too() -> None:
    """A session reads as a run: metrics by step, snapshots without one, ranks apart, settings, ending."""
    path = write_session("multi", 2, 1.0, 1.5)
    content = json.loads(path.read_text())
    content["training_metrics"].append({"step": 7, "loss": 9.0, "process_rank": 1, "timestamp": stamp(7)})
    path.write_text(json.dumps(content))
    data = load(str(path))
    assert (data.run.id, data.status, data.config["gpu_count"]) == ("multi", "finished", 2)
    assert data.metrics(["train_loss"])["train_loss"].to_pylist()[-1] == 1.5
    assert data.metrics(["rank_1/train_loss"])["step"].to_pylist() == [7]
    assert (
        data.system("system.gpu.1.memoryAllocatedBytes")["system.gpu.1.memoryAllocatedBytes"].to_pylist()
        == [1.8e10] * 3
    )


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        (["--log-dir", "nowhere"], NotFound, "no directory nowhere: --log-dir names where sessions lie"),
        (["--log-dir", "empty"], NotFound, "no session below empty"),
        (["--session-id", "other"], NotFound, "no session 'other' below logs; there is single"),
    ],
)
def test_analyze_logs_bad_input_is_one_line(arguments: list[str], error: type[Exception], said: str) -> None:
    """No directory, nothing in it, no such session: one line that says what there is."""
    write_session("single", 1, 1.0, 1.0)
    Path("empty").mkdir()
    with pytest.raises(error) as raised:
        analyze_logs.main(arguments)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_report_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory that refuses the report is one line."""
    write_session("single", 1, 1.0, 1.0)
    Path("logs/session_report.txt").mkdir()
    with pytest.raises(UsageError, match=r"session_report\.txt can't be written"):
        analyze_logs.main(["--report"])


def benchmark(**changes: Any) -> dict[str, Any]:
    """The format's example of a benchmark result; a change replaces a member, None removes it."""
    content: dict[str, Any] = {
        "platform": "rocm",
        "gpu_info": {"device_count": 8, "device_name": "AMD Instinct MI300X", "total_memory_gb": 191.98,
                     "platform": "rocm", "rocm_version": "6.0"},
        "timestamp": "2026-01-05T11:29:06",
        "training_config": {"max_steps": 10, "global_batch_size": 128, "sequence_length": 2048, "num_gpus": 8},
        "performance_metrics": {"total_steps": 10, "avg_step_time_seconds": 9.754, "tokens_per_second": 26876,
                                "tokens_per_second_per_gpu": 3359.5},
        "memory_metrics": {"avg_memory_allocated_gb": 117.99, "peak_memory_allocated_gb": 117.99},
        "raw_step_times": [9.836, 9.702, 9.699, 9.75, 9.783],
    }  # fmt: skip
    content.update(changes)
    return {name: value for name, value in content.items() if value is not None}


CUDA = {"device_count": 8, "device_name": "NVIDIA H100", "total_memory_gb": 80.0, "platform": "cuda",
        "cuda_version": "12.4", "pytorch_version": "2.5", "gpu_cores": 16896}  # fmt: skip


def write_benchmark(name: str, content: Any) -> Path:
    """A result in ``benchmark_results/``."""
    path = Path("benchmark_results", f"benchmark_{name}.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def result(**changes: Any) -> Result:
    """A benchmark result read from the format's example with changes."""
    return from_document(benchmark(**changes), Path("benchmark_x.json"))


@pytest.mark.slow
@pytest.mark.heavy
def test_comparison_report_has_all_that_is_documented(capsys: pytest.CaptureFixture[str]) -> None:
    """Winner with its reason, hardware, configuration, throughput, step times, memory, variance, timestamps.

    The first states its speed, which the rest of it agrees with to the rounding; the other's is derived.
    """
    write_benchmark("rocm_20260105_112906", benchmark())
    faster = {"total_steps": 10, "avg_step_time_seconds": 4.877, "min_step_time_seconds": 4.8,
              "max_step_time_seconds": 5.0, "std_step_time_seconds": 0.04877}  # fmt: skip
    write_benchmark("cuda_20260105_143022", benchmark(platform="cuda", gpu_info=CUDA, performance_metrics=faster,
                    raw_step_times=[4.877] * 5, timestamp="2026-01-05T14:30:22", loss_values=[2.0, 1.5]))  # fmt: skip
    assert compare_results.main([]) == 0
    out = capsys.readouterr().out
    assert (
        "Winner: cuda_20260105_143022. 6718.9 tokens/s per GPU, 100.0 % more than rocm_20260105_112906 (3359.5)." in out
    )
    assert "Report saved to benchmark_results/comparison_report.md" in out
    report = Path("benchmark_results/comparison_report.md").read_text()
    headings = [line.removeprefix("## ") for line in report.splitlines() if line.startswith("## ")]
    assert headings == ["Winner: cuda_20260105_143022", "Hardware", "Configuration", "Throughput", "Step time",
                        "Memory per GPU", "Variance", "Timestamps"]  # fmt: skip
    for cell in ("AMD Instinct MI300X", "NVIDIA H100", "| 12.4 |", "| 6.0 |", "| 2,048 |", "4.877 | 4.8 | 5 | 0.04877",
                 "126.69 | 126.69", "2026-01-05T14:30:22", "9.754 | 9.699 | 9.836"):  # fmt: skip
        assert cell in report, cell


def test_contradicting_result_is_derived_and_said() -> None:
    """The format's own example: 128 × 2048 ÷ 9.754 is 26,876 tokens/s, not 107,501; 8192 would explain it."""
    found = result(performance_metrics={"avg_step_time_seconds": 9.754, "tokens_per_second": 107501})
    assert found.tokens_per_s == pytest.approx(26876, abs=1)
    assert "states 107,501 tokens/s" in found.remarks[0]
    assert "length of 8,192" in found.remarks[0]
    path = write_benchmark(
        "a", benchmark(performance_metrics={"avg_step_time_seconds": 9.754, "tokens_per_second": 107501})
    )
    assert any("states 107,501 tokens/s" in text for text in compare_runs([path]).warnings)


def test_missing_figures_are_derived() -> None:
    """Average, extremes, deviation, tokens/s and its part per GPU come from what else a result has."""
    found = result(performance_metrics=None, raw_step_times=[1.0, 2.0, 3.0])
    assert (found.step_s, found.step_min_s, found.step_max_s, found.step_std_s) == (2.0, 1.0, 3.0, 1.0)
    assert found.variation_percent == 50.0
    assert (found.samples_per_s, found.tokens_per_s, found.tokens_per_s_per_gpu) == (64.0, 131072.0, 16384.0)
    each = result(training_config={"num_gpus": 4}, performance_metrics={"tokens_per_second_per_gpu": 100})
    assert (each.tokens_per_s, each.tokens_per_s_per_gpu) == (400.0, 100.0)


def test_platform_is_the_files_own() -> None:
    """The platform is that of the machine that trained, as the file says, wherever it is read."""
    assert result(platform=None).platform == "rocm"
    assert result(platform=None, gpu_info=None).platform == "unknown"


def test_losses_keep_their_places() -> None:
    """Zero, large, NaN and missing losses stay where they are: no other value moves to their step."""
    losses = result(loss_values=[0.0, 1e30, "NaN", None, "x", 2.0]).losses
    assert losses[:2] == [0.0, 1e30]
    assert losses[2] is not None
    assert math.isnan(losses[2])
    assert losses[3:] == [None, None, 2.0]
    path = write_benchmark("a", benchmark(loss_values=[0.0, None, "NaN", 3.0, 2.0]))
    steps = load(str(path)).metrics(["loss_values"])
    found = dict(zip(steps["step"].to_pylist(), steps["loss_values"].to_pylist(), strict=True))
    assert {step: value for step, value in found.items() if step != 3} == {1: 0.0, 4: 3.0, 5: 2.0}
    assert math.isnan(found[3])


def test_different_work_and_different_memory_are_warned_of() -> None:
    """Other batches, lengths, GPU counts and kinds of memory are said: nothing is compared without a word."""
    other = {"max_steps": 10, "global_batch_size": 64, "sequence_length": 4096, "num_gpus": 4}
    torch = {"kind": "torch", "unit": "GiB", "peak_memory_allocated_gb": 10.0}
    texts = warnings([result(), result(training_config=other, memory_metrics=torch)])
    for start in ("global_batch_size differs (128, 64)", "sequence_length differs", "numbers of GPUs differ (8, 4)",
                  "memory is of different kinds (torch, unknown)"):  # fmt: skip
        assert any(text.startswith(start) for text in texts), texts
    assert result(memory_metrics=torch).memory_peak_gb == pytest.approx(10.737, abs=1e-3)


def test_winner_is_nobody_where_it_is_chance_or_unknown() -> None:
    """A difference below 2 % makes no winner, nor does a single result or one that doesn't say."""
    slow = result()
    near = result(performance_metrics={"avg_step_time_seconds": 9.7})
    silent = result(performance_metrics=None, raw_step_times=None)
    assert winner([slow, near]).result is None
    assert "no difference" in winner([slow, near]).reason
    assert winner([slow, silent]).result is None
    assert "1 others don't say" in winner([slow, silent]).reason
    assert winner([silent, silent]).result is None
    for share, wins in ((1.019, False), (1.021, True), (2.0, True)):
        fast = result(performance_metrics={"avg_step_time_seconds": 9.7542 / share})
        assert (winner([slow, fast]).result is fast) == wins


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"global_batch_size": 64}, "global_batch_size differs (128, 64)"),
        ({"sequence_length": 4096}, "sequence_length differs (2,048, 4,096)"),
        ({"model_name": "llama-70b"}, "model_name differs (llama-8b, llama-70b)"),
        ({"precision": "fp8"}, "precision differs (bf16, fp8)"),
        ({"num_gpus": 4}, "numbers of GPUs differ (8, 4)"),
        ({"micro_batch_size": 4}, ""),
    ],
)
def test_winner_is_nobody_where_the_work_differs(changes: dict[str, Any], says: str) -> None:
    """Another batch, length, model, precision or number of GPUs makes no winner, and what differs is said."""
    config = {"global_batch_size": 128, "sequence_length": 2048, "num_gpus": 8, "model_name": "llama-8b",
              "precision": "bf16", "micro_batch_size": 2}  # fmt: skip
    slow = result(training_config=config)
    quick = {"avg_step_time_seconds": 2.0}
    fast = result(training_config={**config, **changes}, performance_metrics=quick, raw_step_times=[2.0] * 5)
    found = winner([slow, fast])
    assert (found.result is fast) == (not says)
    assert says in found.reason


@pytest.mark.parametrize("batch", [128, 64])
def test_winner_does_not_depend_on_what_a_batch_is_called(batch: int) -> None:
    """Another program's word for a step's samples: another number of them makes no winner, the same one does."""
    slow = result(training_config={"global_batch_size": 128, "sequence_length": 2048, "num_gpus": 8})
    stated = {"avg_step_time_seconds": 2.0, "tokens_per_second": 131_072.0, "tokens_per_second_per_gpu": 16_384.0}
    config = {"train_batch_size": batch, "seq_len": 2048, "num_gpus": 8}
    fast = result(training_config=config, performance_metrics=stated, raw_step_times=[2.0] * 5)
    found = winner([slow, fast])
    assert (found.result is fast) == (batch == 128), found.reason
    assert ("global_batch_size differs (128, 64)" in found.reason) == (batch == 64), found.reason


def test_winner_is_nobody_where_the_clock_differs() -> None:
    """Measured steps win nothing over times of records, in which more than steps may lie."""
    slow = result(source={"step_times": "times of records"})
    fast = result(source={"step_times": "time_ms"}, performance_metrics={"avg_step_time_seconds": 2.0},
                  raw_step_times=[2.0] * 5)  # fmt: skip
    assert winner([slow, fast]).result is None
    assert "clocks differ (wall clock, measured step time)" in winner([slow, fast]).reason


LACKING: list[Any] = [
    {"performance_metrics": {}},
    {
        "training_config": {},
        "performance_metrics": None,
        "gpu_info": None,
        "memory_metrics": [],
        "raw_step_times": None,
    },
    {"raw_step_times": []},
    {"raw_step_times": [None, "x", "NaN", 0, -1]},
    {"performance_metrics": {"avg_step_time_seconds": 0, "tokens_per_second": 0, "tokens_per_second_per_gpu": None}},
    {"training_config": {"num_gpus": 0, "global_batch_size": "128", "sequence_length": None}, "timestamp": 5},
    {"performance_metrics": {"avg_step_time_seconds": "NaN"}, "contradictions": "text", "loss_values": {}},
    {"training_config": {"global_batch_size": 10**400}, "gpu_info": {"device_name": "a|b <i>"}},
]


@pytest.mark.slow
@pytest.mark.heavy
@pytest.mark.parametrize("content", LACKING)
def test_result_with_missing_fields_is_compared(content: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever is absent, null, zero or of another type is – in table and report, alone and beside a whole result."""
    write_benchmark("lacking", json.dumps(content))
    assert compare_results.main([]) == 0
    write_benchmark("whole", benchmark())
    assert compare_results.main(["--output-report", "reports/new/report.md"]) == 0
    assert "–" in capsys.readouterr().out
    report = Path("reports/new/report.md").read_text()
    assert "<i>" not in report
    assert "| whole |" in report


@pytest.mark.parametrize("content", [*(entry for entry in LACKING if "performance_metrics" in entry), *POOR])
def test_files_with_missing_fields_are_compared_as_runs(content: Any) -> None:
    """``trackers compare`` takes the same files, beside a whole one: what they lack is None."""
    poor = write_benchmark("poor_summary" if content in POOR else "poor", content)
    whole = write_benchmark("whole", benchmark())
    found = compare_runs([poor, whole]).runs
    assert found[0]["samples_per_s"] is None
    assert found[1]["tokens_per_s"] == 26876  # as the file says it


@pytest.mark.slow
@pytest.mark.heavy
def test_results_in_dated_folders_and_broken_ones(capsys: pytest.CaptureFixture[str]) -> None:
    """Subfolders are searched; what is cut or no result is named and left out."""
    Path("benchmark_results/2026-01-05").mkdir(parents=True)
    write_benchmark("a", benchmark()).rename("benchmark_results/2026-01-05/benchmark_a.json")
    write_benchmark("cut", json.dumps(benchmark())[:100])
    write_benchmark("other", {"a": 1})
    assert compare_results.main([]) == 0
    found = capsys.readouterr()
    assert "Only a says its tokens/s per GPU" in found.out
    assert found.err.count("left out: ") == 2


def test_nasty_names_in_the_report() -> None:
    """Names with Markdown and HTML characters break no table and are no markup."""
    found = result(gpu_info={"device_name": "a|b <script>`*", "device_count": 2}, platform="[x](y)")
    report = benchmark_markdown([found], when="now")
    assert "<script>" not in report
    assert r"a\|b" in report


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        (["--results-dir", "nowhere"], NotFound, "no directory nowhere"),
        (["--results-dir", "empty"], NotFound, "no benchmark_*.json below empty"),
        (["--output-report", "empty"], UsageError, "empty can't be written"),
    ],
)
def test_compare_results_bad_input_is_one_line(arguments: list[str], error: type[Exception], said: str) -> None:
    """No directory, nothing in it, a report that can't be written: one line each."""
    write_benchmark("a", benchmark())
    Path("empty").mkdir()
    with pytest.raises(error) as raised:
        compare_results.main(arguments)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.slow
def test_scripts_run_from_anywhere() -> None:
    """From a checkout, in any directory: --help with an example, exit codes 0, 1 and 2, never a traceback."""
    write_session("single", 1, 1.0, 1.0)
    write_benchmark("a", benchmark())
    assert "Example: compare_results.py" in script("compare_results.py", "--help").stdout
    assert script("compare_results.py").returncode == 0
    done = script("analyze_logs.py", "--help")
    assert "Example: analyze_logs.py --compare" in done.stdout
    assert script("analyze_logs.py").returncode == 0
    missing = script("analyze_logs.py", "--log-dir", "nowhere")
    assert (missing.returncode, missing.stderr.count("\n")) == (1, 1)
    assert script("analyze_logs.py", "--nothing").returncode == 2
