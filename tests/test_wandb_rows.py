"""Records as W&B's rows: nothing dropped, nothing twice, whatever comes again."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.wandb_support import metrics
from trackers.backends.wandb_rows import MARKS, Mark, Row, Rows, remember, resume_mark
from trackers.records import (
    Metrics,
    Record,
)

RECORDS = st.lists(
    st.tuples(st.none() | st.integers(0, 6), st.sets(st.sampled_from("abc"), min_size=1)), min_size=1, max_size=30
)


def built(records: list[Record], **fields: Any) -> list[Row]:
    rows: list[Row] = []
    builder = Rows(rows.append, **fields)
    for record in records:
        assert isinstance(record, Metrics)
        builder.add(record)
    builder.end()
    return rows


@given(RECORDS)
def test_rows_keep_every_value_in_order_with_rising_steps(shape: list[tuple[int | None, set[str]]]) -> None:
    """Whatever the steps: every value lies in one row, in order, and W&B's steps rise, never below the training's."""
    records = metrics(*((step, {name: float(place) for name in names}) for place, (step, names) in enumerate(shape)))
    rows = built(records)
    assert sum(len(row.values) for row in rows) == sum(len(names) for _, names in shape)
    numbers = [row.number for row in rows]
    assert numbers == sorted(set(numbers))
    assert all(row.number >= (row.step or 0) for row in rows)


@given(RECORDS, st.data())
def test_rows_built_again_complete_what_the_destination_holds(
    shape: list[tuple[int | None, set[str]]], data: st.DataObject
) -> None:
    """Sent early or not, lost from any row on, begun again at any mark that is left: each value lies there once."""
    records = metrics(*((step, {name: float(place) for name in names}) for place, (step, names) in enumerate(shape)))
    rows: list[Row] = []
    builder = Rows(rows.append)
    marks = []
    for record in records:
        assert isinstance(record, Metrics)
        builder.add(record)
        marks.append(builder.mark(record.seq))
        if data.draw(st.booleans()):
            builder.flush()
    builder.end()
    held = data.draw(st.sampled_from([-1, *(row.number for row in rows)]))
    there = [row for row in rows if row.number <= held]
    mark = data.draw(st.sampled_from([Mark(0, -1), *(mark for mark in marks if mark.last <= held)]))
    names = {row.number: frozenset(row.values) for row in there}
    again = built([record for record in records if record.seq > mark.seq], last=mark.last, held=names)
    final = there + [row for row in again if row.number > held]
    assert [row.number for row in final] == sorted({row.number for row in final})
    found = sorted((name, value) for row in final for name, value in row.values.items())
    assert found == sorted((name, float(place)) for place, (_, names) in enumerate(shape) for name in names)


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3)), max_size=300), st.integers(-1, 400))
def test_marks_stay_few_and_never_skip_a_row(steps: list[tuple[int, int]], held: int) -> None:
    """However many marks are taken, few are kept, and the one to resume from has no row unknown to the destination."""
    marks: list[Mark] = []
    seq, last = 0, -1
    for more, rows in steps:
        seq, last = seq + more, last + rows
        remember(marks, Mark(seq, last))
    assert len(marks) <= MARKS
    mark = resume_mark(marks, held)
    assert mark.last <= held
    assert mark == Mark(0, -1) or mark in marks
