"""The table of runs: a row for each, filtered, sorted and cut to what a screen shows."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from trackers import records
from trackers.analysis import run_table
from trackers.analysis.statistics import deviation, mean
from trackers.analysis.table_rows import number_of
from trackers.errors import UsageError

LONGEST = 300
"""Maximum length of a text in a cell, in characters."""
MOST_VALUES = 500
"""Maximum number of settings, of last values and of results of a row."""
ATTRIBUTES = ("name", "id", "project", "status", "step", "created", "time", "group", "tags", "source", "note")
"""Columns that every run has; others are ``config.NAME``, ``last.NAME``, ``result.NAME`` and ``tracker.NAME``."""
_ATTRIBUTES = frozenset(ATTRIBUTES)
STAR = "starred"
"""The tag of runs that come first."""
MOST_SETTINGS = 5
"""Maximum number of settings that are shown unless columns are chosen."""
KINDS = ("config", "result", "last", "tracker")


class Row(msgspec.Struct):
    """One run. key: names it in addresses. created, time (of the last record): Unix seconds; 0: not known.

    config, last, result: by name, numbers or short texts. tracker: how each one stands.
    """

    key: str
    source: str
    id: str
    name: str
    project: str = ""
    group: str = ""
    tags: list[str] = []
    status: str = ""
    created: float = 0.0
    time: float = 0.0
    step: int | None = None
    note: str = ""
    config: dict[str, Any] = {}
    last: dict[str, Any] = {}
    result: dict[str, Any] = {}
    tracker: dict[str, str] = {}

    def cell(self, column: str) -> Any:
        """The value in a column; None where there is none."""
        kind, _, name = column.partition(".")
        if name:
            return getattr(self, kind).get(name) if kind in KINDS else None
        if column == "tags":
            return ", ".join(self.tags)
        return getattr(self, column) if column in _ATTRIBUTES else None

    def find_value(self, name: str) -> Any:
        """Find a value by name: a column's, else that of a setting, a result or a last value.

        A result may be called ``final/NAME``, as the commands and the page's columns call it.
        """
        value = self.cell(name)
        if value is None and name.startswith("final/"):
            value = self.result.get(records.plain_name(name))
        for kind in KINDS if value is None else ():
            value = getattr(self, kind).get(name)
            if value is not None:
                break
        return value


def leaf_values(values: dict[str, Any]) -> dict[str, Any]:
    """Nested values as leaves that a cell shows: numbers and texts that aren't long."""
    leaves: dict[str, Any] = {}
    for name, value in records.flatten(values, "."):
        if len(leaves) >= MOST_VALUES:
            break
        plain = value is None or isinstance(value, (bool, float)) or (isinstance(value, int) and abs(value) < 2**53)
        leaves[name[:LONGEST]] = value if plain else str(value)[:LONGEST]
    return leaves


class RunQuery(msgspec.Struct, forbid_unknown_fields=True):
    """What a page asks for. where: see :func:`condition`. sort: a column. by: a column whose equal values are together.
    project: only its runs; "": of all.

    pins: keys of runs that come first. first, most: the rows wanted. folded: values of ``by`` whose rows aren't wanted.
    columns: those of which a group has its mean and spread; none: those of :func:`usual_columns`.
    """

    where: str = ""
    sort: str = "created"
    descending: bool = True
    by: str = ""
    project: str = ""
    pins: list[str] = []
    first: int = 0
    most: int = 100
    folded: list[Any] = []
    columns: list[str] = []


class RunPage(msgspec.Struct):
    """Rows of a query. total: of all that fit. groups: number of rows by value, where they are grouped.

    spreads: of each group by column the mean, the standard deviation (n - 1; None of one run) and the number of runs.
    """

    rows: list[Row]
    total: int
    groups: list[tuple[Any, int]]
    spreads: list[dict[str, tuple[float, float | None, int]]] = []


def page(rows: Iterable[Row], query: RunQuery) -> RunPage:
    """The rows that a query wants.

    Raises:
        UsageError: its condition can't be understood.
    """
    fits = condition(query.where)
    if query.project:
        rows = [row for row in rows if row.project == query.project]
    fitting = [row for row in rows if fits(row)] if fits is not None else list(rows)
    fitting.sort(key=lambda row: (row.created, row.key), reverse=True)
    if (query.sort, query.descending) != ("created", True):
        _sort(fitting, query.sort, query.descending)
    groups: list[tuple[Any, int]] = []
    spreads: list[dict[str, tuple[float, float | None, int]]] = []
    total = len(fitting)
    if query.by:
        _sort(fitting, query.by, False)
        groups = list(Counter(row.cell(query.by) for row in fitting).items())
        members: dict[Any, list[Row]] = {value: [] for value, _ in groups}
        for row in fitting:
            members[row.cell(query.by)].append(row)
        columns = query.columns or usual_columns(fitting[: max(0, query.most)])
        spreads = [_spreads(members[value], columns) for value, _ in groups]
        folded = {str(value) for value in query.folded}
        fitting = [row for row in fitting if str(row.cell(query.by)) not in folded] if folded else fitting
    pins = set(query.pins)
    fitting.sort(key=lambda row: row.key not in pins and STAR not in row.tags)
    first = max(0, query.first)
    return RunPage(fitting[first : first + max(0, min(query.most, 1000))], total, groups, spreads)


def _spreads(rows: Sequence[Row], columns: Sequence[str]) -> dict[str, tuple[float, float | None, int]]:
    found: dict[str, tuple[float, float | None, int]] = {}
    for column in columns:
        values = [number for row in rows if (number := records.finite(row.cell(column))) is not None]
        if values and column not in ("created", "time"):
            found[column] = (mean(values), deviation(values), len(values))
    return found


def _sort(rows: list[Row], column: str, descending: bool) -> None:
    """Sort by a column: numbers before texts, and what has no value, or no number, last either way."""

    numbers: list[tuple[float, int]] = []
    texts: list[tuple[str, int]] = []
    others: list[int] = []
    for index, row in enumerate(rows):
        value = row.cell(column)
        if isinstance(value, (bool, int, float)) and value == value:
            numbers.append((-value if descending else value, index))
        elif value is None or value == "" or isinstance(value, float):
            others.append(index)
        else:
            texts.append((str(value).lower(), index))
    numbers.sort()
    texts.sort(key=lambda entry: entry[0], reverse=descending)
    rows[:] = [rows[index] for index in (*(p for _, p in numbers), *(p for _, p in texts), *others)]


def columns(rows: Iterable[Row]) -> list[str]:
    """All columns that some run has a value in, attributes first, others by kind and name."""
    names: dict[str, set[str]] = {kind: set() for kind in KINDS}
    for row in rows:
        for kind, known in names.items():
            known.update(getattr(row, kind))
    return [*ATTRIBUTES, *(f"{kind}.{name}" for kind in KINDS for name in sorted(names[kind]))]


def usual_columns(rows: Sequence[Row]) -> list[str]:
    """What is shown of these runs unless something else is chosen: the settings that differ among those that have them,
    then the results and last values that most have, as ``trackers ls`` shows them."""
    results = [{records.final_name(name): value for name, value in row.result.items()} for row in rows]
    usual = run_table.usual_values(results, [row.last for row in rows])
    values = [
        f"result.{records.plain_name(name)}" if records.plain_name(name) != name else f"last.{name}" for name in usual
    ]
    counts = Counter(name for row in rows for name in row.config)
    differing = [name for name in counts if counts[name] * 2 > len(rows) and _differs(rows, name)]
    settings = [f"config.{name}" for name in differing[:MOST_SETTINGS]]
    several = len({row.project for row in rows}) > 1
    trackers = dict.fromkeys(f"tracker.{name}" for row in rows for name in row.tracker)
    return ["status", *(["project"] if several else []), "step", "created", *settings, *values, *trackers]


def _differs(rows: Sequence[Row], name: str) -> bool:
    """Whether a setting differs among the runs that have it."""
    found = [row.config[name] for row in rows if name in row.config]
    return any(not _same(value, found[0]) for value in found)


_WORD = re.compile(r'(?P<no>[-!])?(?:(?P<name>[^\s<>=:"!]+)(?P<sign><=|>=|!=|<|>|=|:))?(?P<value>"[^"]*"|\S+)')


def condition(text: str) -> Callable[[Row], bool] | None:
    """What a row must be, all words at once: ``mnist`` in its name, id, project, group, tags, status or note;
    ``status:fin`` in a column; ``lr>0.001`` (also <, <=, >=, =, !=); with ``-`` before it, the opposite.

    Raises:
        UsageError: a comparison has no number.
    """
    checks = [_check(match) for match in _WORD.finditer(text)]
    return (lambda row: all(check(row) for check in checks)) if checks else None


def _check(match: re.Match[str]) -> Callable[[Row], bool]:
    name, sign, no = match["name"], match["sign"], bool(match["no"])
    value = match["value"].strip('"')
    if sign is None:
        word = value.lower()
        return lambda row: (word in "\n".join(
            (row.name, row.id, row.project, row.group, *row.tags, row.status, row.note)).lower()) != no  # fmt: skip
    if sign == ":":
        word = value.lower()
        return lambda row: (word in str(_or_empty(row.find_value(name))).lower()) != no
    number = number_of(value)
    if sign in ("=", "!="):
        unlike = no != (sign == "!=")
        return lambda row: _equal(row.find_value(name), value, number) != unlike
    if number is None:
        raise UsageError(f"{match[0]!r}: {sign} needs a number after it, as in {name}{sign}0.1")
    return lambda row: _compared(row.find_value(name), sign, number) != no


def _or_empty(value: Any) -> Any:
    return "" if value is None else value


def _equal(value: Any, text: str, number: float | None) -> bool:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and number is not None:
        return value == number or (math.isnan(value) and math.isnan(number))
    return str(_or_empty(value)).lower() == text.lower()


def _compared(value: Any, sign: str, number: float) -> bool:
    if not isinstance(value, (int, float)):
        return False
    return {"<": value < number, ">": value > number, "<=": value <= number, ">=": value >= number}[sign]


def differing(configs: Sequence[dict[str, Any]]) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
    """Settings of several runs by name, a value for each run (None: not set): those that differ, and the others."""
    names = list(dict.fromkeys(name for config in configs for name in config))
    rows = {name: [config.get(name) for config in configs] for name in names}
    differ = {name: row for name, row in rows.items() if any(not _same(value, row[0]) for value in row)}
    return differ, {name: row for name, row in rows.items() if name not in differ}


def _same(left: Any, right: Any) -> bool:
    return bool(left == right) or (left != left and right != right)
