"""Each kind of what a run logs lies where docs/choosing-trackers.md says, in each tracker's store."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests import ROOT, forked
from tests.backends import contents
from trackers.journal.run_directory import RunDirectory, StreamName
from trackers.journal.stream import StreamWriter
from trackers.records import Environment, Metrics, encode
from trackers.relay.delivery.delivery import Delivery

PAGE = ROOT / "docs/choosing-trackers.md"
SCRIPT = """
import sys
from pathlib import Path

import numpy as np
from PIL import Image
import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt

import trackers

Path("notes.txt").write_text("kept")
Path("rows.csv").write_text("a,b\\n1,2\\n")
Path("model").mkdir()
Path("model/weights.bin").write_bytes(b"weights")
Image.fromarray(np.zeros((4, 4, 3), np.uint8)).save("clip.gif")
run = trackers.init(
    project="contents", name="baseline", id="contents1", group="paper", job_type="train", tags=["first"],
    notes="A **note**.", config={"lr": 0.1, "model": {"depth": 4}},
)
run.define_metric("epoch")
run.define_metric("val/*", step_metric="epoch")
data = trackers.Artifact("rows", "dataset")
data.add_file("rows.csv")
run.log_artifact(data)
print("printed by training")
for step in range(4):
    run.log({"train/loss": 1 / (step + 1), "train/rate": 0.1}, step=step)
pixels = np.full((8, 8, 3), 200, np.uint8)
run.log({"epoch": 1, "val/loss": 0.5, "val/picture": trackers.Image(pixels), "val/note": "seen"}, step=3)
run.log({"story": "once **upon**"}, step=3)
place = {"minX": 1, "maxX": 6, "minY": 1, "maxY": 6}
box = {"box_data": [{"position": place, "domain": "pixel", "class_id": 1}], "class_labels": {1: "leaf"}}
drawn, axes = plt.subplots()
axes.plot([1, 2])
run.log({
    "picture": trackers.Image(pixels, caption="four by four"),
    "boxed": trackers.Image(pixels, boxes={"predictions": box}),
    "sound": trackers.Audio(np.zeros(80), sample_rate=8000),
    "clip": trackers.Video("clip.gif"),
    "rows": trackers.Table(columns=["id", "label"], data=[[1, "leaf"]]),
    "weights": trackers.Histogram(np.arange(9.0)),
    "page": trackers.Html("<b>bold</b>"),
    "figure": drawn,
}, step=3)
run.save("notes.txt")
model = trackers.Artifact("detector", "model")
model.add_dir("model")
run.log_artifact(model)
with run.span("answer", kind="llm", inputs="Which leaf?") as span:
    span.outputs = "oak"
    span.set({"gen_ai.usage.input_tokens": 40})
run.alert("Loss is low", "0.25")
run.log({"final/accuracy": 0.9})
run.summary["verdict"] = "good"
sys.exit(3)
"""
CARD = {"name": "NVIDIA H100 80GB HBM3", "vendor": "nvidia", "memory_total_bytes": 80_000_000_000}


@pytest.mark.processes
def test_content_lies_where_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One run with all kinds of content, delivered to all trackers of the table after its end, is in their stores."""
    variables = {
        "WANDB_SILENT": "true", "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db", "TRACKER_MODE": "offline",
        "TRACKER": ",".join(contents.STORES), "TRACKER_CONSOLE_CAPTURE": "python",
    }  # fmt: skip
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = forked.run([sys.executable, str(script)], cwd=tmp_path, env=environ, preload=forked.LIGHT)
    assert done.returncode == 3, done.stderr
    directory = RunDirectory(tmp_path / "runs/contents/contents1")
    sampler = StreamWriter(directory.stream(StreamName("sampler", 0, 1)))
    at = directory.read_info().created + 0.001
    described = {"gpus": {"0": CARD}, "machines": {"node0": {"processor": "AMD EPYC"}}}
    sampler.write(encode(Environment(time=at, values=described)))
    sampler.write(encode(Metrics(time=at, values={"system.cpu": 12.5, "system.gpu.0.powerWatts": 125.0})))
    sampler.release()
    for tracker in contents.STORES:
        delivery = Delivery(directory, tracker, say=print, alone=False)
        assert any(delivery.step() is None for _ in range(2000)), tracker
    stores = {name: store(directory.read_info()) for name, store in contents.STORES.items()}
    lacking = [
        (kind, name)
        for kind, cells in contents.TABLE.items()
        for name, cell in cells.items()
        if cell.holds is not None and not cell.holds(stores[name])
    ]
    assert lacking == []


def test_page_has_the_table() -> None:
    """``python -m tests.backends.contents`` prints it; each kind has a word for each tracker."""
    assert contents.table() in PAGE.read_text()
    for kind, cells in contents.TABLE.items():
        assert cells.keys() == contents.STORES.keys(), kind
