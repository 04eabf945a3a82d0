"""How the package's functions take sources: names one by one, or in lists, in one order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import trackers
from trackers.errors import NotFound, UsageError

OFFLINE: dict[str, Any] = {"mode": "offline", "project": "p", "options": {"TRACKER_RELAY": False}}


@pytest.fixture(autouse=True)
def runs() -> None:
    """Two runs, whose names are longer than a letter."""
    for name, loss in (("lr0.1-s0", 2.0), ("lr0.03-s0", 1.0)):
        run = trackers.init("json", id=name, name=name, config={"lr": name}, **OFFLINE)
        run.log({"val_loss": loss, "train_loss": loss})
        run.log({"answers": trackers.Table(columns=["id", "v"], data=[[1, loss]])})
        run.finish()


ONE, OTHER = "lr0.1-s0", "lr0.03-s0"
BOTH = {ONE, OTHER}


@pytest.mark.parametrize(
    "given",
    [(ONE, OTHER), ([ONE, OTHER],), ((ONE, OTHER),), ([ONE], OTHER), (Path("runs/p") / ONE, OTHER),
     (iter([ONE, OTHER]),), ("p",), (Path("runs/p"),), ({ONE, OTHER},)],
    ids=["names", "list", "tuple", "list and name", "directory and name", "iterator", "project", "directory", "set"],
)  # fmt: skip
def test_sources_one_by_one_and_in_lists(given: tuple[Any, ...]) -> None:
    """Each function takes the same in the same way."""
    parts = [list(part) if hasattr(part, "__next__") else part for part in given]
    assert {run["id"] for run in trackers.compare_runs(*parts).runs} == BOTH
    assert {run["id"] for run in trackers.best_runs("val_loss", *parts, mode="min").runs} == BOTH
    assert set(trackers.sql("select run from runs", *parts).to_pandas()["run"]) == BOTH
    assert {data.run.id for data in trackers.load_all(*parts)} == BOTH


def test_one_name_is_one_source() -> None:
    """A text is never read letter by letter."""
    assert [run["id"] for run in trackers.compare_runs(ONE).runs] == [ONE]
    assert [run["id"] for run in trackers.best_runs("val_loss", ONE, mode="min").runs] == [ONE]
    assert trackers.sql("select run from runs", ONE).to_pylist() == [{"run": ONE}]
    assert [data.run.id for data in trackers.load_all(ONE)] == [ONE]
    assert trackers.join_tables(ONE, "answers", "id").num_rows == 1
    assert trackers.diff_tables([ONE, OTHER], name="answers", on="id").changed == 1
    assert trackers.diff_tables(Path("runs/p", ONE), OTHER, "answers", "id").changed == 1
    with pytest.raises(NotFound, match="nowhere"):
        trackers.compare_runs(ONE, "nowhere")


def test_forms_that_were_taken_before() -> None:
    """A second list of ``compare_runs`` has metrics, a Path behind a name of ``load_all`` is where runs lie."""
    assert trackers.compare_runs([ONE, OTHER], ["val_*"]).keys == ["val_loss"]
    assert trackers.compare_runs([ONE, OTHER], None).keys == ["val_loss", "train_loss"]
    assert trackers.compare_runs(ONE, OTHER, keys="val_*").keys == ["val_loss"]
    assert [data.run.id for data in trackers.load_all(ONE, Path("runs"))] == [ONE]
    assert len(trackers.sql("select run from runs", None)) == 2
    assert len(trackers.best_runs("val_loss", None, mode="min").runs) == 2
    with pytest.raises(UsageError, match="a source of type int: give a name, a path, or a list of them"):
        trackers.compare_runs(3)
    with pytest.raises(UsageError, match="name a run, or several"):
        trackers.load_all()
