"""Where each kind of what a run logs lies at SwanLab: the column of docs/choosing-trackers.md, in its files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from swanlab_protocol import record_class
from swanlab_store import SWANLAB_MEDIA, leveldb_records

from tests.backends import contents
from tests.backends.contents import NONE, TOKENS, Cell, has_box, has_mask
from trackers.tracker import RunInfo


class SwanLab:
    """The records of the run's file, and the files beside it."""

    def __init__(self, info: RunInfo) -> None:
        import yaml

        (path,) = info.path("swanlab").glob("run-*/run-*.swanlab")
        self.scalars: dict[str, list[tuple[int, float]]] = {}
        self.media: dict[str, tuple[str, int, str, bytes]] = {}
        self.axes: dict[str, str] = {}
        self.logs, self.saved, self.finish = "", set(), None
        for record in map(record_class().FromString, leveldb_records(path)):
            kind = record.WhichOneof("record_type")
            item: Any = getattr(record, kind)
            if kind == "start":
                self.start = item
            elif kind == "scalar":
                self.scalars.setdefault(item.key, []).append((item.step, item.value.number))
            elif kind == "column":
                self.axes[item.column_key] = str(item)
            elif kind == "media":
                folder, first = SWANLAB_MEDIA[item.type], item.value.items[0]
                content = (path.parent / "media" / folder / first.filename).read_bytes()
                before = self.media[item.key][3] if item.key in self.media else b""
                self.media[item.key] = folder, item.step, first.caption, before + content
            elif kind == "save":
                self.saved.add(Path(item.source_path).name)
            elif kind == "log":
                self.logs += item.line
            elif kind == "finish":
                self.finish = item
        config = yaml.safe_load((path.parent / "files/config.yaml").read_text("utf-8"))
        self.config = {name: entry["value"] for name, entry in config.items()}

    def has(self, name: str, folder: str, part: bytes = b"") -> bool:
        return self.media[name][0] == folder and part in self.media[name][3]


COLUMN = {
    "numbers of a step": Cell("Charts", lambda s: [step for step, _ in s.scalars["train/loss"]] == [0, 1, 2, 3]),
    "several calls of `log` at one step": Cell("that step", lambda s: s.scalars["val/loss"] == [(3, 0.5)]),
    "a metric with a step metric (`define_metric`)": Cell(
        "the chart's x axis", lambda s: "epoch" in s.axes["val/loss"]
    ),
    "texts and media with a step metric": Cell("at training's step", lambda s: s.media["val/picture"][1] == 3),
    "results (`final/…`, `run.summary`)": Cell(
        "a value at the last step", lambda s: s.scalars["final/accuracy"] == [(3, 0.9)]
    ),
    "results that are texts": Cell("a text", lambda s: s.has("final/verdict", "text", b"good")),
    "energy, tokens of spans (results that nobody asked for)": Cell(
        "a text, `trackers/results`",
        lambda s: (
            s.has("trackers/results", "text", b'"final/' + TOKENS.encode()) and f"final/{TOKENS}" not in s.scalars
        ),
    ),
    "texts": Cell("Charts, as text", lambda s: s.has("story", "text", b"once **upon**")),
    "images": Cell("Charts", lambda s: s.has("picture", "image", b"PNG")),
    "captions": Cell("beneath the image", lambda s: s.media["picture"][2] == "four by four"),
    "boxes and masks": Cell(
        "drawn into the image", lambda s: has_box(s.media["boxed"][3]) and has_mask(s.media["masked"][3])
    ),
    "audio": Cell("Charts", lambda s: s.has("sound", "audio", b"WAVE")),
    "video": Cell("GIF: an image; else its file's name", lambda s: s.has("clip", "image", b"GIF")),
    "tables": Cell("Charts, as a table", lambda s: s.has("rows", "echarts", b'"_swanLab": "table"')),
    "samples of language models (`run.log_samples`)": Cell(
        "Charts, as a table", lambda s: s.has("chats", "echarts", b'"_swanLab": "table"')
    ),
    "histograms": Cell("Charts, as bars", lambda s: s.has("weights", "echarts", b'"bar"')),
    "figures (matplotlib, plotly)": Cell("as images", lambda s: s.has("figure", "image")),
    "HTML": Cell("Charts, as a page", lambda s: s.has("page", "html", b"bold")),
    "models (artifacts of type `model`)": Cell("Files", lambda s: "weights.bin" in s.saved),
    "data sets (artifacts of type `dataset`)": Cell("Files", lambda s: "rows.csv" in s.saved),
    "files (`run.save`, other artifacts)": Cell("Files", lambda s: "notes.txt" in s.saved),
    "spans": Cell("the table `spans`", lambda s: s.has("spans", "echarts", b"answer")),
    "alerts": Cell("Logs", lambda s: "Loss is low" in s.logs),
    "what training printed": NONE,
    "samples of the GPUs and the host": Cell(
        "System",
        lambda s: (
            s.scalars["__swanlab__.gpu.0.powerWatts"][0][1] == 125.0
            and [n for n in s.scalars if "util" in n] == ["__swanlab__.gpu/compute_util_avg"]
        ),
    ),
    "configuration": Cell("Config", lambda s: s.config["model"] == {"depth": 4}),
    "name": Cell("the run's name", lambda s: s.start.name == "baseline"),
    "tags": Cell("Tags", lambda s: list(s.start.tags) == ["first"]),
    "notes": Cell("Description", lambda s: s.start.description == "A **note**."),
    "group, job type": Cell("Group, Job type", lambda s: (s.start.group, s.start.job_type) == ("paper", "train")),
    "how it ended": Cell(
        "State, with our word and the exit code", lambda s: s.finish.error.startswith("failed (exit code 3)")
    ),
    "machine": Cell("a text", lambda s: any(b"NVIDIA H100" in content for *_, content in s.media.values())),
}


@pytest.mark.processes
def test_content_lies_where_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One run with all kinds of content is in SwanLab's files as the page's column says."""
    contents.check("swanlab", COLUMN, SwanLab(contents.delivered(tmp_path, monkeypatch, ["swanlab"], job=True)))


@pytest.mark.slow
def test_users_wish_for_the_hardware_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``TRACKER_GPU_METRICS=ranges``: smallest and largest values, too; ``training``: at its steps."""

    def steps(info: RunInfo) -> dict[str, int | None]:
        found = {name: rows[0][0] for name, rows in SwanLab(info).scalars.items() if "util" in name}
        return {n.removeprefix("__swanlab__."): None if n.startswith("__swanlab__.") else found[n] for n in found}

    contents.check_wishes(tmp_path, monkeypatch, "swanlab", steps)
