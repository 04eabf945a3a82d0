"""The table of runs: what conditions mean, how rows are sorted, grouped and cut, what differs."""

from __future__ import annotations

import math
from typing import Any

import pytest

from trackers.errors import UsageError
from trackers.ui import table
from trackers.ui.table import Row, RunQuery


def row(key: str, **fields: Any) -> Row:
    """A run."""
    return Row(**{"key": key, "source": f"/runs/{key}", "id": key, "name": key, **fields})


ROWS = [
    row("a", name="Baseline", project="mnist", status="finished", created=1.0, tags=["x", "big model"], step=10,
        config={"lr": 0.1, "model.depth": 4, "name": "other"}, last={"loss": 2.0}, result={"acc": 0.5}),
    row("b", name="second", project="mnist", status="running", created=2.0, step=5, config={"lr": 0.01},
        last={"loss": math.nan}, tracker={"json": "waiting, 5 bytes wait"}),
    row("c", name="third", project="cifar", status="crashed", created=3.0, group="g", config={"lr": "auto"},
        last={"loss": 1.0}, result={"acc": 0.9}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("", "abc"), ("base", "a"), ("BASE", "a"), ("mnist running", "b"), ("-mnist", "c"), ("!mnist", "c"),
        ('"big model"', "a"), ("status:run", "b"), ("-status:run", "ac"), ("lr>0.05", "a"), ("lr<=0.01", "b"),
        ("lr=auto", "c"), ("lr=0.10", "a"), ("lr!=0.1", "bc"), ("acc>=0.9", "c"), ("loss<1.5", "c"), ("loss=nan", "b"),
        ("config.lr>0", "ab"), ("depth>1", ""), ("model.depth>1", "a"), ("json:waiting", "b"), ("step>5", "a"),
        ("-lr>0.05", "bc"), ("name:third", "c"), ("config.name:other", "a"), ("tags:big", "a"), ("nothing>0", ""),
        ("final/acc>=0.9", "c"), ("-final/acc>=0.9", "ab"), ("final/loss>0", ""),
    ],
)  # fmt: skip
def test_condition_chooses(text: str, fits: str) -> None:
    """Words, columns and comparisons, all at once, and their opposites."""
    assert "".join(sorted(one.key for one in table.page(ROWS, RunQuery(where=text)).rows)) == fits


def test_comparison_without_a_number_is_told() -> None:
    """In words."""
    with pytest.raises(UsageError, match="'lr>x': > needs a number"):
        table.page(ROWS, RunQuery(where="lr>x"))


@pytest.mark.parametrize(
    ("sort", "descending", "order"),
    [
        ("created", True, "cba"), ("created", False, "abc"), ("name", False, "abc"), ("name", True, "cba"),
        ("last.loss", False, "cab"), ("last.loss", True, "acb"), ("config.lr", False, "bac"),
        ("config.lr", True, "abc"),
        ("result.acc", True, "cab"), ("result.acc", False, "acb"), ("nothing", True, "cba"),
    ],
)  # fmt: skip
def test_rows_are_sorted(sort: str, descending: bool, order: str) -> None:
    """Numbers before texts, what is missing or NaN last either way."""
    assert "".join(one.key for one in table.page(ROWS, RunQuery(sort=sort, descending=descending)).rows) == order


def test_page_is_cut_pinned_and_grouped() -> None:
    """The total counts all; pins come first; equal values are together, and counted."""
    found = table.page(ROWS, RunQuery(first=1, most=1))
    assert ([one.key for one in found.rows], found.total) == (["b"], 3)
    assert table.page(ROWS, RunQuery(pins=["a"])).rows[0].key == "a"
    found = table.page(ROWS, RunQuery(by="project"))
    assert [one.key for one in found.rows] == ["c", "b", "a"]
    assert found.groups == [("cifar", 1), ("mnist", 2)]


def test_columns_are_those_with_values() -> None:
    """Attributes, then each setting, result, last value and tracker that some run has."""
    found = table.columns(ROWS)
    assert found[:2] == ["name", "id"]
    assert found[-6:] == ["config.lr", "config.model.depth", "config.name", "result.acc", "last.loss", "tracker.json"]


def test_settings_that_differ_come_apart() -> None:
    """A setting that a run lacks differs; NaN is NaN."""
    differ, same = table.differing([{"a": 1, "b": math.nan, "c": 2}, {"a": 1, "b": math.nan, "c": 3, "d": 4}])
    assert differ == {"c": [2, 3], "d": [None, 4]}
    assert set(same) == {"a", "b"}


def test_long_values_are_cut() -> None:
    """A row stays small, whatever a run's configuration holds."""
    found = table.leaf_values(
        {"text": "x" * 10_000, "list": list(range(10_000)), "big": 10**30, **dict.fromkeys(map(str, range(999)))}
    )
    assert len(found) == table.MOST_VALUES
    assert all(len(str(value)) <= table.LONGEST for value in found.values())
    assert isinstance(found["big"], str)


def test_groups_have_mean_spread_and_count_and_fold() -> None:
    """Of each group by column mean, standard deviation and number; folded ones have no rows, and are counted still."""
    rows = [Row(str(k), "", str(k), "", config={"opt": "sgd" if k < 3 else None, "lr": float(k)}) for k in range(4)]
    query = RunQuery(by="config.opt", columns=["config.lr", "name", "created"], folded=["sgd"])
    found = table.page(rows, query)
    assert found.groups == [("sgd", 3), (None, 1)]
    assert found.spreads == [{"config.lr": (1.0, 1.0, 3)}, {"config.lr": (3.0, None, 1)}]
    assert ([row.key for row in found.rows], found.total) == (["3"], 4)
    assert table.page(rows, RunQuery(by="config.opt")).spreads[0]["config.lr"] == (1.0, 1.0, 3)
