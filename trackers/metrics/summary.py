"""Results that follow from what is logged: what ``define_metric(name, summary="min")`` asks for, and what replaces a
result that was set."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from trackers.errors import UsageError
from trackers.metrics.definitions import Definition, Definitions, is_glob, matches, nested
from trackers.metrics.mappings import Overtaken
from trackers.records import (
    SUMMARY_PREFIX,
    Define,
    Media,
    Metrics,
    Number,
    Record,
    Summary,
    Text,
    final_name,
    plain_name,
    take_results,
)
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
    """One metric's minimum, maximum, mean, first and last value; NaN counts only as a first or last value."""

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


class _Given:
    """A result that was set by hand, or with ``names`` empty: deleted. last: the metric's newest value since; None
    while there is none.

    holds: until the metric is defined again, its last value is the result. fixed: nothing that is logged replaces it.
    names: what it is recorded as, several where results by word were set.
    """

    __slots__ = ("by_word", "fixed", "holds", "last", "names")

    def __init__(self, names: Iterable[str], *, fixed: bool = False, by_word: bool = False) -> None:
        self.last: Any = None
        self.holds = True
        self.fixed = fixed
        self.by_word = by_word
        self.names = tuple(names)


class SummaryFold:
    """The results that follow from what is logged, in the order of the records, as W&B has them.

    A definition asks for results; a result that was set counts until its metric's next value, which then is the
    result until the metric is defined again; a definition of ``none`` leaves the result as it is. ``update`` costs
    nothing for names that no definition matches.

    Args:
        definitions: of the run, to which others may add; see :meth:`refresh`.
        given: results that were set; one that is replaced is removed.
        all_names: fold every metric: a later definition finds all values.

    Attributes:
        media: those that are results, by name (:meth:`show`).
    """

    def __init__(
        self, definitions: Definitions | None = None, given: dict[str, Any] | None = None, *, all_names: bool = False
    ) -> None:
        self.definitions = Definitions() if definitions is None else definitions
        self._values = {} if given is None else given
        self._all_names = all_names
        self._folds: dict[str, _Fold | None] = {}
        self._early: set[str] = set()
        self._given: dict[str, _Given] = {}
        self._kept: dict[str, dict[str, Any]] = {}
        self.media: dict[str, Media] = {}

    def define(self, define: Define) -> None:
        """Add a definition; call it before ``update``."""
        self.keep_results(define)
        self.definitions.define(define)
        self.refresh()
        self.defined(define)

    def keep_results(self, define: Define) -> None:
        """Before a definition is added: keep what it has no further result of (``none``) as it is."""
        if "none" in define.summary:
            for name in self._folds.keys() | self._given.keys():
                if _is_of(define, name) and name not in self._kept and (result := self._result(name)):
                    self._kept[name] = result

    def defined(self, define: Define) -> None:
        """After a definition was added: results that were set give way to it with their metric's next value."""
        for name, given in self._given.items():
            if _is_of(define, name) and not is_glob(define.name):
                given.holds = False
        for name in list(self._kept):
            definition = self.definitions.known(name)
            if definition is None or not definition.none:
                del self._kept[name]

    def refresh(self) -> bool:
        """Take note of added definitions.

        Returns:
            whether they ask for the result of a metric whose values so far weren't kept.
        """
        unkept = [name for name, fold in self._folds.items() if fold is None]
        self._early.update(self._folds if self._all_names else unkept)
        return any(_is_folded(self.definitions.known(name)) for name in unkept)

    def give(self, record: Summary) -> None:
        """Take results that were set: one of a ``final/`` name is no metric's, so that nothing replaces it."""
        for name in map(plain_name, record.removed):
            self._given.pop(name, None)
            self._kept.pop(name, None)
            self.media.pop(name, None)
            if name in self._folds:
                self._given[name] = _Given(())
        worded: set[str] = set()
        for metric in record.by_word:
            names = [name for name in record.values if name == metric or name in words_of(metric)]
            worded.update(names)
            self._given[metric] = _Given(names, by_word=True)
            self._kept.pop(metric, None)
        for name in record.values:
            self.media.pop(plain_name(name), None)
            if name not in worded:
                self._given[plain_name(name)] = _Given([name], fixed=name.startswith(SUMMARY_PREFIX))
                self._kept.pop(plain_name(name), None)

    def show(self, record: Media) -> None:
        """Take a medium: one that was set is a result until its name has another one or is logged."""
        self.media.pop(plain_name(record.name), None)
        if record.result:
            self.media[plain_name(record.name)] = record
            self.shown(record.name)

    def shown(self, name: str) -> None:
        """A medium was set as a result, which counts until the name's next value."""
        self._given[plain_name(name)] = _Given([plain_name(name)])
        self._kept.pop(plain_name(name), None)

    def update(self, values: Mapping[str, Any]) -> None:
        """Take what is logged: numbers, and texts for the sake of results that were set."""
        for name, value in values.items():
            fold = self._folds.get(name, ...)
            if fold is ... or (self._early and name in self._early):
                self._early.discard(name)
                if self._given and name in self._given and self.definitions.takes_glob(name):
                    self._given[name].holds = False
                wanted = _is_folded(self.definitions.of(name)) or self._all_names
                if fold is ...:
                    fold = self._folds[name] = _Fold() if wanted else None
            if fold is not None and not isinstance(value, str):
                fold.add(value)
        for name in self.media.keys() & values.keys() if self.media else ():
            del self.media[name]
        for name in self._given.keys() & values.keys() if self._given else ():
            given, definition = self._given[name], self.definitions.known(name)
            if not given.names:  # it was deleted
                del self._given[name]
                continue
            if definition is not None and definition.none:
                continue
            given.last = values[name]
            if not given.fixed:
                for recorded in given.names:
                    self._values.pop(recorded, None)

    def replay(self, values: Mapping[str, Any]) -> None:
        """Take what was logged before a definition: no metric takes a glob by that."""
        for name, value in values.items():
            fold = self._folds.get(name)
            if fold is None:
                fold = self._folds[name] = _Fold() if _is_folded(self.definitions.known(name)) else None
                self._early.add(name)
            if fold is not None and not isinstance(value, str):
                fold.add(value)

    def take_over(self, other: SummaryFold) -> None:
        """Take another fold's results that were set or kept: it took the same calls."""
        self._given, self._kept = other._given, other._kept

    def totals(self, name: str, asked: bool = False) -> dict[str, dict[str, Number]]:
        """What a definition's metrics have so far: first, last, min, max, sum and count, by metric; NaN aside.

        Args:
            name: a metric's, or a glob. asked: only of metrics for which a definition asks for results.
        """
        return {
            logged: {"first": fold.first, "last": fold.last, "min": fold.low, "max": fold.high, "sum": fold.total,
                     "count": fold.count}
            for logged, fold in self._folds.items()
            if fold is not None and fold.count and fold.first is not None and fold.last is not None
            and (logged in (name, nested(name)) or matches(name, logged))
            and (not asked or _is_folded(self.definitions.known(logged)))
        }  # fmt: skip

    def by_word(self, name: str) -> dict[str, Number] | None:
        """A metric's results by word (``{"min": 0.5}``); None where no definition asks for any."""
        definition = self.definitions.known(name) or self.definitions.known(nested(name))
        given = self._set(name) or self._set(nested(name))
        if given is not None and not given.names:
            return {}
        if given is not None and (given.fixed or given.last is None):
            return self._set_by_word(name, given, definition) if given.by_word else None
        if given is not None and given.holds:
            return None
        if definition is None or name.startswith(SUMMARY_PREFIX) or not (definition.summary or definition.none):
            return None
        fold = self._folds.get(name) or self._folds.get(nested(name))
        if fold is None or fold.last is None or definition.none:
            return {}
        found = {word: _value(fold, word, definition.goal) for word in definition.summary}
        return {word: value for word, value in found.items() if value is not None}

    def _set_by_word(self, name: str, given: Any, definition: Definition | None) -> dict[str, Number]:
        """The results of a metric that a script set by word."""
        only = definition.summary[0] if definition is not None and definition.summary else "value"
        words = {recorded: recorded.rpartition(".")[2] if recorded != name else only for recorded in given.names}
        return {word: self._values[recorded] for recorded, word in words.items() if recorded in self._values}

    def results(self) -> dict[str, Any]:
        """Results by ``final/`` name: ``final/val_loss`` for one summary, ``final/val_loss.min`` … for several."""
        results: dict[str, Any] = {}
        for name in dict.fromkeys([*self._folds, *self._given]):
            found = self._kept[name] if name in self._kept else self._result(name)
            results.update(
                {final_name(one): value for one, value in found.items() if one == name or not self._stays(one)}
            )
        return results

    def replaced(self, recorded: Iterable[str]) -> list[str]:
        """Of names that results were recorded by, those that are results no more: another one of the metric is."""
        recorded = set(map(plain_name, recorded))
        now = set(map(plain_name, self.results()))
        gone = []
        for metric in dict.fromkeys([*self._folds, *self._given]):
            given, definition = self._given.get(metric), self.definitions.known(metric)
            if given is None and definition is None:
                continue  # it was recorded for another reason
            if metric not in self._kept and definition is not None and definition.none:
                continue
            now.update(map(plain_name, given.names) if given is not None and self._stays(metric) else ())
            others = self._folds.keys() | self._given.keys()
            own = [metric, *(name for name in words_of(metric) if name not in others)]
            gone += [name for name in own if name in recorded and name not in now]
        return gone

    def deleted(self) -> list[str]:
        """The names whose results were deleted and that have no value since."""
        return [name for name, given in self._given.items() if not given.names]

    def _stays(self, name: str) -> bool:
        """Whether a result that was set hasn't been replaced."""
        given = self._given.get(name)
        return given is not None and bool(given.names) and (given.fixed or given.last is None)

    def _set(self, name: str) -> _Given | None:
        """What was set of a metric; None for its ``final/`` name beside several results by word, of other names."""
        given, definition = self._given.get(name), self.definitions.known(name)
        several = definition is not None and len(definition.summary) > 1
        return None if several and given is not None and given.fixed else given

    def _result(self, name: str) -> dict[str, Any]:
        """A metric's result as it would be recorded now; {} if it has none, or what was set is still valid."""
        fold, given, definition = self._folds.get(name), self._set(name), self.definitions.known(name)
        none = definition is not None and definition.none
        if none or (given is not None and (not given.names or self._stays(name))):
            return {}
        if given is not None and (given.holds or definition is None or not definition.summary):
            return {name: given.last}
        if fold is None or fold.last is None or definition is None:
            return {}
        words = definition.summary
        known = {word: _value(fold, word, definition.goal) for word in words}
        return {
            name if len(words) == 1 else f"{name}.{word}": value for word, value in known.items() if value is not None
        }


def folded(records: Iterable[Record], recorded: dict[str, Any], overtaken: Overtaken | None = None) -> SummaryFold:
    """What follows from a run's records, in their order.

    Args:
        recorded: gets the results that were recorded, by their plain names. overtaken: of a run that several processes
            recorded.
    """
    given: dict[str, Any] = {}
    fold = SummaryFold(given=given, all_names=True)
    for record in records:
        match record:
            case Define():
                fold.define(record)
            case Metrics() | Text():
                fold.update(record.values)
            case Media():
                fold.show(record)
            case Summary():
                take_results(recorded, record)
                if not record.derived:
                    take_results(given, record, str)
                    fold.give(record)
        if overtaken is not None and (gone := overtaken.see(record)):
            removal = Summary(time=record.time, values={}, removed=sorted(gone))
            take_results(recorded, removal)
            take_results(given, removal, str)
            fold.give(removal)
    return fold


def words_of(metric: str) -> list[str]:
    """The names of a metric's results by word."""
    return [f"{metric}.{word}" for word in SUMMARIES]


def _is_of(define: Define, name: str) -> bool:
    return name in (define.name, nested(define.name)) or matches(define.name, name)


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
