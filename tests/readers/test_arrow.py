"""Arrow's arrays made of memory are those that pyarrow makes of lists."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trackers.readers import arrow

TEXT = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@pytest.mark.slow
@given(st.lists(TEXT, max_size=40))
def test_texts_are_what_pyarrow_makes(values: list[str | None]) -> None:
    """Empty ones, absent ones, of any length and script."""
    found = arrow.texts(values)
    found.validate(full=True)
    assert found.equals(pa.array(values, pa.string()))
    assert found.null_count == values.count(None)


def test_codes_are_what_pyarrow_makes() -> None:
    """Of any integers, and of none; also of what isn't contiguous."""
    for values in (np.arange(7, dtype=np.int64)[::2], np.zeros(0, np.int32)):
        assert arrow.codes(values).equals(pa.array(values.astype(np.int32), pa.int32()))


def test_more_text_than_an_array_holds_is_left_to_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says what to do with it."""
    monkeypatch.setattr(arrow, "MOST_BYTES", 3)
    assert arrow.texts(["ab", None, "cd"]).equals(pa.array(["ab", None, "cd"]))


def test_empty_table_has_the_columns() -> None:
    """And no rows."""
    schema = pa.schema([("a", pa.dictionary(pa.int32(), pa.string())), ("b", pa.list_(pa.string()))])
    assert arrow.empty(schema).equals(schema.empty_table())
