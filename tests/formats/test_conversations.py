"""Conversations in the rows of tables, as several libraries log them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.helpers import T0
from trackers.formats import conversations
from trackers.records import Media

ASKED = [{"role": "user", "content": "2+2"}]
CALLED: list[dict[str, Any]] = [
    {"role": "user", "content": "2+2"},
    {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "add", "arguments": "[2, 2]"}}]},
    {"role": "tool", "content": "4", "tool_call_id": "c1"},
    {"role": "assistant", "content": "4"},
]


@pytest.mark.parametrize(
    ("row", "asked", "answered", "others"),
    [
        ({"messages": CALLED, "reward": 1.0}, CALLED[:3], CALLED[3:], {"reward": 1.0}),
        ({"prompt": ASKED, "completion": CALLED[3:], "advantage": 0.5}, ASKED, CALLED[3:], {"advantage": 0.5}),
        ({"prompt": "2+2", "completion": "4"}, ASKED, CALLED[3:], {}),
        ({"input": "2+2", "output": "4", "gts": "4", "score": 1}, ASKED, CALLED[3:], {"gts": "4", "score": 1}),
        (
            {"conversations": [{"from": "human", "value": "2+2"}, {"from": "gpt", "value": "4"}], "id": 7},
            ASKED, CALLED[3:], {"id": 7},
        ),
        ({"prompt": "2+2", "response": ""}, ASKED, [{"role": "assistant", "content": ""}], {}),
        ({"prompt": {"a": 2}, "completion": "4"}, [{"role": "user", "content": '{"a":2}'}], CALLED[3:], {}),
    ],
)  # fmt: skip
def test_conversation_is_found_in_its_columns(row: dict[str, Any], asked: Any, answered: Any, others: Any) -> None:
    """What was asked, what was answered, and all else."""
    assert conversations.split(row) == (asked, answered, others)


@pytest.mark.parametrize(
    "row", [{}, {"loss": 1.0}, {"prompt": "2+2"}, {"messages": []}, {"messages": [{"text": "a"}]}, {"messages": "a"}]
)
def test_row_without_a_conversation_is_none(row: dict[str, Any]) -> None:
    """Rows of other tables, and half a conversation, aren't samples."""
    assert conversations.split(row) is None
    assert conversations.as_traces(list(row), [list(row.values())]) == []


def test_sample_has_the_same_ids_each_time() -> None:
    """A store that has a sample's span ignores it when it comes again; other rows have other ids."""
    record = Media(step=3, time=T0, id="rank-0.1:70", name="rollouts", type="table", items=[])
    rows = [[CALLED, 1.0], [CALLED, 0.0], [None, 0.0]]
    spans = conversations.as_spans(record, "abcd1234", ["messages", "reward"], rows)
    assert spans == conversations.as_spans(record, "abcd1234", ["messages", "reward"], rows)
    assert len({(span.trace, span.span) for span in spans}) == len(spans) == 2
    assert spans[0].attributes == {"reward": 1.0, conversations.SAMPLE: 0}
    assert (spans[0].inputs, spans[0].outputs) == ({"messages": CALLED[:3]}, CALLED[3:])


def test_tables_that_libraries_log_as_any_are_samples() -> None:
    """TRL's completions, and verl's table, of which each repeats the rows before: its last step's, one by one."""
    assert conversations.are_samples(["step", "prompt", "completion", "exact", "advantage"])
    assert not conversations.are_samples(["prompt", "completion"])  # which may grow: each table would repeat them
    columns = ["step", *(f"{word}_{number}" for number in (1, 2) for word in ("input", "output", "score"))]
    assert conversations.are_samples(columns)
    rows = [[1, "a", "b", 0.0, "c", "d", 1.0], [2, "e", "f", 0.5, "g", "h", 1.5]]
    found = conversations.unfolded(columns, rows)
    assert found == (["step", "input", "output", "score"], [[2, "e", "f", 0.5], [2, "g", "h", 1.5]])
    assert [trace["metadata"] for trace in conversations.as_traces(*found)] == [
        {"step": 2, "score": 0.5}, {"step": 2, "score": 1.5},
    ]  # fmt: skip
    first, again = (
        Media(step=step, time=T0, id=f"rank-0.1:{step}", name="val", type="table", items=[]) for step in (1, 2)
    )
    ids = [[one.trace for one in conversations.as_spans(record, "r", *found)] for record in (first, again)]
    assert ids[0] == ids[1]
    assert len(set(ids[0])) == 2
    assert conversations.unfolded(columns, []) == (["step", "input", "output", "score"], [])
    assert conversations.unfolded(["a"], [[1]]) == (["a"], [[1]])
