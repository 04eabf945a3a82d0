"""Tracker ``benchmark``: one result for each run that ended, its values those that the journal says, field by field."""

from __future__ import annotations

import json
import math
import os
import signal
import statistics
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import trackers
from tests import forked
from tests.e2e.test_examples import GPT2
from tests.helpers import T0, Driver, run_info, stream
from trackers.backends.benchmark.tracker import BenchmarkTracker
from trackers.benchmark.result import result
from trackers.benchmark.steps import StepCollector, needed
from trackers.cli.app import app
from trackers.errors import Unavailable, UsageError
from trackers.records import Config, Environment, Finish, Metrics, Record, Start
from trackers.tracker import RunInfo, Status
from trackers.training.run import Run

RESULTS = Path("benchmark_results")
ENDED = Status("finished", 0, T0 + 1000)
CPU = {"gpu_drivers": []}


def info_in(directory: Path, **fields: Any) -> RunInfo:
    """A run whose results go to ``benchmark_results`` here."""
    options = {"BENCHMARK_DIR": str(RESULTS.absolute())}
    return run_info(directory / "run", **{"options": options, "cwd": str(Path.cwd()), **fields})


def steps_from(first: int, last: int, seconds: float = 0.5, attempt: int = 1, from_step: int | None = None,
               **more: float) -> list[Record]:  # fmt: skip
    """An attempt: its start, and a row for each step."""
    began = T0 + attempt * 1000
    rows = [
        Metrics(step=step, time=began + step * seconds,
                values={"train_loss": 4.0 - step / 10, "lr": 0.1, "perf/iter_time_sec": seconds, **more})
        for step in range(first, last + 1)
    ]  # fmt: skip
    return [Start(time=began, attempt=attempt, rank=0, world_size=1, from_step=from_step), *rows]


def only() -> dict[str, Any]:
    """The one result there is, strictly parsed."""
    (path,) = RESULTS.iterdir()
    found: dict[str, Any] = json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(f"not JSON: {name}"))
    return found


def journal(run: Path) -> list[dict[str, Any]]:
    """A run's records as its streams hold them, by time, read by the standard library alone."""
    found = [json.loads(line) for path in (run / "streams").glob("*.jsonl") for line in path.read_text().splitlines()]
    return sorted(found, key=lambda record: record["time"])


def check_against_journal(document: dict[str, Any], run: Path, ranks: int) -> None:
    """Every field, computed once more from the journal of an examples/gpt2 run on the CPU, by other code."""
    records = journal(run)
    rows = [record for record in records if "perf/iter_time_sec" in record.get("values", {})]
    numbers = [row["step"] for row in rows]
    seconds = [row["values"]["perf/iter_time_sec"] for row in rows]
    rates = [row["values"]["perf/tokens_per_sec"] for row in rows]
    (first,) = [record["step"] for record in records if "first-step-time" in record.get("values", {})]
    counts = [number - before for number, before in zip(numbers, [first, *numbers[:-1]], strict=True)]
    total = sum(count * second for count, second in zip(counts, seconds, strict=True))
    average = total / sum(counts)
    (config,) = [record["values"] for record in records if record["kind"] == "config"]
    batch, length = ranks * config["batch_size"], config["block_size"]

    assert document["platform"] == "cpu"
    assert document["gpu_info"]["device_count"] == 0
    assert document["gpu_info"]["device_name"] is None
    assert document["gpu_info"]["platform"] == "cpu"
    assert document["gpu_info"]["pytorch_version"] == config["torch"]
    assert datetime.fromisoformat(document["timestamp"]).timestamp() == int(rows[-1]["time"])
    assert document["training_config"] == {
        "max_steps": config["max_iters"], "global_batch_size": batch, "micro_batch_size": None,
        "sequence_length": length, "num_gpus": 0,
    }  # fmt: skip
    expected = {
        "total_steps": numbers[-1],
        "warmup_steps": first,
        "total_time_seconds": total,
        "avg_step_time_seconds": average,
        "min_step_time_seconds": min(seconds),
        "max_step_time_seconds": max(seconds),
        "std_step_time_seconds": statistics.stdev(seconds),
        "steps_per_second": 1 / average,
        "tokens_per_second": sum(
            rate * count * second for rate, count, second in zip(rates, counts, seconds, strict=True)
        )
        / total,
    }
    performance = document["performance_metrics"]
    assert {name: performance[name] for name in expected} == pytest.approx(expected, rel=1e-9)
    assert performance["tokens_per_second_per_gpu"] == 0  # there is no GPU
    assert document["raw_step_times"] == seconds
    assert document["steps"] == numbers
    assert document["loss_values"] == [row["values"]["train_loss"] for row in rows]
    assert document["learning_rates"] == [row["values"]["learning_rate"] for row in rows]
    assert set(document["memory_metrics"].values()) == {None, "GiB"}
    assert document["contradictions"] == []
    assert document["source"]["file"] == str(run.resolve())
    assert document["source"]["step_times"] == "perf/iter_time_sec"


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 4])
def test_result_of_gpt2_is_what_its_journal_says(ranks: int) -> None:
    """A real training, on one process and on four: each field agrees with the journal; bench-export says the same."""
    options = ["--max-iters", "12", "--log-interval", "3", "--eval-interval", "12", "--tracker", "benchmark"]
    words = [sys.executable, *GPT2, *options, "--tracker-run-name", "bench"]
    done = forked.run(words, preload=forked.TORCH, ranks=ranks if ranks > 1 else 0, timeout=170)
    assert done.returncode == 0, done.stderr
    (run,) = Path("runs").glob("*/[!.]*")
    document = only()
    check_against_journal(document, run, ranks)
    assert document["source"]["status"] == "finished"
    assert done.stderr.count(" → benchmark (") == 1
    (path,) = RESULTS.iterdir()
    stamp = document["timestamp"].translate(str.maketrans("T", "_", "-:"))
    assert path.name == f"benchmark_cpu_{stamp}.json"

    exported = CliRunner().invoke(app, ["bench-export", str(run), "--output", "exported"])
    assert exported.exit_code == 0, exported.output
    (other,) = [json.loads(file.read_text()) for file in Path("exported").iterdir()]
    assert other.pop("source").items() <= {**document.pop("source")}.items()
    assert other == document


def test_killed_run_has_its_result() -> None:
    """Training dies by SIGKILL: the relay says so, and the result holds every step that was logged."""
    options = ["--max-iters", "1000000", "--log-interval", "3", "--eval-interval", "1000000", "--tracker", "benchmark"]
    training = forked.Program(
        [sys.executable, *GPT2, *options], preload=forked.TORCH, env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    until = time.monotonic() + 120
    try:
        while not any("perf/iter_time_sec" in path.read_text() for path in Path("runs").glob("*/*/streams/rank-*")):
            assert training.poll() is None
            assert time.monotonic() < until
            time.sleep(0.05)
    finally:
        training.send_signal(signal.SIGKILL)
        training.wait()
    while not list(RESULTS.glob("*.json")):
        assert time.monotonic() < until
        time.sleep(0.05)
    (run,) = Path("runs").glob("*/[!.]*")
    document = only()
    logged = [record["values"]["perf/iter_time_sec"] for record in journal(run)
              if "perf/iter_time_sec" in record.get("values", {})]  # fmt: skip
    assert document["raw_step_times"] == logged
    assert document["source"]["status"] == "crashed"
    assert document["platform"] == "cpu"


def test_result_of_a_gpu_run(tmp_path: Path) -> None:
    """Every field of the document, from a run on eight GPUs that says all of it; the first step is in none."""
    machine = {"accelerator": "rocm", "gpu": "AMD Instinct MI300X", "gpu_memory_gib": 191.98,
               "pytorch_version": "2.8.0+rocm6.2", "rocm_version": "6.2"}  # fmt: skip
    config = {"global_batch_size": 128, "micro_batch_size": 2, "seq_length": 8192, "max_steps": 3}
    memory = {"memory/mem-allocated-gigabytes": 120.0, "memory/mem-max-allocated-gigabytes": 126.0,
              "memory/mem-reserved-gigabytes": 130.0}  # fmt: skip
    rows = [Metrics(step=step, time=T0 + step, values={"train_loss": 3.0, "learning_rate": 0.5,
                    "perf/iter_time_sec": {1: 60.0, 2: 9.0, 3: 11.0}[step], **memory})
            for step in (1, 2, 3)]  # fmt: skip
    records = [Start(time=T0, rank=0, world_size=8), Config(time=T0, values=config),
               Environment(time=T0, values=machine), *rows, Finish(time=T0 + 4, status="finished")]  # fmt: skip
    driver = Driver(BenchmarkTracker, info_in(tmp_path))
    driver.deliver(stream(records), status=ENDED)
    document = only()
    gib = 1e9 / 1024**3
    assert document["platform"] == "rocm"
    assert document["gpu_info"] == {
        "device_count": 8, "device_name": "AMD Instinct MI300X", "total_memory_gb": 191.98, "platform": "rocm",
        "gpu_cores": 19456, "pytorch_version": "2.8.0+rocm6.2", "rocm_version": "6.2",
    }  # fmt: skip
    assert document["timestamp"] == time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(T0 + 3))
    assert document["training_config"] == {
        "max_steps": 3, "global_batch_size": 128, "micro_batch_size": 2, "sequence_length": 8192, "num_gpus": 8,
    }  # fmt: skip
    rate = 128 * 8192 / 10.0
    assert document["performance_metrics"] == {
        "total_steps": 3, "warmup_steps": 1, "total_time_seconds": 20.0, "avg_step_time_seconds": 10.0,
        "min_step_time_seconds": 9.0, "max_step_time_seconds": 11.0, "std_step_time_seconds": math.sqrt(2.0),
        "steps_per_second": 0.1, "tokens_per_second": rate, "tokens_per_second_per_gpu": rate / 8,
        "throughput_per_gpu_core": rate / 8 / 19456,
    }  # fmt: skip
    assert document["memory_metrics"] == pytest.approx({
        "unit": "GiB", "kind": "torch", "avg_memory_allocated_gb": 120 * gib, "peak_memory_allocated_gb": 126 * gib,
        "avg_memory_reserved_gb": 130 * gib, "peak_memory_reserved_gb": 130 * gib,
    })  # fmt: skip
    assert document["raw_step_times"] == [9.0, 11.0]
    assert document["contradictions"] == []


def test_resumed_run_updates_its_file(tmp_path: Path) -> None:
    """A run that ends twice has one file, of the name that it had; a step that was gone back over counts once."""
    driver = Driver(BenchmarkTracker, info_in(tmp_path))
    first = [*steps_from(1, 6), Environment(time=T0, values=CPU)]
    driver.deliver(stream(first), status=Status("crashed", None, T0 + 1))
    (before,) = RESULTS.iterdir()
    assert only()["steps"] == [2, 3, 4, 5, 6]
    second = steps_from(5, 8, seconds=0.25, attempt=2, from_step=4)
    driver.deliver(stream([*first, *second]), status=ENDED)
    document = only()
    assert list(RESULTS.iterdir()) == [before]
    assert document["steps"] == [2, 3, 4, 6, 7, 8]  # the first of each attempt is warm-up
    assert document["raw_step_times"] == [0.5, 0.5, 0.5, 0.25, 0.25, 0.25]
    assert document["performance_metrics"]["warmup_steps"] == 2
    assert document["source"]["restarts"] == 1
    assert document["source"]["status"] == "finished"


def test_resume_on_another_platform_renames_and_says_so(tmp_path: Path) -> None:
    """A run that went from CUDA to ROCm has one file still, named after where it ended, and the mix is named."""
    driver = Driver(BenchmarkTracker, info_in(tmp_path))
    cuda = [*steps_from(1, 3), Environment(time=T0, values={"accelerator": "cuda"})]
    driver.deliver(stream(cuda), status=ENDED)
    rocm = [*steps_from(4, 6, attempt=2), Environment(time=T0 + 2000, values={"accelerator": "rocm"})]
    driver.deliver(stream([*cuda, *rocm]), status=ENDED)
    (path,) = RESULTS.iterdir()
    assert path.name.startswith("benchmark_rocm_")
    assert only()["contradictions"] == ["attempts ran on cuda and on rocm: taken for rocm"]


def test_runs_of_one_second_do_not_share_a_file(tmp_path: Path) -> None:
    """Two runs that end in one second have two files; delivering one again, its state lost, replaces its own."""
    records = stream(steps_from(1, 4))
    for number in ("one", "two"):
        Driver(BenchmarkTracker, info_in(tmp_path / number, id=number, name=number)).deliver(records, status=ENDED)
    assert sorted(path.stem[-2:] == "_2" for path in RESULTS.iterdir()) == [False, True]
    before = {path.name: path.read_text() for path in RESULTS.iterdir()}
    Driver(BenchmarkTracker, info_in(tmp_path / "one", id="one", name="one")).deliver(records, status=ENDED)
    assert {path.name: path.read_text() for path in RESULTS.iterdir()} == before


def test_run_without_times_has_nulls_and_without_steps_no_file(tmp_path: Path) -> None:
    """What a run doesn't know is null and nothing is made up; a run that never trained leaves nothing."""
    only_one = [Start(time=T0, rank=0), Metrics(step=1, time=T0, values={"train_loss": math.nan})]
    Driver(BenchmarkTracker, info_in(tmp_path / "one")).deliver(stream(only_one), status=ENDED)
    document = only()
    stated = {name: value for name, value in document["performance_metrics"].items() if value is not None}
    assert stated == {"total_steps": 1, "warmup_steps": 1, "tokens_per_second_per_gpu": 0.0}
    assert document["raw_step_times"] == []
    assert document["platform"] == "unknown"
    nothing = [Start(time=T0, rank=0), Finish(time=T0, status="failed")]
    Driver(BenchmarkTracker, info_in(tmp_path / "two", id="other")).deliver(stream(nothing), status=ENDED)
    assert len(list(RESULTS.iterdir())) == 1


def test_nan_and_infinite_losses_stay(tmp_path: Path) -> None:
    """NaN and infinities are in the series, by name, at their steps; a time that is NaN is no time."""
    records = steps_from(1, 4)
    records += [Metrics(step=5, time=T0 + 9, values={"train_loss": math.nan, "perf/iter_time_sec": 0.5}),
                Metrics(step=6, time=T0 + 9, values={"train_loss": -math.inf, "perf/iter_time_sec": 0.5}),
                Metrics(step=7, time=T0 + 9, values={"train_loss": 1.0, "perf/iter_time_sec": math.nan})]  # fmt: skip
    Driver(BenchmarkTracker, info_in(tmp_path)).deliver(stream(records), status=ENDED)
    document = only()
    assert document["steps"] == [2, 3, 4, 5, 6]
    assert document["loss_values"][-2:] == ["NaN", "-Infinity"]


def test_place_that_cannot_be_written_is_tried_again(tmp_path: Path) -> None:
    """A file where the directory belongs is an error before training, and later one that a delivery tries again."""
    Path("taken").write_text("")
    with pytest.raises(UsageError, match=r"BENCHMARK_DIR=taken: .* is not a directory"):
        BenchmarkTracker.check({"BENCHMARK_DIR": "taken"})
    info = info_in(tmp_path, options={"BENCHMARK_DIR": str(Path("taken").absolute())})
    driver = Driver(BenchmarkTracker, info)
    driver.open()
    driver.write(stream(steps_from(1, 3)))
    with pytest.raises(Unavailable, match="can't write"):
        driver.close(ENDED)
    Path("taken").unlink()
    driver.deliver(stream(steps_from(1, 3)), status=ENDED)
    assert len(list(Path("taken").iterdir())) == 1


def test_where_training_was_is_not_made_elsewhere(tmp_path: Path) -> None:
    """Synced on a machine that lacks the training's directory, the result lies in the run's own."""
    info = info_in(tmp_path, cwd=str(tmp_path / "away"), options={"BENCHMARK_DIR": "benchmark_results"})
    Driver(BenchmarkTracker, info).deliver(stream(steps_from(1, 3)), status=ENDED)
    assert not (tmp_path / "away").exists()
    assert len(list(info.path("benchmark_results").iterdir())) == 1


@pytest.mark.parametrize(
    ("machine", "config", "platform"),
    [
        ({"accelerator": "cuda", "gpu_drivers": []}, {}, "cuda"),
        ({"accelerator": "cpu", "gpus": {"0": {"name": "NVIDIA H200", "vendor": "nvidia"}}}, {}, "cpu"),
        ({"gpus": {"0": {"name": "NVIDIA H200", "vendor": "nvidia"}}}, {}, "cuda"),
        ({"gpus": {"0": {"name": "AMD Radeon", "vendor": "amd"}}}, {}, "rocm"),
        ({"gpu": "NVIDIA H200", "gpu_drivers": ["nvidia"]}, {"device": "cpu"}, "cpu"),
        ({"gpu_drivers": ["nvidia"]}, {}, "cuda"),
        ({"gpu_drivers": ["amd"], "packages": {"torch": "2.8.0+rocm6.2"}}, {}, "rocm"),
        ({"gpu_drivers": [], "packages": {"torch": "2.8.0+cu128"}}, {}, "cpu"),
        ({"packages": {"torch": "2.8.0+cpu"}}, {}, "cpu"),
        ({}, {}, "unknown"),
    ],
)
def test_platform_is_that_of_the_machine_that_trained(
    machine: dict[str, Any], config: dict[str, Any], platform: str
) -> None:
    """What training's own process says counts most, then its settings, then the machine's GPUs and drivers."""
    records = [Environment(time=T0, values=machine), Config(time=T0, values=config), *steps_from(1, 3)]
    found = result(StepCollector().gather(records), source={"file": "x"}, word="run")
    assert found["platform"] == found["gpu_info"]["platform"] == platform


def test_contradictions_are_named() -> None:
    """Tokens per second that its own batch and length can't explain are said, with the sum."""
    config = {"global_batch_size": 4, "seq_length": 512}
    rate = 4 * 1024 / 0.5
    records = [Config(time=T0, values=config), *steps_from(1, 4, **{"perf/tokens_per_sec": rate})]
    found = result(StepCollector().gather(records), source={"file": "x"}, word="run")
    assert found["contradictions"] == [
        "sequence_length is 512 in the run's configuration, but 8192 tokens/s × 0.5 s ÷ 4 = 1024: 1024 is used"
    ]


def test_batch_that_may_be_a_part_of_a_step_is_proven() -> None:
    """A plain batch_size of 4, of which a step takes 8: its tokens prove 32, and no length is doubted for it."""
    config = {"batch_size": 4, "seq_length": 512}
    records = [Config(time=T0, values=config), *steps_from(1, 4, **{"perf/tokens_per_sec": 32 * 512 / 0.5})]
    found = result(StepCollector().gather(records), source={"file": "x"})
    assert found["training_config"]["global_batch_size"] == 32
    assert found["contradictions"] == []
    bare = [Config(time=T0, values=config), *steps_from(1, 4)]
    assert result(StepCollector().gather(bare), source={"file": "x"})["training_config"]["global_batch_size"] == 4


def test_window_of_a_rate_proves_nothing() -> None:
    """A rate over a hundred steps, beside the time of ten, contradicts no length; it is used where nothing else is."""
    rows = steps_from(1, 4, **{"throughput/tokens_per_sec": 3000.0})
    known = [Config(time=T0, values={"global_batch_size": 4, "seq_length": 512}), *rows]
    assert result(StepCollector().gather(known), source={"file": "x"})["contradictions"] == []
    assert (
        result(StepCollector().gather(rows), source={"file": "x"})["performance_metrics"]["tokens_per_second"] == 3000.0
    )


NAMES = ("train_loss", "loss", "learning_rate", "perf/iter_ms", "iteration-time", "perf/tokens_per_sec",
         "first-step-time", "memory/mem-allocated-gigabytes", "gpu/memory_used_avg_gb", "system.gpu.0.gpu",
         "batch-size", "consumed-samples", "other")  # fmt: skip
numbers = st.floats(0.1, 10.0) | st.sampled_from([math.nan, math.inf]) | st.integers(1, 9)
metrics = st.builds(
    Metrics, step=st.none() | st.integers(0, 12), time=st.floats(T0, T0 + 99),
    values=st.dictionaries(st.sampled_from(NAMES), numbers, min_size=1),
)  # fmt: skip
starts = st.builds(Start, time=st.just(T0), attempt=st.integers(1, 3), rank=st.none() | st.just(0),
                   world_size=st.integers(1, 4), from_step=st.none() | st.integers(0, 6))  # fmt: skip
configs = st.builds(Config, time=st.just(T0), values=st.dictionaries(
    st.sampled_from(["batch_size", "global_batch_size", "seq_length", "num_gpus"]), st.integers(1, 64)))  # fmt: skip


@pytest.mark.heavy
@given(st.lists(metrics | starts | configs, max_size=30))
def test_what_is_kept_of_a_record_is_all_that_counts(records: list[Record]) -> None:
    """Whatever is logged, in any order: what the tracker keeps gives the result of the records, and it is valid."""
    kept = [part for record in records if (part := needed(record)) is not None]
    found = [result(StepCollector().gather(part), source={"file": "x"}) for part in (records, kept)]
    if StepCollector().gather(records).steps:
        assert repr(found[0]) == repr(found[1])
    document = found[1]
    assert len(document["raw_step_times"]) == len(document["steps"]) == len(document["loss_values"])
    assert document["steps"] == sorted(document["steps"])
    assert document["performance_metrics"]["warmup_steps"] >= 0


@pytest.mark.processes
def test_tracker_is_added_later() -> None:
    """`trackers sync --to benchmark` makes the result of a run that was never told of it."""
    run = trackers.init("json", project="p", name="n", mode="offline")
    assert isinstance(run, Run)
    for step in range(1, 5):
        run.log({"loss": 1.0 / step, "iteration-time": 0.25}, step=step)
    run.finish()
    done = CliRunner().invoke(app, ["sync", run.dir, "--to", "benchmark"])
    assert done.exit_code == 0, done.output
    assert only()["raw_step_times"] == [0.25, 0.25, 0.25]
