"""The Ultralytics callbacks with the real library: a tiny classifier and a tiny detector on a processor."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest

import trackers
from tests.frameworks.support import config, directories, only, points, recorded, results
from tests.frameworks.vision import torchvision_without_gpu
from trackers.errors import UsageError

os.environ["YOLO_OFFLINE"] = "true"
torchvision_without_gpu()
import torchvision  # noqa: E402
from trackers_frameworks.ultralytics import REMEMBERED, TrackersCallback  # noqa: E402
from ultralytics import YOLO  # noqa: E402
from ultralytics.utils.nms import TorchNMS  # noqa: E402

from trackers.journal.run_directory import RunDirectory  # noqa: E402
from trackers.journal.status import last_status  # noqa: E402
from trackers.support import run_requests  # noqa: E402
from trackers.training import stopping  # noqa: E402

pytestmark = [pytest.mark.usefixtures("local_runs"), pytest.mark.filterwarnings("ignore")]
SMALL = {"imgsz": 32, "batch": 4, "workers": 0, "device": "cpu", "verbose": False, "name": "tiny"}


def pictures(folder: Path, number: int = 4) -> list[Path]:
    """Pictures of noise."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(0)
    paths = [folder / f"{count}.png" for count in range(number)]
    for path in paths:
        PIL.Image.fromarray(random.integers(0, 255, (32, 32, 3), dtype=np.uint8)).save(path)
    return paths


def classes() -> str:
    """A data set of two classes."""
    for part in ("train", "val"):
        for name in ("cat", "dog"):
            pictures(Path("data", part, name))
    return str(Path("data").resolve())


def train(tracking: Any, model: Any = None, **more: Any) -> Any:
    """Two epochs of a classifier; the model."""
    model = model or YOLO("yolov8n-cls.yaml")
    if tracking is not None:
        tracking.add_to(model)
        tracking.add_to(model)
    model.train(data=classes() if not Path("data").exists() else str(Path("data").resolve()),
                **{**SMALL, "project": str(Path("out").resolve()), "epochs": 2, "plots": False, **more})  # fmt: skip
    return model


def test_training_is_recorded() -> None:
    """Each epoch as Ultralytics's own table has it; its arguments, the best weights, the run's name and status."""
    model = train(TrackersCallback(project="animals", log_model=True))
    stored = only()
    folder = Path(model.trainer.save_dir)
    rows = list(csv.DictReader((folder / "results.csv").read_text().splitlines()))
    for name in ("train/loss", "val/loss", "metrics/accuracy_top1", "lr/pg0"):
        theirs = [(number, float(row[name])) for number, row in enumerate(rows, 1)]
        assert [step for step, _ in points(name)] == [1, 2]
        assert [value for _, value in points(name)] == pytest.approx([value for _, value in theirs], rel=1e-4)
    found = config(stored)
    assert (found["epochs"], found["imgsz"], found["batch"]) == (2, 32, 4)
    assert found["model/num_parameters"] > 1_000
    assert results(stored)["metrics/accuracy_top1"] == model.trainer.metrics["metrics/accuracy_top1"]
    assert (stored.name, stored.status) == (folder.name, "finished")
    (artifact,) = trackers.load(str(directories()[0])).artifacts()
    kept = Path(directories()[0], artifact.files[0].file)
    assert kept.read_bytes() == (folder / "weights/best.pt").read_bytes()


def test_detection_with_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    """A detector's losses and precision, and its plots as images, each once."""
    monkeypatch.setattr(torchvision.ops, "nms", TorchNMS.nms)  # what Ultralytics takes without torchvision
    for part in ("train", "val"):
        for path in pictures(Path("found/images", part), 2):
            label = Path("found/labels", part, f"{path.stem}.txt")
            label.parent.mkdir(parents=True, exist_ok=True)
            label.write_text("0 0.5 0.5 0.5 0.5\n")
    data = Path("found.yaml")
    data.write_text(json.dumps({"path": str(Path("found").resolve()), "train": "images/train", "val": "images/val",
                                "names": {"0": "thing"}}).replace('"0"', "0"))  # fmt: skip
    tracking = TrackersCallback()
    model = YOLO("yolov8n.yaml")
    tracking.add_to(model)
    model.train(data=str(data), project=str(Path("out").resolve()), epochs=1, plots=True, **SMALL)
    stored = only()
    for name in ("train/box_loss", "val/cls_loss", "metrics/mAP50(B)"):
        assert [step for step, _ in points(name)] == [1], name
    shown = [one.name for one in trackers.load(str(directories()[0])).media()]
    assert "plots/confusion_matrix" in shown
    assert "plots/labels" in shown
    assert stored.status == "finished"


def test_resumed_training_goes_on_in_its_run() -> None:
    """``resume=True`` continues the run that the training's directory names, from the checkpoint's epoch on."""

    def stop(trainer: Any) -> None:
        if trainer.epoch == 1:
            raise RuntimeError("no electricity")

    model = YOLO("yolov8n-cls.yaml")
    TrackersCallback(project="animals").add_to(model)
    model.add_callback("on_fit_epoch_end", stop)
    with pytest.raises(RuntimeError, match="no electricity"):
        train(None, model, epochs=3)
    assert only().status == "failed"
    again = YOLO(str(Path(model.trainer.save_dir, "weights/last.pt")))
    TrackersCallback(project="animals").add_to(again)
    again.train(resume=True)
    stored = only()
    assert [step for step, _ in points("train/loss")] == [1, 2, 3]
    assert stored.status == "finished"


def test_directory_that_names_no_run(tmp_path: Path) -> None:
    """A file that isn't what this package wrote is passed by: the resumed training has a run of its own."""
    from trackers_frameworks.ultralytics import _remembered

    for content in (b"", b"[1]", b"\xff", b'{"id": 3}', b'{"id": "' + b"a" * 5000 + b'"}'):
        (tmp_path / REMEMBERED).write_bytes(content)
        assert _remembered(tmp_path) == {}
    (tmp_path / REMEMBERED).unlink()
    (tmp_path / "other.json").write_text(json.dumps({"id": "other"}))
    (tmp_path / REMEMBERED).symlink_to("other.json")
    assert _remembered(tmp_path) == {}


def test_training_in_the_users_run() -> None:
    """It is left open; a second training's names are told apart."""
    run = trackers.init("json", project="users")
    train(TrackersCallback(), epochs=1)
    train(TrackersCallback(), epochs=1)
    assert not run.finished
    run.finish()
    assert [step for step, _ in points("train/loss")] == [1]
    assert [step for step, _ in points("fit-2/train/loss")] == [1]


def test_each_training_has_a_run() -> None:
    """Without a run of the user's; a failed one has failed."""
    tracking = TrackersCallback()
    model = train(tracking, epochs=1)
    train(tracking, model, epochs=1)

    def fail(trainer: Any) -> None:
        raise RuntimeError("no data")

    model.add_callback("on_train_epoch_end", fail)
    with pytest.raises(RuntimeError, match="no data"):
        train(tracking, model, epochs=1)
    assert [one.status for one in recorded()] == ["finished", "finished", "failed"]


def test_faults_before_and_in_training(capsys: pytest.CaptureFixture[str]) -> None:
    """A setting that can't be is an error before the first step; a fault later is one line, and training goes on."""
    with pytest.raises(UsageError, match="neither a model nor a trainer"):
        TrackersCallback().add_to(object())
    with pytest.raises(UsageError, match="unknown tracker 'jsn'"):
        train(TrackersCallback("jsn"), epochs=1)
    tracking = TrackersCallback()
    tracking._show = None  # type: ignore[assignment, method-assign]
    capsys.readouterr()
    train(tracking)
    lines = [line for line in capsys.readouterr().err.splitlines() if "training goes on" in line]
    assert [line.split(":")[1].strip() for line in lines] == [
        "TrackersCallback.on_fit_epoch_end", "TrackersCallback.on_train_end"
    ]  # fmt: skip
    assert [step for step, _ in points("train/loss")] == [1, 2]


def test_asked_training_ends_with_its_epoch_and_is_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of fifty epochs one is trained and validated; the model is an artifact, and the run ends as stopped."""
    monkeypatch.setattr(stopping, "READ_S", 0.0)
    run = trackers.init("json", project="p", name="one")
    asked = run_requests.new_request(1, stop=True, checkpoint=True, who="alice", by="trackers stop", reason="enough")
    run_requests.ask(Path(run.path), asked)
    train(TrackersCallback(), epochs=50)
    run.finish()
    assert [step for step, _ in points("metrics/accuracy_top1")] == [1]
    status = last_status(RunDirectory(run.path))
    assert (status.name, status.reason) == ("stopped", "by alice (trackers stop): enough")
    assert [artifact.name for artifact in trackers.load(run.path).artifacts()] == ["checkpoint.pt"]
