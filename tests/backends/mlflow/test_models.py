"""Logged models of MLflow, in its own SQLite store, read back with its client: once, whatever is killed."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import pytest

import trackers
from tests.chaos import prepared
from tests.chaos.prepared import Journal, deliver
from tests.stores import mlflow_tables
from trackers.training.run import Run

__all__ = ["mlflow_tables"]


@pytest.mark.processes
def test_models_are_there_once_though_deliveries_are_killed(
    tmp_path: Path, mlflow_tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before one is made, while it has no files yet, and before it is said to be ready."""
    from mlflow import MlflowClient

    if not hasattr(MlflowClient, "create_logged_model"):
        pytest.skip("needs MLflow's logged models: this release has none")
    shutil.copyfile(mlflow_tables, tmp_path / "mlflow.db")
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.setenv("TRACKER_RELAY", "n")
    (tmp_path / "model.pt").write_bytes(b"weights")
    run = trackers.init("mlflow", project="chaos", id=prepared.ID, mode="offline", dir=str(tmp_path / "train/runs"))
    assert isinstance(run, Run)
    for step, name in enumerate(("one", "two", "three")):
        run.log({"loss": 1 / (step + 1)}, step=step)
        run.log_artifact(str(tmp_path / "model.pt"), name=name, type="model")
    run.finish()
    journal = Journal(tmp_path / "train")
    for point in ("create=kill", "files=kill", "before=kill", "before=kill:2"):
        code = deliver(journal, "mlflow", failpoint=f"mlflow.model.{point}")
        assert code == -signal.SIGKILL, f"{point} isn't passed"
    assert deliver(journal, "mlflow") == 0, (tmp_path / "train/output.txt").read_text()[-2000:]
    client = MlflowClient(tracking_uri=uri)
    (experiment,) = [one for one in client.search_experiments() if one.name == "chaos"]
    (there,) = client.search_runs([experiment.experiment_id])
    models = {model.name: model for model in client.search_logged_models([experiment.experiment_id])}
    assert len(client.search_logged_models([experiment.experiment_id])) == len(models) == 3
    assert {str(model.status) for model in models.values()} == {"READY"}
    for step, name in enumerate(("one", "two", "three")):
        values = [(metric.key, metric.step, metric.value) for metric in models[name].metrics]
        assert values == [("loss", step, 1 / (step + 1))]
        folder = Path(models[name].artifact_location.removeprefix("file://"))
        about = json.loads((folder / "artifact.json").read_text())
        assert about["files"] == models[name].tags["trackers.files"]
    outputs = sorted((output.step, output.model_id) for output in there.outputs.model_outputs)
    assert outputs == [(step, models[name].model_id) for step, name in enumerate(("one", "two", "three"))]
    points = client.get_metric_history(there.info.run_id, "loss")
    assert sorted((point.step, point.value) for point in points) == [(step, 1 / (step + 1)) for step in range(3)]
