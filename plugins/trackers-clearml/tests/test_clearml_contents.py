"""Where each kind of what a run logs lies at ClearML: the column of docs/choosing-trackers.md, in the archive."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.backends import contents
from tests.backends.contents import NONE, TOKENS, Cell, has_box, has_mask
from trackers.tracker import RunInfo


class Clearml:
    """The task, its events by name, and the files of its debug samples."""

    def __init__(self, info: RunInfo) -> None:
        (path,) = info.path("clearml").glob("*.zip")
        self.scalars: dict[str, list[Any]] = {}
        self.samples: dict[str, tuple[int, bytes]] = {}
        self.plots: dict[str, str] = {}
        self.console = ""
        with zipfile.ZipFile(path) as archive:
            self.task = json.loads(archive.read("task.json"))
            for event in (event for line in archive.read("metrics.jsonl").splitlines() for event in json.loads(line)):
                name = f"{event.get('metric')}/{event.get('variant')}"
                if event["type"] == "training_stats_scalar":
                    self.scalars.setdefault(name, []).append((event["iter"], event["value"]))
                elif event["type"] == "training_debug_image":
                    self.samples[name] = event["iter"], archive.read(f"data/{event['key']}")
                elif event["type"] == "plot":
                    self.plots[name] = event["plot_str"]
                else:
                    self.console += event["msg"]
        self.artifacts = {entry["key"] for entry in self.task["execution"]["artifacts"]}
        self.properties = {name: entry["value"] for name, entry in self.task["hyperparams"]["properties"].items()}

    def has(self, name: str, part: bytes) -> bool:
        return part in self.samples[f"{name}/{name}"][1]


COLUMN = {
    "numbers of a step": Cell("Scalars", lambda s: [step for step, _ in s.scalars["train/loss"]] == [0, 1, 2, 3]),
    "several calls of `log` at one step": Cell("that iteration", lambda s: s.scalars["val/loss"] == [(3, 0.5)]),
    "a metric with a step metric (`define_metric`)": Cell(
        "at training's step", lambda s: s.scalars["val/loss"][0][0] == 3
    ),
    "texts and media with a step metric": Cell("as metrics", lambda s: s.samples["val/picture"][0] == 3),
    "results (`final/…`, `run.summary`)": Cell(
        "Scalars, a single value", lambda s: s.scalars["Summary/accuracy"] == [(-(2**31), 0.9)]
    ),
    "results that are texts": Cell("Info, a property", lambda s: s.properties["final/verdict"] == "good"),
    "energy, tokens of spans (results that nobody asked for)": Cell(
        "Info, a property", lambda s: s.properties[f"final/{TOKENS}"] == "40"
    ),
    "texts": Cell("Debug samples", lambda s: s.has("story", b"once **upon**")),
    "images": Cell("Debug samples", lambda s: s.has("picture", b"PNG")),
    "captions": NONE,
    "boxes and masks": Cell(
        "drawn into the image",
        lambda s: has_box(s.samples["boxed/boxed"][1]) and has_mask(s.samples["masked/masked"][1]),
    ),
    "audio": Cell("Debug samples", lambda s: s.has("sound", b"WAVE")),
    "video": Cell("Debug samples", lambda s: s.has("clip", b"GIF")),
    "tables": Cell("Plots", lambda s: '"type": "table"' in s.plots["rows/rows"]),
    "samples of language models (`run.log_samples`)": Cell(
        "Plots", lambda s: '"type": "table"' in s.plots["chats/chats"]
    ),
    "histograms": Cell("Plots, as bars", lambda s: '"type": "bar"' in s.plots["weights/weights"]),
    "figures (matplotlib, plotly)": Cell("as images", lambda s: s.has("figure", b"PNG")),
    "HTML": Cell("Debug samples", lambda s: s.has("page", b"bold")),
    "models (artifacts of type `model`)": Cell("Artifacts", lambda s: "detector" in str(s.artifacts)),
    "data sets (artifacts of type `dataset`)": Cell("Artifacts", lambda s: "rows" in str(s.artifacts)),
    "files (`run.save`, other artifacts)": Cell("Artifacts", lambda s: "notes.txt" in str(s.artifacts)),
    "spans": Cell("Plots, the table `spans`", lambda s: "answer" in s.plots["spans/spans"]),
    "alerts": Cell("Console", lambda s: "Loss is low" in s.console),
    "what training printed": NONE,
    "samples of the GPUs and the host": Cell(
        "Scalars, `:monitor:gpu`, `:monitor:machine`",
        lambda s: (
            ":monitor:gpu/gpu.0.powerWatts" in s.scalars
            and [n for n in s.scalars if "util" in n] == [":monitor:gpu/gpu/compute_util_avg"]
        ),
    ),
    "configuration": Cell(
        "Hyperparameters; whole in the object `config`",
        lambda s: s.task["hyperparams"]["General"]["model/depth"]["value"] == "4",
    ),
    "name": Cell("the task's name", lambda s: s.task["name"] == "baseline"),
    "tags": Cell("Tags", lambda s: s.task["tags"] == ["first"]),
    "notes": Cell("Info, the description", lambda s: s.task["comment"] == "A **note**."),
    "group, job type": Cell(
        "Info, properties", lambda s: (s.properties["group"], s.properties["job_type"]) == ("paper", "train")
    ),
    "how it ended": Cell("the last line of Console; a property", lambda s: "failed (exit code 3)" in s.console),
    "machine": Cell(
        "the object `environment`", lambda s: "NVIDIA H100" in s.task["configuration"]["environment"]["value"]
    ),
}


@pytest.mark.processes
def test_content_lies_where_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One run with all kinds of content is in ClearML's session as the page's column says."""
    contents.check("clearml", COLUMN, Clearml(contents.delivered(tmp_path, monkeypatch, ["clearml"], job=True)))


@pytest.mark.slow
def test_users_wish_for_the_hardware_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``TRACKER_GPU_METRICS=ranges``: smallest and largest values, too; ``training``: at its steps."""

    def steps(info: RunInfo) -> dict[str, int | None]:
        found = {name: rows[0][0] for name, rows in Clearml(info).scalars.items() if "util" in name}
        return {n.removeprefix(":monitor:gpu/"): None if n.startswith(":monitor:gpu/") else found[n] for n in found}

    contents.check_wishes(tmp_path, monkeypatch, "clearml", steps)
