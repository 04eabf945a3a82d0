"""Texts that are names of floats stay texts, in lists and in tables."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trackers.formats import float_names
from trackers.records import FLOAT_NAMES, Text, name_floats

LEAVES = st.sampled_from(
    [*FLOAT_NAMES, *FLOAT_NAMES.values(), 1, 2.5, "a", '"NaN"', '\\u004eaN"', "\\", '"', "x, NaN", True, None]
)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["k", "NaN"]), inner)
)


def read(text: str) -> Any:
    return float_names.listed(Text(time=1.0, values={"x": text}, lists=["x"]))["x"]


@given(st.lists(VALUES, max_size=5))
def test_list_is_read_as_it_was(values: list[Any]) -> None:
    """Whatever is in it; its text is JSON, which says the same but for floats."""
    text = float_names.list_text(values)
    assert json.loads(text, parse_constant=lambda name: pytest.fail(name)) == name_floats(values)
    assert repr(read(text)) == repr(values)
    kept = json.loads(json.dumps(float_names.name({"a": values}), allow_nan=False))
    assert repr(float_names.unname(kept)) == repr({"a": values})


@given(st.lists(st.lists(VALUES, min_size=2, max_size=2), max_size=4))
def test_table_is_read_as_it_was(rows: list[list[Any]]) -> None:
    """Each text and each float, where any text is a float's name."""
    content = name_floats(float_names.content(["a", "b"], rows))
    if "texts" in content:
        assert repr(float_names.rows_of(json.loads(json.dumps(content)))) == repr(rows)


def test_texts_without_a_mark_are_read_as_before() -> None:
    """Of journals of earlier releases; and lists that need no mark have none."""
    assert math.isnan(read('["NaN", 1]')[0])
    assert read('["NaN", "b"]') == ["NaN", "b"]
    assert float_names.list_text(["NaN", "b"]) == '["NaN", "b"]'
    assert float_names.list_text(["b", math.inf]) == '["b", "Infinity"] '
    assert float_names.list_text([1, math.nan]) == '[1, "NaN"]'
    assert float_names.list_text(["NaN", 1]) == '["\\u004eaN", 1]'
    assert float_names.rows_of({"rows": [["NaN"]]}) == [["NaN"]]
