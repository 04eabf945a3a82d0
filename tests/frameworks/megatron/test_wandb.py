"""Megatron's names at W&B, through its real client: values against consumed samples have them as their x axis."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest
import torch

from tests import stores
from tests.fakes.wandb_server import WandbServer
from tests.helpers import run_info
from trackers.backends.wandb.client import directory
from trackers.frameworks.megatron import LoggerConfig, start
from trackers.journal.run_directory import RunDirectory

pytest_plugins = ["tests.backends.wandb.support"]

BOTH = ("learning-rate", "batch-size", "lm loss", "loss-scale", "grad-norm")


@pytest.fixture(autouse=True)
def _logging(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's logging is left as it is."""
    monkeypatch.setattr("trackers.support.logging_setup.configure", lambda *levels, **more: 20)


def train(**fields: Any) -> Path:
    """Four iterations whose batches grow, so that samples are no multiple of iterations, and a validation."""
    log = start(
        LoggerConfig(wandb_project="p", wandb_exp_name="e", log_validation_ppl_to_tensorboard=True, **fields),
        train_iters=4, global_batch_size=8, write=lambda text: None,
    )  # fmt: skip
    for iteration in range(1, 5):
        loss, norm = torch.tensor(1.0 / iteration), torch.tensor(0.5)
        log.training_log(
            {"lm loss": loss}, {}, 1e-3 * iteration, None, iteration, 2.0, False, 0, norm, None, None,
            batch_size=8 * iteration,
        )  # fmt: skip
    log.validation_log({"lm loss": 2.0}, 4)
    log.run.finish(timeout=60)
    return Path(log.run.dir)


def check_rows(rows: list[dict[str, Any]]) -> None:
    """Each name and its twin stand at the iteration, with the samples that were gone through by then."""
    samples = {1: 8, 2: 24, 3: 48, 4: 80}
    training = [row for row in rows if "lm loss" in row]
    assert [(row["global_step"], row["samples vs steps"]) for row in training] == list(samples.items())
    for row in training:
        for name in BOTH:
            assert row[f"{name} vs samples"] == row[name], name
    (validation,) = (row for row in rows if "lm loss validation" in row)
    for name in ("lm loss validation", "lm loss validation ppl"):
        assert validation[f"{name} vs samples"] == validation[name]
    assert (validation["global_step"], validation["samples vs steps"]) == (4, 80)


def check_axes(axes: dict[str, str]) -> None:
    """Every ``… vs samples`` has the samples as its x axis, every other name the iterations."""
    twins = [f"{name} vs samples" for name in (*BOTH, "lm loss validation", "lm loss validation ppl")]
    assert {axes.get(name) for name in twins} == {"samples vs steps"}
    assert {axes.get(name) or axes["*"] for name in BOTH} == {"global_step"}  # clients before 0.30 name each metric


@pytest.mark.slow
def test_values_against_samples_have_their_axis_online(server: WandbServer) -> None:
    """The server holds the rows, and a definition of each such metric with ``samples vs steps`` as its step."""
    train()
    (held,) = server.runs.values()
    assert (held.project, held.display_name) == ("p", "e")
    check_rows(held.history)
    defined = held.config["_wandb"]["value"]["m"]  # wandb's MetricRecord by field number: 1 name, 2 glob, 4/5 its step
    names = [one.get("1") or one.get("2") for one in defined]
    steps = [one.get("4") or (names[one["5"] - 1] if "5" in one else None) for one in defined]
    check_axes({name: step for name, step in zip(names, steps, strict=True) if step})


@pytest.mark.slow
def test_files_of_wandb_lie_where_the_configuration_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """``wandb_save_dir`` is relative to where training was started, as in Megatron Bridge's example, and is made."""
    monkeypatch.setenv("WANDB_DIR", "elsewhere")
    run = train(wandb_save_dir="./runs/saved")
    (path,) = Path("runs/saved/wandb").glob("offline-run-*/*.wandb")
    assert stores.wandb_records(path)
    assert not list(run.rglob("*.wandb"))
    assert os.environ["WANDB_DIR"] == "elsewhere"  # training's own environment is left as it was


@pytest.mark.parametrize(("host", "there"), [("", "mine"), ("another", "elsewhere")])
def test_files_of_wandb_lie_where_training_said(
    host: str, there: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """WANDB_DIR of the run, a flag's too; delivered on another machine, the variable's there."""
    monkeypatch.setenv("WANDB_DIR", str(tmp_path / "elsewhere"))
    info = run_info(tmp_path, options={"WANDB_DIR": "mine"}, cwd=str(tmp_path), host=host or socket.gethostname())
    assert directory(info) == tmp_path / there


@pytest.mark.slow
def test_values_against_samples_have_their_axis_offline() -> None:
    """So does the offline file, which ``wandb sync`` sends later."""
    info = RunDirectory(train()).read_info()
    (path,) = stores.wandb_files(info)
    axes: dict[str, str] = {}
    rows: list[dict[str, Any]] = []
    for record in stores.wandb_records(path):
        if record.HasField("metric"):
            one = record.metric
            axes[one.name or one.glob_name] = one.step_metric
        elif record.HasField("history"):
            rows.append(stores._wandb_items(record.history.item))
    check_rows(rows)
    check_axes(axes)
