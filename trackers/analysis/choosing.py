"""Runs chosen and put in order, and columns chosen, by the names of figures: one name for a figure in every command.

``status``, ``steps_per_s`` (or its title ``steps/s``), ``config.learning_rate``, ``final/best_val_loss``, ``val_loss``.
"""

from __future__ import annotations

import fnmatch
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from trackers.analysis import figures
from trackers.analysis.best import FIELDS, SPEEDS, USES
from trackers.analysis.figures import FIGURES
from trackers.analysis.run_stats import RunStats
from trackers.analysis.tables import TextTable
from trackers.errors import NotFound, UsageError, did_you_mean, examples
from trackers.formats.word_list import split_words
from trackers.metrics import roles
from trackers.records import final_name, plain_name

T = TypeVar("T")

STATUSES = ("running", "finished", "failed", "crashed", "preempted", "stopped")
_NAMES = {title: name for name, title in figures.TITLES.items()}


def of_status(runs: Sequence[T], statuses: str, status: Callable[[T], str]) -> list[T]:
    """The runs that have one of these statuses.

    Args:
        statuses: ``failed,crashed``; "": any.

    Raises:
        UsageError: one that isn't known.
    """
    chosen = split_words(statuses)
    for word in chosen:
        if word not in STATUSES:
            raise UsageError(f"unknown status {word!r}{suggestion(word, STATUSES)}")
    return [run for run in runs if not chosen or status(run) in chosen]


def none_of(statuses: str, present: Iterable[str]) -> NotFound:
    """The error for a status that no run has; it lists the statuses that the runs have."""
    counts = Counter(status or "unknown" for status in present)
    return NotFound(
        f"no run is {' or '.join(split_words(statuses))}: {', '.join(f'{n} {s}' for s, n in counts.items())}"
    )


def ordered(
    runs: Sequence[T],
    by: str,
    value: Callable[[T, str], Any],
    names: Callable[[], Iterable[str]],
    direction: Callable[[str], str | None],
) -> list[T]:
    """Runs by a figure: the best first where one value is better than another, else the smallest; ``-NAME`` the other
    way round. Those without a value, or with NaN, come last.

    Args:
        value: of a run, by the figure's name. names: all there are, for the error. direction: "min", "max" or None.

    Raises:
        UsageError: no run has a value of that name.
    """
    name = figure_name(by.removeprefix("-"))
    values = [value(run, name) for run in runs]
    if runs and all(entry is None for entry in values):
        raise UsageError(f"--sort: no run has {name!r}{suggestion(name, names())}")
    back = (direction(name) == "max") != by.startswith("-")
    numbers = [index for index, entry in enumerate(values) if _is_number(entry)]
    others = [index for index, entry in enumerate(values) if entry is not None and not isinstance(entry, (int, float))]
    numbers.sort(key=lambda index: values[index], reverse=back)
    others.sort(key=lambda index: str(values[index]), reverse=back)
    rest = sorted(set(range(len(runs))) - {*numbers, *others})
    return [runs[index] for index in (*numbers, *others, *rest)]


def columns(patterns: str, names: Sequence[str]) -> list[str]:
    """The names that fit patterns as in ``status,config.*,final/*``, in the order of the patterns.

    Raises:
        UsageError: a pattern that fits none.
    """
    chosen: dict[str, None] = {}
    for pattern in map(figure_name, split_words(patterns)):
        fits = [pattern] if pattern in names else fnmatch.filter(names, pattern)
        if not fits:
            raise UsageError(f"--columns: there is no {pattern!r}{suggestion(pattern, names)}")
        chosen.update(dict.fromkeys(fits))
    return list(chosen)


def of_table(table: TextTable, patterns: str) -> TextTable:
    """A table's first column and those whose headers fit; a metric fits without its figure, too.

    Raises:
        UsageError: a pattern that fits no column.
    """
    fits = _fitting(patterns, table.headers[1:])
    indices = [0, *(1 + index for index in fits)]
    new = {old: index for index, old in enumerate(indices)}
    return TextTable(
        [table.headers[index] for index in indices],
        [[row[index] for index in indices] for row in table.rows],
        table.title,
        texts=max(1, sum(index < table.texts for index in indices)) if fits == sorted(fits) else 1,
        tones={(row, new[column]): tone for (row, column), tone in table.tones.items() if column in new},
        whole=frozenset(new[column] for column in table.whole if column in new),
        least={new[column]: least for column, least in table.least.items() if column in new},
        legend=table.legend,
    )


def rows_of(table: TextTable, patterns: str) -> TextTable:
    """A table's rows whose first cells fit; otherwise as :func:`of_table`."""
    indices = _fitting(patterns, [str(row[0]) for row in table.rows])
    new = {old: index for index, old in enumerate(indices)}
    tones = {(new[row], column): tone for (row, column), tone in table.tones.items() if row in new}
    return msgspec.structs.replace(table, rows=[table.rows[index] for index in indices], tones=tones)


def _fitting(patterns: str, headers: Sequence[str]) -> list[int]:
    fitting: dict[int, None] = {}
    for pattern in split_words(patterns):
        title = titled(pattern)
        fits = [index for index, header in enumerate(headers) if _matches(header, title)]
        if not fits:
            raise UsageError(f"--columns: there is no {pattern!r}{suggestion(pattern, headers)}")
        fitting.update(dict.fromkeys(fits))
    return list(fitting)


def removable_columns(headers: Sequence[str], sort: str = "") -> list[int]:
    """The indices of a comparison's columns, in the order in which a narrow terminal leaves them out.

    Speed goes first, then metrics, results and settings; the first result, else the first metric, and what the runs are
    sorted by stay longest.

    Args:
        sort: as ``--sort`` is given; "": not sorted.
    """
    settings, results, metrics, others = [], [], [], []
    for index, header in enumerate(headers):
        if header.startswith("config."):
            settings.append(index)
        elif header.startswith("final/"):
            results.append(index)
        elif without_figure(header) != header:
            metrics.append(index)
        elif header not in ("run", "status", "steps"):
            others.append(index)
    by = sort.removeprefix("-")
    stay = {index for index, header in enumerate(headers) if by and (_matches(header, by) or _NAMES.get(header) == by)}
    stay.update((results or metrics)[:1])
    order = [index for part in (others, metrics, results, settings[1:]) for index in reversed(part)]
    return [index for index in order if index not in stay]


def without_figure(header: str) -> str:
    """A metric's name in a header: ``val_loss`` of ``val_loss best``."""
    metric, _, what = header.rpartition(" ")
    return metric if what in FIGURES else header


def _matches(header: str, pattern: str) -> bool:
    both = (header, without_figure(header))
    return pattern in both or any(fnmatch.fnmatchcase(name, pattern) for name in both)


def figure(run: RunStats, name: str) -> Any:
    """A run's figure by its name: of a metric the best value, or the last where none is better; None where it has none.

    Args:
        name: as :func:`names` gives them; a metric's may be followed by one of its figures, as in ``val_loss last``.
    """
    name = figure_name(name)
    if name.startswith("config."):
        return run.config.get(name.removeprefix("config."))
    if name in SPEEDS:
        return getattr(run.speed, name)
    if name in USES:
        return getattr(run.use, name)
    metric, _, what = name.rpartition(" ")
    if what in FIGURES and metric in run.folds:
        return run.value(metric, what)
    if name in run.folds:
        return run.value(name, "best" if run.direction(name) else "last")
    if name != plain_name(name):
        return run.value(name, "final")
    value = getattr(run, name) if name in FIELDS else None
    return ", ".join(value) if isinstance(value, list) else value


def names(runs: Sequence[RunStats]) -> list[str]:
    """All names of figures that some of the runs have."""
    candidates = dict.fromkeys(["name", "id", *(name for name in FIELDS if name not in ("name", "id")), *SPEEDS, *USES])
    for run in runs:
        candidates.update(dict.fromkeys(f"config.{name}" for name in run.config))
        candidates.update(dict.fromkeys(map(final_name, run.summary)))
        candidates.update(dict.fromkeys(run.folds))
    return [name for name in candidates if any(figure(run, name) is not None for run in runs)]


def direction(runs: Sequence[RunStats]) -> Callable[[str], str | None]:
    """Which values of a figure are better, as some run defines it, else as its name says."""

    def goal_of(name: str) -> str | None:
        return next((goal for run in runs if (goal := better(name, run.direction))), None)

    return goal_of


def better(name: str, of_metric: Callable[[str], str | None] = roles.direction) -> str | None:
    """Whether small ("min") or large ("max") values of a figure are better; None where neither are."""
    if name in (*FIELDS, *SPEEDS, *USES) or name.startswith("config."):
        return figures.better(name)
    return of_metric(plain_name(name.removesuffix(" last").removesuffix(" best")))


def figure_name(word: str) -> str:
    """The name of the figure that a word means, by its name or by its title in tables."""
    return _NAMES.get(word, word)


def titled(name: str) -> str:
    """The header of a figure's column."""
    return figures.TITLES.get(name, name)


def suggestion(word: str, known: Iterable[str]) -> str:
    """The end of an error message: the known names that are similar, else all known names."""
    options = list(dict.fromkeys(known))
    return did_you_mean(word, options, f"; there is {examples(options, 12)}" if options else "", most=3)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == value
