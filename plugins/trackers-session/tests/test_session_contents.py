"""Where each kind of what a run logs lies in a session's logs: the column of docs/choosing-trackers.md."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.backends import contents
from tests.backends.contents import NONE, TOKENS, Cell
from trackers.tracker import RunInfo


class Session:
    """The session's logs, and its summary."""

    def __init__(self, info: RunInfo) -> None:
        (path,) = Path("logs").rglob("*_summary.json")
        self.summary = json.loads(path.read_text())
        self.session, self.rows = self.summary["session"], self.summary["training_metrics"]
        self.main, self.printed = (
            path.with_name(path.name.replace("summary.json", f"{kind}.log")).read_text() for kind in ("main", "console")
        )


COLUMN = {
    "numbers of a step": Cell(
        "main log; `training_metrics`", lambda s: [row["loss"] for row in s.rows][:2] == [1.0, 0.5]
    ),
    "several calls of `log` at one step": Cell(
        "one line; an entry each", lambda s: [row["step"] for row in s.rows][3:] == [3, 3]
    ),
    "a metric with a step metric (`define_metric`)": Cell(
        "at training's step", lambda s: s.rows[4]["metrics"]["val/loss"] == 0.5
    ),
    "texts and media with a step metric": Cell("texts: main log", lambda s: "val/note: seen" in s.main),
    "results (`final/…`, `run.summary`)": Cell(
        "`session`, `results`", lambda s: s.session["results"]["accuracy"] == 0.9
    ),
    "results that are texts": Cell("`session`, `results`", lambda s: s.session["results"]["verdict"] == "good"),
    "energy, tokens of spans (results that nobody asked for)": Cell(
        "`session`, `measured`",
        lambda s: (s.session["measured"][TOKENS], TOKENS in s.session["results"]) == (40, False),
    ),
    "texts": Cell("main log", lambda s: "story: once **upon**" in s.main),
    "images": NONE,
    "captions": NONE,
    "boxes and masks": NONE,
    "audio": NONE,
    "video": NONE,
    "tables": NONE,
    "samples of language models (`run.log_samples`)": NONE,
    "histograms": NONE,
    "figures (matplotlib, plotly)": NONE,
    "HTML": NONE,
    "models (artifacts of type `model`)": Cell("main log: its name", lambda s: "Saved model: detector" in s.main),
    "data sets (artifacts of type `dataset`)": Cell("main log: its name", lambda s: "Saved dataset: rows" in s.main),
    "files (`run.save`, other artifacts)": Cell("main log: its name", lambda s: "Saved file: notes.txt" in s.main),
    "spans": NONE,
    "alerts": Cell("main log", lambda s: "Loss is low: 0.25" in s.main),
    "what training printed": Cell("console log", lambda s: "printed by training" in s.printed),
    "samples of the GPUs and the host": Cell(
        "multi-GPU log; `gpu_snapshots`", lambda s: s.summary["gpu_snapshots"][0]["gpus"][0]["power_w"] == 125.0
    ),
    "configuration": Cell("main log: model, data set, mode", lambda s: "Model: tiny" in s.main),
    "name": Cell("`session`, `run_name`", lambda s: s.session["run_name"] == "baseline"),
    "tags": Cell("`session`, `tags`", lambda s: s.session["tags"] == ["first"]),
    "notes": NONE,
    "group, job type": Cell("`session`, `group`", lambda s: s.session["group"] == "paper"),
    "how it ended": Cell(
        "main log; `session`, `status`", lambda s: (s.session["status"], s.session["exit_code"]) == ("failed", 3)
    ),
    "machine": Cell("main log: its GPUs", lambda s: "NVIDIA H100" in s.main),
}


@pytest.mark.processes
def test_content_lies_where_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The logs of a session hold what its column says."""
    monkeypatch.chdir(tmp_path)
    contents.check("session", COLUMN, Session(contents.delivered(tmp_path, monkeypatch, ["session"])))
