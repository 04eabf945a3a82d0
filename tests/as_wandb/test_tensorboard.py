"""``sync_tensorboard``: what TensorBoard's writers are given is recorded, once."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trackers
from tests.as_wandb.versions import before
from tests.stores import read_tensorboard
from trackers.formats import wandb_datastore
from trackers.formats.tensorboard_event import TFRecordFramer
from trackers.journal.run_directory import RunDirectory
from trackers.records import Config, Media, Metrics, Record, Text, decode
from trackers.training import tensorboard_writers
from trackers.training.tensorboard_writers import shortest

pytestmark = pytest.mark.heavy


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    yield
    while made:  # their threads write into this directory
        made.pop().close()
    if trackers.run is not None:
        trackers.run.finish()
    tensorboard_writers.unpatch()


def begin(**more: Any) -> Any:
    more.setdefault("sync_tensorboard", True)
    return trackers.init("json", project="p", mode="offline", options={"TRACKER_RELAY": False}, **more)


def logged(run: Any, kind: type[Record] = Metrics) -> list[Any]:
    return lines(Path(run.dir), kind)


def lines(directory: Path, kind: type[Record] = Metrics) -> list[Any]:
    found = []
    for stream in sorted((directory / "streams").glob("rank-*.jsonl")):
        found += [record for line in stream.read_bytes().splitlines() if isinstance(record := decode(line), kind)]
    return found


def points(run: Any) -> list[tuple[str, int | None, Any]]:
    return [(name, record.step, value) for record in logged(run) for name, value in record.values.items()]


made: list[Any] = []


def writer(name: str) -> Any:
    if name == "torch":
        from torch.utils.tensorboard import SummaryWriter
    else:
        SummaryWriter = pytest.importorskip("tensorboardX").SummaryWriter

    def make(logdir: str) -> Any:
        made.append(SummaryWriter(logdir))
        return made[-1]

    return make


@pytest.mark.parametrize("library", ["torch", "tensorboardX"])
def test_values_are_recorded_at_the_call_under_their_tags_and_steps(library: str) -> None:
    """As cleanrl logs: several tags at a step, the writer open; values as W&B shows single precision."""
    run = begin()
    tb = writer(library)("runs/x")
    tb.add_text("hyperparameters", "|lr|0.1|")
    for step in (0, 100):
        tb.add_scalar("charts/episodic_return", 1.1 + step, step)
        tb.add_scalar("losses/policy_loss", 0.1, step)
    wanted = [("charts/episodic_return", 0, 1.1), ("losses/policy_loss", 0, 0.1),
              ("charts/episodic_return", 100, 101.1), ("losses/policy_loss", 100, 0.1)]  # fmt: skip
    assert points(run) == wanted
    (text,) = logged(run, Text)
    assert text.values == {"hyperparameters/text_summary": "|lr|0.1|"}
    trackers.log({"own": 1})
    tb.close()
    assert points(run)[4:] == [("own", 100, 1)]


@pytest.mark.parametrize("library", ["torch", "tensorboardX"])
def test_media_and_hyperparameters_are_ours(library: str) -> None:
    """Images are files of the run, histograms and precision-recall curves what they are, hparams configuration."""
    run = begin()
    tb = writer(library)("runs/x")
    tb.add_image("picture", np.zeros((3, 4, 5), dtype=np.uint8), 1)
    tb.add_histogram("weights", np.arange(10.0), 2)
    tb.add_pr_curve("pr", np.array([0, 1, 1, 0]), np.array([0.1, 0.9, 0.4, 0.6]), 3)
    tb.add_hparams({"lr": 0.5}, {"score": 2.0})
    tb.close()
    found = {record.name: record for record in logged(run, Media)}
    assert (found["picture"].type, found["weights"].type, found["pr"].type) == ("image", "histogram", "table")
    assert Path(run.dir, found["picture"].items[0].file).read_bytes().startswith(b"\x89PNG")
    assert sum(found["weights"].items[0].data["counts"]) == 10
    assert found["pr"].items[0].data["columns"] == ["recall", "precision"]
    assert run.config["lr"] == 0.5
    assert any(record.values.get("lr") == 0.5 for record in logged(run, Config))
    assert [value for name, _, value in points(run) if name.endswith("score")] == [2.0]


def test_subdirectories_of_the_first_writer_are_prefixes() -> None:
    """As W&B has them: ``add_scalars`` makes writers of its own; directories elsewhere have none."""
    run = begin()
    tb = writer("torch")("runs/x")
    tb.add_scalars("group", {"a": 1.0, "b": 2.0}, 7)
    other = writer("torch")("runs/y")
    other.add_scalar("loss", 3.0, 8)
    assert points(run) == [("group_a/group", 7, 1.0), ("group_b/group", 7, 2.0), ("loss", 8, 3.0)]


def test_root_of_patch_gives_the_prefixes() -> None:
    """``tensorboard.patch(root_logdir=…)`` before ``init``; Keras' two directories are told apart without it."""
    trackers.tensorboard.patch(root_logdir="logs")
    run = begin(sync_tensorboard=None)
    writer("torch")("logs/eval").add_scalar("loss", 3.0, 8)
    assert points(run) == [("eval/loss", 8, 3.0)]
    run.finish()
    tensorboard_writers.unpatch()
    run = begin()
    writer("torch")("keras/train").add_scalar("loss", 1.0, 1)
    writer("torch")("keras/validation").add_scalar("loss", 2.0, 1)
    assert points(run) == [("train/loss", 1, 1.0), ("validation/loss", 1, 2.0)]


def test_writer_made_before_init_and_each_run_its_own() -> None:
    """A writer may be older than the run; what comes after ``finish`` belongs to nobody, or to the next run."""
    tb = writer("torch")("runs/x")
    tb.add_scalar("loss", 0.0, 0)
    first = begin()
    tb.add_scalar("loss", 1.0, 1)
    first.finish()
    tb.add_scalar("loss", 2.0, 2)
    second = begin()
    tb.add_scalar("loss", 3.0, 3)
    assert (points(first), points(second)) == ([("loss", 1, 1.0)], [("loss", 3, 3.0)])


def test_without_the_argument_nothing_is_taken() -> None:
    """A script that only uses TensorBoard, and one whose run doesn't ask."""
    run = begin(sync_tensorboard=False)
    writer("torch")("runs/x").add_scalar("loss", 1.0, 1)
    assert points(run) == []


def test_own_event_files_are_not_taken_in() -> None:
    """With ``tensorboard`` as a tracker too, each value is there once, at the writer's step."""
    run = trackers.init("tensorboard", project="p", inline=True, sync_tensorboard=True)
    tb = writer("torch")("runs/x")
    for step in range(5):
        tb.add_scalar("loss", float(step), step * 10)
    run.finish()
    info = RunDirectory(Path(run.dir)).read_info()
    found = read_tensorboard(info).metrics["loss"]
    assert [(point.step, point.value) for point in found] == [(step * 10, float(step)) for step in range(5)]


@pytest.mark.slow
def test_killed_script_with_an_open_writer_keeps_every_value(tmp_path: Path) -> None:
    """The writer's own file may lack them. A new start with ``purge_step`` adds its own."""
    script = """
        import os, signal
        import trackers as wandb
        from torch.utils.tensorboard import SummaryWriter
        wandb.init("json", project="p", id="one", mode="offline", options={"TRACKER_RELAY": False},
                   sync_tensorboard=True, resume="allow")
        w = SummaryWriter("runs/x", purge_step=3 if wandb.run.resumed else None)
        for step in range(3 if wandb.run.resumed else 0, 6 if wandb.run.resumed else 5):
            w.add_scalar("loss", step + 0.5 * wandb.run.resumed, step)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    for _ in range(2):
        subprocess.run([sys.executable, "-c", textwrap.dedent(script)], cwd=tmp_path, check=False)
    found = [(record.step, record.values["loss"]) for record in lines(tmp_path / "runs/p/one")]
    assert found == [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (3, 3.5), (4, 4.5), (5, 5.5)]


def test_directory_of_a_writer_outside_of_python_is_read_at_the_end() -> None:
    """TensorFlow's writers: files that are new are read, those that were there are somebody else's."""
    from tensorboard.compat.proto.event_pb2 import Event

    def write(name: str, value: float) -> None:
        event = Event(wall_time=1.0, step=4)
        event.summary.value.add(tag="loss", simple_value=value)
        Path("tf", name).write_bytes(TFRecordFramer().frame(event.SerializeToString()))

    Path("tf").mkdir()
    write("events.out.tfevents.1.old", 1.0)
    run = begin()
    (tap,) = tensorboard_writers._taps
    tap.follow("tf")
    write("events.out.tfevents.2.new", 2.0)
    run.finish()
    assert points(run) == [("loss", 4, 2.0)]


def test_summary_given_to_tensorboard_log() -> None:
    """``wandb.tensorboard.log(summary, step=, namespace=)``."""
    from tensorboard.compat.proto.summary_pb2 import Summary

    run = begin()
    summary = Summary(value=[Summary.Value(tag="loss", simple_value=0.25)])
    trackers.tensorboard.log(summary.SerializeToString(), step=3, namespace="eval")
    trackers.tensorboard.log(summary, step=4)
    assert points(run) == [("eval/loss", 3, 0.25), ("loss", 4, 0.25)]


SAME = """
import sys
if sys.argv[1] == "theirs":
    import wandb
    wandb.init(project="p", mode="offline", sync_tensorboard=True,
               settings=wandb.Settings(x_disable_stats=True, console="off"))
else:
    import trackers as wandb
    wandb.init("wandb", project="p", inline=True, sync_tensorboard=True)
from torch.utils.tensorboard import SummaryWriter
tb = SummaryWriter("runs/x")
for step in range(0, 500, 100):
    tb.add_scalar("charts/return", 1.1 * step, step)
    tb.add_scalar("losses/value", 1 / (step + 3), step)
    tb.add_scalar("evaluation", float("inf"), step)
other = SummaryWriter("runs/x/eval")
other.add_scalar("loss", 0.3, 600)
other.close()
tb.close()
wandb.finish()
"""


@pytest.mark.slow
def test_names_steps_and_values_equal_those_of_the_real_wandb(tmp_path: Path) -> None:
    """The same script with both: the numbers of W&B's rows by name and global_step."""
    found = []
    for whose in ("theirs", "ours"):
        home = tmp_path / whose
        home.mkdir()
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "WANDB_MODE": "offline"}
        subprocess.run([sys.executable, "-c", SAME, whose], cwd=home, check=True, env=environment)
        (path,) = home.rglob("offline-run-*/*.wandb")
        points, axes = set(), set()
        for record in wandb_datastore.records(path):
            if record.WhichOneof("record_type") == "history":
                row = wandb_datastore.values(record.history.item)
                (axis,) = (name for name in row if name.endswith("global_step"))
                points |= {(n, row[axis], v) for n, v in row.items() if n[0] != "_" and n != axis}
                axes.add(axis)
        found.append(points)
        assert axes == {"global_step", *(("eval/global_step",) if whose == "theirs" and before("0.28") else ())}
    # On a busy machine W&B's client may also read the second directory before it knows that it lies below the first.
    assert found[0] - found[1] <= {("loss", 600, 0.3)}
    assert found[1] <= found[0]
    assert len(found[1]) == 16


def test_shortest_decimal_of_single_precision() -> None:
    """The decimal has the same single-precision value, whatever it is."""
    values = np.random.default_rng(1).standard_normal(1000).astype(np.float32)
    extreme = np.array([0.1, 1e-45, 3.4028234e38, 1e-38, 16777217.0, -0.0, np.inf], dtype=np.float32)
    for value in (*values, *extreme):
        assert np.float32(shortest(float(value))) == value
    assert shortest(float(np.float32(0.1))) == 0.1
