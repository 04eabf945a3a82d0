"""What a script that was written for W&B logs is in each store, read back without our writers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.frameworks.support import READ
from trackers.as_wandb.init import init
from trackers.journal.run_directory import RunDirectory


@pytest.mark.slow
@pytest.mark.processes  # W&B's client
def test_five_stores_hold_what_a_script_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers in parts of a row, nested, at steps that go on by themselves; lists and long arrays; an axis; results."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{Path('mlflow.db').absolute()}")
    monkeypatch.setenv("TRACKER", "json,tensorboard,mlflow,trackio,wandb")
    monkeypatch.setenv("TRACKER_INLINE", "y")
    monkeypatch.setenv("WANDB_SILENT", "true")
    run: Any = init(project="p", name="five", config={"lr": 0.5, "model": {"depth": 2}}, mode="offline")
    run.define_metric("val/*", step_metric=run.define_metric("epoch"))
    for epoch in range(3):
        run.log({"train": {"error": 1.0 / (epoch + 1)}}, commit=False)
        run.log({"rate": 0.5})
        run.log({"epoch": epoch * 10, "val/acc": epoch / 4})
    run.log({"per_class": [0.25, 0.5], "weights": np.arange(64.0)}, step=20)
    run.log({"train/error": 0.125})
    run.summary["best"] = 0.5
    run.finish(timeout=120)
    info = RunDirectory(Path(run.path)).read_info()
    rows = {"train/error": [1.0, 0.5, 1 / 3, 0.125], "rate": [0.5] * 3, "val/acc": [0.0, 0.25, 0.5]}
    steps = {"train/error": [0, 2, 4, 20], "rate": [0, 2, 4], "val/acc": [1, 3, 5]}
    for tracker, read in READ.items():
        stored = read(info)
        at = steps if tracker not in ("tensorboard", "mlflow") else {**steps, "val/acc": [0, 10, 20]}
        for name, values in rows.items():
            wanted = list(zip(at[name], map(pytest.approx, values), strict=True))
            assert [(one.step, one.value) for one in stored.metrics[name]] == wanted, (tracker, name)
        assert stored.status in ("finished", "FINISHED"), tracker
        if tracker != "mlflow":  # its texts are files
            assert stored.texts is not None
            assert stored.texts["per_class"] == [(20, "[0.25, 0.5]")], tracker
