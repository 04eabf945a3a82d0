"""Kills at each point of the deliveries that take seconds to start, one by one: ``make chaos-failpoints``."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.backends.wandb.support import server
from tests.chaos.prepared import Journal, journal
from tests.fakes.wandb_server import WandbServer
from tests.faults.test_failpoints import finish, kill_at, points, verify
from tests.stores import mlflow_tables

__all__ = ["journal", "mlflow_tables", "server"]


@pytest.mark.parametrize("point", points("mlflow"))
def test_kill_at_point_of_mlflow(
    point: str, journal: Journal, tmp_path: Path, mlflow_tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deliveries that die at this point leave a run in MLflow that the next one makes whole."""
    shutil.copyfile(mlflow_tables, tmp_path / "mlflow.db")
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    copy = journal.copy(tmp_path / "run")
    kill_at(copy, "mlflow", point)
    finish(copy, "mlflow")
    verify(copy, "mlflow", mlflow_uri=uri)


@pytest.mark.parametrize("point", points("wandb"))
def test_kill_at_point_of_wandb(point: str, journal: Journal, tmp_path: Path, server: WandbServer) -> None:
    """Deliveries that die at this point leave a run in W&B that the next one makes whole."""
    copy = journal.copy(tmp_path / "run")
    kill_at(copy, "wandb", point)
    finish(copy, "wandb")
    verify(copy, "wandb", wandb_runs={name: run.dump() for name, run in server.runs.items()})
