"""The best runs as a table, for the command line and for notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from trackers.analysis import choosing
from trackers.analysis.best import Ranked, best
from trackers.analysis.collect import gather
from trackers.analysis.comparison import SHOWN_SETTINGS
from trackers.analysis.tables import TextTable, html_table
from trackers.readers import helpers
from trackers.readers.journal import JournalReader


class Ranking(msgspec.Struct):
    """Result of :func:`best_runs`.

    metric: what they are ranked by. runs: a mapping for each run, the best first: ``source``, ``id``, ``name``,
    ``project``, ``group``, ``tags``, ``status``, ``value`` (its best), ``step`` (where it had it; None for results)
    and ``config`` (the settings that differ among all).
    """

    metric: str
    runs: list[dict[str, Any]]
    _table: TextTable

    def to_pandas(self) -> Any:
        """A row for each run.

        Raises:
            MissingPackage: pandas isn't installed.
        """
        from trackers.support.optional import need

        need("pandas", "to_pandas")
        import pandas

        settings = list(dict.fromkeys(name for run in self.runs for name in run["config"]))
        rows = [{**{name: value for name, value in run.items() if name != "config"},
                 **{f"config.{name}": run["config"].get(name) for name in settings}} for run in self.runs]  # fmt: skip
        return pandas.DataFrame(rows)

    def _repr_html_(self) -> str:
        return html_table(self._table)


def best_runs(
    metric: str,
    *sources: helpers.Sources,
    mode: str | None = None,
    where: str | None = None,
    top: int | None = 10,
    root: Path | None = None,
) -> Ranking:
    """The best runs by a metric, with the settings that differ.

    Args:
        metric: a result (``final/best_val_loss``), or a logged metric, of which each run's best value counts.
        sources: as for :func:`trackers.load`, one by one or in a list; without any: all runs of ours.
        mode: "min" or "max"; None: as ``define_metric`` said, else by the name.
        where: a condition on runs, as in ``config.lr < 1e-3 and 'x' in tags``.
        top: maximum number of runs; None: all.
        root: where our own runs lie; default what ``TRACKER_DIR`` says.

    Runs that can't be read are left out, and named in a warning (logger ``trackers.readers``).

    Raises:
        UsageError: a mode that isn't known or can't be told, a condition that can't be read.
        NotFound: a source isn't there, no run fulfils the condition, or none has a number under that name.
    """
    given = any(source is not None for source in sources)
    named = helpers.source_names(sources) if given else [str(JournalReader(root).root())]
    gathered = gather(named, root)
    for reason in gathered.problems:
        helpers.warn(reason)
    ranked = best(gathered.runs, metric, mode, where, top)
    return Ranking(metric, [entry.to_dict() for entry in ranked], table(ranked, metric))


def table(ranked: Sequence[Ranked], metric: str, columns: str = "") -> TextTable:
    """A row for each of the best runs.

    Args:
        columns: names and patterns, a,b; "": the usual ones.

    Raises:
        UsageError: there is no such column.
    """
    settings = list(dict.fromkeys(f"config.{name}" for entry in ranked for name in entry.config))[:SHOWN_SETTINGS]
    names = ["name", "id", metric, "at step", "status", *settings]
    if columns:
        names = choosing.columns(columns, [metric, "at step", *choosing.names([entry.run for entry in ranked])])

    def cell(entry: Ranked, name: str) -> Any:
        own = {metric: entry.value, "at step": entry.step, "status": entry.run.status or None}
        return own[name] if name in own else choosing.figure(entry.run, name)

    rows = [[cell(entry, name) for name in names] for entry in ranked]
    texts = {column for column in range(len(names)) if all(isinstance(row[column], (str, type(None))) for row in rows)}
    left = next((column for column in range(len(names)) if column not in texts), len(names))
    return TextTable(
        [choosing.titled(name) for name in names], rows, texts=left,
        more_texts=frozenset(column for column in texts if column > left),
        whole=frozenset(column for column, name in enumerate(names) if name == "id"),
    )  # fmt: skip
