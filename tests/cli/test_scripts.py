"""``scripts/compare_results.py``: documented flags and output, also on poor files."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT, forked
from trackers.analysis.benchmark_results import Result, from_document
from trackers.analysis.compare import compare_runs
from trackers.analysis.report import benchmark_markdown, warnings, winner
from trackers.cli.scripts import compare_results
from trackers.errors import NotFound, UsageError
from trackers.readers.run_data import load

SCRIPTS = ROOT / "scripts"


def script(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A script as users start it, in a process of its own."""
    return forked.run([sys.executable, str(SCRIPTS / name), *arguments])


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


@pytest.mark.parametrize("content", [entry for entry in LACKING if "performance_metrics" in entry])
def test_files_with_missing_fields_are_compared_as_runs(content: Any) -> None:
    """``trackers compare`` takes the same files, beside a whole one: what they lack is None."""
    poor = write_benchmark("poor" if "performance_metrics" in content else "poor_summary", content)
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
    write_benchmark("a", benchmark())
    assert "Example: compare_results.py" in script("compare_results.py", "--help").stdout
    assert script("compare_results.py").returncode == 0
    missing = script("compare_results.py", "--results-dir", "nowhere")
    assert (missing.returncode, missing.stderr.count("\n")) == (1, 1)
    assert script("compare_results.py", "--nothing").returncode == 2
