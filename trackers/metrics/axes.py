"""``define_metric(name, step_metric="epoch")``: the steps of metrics where a tracker has one axis only.

W&B draws a metric over its step metric. TensorBoard and MLflow have one axis, the step, so there the step metric's
value is the step. The value is found where it is logged and written with the record (``axis``, see
:func:`trackers.records.on_axis`), so that a delivery needs no state of its own for it, wherever it begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from trackers.metrics.definitions import Definitions, nested
from trackers.records import MAX_STEP, Define

Positions = Mapping[str, int]
"""The current position on each axis, by step metric."""

SHAPES = 1000
"""Sets of names that are remembered with their axes."""


class Axes:
    """The step metrics of a run's metrics, and how far each has come.

    A position never goes back: TensorBoard would hide what it has of later steps. A step metric that does, or that
    isn't a whole number, is named once: its metrics then count on from their last position.

    Args:
        say: called with one line, and with what that line is about.
    """

    def __init__(self, say: Callable[[str, str], object]) -> None:
        self._definitions = Definitions()
        self._say = say
        self._axis_by_name: dict[str, str | None] = {}
        self._parts: dict[tuple[str, ...], list[tuple[str | None, list[str]]]] = {}
        self._steps: dict[str, str] = {}
        self._uncounted: set[str] = set()
        self._positions: dict[str, int] = {}

    def __bool__(self) -> bool:
        """Whether a metric has a step metric."""
        return bool(self._steps)

    def define(self, define: Define) -> None:
        """Take a definition, of this attempt or an earlier one."""
        self._definitions.define(define)
        if define.step_metric:
            self._steps |= dict.fromkeys((nested(define.step_metric), define.step_metric), define.step_metric)
        self._axis_by_name.clear()
        self._parts.clear()

    def see(self, values: Mapping[Any, Any], step: int) -> Positions:
        """Take what is logged at a step; what isn't a number yet counts as missing.

        Returns:
            the positions on all axes from then on.
        """
        for logged_name, name in self._steps.items():
            if logged_name not in values or type(value := values[logged_name]) not in (int, float):
                continue
            last = self._positions.get(name)
            position = _as_step(value)
            if position is None or name in self._uncounted:
                if name not in self._uncounted:
                    self._uncounted.add(name)
                    self._say_once(name, f"{value!r:.40} is no whole number from 0 on")
                position = step if last is None else max(step, last + 1)
            elif last is not None and position < last:
                self._say_once(name, f"it went back from {last} to {position}")
                position = last + 1
            self._positions[name] = min(position, MAX_STEP)
        return dict(self._positions)

    def position_of(self, name: str, positions: Positions) -> int | None:
        """A metric's position on its axis; None if it has no step metric, or that was never logged."""
        try:
            axis = self._axis_by_name[name]
        except KeyError:
            axis = self._axis_by_name[name] = self._axis(name)
        return None if axis is None else positions.get(axis)

    def split(self, names: Iterable[str], positions: Positions) -> dict[int | None, list[str]]:
        """Names by their positions, those on an axis first.

        W&B's rows begin anew where a name comes again at one step: a step metric is in each call, and so tells calls
        apart for the names that follow it.
        """
        shape = tuple(names)
        parts = self._parts.get(shape)
        if parts is None:
            by_axis: dict[str | None, list[str]] = {}
            for name in shape:
                by_axis.setdefault(self._axis(name), []).append(name)
            parts = sorted(by_axis.items(), key=lambda part: part[0] is None)
            if len(self._parts) < SHAPES:
                self._parts[shape] = parts
        if len(parts) == 1:
            axis, same = parts[0]
            return {None if axis is None else positions.get(axis): same}
        by_position: dict[int | None, list[str]] = {}
        for axis, same in parts:
            by_position.setdefault(None if axis is None else positions.get(axis), []).extend(same)
        return by_position

    def among(self, names: Iterable[str]) -> tuple[str, ...]:
        """Those of the names that are step metrics."""
        return tuple(name for name in names if name in self._steps)

    def _axis(self, name: str) -> str | None:
        if name in self._steps:
            return self._steps[name]
        definition = self._definitions.of(name)
        return None if definition is None else definition.step_metric

    def _say_once(self, name: str, what: str) -> None:
        self._say(
            f"define_metric: {name!r} can't be the step in TensorBoard and MLflow everywhere: {what}; its metrics "
            "count on from the last step there",
            f"axis {name}",
        )


def _as_step(value: float) -> int | None:
    """A value as a step; None if it is no valid whole number."""
    if value == value and abs(value) <= MAX_STEP and value == int(value) and value >= 0:
        return int(value)
    return None
