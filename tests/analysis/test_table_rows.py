"""Rows of logged tables: searched, sorted, cut to a page."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from trackers.analysis.table_rows import page, to_json
from trackers.errors import NotFound, UsageError

MEDIA = [{"type": "image", "file": "media/b.npy", "format": "npy", "caption": "a cat"}, None, None, None]
TABLE = pa.table({
    "id": [0, 1, 2, 3],
    "true label": ["Cat", "dog", None, "catfish"],
    "loss": pa.array([0.5, float("nan"), None, 2.0]),
    "right": [True, False, True, None],
    "image": MEDIA,
    "scores": [[1.0, 2.0], [], None, [3.0]],
})  # fmt: skip


def ids(where: str = "", **more: Any) -> list[int]:
    """Which rows a page has."""
    found: list[int] = page(TABLE, where, **more).table["id"].to_pylist()
    return found


@pytest.mark.parametrize(
    ("where", "rows"),
    [
        ("", [0, 1, 2, 3]),
        ("cat", [0, 3]),
        ("-cat", [1, 2]),
        ('"a cat"', [0]),
        ('"true label":CAT', [0, 3]),
        ('"true label"=cat', [0]),
        ('"true label"=""', [2]),
        ("loss>0.4", [0, 3]),
        ("loss>0.4 -id=3", [0]),
        ("loss=nan", [1]),
        ("loss!=0.5", [1, 3]),
        ("id<=1 right=true", [0]),
        ("right=false", [1]),
        ("image:media/b", [0]),
        ("scores:3.0", [3]),
        ("(.*", []),
    ],
)
def test_search_has_the_rows_that_fit(where: str, rows: list[int]) -> None:
    """All words at once; a word is a text and no pattern, case doesn't matter."""
    assert ids(where) == rows


def test_sorted_rows_have_empty_ones_last() -> None:
    """NaN and null at the end either way; texts, media and lists can be sorted, too."""
    assert ids(sort="loss") == [0, 3, 1, 2]
    assert ids(sort="loss", descending=True) == [3, 0, 1, 2]
    assert ids(sort="true label") == [0, 3, 1, 2]
    assert ids(sort="image")[0] == 0
    assert ids("right=true", sort="id", descending=True) == [2, 0]
    assert ids(sort="scores") == [0, 3, 1, 2]


def test_page_is_a_part_of_what_fits() -> None:
    """With the rows' numbers in the whole table, and how many fit; beyond the end there are none."""
    found = page(TABLE, "-dog", sort="id", descending=True, first=1, most=1)
    assert (found.table["id"].to_pylist(), found.indices.tolist(), found.total) == ([2], [2], 3)
    assert page(TABLE, first=10, most=5).table.num_rows == 0
    assert page(TABLE, first=-3, most=-1).table.num_rows == 0


def test_wrong_search_is_one_error() -> None:
    """An unknown column, a comparison without a number or of what isn't numbers."""
    with pytest.raises(NotFound, match="no column 'los': did you mean 'loss'"):
        page(TABLE, "los>1")
    with pytest.raises(UsageError, match="'loss>x': > needs a number"):
        page(TABLE, "loss>x")
    with pytest.raises(UsageError, match="compares numbers"):
        page(TABLE, '"true label">3')
    with pytest.raises(NotFound, match="no column 'x'"):
        page(TABLE, sort="x")


def test_json_names_what_it_has_no_number_for() -> None:
    """NaN as in the journal."""
    assert [row["loss"] for row in to_json(TABLE)] == [0.5, "NaN", None, 2.0]
