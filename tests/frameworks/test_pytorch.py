"""``SummaryWriter``: what it records is what torch's own writer writes to its event files, read by the same reader."""

from __future__ import annotations

import inspect
import io
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib.pyplot
import numpy
import PIL.Image
import pytest
import torch
from torch.utils.tensorboard import SummaryWriter as TorchWriter

import trackers
from tests.frameworks.support import READ, config, directories, info_of, journal, only, recorded, series
from trackers.errors import UsageError
from trackers.frameworks.pytorch import SummaryWriter
from trackers.readers.registry import open_source

pytestmark = pytest.mark.usefixtures("local_runs")


def test_signatures_are_those_of_torch() -> None:
    """Each public method of torch's writer is there, with the same arguments and defaults; ours come after, by name."""
    for name, method in inspect.getmembers(TorchWriter, inspect.isfunction):
        if name.startswith("_") and name not in ("__init__", "__enter__", "__exit__"):
            continue
        theirs = list(inspect.signature(method).parameters.values())
        own = list(inspect.signature(getattr(SummaryWriter, name)).parameters.values())
        shown = [(parameter.name, parameter.kind, parameter.default) for parameter in theirs]
        assert [(parameter.name, parameter.kind, parameter.default) for parameter in own[: len(theirs)]] == shown, name
        more = own[len(theirs) :]
        assert all(parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_KEYWORD) for parameter in more), name
        assert name == "__init__" or not more, name


def script(writer: Any) -> None:
    """What scripts give to a writer."""
    random = numpy.random.default_rng(0)
    image = random.random((3, 8, 8))
    for step in range(5):
        writer.add_scalar("loss", 1.0 / (step + 1), step)
        writer.add_scalar("tensor", torch.tensor(step / 2), global_step=step, new_style=True)
        writer.add_scalar("numpy", numpy.float32(step), torch.tensor(step))
    writer.add_scalar("nan", float("nan"), 1)
    writer.add_scalar("infinite", float("-inf"), 1)
    writer.add_scalar("late", 2.0, 3, walltime=1_700_000_000.5)
    writer.add_scalar("stepless", 1.0)
    writer.add_text("note", "two\nlines", 2)
    writer.add_image("chw", image, 1)
    writer.add_image("hwc", image.transpose(1, 2, 0), 1, dataformats="HWC")
    writer.add_image("grey", (image[0] * 255).astype("uint8"), 1, dataformats="HW")
    writer.add_image("tensor_image", torch.tensor(image), 2, walltime=1_700_000_001.0)
    writer.add_images("grid", random.random((4, 3, 8, 8)), 2)
    writer.add_image_with_boxes("boxes", torch.ones(3, 16, 16), torch.tensor([[2, 2, 10, 10]]), 1)
    figure, axes = matplotlib.pyplot.subplots(figsize=(1, 1))
    axes.plot([1, 2])
    writer.add_figure("figure", figure, 3)
    writer.add_histogram("histogram", random.normal(size=100), 1)
    writer.add_histogram("auto", torch.arange(10), 2, bins="auto")
    writer.add_histogram_raw("raw", 0.0, 2.0, 3, 3.0, 5.0, [1.0, 2.0], [1, 2], 1)
    writer.add_audio("audio", torch.sin(torch.arange(100) / 5), 1, sample_rate=8000)
    writer.add_pr_curve("pr", numpy.array([0, 1, 1, 0]), numpy.array([0.1, 0.9, 0.6, 0.4]), 1, num_thresholds=5)
    counts = torch.tensor([1.0, 2.0])
    writer.add_pr_curve_raw("pr_raw", counts, counts, counts, counts, counts / 4, counts / 4, 2, num_thresholds=2)


def content(source: str, files: Path) -> dict[str, Any]:
    """What a source holds, by name: steps with numbers, texts, pixels, bins, sounds."""
    files.mkdir()
    reader, runs = open_source(source)
    (run,) = runs
    found: dict[str, Any] = {}
    for record in reader.read(run, files=files) if source.startswith("tb:") else reader.read(run):
        kind = type(record).__name__
        if kind == "Metrics":
            for name, value in record.values.items():
                found.setdefault(name, []).append((record.step, float(numpy.float32(value))))
        elif kind == "Text":
            for name, value in record.values.items():
                found.setdefault(name.removesuffix("/text_summary"), []).append((record.step, value))
        elif kind == "Media":
            folder = Path(run.directory or files)
            values = [_decoded(item, folder) for item in record.items]
            found.setdefault(record.name, []).append((record.step, record.type, values))
    return found


def _decoded(item: Any, folder: Path) -> Any:
    if item.file is None or item.format == "json":
        return item.data
    data = (folder / item.file).read_bytes()
    if item.format == "npy":
        return numpy.load(io.BytesIO(data)).tolist()
    if item.format == "png":
        return numpy.asarray(PIL.Image.open(io.BytesIO(data))).tolist()
    return data


def approximate(found: dict[str, Any]) -> dict[str, Any]:
    """With bins as numbers that may differ in their last digits, and NaN by its name."""
    text = {name: [(step, str(value)) for step, value, *rest in values if not rest] for name, values in found.items()}
    return {name: values or found[name] for name, values in text.items()}


def test_everything_is_what_torch_writes() -> None:
    """In the journal, and in the event files that our tracker writes, there is what torch's own files hold."""
    with TorchWriter("torch") as writer:
        script(writer)
    with SummaryWriter("ours", trackers="json,tensorboard") as writer:
        script(writer)
    expected = approximate(content("tb:torch", Path("a")))
    (directory,) = directories()
    journaled = approximate(content(str(directory), Path("b")))
    written = approximate(content(f"tb:{directory}/tensorboard", Path("c")))
    assert len(expected) >= 20
    for name in expected:
        assert journaled[name] == expected[name], name
    scalars = [name for name, values in expected.items() if len(values[0]) == 2]
    pictures = [name for name, values in expected.items() if len(values[0]) == 3 and values[0][1] == "image"]
    for name in scalars + pictures:
        assert written[name] == expected[name], name
    times = {
        record["values"].get("late"): record["time"] for record in journal(directory) if record["kind"] == "metrics"
    }
    assert times[2.0] == 1_700_000_000.5
    assert not any("tfevents" in path.name for path in Path("ours").iterdir())


@pytest.mark.processes
def test_stores_read_back_what_torch_wrote(monkeypatch: pytest.MonkeyPatch) -> None:
    """JSON, TensorBoard, MLflow, trackio and W&B hold the scalars of torch's file, step for step."""
    monkeypatch.setenv("TRACKER_INLINE", "n")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{Path('mlflow.db').absolute()}")
    with TorchWriter("torch") as one:
        script(one)
    writer = SummaryWriter("ours", trackers="json,tensorboard,mlflow,trackio,wandb", project="p")
    script(writer)
    writer.run.finish(timeout=120)
    info = info_of(writer.run)
    for tracker, read in READ.items():
        stored = read(info)
        for name in ("tensor", "numpy", "late", "stepless"):
            frame = trackers.load("tb:torch").metrics([name]).to_pandas()
            expected = {int(step): float(value) for step, value in zip(frame["step"], frame[name], strict=True)}
            assert {point.step: point.value for point in stored.metrics[name]} == pytest.approx(expected), tracker


def test_scalar_groups_are_names_below_the_tag() -> None:
    """``add_scalars`` is one record of names ``main_tag/tag``; scalars keep double precision."""
    with SummaryWriter("out") as writer:
        writer.add_scalars("loss", {"train": 0.1, "val": torch.tensor(0.5, dtype=torch.float64)}, 3)
    stored = only()
    assert (series(stored, "loss/train"), series(stored, "loss/val")) == ([(3, 0.1)], [(3, 0.5)])
    assert (stored.name, stored.status) == ("out", "finished")


def test_hyperparameters_are_configuration_and_results() -> None:
    """A first call describes the run; further ones are runs of their own in its group."""
    with SummaryWriter("search", project="p") as writer:
        for number in range(3):
            writer.add_hparams({"lr": 0.1 * number, "batch": 2}, {"hparam/accuracy": 10 * number})
    found = recorded()
    assert [config(stored) for stored in found] == [{"lr": pytest.approx(0.1 * n), "batch": 2} for n in range(3)]
    assert [stored.name for stored in found] == ["search", "search-2", "search-3"]
    assert [(stored.summary or {})["hparam/accuracy"] for stored in found] == [0, 10, 20]
    assert [stored.group for stored in found] == [None, "search", "search"]
    assert {stored.status for stored in found} == {"finished"}


def test_graphs_embeddings_meshes_and_tensors_are_files() -> None:
    """What has no kind of record is kept as an artifact that TensorBoard opens."""
    with warnings.catch_warnings(), SummaryWriter("out") as writer:
        warnings.simplefilter("ignore")
        writer.add_graph(torch.nn.Linear(2, 1), torch.zeros(1, 2))
        labels = torch.zeros(3, 3, 8, 8)
        writer.add_embedding(torch.eye(3), metadata=["a", "b", "c"], label_img=labels, global_step=4, tag="words")
        writer.add_mesh("mesh", torch.zeros(1, 4, 3), global_step=2)
        writer.add_tensor("tensor", torch.arange(3), 1)
        writer.add_tensor("one", torch.tensor([2.0]), 1)
    artifacts = {record["name"]: record for record in journal(directories()[0]) if record["kind"] == "artifact"}
    assert {name: record["type"] for name, record in artifacts.items()} == {
        "graph": "graph", "words": "embedding", "mesh": "mesh", "tensor": "tensor",
    }  # fmt: skip
    assert artifacts["words"]["aliases"] == ["step-4"]
    embedded = {file["path"] for file in artifacts["words"]["files"]}
    assert {"projector_config.pbtxt", "00004/words/tensors.tsv", "00004/words/metadata.tsv"} <= embedded
    for record in artifacts.values():
        assert any("tfevents" in file["path"] for file in record["files"])
    assert series(only(), "one") == [(1, 2.0)]


def test_video_is_torchs_grid() -> None:
    """A batch of videos is one, side by side, with its frames per second; no moviepy is needed."""
    with SummaryWriter("out") as writer:
        writer.add_video("video", torch.zeros(4, 5, 3, 8, 8), 1, fps=7)
    (record,) = [record for record in journal(directories()[0]) if record["kind"] == "media"]
    (item,) = record["items"]
    assert (record["type"], item["fps"], item["width"], item["height"]) == ("video", 7, 16, 16)


def test_bad_values_never_stop_training(capsys: pytest.CaptureFixture[str]) -> None:
    """What torch raises is said once, in a line; the rest is recorded. Custom scalars are said to have no effect."""
    with SummaryWriter("out") as writer:
        for step in range(3):
            writer.add_histogram("empty", numpy.array([]), step)
            writer.add_image("image", numpy.zeros((3, 4)), step)
            writer.add_scalar("loss", object(), step)
            writer.add_scalar("fine", 1.0, step)
            writer.add_hparams(3, 4)
            writer.add_custom_scalars({})
    said = capsys.readouterr().err
    for part in (
        "add_histogram: ValueError",
        "add_image: ",
        "add_hparams: AttributeError",
        "add_custom_scalars has no",
    ):
        assert said.count(part) == 1, part
    assert [step for step, _ in series(only(), "fine")] == [0, 1, 2]
    with pytest.raises(UsageError, match="unknown tracker 'jsonn'"):
        SummaryWriter("other", trackers="jsonn")


def test_several_writers_have_a_run_each() -> None:
    """Writers of directories of their own are runs of their own, though they are open together."""
    one, two = SummaryWriter("logs/train"), SummaryWriter("logs/val")
    for step in range(2):
        one.add_scalar("loss", 1.0, step)
        two.add_scalar("loss", 2.0, step)
    one.close()
    two.close()
    assert {stored.name: series(stored, "loss") for stored in recorded()} == {
        "train": [(0, 1.0), (1, 1.0)], "val": [(0, 2.0), (1, 2.0)],
    }  # fmt: skip


def test_several_writers_share_the_scripts_run(capsys: pytest.CaptureFixture[str]) -> None:
    """With a run that the script began, names of further writers begin with their directories; close leaves it open."""
    run = trackers.init("json", project="mine")
    for folder in ("logs/a", "logs/a/deep", "logs/b"):
        with SummaryWriter(folder) as writer:
            writer.add_scalar("loss", 1.0, 0)
            writer.add_audio("sound", torch.zeros(10), 0)
    assert not run.finished
    run.finish()
    stored = only()
    assert {"loss", "deep/loss", "b/loss"} <= set(stored.metrics)
    names = {record["name"] for record in journal(directories()[0]) if record["kind"] == "media"}
    assert names == {"sound", "deep/sound", "b/sound"}
    assert "ignored" not in capsys.readouterr().err


def test_purge_step_goes_back_in_the_directorys_run() -> None:
    """With ``purge_step`` the run goes on, without what it had from that step on; without it a new one begins."""
    for purge, value in ((None, 1.0), (2, 2.0)):
        with SummaryWriter("out", purge_step=purge) as writer:
            for step in range(purge or 0, 4):
                writer.add_scalar("loss", value, step)
    assert series(only(), "loss") == [(0, 1.0), (1, 1.0), (2, 2.0), (3, 2.0)]
    with SummaryWriter("out") as writer:
        writer.add_scalar("loss", 3.0, 0)
    assert len(recorded()) == 2


def test_writer_goes_on_after_close_and_fails_with_an_exception() -> None:
    """What comes after ``close`` belongs to the same run; an exception in the with block is the run's end."""
    with pytest.raises(ValueError, match="broken"), SummaryWriter("out") as writer:  # noqa: PT012
        writer.add_scalar("loss", 1.0, 0)
        writer.close()
        writer.flush()
        writer.add_scalar("loss", 2.0, 1)
        raise ValueError("broken")
    stored = only()
    assert (series(stored, "loss"), stored.status) == ([(0, 1.0), (1, 2.0)], "failed")


def test_directory_is_made_as_torch_makes_it() -> None:
    """A script may put files where the writer's directory is; the default has host, time and comment in its name."""
    with SummaryWriter(comment="-mine") as writer:
        Path(writer.log_dir, "model.pt").write_text("")
        assert writer.get_logdir() == writer.log_dir
        assert writer.log_dir.endswith("-mine")
        name = Path(writer.log_dir).name
    assert only().name == name


SCRIPT = """
import os
from trackers.frameworks.pytorch import SummaryWriter
with SummaryWriter("out") as writer:
    writer.add_scalar("rank", int(os.environ["RANK"]), 0)
    writer.add_text("note", "x", 0)
    writer.add_scalar("timed", 1.0, 0, walltime=5.0)
"""


@pytest.mark.soak
def test_of_several_processes_the_first_records() -> None:
    """In torchrun's environment each process makes a writer, and one run is recorded."""
    Path("train.py").write_text(SCRIPT)
    place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    for rank in ("1", "0"):
        subprocess.run([sys.executable, "train.py"], check=True, env={**os.environ, **place, "RANK": rank}, timeout=120)
    assert series(only(), "rank") == [(0, 0)]


@pytest.fixture(autouse=True)
def _closed_figures() -> Iterator[None]:
    yield
    matplotlib.pyplot.close("all")
