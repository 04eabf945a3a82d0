"""The table of ``trackers ls``: which columns there are, how runs are ordered, what a tracker's state is called."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.analysis.support import T0, write_run
from trackers.analysis import run_table
from trackers.analysis.fitting import fitted
from trackers.analysis.run_list import KEPT, RunLine, Standing, listing
from trackers.analysis.tables import TextTable
from trackers.errors import UsageError

ROOT = Path("runs")


def table(columns: str = "") -> TextTable:
    """The table of all runs, 90 seconds after they began."""
    return run_table.table(listing(ROOT).lines, columns, run_table.Glances(), T0 + 90)


def order(by: str) -> list[str]:
    """The names of all runs, by a column."""
    return [line.name for line in run_table.ordered(listing(ROOT).lines, by, run_table.Glances())]


def write(run_id: str, loss: float, best: float | None = None, **more: Any) -> None:
    """A run with a loss, and a result."""
    write_run(run_id, [(1, 1, {"rate": 0.5, "loss": loss})], summary={"best_loss": best} if best else None, **more)


def test_results_come_first_then_last_values_that_have_a_best() -> None:
    """The usual columns: results, then last values, of which those come first that say which run is better."""
    write("one", 2.0, 1.5)
    write("two", 1.0, 0.5, created=T0 + 60)
    found = table()
    assert found.headers == ["name", "id", "status", "steps", "age", "final/best_loss", "loss", "rate", "trackers"]
    assert found.rows[1] == ["two", "two", "finished", 1, "30 s", 0.5, 1.0, 0.5, "json not begun 279 B"]
    assert {place for place, tone in found.tones.items() if tone == "best"} == {(1, 5), (1, 6)}
    assert found.tones[0, 2] == "good"


def test_texts_are_no_usual_columns() -> None:
    """A result that is a text is a column only where it is asked for; NaN is a number."""
    write_run("one", [(1, 1, {"loss": float("nan")})], summary={"said": "a long text", "best": 1.0})
    assert table().headers[5:] == ["final/best", "loss", "trackers"]
    assert table("final/said").rows == [["a long text"]]


def test_narrow_terminal_keeps_how_trackers_stand() -> None:
    """Of results, states and names, what is cut or left out first is the rest."""
    for number in range(2):
        write(f"r{number}", 2.0, 1.5, name=f"a-very-long-name-{number}", project=f"project-of-some-length-{number}")
    text, left_out = fitted(table(), 72, colored=False)
    assert "project" in left_out
    lines = text.splitlines()
    assert all("finished" in line and "json not begun" in line and " 1.5" in line for line in lines[-2:])


def test_project_is_a_column_if_there_are_several() -> None:
    """Runs of several projects name theirs, and no value is the best of them all."""
    write("one", 2.0)
    write("two", 1.0, project="other")
    found = table()
    assert found.headers[:4] == ["name", "id", "project", "status"]
    assert "best" not in found.tones.values()


def test_columns_can_be_settings_and_details() -> None:
    """Columns by name and pattern, of what a listing doesn't keep, too."""
    write("one", 2.0, config={"lr": 0.1, "model": {"depth": 2}}, tags=["a", "b"], group="g")
    assert table("name,config.*,tags,group,loss,trackers").rows[0][:6] == ["one", 0.1, 2, "a, b", "g", 2.0]
    with pytest.raises(UsageError, match=r"there is no 'config.lrr': did you mean 'config.lr'"):
        table("config.lrr")


def test_value_that_a_listing_does_not_keep_is_read() -> None:
    """Of a run with very many metrics each can be a column, and the order."""
    for name, value in (("one", 2.0), ("two", 1.0)):
        write_run(name, [(1, 1, {**{f"m{number}": 1.0 for number in range(KEPT)}, "late": value})])
    assert "late" not in listing(ROOT).lines[0].last
    assert table("name,late").rows == [["one", 2.0], ["two", 1.0]]
    assert order("late") == ["two", "one"]


def test_order_is_best_first_where_there_is_one() -> None:
    """Losses and results from the best, settings from the smallest, ages from the youngest; a minus turns it."""
    write("one", 2.0, 1.5, config={"lr": 1}, created=T0)
    write("two", 1.0, 2.5, config={"lr": 3}, created=T0 + 2)
    write("three", 3.0, config={"lr": 2}, created=T0 + 1)
    assert order("loss") == ["two", "one", "three"]
    assert order("-loss") == ["three", "one", "two"]
    assert order("final/best_loss") == ["one", "two", "three"]
    assert order("config.lr") == ["one", "three", "two"]
    assert order("age") == ["two", "three", "one"]
    assert order("created") == ["one", "three", "two"]
    with pytest.raises(UsageError, match="--sort: no run has 'los': did you mean 'loss'"):
        order("los")


def test_trackers_of_one_state_share_words() -> None:
    """An undelivered run is one short text: trackers in the same state are named together, with the most that waits."""
    trackers = {
        "json": Standing("not begun", 41_170),
        "wandb": Standing("not begun", 41_200),
        "csv": Standing("delivered", 0, 2),
        "mlflow": Standing("waiting", 7, 0, "no answer"),
    }
    said = "json, wandb not begun 41.2 KB; csv ✓ 2 rejected; mlflow waiting 7 B (no answer)"
    assert run_table.standings(trackers) == said


def test_long_texts_and_nested_values_stay_short() -> None:
    """A result that is a long text, or a mapping, takes no more than a cell of bounded length."""
    line = RunLine("runs/p/a", "p", "a", "a", T0, "finished", 1, {"x": "y" * 5000}, {"final/m": {"a": 1}}, False, {})
    (row,) = run_table.table([line], "x,final/m", run_table.Glances(), T0).rows
    assert [len(cell) for cell in row] == [run_table.LONGEST, len(str({"a": 1}))]
