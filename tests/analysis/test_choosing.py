"""Runs chosen and put in order by figures, and columns by their names: one name for a figure everywhere."""

from __future__ import annotations

import math
from typing import Any

import pytest

from trackers.analysis import choosing
from trackers.analysis.figures import best_of
from trackers.analysis.run_stats import MetricStats, ResourceUse, RunStats
from trackers.analysis.tables import TextTable
from trackers.benchmark.speed import Speed
from trackers.errors import UsageError


def stats(name: str, loss: float | None = None, **more: Any) -> RunStats:
    """A run with a validation loss."""
    folds = {} if loss is None else {"val_loss": MetricStats(count=2, last=loss + 1, low=loss, high=loss + 2)}
    return RunStats(source=name, id=name, name=name, folds=folds, **more)


def names(runs: list[RunStats], by: str) -> list[str]:
    """The names of the runs in the order of a figure."""
    found = choosing.ordered(runs, by, choosing.figure, lambda: choosing.names(runs), choosing.direction(runs))
    return [run.name for run in found]


def test_best_comes_first_and_minus_turns_it() -> None:
    """A loss from the smallest, a speed from the largest, by its name or its title; what lacks it comes last."""
    runs = [stats("a", 2.0), stats("none"), stats("b", 1.0), stats("nan", math.nan)]
    runs[0].speed, runs[2].speed = Speed(steps_per_s=1.0), Speed(steps_per_s=5.0)
    assert names(runs, "val_loss") == ["b", "a", "none", "nan"]
    assert names(runs, "-val_loss") == ["a", "b", "none", "nan"]
    for name in ("steps_per_s", "steps/s"):
        assert names(runs, name) == ["b", "a", "none", "nan"]
    assert names(runs, "-steps/s")[:2] == ["a", "b"]


def test_order_by_settings_results_and_fields() -> None:
    """Settings from the smallest, texts behind numbers, results by what is better of them."""
    runs = [
        stats("a", config={"lr": 0.1, "opt": "sgd"}, summary={"best_acc": 0.5}, status="finished"),
        stats("b", config={"lr": "auto", "opt": "adam"}, summary={"best_acc": 0.9}, status="failed"),
        stats("c", config={"lr": 0.01}),
    ]
    assert names(runs, "config.lr") == ["c", "a", "b"]
    assert names(runs, "config.opt") == ["b", "a", "c"]
    assert names(runs, "final/best_acc") == ["b", "a", "c"]
    assert names(runs, "status")[-1] == "a"
    assert names(runs, "-name") == ["c", "b", "a"]


@pytest.mark.parametrize(
    ("by", "said"),
    [("val_los", "no run has 'val_los': did you mean 'val_loss'"), ("zzz", "no run has 'zzz'; there is name, id")],
)
def test_unknown_order_names_what_there_is(by: str, said: str) -> None:
    """A figure that no run has is refused in one line, with the nearest name."""
    with pytest.raises(UsageError, match=said.replace("?", r"\?")):
        names([stats("a", 1.0)], by)


def test_statuses_are_chosen_and_checked() -> None:
    """Several statuses may be named; one that there isn't is refused; none that fits says which there are."""
    runs = [stats("a", status="finished"), stats("b", status="failed"), stats("c", status="finished")]
    chosen = choosing.of_status(runs, "failed, crashed", lambda run: run.status)
    assert [run.name for run in chosen] == ["b"]
    assert choosing.of_status(runs, "", lambda run: run.status) == runs
    with pytest.raises(UsageError, match="unknown status 'fail': did you mean 'failed'"):
        choosing.of_status(runs, "fail", lambda run: run.status)
    assert str(choosing.none_of("running", [run.status for run in runs])) == "no run is running: 2 finished, 1 failed"


def test_figure_has_one_name() -> None:
    """A metric's best value, or one of its figures by name; speeds and settings as in SQL and conditions."""
    run = stats("a", 1.0, config={"model.depth": 2}, summary={"x": 3}, tags=["t", "u"])
    run.use = ResourceUse(memory_gb=4.0)
    for name, value in (("val_loss", 1.0), ("val_loss last", 2.0), ("val_loss max", 3.0), ("config.model.depth", 2),
                        ("final/x", 3), ("memory_gb", 4.0), ("peak memory per GPU GB", 4.0), ("tags", "t, u"),
                        ("nothing", None)):  # fmt: skip
        assert choosing.figure(run, name) == value, name
    assert {"val_loss", "config.model.depth", "final/x", "memory_gb", "tags"} <= set(choosing.names([run]))
    assert "steps_per_s" not in choosing.names([run])


def test_columns_of_a_table_are_chosen_with_their_marks() -> None:
    """Columns come in the order asked for, a metric's with all of its figures, and keep what marks their cells."""
    table = TextTable(["run", "status", "val_loss best", "val_loss last", "steps/s"], [["a", "x", 1.0, 2.0, 3.0]],
                      texts=2, tones={(0, 2): "best", (0, 4): "best"})  # fmt: skip
    found = choosing.of_table(table, "steps_per_s,val_loss")
    assert (found.headers, found.rows) == (
        ["run", "steps/s", "val_loss best", "val_loss last"],
        [["a", 3.0, 1.0, 2.0]],
    )
    assert found.tones == {(0, 1): "best", (0, 2): "best"}
    assert choosing.of_table(table, "val_*").headers == ["run", "val_loss best", "val_loss last"]
    with pytest.raises(UsageError, match="--columns: there is no 'stats': did you mean 'status'"):
        choosing.of_table(table, "stats")


def test_rows_of_a_table_are_chosen_with_their_marks() -> None:
    """The same where each run is a column."""
    table = TextTable(["run", "a"], [["status", "x"], ["val_loss best", 1.0]], tones={(1, 1): "best"})
    found = choosing.rows_of(table, "val_loss")
    assert (found.rows, found.tones) == ([["val_loss best", 1.0]], {(0, 1): "best"})


def test_best_of_is_nowhere_without_a_goal_or_a_difference() -> None:
    """No mark where no value is better, or all are the same; NaN and infinity are never best."""
    assert best_of([1.0, 2.0, 1.0, math.nan, None, "x"], "min") == {0, 2}
    assert best_of([1.0, 2.0, math.inf], "max") == {1}
    assert best_of([1.0, 1.0], "min") == set()
    assert best_of([1.0, 2.0], None) == set()
