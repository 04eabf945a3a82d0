"""Layout of a comparison as a table: runs as columns if they are few, as rows if they are many."""

from __future__ import annotations

import fnmatch
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from trackers.analysis.comparison import QUANTITIES, Comparison
from trackers.analysis.groups import SPEEDS, Groups
from trackers.analysis.statistics import Spread
from trackers.analysis.tables import MISSING, TextTable, show

FEW = 6
"""Maximum number of runs shown as columns; more are shown as rows."""
KEYS, SETTINGS = 6, 8
"""Default numbers of metrics and of differing settings shown."""


def side_by_side(found: Comparison, keys: Sequence[str], settings: Sequence[str], figures: Sequence[str]) -> TextTable:
    """A column for each run."""
    rows = [["status", *(run["status"] or None for run in found.runs)], ["steps", *_column(found, "steps")]]
    rows += [[f"config.{name}", *(run["config"].get(name) for run in found.runs)] for name in settings]
    for key in keys:
        for figure in figures:
            values = [run["metrics"].get(key, {}).get(figure) for run in found.runs]
            if any(value is not None for value in values):
                rows.append([f"{key} {figure}" if not key.startswith("final/") else key, *values])
    rows += [[title, *_column(found, name)] for title, name in _quantities(found)]
    return TextTable(["run", *_distinct(found)], rows)


def a_line_each(found: Comparison, keys: Sequence[str], settings: Sequence[str], figures: dict[str, str]) -> TextTable:
    """A row for each run, with one figure of each metric."""
    shown = _quantities(found)
    headers = ["run", "status", "steps", *settings, *(_titled(key, figures[key]) for key in keys)]
    rows = [
        [name, run["status"] or None, run["steps"], *(run["config"].get(setting) for setting in settings),
         *(run["metrics"].get(key, {}).get(figures[key]) for key in keys), *(run[name_] or None for _, name_ in shown)]
        for name, run in zip(_distinct(found), found.runs, strict=True)
    ]  # fmt: skip
    return TextTable([*headers, *(title for title, _ in shown)], rows, texts=2)


def by_group(found: Groups, keys: Sequence[str], *, apart: bool = False) -> TextTable:
    """A row for each group.

    Args:
        apart: n, mean, standard deviation and both ends in columns of their own, as numbers.
    """
    speeds = [name for name in SPEEDS if any(group.speed[name].n for group in found.groups)]
    titles = [_titled(key, found.figures[key]) for key in keys] + speeds
    rows = []
    for group in found.groups:
        spreads = [*(group.metrics[key] for key in keys), *(group.speed[name] for name in speeds)]
        cells: list[Any] = []
        for one in spreads:
            cells += [one.n, one.mean, one.deviation, one.low, one.high] if apart else [_spread(one)]
        rows.append([group.label, len(group.runs), *cells])
    if apart:
        titles = [f"{title} {part}" for title in titles for part in ("n", "mean", "std", "low", "high")]
    return TextTable([found.by, "n", *titles], rows)


def chosen_settings(found: Comparison, patterns: Sequence[str] | None) -> list[str]:
    """The settings to show: those asked for among those that differ, else the first of them."""
    if patterns is None:
        return found.differing[:SETTINGS]
    return [name for name in found.differing if any(fnmatch.fnmatch(name, pattern) for pattern in patterns)]


def remarks(found: Comparison, keys: Sequence[str], settings: Sequence[str]) -> Iterator[str]:
    """What isn't shown, and how to see it."""
    if len(found.keys) > len(keys):
        yield f"{len(found.keys) - len(keys)} more metrics: --keys '*', or --format csv"
    if len(found.differing) > len(settings):
        yield f"{len(found.differing) - len(settings)} more settings differ: --config '*', or --format csv"


def _spread(one: Spread) -> str:
    if one.mean is None:
        return MISSING
    text = show(one.mean)
    if one.deviation is not None:
        text += f" ± {show(one.deviation)}"
    if one.low is not None:
        text += f" [{show(one.low)}, {show(one.high)}]"
    return text + (f" ({one.n} of {one.of})" if one.n != one.of else "")


def _titled(key: str, figure: str) -> str:
    return key if key.startswith("final/") else f"{key} {figure}"


def _quantities(found: Comparison) -> list[tuple[str, str]]:
    """What some run has; which memory is meant only where not all mean the same."""
    there = [(title, name) for title, name in QUANTITIES if any(run[name] not in (None, "") for run in found.runs)]
    kinds = {run["memory_kind"] for run in found.runs if run["memory_gb"] is not None}
    return [pair for pair in there if pair[1] != "memory_kind" or len(kinds) > 1]


def _column(found: Comparison, name: str) -> list[Any]:
    return [run[name] if run[name] != "" else None for run in found.runs]


def _distinct(found: Comparison) -> list[str]:
    """Names of the runs; with their id where two share one, and their source where they share that, too."""
    names = Counter(run["run_name"] for run in found.runs)
    pairs = Counter((run["run_name"], run["id"]) for run in found.runs)
    return [
        run["run_name"] if names[run["run_name"]] == 1
        else f"{run['run_name']} ({run['id'] if pairs[run['run_name'], run['id']] == 1 else run['source']})"
        for run in found.runs
    ]  # fmt: skip
