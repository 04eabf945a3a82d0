"""Step metrics as the steps of trackers with one axis."""

from __future__ import annotations

from typing import Any

from trackers.metrics.axes import Axes
from trackers.records import Define


def axes(*definitions: tuple[str, str | None]) -> tuple[Axes, list[str]]:
    said: list[str] = []
    made = Axes(lambda text, about: said.append(text))
    for name, step_metric in definitions:
        define = Define(time=0.0, name=name, step_metric=step_metric)
        made.define(define)
    return made, said


def places(made: Axes, rows: list[dict[str, Any]], name: str) -> list[int | None]:
    return [made.position_of(name, made.see(row, step)) for step, row in enumerate(rows)]


def test_value_of_the_step_metric_is_the_place_and_stays_until_the_next() -> None:
    """A row without the step metric lies where the last one lay; before the first there is no place."""
    made, said = axes(("train/step", None), ("*", "train/step"))
    rows = [{"loss": 1.0}, {"loss": 1.0, "train/step": 3}, {"loss": 1.0}, {"loss": 1.0, "train/step": 5.0}]
    assert places(made, rows, "loss") == [None, 3, 3, 5]
    assert said == []


def test_exact_name_counts_before_a_glob_and_a_later_glob_before_an_earlier() -> None:
    """As in W&B."""
    made, _ = axes(("*", "a"), ("val/*", "b"), ("val/own", None))
    at = made.see({"a": 1, "b": 2}, 9)
    assert [made.position_of(name, at) for name in ("x", "val/loss", "val/own", "a", "b")] == [1, 2, None, 1, 2]
    assert made.split(["x", "val/loss", "y", "val/own"], at) == {1: ["x", "y"], 2: ["val/loss"], None: ["val/own"]}


def test_place_never_goes_back_and_that_is_said_once() -> None:
    """What went back counts on from the last place until it is beyond it."""
    made, said = axes(("loss", "epoch"))
    assert places(made, [{"epoch": n} for n in (0, 5, 1, 2, 9, 9, 3)], "loss") == [0, 5, 6, 7, 9, 9, 10]
    assert "went back from 5 to 1" in said[0]


def test_fractions_nan_and_negative_numbers_are_no_places() -> None:
    """From the first one on the metric counts rows, and says so."""
    made, said = axes(("loss", "epoch"))
    rows = [{"epoch": value} for value in (0.0, 0.5, 1.0, float("nan"), -1, True)]
    assert places(made, rows, "loss") == [0, 1, 2, 3, 4, 4]
    assert len(said) == 1
    assert "0.5 is no whole number from 0 on" in said[0]
