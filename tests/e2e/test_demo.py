"""``make demo``, the README's first command: real training, five trackers, and all of them hold all of it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests import ROOT, forked
from tests.stores import read_mlflow, read_tensorboard, read_trackio, read_wandb_file
from trackers.journal.run_directory import find_runs
from trackers.testing import Stored

STEPS = 1000


def logged(streams: Path) -> dict[str, list[tuple[int | None, float]]]:
    """The (step, value) pairs of every metric and result, from the journal's lines."""
    values: dict[str, list[tuple[int | None, float]]] = {}
    for stream in sorted(streams.glob("rank-*.jsonl")):
        for line in stream.read_text().splitlines():
            record = json.loads(line)
            if record["kind"] in ("metrics", "summary"):
                for name, value in record["values"].items():
                    values.setdefault(name, []).append((record.get("step"), value))
    return values


def plain(summary: dict[str, float] | None) -> dict[str, float]:
    """Results by name, whether the tracker writes ``final/`` before it or not."""
    return {name.removeprefix("final/"): value for name, value in (summary or {}).items()}


def test_make_demo_fills_five_trackers(tmp_path: Path) -> None:
    """Each of the five stores, read by its vendor's means, has each of the demo's 1,000 steps and its results."""
    for part in ("examples", "Makefile", "config.mk"):
        (tmp_path / part).symlink_to(ROOT / part)
    command = ["make", "--no-print-directory", "demo", f"PYTHON={forked.commands()}/python"]
    result = subprocess.run(
        command, cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=150
    )
    assert result.returncode == 0, result.stdout + result.stderr
    for name in ("wandb", "trackio", "tensorboard", "mlflow", "json"):
        assert any(line.split()[:2] == [name, "delivered,"] for line in result.stdout.splitlines()), result.stdout

    (run,) = find_runs(tmp_path / "runs")
    info = run.read_info()
    expected = logged(run.streams)
    results = {name: expected.pop(f"final/{name}")[0][1] for name in ("best_val_loss", "best_val_accuracy")}
    assert len(expected["train_loss"]) == STEPS
    assert len(expected["val_loss"]) == STEPS // 50

    mlflow = f"sqlite:///{tmp_path}/mlflow.db"
    stores: dict[str, Stored] = {
        "wandb": read_wandb_file(info),
        "trackio": read_trackio(info),
        "tensorboard": read_tensorboard(info),
        "mlflow": read_mlflow(info, uri=mlflow),
    }
    for name, stored in stores.items():
        for metric, points in expected.items():
            found = [(point.step, point.value) for point in stored.metrics[metric]]
            wanted = [(step, float(np.float32(value))) for step, value in points] if name == "tensorboard" else points
            assert found == wanted, f"{name}: {metric}"
        kept = plain(stored.summary)
        assert {key: kept[key] for key in results} == pytest.approx(results, rel=1e-6), name

    (log,) = (path for path in run.path.glob("*_*.json"))
    content = json.loads(log.read_text())
    assert [(row["iter"], row["loss"]) for row in content["training_iterations"]] == expected["train_loss"]
    assert content["summary"]["best_val_loss"] == results["best_val_loss"]
