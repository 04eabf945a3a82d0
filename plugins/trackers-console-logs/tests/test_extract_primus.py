"""``scripts/extract_primus_metrics.py``: a benchmark result, derived from a log, true where the log proves it."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from trackers_console_logs import benchmark as primus

from tests import LOGS, ROOT
from trackers.analysis.collect import gather
from trackers.benchmark import result
from trackers.errors import NotFound, UsageError

SCRIPT = ROOT / "scripts/extract_primus_metrics.py"


def run(*arguments: str, cwd: Path | None = None, content: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, cwd=cwd, input=content)


def extract(tmp_path: Path, log: str | Path, *arguments: str) -> dict[str, Any]:
    """The document made of a log, by its text or its path."""
    path = log if isinstance(log, Path) else tmp_path / "training.log"
    if isinstance(log, str):
        path.write_text(log)
    output = tmp_path / "out.json"
    output.unlink(missing_ok=True)
    assert primus.extract(["--log-file", str(path), "--output", str(output), *arguments]) == 0
    found: dict[str, Any] = json.loads(output.read_text(), parse_constant=lambda name: pytest.fail(f"not JSON: {name}"))
    return found


def line(step: int, ms: float, rest: str = "", rank: str = "[rank-7/8]") -> str:
    head = f"[20260105 11:{step // 60:02d}:{step % 60:02d}]{rank}[INFO] iteration {step}/10 |"
    return f"{head} elapsed time per iteration (ms): {ms} |{rest}\n"


@pytest.mark.slow
def test_script_writes_the_documented_file(tmp_path: Path) -> None:
    """From a checkout, with the document's own log: its name, its fields, and on stdout what came out."""
    done = run("--log-file", str(LOGS / "primus-excerpt.log"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (path,) = (tmp_path / "benchmark_results").iterdir()
    assert path.name.startswith("benchmark_rocm_2026")
    assert f"Saved benchmark_results/{path.name}" in done.stdout.decode()
    document = json.loads(path.read_text())
    assert {"platform", "gpu_info", "timestamp", "training_config", "performance_metrics", "memory_metrics",
            "raw_step_times", "source"} <= set(document)  # fmt: skip
    assert document["training_config"]["num_gpus"] == 8
    assert document["memory_metrics"]["peak_memory_allocated_gb"] == 118.02


def test_sequence_length_is_derived(tmp_path: Path) -> None:
    """Batch size from consumed samples and length from throughput: the document's 2048 was 8192, which is named."""
    document = extract(tmp_path, LOGS / "primus-excerpt.log", "--sequence-length", "2048")
    assert document["training_config"]["global_batch_size"] == 128
    assert document["training_config"]["sequence_length"] == 8192
    assert document["raw_step_times"] == [9.8363, 9.7021]
    assert document["performance_metrics"]["tokens_per_second"] == pytest.approx(128 * 8192 / 9.7692, rel=1e-4)
    (contradiction,) = document["contradictions"]
    assert "2048 as given" in contradiction
    assert "8 GPUs" in contradiction
    assert "8192 is used" in contradiction


def test_contradiction_is_named_on_stderr(tmp_path: Path) -> None:
    """What is given against the log's word is named where people see it; the log's counts."""
    done = run("--log-file", str(LOGS / "primus-excerpt.log"), "--num-gpus", "4", "--output", str(tmp_path / "o.json"))
    assert done.returncode == 0
    assert b"num_gpus is 8 in the log, not 4 as given" in done.stderr
    assert json.loads((tmp_path / "o.json").read_text())["training_config"]["num_gpus"] == 8


def test_throughput_that_torchtitan_prints_counts_against_flags(tmp_path: Path) -> None:
    """Batch and length that are given and don't fit the printed tokens/s/GPU are named; the printed figure is read."""
    text = "".join(
        f"[rank0]:[titan] 2026-03-11 10:00:{second:02},000 - root - INFO - step: {step:2}  loss: 9.5000  "
        f"grad_norm:  1.5000  memory: 47.50GiB(60.00%)  tps: {tps:,}  tflops: 190.00  mfu: 19.00%\n"
        for step, second, tps in ((1, 0, 1500), (10, 15, 8192), (20, 35, 8192), (30, 55, 8192))
    )
    document = extract(tmp_path, text, "--num-gpus", "4", "--global-batch-size", "32", "--sequence-length", "4096")
    performance = document["performance_metrics"]
    assert performance["tokens_per_second_per_gpu"] == pytest.approx(8192)
    assert performance["tokens_per_second"] == pytest.approx(4 * 8192)
    (contradiction,) = document["contradictions"]
    assert "sequence_length is 4096 as given, but 8192 tokens/s/GPU × 4 GPUs × 2 s ÷ 32 = 2048" in contradiction


def test_first_step_is_warm_up(tmp_path: Path) -> None:
    """The first step isn't measured; the others are averaged, with minimum, maximum and deviation."""
    document = extract(tmp_path, line(1, 30000) + line(2, 1000) + line(3, 3000))
    performance = document["performance_metrics"]
    assert document["raw_step_times"] == [1.0, 3.0]
    assert (performance["total_steps"], performance["warmup_steps"]) == (3, 1)
    assert performance["avg_step_time_seconds"] == 2.0
    assert (performance["min_step_time_seconds"], performance["max_step_time_seconds"]) == (1.0, 3.0)
    assert performance["std_step_time_seconds"] == pytest.approx(2**0.5)
    assert performance["total_time_seconds"] == 4.0


def test_average_is_weighted_by_iterations(tmp_path: Path) -> None:
    """A line that stands for ten iterations counts ten times one that stands for one."""
    document = extract(tmp_path, line(10, 9000) + line(20, 1000) + line(30, 1000) + line(31, 12000))
    assert document["performance_metrics"]["avg_step_time_seconds"] == pytest.approx(32 / 21)
    assert document["performance_metrics"]["total_steps"] == 31


def test_throughput_without_sizes_is_time_weighted(tmp_path: Path) -> None:
    """Without a batch size tokens/s are all tokens over all seconds, not the mean of the lines' rates."""
    log = line(1, 9e3) + line(2, 1000, " tokens per GPU: 3000 |") + line(3, 3000, " tokens per GPU: 1000 |")
    document = extract(tmp_path, log)
    assert document["performance_metrics"]["tokens_per_second_per_gpu"] == 1500
    assert document["performance_metrics"]["tokens_per_second"] == 12000


def test_values_stay_aligned(tmp_path: Path) -> None:
    """A zero, huge, NaN or missing loss keeps its place beside its step, in valid JSON."""
    rest = ["", " lm loss: 0.0 |", " lm loss: 1.0E+30 |", " lm loss: nan |", "", " lm loss: 2.0 |"]
    document = extract(tmp_path, "".join(line(step, 1000, text) for step, text in enumerate(rest, 1)))
    assert document["steps"] == [2, 3, 4, 5, 6]
    assert document["loss_values"] == [0.0, 1e30, "NaN", None, 2.0]
    assert len(document["raw_step_times"]) == len(document["learning_rates"]) == 5


def test_platform_is_the_training_machines(tmp_path: Path) -> None:
    """What the log says of GPUs decides, whatever the machine is that reads it."""
    nvidia = "> NVIDIA H100 80GB HBM3, torch version: 2.6.0+cu124\n"
    document = extract(tmp_path, nvidia + line(1, 1000) + line(2, 1000))
    assert document["platform"] == "cuda"
    assert document["gpu_info"]["device_name"].startswith("NVIDIA H100")
    assert (document["gpu_info"]["cuda_version"], document["gpu_info"]["gpu_cores"]) == ("12.4", 16896)
    document = extract(tmp_path, LOGS / "primus.log")
    assert (document["platform"], document["gpu_info"]["rocm_version"]) == ("rocm", "7.0")
    assert document["gpu_info"]["device_name"] == "AMD Instinct MI355X"
    assert extract(tmp_path, line(1, 1000) + line(2, 1000))["platform"] == "unknown"


def test_memory_says_whose_it_is(tmp_path: Path) -> None:
    """The device's memory and torch's are told apart, both in GiB whatever the log calls it."""
    device = extract(tmp_path, LOGS / "primus-rocm.log")["memory_metrics"]
    assert (device["kind"], device["unit"], device["peak_memory_used_gb"]) == ("device", "GiB", 99.07)
    torch = extract(tmp_path, LOGS / "megatron.log")["memory_metrics"]
    assert torch["kind"] == "torch"
    assert torch["avg_memory_allocated_gb"] == pytest.approx(70974.689453125 / 1024)
    assert torch["peak_memory_reserved_gb"] == pytest.approx(137672 / 1024)


def test_other_programs_logs_are_taken(tmp_path: Path) -> None:
    """MaxText's and Megatron Bridge's logs give a result too; what they lack is null."""
    maxtext = extract(tmp_path, LOGS / "maxtext.log", "--num-gpus", "4")
    assert maxtext["raw_step_times"] == [5.018]
    assert maxtext["performance_metrics"]["tokens_per_second"] == pytest.approx(4 * 6529.527)
    bridge = extract(tmp_path, LOGS / "bridge.log", "--sequence-length", "4096", "--num-gpus", "8")
    assert bridge["performance_metrics"]["tokens_per_second"] == pytest.approx(128 * 4096 / 6.04335)
    assert bridge["memory_metrics"]["peak_memory_allocated_gb"] is None


def test_gpus_that_no_line_counts_are_not_one(tmp_path: Path) -> None:
    """A log of rank 0 alone doesn't say how many trained: that is null, and the flag's number counts."""
    text = "\n".join(
        f"[rank0]:[titan] 2025-03-11 17:19:{step:02},100 - root - INFO - step: {step}  loss: 9.5  "
        "memory: 47.89GiB(60.54%)  tps: 10,000  tflops: 500.1  mfu: 50.0%"
        for step in range(1, 5)
    )
    alone = extract(tmp_path, text, "--global-batch-size", "10")
    assert (alone["training_config"]["num_gpus"], alone["performance_metrics"]["tokens_per_second"]) == (None, None)
    assert alone["performance_metrics"]["tokens_per_second_per_gpu"] == pytest.approx(10_000)
    given = extract(tmp_path, text, "--num-gpus", "8", "--global-batch-size", "10", "--sequence-length", "8000")
    assert (given["contradictions"], given["training_config"]["num_gpus"]) == ([], 8)
    assert given["performance_metrics"]["tokens_per_second"] == pytest.approx(80_000)
    (tmp_path / "titan.log").write_text(text)
    (facts,) = gather([f"log:{tmp_path / 'titan.log'}"]).runs
    assert (facts.gpus, facts.speed.tokens_per_s) == (None, None)


@pytest.mark.slow
def test_gzip_and_standard_input_are_read(tmp_path: Path) -> None:
    """The log may be gzipped or piped in; the output may be a directory."""
    packed = gzip.compress((LOGS / "primus-excerpt.log").read_bytes())
    done = run("--log-file", "-", "--output", str(tmp_path) + "/", cwd=tmp_path, content=packed)
    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.glob("benchmark_rocm_*.json"))) == 1
    assert done.stderr == b""
    done = run("--log-file", "-", "--output", str(tmp_path / "cut.json"), cwd=tmp_path, content=packed[:-8])
    assert (done.returncode, done.stderr.count(b"\n")) == (0, 1)
    assert b"the packed log is cut" in done.stderr


def test_verbose_prints_every_step(tmp_path: Path) -> None:
    """--verbose shows what was read."""
    done = run("--log-file", str(LOGS / "bridge.log"), "--output", str(tmp_path / "o.json"), "--verbose")
    assert [text.split(b":")[0] for text in done.stderr.splitlines()] == [b"step 1", b"step 2", b"step 3"]


@pytest.mark.slow
def test_bad_input_is_one_line(tmp_path: Path) -> None:
    """A missing log, one without steps, a wrong flag: one line that says so, and 1 or 2."""
    (tmp_path / "empty.log").write_text("hello\n")
    for arguments, code, text in (
        (("--log-file", "missing.log"), 1, b"missing.log: no such file"),
        (("--log-file", "empty.log"), 1, b"its first line is: hello"),
        (("--log-file", str(LOGS / "bridge.log"), "--num-gpus", "0"), 2, b"isn't a positive number"),
        ((), 2, b"--log-file"),
    ):
        done = run(*arguments, cwd=tmp_path)
        assert done.returncode == code
        assert text in done.stderr
        assert b"Traceback" not in done.stderr


def test_log_without_times_is_refused(tmp_path: Path) -> None:
    """Losses alone are no benchmark; several logs aren't one."""
    (tmp_path / "a.log").write_text(" iteration 1/ 5 | lm loss: 2.0 |\n")
    with pytest.raises(NotFound, match="how long an iteration took"):
        primus.extract(["--log-file", str(tmp_path / "a.log")])
    shutil.copy(tmp_path / "a.log", tmp_path / "b.log")
    with pytest.raises(UsageError, match="names 2 logs"):
        primus.extract(["--log-file", str(tmp_path / "*.log")])


def test_output_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """A file where a directory must be is said in one line."""
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="can't be written"):
        primus.extract(["--log-file", str(LOGS / "bridge.log"), "--output", str(tmp_path / "file/out.json")])


def test_file_name_has_platform_and_time() -> None:
    """As documented: benchmark_{platform}_{YYYYmmdd_HHMMSS}.json."""
    document = {"platform": "rocm", "timestamp": "2026-01-05T11:29:06"}
    assert result.file_name(document) == "benchmark_rocm_20260105_112906.json"
