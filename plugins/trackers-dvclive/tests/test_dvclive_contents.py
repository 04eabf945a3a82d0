"""Where each kind of what a run logs lies for DVC: the column of docs/choosing-trackers.md, in DVCLive's folder."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from tests.backends import contents
from tests.backends.contents import NONE, TOKENS, Cell, has_box, has_mask
from trackers.readers import registry
from trackers.records import Metrics
from trackers.tracker import RunInfo


class Dvclive:
    """The folder's files."""

    def __init__(self, info: RunInfo) -> None:
        import yaml

        self.folder = info.path("dvclive")
        reader, (run,) = registry.open_source(f"dvclive:{self.folder}")
        rows = [record for record in reader.read(run) if isinstance(record, Metrics)]
        self.samples = {name: (row.step, value) for row in rows for name, value in row.values.items()}
        self.metrics = json.loads((self.folder / "metrics.json").read_text())
        self.params = yaml.safe_load((self.folder / "params.yaml").read_text())
        self.artifacts = yaml.safe_load((self.folder / "dvc.yaml").read_text())["artifacts"]

    def steps(self, name: str) -> list[str]:
        with (self.folder / f"plots/metrics/{name}.tsv").open(newline="") as file:
            return [row["step"] for row in csv.DictReader(file, delimiter="\t")]

    def has(self, name: str, part: bytes = b"") -> bool:
        return part in (self.folder / name).read_bytes()


COLUMN = {
    "numbers of a step": Cell(
        "`dvc plots show`; the last ones: `metrics.json`", lambda s: s.steps("train/loss") == ["0", "1", "2", "3"]
    ),
    "several calls of `log` at one step": Cell("that step", lambda s: s.steps("val/loss") == ["3"]),
    "a metric with a step metric (`define_metric`)": Cell("at training's step", lambda s: s.steps("val/loss") == ["3"]),
    "texts and media with a step metric": Cell("as metrics", lambda s: s.has("plots/images/val/picture/3.png")),
    "results (`final/…`, `run.summary`)": Cell("`dvc metrics show`", lambda s: s.metrics["final"]["accuracy"] == 0.9),
    "results that are texts": Cell("`dvc metrics show`", lambda s: s.metrics["final"]["verdict"] == "good"),
    "energy, tokens of spans (results that nobody asked for)": Cell(
        "a file: `trackers.json`",
        lambda s: s.has("trackers.json", TOKENS.encode()) and TOKENS not in s.metrics["final"],
    ),
    "texts": Cell("a file: `text/NAME.jsonl`", lambda s: s.has("text/story.jsonl", b"once **upon**")),
    "images": Cell("`dvc plots show`", lambda s: s.has("plots/images/picture/3.png", b"PNG")),
    "captions": NONE,
    "boxes and masks": Cell(
        "drawn into the image",
        lambda s: (
            has_box((s.folder / "plots/images/boxed/3.png").read_bytes())
            and has_mask((s.folder / "plots/images/masked/3.png").read_bytes())
        ),
    ),
    "audio": Cell("a file: `media/…`", lambda s: s.has("media/sound/3.wav", b"WAVE")),
    "video": Cell("a file: `media/…`", lambda s: s.has("media/clip/3.gif", b"GIF")),
    "tables": Cell("a file: `tables/…`, CSV", lambda s: s.has("tables/rows/3.csv", b"1,leaf")),
    "samples of language models (`run.log_samples`)": Cell(
        "a file: `tables/…`, CSV", lambda s: s.has("tables/chats/3.csv", b"1,2+2,4")
    ),
    "histograms": Cell("`dvc plots show`, as bars", lambda s: s.has("plots/histograms/weights/3.json", b"count")),
    "figures (matplotlib, plotly)": Cell("as images", lambda s: s.has("plots/images/figure/3.png")),
    "HTML": Cell("a file: `media/…`", lambda s: s.has("media/page/3.html", b"bold")),
    "models (artifacts of type `model`)": Cell(
        "the model registry, `dvc artifacts`", lambda s: s.artifacts["detector"]["type"] == "model"
    ),
    "data sets (artifacts of type `dataset`)": Cell(
        "`dvc artifacts`", lambda s: s.artifacts["rows"]["type"] == "dataset"
    ),
    "files (`run.save`, other artifacts)": Cell(
        "`dvc artifacts`", lambda s: s.has("artifacts/notes.txt/notes.txt", b"kept")
    ),
    "spans": Cell("a file: the table `spans`", lambda s: s.has("tables/spans/3.csv", b"answer")),
    "alerts": NONE,
    "what training printed": NONE,
    "samples of the GPUs and the host": Cell(
        "`dvc plots show`, over the time",
        lambda s: (
            s.has("plots/system/system.gpu.0.powerWatts.tsv", b"125.0")
            and [str(p.relative_to(s.folder)) for p in s.folder.rglob("*util*")]
            == ["plots/system/gpu/compute_util_avg.tsv"]
            and s.samples["system.gpu.0.powerWatts"] == (None, 125.0)
            and set(s.metrics) == {"step", "epoch", "train", "val", "final"}
            and s.samples["gpu/compute_util_avg"] == (None, 50.0)
        ),
    ),
    "configuration": Cell("`dvc params diff`", lambda s: s.params["model"] == {"depth": 4}),
    "name": Cell("the folder's, where `DVCLIVE_DIR` is set"),
    "tags": NONE,
    "notes": NONE,
    "group, job type": NONE,
    "how it ended": NONE,
    "machine": NONE,
}


@pytest.mark.processes
def test_content_lies_where_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One run with all kinds of content is in DVCLive's folder as the page's column says."""
    info = contents.delivered(tmp_path, monkeypatch, ["dvclive"], job=True)
    contents.check("dvclive", COLUMN, Dvclive(info), elsewhere=["name"])


def test_folder_has_the_runs_name_where_others_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one place in which DVC shows a name is the path of a folder."""
    monkeypatch.setenv("DVCLIVE_DIR", str(tmp_path / "all"))
    contents.delivered(tmp_path, monkeypatch, ["dvclive"], job=True)
    assert (tmp_path / "all/baseline-contents1/metrics.json").is_file()


@pytest.mark.slow
def test_users_wish_for_the_hardware_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``TRACKER_GPU_METRICS=ranges``: smallest and largest values, too; ``training``: at its steps."""

    def steps(info: RunInfo) -> dict[str, int | None]:
        store = Dvclive(info)
        assert ("gpu" in store.metrics) == (info.option("TRACKER_GPU_METRICS") == "training")
        return {name: step for name, (step, _) in store.samples.items() if "util" in name}

    contents.check_wishes(tmp_path, monkeypatch, "dvclive", steps)
