"""Spans as trees: in order, whatever is missing or wrong in them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trackers.analysis.span_tree import LOST, labels, tokens, traces
from trackers.records import Span


def span(name: str, parent: str = "", began: float = 0.0, trace: str = "t", **more: Any) -> Span:
    """A span that is called as its id."""
    return Span(time=began + 1, began=began, name=name, span=name, parent=parent, trace=trace, **more)


def test_tree_has_children_below_their_parents() -> None:
    """In the order of their beginnings, though they end the other way round."""
    found = traces([span("d", "c", 3), span("c", "a", 2), span("b", "a", 1), span("a", "", 0), span("x", trace="u")])
    assert [trace.id for trace in found] == ["t", "u"]
    assert labels(found[0]) == ["a", "├─ b", "└─ c", "   └─ d"]
    deeper = traces([span("a"), span("b", "a", 1), span("c", "b", 2), span("d", "a", 3)])[0]
    assert labels(deeper) == ["a", "├─ b", "│  └─ c", "└─ d"]
    assert (found[0].began, found[0].seconds) == (0, 4)


def test_spans_whose_parent_is_missing_stand_below_a_line() -> None:
    """As after a kill, and while the parent is on."""
    (found,) = traces([span("b", "a", 1), span("c", "b", 2)])
    assert labels(found) == [LOST, "└─ b", "   └─ c"]
    assert len(found.spans) == 2


def test_times_that_are_none_are_the_end() -> None:
    """Of a journal that somebody else wrote."""
    for began in (float("nan"), float("inf"), -1.0, 9.0):
        found = Span(time=5.0, began=began, name="a", trace="t", span="a")
        assert (found.start, found.seconds) == (5.0, 0.0)
        assert traces([found])[0].began == 5.0


def test_tokens_are_summed_by_model() -> None:
    """By names of today and of before; what is no whole number isn't counted."""
    found = tokens([
        span("a", attributes={"gen_ai.usage.input_tokens": 5, "gen_ai.request.model": "m"}),
        span("b", attributes={"gen_ai.usage.prompt_tokens": 2.0, "gen_ai.response.model": "m"}),
        span("c", attributes={"gen_ai.usage.output_tokens": 7}),
        span("d", attributes={"gen_ai.usage.output_tokens": -1, "gen_ai.usage.input_tokens": "many"}),
        span("e", attributes={"gen_ai.usage.output_tokens": 1e300, "gen_ai.usage.input_tokens": 0.5}),
    ])  # fmt: skip
    assert found == {"m": {"gen_ai.usage.input_tokens": 7}, "": {"gen_ai.usage.output_tokens": 7}}


NAMES = st.sampled_from("abcde")


@pytest.mark.slow
@given(st.lists(st.tuples(NAMES, st.sampled_from(["", *"abcdef"]), st.floats(0, 9)), max_size=12))
def test_each_span_is_there_once(given_: list[tuple[str, str, float]]) -> None:
    """Also where parents go round in a circle, or a span is its own."""
    spans = [span(name, parent, began) for name, parent, began in given_]
    for trace in traces(spans):
        names = [one.name for one in trace.spans]
        assert sorted(names) == sorted({one.name for one in spans})
        assert len(labels(trace)) == len(trace.rows)
