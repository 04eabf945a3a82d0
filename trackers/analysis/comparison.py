"""A comparison of runs: rows of figures, the settings that differ, and their layout as a table."""

from __future__ import annotations

import fnmatch
import html
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from trackers import records
from trackers.analysis.figures import FIGURES, QUANTITIES, best_of, better, is_ranked, titled
from trackers.analysis.tables import TextTable, html_table, plain


class Comparison(msgspec.Struct):
    """Result of :func:`compare_runs`.

    runs: a mapping for each run, in the order asked for (below). keys: metrics compared. differing: settings that
    aren't the same everywhere, by flat name. baseline: source of the run that speed-ups refer to, "" where there is
    none. warnings: why the comparison may mislead. goals: "min" or "max" by key, where one value is better.

    Each run has ``run_name``, ``final_loss``, ``best_val_loss``, ``avg_mfu`` (NaN where unknown) and
    ``total_iters``, and ``source``, ``id``, ``project``, ``group``, ``tags``, ``status``, ``attempts``, ``steps``,
    ``gpus``, ``gpu_name``, ``config`` (what differs), ``metrics`` (by key: final, best, last, min, max, mean, count,
    nans, min_step, max_step), ``steps_per_s``, ``samples_per_s``, ``tokens_per_s`` (each with the clock it runs by:
    ``speed_basis``, ``samples_basis``, ``tokens_basis``), ``wall_steps_per_s``, ``gpu_percent``, ``memory_gb``,
    ``memory_kind``, ``energy_j``, ``speedup``, ``efficiency_percent``; None where a run has no value.
    """

    runs: list[dict[str, Any]]
    keys: list[str]
    differing: list[str]
    baseline: str = ""
    warnings: list[str] = []
    goals: dict[str, str] = {}

    def __getitem__(self, name: str) -> Any:
        return msgspec.structs.asdict(self)[name]

    def to_dict(self) -> dict[str, Any]:
        """JSON values; NaN and infinities as the journal writes them."""
        return dict(records.name_floats(msgspec.structs.asdict(self)))

    def _repr_html_(self) -> str:
        """In a notebook: the table of `trackers compare`, and below it why it may mislead."""
        keys, settings = self.keys[:SHOWN_KEYS], chosen_settings(self, None)
        if len(self.runs) <= FEW_RUNS:
            table = side_by_side(self, keys, settings, FIGURES)
        else:
            table = a_line_each(self, keys, settings, {key: "best" if key in self.goals else "last" for key in keys})
        notes = [*self.warnings, *remarks(self, keys, settings)]
        return html_table(table) + "".join(f"<p>{html.escape(plain(note))}</p>" for note in notes)

    def to_pandas(self) -> Any:
        """A row for each run, a column for each figure: ``config.lr``, ``val_loss.best``, ``samples_per_s``.

        Raises:
            MissingPackage: pandas isn't installed.
        """
        from trackers.support.optional import need

        need("pandas", "to_pandas")
        import pandas

        table = by_run(self)
        return pandas.DataFrame(table.rows, columns=table.headers)


def by_run(comparison: Comparison) -> TextTable:
    """Everything, a row for each run: for CSV and DataFrames."""
    fields = ("run_name", "source", "id", "project", "group", "status", "attempts", "steps", "gpus", "gpu_name")
    more = [name for _, name in QUANTITIES if name not in fields]
    figures = [(key, figure) for key in comparison.keys for figure in FIGURES
               if any(run["metrics"].get(key, {}).get(figure) is not None for run in comparison.runs)]  # fmt: skip
    headers = [*fields, *(f"config.{name}" for name in comparison.differing), *(f"{k}.{f}" for k, f in figures), *more]
    rows = [
        [*(run[name] for name in fields), *(run["config"].get(name) for name in comparison.differing),
         *(run["metrics"].get(key, {}).get(figure) for key, figure in figures), *(run[name] for name in more)]
        for run in comparison.runs
    ]  # fmt: skip
    return TextTable(headers, rows)


def differing_settings(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Settings that aren't the same in all configurations, last those that differ only from where they are absent."""
    if len(configs) < 2:
        return []
    names = dict.fromkeys(name for config in configs for name in config)
    values = {name: [_comparable(config[name]) for config in configs if config.get(name) is not None] for name in names}
    shared = {name: len(set(there)) < 2 for name, there in values.items()}
    differing = [name for name in names if not shared[name] or 0 < len(values[name]) < len(configs)]
    return sorted(differing, key=shared.__getitem__)


def _comparable(value: Any) -> Any:
    return "NaN" if isinstance(value, float) and value != value else value


LABEL = 30
"""Minimum width of the rows' names on a narrow terminal, which are cut in their middle."""

FEW_RUNS = 6
"""Maximum number of runs shown as columns; more are shown as rows."""

SHOWN_KEYS, SHOWN_SETTINGS = 6, 8
"""Default numbers of metrics and of differing settings shown."""


def side_by_side(
    comparison: Comparison,
    keys: Sequence[str],
    settings: Sequence[str],
    figures: Sequence[str],
    *,
    quantities: bool = True,
) -> TextTable:
    """A column for each run.

    Args:
        quantities: speed and what was used, too.
    """
    rows: list[list[Any]] = [["status", *(run["status"] or None for run in comparison.runs)]]
    rows.append(["steps", *_column(comparison, "steps")])
    goals: dict[int, str] = {}
    rows += [[f"config.{name}", *(run["config"].get(name) for run in comparison.runs)] for name in settings]
    for key in keys:
        for figure in figures:
            values = [run["metrics"].get(key, {}).get(figure) for run in comparison.runs]
            if any(value is not None for value in values):
                if is_ranked(figure, goal := comparison.goals.get(key)):
                    goals[len(rows)] = goal or ""
                rows.append([titled(key, figure), *values])
    for title, name in _quantities(comparison) if quantities else ():
        if (goal := better(name)) is not None:
            goals[len(rows)] = goal
        rows.append([title, *_column(comparison, name)])
    tones = {(row, 1 + column): "best" for row, goal in goals.items() for column in best_of(rows[row][1:], goal)}
    labels, legend = _labels(comparison)
    return TextTable(["run", *labels], rows, tones=tones, least={0: LABEL}, legend=legend)


def a_line_each(
    comparison: Comparison,
    keys: Sequence[str],
    settings: Sequence[str],
    figures: dict[str, str],
    *,
    quantities: bool = True,
) -> TextTable:
    """A row for each run, with one figure of each metric; otherwise as :func:`side_by_side`."""
    extra = _quantities(comparison) if quantities else []
    labels, legend = _labels(comparison)
    about = ["run", "status", "steps", *(f"config.{name}" for name in settings)]
    headers = [*about, *(titled(key, figures[key]) for key in keys), *(title for title, _ in extra)]
    rows = [
        [name, run["status"] or None, run["steps"], *(run["config"].get(setting) for setting in settings),
         *(run["metrics"].get(key, {}).get(figures[key]) for key in keys), *(run[name_] or None for _, name_ in extra)]
        for name, run in zip(labels, comparison.runs, strict=True)
    ]  # fmt: skip
    goals = [comparison.goals.get(key) if is_ranked(figures[key], comparison.goals.get(key)) else None for key in keys]
    goals = [*[None] * len(about), *goals, *(better(name) for _, name in extra)]
    tones = {(row, column): "best" for column, goal in enumerate(goals)
             for row in best_of([cells[column] for cells in rows], goal)}  # fmt: skip
    return TextTable(headers, rows, texts=2, tones=tones, legend=legend)


def chosen_settings(comparison: Comparison, patterns: Sequence[str] | None) -> list[str]:
    """The settings to show: those asked for among those that differ, else the first of them."""
    if patterns is None:
        return comparison.differing[:SHOWN_SETTINGS]
    return [name for name in comparison.differing if any(fnmatch.fnmatch(name, pattern) for pattern in patterns)]


def remarks(comparison: Comparison, keys: Sequence[str], settings: Sequence[str]) -> Iterator[str]:
    """What isn't shown, and how to see it."""
    if len(comparison.keys) > len(keys):
        yield f"{len(comparison.keys) - len(keys)} more metrics: --keys '*', or --format csv"
    if len(comparison.differing) > len(settings):
        yield f"{len(comparison.differing) - len(settings)} more settings differ: --config '*', or --format csv"


def _quantities(comparison: Comparison) -> list[tuple[str, str]]:
    """The quantities that some run has; the kind of memory only where kinds differ."""
    present = [
        (title, name) for title, name in QUANTITIES if any(run[name] not in (None, "") for run in comparison.runs)
    ]
    kinds = {run["memory_kind"] for run in comparison.runs if run["memory_gb"] is not None}
    return [pair for pair in present if pair[1] != "memory_kind" or len(kinds) > 1]


def _column(comparison: Comparison, name: str) -> list[Any]:
    return [run[name] if run[name] != "" else None for run in comparison.runs]


LONGEST_LABEL = 32
"""Maximum number of characters of a run's label in a table; a legend says what cut ones stand for."""


def _labels(comparison: Comparison) -> tuple[list[str], dict[str, str]]:
    """A short label for each run, no two alike, and what those stand for that aren't the run's own name.

    Runs of one name carry their ids; those of one id, too, as much of the end of their sources as tells them apart.
    """
    runs = comparison.runs
    names = Counter(run["run_name"] for run in runs)
    pairs = Counter((run["run_name"], run["id"]) for run in runs)
    tails = _tails([run["source"] for run in runs])
    whole, short, legend = [], [], {}
    for run, tail in zip(runs, tails, strict=True):
        name, same = run["run_name"], pairs[run["run_name"], run["id"]] > 1
        apart = "" if names[name] == 1 else f" ({tail if same else run['id']})"
        whole.append((name + apart, f"{name}, {run['source']}" if same else name + apart))
        room = max(LONGEST_LABEL - len(apart), LONGEST_LABEL // 2)
        short.append(_cut(_cut(name, room) + apart))
    counts = Counter(short)
    for number, (label, meaning) in enumerate(whole):
        if counts[short[number]] > 1:
            short[number] = f"{_cut(label, LONGEST_LABEL - 5)} #{number + 1}"
        if short[number] != meaning:
            legend[short[number]] = meaning
    return short, legend


def _cut(text: str, most: int = LONGEST_LABEL) -> str:
    """A text without its middle where it is long: names differ at their ends."""
    return text if len(text) <= most else f"{text[: most // 2 - 1]}…{text[len(text) - (most - most // 2) :]}"


def _tails(sources: Sequence[str]) -> list[str]:
    """Of each source the last parts of its path, as many as no other source ends with, at most all."""
    parts = [source.split("/") for source in sources]
    found = []
    for mine in parts:
        count = 1
        while count < len(mine) and sum(other[-count:] == mine[-count:] for other in parts) > 1:
            count += 1
        found.append("/".join(mine[-count:]))
    return found
