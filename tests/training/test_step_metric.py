"""``define_metric(step_metric=…)``: where a tracker's only axis is the step, the step metric's value is the step."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import numpy
import pytest

import trackers
from tests.stores import mlflow_tables, read_tensorboard
from trackers.journal.run_directory import RunDirectory

pytestmark = pytest.mark.heavy

__all__ = ["mlflow_tables"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def begin(**more: Any) -> Any:
    return trackers.init("tensorboard,json", project="p", inline=True, **{"id": "one", **more})


def steps(run: Any) -> dict[str, list[tuple[int | None, float]]]:
    info = RunDirectory(Path(run.dir)).read_info()
    found = read_tensorboard(info).metrics
    return {name: [(point.step, point.value) for point in points] for name, points in found.items()}


def test_rows_of_transformers_lie_at_the_global_step() -> None:
    """TensorBoard has them at 1, 2, 3, evaluation and final values too; the JSON log keeps the calls' own steps."""
    run = begin()
    run.define_metric("train/global_step")
    run.define_metric("*", step_metric="train/global_step", step_sync=True)
    for step in (1, 2, 3):
        run.log({"train/loss": 1.0 / step, "train/global_step": step})
        run.log({"eval/loss": 2.0 / step, "train/global_step": step})
    run.log({"train/total_flos": 7.0, "train/global_step": 3, "note": "done"})
    run.finish()
    found = steps(run)
    assert [step for step, _ in found["train/loss"]] == [1, 2, 3]
    assert [step for step, _ in found["eval/loss"]] == [1, 2, 3]
    assert found["train/total_flos"] == [(3, 7.0)]
    (log,) = [path for path in Path(run.dir).glob("*.json") if '"training_iterations"' in path.read_text()]
    iterations = json.loads(log.read_text())["training_iterations"]
    assert [row["iter"] for row in iterations if "train/loss" in row or row.get("loss") is not None] == [0, 2, 4]


def test_two_axes_in_one_call_are_two_records_of_one_step() -> None:
    """So a tracker with one axis has each value at its own place, and W&B one row."""
    run = begin()
    run.define_metric("train/*", step_metric="train/step")
    run.define_metric("val/*", step_metric="val/step")
    run.log({"train/loss": 1.0, "train/step": 10, "val/loss": 2.0, "val/step": 2, "other": 3.0})
    run.finish()
    found = steps(run)
    assert (found["train/loss"], found["val/loss"], found["other"]) == ([(10, 1.0)], [(2, 2.0)], [(0, 3.0)])
    assert (found["train/step"], found["val/step"]) == ([(0, 10.0)], [(0, 2.0)])
    rows = trackers.load(run.dir).metrics().to_pylist()
    assert [(row["step"], row["train/loss"], row["val/loss"]) for row in rows] == [(0, 1.0, 2.0)]


def test_step_metric_itself_lies_at_the_step() -> None:
    """Over its own values its chart, the first of TensorBoard's, would be a diagonal; alone in a call, too, and where
    two axes are at one place or a value isn't finite."""
    run = begin()
    run.define_metric("val/*", step_metric="epoch")
    run.define_metric("test/*", step_metric="round")
    run.log({"epoch": 1, "val/loss": float("nan"), "round": 1, "test/loss": 2.0}, step=19)
    run.log({"epoch": 2}, step=39)
    run.finish()
    found = steps(run)
    assert found["epoch"] == [(19, 1.0), (39, 2.0)]
    assert (found["round"], found["test/loss"], found["val/loss"][0][0]) == ([(19, 1.0)], [(1, 2.0)], 1)


def test_rewind_drops_what_lies_above_the_axis() -> None:
    """Back to a step: TensorBoard shows the new attempt's values above the place that the axis had there."""
    run = begin()
    run.define_metric("*", step_metric="at")
    for step in range(10):
        run.log({"loss": float(step), "at": step * 10})
    run.finish()
    run = begin(resume="must", step=5)
    run.define_metric("*", step_metric="at")
    for step in range(6, 8):
        run.log({"loss": step + 0.5, "at": step * 10})
    run.finish()
    assert steps(run)["loss"] == [(step * 10, float(step)) for step in range(6)] + [(60, 6.5), (70, 7.5)]


def test_step_metric_of_an_earlier_attempt_counts_on() -> None:
    """In a run that is resumed, and in a fork, though neither defines it again."""
    run = begin()
    run.define_metric("loss", step_metric="epoch")
    run.log({"loss": 0.5, "epoch": 1}, step=100)
    run.finish()
    for more in ({"id": "fork", "fork_from": run.id}, {"resume": "must"}):
        later = begin(**more)
        later.log({"loss": 0.25, "epoch": 2}, step=200)
        later.finish()
        assert steps(later)["loss"] == [(1, 0.5), (2, 0.25)]


def test_definition_that_matched_nothing_is_named_once(capsys: pytest.CaptureFixture[str]) -> None:
    """At the end, with the nearest name; W&B's dotted name of a nested value matches, also what was logged before."""
    run = trackers.init("json", project="p", mode="offline", options={"TRACKER_RELAY": False})
    for name in ("val/los", "a.b", "train/*", "late"):
        run.define_metric(name, summary="min")
    run.log({"val/loss": 1.0, "a": {"b": 2.0}, "train/x": 3.0})
    run.log({"late": 1.0})
    run.finish()
    run.finish()
    said = [line for line in capsys.readouterr().err.splitlines() if "define_metric" in line]
    assert len(said) == 1
    assert "nothing was logged as 'val/los', so it had no effect: did you mean 'val/loss'?" in said[0]


@pytest.mark.parametrize(
    "attempts", [[(0, 9), (4, 6), (2, 8)], [(0, 14), (12, 16)], [(0, 24), (12, 15), (15, 20), (7, 9)]],
    ids=["twice", "within a place", "often"],
)  # fmt: skip
def test_mlflow_says_what_is_superseded_on_each_axis(
    attempts: list[tuple[int, int]], tmp_path: Path, mlflow_tables: Path
) -> None:
    """It forgets no point: of metrics over a step metric all up to the highest axis' last place seemed to count, though
    a value at the step, or another axis, had come far less."""
    shutil.copyfile(mlflow_tables, tmp_path / "mlflow.db")
    options = {"MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db"}
    for attempt, (first, last) in enumerate(attempts):
        more = {"resume": "must", "step": first - 1} if attempt else {}
        run = trackers.init("mlflow", project="p", inline=True, id="one", options=options, **more)
        run.define_metric("val/*", step_metric="epoch")
        run.define_metric("seen", step_metric="tokens")
        for step in range(first, last + 1):
            time.sleep(0.002)  # MLflow's times are milliseconds
            value = step + attempt / 10
            values = {"val/loss": value, "epoch": step // 5, "seen": value, "tokens": step * 1000, "loss": value}
            texts = {"note": str(value), "val/note": str(value)}
            picture = trackers.Image(numpy.full((2, 2), int(value * 10), dtype=numpy.uint8))
            run.log({**values, **texts, "picture": picture, "val/picture": picture}, step=step)
        run.finish()
    ours, theirs = trackers.load(run.dir), trackers.load(f"mlflow:{tmp_path}/mlflow.db#p/one")
    for name in ("val/loss", "seen", "loss", "epoch"):
        assert theirs.metrics()[name].drop_null().to_pylist() == ours.metrics()[name].drop_null().to_pylist()
    for name in ("note", "val/note"):
        found = [[text.values[name] for text in run.texts() if name in text.values] for run in (theirs, ours)]
        assert found[0] == found[1], name
    for name in ("picture", "val/picture"):
        found = [[media.time for media in run.media() if media.name == name] for run in (theirs, ours)]
        assert found[0] == pytest.approx(found[1], abs=1e-3), name


def test_value_of_before_its_step_metric_goes_back_with_the_others() -> None:
    """Until the step metric is logged first its metrics lie at the step: TensorBoard kept what was superseded there."""
    run = begin()
    run.define_metric("val/*", step_metric="epoch")
    run.log({"val/loss": 2.0}, step=0)
    run.log({"val/loss": 3.0}, step=1)
    run.log({"val/loss": 4.0, "epoch": 40}, step=2)
    run.finish()
    run = begin(resume="must", step=0)
    run.log({"val/loss": 5.0}, step=1)
    run.finish()
    assert steps(run)["val/loss"] == [(0, 2.0), (1, 5.0)]


def test_mlflow_loses_nothing_that_counts_where_training_is_quick(tmp_path: Path, mlflow_tables: Path) -> None:
    """Many values a millisecond, some of before their step metric: of one time and place can't be told which counts."""
    shutil.copyfile(mlflow_tables, tmp_path / "mlflow.db")
    options = {"MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db"}
    for attempt, (first, last) in enumerate([(0, 40), (30, 60), (50, 55), (47, 49)]):
        more = {"resume": "must", "step": first - 1} if attempt else {}
        run = trackers.init("mlflow", project="p", inline=True, id="one", options=options, **more)
        run.define_metric("val/*", step_metric="epoch")
        for step in range(first, last + 1):
            place = {} if step - first < 4 else {"epoch": step // 7}
            run.log({"val/loss": step + attempt / 10, "loss": step + attempt / 10, **place}, step=step)
        run.finish()
    ours, theirs = trackers.load(run.dir), trackers.load(f"mlflow:{tmp_path}/mlflow.db#p/one")
    values = [set(source.metrics()["val/loss"].drop_null().to_pylist()) for source in (ours, theirs)]
    assert values[0] <= values[1]
    assert len(values[1] - values[0]) < 12
    assert theirs.metrics()["loss"].drop_null().to_pylist() == ours.metrics()["loss"].drop_null().to_pylist()
