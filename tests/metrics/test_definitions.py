"""Definitions of metrics add to one another as W&B's do, whatever names and globs they are given by."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trackers.metrics.definitions import Definition, Definitions, nested
from trackers.metrics.summary import SummaryFold
from trackers.records import Define

NAMES = st.sampled_from(["a", "val/loss", "val/acc", "x"])
DEFINES = st.builds(
    Define,
    time=st.just(0.0),
    name=NAMES | st.sampled_from(["val/*", "*"]),
    step_metric=st.none() | st.sampled_from(["epoch", "step"]),
    summary=st.lists(st.sampled_from(["min", "max", "mean", "last", "none", "copy"]), max_size=2),
    hidden=st.booleans(),
    overwrite=st.booleans(),
)


def defined(*records: Define) -> Definitions:
    made = Definitions()
    for record in records:
        made.define(record)
    return made


def define(name: str, **fields: Any) -> Define:
    return Define(time=0.0, name=name, **fields)


@given(st.lists(DEFINES | NAMES, max_size=12))
def test_definition_is_all_that_was_said_since_it_was_last_replaced(events: list[Define | str]) -> None:
    """Names and globs apart; what is logged keeps the glob that says most of it, and adds to that from then on."""
    made = Definitions()
    exact: dict[str, list[Define]] = {}
    globs: dict[str, list[Define]] = {}
    for event in events:
        if isinstance(event, str):
            made.of(event)
            meeting = [glob for glob in globs if glob == "*" or event.startswith("val/")]
            if event not in exact and meeting:
                exact[event] = list(globs[max(meeting, key=len)])
            continue
        made.define(event)
        kind = globs if "*" in event.name else exact
        before = [] if event.overwrite else kind.pop(event.name, [])
        kind.pop(event.name, None)
        kind[event.name] = [*before, event]
    for name, said in exact.items():
        found = made.known(name)
        assert found is not None
        assert found.step_metric == next((one.step_metric for one in reversed(said) if one.step_metric), None)
        assert set(found.summary) == {word for one in said for word in one.summary} - {"none", "copy"}
        assert found.none == next(("none" in one.summary for one in reversed(said) if one.summary), False)
        assert found.hidden == any(one.hidden for one in said)
    assert Definitions(made.state).state == made.state


@pytest.mark.parametrize(
    ("given_name", "logged", "applies"),
    [
        ("a.b", "a/b", True), ("a.b", "a.b", True), (r"a\.b", "a.b", True), (r"a\.b", "a/b", False),
        ("a/b", "a.b", False), ("a.*", "a/b", True), ("layer[0]*", "layer[0]/norm", True),
        ("layer[0]", "layer[0]", True),
        ("val/*", "val", False), ("*", "x", True), ("v*_l?ss", "val_loss", True),
    ],
)  # fmt: skip
def test_names_of_nested_values_are_wandbs_or_ours(given_name: str, logged: str, applies: bool) -> None:
    """W&B's dots, escaped dots, and characters that a glob may have."""
    made = defined(define(given_name, summary=["min"]))
    assert (made.of(logged) == Definition(summary=("min",))) == applies
    assert made.unmatched([logged]) == ([] if applies else [given_name])


def test_nested_name_is_split_at_dots_that_are_not_escaped() -> None:
    """As W&B writes them."""
    assert [nested(name) for name in ("a.b.c", r"a.b\.c", "a/b")] == ["a/b/c", "a/b.c", "a/b"]


def test_definition_that_comes_later_counts_what_was_logged_before() -> None:
    """Also where another definition had the fold begin, and the metric had none."""
    fold = SummaryFold()
    fold.define(define("a", summary=["max"]))
    fold.update({"a": 1.0, "b": 5.0})
    fold.definitions.define(define("b", summary=["max"]))
    assert fold.refresh(), "the values of b so far are asked for"
    fold.replay({"a": 1.0, "b": 5.0})
    assert not fold.refresh()
    assert fold.totals("b")["b"]["max"] == 5.0
