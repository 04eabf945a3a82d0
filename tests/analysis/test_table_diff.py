"""Tables of several runs: rows paired by keys, side by side, and what differs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import trackers
from tests.analysis.support import T0, write_run
from trackers.analysis.table_diff import aligned, diff, join, repeats
from trackers.errors import NotFound, UsageError
from trackers.records import Media, MediaFile

ONE = pa.table({"id": [1, 2, 3, 4], "loss": [0.5, float("nan"), 1.0, None], "right": [True, False, False, True]})
OTHER = pa.table({"id": [4.0, 3.0, 2.0, 9.0], "loss": [None, 3.0, float("nan"), 1.0],
                  "right": [True, True, False, True], "new": ["a", "b", "c", "d"]})  # fmt: skip


def rows(found: Any) -> list[dict[str, Any]]:
    """Rows of a frame."""
    listed: list[dict[str, Any]] = found.table.to_pylist()
    return listed


def test_diff_counts_rows_and_columns() -> None:
    """By key, whatever the order: NaN equals NaN and null equals null; means are over the rows that both have."""
    found = diff(ONE, OTHER, on=["id"])
    assert (found.added, found.removed, found.changed, found.same) == (1, 1, 1, 2)
    loss, right = found.columns
    assert (loss.name, loss.kind, loss.changed, loss.largest) == ("loss", "number", 1, 2.0)
    assert (right.changed, right.first, right.second) == (1, pytest.approx(1 / 3), pytest.approx(2 / 3))
    assert (found.only_first, found.only_second, found.repeated) == ([], ["new"], 0)
    changed, removed, added = rows(found.frame("changed")), rows(found.frame("removed")), rows(found.frame("added"))
    assert changed == [{"state": "changed", "id": 3, "loss -": 1.0, "loss +": 3.0, "loss change": 2.0,
                        "right -": False, "right +": True}]  # fmt: skip
    assert (removed[0]["id"], removed[0]["loss -"], removed[0]["loss +"], removed[0]["loss change"]) == (
        1,
        0.5,
        None,
        None,
    )
    assert (added[0]["id"], added[0]["loss -"], added[0]["loss +"]) == (9, None, 1.0)
    assert len(found.frame()) == 3
    assert found.to_dict()["columns"][0]["largest"] == 2.0


def test_rows_without_a_key_are_paired_by_their_place() -> None:
    """The row's number is the key."""
    found = diff(pa.table({"a": [1, 2]}), pa.table({"a": [1, 3, 4]}))
    assert (found.changed, found.added) == (1, 1)
    assert rows(found.frame("changed")) == [{"state": "changed", "row": 1, "a -": 2, "a +": 3, "a change": 1.0}]


def test_numbers_within_the_tolerance_are_the_same() -> None:
    """And a null is no number within it; a negative one is refused."""
    one, other = pa.table({"a": [1.0, 2.0, None]}), pa.table({"a": [1.001, 2.5, 0.0]})
    assert diff(one, other, tolerance=0.01).changed == 2
    assert diff(one, other, tolerance=math.inf).changed == 1
    with pytest.raises(UsageError, match="0 or more"):
        diff(one, other, tolerance=-1)


def test_columns_of_two_kinds_are_compared() -> None:
    """Integers with doubles as numbers, others as texts; images by their files."""
    media = [{"type": "image", "file": name, "format": "npy", "caption": None} for name in ("a", "b")]
    one = pa.table({"n": [1, 2], "t": ["1", "x"], "m": media})
    other = pa.table({"n": [1.0, 2.5], "t": [1, 2], "m": [media[0], media[0]]})
    assert [(column.name, column.changed) for column in diff(one, other).columns] == [("n", 1), ("t", 1), ("m", 1)]


def test_repeated_keys_are_paired_in_their_order() -> None:
    """And counted, with a line that says so."""
    found = diff(
        pa.table({"k": ["a", "a", "b"], "v": [1, 2, 3]}), pa.table({"k": ["a", "a", "a"], "v": [1, 5, 6]}), on=["k"]
    )
    assert (found.same, found.changed, found.added, found.removed, found.repeated) == (1, 1, 1, 1, 2)
    assert repeats(found) == "2 rows share k with an earlier one: paired in their order"


def test_key_called_as_a_column_of_ours_stays() -> None:
    """A table may have a column that is called state."""
    found = diff(pa.table({"state": ["x"], "v": [1]}), pa.table({"state": ["x"], "v": [2]}), on=["state"])
    assert rows(found.frame()) == [{"state (2)": "changed", "state": "x", "v -": 1, "v +": 2, "v change": 1.0}]


def test_join_has_all_rows_of_all_tables() -> None:
    """In the order of first appearance; runs of one name have numbers."""
    found = join([ONE, OTHER, ONE], ["run", "b", "run"], on=["id"])
    assert found.column_names[:4] == ["id", "loss (run)", "loss (b)", "loss (run (2))"]
    assert found["id"].to_pylist() == [1, 2, 3, 4, 9]
    assert found["new (b)"].to_pylist() == [None, "c", "b", "a", "d"]


def test_unknown_key_is_named() -> None:
    """With the nearest column."""
    with pytest.raises(NotFound, match="no column 'ids': did you mean 'id'"):
        diff(ONE, OTHER, on=["ids"])


KEYS = st.lists(st.sampled_from([None, 0.0, -0.0, 1.0, 2.0, math.nan]), max_size=12)


@pytest.mark.slow
@given(KEYS, KEYS, st.lists(st.sampled_from("ab"), min_size=12, max_size=12))
def test_each_row_is_in_one_pair(left: list[Any], right: list[Any], second: list[str]) -> None:
    """Of any keys, two at once, repeated or not: no row is lost, none is paired twice, and pairs have equal keys."""
    tables = [pa.table({"k": pa.array(keys, pa.float64()), "l": second[: len(keys)]}) for keys in (left, right)]
    found = aligned(tables, ["k", "l"])
    for table, places in zip(tables, found.indices, strict=True):
        assert sorted(place for place in places if place >= 0) == list(range(table.num_rows))
    for one, other in zip(*found.indices, strict=True):
        assert one >= 0 or other >= 0
        if one >= 0 and other >= 0:
            keys = [left[one], right[other]]
            assert keys[0] == keys[1] or (keys[0] is not None and keys[0] != keys[0] and keys[1] != keys[1])
            assert second[one] == second[other]


def table(step: int, *cells: Any) -> Media:
    """A record."""
    item = MediaFile(format="json", data={"columns": ["id", "v"], "rows": [[k, cell] for k, cell in enumerate(cells)]})
    return Media(name="t", type="table", items=[item], step=step, time=T0)


def test_tables_of_runs_are_taken_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs as sources or read, the last step or a given one; tables and data frames as they are."""
    monkeypatch.chdir(tmp_path)
    write_run("a", more=[table(1, 1, 2), table(2, 3, 4)])
    write_run("b", more=[table(1, 1, 2), table(2, 3, 5)])
    assert trackers.diff_tables("a", "b", "t", "id").changed == 1
    assert trackers.diff_tables("a", trackers.load("b"), "t", step=1).changed == 0
    frame = trackers.load("a").table("t")
    assert trackers.diff_tables(frame, frame.to_pandas()).same == 2
    joined = trackers.join_tables(["a", "b"], "t", "id")
    assert joined.table.to_pylist()[1] == {"id": 1, "v (a)": 4, "v (b)": 5}
    assert trackers.join_tables([frame, frame], labels=["x", "y"]).column_names[-1] == "v (y)"
    with pytest.raises(UsageError, match="which table"):
        trackers.diff_tables("a", "b")
    with pytest.raises(UsageError, match="a table is an Arrow table"):
        trackers.diff_tables(3, 4)
    with pytest.raises(UsageError, match="1 labels for 2 tables"):
        trackers.join_tables(["a", "b"], "t", labels=["x"])
