"""What ``trackers watch`` shows at a moment: rows of runs, curves of some, values of their machines."""

from __future__ import annotations

import fnmatch
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from trackers.analysis.fitting import fitted
from trackers.analysis.tables import TextTable, format_age, format_value, plain
from trackers.errors import TrackersError
from trackers.metrics import roles
from trackers.metrics.groups import GROUPS, group_of
from trackers.plotting import presets
from trackers.plotting.figure import Panel
from trackers.ui import answers
from trackers.ui.answers import CurveOptions
from trackers.ui.catalogue import Catalogue
from trackers.ui.table import Row, condition

AXES = ("step", "relative")
"""Finished steps; time since the run began."""
WEIGHTS = (0.0, 0.6, 0.9, 0.97, 0.99)
"""Weights of the past in smoothing, in the order in which a key goes through them."""
AT_ONCE = 10
"""Maximum number of runs whose curves are drawn unless somebody chooses more."""
NEWEST = 3
"""Number of runs drawn where none was named and none is running."""
MOST_ROWS = 500
"""Maximum number of rows of the table; a filter finds others."""
WIDE = 110
"""Cells from which the table has results."""
_UNITS = (("h", 3600.0), ("min", 60.0), ("s", 1.0))
_TONES = {"running": "busy", "finished": "good", "failed": "bad", "crashed": "bad", "preempted": "odd",
          "stopped": "odd"}  # fmt: skip


class ViewOptions(msgspec.Struct):
    """What is to be shown. metrics: names or patterns; none: all, the usual ones first. where: see
    :func:`trackers.ui.table.condition`."""

    metrics: list[str] = []
    axis: str = "step"
    weight: float = 0.0
    log_y: bool = False
    where: str = ""


class ViewState(NamedTuple):
    """rows: of the table, the newest first. styles: of the runs that are drawn, by key. names: of all their metrics, as
    they are paged through. panels: the charts of this page. total: number of all runs. running: of those that run.
    problems: what can't be read, and why."""

    rows: list[Row]
    styles: dict[str, int]
    names: list[str]
    panels: list[Panel]
    total: int
    running: int
    problems: list[str]


class RunWatcher:
    """Runs of a catalogue, looked at again and again, by one thread at a time.

    Args:
        named: somebody named the runs: all of them are drawn, rather than those that run.
    """

    def __init__(self, catalogue: Catalogue, *, named: bool) -> None:
        self._catalogue, self._named = catalogue, named
        self._selected: list[str] = []
        self._by_hand = False

    def toggle(self, key: str) -> None:
        """Draw a run, or no longer. From now on nothing else is chosen."""
        self._by_hand = True
        if key in self._selected:
            self._selected.remove(key)
        else:
            self._selected.append(key)

    def only(self, key: str) -> None:
        """Draw one run alone; again: those that are usually drawn."""
        is_alone = self._by_hand and self._selected == [key]
        self._by_hand, self._selected = not is_alone, [] if is_alone else [key]

    def view(self, options: ViewOptions, first: int, count: int, width: int) -> ViewState:
        """The current state of the runs.

        Args:
            first, count: which of the metrics are drawn. width: of a chart, in dots.

        Raises:
            UsageError: the filter can't be understood.
        """
        state = self._catalogue.state()
        rows = sorted(state.rows.values(), key=lambda row: (row.created, row.key), reverse=True)
        running = sum(row.status == "running" for row in rows)
        fits = condition(options.where)
        fitting = [row for row in rows if fits is None or fits(row)]
        self._choose(fitting if fits is not None else rows, state.rows)
        names = self._names(options.metrics)
        problems = list(state.problems)
        panels = []
        for name in list(names)[first : first + count]:
            panels.append(self._panel(name, names[name], options, width, problems))
        styles = {key: style for style, key in enumerate(self._selected)}
        listed = fitting[:MOST_ROWS]
        return ViewState(listed, styles, list(names), panels, len(rows), running, list(dict.fromkeys(problems)))

    def _choose(self, rows: Sequence[Row], known: Mapping[str, Row]) -> None:
        """Which runs are drawn; those that are drawn keep their index, and so their colour."""
        self._selected = [key for key in self._selected if key in known]
        if self._by_hand:
            return
        candidates = rows[:AT_ONCE] if self._named else [row for row in rows if row.status == "running"][:AT_ONCE]
        keys = [row.key for row in candidates] or [row.key for row in rows[:NEWEST]]
        keep = keys if self._named else [*keys, *self._selected]  # a run that has just ended stays
        self._selected = [key for key in self._selected if key in keep][-AT_ONCE:]
        self._selected += [key for key in keys if key not in self._selected][: AT_ONCE - len(self._selected)]

    def _names(self, patterns: Sequence[str]) -> dict[str, bool]:
        """Metrics of the drawn runs; True for those that have steps."""
        stepped: dict[str, bool] = {}
        counts: Counter[str] = Counter()
        for key in self._selected:
            try:
                names = self._catalogue.view(key).names()
            except TrackersError:
                continue
            counts.update(names)
            for name, has in names.items():
                stepped[name] = stepped.get(name, False) or has
        if patterns:
            chosen: dict[str, bool] = {}
            for pattern in patterns:
                fits = [pattern] if pattern in counts else sorted(fnmatch.filter(counts, pattern))
                chosen.update({name: stepped[name] for name in fits} if fits else {pattern: True})
            return chosen
        # Hardware after what was learnt, and results, which are single values, not at all.
        first = presets.usual({name: count for name, count in counts.items() if group_of(name) in GROUPS[:2]})
        rest = sorted(counts.keys() - set(first), key=lambda name: (GROUPS.index(group_of(name)), name))
        return {name: stepped[name] for name in [*first, *rest] if group_of(name) != "final"}

    def _panel(self, name: str, stepped: bool, options: ViewOptions, width: int, problems: list[str]) -> Panel:
        axis = options.axis if stepped else "relative"
        cut = CurveOptions(axis, bins=max(2, width), weight=options.weight, log_y=options.log_y)
        curves = answers.curve_set(self._catalogue, self._selected, name, cut)
        problems += curves.problems
        floor, ceiling = curves.bounds(name)
        lines = [curve for _, curve in curves.lines]
        for row, curve in curves.lines:  # as the table has it, which keeps a run's letter
            curve.style = self._selected.index(row.key)
        label = "step"
        if axis == "relative":
            longest = max((float(line.x[-1]) for line in lines if len(line.x)), default=0.0)
            unit, size = next((unit for unit in _UNITS if longest >= 3 * unit[1]), _UNITS[-1])
            label = f"time ({unit})"
            for line in lines:
                for part in ("x", "smooth_x", "nans", "highs", "lows"):
                    if len(values := getattr(line, part)):
                        setattr(line, part, values / size)
        empty = "no values yet"
        if lines and options.log_y:
            empty = "nothing above zero, which a logarithmic axis needs"
        return Panel(name, label, name, lines, log_y=options.log_y, empty=empty, floor=floor, ceiling=ceiling)

    def machine(self, key: str) -> list[str]:
        """The last samples of a run's machines, a line for all of it and one for each GPU; empty without samples."""
        try:
            view = self._catalogue.view(key)
            names = [name for name in view.names() if group_of(name) in ("gpu", "system")]
            last: dict[str, float] = {}
            for name in names:
                series = view.series(name, "time")
                if len(series.y):
                    last[name] = float(series.y[-1])
        except TrackersError:
            return []
        return machine_lines(last)


def machine_lines(last: Mapping[str, float]) -> list[str]:
    """Samples in words: ``GPU 97 %  71.2 of 80 GB  412 W  61 °C   CPU 34 %  memory 41 %``, then a line for each GPU.

    Args:
        last: by the names of :mod:`trackers.hardware.metric_names`.
    """
    lines = []
    whole = _words(last, (("gpu/compute_util_avg", "GPU {} %"), ("gpu/power_total_w", "{} W"),
                          ("gpu/temp_max_c", "{} °C")))  # fmt: skip
    used, total = last.get("gpu/memory_used_total_gb"), last.get("gpu/memory_total_gb")
    if used is not None:
        capacity = f" of {_short(total)}" if total else ""
        whole.insert(1 if "gpu/compute_util_avg" in last else 0, f"{_short(used)}{capacity} GB")
    host = _words(last, (("system.cpu", "CPU {} %"), ("system.memory_percent", "memory {} %")))
    if whole or host:
        lines.append("   ".join(filter(None, ("  ".join(whole), "  ".join(host)))))
    labels: dict[str, None] = {}
    for name in last:
        if name.startswith("system.gpu.") and name.endswith(".gpu"):
            labels[name.removeprefix("system.gpu.").removesuffix(".gpu")] = None
    for label in labels:
        prefix = f"system.gpu.{label}."
        share = last[prefix + "gpu"]
        words = _words(last, ((prefix + "gpu", "{} %"), (prefix + "memoryAllocated", "memory {} %"),
                              (prefix + "powerWatts", "{} W"), (prefix + "temp", "{} °C")))  # fmt: skip
        lines.append(f"GPU {plain(label)} {_bar(share)} {'  '.join(words)}")
    return lines


def _words(last: Mapping[str, float], forms: Sequence[tuple[str, str]]) -> list[str]:
    return [form.format(_short(last[name])) for name, form in forms if name in last]


def _short(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _bar(percent: float, cells: int = 10) -> str:
    full = min(max(round(percent / 100 * cells), 0), cells) if percent == percent else 0
    return "█" * full + "░" * (cells - full)


def delivery(row: Row) -> str:
    """How a run's trackers stand, those of one state together: ``json, csv ✓; wandb waiting, 2.1 KB wait``."""
    alike: dict[str, list[str]] = {}
    for name, state in row.tracker.items():
        alike.setdefault("✓" if state == "delivered" else state, []).append(name)
    return "; ".join(f"{', '.join(names)} {state}" for state, names in alike.items())


def table(
    state: ViewState, width: int, now: float | None = None, *, colored: bool = True
) -> tuple[list[str], list[str]]:
    """Lines of the header, and a line for each run, as wide as the terminal, with escapes for colours.

    Args:
        now: Unix seconds.
    """
    now = time.time() if now is None else now
    values = _values(state, results=width >= WIDE)
    headers = ["name", "status", "step", "updated", *values, "trackers"]
    rows: list[list[Any]] = []
    tones = {}
    for number, row in enumerate(state.rows):
        cells = [_value(row, name) for name in values]
        rows.append([row.name or row.id, row.status, row.step, format_age(now - row.time) if row.time else None, *cells,
                     delivery(row)])  # fmt: skip
        tones[number, 1] = _TONES.get(row.status, "")
    last = len(headers) - 1
    spare = [*range(last - 1, 4, -1), 3, 4] if values else [3]
    text = fitted(
        TextTable(headers, rows, more_texts=frozenset({1, last}), tones=tones, spare=spare, least={last: 12}),
        width, colored=colored,
    )  # fmt: skip
    lines = text.text.splitlines()
    return lines[: len(lines) - len(rows)], lines[len(lines) - len(rows) :]


def _values(state: ViewState, *, results: bool) -> list[str]:
    """Columns of the table besides those that every run has: the charts' metrics, then results."""
    last = Counter(name for row in state.rows for name in row.last)
    final = Counter(f"final/{name}" for row in state.rows for name in row.result if results)
    titles = [panel.title for panel in state.panels if panel.title in last]
    good = sorted(final, key=lambda name: (roles.direction(name) is None, -final[name]))
    return [*titles[:3], *good[:2]]


def _value(row: Row, name: str) -> Any:
    value = row.result.get(name.removeprefix("final/")) if name.startswith("final/") else row.last.get(name)
    return value if value is None or isinstance(value, (bool, int, float)) else str(value)[:40]


def line(row: Row, names: Sequence[str]) -> str:
    """One run in one plain line: ``digits/r1 sweep-1 running step 60 loss 0.31 json ✓``."""
    words = [f"{row.project}/{row.id}" if row.project else row.id]
    if row.name and row.name != row.id:
        words.append(row.name)
    words.append(row.status)
    if row.step is not None:
        words.append(f"step {row.step:,}")
    words += [
        f"{name} {format_value(row.last[name])}" for name in names if isinstance(row.last.get(name), (int, float))
    ]
    words += [f"final/{name} {format_value(value)}" for name, value in list(row.result.items())[:3]]
    words.append(delivery(row))
    return plain(" ".join(filter(None, words)))[:1000]
