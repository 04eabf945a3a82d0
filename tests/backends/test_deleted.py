"""A run's whole directory is deleted while training goes on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import trackers
from tests.helpers import wait_for
from tests.stores import read_tensorboard
from trackers.journal.run_directory import RunDirectory
from trackers.relay.delivery.cursor_file import read_account


def test_deleted_run_directory_is_put_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Journal and identity come back, and the trackers end with every record, once: nothing but files was lost."""
    options = {"JSON_DIR": str(tmp_path / "json"), "TENSORBOARD_DIR": str(tmp_path / "tb")}
    run = trackers.init("json,tensorboard", project="p", id="r", config={"lr": 0.5}, options=options)
    step = 0

    def log() -> None:
        nonlocal step
        run.log({"loss": float(step)}, step=step)
        step += 1

    def delivered() -> bool:
        log()
        return read_account(RunDirectory("runs/p/r"), "json").delivered > 10

    wait_for(delivered)
    shutil.rmtree("runs/p/r", ignore_errors=True)
    shutil.rmtree("runs", ignore_errors=True)

    def back() -> bool:
        log()
        return Path("runs/p/r/run.json").exists()

    wait_for(back)
    for _ in range(50):
        log()
    run.finish(timeout=60)
    assert RunDirectory("runs/p/r").read_info().config == {"lr": 0.5}
    logs = [json.loads(path.read_text()) for path in (tmp_path / "json").glob("*.json")]
    newest = max(logs, key=lambda log: len(log["training_iterations"]))
    assert [entry["iter"] for entry in newest["training_iterations"]] == list(range(step))
    assert newest["summary"]["status"] == "finished"
    (events,) = (tmp_path / "tb").glob("p/*")
    stored = read_tensorboard(RunDirectory("runs/p/r").read_info(), directory=events)
    assert [point.step for point in stored.metrics["loss"]] == list(range(step))
    assert "was deleted while it was written: it is put back" in capsys.readouterr().err
