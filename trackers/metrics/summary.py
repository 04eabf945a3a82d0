"""``define_metric(name, summary="min")``: results that fill themselves from what is logged."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Mapping, Sequence
from typing import Any

from trackers.errors import UsageError
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
        words = [str.__str__(word).strip() for word in words if word.strip()]
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

    Attributes:
        definitions: all that were taken, in their order.
    """

    def __init__(self) -> None:
        self.definitions: list[Define] = []
        self._folds: dict[str, tuple[_Fold, Define] | None] = {}

    def __bool__(self) -> bool:
        return any(set(define.summary) - {"none"} for define in self.definitions)

    def define(self, define: Define) -> None:
        """Take a definition; for one name the later definition counts, an exact name before a glob."""
        self.definitions.append(define)
        self._folds = {name: entry for name, entry in self._folds.items() if entry is not None}
        for name, entry in list(self._folds.items()):
            match = self._match(name)
            if entry is not None and match is not None:
                self._folds[name] = (entry[0], match)

    def update(self, values: Mapping[str, Number]) -> None:
        for name, value in values.items():
            entry = self._folds.get(name, ...)
            if entry is ...:
                define = self._match(name)
                entry = self._folds[name] = (_Fold(), define) if define is not None else None
            if entry is not None:
                entry[0].add(value)

    def results(self) -> dict[str, Any]:
        """Results by ``final/`` name: ``final/val_loss`` for one summary, ``final/val_loss.min`` … for several."""
        results: dict[str, Any] = {}
        for name, entry in self._folds.items():
            if entry is None or entry[0].last is None:
                continue
            fold, define = entry
            words = [word for word in define.summary if word not in ("none", "copy")]
            for word in words:
                value = _value(fold, word, define.goal)
                if value is not None:
                    results[final_name(name if len(words) == 1 else f"{name}.{word}")] = value
        return results

    def _match(self, name: str) -> Define | None:
        exact = [define for define in self.definitions if define.name == name]
        globs = [define for define in self.definitions if fnmatch.fnmatchcase(name, define.name)]
        match = (globs + exact)[-1] if globs or exact else None
        return match if match is not None and set(match.summary) - {"none", "copy"} else None


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
