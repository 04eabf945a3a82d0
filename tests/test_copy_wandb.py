"""Copies to and from W&B, through its real client and the stand-in for its servers."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trackers
from tests.wandb_server import WandbServer
from tests.wandb_support import server
from trackers.copying import Report, copy
from trackers.rundata import load, load_all

__all__ = ["server"]

OFFLINE: dict[str, Any] = {"mode": "offline", "options": {"TRACKER_RELAY": False}}
PRIMUS = (
    "[20251121 12:10:{second:02d}][rank-31/32][INFO ] [--------trainer.py:2488] :  iteration {step:8d}/   36000 | "
    "consumed samples:      3104000 | elapsed time per iteration (ms): 2701.3/2712.7 | throughput per GPU "
    "(TFLOP/s/GPU): 210.5/217.3 | learning rate: 1.587349E-04 | global batch size:   256 | lm loss: {loss:.6E} | "
    "loss scale: 1.0 | grad norm: 0.132 | number of skipped iterations:   0 | number of nan iterations:   0 |\n"
)


def logged(name: str = "baseline", steps: int = 50, media: bool = True) -> trackers.Run:
    """A finished run with two cadences, NaN, a text, media and a file."""
    run = trackers.init(
        "json", project="digits", name=name, config={"lr": 0.1, "model": {"depth": 4}}, tags=["first"],
        group="ablation", notes="why", **OFFLINE,
    )  # fmt: skip
    for step in range(steps):
        run.log({"loss": float("nan") if step == 3 else 1 / (step + 1), "mean@1": step}, step=step)
        if step % 7 == 0:
            run.log({"val_loss": float("inf")}, step=step)
    if media:
        run.log({"picture": trackers.Image(np.zeros((4, 4), np.uint8)), "text": "größer"}, step=steps)
        run.log({"weights": trackers.Histogram([1, 2, 2, 3])}, step=steps)
        Path("weights.bin").write_bytes(bytes(range(256)))
        run.log_artifact("weights.bin", name="weights", type="model")
    run.log({"final/best": 0.5})
    run.finish()
    return run


def one(source: str, destination: str) -> Report:
    """The report of a copy of one run."""
    (report,) = copy(source, destination)
    return report


def test_copy_to_wandb_and_back(server: WandbServer, tmp_path: Path) -> None:
    """A run arrives in W&B with everything it has, once however often it is copied, and comes back the same."""
    run = logged()
    first = one(run.id, "wandb:team/copies")
    assert first.agrees, str(first)
    second = one(run.id, "wandb:team/copies")
    assert second.agrees, str(second)
    (there,) = server.runs.values()
    assert len([row for row in there.history if "loss" in row]) == 50
    assert (there.display_name, there.group, list(there.tags), there.state) == (
        "baseline",
        "ablation",
        ["first"],
        "finished",
    )
    back = one(first.destination, "back")
    assert back.agrees, str(back)
    ours, theirs = load(run.id), load(back.destination)
    assert (
        theirs.metrics(["loss", "mean@1", "val_loss"])
        .to_pandas()
        .drop(columns="time")
        .equals(ours.metrics(["loss", "mean@1", "val_loss"]).to_pandas().drop(columns="time"))
    )
    assert theirs.config["model"] == {"depth": 4}
    assert (theirs.run.group, theirs.run.notes, theirs.run.tags) == ("ablation", "why", ["first"])
    assert [media.type for media in theirs.media()] == ["image", "histogram"]


def test_project_of_wandb_to_mlflow(server: WandbServer, tmp_path: Path) -> None:
    """A whole project goes from W&B to MLflow, each run with its own name and values."""
    for number in range(3):
        assert one(logged(f"run-{number}", 3 + number, media=False).id, "wandb:team/many").agrees
    reports = list(copy("wandb:team/many", f"mlflow:{tmp_path}/ml.db#many"))
    assert [report.name for report in reports] == [f"run-{number}" for number in range(3)]
    assert all(report.agrees for report in reports), "\n".join(map(str, reports))
    found = load_all(f"mlflow:{tmp_path}/ml.db#many")
    assert {data.run.name: data.series()["loss"].count for data in found} == {f"run-{n}": 3 + n for n in range(3)}


@pytest.mark.parametrize("packed", [False, True])
def test_console_log_to_wandb(packed: bool, server: WandbServer) -> None:
    """A Primus log becomes a run in W&B."""
    lines = "".join(PRIMUS.format(second=step, step=12125 + step, loss=2.3 - step / 100) for step in range(20))
    if packed:
        Path("primus.log.gz").write_bytes(gzip.compress(lines.encode()))
    else:
        Path("primus.log").write_text(lines)
    report = one(f"log:primus.log{'.gz' if packed else ''}", "wandb:team/logs")
    assert report.agrees, str(report)
    (there,) = server.runs.values()
    (name,) = [name for name in there.history[0] if "loss" in name and "scale" not in name]
    assert [row["global_step"] for row in there.history] == list(range(12125, 12145))
    assert there.history[0][name] == pytest.approx(2.3)


def test_offline_copy_lies_in_wandb_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """With W&B offline the copy is a .wandb file, which the copy is compared with."""
    monkeypatch.delenv("WANDB_DIR")
    report = one(logged(media=False).id, "wandb:team/copies")
    assert report.agrees, str(report)
    assert report.there.values == 50 * 2 + 8
