"""What GPUs did is told truly, from our samples and from the names that others give theirs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

import trackers
from trackers.analysis.gpu_report import counted, gpu_report
from trackers.cli.app import app
from trackers.errors import NotFound
from trackers.records import Metrics, Record


def samples(*rows: tuple[float, dict[str, Any]]) -> list[Record]:
    """Metrics without steps, at their times."""
    return [Metrics(time=time, values=values) for time, values in rows]


def gpu(index: int, **fields: float) -> dict[str, float]:
    """One GPU's sample by W&B's names."""
    return {f"system.gpu.{index}.{name}": value for name, value in fields.items()}


def test_averages_are_weighted_and_the_total_is_of_the_sum() -> None:
    """A value that stood longer counts more, and GPUs that peak one after the other don't peak together."""
    found = gpu_report(
        samples(
            (0.0, {**gpu(0, memoryAllocatedBytes=8e9, gpu=100.0), **gpu(1, memoryAllocatedBytes=1e9)}),
            (10.0, {**gpu(0, memoryAllocatedBytes=1e9, gpu=0.0), **gpu(1, memoryAllocatedBytes=8e9)}),
            (100.0, {**gpu(0, memoryAllocatedBytes=1e9, gpu=0.0), **gpu(1, memoryAllocatedBytes=1e9)}),
        )
    )
    assert list(found.gpus) == ["0", "1"]
    memory, use = found.gpus["0"].memory, found.gpus["0"].utilization
    assert memory is not None
    assert use is not None
    assert (memory.current, memory.maximum) == (1e9, 8e9)
    assert use.average == pytest.approx(5.0)
    assert found.total is not None
    assert found.total.memory is not None
    assert found.total.memory.maximum == 9e9
    assert found.gpus["1"].power is None


def test_more_gpus_than_eight_and_absent_fields() -> None:
    """Sixteen GPUs are sixteen, and a field that one of them lacks is absent there, not 0."""
    row = {key: value for index in range(16) for key, value in gpu(index, temp=50.0 + index).items()}
    found = gpu_report(samples((0.0, row), (1.0, {**row, **gpu(3, powerWatts=100.0)}), (2.0, gpu(3, powerWatts=200.0))))
    assert list(found.gpus) == [str(index) for index in range(16)]
    assert found.gpus["2"].energy_j is None
    assert (found.gpus["3"].energy_j, found.gpus["3"].energy_from) == (150.0, "power")
    assert found.total is not None
    assert found.total.energy_j is None


@pytest.mark.parametrize(
    ("names", "unit"),
    [
        (tuple(f"system/gpu_0_{name}" for name in ("memory_usage_megabytes", "utilization_percentage",
                                                   "power_usage_watts")), 1e6),
        (("gpu/0/allocated_memory", "gpu/0/utilization", "gpu/0/power"), float(1 << 30)),
        (("system.gpu.0.memoryAllocatedBytes", "system.gpu.0.gpu", "system.gpu.0.powerWatts"), 1.0),
    ],
)  # fmt: skip
def test_names_of_every_vendor(names: tuple[str, str, str], unit: float) -> None:
    """MLflow's, trackio's and W&B's samples are the same figures, in the same units."""
    memory, use, power = names
    found = gpu_report(samples((0.0, {memory: 2.0, use: 50.0, power: 300.0}))).gpus["0"]
    assert found.memory is not None
    assert found.utilization is not None
    assert found.power is not None
    assert (found.memory.current, found.utilization.current, found.power.current) == (2.0 * unit, 50.0, 300.0)


def test_energy_counter_that_begins_anew() -> None:
    """A restarted job counts its joules from 0 again: they add up."""
    assert counted([(0.0, 10.0), (1.0, 30.0), (2.0, 5.0), (3.0, 15.0)]) == 45.0


def logged(**values: float) -> trackers.Run:
    """A finished run with these values at three steps."""
    run = trackers.init("json", project="digits", name="baseline", mode="offline", options={"TRACKER_RELAY": False})
    for step in range(3):
        run.log(values, step=step)
    run.finish()
    return run


def test_command_shows_and_prints_json() -> None:
    """For people in GB, W and °C, for machines in plain units; what the trainer logged over all GPUs stands below."""
    logged(**gpu(0, memoryAllocatedBytes=8e9, temp=60.0, powerWatts=200.0), **{"gpu/compute_util_avg": 50.0}, loss=1.0)
    done = CliRunner().invoke(app, ["gpu-report"])
    assert done.exit_code == 0, done.output
    assert "GPU 0:" in done.stdout
    assert "current 8.00 GB, average 8.00 GB, maximum 8.00 GB" in done.stdout
    assert "gpu/compute_util_avg  current 50, average 50, maximum 50" in done.stdout
    assert "loss" not in done.stdout
    (found,) = json.loads(CliRunner().invoke(app, ["gpu-report", "latest", "--json"]).stdout)
    assert found["gpus"]["0"]["temperature"] == {"current": 60.0, "average": 60.0, "maximum": 60.0}
    assert "trackers gpu-report wandb:" in " ".join(CliRunner().invoke(app, ["gpu-report", "--help"]).stdout.split())


def test_total_of_some_gpus_says_of_how_many() -> None:
    """What one GPU lacks isn't in the sum, and the sum isn't called that of all."""
    logged(**gpu(0, memoryAllocatedBytes=8e9, powerWatts=200.0), **gpu(1, memoryAllocatedBytes=1e9), loss=1.0)
    told = CliRunner().invoke(app, ["gpu-report"]).stdout
    assert "maximum 9.00 GB\n" in told
    assert "maximum 200.0 W (of 1 GPUs)\n" in told


def test_run_without_gpus_is_not_found() -> None:
    """A run without a single GPU metric says so, and what to check."""
    logged(loss=1.0, steps=10**400)
    done = CliRunner().invoke(app, ["gpu-report"])
    assert isinstance(done.exception, NotFound)
    assert str(done.exception).startswith("no GPU metrics found in run 'baseline'")


def test_run_without_gpus_among_others_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """Of a project the runs that have GPU metrics are shown; one that hasn't is named and costs nothing else."""
    logged(**gpu(0, temp=60.0))
    logged(loss=1.0)
    done = CliRunner().invoke(app, ["gpu-report", "digits", "--json"])
    assert done.exit_code == 0, done.output
    assert len(json.loads(done.stdout)) == 1
    assert "left out: no GPU metrics found in run 'baseline'" in caplog.text
