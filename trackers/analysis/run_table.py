"""The table of ``trackers ls``: a row for each run, with the results and last values that most of them have."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

from trackers import records
from trackers.analysis import choosing
from trackers.analysis.figures import best_of
from trackers.analysis.run_list import LONGEST, Overview, RunLine, Standing, glance
from trackers.analysis.tables import TextTable, format_age, format_size
from trackers.errors import TrackersError
from trackers.formats.word_list import split_words
from trackers.journal.run_directory import RunDirectory
from trackers.metrics import roles
from trackers.readers.boundary import boundary

ABOUT = ("name", "id", "project", "status", "steps", "age", "created", "group", "tags", "notes", "host",
         "forked_from", "trackers")  # fmt: skip
"""Columns that are no values of the run."""
VALUES = 4
"""Maximum number of columns of results and last values, unless they are named."""
RESULTS = 3
"""Maximum number of results among them, if there are last values, too."""
LONGEST_WHY = 80
"""Maximum length of a failure's text, in characters; ``trackers show`` prints all of it."""
STANDING = 18
"""Minimum width of the trackers' column on a narrow terminal: a name and a state."""
_TONES = {"finished": "good", "running": "busy", "failed": "bad", "crashed": "bad", "preempted": "odd",
          "stopped": "odd"}  # fmt: skip
_WHOLE = ("id", "age", "status")
_DETAILS = ("group", "tags", "notes", "host")


class Glances:
    """Values of runs by column. What their lines don't keep is read from the run's directory, once.

    Args:
        views: runs of other sources, by their lines' paths.
    """

    def __init__(self, views: Mapping[str, Overview] | None = None) -> None:
        self._read: dict[str, dict[str, Any]] = {}
        self._views = views or {}

    def value(self, line: RunLine, name: str) -> Any:
        """The value in a column; None where the run has none."""
        if name in ("created", "age"):
            return line.created
        if name in ABOUT and name not in _DETAILS:
            return getattr(line, "step" if name == "steps" else name)
        for values in (line.last, line.results):
            if name in values:
                return values[name]
        if name in _DETAILS or name.startswith("config.") or line.more:
            return self._details(line).get(name)
        return None

    def names(self, lines: Sequence[RunLine]) -> list[str]:
        """The names of all columns that there can be."""
        names = dict.fromkeys(ABOUT)
        for line in lines:
            names.update(dict.fromkeys([*line.results, *line.last]))
        for line in lines:
            names.update(dict.fromkeys(self._details(line)))
        return list(names)

    def _details(self, line: RunLine) -> dict[str, Any]:
        if line.path not in self._read:
            self._read[line.path] = {}
            with contextlib.suppress(TrackersError), boundary(line.path):
                view = self._views.get(line.path) or glance(RunDirectory(line.path))
                info = view.info
                self._read[line.path] = {
                    "group": info.group, "tags": ", ".join(info.tags), "notes": info.notes, "host": info.host,
                    **{f"config.{name}": value for name, value in records.flatten(info.config, ".")},
                    **view.last, **view.results,
                }  # fmt: skip
        return self._read[line.path]


def ordered(lines: Sequence[RunLine], by: str, glances: Glances) -> list[RunLine]:
    """Lines by a column; see :func:`trackers.analysis.choosing.ordered`.

    Raises:
        UsageError: no run has such a value.
    """

    def direction(name: str) -> str | None:
        if name == "age":
            return "max"  # the youngest has the largest time
        return None if name in ABOUT or name.startswith("config.") else roles.direction(records.plain_name(name))

    return choosing.ordered(lines, by, glances.value, lambda: glances.names(lines), direction)


def table(
    lines: Sequence[RunLine], columns: str, glances: Glances, now: float | None = None, sort: str = ""
) -> TextTable:
    """A row for each run.

    Args:
        columns: names and patterns, ``name,config.*``; "": the usual ones. now: Unix seconds; None: the clock's.
        sort: what the runs are sorted by, as ``--sort`` is given: one of the usual columns, then.

    Raises:
        UsageError: there is no such column.
    """
    names = _chosen(columns, lines, glances) if columns else _usual_columns(lines, sort.removeprefix("-"))
    values = [name for name in names if name not in ABOUT]
    now = time.time() if now is None else now
    cells = [_cells(lines, name, glances, now) for name in names]
    rows = list(map(list, zip(*cells, strict=True)))
    texts = {column for column, name in enumerate(names) if _is_text(name, cells[column])}
    left = next((column for column in range(len(names)) if column not in texts), len(names))
    return TextTable(
        names, rows, texts=left, more_texts=frozenset(column for column in texts if column >= left),
        tones=_tones(lines, names, values, cells),
        spare=_spare(names, values, sort.removeprefix("-")),
        whole=frozenset(at for at, name in enumerate(names) if name in _WHOLE),
        least={at: STANDING for at, name in enumerate(names) if name == "trackers"},
    )  # fmt: skip


def _chosen(columns: str, lines: Sequence[RunLine], glances: Glances) -> list[str]:
    words = split_words(columns)
    exact = [name for name in words if name in ABOUT]  # then no run needs to be looked into for what it has
    return choosing.columns(columns, exact if len(exact) == len(words) else glances.names(lines))


def _usual_columns(lines: Sequence[RunLine], by: str) -> list[str]:
    values = dict.fromkeys([*([by] if by and by not in ABOUT else []), *usual(lines)])
    several = len({line.project for line in lines}) > 1
    return ["name", "id", *(["project"] if several else []), "status", "steps", "age", *values, "trackers"]


def _tones(
    lines: Sequence[RunLine], names: Sequence[str], values: Sequence[str], cells: Sequence[Sequence[Any]]
) -> dict[tuple[int, int], str]:
    """How each run stands, and within one project the best of each metric."""
    tones: dict[tuple[int, int], str] = {}
    if "status" in names:
        at = names.index("status")
        tones = {(number, at): _TONES.get(line.status, "") for number, line in enumerate(lines)}
    if len({line.project for line in lines}) == 1:
        for name in values:
            at = names.index(name)
            goal = None if name.startswith("config.") else roles.direction(records.plain_name(name))
            tones |= {(number, at): "best" for number in best_of(cells[at], goal)}
    return tones


def usual(lines: Sequence[RunLine]) -> list[str]:
    """See :func:`usual_values`."""
    return usual_values([line.results for line in lines], [line.last for line in lines])


def usual_values(results: Sequence[Mapping[str, Any]], last: Sequence[Mapping[str, Any]]) -> list[str]:
    """The numbers that most runs have, results, then last values: first those of which one value is better.

    Args:
        results: of each run, by their ``final/`` names. last: last values of each.
    """
    counts = {
        part: Counter(
            name for values in runs for name, value in values.items() if type(value) is float or _is_number(value)
        )
        for part, runs in (("results", results), ("last", last))
    }
    names = {
        part: sorted(count, key=lambda name: (roles.direction(records.plain_name(name)) is None, -count[name]))
        for part, count in counts.items()
    }
    first = names["results"][: RESULTS if names["last"] else VALUES]
    return [*first, *names["last"][: VALUES - len(first)]]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) or (isinstance(value, str) and value in records.FLOAT_NAMES)


def _spare(names: list[str], values: list[str], by: str) -> list[int]:
    """Which columns are left out first: all values but the first, then the age, then the project.

    Args:
        by: what the runs are sorted by, which is left out last.
    """
    last = [*values[:1], "steps"]
    order = [*reversed(values[1:]), "age", "project", *(reversed(last) if by in values else last)]
    return [names.index(name) for name in order if name in names]


def _is_text(name: str, cells: Sequence[Any]) -> bool:
    if name in ABOUT:
        return name not in ("steps", "age")
    return all(cell is None or isinstance(cell, str) for cell in cells)


def _cells(lines: Sequence[RunLine], name: str, glances: Glances, now: float) -> list[Any]:
    """The cells of a column."""
    if name == "age":
        return [format_age(now - line.created) for line in lines]
    if name == "status":
        return [f"{line.status}?" if line.doubtful else line.status for line in lines]
    if name == "created":
        return [time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(line.created)) for line in lines]
    if name == "trackers":
        texts: dict[tuple[Any, ...], str] = {}  # most runs' trackers stand alike
        column = []
        for line in lines:
            key = tuple(line.trackers.items())
            if key not in texts:
                texts[key] = standings(line.trackers)
            column.append(texts[key])
        return column
    if name in ABOUT and name not in _DETAILS:
        values = list(map(attrgetter("step" if name == "steps" else name), lines))
    else:
        values = [line.last[name] if name in line.last else glances.value(line, name) for line in lines]
    return [value if type(value) is float else _cell(value) for value in values]


def _cell(value: Any) -> Any:
    if isinstance(value, str):
        return records.FLOAT_NAMES.get(value, value[:LONGEST])
    return value if value is None or isinstance(value, (bool, int, float)) else str(value)[:LONGEST]


def standings(trackers: Mapping[str, Standing]) -> str:
    """How a run's trackers stand, those of one state together: ``json, csv ✓; wandb waiting 2.1 MB (no answer …)``."""
    alike: dict[tuple[str, str, int], list[str]] = {}
    waiting: Counter[tuple[str, str, int]] = Counter()
    for name, entry in trackers.items():
        key = ("✓" if entry.state == "delivered" else entry.state, entry.why, entry.rejected)
        alike.setdefault(key, []).append(name)
        waiting[key] = max(waiting[key], entry.waiting_bytes)
    parts = []
    for key, names in alike.items():
        state, why, rejected = key
        words = [", ".join(names), state]
        if waiting[key]:
            words.append(format_size(waiting[key]))
        if rejected:
            words.append(f"{rejected} rejected")
        if why:
            words.append(f"({why[: LONGEST_WHY - 1]}…)" if len(why) > LONGEST_WHY else f"({why})")
        parts.append(" ".join(words))
    return "; ".join(parts)
