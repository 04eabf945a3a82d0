"""The torchtitan logger: its real metrics processor and loggers in a small training without a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torchtitan.components import metrics as theirs
from torchtitan.config import JobConfig
from torchtitan.distributed import ParallelDims
from trackers_frameworks.torchtitan import TrackersLogger, install

from tests.frameworks.support import config, directories, only, results, series
from trackers.training.init import current

pytestmark = [pytest.mark.usefixtures("local_runs", "one_rank"), pytest.mark.filterwarnings("ignore")]


class NoDevice:
    """Stands for torchtitan's monitor of a GPU's memory, which needs a GPU."""

    device_name = "none"

    def reset_peak_stats(self) -> None:
        return

    def get_peak_stats(self) -> Any:
        return theirs.DeviceMemStats(1.0, 2.0, 3.0, 4.0, 0, 0)


@pytest.fixture
def one_rank(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A process group of one rank, and torchtitan as it was afterwards."""
    monkeypatch.setattr(theirs, "build_device_memory_monitor", NoDevice)
    monkeypatch.setattr(theirs, "_build_metric_logger", theirs._build_metric_logger)
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def train(steps: int = 3, *, tensorboard: bool = False) -> list[float]:
    """Steps of a line, logged by torchtitan's metrics processor; the losses."""
    job = JobConfig()
    job.job.description = "a line"
    job.metrics.log_freq = 1
    job.metrics.enable_tensorboard = tensorboard
    job.job.dump_folder = "outputs"
    dims = ParallelDims(dp_replicate=1, dp_shard=1, cp=1, tp=1, pp=1, ep=1, etp=1, world_size=1)
    processor = theirs.MetricsProcessor(job, dims)
    processor.num_flops_per_token = 6
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        loss = model(torch.ones(4, 2)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        processor.ntokens_since_last_log += 4
        processor.data_loading_times.append(0.001)
        processor.log(step, losses[-1], losses[-1], 1.0, extra_metrics={"lr": 0.1})
    processor.log_validation(0.5, steps)
    processor.close()
    return losses


def test_training_is_recorded() -> None:
    """torchtitan's metrics at its steps under its names, its configuration, and the least loss."""
    install(project="titan", name="line")
    losses = train()
    stored = recorded_run()
    assert series(stored, "loss_metrics/global_avg_loss") == list(enumerate(losses, 1))
    assert series(stored, "lr") == [(1, 0.1), (2, 0.1), (3, 0.1)]
    assert series(stored, "memory/max_active(GiB)") == [(1, 1.0), (2, 1.0), (3, 1.0)]
    assert series(stored, "validation_metrics/loss") == [(3, 0.5)]
    assert config(stored)["job"]["description"] == "a line"
    assert config(stored)["training"]["steps"] == JobConfig().training.steps
    assert results(stored)["loss_metrics/global_avg_loss"] == min(losses)
    assert stored.name == "line"


def test_torchtitans_own_loggers_stay() -> None:
    """What the configuration switches on is written as before; installing twice logs once."""
    install(project="titan")
    install(project="titan")
    train(tensorboard=True)
    assert list(Path("outputs/tb").rglob("events.*"))
    assert len(series(recorded_run(), "grad_norm")) == 3


def test_other_ranks_and_faults(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A rank that torchtitan doesn't let log records nothing; a fault of ours is one line."""
    monkeypatch.setattr(theirs, "_get_metrics_rank", lambda *arguments: 1)
    install()
    train()
    assert directories() == []
    logger = TrackersLogger()
    logger.log({"loss": 1.0}, 1)
    logger._handle.log = None  # type: ignore[assignment, method-assign]
    logger.log({"loss": 1.0}, 2)
    logger.log({"loss": 1.0}, 3)
    logger.finish()
    assert len(series(only(), "loss")) == 1
    assert sum("training goes on" in line for line in capsys.readouterr().err.splitlines()) == 1


def recorded_run() -> Any:
    """End the process's run, and read it back."""
    run = current()
    assert run is not None
    run.finish()
    return only()
