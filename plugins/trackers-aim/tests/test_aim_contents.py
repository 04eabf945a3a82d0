"""Where each kind of what a run logs lies in Aim: the column of docs/choosing-trackers.md. What the store holds is told
by the reader, which knows Aim's database alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from trackers_aim import tree
from trackers_aim.store import open_store

from tests.backends import contents
from tests.backends.contents import NONE, TOKENS, Cell, has_box, has_mask
from trackers.readers import registry
from trackers.records import Alert, ArtifactRecord, Config, Environment, Media, Metrics, Summary, Text
from trackers.tracker import RunInfo


class Aim:
    """The one run of a store."""

    def __init__(self, info: RunInfo, files: Path) -> None:
        reader, (self.run,) = registry.open_source(f"aim:{info.path('aim')}")
        self.values: dict[str, list[tuple[int | None, Any]]] = {}
        self.media: dict[str, Media] = {}
        self.alerts, self.artifacts, self.environment = "", set(), ""
        self.files = files
        with open_store(info.path("aim/.aim/meta/chunks", self.run.id), info.path("aim/.aim")) as store:
            final = tree.key("meta", "chunks", self.run.id, "attrs", "final")
            self.final = tree.to_builtins(tree.grow(tree.Node(), store.items(final), lambda name: None))
        for record in reader.read(self.run, files=files):
            if isinstance(record, (Metrics, Text)):
                for name, value in record.values.items():
                    self.values.setdefault(name, []).append((record.step, value))
            elif isinstance(record, Media):
                self.media[record.name] = record
            elif isinstance(record, Config):
                self.config = record.values
            elif isinstance(record, Summary):
                self.results = record.values
            elif isinstance(record, Environment):
                self.environment += str(record.values)
            elif isinstance(record, ArtifactRecord):
                self.artifacts.add(record.name)
            elif isinstance(record, Alert):
                self.alerts += record.line()

    def content(self, name: str) -> bytes:
        return (self.files / self.media[name].items[0].file).read_bytes()


COLUMN = {
    "numbers of a step": Cell("Metrics", lambda s: [step for step, _ in s.values["train/loss"]] == [0, 1, 2, 3]),
    "several calls of `log` at one step": Cell("that step", lambda s: s.values["val/loss"] == [(3, 0.5)]),
    "a metric with a step metric (`define_metric`)": Cell(
        "at training's step", lambda s: s.values["val/loss"][0][0] == 3
    ),
    "texts and media with a step metric": Cell("as metrics", lambda s: s.media["val/picture"].step == 3),
    "results (`final/…`, `run.summary`)": Cell("Run Params, `final`", lambda s: s.results["accuracy"] == 0.9),
    "results that are texts": Cell("Run Params, `final`", lambda s: s.results["verdict"] == "good"),
    "energy, tokens of spans (results that nobody asked for)": Cell(
        "Run Params, `trackers`", lambda s: s.results[TOKENS] == 40 and TOKENS not in s.final
    ),
    "texts": Cell("Texts", lambda s: s.values["story"] == [(3, "once **upon**")]),
    "images": Cell("Images", lambda s: s.media["picture"].type == "image"),
    "captions": Cell("beneath the image", lambda s: s.media["picture"].items[0].caption == "four by four"),
    "boxes and masks": Cell(
        "drawn into the image", lambda s: has_box(s.content("boxed")) and has_mask(s.content("masked"))
    ),
    "audio": Cell("Audios", lambda s: s.media["sound"].type == "audio"),
    "video": NONE,
    "tables": Cell("Texts, CSV", lambda s: "1,leaf" in s.values["rows"][0][1]),
    "samples of language models (`run.log_samples`)": Cell(
        "Texts, CSV", lambda s: "1,2+2,4,1.0" in s.values["chats"][0][1]
    ),
    "histograms": Cell("Distributions", lambda s: s.media["weights"].type == "histogram"),
    "figures (matplotlib, plotly)": Cell("as images", lambda s: s.media["figure"].type == "image"),
    "HTML": Cell("Texts", lambda s: "bold" in s.values["page"][0][1]),
    "models (artifacts of type `model`)": Cell("Artifacts", lambda s: "detector" in s.artifacts),
    "data sets (artifacts of type `dataset`)": Cell("Artifacts", lambda s: "rows" in s.artifacts),
    "files (`run.save`, other artifacts)": Cell("Artifacts", lambda s: "notes.txt" in s.artifacts),
    "spans": Cell("Texts, the table `spans`", lambda s: "answer" in s.values["spans"][0][1]),
    "alerts": Cell("Logs, messages", lambda s: "Loss is low" in s.alerts),
    "what training printed": NONE,
    "samples of the GPUs and the host": Cell(
        "System",
        lambda s: (
            s.values["system.gpu.0.powerWatts"] == [(None, 125.0)]
            and {n: v for n, v in s.values.items() if "util" in n} == {"gpu/compute_util_avg": [(None, 50.0)]}
        ),
    ),
    "configuration": Cell("Run Params", lambda s: s.config["model"] == {"depth": 4}),
    "name": Cell("the run's name", lambda s: s.run.name == "baseline"),
    "tags": Cell("Tags", lambda s: s.run.tags == ["first"]),
    "notes": Cell("the description", lambda s: s.run.notes == "A **note**."),
    "group, job type": Cell("Run Params, `trackers`", lambda s: s.run.group == "paper"),
    "how it ended": Cell("Run Params, `trackers`", lambda s: s.run.status == "failed"),
    "machine": Cell("Run Params, `__system_params`", lambda s: "NVIDIA H100" in s.environment),
}


@pytest.mark.processes
def test_content_lies_where_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One run with all kinds of content is in Aim's store as the page's column says."""
    info = contents.delivered(tmp_path, monkeypatch, ["aim"], job=True)
    (files := tmp_path / "files").mkdir()
    contents.check("aim", COLUMN, Aim(info, files))


@pytest.mark.slow
def test_users_wish_for_the_hardware_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``TRACKER_GPU_METRICS=ranges``: smallest and largest values, too; ``training``: at its steps."""

    def steps(info: RunInfo) -> dict[str, int | None]:
        (files := info.path("files")).mkdir()
        return {name: rows[0][0] for name, rows in Aim(info, files).values.items() if "util" in name}

    contents.check_wishes(tmp_path, monkeypatch, "aim", steps)
