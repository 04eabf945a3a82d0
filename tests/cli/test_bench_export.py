"""``trackers bench-export``: a benchmark result from runs of every kind, and ``compare`` reads it back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import trackers
from tests.analysis.support import T0, write_run
from trackers.analysis.compare import compare_runs
from trackers.cli.app import app
from trackers.errors import NotFound, UsageError
from trackers.records import Environment, Metrics


def run_cli(*arguments: str) -> Result:
    """The command line, in this process."""
    return CliRunner().invoke(app, list(arguments))


def exported(*arguments: str) -> dict[str, Any]:
    """The one result that a command wrote."""
    done = run_cli("bench-export", *arguments)
    assert done.exit_code == 0, done.output or done.exception
    return dict(json.loads(Path(done.stdout.split()[-1]).read_text(), parse_constant=lambda name: pytest.fail(name)))


def test_export_of_a_measured_run() -> None:
    """Step times, sizes, memory, versions and series come out under the documented names, the first step apart."""
    rows = [(step, 2.0 * step, {"loss": 3.0 - step, "lr": 0.1, "perf/iter_time_sec": 9.0 if step == 0 else 2.0})
            for step in range(3)]  # fmt: skip
    machine = {"gpu": "AMD Instinct MI300X", "packages": {"torch": "2.5.1+rocm6.2"}}
    memory = {"gpu/memory_used_avg_gb": 1.073741824, "gpu/memory_total_gb": 8.589934592}
    more = [Metrics(step=1, time=T0 + 1, values=memory), Environment(time=T0 + 1, values=machine)]
    config = {"global_batch_size": 8, "seq_len": 1024, "max_steps": 3}
    run = write_run("one", [], more=sorted([*more, *(Metrics(step=s, time=T0 + t, values=v) for s, t, v in rows)],
                    key=lambda record: record.time), config=config, world_size=4)  # fmt: skip
    found = exported("one")
    assert found["platform"] == "rocm"
    assert (found["gpu_info"]["device_count"], found["gpu_info"]["device_name"]) == (4, "AMD Instinct MI300X")
    assert (found["gpu_info"]["pytorch_version"], found["gpu_info"]["rocm_version"]) == ("2.5.1+rocm6.2", "6.2")
    assert found["training_config"] == {
        "max_steps": 3, "global_batch_size": 8, "micro_batch_size": None, "sequence_length": 1024, "num_gpus": 4,
    }  # fmt: skip
    performance = found["performance_metrics"]
    assert (performance["total_steps"], performance["warmup_steps"]) == (3, 1)
    assert performance["avg_step_time_seconds"] == 2.0
    assert performance["tokens_per_second"] == 8 * 1024 / 2.0
    assert found["raw_step_times"] == [2.0, 2.0]
    assert found["loss_values"] == [2.0, 1.0]
    assert found["learning_rates"] == [0.1, 0.1]
    assert found["memory_metrics"]["peak_memory_used_gb"] == pytest.approx(1.0)
    assert found["gpu_info"]["total_memory_gb"] == pytest.approx(2.0)
    assert found["source"]["file"] == str(run.resolve())


def test_export_of_an_unmeasured_run_uses_its_times() -> None:
    """Without measured step times those of the records count; the pause before the first doesn't."""
    write_run("one", [(step, 100 + step / 4, {"train_loss": 1.0}) for step in range(5)])
    found = exported("one", "--global-batch-size", "2", "--sequence-length", "10", "--num-gpus", "1")
    assert found["performance_metrics"]["avg_step_time_seconds"] == 0.25
    assert found["performance_metrics"]["tokens_per_second"] == 80.0
    assert found["platform"] == "unknown"


@pytest.mark.parametrize(
    ("config", "total"), [({}, None), ({"trainer": {"max_steps": -1}}, None), ({"trainer.max_steps": 9}, 9)]
)
def test_where_training_would_have_ended_is_not_made_up(config: dict[str, Any], total: int | None) -> None:
    """Only the configuration says it: not the last step that a killed run logged, nor a program's "no end"."""
    write_run("one", [(step, step, {"loss": 1.0}) for step in range(4)], config=config)
    assert exported("one")["training_config"]["max_steps"] == total


@pytest.mark.parametrize("names", [("perf/iter_time_sec", "iteration-time"), ("iteration-time", "perf/iter_time_sec")])
def test_order_of_records_does_not_choose_the_times(names: tuple[str, str]) -> None:
    """Values of all ranks come late, and in another order to each reader: the loop's own time counts for all."""
    write_run("one", [(step, step, {name: 1.0 + len(name)}) for step in range(4) for name in names])
    assert exported("one")["source"]["step_times"] == "iteration-time"


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["max_steps", "global_batch_size", "batch_size", "seq_len", "num_gpus", "lr"])
def test_setting_beyond_every_float_is_left_out(name: str) -> None:
    """A journal of another version, or another program's, has an integer that no float holds: all else is exported."""
    rows = [(step, step, {"loss": 1.0, "perf/iter_time_sec": 0.5}) for step in range(4)]
    write_run("one", rows, config={name: 10**400})
    found = exported("one")
    assert found["performance_metrics"]["steps_per_second"] == 2.0
    table = run_cli("compare", "one", "--by", f"config.{name}")
    assert table.exit_code == 0, table.output
    asked = run_cli("sql", f"select number from config where name = '{name}'")
    assert asked.exit_code == 0, asked.output


def test_exported_series_come_back_at_their_steps() -> None:
    """Read back, a result has its losses at the steps at which the run has them: the first, a warm-up, is no step 1."""
    rows = [(step, step, {"train_loss": 1 / (step + 1), "perf/iter_time_sec": 0.5}) for step in range(3, 9)]
    write_run("one", rows)
    file = run_cli("bench-export", "one").stdout.split()[-1]
    there, own = (trackers.load(source).metrics().to_pydict() for source in (file, "one"))
    assert there["step"] == own["step"][1:] == [4, 5, 6, 7, 8]
    assert there["loss_values"] == own["train_loss"][1:]
    assert set(there) == {"step", "time", "step_time_seconds", "loss_values"}


@pytest.mark.parametrize(
    "steps", [[1, 2], [1, 2.5, 3], [1, None, 3], ["a", 2, 3], [-1, 2, 3], [1, 2, 2**60], {}, [True, 2, 3]]
)
def test_steps_that_are_none_leave_the_series_counted(steps: Any) -> None:
    """A result whose ``steps`` don't fit its series is read as one without them."""
    Path("x.json").write_text(json.dumps({"performance_metrics": {}, "raw_step_times": [1, 2, 3], "steps": steps}))
    table = trackers.load("json:x.json").metrics().to_pydict()
    assert table["step"][:3] == [1, 2, 3]
    assert table["step_time_seconds"] == [1, 2, 3]


def test_compare_reads_what_was_exported() -> None:
    """A result read back has the speed of the run that it was made from."""
    rows = [(step, step, {"loss": 1.0, "perf/iter_ms": 500.0}) for step in range(4)]
    write_run("one", rows, config={"global_batch_size": 8, "block_size": 16}, world_size=2)
    exported("one")
    (file,) = Path("benchmark_results").glob("benchmark_unknown_*.json")
    run, result = compare_runs(["one", file]).runs
    for name in ("steps_per_s", "samples_per_s", "tokens_per_s", "gpus"):
        assert result[name] == run[name]
    assert result["samples_per_s"] == 16.0


def test_two_runs_of_one_second_get_two_files() -> None:
    """A result isn't overwritten by another run's; the same run's is replaced."""
    for name in ("one", "two"):
        write_run(name, [(step, step, {"loss": 1.0}) for step in range(3)])
    assert run_cli("bench-export", "digits").exit_code == 0
    assert run_cli("bench-export", "one").exit_code == 0
    files = sorted(Path("benchmark_results").iterdir())
    assert len(files) == 2
    assert files[1].stem == files[0].stem + "_2"


def test_run_without_steps_among_others_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """Of a project the runs that have steps are exported; one that hasn't is named."""
    write_run("empty", created=T0 + 1)
    write_run("one", [(step, step, {"loss": 1.0}) for step in range(3)])
    assert exported("digits")["source"]["run_id"] == "one"
    assert "left out: run 'empty'" in caplog.text


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        (["empty"], NotFound, "no two steps whose times"),
        (["digits", "-o", "one.json"], UsageError, "names 2 runs: give a directory"),
        (["good", "-o", "/proc/nothing/x.json"], UsageError, "can't be written"),
        (["nothing"], NotFound, "no run 'nothing'"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], error: type[Exception], said: str) -> None:
    """A run without steps, several runs for one file, no such place: one line each."""
    write_run("empty")
    write_run("good", [(step, step, {"loss": 1.0}) for step in range(3)])
    done = run_cli("bench-export", *arguments)
    assert isinstance(done.exception, error), done.output
    assert said in str(done.exception)
