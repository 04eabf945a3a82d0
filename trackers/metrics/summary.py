"""``define_metric(name, summary="min")``: results that fill themselves from what is logged."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from trackers.errors import UsageError
from trackers.metrics.definitions import Definition, Definitions, matches, nested
from trackers.records import Define, Number, final_name
from trackers.support.interruption import pass_on

SUMMARIES = ("min", "max", "mean", "last", "best", "first", "none", "copy")


def parse_summary(summary: str | Sequence[str] | None, goal: str | None) -> list[str]:
    """``"min,max"`` or a sequence as a list of known words.

    Raises:
        UsageError: an unknown word.
    """
    if summary is None:
        return []
    try:
        words = summary.split(",") if isinstance(summary, str) else list(summary)
        words = [str.__str__(word).strip().lower() for word in words if word.strip()]
    except (TypeError, AttributeError) as error:
        pass_on(error)
        raise UsageError(f"define_metric: summary={summary!r:.60}: known are {', '.join(SUMMARIES)}") from None
    for word in words:
        if word not in SUMMARIES:
            raise UsageError(f"define_metric: unknown summary {word!r}: known are {', '.join(SUMMARIES)}")
    if goal not in (None, "minimize", "maximize"):
        raise UsageError(f"define_metric: unknown goal {goal!r}: known are minimize, maximize")
    return words


class _Fold:
    """One metric's minimum, maximum, mean, first and last value; NaN counts only as a last value."""

    __slots__ = ("count", "first", "high", "last", "low", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.low = math.inf
        self.high = -math.inf
        self.first: Number | None = None
        self.last: Number | None = None

    def add(self, value: Number) -> None:
        self.first = value if self.first is None else self.first
        self.last = value
        if value == value:
            self.count += 1
            self.total += value
            self.low = min(self.low, value)
            self.high = max(self.high, value)


class SummaryFold:
    """The results that definitions ask for. ``update`` costs nothing for names that no definition matches.

    Args:
        definitions: of the run, to which others may add; see :meth:`refresh`.
    """

    def __init__(self, definitions: Definitions | None = None) -> None:
        self.definitions = Definitions() if definitions is None else definitions
        self._folds: dict[str, _Fold | None] = {}
        self._early: set[str] = set()

    def define(self, define: Define) -> None:
        """Add a definition; call it before ``update``."""
        self.definitions.define(define)
        self.refresh()

    def refresh(self) -> bool:
        """Take note of added definitions.

        Returns:
            whether they ask for the result of a metric whose values so far weren't kept.
        """
        unkept = [name for name, fold in self._folds.items() if fold is None]
        missed = any(_is_folded(self.definitions.known(name)) for name in unkept)
        for name in unkept:
            del self._folds[name]
        return missed

    def update(self, values: Mapping[str, Number]) -> None:
        """Take what is logged."""
        for name, value in values.items():
            fold = self._folds.get(name, ...)
            if fold is ... or (self._early and name in self._early):
                self._early.discard(name)
                wanted = _is_folded(self.definitions.of(name))
                if fold is ...:
                    fold = self._folds[name] = _Fold() if wanted else None
            if fold is not None:
                fold.add(value)

    def replay(self, values: Mapping[str, Number]) -> None:
        """Take what was logged before a definition: no metric takes a glob by that."""
        for name, value in values.items():
            if name not in self._folds:
                self._folds[name] = _Fold() if _is_folded(self.definitions.known(name)) else None
                self._early.add(name)
            fold = self._folds[name]
            if fold is not None:
                fold.add(value)

    def totals(self, name: str) -> dict[str, dict[str, Number]]:
        """What a definition's metrics have so far: first, last, min, max, sum and count, by metric; NaN aside.

        Args:
            name: a metric's, or a glob.
        """
        return {
            logged: {"first": fold.first, "last": fold.last, "min": fold.low, "max": fold.high, "sum": fold.total,
                     "count": fold.count}
            for logged, fold in self._folds.items()
            if fold is not None and fold.count and fold.first is not None and fold.last is not None
            and (logged in (name, nested(name)) or matches(name, logged))
        }  # fmt: skip

    def results(self) -> dict[str, Any]:
        """Results by ``final/`` name: ``final/val_loss`` for one summary, ``final/val_loss.min`` … for several."""
        results: dict[str, Any] = {}
        for name, fold in self._folds.items():
            definition = self.definitions.known(name)
            if fold is None or fold.last is None or definition is None or definition.none:
                continue
            for word in definition.summary:
                value = _value(fold, word, definition.goal)
                if value is not None:
                    results[final_name(name if len(definition.summary) == 1 else f"{name}.{word}")] = value
        return results


def _is_folded(definition: Definition | None) -> bool:
    return definition is not None and bool(definition.summary)


def _value(fold: _Fold, word: str, goal: str | None) -> Number | None:
    if word == "first":
        return fold.first
    if word == "last":
        return fold.last
    if not fold.count:
        return None
    if word == "best":
        word = "max" if goal == "maximize" else "min"
    return {"min": fold.low, "max": fold.high, "mean": fold.total / fold.count}[word]
