"""Where each kind of what a run logs lands in each tracker: the table of docs/choosing-trackers.md, and how to see it.

A cell is what the page says, and what a store must then hold: ``python -m tests.backends.contents`` prints the table,
``test_contents.py`` logs one run of all kinds and looks into the stores without our readers.
"""

from __future__ import annotations

import csv
import json
import os
import sqlite3
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests import ROOT, forked
from tests.stores import wandb_records
from trackers.formats.pixels import open_picture
from trackers.journal.run_directory import RunDirectory, StreamName
from trackers.journal.stream import StreamWriter
from trackers.records import Environment, Metrics, encode
from trackers.relay.delivery.delivery import Delivery
from trackers.tracker import RunInfo

PAGE = ROOT / "docs/choosing-trackers.md"
SCRIPT = """
import sys
from pathlib import Path

import numpy as np
from PIL import Image

import trackers

Path("notes.txt").write_text("kept")
Path("rows.csv").write_text("a,b\\n1,2\\n")
Path("model").mkdir()
Path("model/weights.bin").write_bytes(b"weights")
Image.fromarray(np.zeros((4, 4, 3), np.uint8)).save("clip.gif")
run = trackers.init(
    project="contents", name="baseline", id="contents1", group="paper", job_type="train", tags=["first"],
    notes="A **note**.", config={"lr": 0.1, "model": {"depth": 4}, "model_name": "tiny"},
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
mask = {"mask_data": pixels[:, :, 0] // 200, "class_labels": {1: "leaf"}}
try:
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    drawn, axes = plt.subplots()
    axes.plot([1, 2])
except ImportError:  # the environment of the vendors' clients has none
    drawn = trackers.Image(pixels)
run.log({
    "picture": trackers.Image(pixels, caption="four by four"),
    "boxed": trackers.Image(pixels, boxes={"predictions": box}),
    "masked": trackers.Image(pixels, masks={"predictions": mask}),
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
run.log_samples("chats", [{"id": 1, "prompt": "2+2", "completion": "4", "reward": 1.0}], step=3)
with run.span("answer", kind="llm", inputs="Which leaf?") as span:
    span.outputs = "oak"
    span.set({"gen_ai.usage.input_tokens": 40})
run.alert("Loss is low", "0.25")
run.log({"final/accuracy": 0.9})
run.summary["verdict"] = "good"
sys.exit(3)
"""
CARD = {"name": "NVIDIA H100 80GB HBM3", "vendor": "nvidia", "memory_total_bytes": 80_000_000_000}


def delivered(home: Path, monkeypatch: pytest.MonkeyPatch, trackers: list[str], job: bool = False) -> RunInfo:
    """A run with all kinds of content, in these trackers' stores; ``job``: also with a sum over the job's GPUs."""
    variables = {
        "WANDB_SILENT": "true", "MLFLOW_TRACKING_URI": f"sqlite:///{home}/mlflow.db", "TRACKER_MODE": "offline",
        "TRACKER": ",".join(trackers), "TRACKER_CONSOLE_CAPTURE": "python",
    }  # fmt: skip
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    script = home / "train.py"
    script.write_text(SCRIPT)
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])}
    done = forked.run([sys.executable, str(script)], cwd=home, env=environ, preload=forked.LIGHT)
    assert done.returncode == 3, done.stderr
    directory = RunDirectory(home / "runs/contents/contents1")
    sampler = StreamWriter(directory.stream(StreamName("sampler", 0, 1)))
    at = directory.read_info().created + 0.001
    described = {"gpus": {"0": CARD}, "machines": {"node0": {"processor": "AMD EPYC"}}}
    sampler.write(encode(Environment(time=at, values=described)))
    sampler.write(encode(Metrics(time=at, values={"system.cpu": 12.5, "system.gpu.0.powerWatts": 125.0})))
    if job:
        values = {"gpu/compute_util_avg": 50.0, "gpu/compute_util_avg.max": 60.0}
        sampler.write(encode(Metrics(step=3, time=at + 0.001, values=values)))
    sampler.release()
    for tracker in trackers:
        delivery = Delivery(directory, tracker, say=print, alone=False)
        assert any(delivery.step() is None for _ in range(2000)), tracker
    return directory.read_info()


def check(name: str, column: Mapping[str, Cell], store: Any, elsewhere: Sequence[str] = ()) -> None:
    """Check a tracker's column against its store, and that the page has it; each kind has a word.

    Args:
        elsewhere: kinds that other tests look for.
    """
    missing = lacking(column, store)
    assert not missing, missing
    assert untested(column) == list(elsewhere)
    assert list(column) == list(TABLE)
    assert page_column(name) == {kind: cell.words for kind, cell in column.items()}, page_column(name)


def check_wishes(
    home: Path, monkeypatch: pytest.MonkeyPatch, name: str, steps: Callable[[RunInfo], dict[str, int | None]]
) -> None:
    """Check that a tracker with a view of the system has a job's GPUs where ``TRACKER_GPU_METRICS`` says.

    Args:
        steps: the steps of what the store has of their utilisation, by our names; None in the view of the system.
    """
    for wish, step in (("ranges", None), ("training", 3)):
        (folder := home / wish).mkdir()
        monkeypatch.setenv("TRACKER_GPU_METRICS", wish)
        found = steps(delivered(folder, monkeypatch, [name], job=True))
        assert found == {"gpu/compute_util_avg": step, "gpu/compute_util_avg.max": step}, wish


def page_column(name: str) -> dict[str, str]:
    """What the page says of each kind for a tracker."""
    for block in PAGE.read_text().split("\n\n"):
        head, *rows = ([cell.strip() for cell in line.split("|")[1:-1]] for line in block.splitlines())
        if f"`{name}`" in head:
            return {row[0]: row[head.index(f"`{name}`")] for row in rows[1:]}
    raise AssertionError(f"no column {name}")


def lacking(column: Mapping[str, Cell], store: Any) -> list[str]:
    """The kinds that a store hasn't where its column says."""
    return [kind for kind, cell in column.items() if cell.holds is not None and not cell.holds(store)]


def untested(column: Mapping[str, Cell]) -> list[str]:
    """The kinds of which the page says something that nothing looks for."""
    return [kind for kind, cell in column.items() if cell.holds is None and cell != NONE]


class Cell(NamedTuple):
    """words: of the page. holds: whether a store has it; None where the page says that it hasn't."""

    words: str
    holds: Callable[[Any], Any] | None = None


class Wandb:
    """The records of the ``.wandb`` files."""

    def __init__(self, info: RunInfo) -> None:
        self.records: dict[str, list[Any]] = {}
        self.row: dict[str, Any] = {}
        self.rows: list[dict[str, Any]] = []
        self.summary: dict[str, Any] = {}
        self.config: dict[str, Any] = {}
        for path in sorted(info.path("wandb").rglob("*.wandb")):
            for record in wandb_records(path):
                kind = record.WhichOneof("record_type")
                part = getattr(record, kind)
                self.records.setdefault(kind, []).append(part)
                if kind == "history":
                    self.rows.append(_items(part.item))
                    self.row |= self.rows[-1]
                elif kind == "summary":
                    self.summary |= _items(part.update)
                elif kind == "config":
                    self.config |= _items(part.update)
        (self.run, *_) = self.records["run"]
        self.printed = "".join(line.line for line in self.records["output_raw"])
        self.samples = {item.key for stats in self.records["stats"] for item in stats.item}

    def media(self, name: str) -> Any:
        """The type of a value of the history, and its other fields."""
        return self.row[name]["_type"], self.row[name]

    def artifact(self, name: str) -> str:
        return next((str(one.type) for one in self.records["artifact"] if one.name == name), "")


def _items(items: Any) -> dict[str, Any]:
    return {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in items}


class Mlflow:
    """The run, its files, its traces and its models, by MLflow's own client."""

    def __init__(self, info: RunInfo) -> None:
        from mlflow import MlflowClient

        self.client = MlflowClient(str(info.option("MLFLOW_TRACKING_URI")))
        experiments = [experiment.experiment_id for experiment in self.client.search_experiments()]
        (self.run,) = self.client.search_runs(experiments, f"tags.`trackers.run_id` = '{info.id}'")
        self.metrics, self.params, self.tags = self.run.data.metrics, self.run.data.params, self.run.data.tags
        self.is_old = not hasattr(self.client, "search_logged_models")  # MLflow 2 has neither of the two
        self.traces = [] if self.is_old else self.client.search_traces(locations=experiments)
        found = [] if self.is_old else self.client.search_logged_models(experiments)
        self.models = {model.name: model for model in found}
        self.datasets = {entry.dataset.name for entry in self.run.inputs.dataset_inputs}
        self.files = {path.split("/step-")[0]: path for path in self._walk("")}

    def _walk(self, folder: str) -> list[str]:
        entries = self.client.list_artifacts(self.run.info.run_id, folder or None)
        return [path for entry in entries for path in (self._walk(entry.path) if entry.is_dir else [entry.path])]

    def text(self, path: str) -> str:
        return Path(self.client.download_artifacts(self.run.info.run_id, self.files[path])).read_text()

    def image(self, name: str) -> bool:
        return any(path.startswith(f"images/{name}+step+3+") and path.endswith(".png") for path in self.files)

    def shown(self, name: str) -> bytes:
        """The picture that the page shows of an image."""
        path = next(path for path in self.files if path.startswith(f"images/{name}+") and path.endswith(".webp"))
        return Path(self.client.download_artifacts(self.run.info.run_id, path)).read_bytes()

    def steps(self, name: str) -> list[int]:
        return [point.step for point in self.client.get_metric_history(self.run.info.run_id, name)]


class Tensorboard:
    """The event files, by TensorBoard's own accumulator."""

    def __init__(self, info: RunInfo) -> None:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        from tensorboard.plugins.hparams.metadata import parse_session_start_info_plugin_data

        (folder,) = {path.parent for path in info.path("tensorboard").rglob("events*")}
        events = EventAccumulator(str(folder), size_guidance={"tensors": 0, "scalars": 0})
        events.Reload()
        self.run = folder.name
        tags = events.Tags()
        self.scalars = {tag: [event.step for event in events.Scalars(tag)] for tag in tags["scalars"]}
        self.steps = {tag: [event.step for event in events.Tensors(tag)] for tag in tags["tensors"]}
        self.plugins = {tag: events.SummaryMetadata(tag).plugin_data.plugin_name for tag in tags["tensors"]}
        self.texts = {
            tag: "\n".join(s.decode() for event in events.Tensors(tag) for s in event.tensor_proto.string_val)
            for tag, plugin in self.plugins.items() if plugin == "text"
        }  # fmt: skip
        self.pictures = {
            tag: events.Tensors(tag)[0].tensor_proto.string_val[2]
            for tag, plugin in self.plugins.items() if plugin == "images"
        }  # fmt: skip
        self.card = self.texts["trackers/run"]
        start = events.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
        self.hparams = parse_session_start_info_plugin_data(start).hparams


class Trackio:
    """The project's SQLite file, and the folders beside it."""

    def __init__(self, info: RunInfo) -> None:
        home = Path(os.environ["TRACKIO_DIR"])
        database = sqlite3.connect(home / f"{info.project}.db")
        try:

            def rows(query: str) -> list[Any]:
                return database.execute(query).fetchall()

            self.rows = {step: json.loads(row) for step, row in rows("SELECT step, metrics FROM metrics ORDER BY id")}
            self.steps = [step for (step,) in rows("SELECT step FROM metrics ORDER BY id")]
            self.row = {name: value for row in self.rows.values() for name, value in row.items()}
            self.system = {name for (row,) in rows("SELECT metrics FROM system_metrics") for name in json.loads(row)}
            self.config = json.loads(rows("SELECT config FROM configs")[0][0])
            self.traces = {key: json.loads(messages) for key, messages in rows("SELECT key, messages FROM traces")}
            self.alerts = rows("SELECT title, text FROM alerts")
            self.artifacts = dict(rows("SELECT name, type FROM artifacts"))
            self.name = rows("SELECT run_name FROM metrics LIMIT 1")[0][0]
        finally:
            database.close()
        self.home = home / "media"
        files = self.home / info.project / "files" / f"{info.name}-{info.id}"
        self.files = {path.name: path.read_text() for path in files.iterdir()}

    def media(self, name: str) -> Any:
        return self.row[name]["_type"].removeprefix("trackio."), self.row[name]

    def file(self, name: str) -> bytes:
        return (self.home / self.row[name]["file_path"]).read_bytes()


class Json:
    """The JSON log."""

    def __init__(self, info: RunInfo) -> None:
        (path,) = (path for path in info.path().glob("*.json") if '"training_iterations"' in path.read_text())
        self.log = json.loads(path.read_text())
        self.media = {item["name"]: item for item in self.log["media"]}
        self.artifacts = {item["name"]: item["type"] for item in self.log["artifacts"]}
        self.printed = path.with_name(f"{path.stem}.console.log").read_text()
        self.kept = all(info.path(item["file"]).is_file() for item in self.log["media"] if "file" in item)


class Csv:
    """``metrics.csv`` and ``summary.csv``."""

    def __init__(self, info: RunInfo) -> None:
        with open(info.path("metrics.csv"), newline="") as file:
            self.rows = list(csv.DictReader(file))
        with open(info.path("summary.csv"), newline="") as file:
            self.results = {row["name"]: row["value"] for row in csv.DictReader(file)}

    def values(self, name: str) -> list[str]:
        return [row[name] for row in self.rows if row.get(name)]


STORES: Mapping[str, Callable[[RunInfo], Any]] = {
    "wandb": Wandb, "mlflow": Mlflow, "tensorboard": Tensorboard, "trackio": Trackio, "json": Json, "csv": Csv,
}  # fmt: skip
NONE = Cell("–")
TOKENS = "gen_ai.usage.input_tokens"


def _is_chat(trace: Any) -> bool:
    return bool(trace.data.spans[0].name == "chats")


def has_box(content: bytes) -> bool:
    """Whether a picture of one colour has something drawn into it."""
    return len(open_picture(content).convert("RGB").getcolors(1 << 16)) > 1


def has_mask(content: bytes) -> bool:
    """Whether a grey picture has a colour that its mask, which covers all of it, shines with."""
    picture = open_picture(content).convert("RGB")
    red, green, blue = picture.getpixel((picture.width - 1, picture.height - 1))
    return not red == green == blue


TABLE: Mapping[str, Mapping[str, Cell]] = {
    "numbers of a step": {
        "wandb": Cell(
            "Charts, over `global_step`",
            lambda s: (
                [row["train/loss"] for row in s.rows if "train/loss" in row] == [1.0, 0.5, 1 / 3, 0.25]
                and all(row["global_step"] == row["_step"] for row in s.rows if "train/loss" in row)
            ),
        ),
        "mlflow": Cell("Model metrics", lambda s: s.steps("train/loss") == [0, 1, 2, 3]),
        "tensorboard": Cell("Scalars, Time series", lambda s: s.scalars["train/loss"] == [0, 1, 2, 3]),
        "trackio": Cell("Metrics", lambda s: [row["train/loss"] for row in s.rows.values()][:2] == [1.0, 0.5]),
        "json": Cell("`training_iterations`", lambda s: s.log["training_iterations"][0]["loss"] == 1.0),
        "csv": Cell("a column of `metrics.csv`", lambda s: s.values("train/loss")[0] == "1.0"),
    },
    "several calls of `log` at one step": {
        "wandb": Cell("one row", lambda s: {"train/loss", "val/loss", "story", "picture"} <= s.rows[3].keys()),
        "mlflow": Cell("that step", lambda s: s.steps("train/rate") == s.steps("train/loss")),
        "tensorboard": Cell("that step", lambda s: s.scalars["train/rate"] == s.scalars["train/loss"]),
        "trackio": Cell(
            "one row", lambda s: s.steps == [0, 1, 2, 3] and {"train/loss", "val/loss"} <= s.rows[3].keys()
        ),
        "json": Cell("an entry, validation apart in `eval_steps`", lambda s: s.log["eval_steps"][0]["val_loss"] == 0.5),
        "csv": Cell("rows with the same step", lambda s: [r["step"] for r in s.rows if r["val/loss"]] == ["3"]),
    },
    "a metric with a step metric (`define_metric`)": {
        "wandb": Cell(
            "the step metric is the chart's x axis",
            lambda s: any(one.name == "val/loss" and one.step_metric == "epoch" for one in s.records["metric"]),
        ),
        "mlflow": Cell("at the step metric's value", lambda s: (s.steps("val/loss"), s.steps("epoch")) == ([1], [3])),
        "tensorboard": Cell(
            "at the step metric's value", lambda s: (s.scalars["val/loss"], s.scalars["epoch"]) == ([1], [3])
        ),
        "trackio": Cell("at training's step; any metric can be the x axis", lambda s: s.rows[3]["val/loss"] == 0.5),
        "json": Cell("`eval_steps`, at training's step", lambda s: s.log["eval_steps"][0]["iter"] == 3),
        "csv": Cell("at training's step", lambda s: [row["step"] for row in s.rows if row["val/loss"]] == ["3"]),
    },
    "texts and media with a step metric": {
        "wandb": Cell("beside it, in its row", lambda s: {"val/picture", "val/note", "epoch"} <= s.rows[3].keys()),
        "mlflow": Cell(
            "as metrics",
            lambda s: (
                any(path.startswith("images/val") and "+step+1+" in path for path in s.files)
                and '"step": 1' in s.text("text/val~note.jsonl")
            ),
        ),
        "tensorboard": Cell("as metrics", lambda s: s.steps["val/picture"] == s.steps["val/note"] == [1]),
        "trackio": Cell("as metrics", lambda s: {"val/picture", "val/note"} <= s.rows[3].keys()),
        "json": Cell("as metrics", lambda s: s.media["val/picture"]["iter"] == 3),
        "csv": Cell("texts: as metrics", lambda s: [row["step"] for row in s.rows if row["val/note"]] == ["3"]),
    },
    "results (`final/…`, `run.summary`)": {
        "wandb": Cell("Summary, columns of the runs' table", lambda s: s.summary["final/accuracy"] == 0.9),
        "mlflow": Cell(
            "a metric of one point, a bar that compares runs; `summary.json`",
            lambda s: s.steps("final/accuracy") == [0] and '"final/accuracy": 0.9' in s.text("summary.json"),
        ),
        "tensorboard": Cell("columns of HPARAMS", lambda s: s.hparams[" final/accuracy"].number_value == 0.9),
        "trackio": Cell(
            "Runs, among the configuration; a report at the end",
            lambda s: s.config["final/accuracy"] == 0.9 and "0.9" in s.row["trackers/results"]["_value"],
        ),
        "json": Cell("`summary`", lambda s: s.log["summary"]["accuracy"] == 0.9),
        "csv": Cell("`summary.csv`", lambda s: s.results["accuracy"] == "0.9"),
    },
    "results that are texts": {
        "wandb": Cell("Summary", lambda s: s.summary["verdict"] == "good"),
        "mlflow": Cell(
            "tags of up to 8,000 characters, filtered by `tags.…`; `summary.json` has them whole",
            lambda s: s.tags["final/verdict"] == "good",
        ),
        "tensorboard": Cell("columns of HPARAMS", lambda s: s.hparams[" final/verdict"].string_value == "good"),
        "trackio": Cell("as above", lambda s: s.config["final/verdict"] == "good"),
        "json": Cell("`summary`", lambda s: s.log["summary"]["verdict"] == "good"),
        "csv": Cell("`summary.csv`", lambda s: s.results["verdict"] == "good"),
    },
    "energy, tokens of spans (results that nobody asked for)": {
        "wandb": Cell("hidden in the summary, `_trackers`", lambda s: s.summary[f"_trackers.final/{TOKENS}"] == 40),
        "mlflow": Cell(
            "Artifacts, `summary.json`",
            lambda s: f"final/{TOKENS}" not in s.metrics and f'"final/{TOKENS}": 40' in s.text("summary.json"),
        ),
        "tensorboard": Cell(
            "Text, card `trackers/run`", lambda s: f" final/{TOKENS}" not in s.hparams and TOKENS in s.card
        ),
        "trackio": Cell(
            "Runs, `trackers/…`",
            lambda s: (s.config[f"trackers/{TOKENS}"], f"final/{TOKENS}" in s.config) == (40, False),
        ),
        "json": Cell("`summary`", lambda s: s.log["summary"][TOKENS] == 40),
        "csv": Cell("`summary.csv`", lambda s: s.results[TOKENS] == "40"),
    },
    "texts": {
        "wandb": Cell("Charts, as text", lambda s: s.row["story"] == "once **upon**"),
        "mlflow": Cell("Artifacts, `text/NAME.jsonl`", lambda s: "once **upon**" in s.text("text/story.jsonl")),
        "tensorboard": Cell("Text, as Markdown", lambda s: s.texts["story"] == "once **upon**"),
        "trackio": Cell(
            "Alerts & Reports, as Markdown",
            lambda s: s.media("story") == ("markdown", {"_type": "trackio.markdown", "_value": "once **upon**"}),
        ),
        "json": Cell("`text`", lambda s: "once **upon**" in [item["text"] for item in s.log["text"]]),
        "csv": Cell("a column", lambda s: s.values("story") == ["once **upon**"]),
    },
    "images": {
        "wandb": Cell("Media", lambda s: s.media("picture")[0] == "image-file"),
        "mlflow": Cell(
            "Model metrics, by step", lambda s: s.image("picture") and s.tags["mlflow.loggedImages"] == "True"
        ),
        "tensorboard": Cell("Images", lambda s: s.plugins["picture"] == "images"),
        "trackio": Cell("Media & Tables", lambda s: s.media("picture")[0] == "image"),
        "json": Cell("`media`, by file", lambda s: s.media["picture"]["type"] == "image" and s.kept),
        "csv": NONE,
    },
    "captions": {
        "wandb": Cell("beneath the image", lambda s: s.media("picture")[1]["caption"] == "four by four"),
        "mlflow": Cell(
            "beneath the image, in the picture",
            lambda s: open_picture(s.shown("picture")).height > open_picture(s.shown("boxed")).height,
        ),
        "tensorboard": Cell("Text, `NAME/caption`", lambda s: "four by four" in s.texts["picture/caption"]),
        "trackio": Cell("beneath the image", lambda s: s.media("picture")[1]["caption"] == "four by four"),
        "json": Cell("`caption`", lambda s: s.media["picture"]["caption"] == "four by four"),
        "csv": NONE,
    },
    "boxes and masks": {
        "wandb": Cell(
            "over the image, each can be hidden",
            lambda s: "predictions" in s.media("boxed")[1]["boxes"] and "predictions" in s.media("masked")[1]["masks"],
        ),
        "mlflow": Cell("drawn into the image", lambda s: has_box(s.shown("boxed")) and has_mask(s.shown("masked"))),
        "tensorboard": Cell(
            "drawn into the image", lambda s: has_box(s.pictures["boxed"]) and has_mask(s.pictures["masked"])
        ),
        "trackio": Cell("drawn into the image", lambda s: has_box(s.file("boxed")) and has_mask(s.file("masked"))),
        "json": Cell(
            "`boxes`, `masks`", lambda s: "boxes" in str(s.media["boxed"]) and "masks" in str(s.media["masked"])
        ),
        "csv": NONE,
    },
    "audio": {
        "wandb": Cell("Media", lambda s: s.media("sound")[0] == "audio-file"),
        "mlflow": Cell("Artifacts, `audio/…`", lambda s: s.files["audio/sound"].endswith((".wav", ".json"))),
        "tensorboard": Cell("Audio", lambda s: s.plugins["sound"] == "audio"),
        "trackio": Cell("Media & Tables", lambda s: s.media("sound")[0] == "audio"),
        "json": Cell("`media`, by file", lambda s: s.media["sound"]["type"] == "audio" and s.kept),
        "csv": NONE,
    },
    "video": {
        "wandb": Cell("Media", lambda s: s.media("clip")[0] == "video-file"),
        "mlflow": Cell("Artifacts, `video/…`", lambda s: s.files["video/clip"].endswith(".gif")),
        "tensorboard": Cell("Images, of a GIF; else its file's name as text", lambda s: s.plugins["clip"] == "images"),
        "trackio": Cell("Media & Tables", lambda s: s.media("clip")[0] == "video"),
        "json": Cell("`media`, by file", lambda s: s.media["clip"]["type"] == "video" and s.kept),
        "csv": NONE,
    },
    "tables": {
        "wandb": Cell("Tables", lambda s: s.media("rows")[0] == "table-file"),
        "mlflow": Cell(
            "Evaluation, where runs are compared; each version in Artifacts",
            lambda s: (
                json.loads(s.text("tables/rows.json"))["data"] == [[1, "leaf"]]
                and "tables/rows.json" in s.tags["mlflow.loggedArtifacts"]
                and "tables/rows" in s.files
            ),
        ),
        "tensorboard": Cell("Text, as Markdown", lambda s: "| 1 | leaf |" in s.texts["rows"]),
        "trackio": Cell("Media & Tables", lambda s: s.media("rows")[1]["_value"] == [{"id": 1, "label": "leaf"}]),
        "json": Cell("`media`", lambda s: s.media["rows"]["type"] == "table" and s.kept),
        "csv": NONE,
    },
    "samples of language models (`run.log_samples`)": {
        "wandb": Cell("Tables", lambda s: s.media("chats")[0] == "table-file"),
        "mlflow": Cell(
            "Traces; a table in Evaluation",
            lambda s: (
                "tables/chats.json" in s.tags["mlflow.loggedArtifacts"]
                and (s.is_old or [one.data.spans[0].attributes["reward"] for one in s.traces if _is_chat(one)] == [1.0])
            ),
        ),
        "tensorboard": Cell("Text, as Markdown", lambda s: "| 1 | 2+2 | 4 | 1.0 |" in s.texts["chats"]),
        "trackio": Cell(
            "Traces; Media & Tables",
            lambda s: s.traces["chats"][1] == {"role": "assistant", "content": "4"} and s.media("chats")[0] == "table",
        ),
        "json": Cell("`media`", lambda s: s.media["chats"]["type"] == "table"),
        "csv": NONE,
    },
    "histograms": {
        "wandb": Cell("Charts", lambda s: s.media("weights")[0] == "histogram"),
        "mlflow": Cell(
            "Artifacts, pictures in `histograms/…`",
            lambda s: s.files["histograms/weights"].endswith((".png", ".json")),
        ),
        "tensorboard": Cell("Histograms, Distributions", lambda s: s.plugins["weights"] == "histograms"),
        "trackio": Cell("Metrics", lambda s: s.media("weights")[0] == "histogram"),
        "json": Cell("`media`", lambda s: s.media["weights"]["type"] == "histogram"),
        "csv": NONE,
    },
    "figures (matplotlib, plotly)": {
        "wandb": Cell("Media", lambda s: s.media("figure")[0] in ("image-file", "plotly-file")),
        "mlflow": Cell("as images", lambda s: s.image("figure")),
        "tensorboard": Cell("Images", lambda s: s.plugins["figure"] == "images"),
        "trackio": Cell("Media & Tables", lambda s: s.media("figure")[0] == "image"),
        "json": Cell("`media`, by file", lambda s: "figure" in s.media and s.kept),
        "csv": NONE,
    },
    "HTML": {
        "wandb": Cell("Media", lambda s: s.media("page")[0] == "html-file"),
        "mlflow": Cell("Artifacts, shown as a page", lambda s: s.files["html/page"].endswith(".html")),
        "tensorboard": Cell("Text: its file's name", lambda s: ".html" in s.texts["page"]),
        "trackio": Cell("Media & Tables: its file", lambda s: s.media("page")[0] == "html"),
        "json": Cell("`media`, by file", lambda s: s.media["page"]["type"] == "html" and s.kept),
        "csv": NONE,
    },
    "models (artifacts of type `model`)": {
        "wandb": Cell("Artifacts", lambda s: s.artifact("detector") == "model"),
        "mlflow": Cell(
            "Models, with the metrics that the run had then; Artifacts", lambda s: s.is_old or "detector" in s.models
        ),
        "tensorboard": Cell("Text, card `trackers/run`: its files' names", lambda s: "model **detector**" in s.card),
        "trackio": Cell("Artifacts", lambda s: s.artifacts["detector"] == "model"),
        "json": Cell("`checkpoints`", lambda s: s.log["checkpoints"][0]["name"] == "detector"),
        "csv": NONE,
    },
    "data sets (artifacts of type `dataset`)": {
        "wandb": Cell("Artifacts", lambda s: s.artifact("rows") == "dataset"),
        "mlflow": Cell("Datasets used; Artifacts", lambda s: s.datasets == {"rows"}),
        "tensorboard": Cell("as models", lambda s: "dataset **rows**" in s.card),
        "trackio": Cell("Artifacts", lambda s: s.artifacts["rows"] == "dataset"),
        "json": Cell("`artifacts`", lambda s: s.artifacts["rows"] == "dataset"),
        "csv": NONE,
    },
    "files (`run.save`, other artifacts)": {
        "wandb": Cell("Artifacts", lambda s: s.artifact("notes.txt") == "file"),
        "mlflow": Cell("Artifacts", lambda s: "artifacts/notes.txt" in s.files),
        "tensorboard": Cell("as models", lambda s: "**notes.txt**" in s.card),
        "trackio": Cell("Artifacts", lambda s: s.artifacts["notes.txt"] == "file"),
        "json": Cell("`artifacts`", lambda s: s.artifacts["notes.txt"] == "file"),
        "csv": NONE,
    },
    "spans": {
        "wandb": Cell("the table `spans`", lambda s: s.media("spans")[0] == "table-file"),
        "mlflow": Cell(
            "Traces",
            lambda s: (
                s.is_old or [one.info.request_preview for one in s.traces if not _is_chat(one)] == ['"Which leaf?"']
            ),
        ),
        "tensorboard": Cell("Text, the table `spans`", lambda s: "| answer | llm |" in s.texts["spans"]),
        "trackio": Cell("Traces", lambda s: s.traces["answer"][1] == {"role": "assistant", "content": "oak"}),
        "json": Cell("the table `spans`", lambda s: s.media["spans"]["type"] == "table"),
        "csv": NONE,
    },
    "alerts": {
        "wandb": Cell("Alerts", lambda s: s.records["alert"][0].title == "Loss is low"),
        "mlflow": Cell("Artifacts, `text/alerts.jsonl`", lambda s: "Loss is low" in s.text("text/alerts.jsonl")),
        "tensorboard": Cell("Text, card `trackers/run`", lambda s: "Loss is low" in s.card),
        "trackio": Cell("Alerts & Reports", lambda s: s.alerts == [("Loss is low", "0.25")]),
        "json": Cell("`alerts`", lambda s: s.log["alerts"][0]["title"] == "Loss is low"),
        "csv": NONE,
    },
    "what training printed": {
        "wandb": Cell("Logs", lambda s: "printed by training" in s.printed),
        "mlflow": Cell("Artifacts, `console.log`", lambda s: "printed by training" in s.text("console.log")),
        "tensorboard": NONE,
        "trackio": Cell("Files, `NAME-ID/console.log`", lambda s: "printed by training" in s.files["console.log"]),
        "json": Cell("a file beside it", lambda s: "printed by training" in s.printed),
        "csv": NONE,
    },
    "samples of the GPUs and the host": {
        "wandb": Cell(
            "System; `gpu/*` in the history, hidden from charts",
            lambda s: {"cpu", "gpu.0.powerWatts"} <= s.samples and "system.cpu" not in s.row,
        ),
        "mlflow": Cell(
            "System metrics",
            lambda s: {"system/gpu_0_power_usage_watts", "system/cpu_utilization_percentage"} <= s.metrics.keys(),
        ),
        "tensorboard": Cell("the last group, `~system`", lambda s: "~system/gpu.0.powerWatts" in s.scalars),
        "trackio": Cell(
            "System", lambda s: {"gpu/0/power", "cpu/utilization"} <= s.system and "system.cpu" not in s.row
        ),
        "json": Cell("`samples`", lambda s: s.log["samples"][0]["system.cpu"] == 12.5),
        "csv": Cell("columns", lambda s: s.values("system.cpu") == ["12.5"]),
    },
    "configuration": {
        "wandb": Cell("Config", lambda s: s.config["model"] == {"depth": 4}),
        "mlflow": Cell(
            "Parameters; whole in `config.json`", lambda s: s.params["model/depth"] == "4" and "config.json" in s.files
        ),
        "tensorboard": Cell(
            "columns of HPARAMS; Text, card `trackers/run`",
            lambda s: s.hparams["model/depth"].number_value == 4 and '"depth": 4' in s.card,
        ),
        "trackio": Cell("Runs, the run's page", lambda s: s.config["model"] == {"depth": 4}),
        "json": Cell("`config`", lambda s: s.log["config"]["model"] == {"depth": 4}),
        "csv": NONE,
    },
    "name": {
        "wandb": Cell("the run's name", lambda s: s.run.display_name == "baseline"),
        "mlflow": Cell("the run's name", lambda s: s.run.info.run_name == "baseline"),
        "tensorboard": Cell("the run's name, with its id where two are equal", lambda s: s.run == "baseline"),
        "trackio": Cell("the run's name", lambda s: s.name == "baseline"),
        "json": Cell("`run_name`", lambda s: s.log["run_name"] == "baseline"),
        "csv": NONE,
    },
    "tags": {
        "wandb": Cell("Tags", lambda s: list(s.run.tags) == ["first"]),
        "mlflow": Cell("Tags, `tags.first = 'true'`", lambda s: s.tags["first"] == "true"),
        "tensorboard": Cell("Text, card `trackers/run`", lambda s: '"first"' in s.card),
        "trackio": Cell("Runs, `trackers/tags`", lambda s: s.config["trackers/tags"] == ["first"]),
        "json": Cell("`tags`", lambda s: s.log["tags"] == ["first"]),
        "csv": NONE,
    },
    "notes": {
        "wandb": Cell("Notes", lambda s: s.run.notes == "A **note**."),
        "mlflow": Cell("Description", lambda s: s.tags["mlflow.note.content"] == "A **note**."),
        "tensorboard": Cell("Text, card `trackers/run`", lambda s: "A **note**." in s.card),
        "trackio": Cell("Runs, `trackers/notes`", lambda s: s.config["trackers/notes"] == "A **note**."),
        "json": Cell("`notes`", lambda s: s.log["notes"] == "A **note**."),
        "csv": NONE,
    },
    "group, job type": {
        "wandb": Cell("Group, Job type", lambda s: (s.run.run_group, s.run.job_type) == ("paper", "train")),
        "mlflow": Cell(
            "tags; with `MLFLOW_NESTED` a parent run",
            lambda s: (s.tags["group"], s.tags["job_type"]) == ("paper", "train"),
        ),
        "tensorboard": Cell("the column `group` of HPARAMS", lambda s: s.hparams["group"].string_value == "paper"),
        "trackio": Cell("Group", lambda s: s.config["_Group"] == "paper"),
        "json": Cell("`group`", lambda s: s.log["group"] == "paper"),
        "csv": NONE,
    },
    "how it ended": {
        "wandb": Cell("State, exit code", lambda s: s.records["exit"][-1].exit_code == 3),
        "mlflow": Cell(
            "Status; our word is the tag `trackers.status`",
            lambda s: (s.run.info.status, s.tags["trackers.status"]) == ("FAILED", "failed"),
        ),
        "tensorboard": Cell("Text, card `trackers/run`; status in HPARAMS", lambda s: "failed (exit code 3)" in s.card),
        "trackio": Cell("Runs, `trackers/status`", lambda s: s.config["trackers/status"] == "failed"),
        "json": Cell("`summary`", lambda s: s.log["summary"]["status"] == "failed"),
        "csv": Cell("`summary.csv`", lambda s: s.results["status"] == "failed"),
    },
    "machine": {
        "wandb": Cell(
            "Overview: GPUs, processor, memory, disk, OS, Python, command",
            lambda s: any(one.gpu_count == 1 for one in s.records["environment"]),
        ),
        "mlflow": Cell("Artifacts, `environment.json`", lambda s: "NVIDIA H100" in s.text("environment.json")),
        "tensorboard": Cell("Text, card `trackers/run`", lambda s: "NVIDIA H100" in s.card),
        "trackio": Cell("Files, `NAME-ID/environment.json`", lambda s: "NVIDIA H100" in s.files["environment.json"]),
        "json": Cell("`metadata`", lambda s: "NVIDIA H100" in str(s.log["metadata"])),
        "csv": NONE,
    },
}
"""By kind of content and tracker: what the page says, and how a store shows it."""


def table() -> str:
    """The table of docs/choosing-trackers.md."""
    names = [*STORES]
    lines = [f"| | {' | '.join(f'`{name}`' for name in names)} |", "|---" * (len(names) + 1) + "|"]
    lines += [f"| {kind} | {' | '.join(cells[name].words for name in names)} |" for kind, cells in TABLE.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(table(), end="")
