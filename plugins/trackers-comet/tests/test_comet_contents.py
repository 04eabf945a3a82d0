"""Where each kind of what a run logs lies at Comet: the column of docs/choosing-trackers.md, in the archive."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.backends import contents
from tests.backends.contents import NONE, TOKENS, Cell, has_box, has_mask
from trackers.tracker import RunInfo


class Comet:
    """The messages of the archive, and its files."""

    def __init__(self, info: RunInfo) -> None:
        (path,) = info.path("comet").glob("*.zip")
        with zipfile.ZipFile(path) as archive:
            files = {name: archive.read(name) for name in archive.namelist()}
        self.about = json.loads(files["experiment.json"])
        self.metrics: dict[str, list[Any]] = {}
        self.params: dict[str, Any] = {}
        self.others: dict[str, Any] = {}
        self.uploads: dict[str, tuple[str, Any, bytes]] = {}
        self.printed = ""
        for message in map(json.loads, files["messages.json"].splitlines()):
            kind, payload = message["type"], message["payload"]
            if kind == "metric_msg":
                metric = payload["metric"]
                self.metrics.setdefault(metric["metricName"], []).append((metric["step"], metric["metricValue"]))
            elif kind == "parameter_msg":
                self.params[payload["param"]["paramName"]] = payload["param"]["paramValue"]
            elif kind == "log_other":
                self.others[payload["key"]] = payload["value"]
            elif kind == "file_upload":
                more = payload["additional_params"]
                name = payload["metadata"].get("name") or more.get("figName") or more["fileName"]
                before = self.uploads[name][2] if name in self.uploads else b""
                self.uploads[name] = payload["upload_type"], payload, before + files[payload["file_path"]]
            elif kind == "standard_output":
                self.printed += payload["output"]

    def has(self, name: str, kind: str, part: bytes = b"") -> bool:
        return self.uploads[name][0] == kind and part in self.uploads[name][2]


COLUMN = {
    "numbers of a step": Cell(
        "Panels, Metrics", lambda s: [step for step, _ in s.metrics["train/loss"]] == [0, 1, 2, 3]
    ),
    "several calls of `log` at one step": Cell("that step", lambda s: s.metrics["val/loss"] == [(3, 0.5)]),
    "a metric with a step metric (`define_metric`)": Cell(
        "at training's step", lambda s: s.metrics["val/loss"][0][0] == 3
    ),
    "texts and media with a step metric": Cell(
        "as metrics", lambda s: s.uploads["val/picture"][1]["additional_params"]["step"] == 3
    ),
    "results (`final/…`, `run.summary`)": Cell(
        "a metric of one value", lambda s: s.metrics["final/accuracy"] == [(None, 0.9)]
    ),
    "results that are texts": Cell("Other", lambda s: s.others["final/verdict"] == "good"),
    "energy, tokens of spans (results that nobody asked for)": Cell(
        "Other", lambda s: (s.others[f"final/{TOKENS}"], f"final/{TOKENS}" in s.metrics) == (40, False)
    ),
    "texts": Cell("Text", lambda s: s.has("story", "text-sample", b"once **upon**")),
    "images": Cell("Graphics", lambda s: s.has("picture", "visualization", b"PNG")),
    "captions": Cell("the image's metadata", lambda s: "four by four" in str(s.uploads["picture"][1])),
    "boxes and masks": Cell(
        "drawn into the image", lambda s: has_box(s.uploads["boxed"][2]) and has_mask(s.uploads["masked"][2])
    ),
    "audio": Cell("Audio", lambda s: s.has("sound.wav", "audio", b"WAVE")),
    "video": Cell("Video", lambda s: s.has("clip.gif", "video", b"GIF")),
    "tables": Cell("Assets, CSV", lambda s: s.has("rows.csv", "asset", b"id,label")),
    "samples of language models (`run.log_samples`)": Cell(
        "Assets, CSV", lambda s: s.has("chats.csv", "asset", b"id,prompt")
    ),
    "histograms": Cell("Assets, JSON", lambda s: s.has("weights.json", "asset", b"counts")),
    "figures (matplotlib, plotly)": Cell("as images", lambda s: s.has("figure", "visualization")),
    "HTML": Cell("Assets", lambda s: s.has("page.html", "asset", b"bold")),
    "models (artifacts of type `model`)": Cell(
        "Assets, as a model's element", lambda s: s.has("detector/weights.bin", "model-element")
    ),
    "data sets (artifacts of type `dataset`)": Cell("Assets", lambda s: s.has("rows/rows.csv", "asset", b"a,b")),
    "files (`run.save`, other artifacts)": Cell("Assets", lambda s: s.has("notes.txt/notes.txt", "asset", b"kept")),
    "spans": Cell("Assets, the table `spans`", lambda s: s.has("spans.csv", "asset", b"answer")),
    "alerts": Cell("Output", lambda s: "Loss is low" in s.printed),
    "what training printed": NONE,
    "samples of the GPUs and the host": Cell(
        "System metrics",
        lambda s: (
            s.metrics["sys.gpu.0.powerWatts"] == [(None, 125.0)]
            and [n for n in s.metrics if "util" in n] == ["sys.gpu/compute_util_avg"]
        ),
    ),
    "configuration": Cell("Hyperparameters", lambda s: s.params["model|depth"] == 4),
    "name": Cell("the experiment's name", lambda s: s.others["Name"] == "baseline"),
    "tags": Cell("Tags", lambda s: s.about["tags"] == ["first"]),
    "notes": Cell("Other, `Notes`", lambda s: s.others["Notes"] == "A **note**."),
    "group, job type": Cell("the group: Other, `Group`", lambda s: s.others["Group"] == "paper"),
    "how it ended": Cell("State; Other, `trackers/status`", lambda s: s.others["trackers/status"] == "failed"),
    "machine": Cell("Assets, `environment.json`", lambda s: s.has("environment.json", "asset", b"NVIDIA H100")),
}


@pytest.mark.processes
def test_content_lies_where_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One run with all kinds of content is in Comet's archive as the page's column says."""
    contents.check("comet", COLUMN, Comet(contents.delivered(tmp_path, monkeypatch, ["comet"], job=True)))


@pytest.mark.slow
def test_users_wish_for_the_hardware_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``TRACKER_GPU_METRICS=ranges``: smallest and largest values, too; ``training``: at its steps."""

    def steps(info: RunInfo) -> dict[str, int | None]:
        return {n.removeprefix("sys."): rows[0][0] for n, rows in Comet(info).metrics.items() if "util" in n}

    contents.check_wishes(tmp_path, monkeypatch, "comet", steps)
