"""Minimum, maximum, mean, first and last of metrics, over the whole run.

W&B's client computes them too, but over the rows since its last start: after a resume its minimum is that of the
rest of the run. So it is told to leave these metrics alone (``summary="none"``), and they are written from here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

OPERATIONS = ("min", "max", "mean", "first", "last")


class Aggregates:
    """Aggregates by metric. ``state`` is what survives a restart: JSON values; ``rows`` up to its ``to`` are in it."""

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        self._to = int((state or {}).get("to", -1))
        self._of: dict[str, dict[str, float]] = {name: dict(held) for name, held in (state or {}).get("of", {}).items()}

    @property
    def state(self) -> dict[str, Any]:
        return {"to": self._to, "of": self._of}

    def add(self, number: int, values: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
        """Count the values of the row with this ``_step``, of the metrics in ``wanted``; a row counts once.

        NaN and what isn't a number is left out.
        """
        if number <= self._to:
            return
        self._to = number
        for name in wanted.keys() & values.keys():
            value = values[name]
            if not isinstance(value, (int, float)) or math.isnan(value):
                continue
            held = self._of.get(name)
            if held is None:
                first = {"min": value, "max": value, "first": value, "last": value, "sum": value, "count": 1}
                self._of[name] = first
                continue
            held["min"], held["max"] = min(held["min"], value), max(held["max"], value)
            held["last"] = value
            held["sum"], held["count"] = held["sum"] + value, held["count"] + 1

    def summary(self, wanted: Mapping[str, list[str]]) -> dict[str, dict[str, float]]:
        """What W&B's summary holds for each metric: ``{"min": …}`` with the operations asked for."""
        found = {}
        for name, operations in wanted.items():
            held = self._of.get(name)
            if held is not None:
                known = {**held, "mean": held["sum"] / held["count"]}
                found[name] = {operation: known[operation] for operation in operations if operation in OPERATIONS}
        return found
