"""``watch``: histograms of gradients and parameters, those that W&B's own ``watch`` counts."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import trackers
from tests import forked
from trackers.formats import wandb_datastore
from trackers.inspection.watching import histogram
from trackers.records import ArtifactRecord, Media, Metrics, Record, Text, decode

pytestmark = pytest.mark.heavy


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    yield
    if trackers.run is not None:
        trackers.run.finish()


def begin(**more: Any) -> Any:
    return trackers.init("json", project="p", mode="offline", options={"TRACKER_RELAY": False}, **more)


def logged(run: Any, kind: type[Record]) -> list[Any]:
    stream = Path(run.dir, "streams/rank-0.1.jsonl")
    return [record for line in stream.read_bytes().splitlines() if isinstance(record := decode(line), kind)]


def train(model: Any, log: Any, steps: int) -> None:
    generator = torch.Generator().manual_seed(3)
    for step in range(steps):
        model.zero_grad()
        model(torch.randn(5, 4, generator=generator)).square().sum().backward()
        log({"loss": step})


def model() -> Any:
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 1, bias=False))


SAME = """
import torch, wandb
from tests.as_wandb.test_watch import model, train
run = wandb.init(project="p", mode="offline", settings=wandb.Settings(x_disable_stats=True, console="off"))
one, two = model(), model()
wandb.watch((one, two), log="all", log_freq=3)
train(one, wandb.log, 7)
train(two, wandb.log, 4)
wandb.finish()
"""


@pytest.mark.slow
def test_histograms_equal_those_of_the_real_wandb(tmp_path: Path) -> None:
    """The same models, read back from the .wandb file: names, rows, edges and counts."""
    root = Path(__file__).parents[2]
    forked.run([sys.executable, "-c", SAME], cwd=tmp_path, check=True, env=_environment(root))
    (path,) = Path("wandb").glob("offline-run-*/*.wandb")
    theirs: dict[str, list[Any]] = {}
    for record in wandb_datastore.records(path):
        if record.WhichOneof("record_type") == "history":
            row = wandb_datastore.tree(record.history.item)
            for name, value in row.items():
                if isinstance(value, dict) and value.get("_type") == "histogram":
                    theirs.setdefault(name, []).append((row["_step"], value["values"], value["bins"]))
    run = begin()
    one, two = model(), model()
    run.watch((one, two), log="all", log_freq=3)
    train(one, run.log, 7)
    train(two, run.log, 4)
    ours: dict[str, list[Any]] = {}
    for record in logged(run, Media):
        data = record.items[0].data
        ours.setdefault(record.name, []).append((record.step, data["counts"], data["edges"]))
    assert set(ours) == set(theirs)
    assert "gradients/graph_10.weight" in ours
    for name, points in theirs.items():
        assert [(step, counts) for step, counts, _ in ours[name]] == [(step, counts) for step, counts, _ in points]
        for (_, _, mine), (_, _, other) in zip(ours[name], points, strict=True):
            assert mine == pytest.approx(other, rel=1e-6)


def _environment(root: Path) -> dict[str, str]:
    import os

    return {**os.environ, "PYTHONPATH": str(root), "WANDB_SILENT": "true"}


def test_no_step_is_added_and_what_waits_comes_with_finish() -> None:
    """Histograms lie at the step of the next call, and those after the last call at the next step."""
    run = begin()
    watched = model()
    run.watch(watched, log_freq=1)
    watched(torch.ones(1, 4)).sum().backward()
    run.log({"loss": 1.0}, step=41)
    watched(torch.ones(1, 4)).sum().backward()
    run.finish()
    assert {record.step for record in logged(run, Media)} == {41, 42}
    assert [record.step for record in logged(run, Metrics)] == [41]


def test_histograms_come_with_values_of_tensorboards_writers_too() -> None:
    """As Stable-Baselines3 trains with W&B's callback: nothing but TensorBoard's writer is given values."""
    from torch.utils.tensorboard import SummaryWriter

    run = begin(sync_tensorboard=True)
    watched = model()
    run.watch(watched, log_freq=1)
    writer = SummaryWriter("tb")
    for step in (100, 200):
        watched(torch.ones(1, 4)).sum().backward()
        writer.add_scalar("loss", 1.0, step)
    writer.close()
    run.finish()
    assert [record.step for record in logged(run, Media) if record.name == "gradients/2.weight"] == [100, 200]


def test_unwatch_and_finish_leave_no_hook() -> None:
    """One model, or all of them."""
    run = begin()
    one, two = model(), model()
    run.watch([one, two], log="all", log_freq=1, log_graph=True)
    run.unwatch(one)
    assert not one._forward_hooks
    assert one[0].weight._backward_hooks == {}
    run.finish()
    assert not two._forward_hooks
    assert two[0].weight._backward_hooks == {}


def test_graph_is_recorded_once_as_json() -> None:
    """Layers with their classes, shapes and parameters, when all have run."""
    run = begin()
    watched = model()
    run.watch(watched, log=None, log_graph=True)
    train(watched, run.log, 2)
    (text,) = logged(run, Text)
    nodes = json.loads(text.values["graph_0"])["nodes"]
    assert [(node["name"], node["output_shape"], node["num_parameters"]) for node in nodes] == [
        ("0", [5, 3], [12, 3]),
        ("1", [5, 3], []),
        ("2", [5, 1], [3]),
    ]


def test_what_cant_be_watched_is_said_and_training_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    """No module, an unknown word, a model twice: one line each."""
    run = begin()
    run.watch(3)
    run.watch(model(), log="all of it")
    watched = model()
    run.watch(watched)
    run.watch(watched)
    said = capsys.readouterr().err
    assert all(text in said for text in ("not int", "'all of it'", "watched already"))


def test_histogram_of_odd_tensors() -> None:
    """Empty, not finite, of one value, of half precision, sparse."""
    assert histogram(torch.empty(0)) is None
    assert histogram(torch.tensor([float("nan"), float("inf")])) is None
    assert histogram(torch.full((3,), 2.0)) == ([3.0], [2.0, 2.0])
    counts, edges = histogram(torch.tensor([0.0, 1.0, float("nan")], dtype=torch.bfloat16)) or ([], [])
    assert (sum(counts), edges[0], edges[-1]) == (2, 0.0, 1.0)
    places, values = torch.tensor([[1, 3]]), torch.tensor([1.0, 2.0])
    sparse = torch.sparse_coo_tensor(places, values, (6,), check_invariants=True)
    counts, edges = histogram(sparse) or ([], [])
    assert (sum(counts), counts[0], edges[0]) == (6, 4, 0.0)


def test_log_code_is_a_snapshot_of_type_code(tmp_path: Path) -> None:
    """Python files below the root, not those of runs; choices of the user's own; nothing is made of no file."""
    (tmp_path / "pkg").mkdir()
    for name in ("train.py", "pkg/model.py", "notes.txt", "requirements.txt"):
        (tmp_path / name).write_text(name)
    run = begin()
    run.log_code()
    run.log_code(
        name="mine", include_fn=lambda path: path.endswith(".txt"), exclude_fn=lambda path, root: "req" in path
    )
    (tmp_path / "empty").mkdir()
    assert run.log_code(str(tmp_path / "empty")) is None
    first, second = logged(run, ArtifactRecord)
    assert (first.type, sorted(file.path for file in first.files)) == (
        "code",
        ["pkg/model.py", "requirements.txt", "train.py"],
    )
    assert first.name.startswith("source-p-")
    assert (second.name, [file.path for file in second.files]) == ("mine", ["notes.txt"])


def test_files_in_the_files_directory_are_kept_at_the_end() -> None:
    """Beside the journal, not among its files."""
    run = begin()
    Path(run.files_dir, "sub").mkdir()
    Path(run.files_dir, "sub/model.txt").write_text("weights")
    run.finish()
    (kept,) = logged(run, ArtifactRecord)
    assert [file.path for file in kept.files] == ["sub/model.txt"]
    assert Path(run.dir, kept.files[0].file).read_text() == "weights"


@pytest.mark.parametrize("mode", ["offline", "disabled"])
def test_directory_of_a_run_of_wandbs_init_is_that_of_its_own_files(mode: str) -> None:
    """As ``wandb.run.dir`` is used: what is written there is no file of the journal's, and is kept."""
    from trackers.as_wandb.init import init

    run = init(project="p", mode=mode, options={"TRACKER": "json", "TRACKER_RELAY": False})
    Path(run.dir, "model.txt").write_text("weights")
    run.finish()
    if mode == "offline":
        assert Path(run.dir) == Path(run.path, "files")
        stream = Path(run.path, "streams/rank-0.1.jsonl").read_bytes().splitlines()
        (kept,) = [record for line in stream if isinstance(record := decode(line), ArtifactRecord)]
        assert [file.path for file in kept.files] == ["model.txt"]


def test_other_ranks_watch_nothing_and_keep_no_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """A script calls these on every rank."""
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    run = begin(sync_tensorboard=True)
    watched = model()
    run.watch(watched, log="all", log_freq=1, log_graph=True)
    assert not watched._forward_hooks
    run.unwatch()
    assert run.log_code() is None
    Path(run.files_dir, "own.txt").write_text("kept by nobody")
    run.finish()
