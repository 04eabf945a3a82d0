"""``trackers best``: the best runs by a metric."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from trackers.cli.common import AsJson, RunsDir, printable, runs_root


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("best", rich_help_panel="Analysis")(best)


def best(
    sources: Annotated[
        list[str] | None, typer.Argument(metavar="[SOURCE…]", help="Runs, projects, directories; default all runs.")
    ] = None,
    metric: Annotated[
        str, typer.Option(help="A result (final/best_val_loss) or a metric, of which the best counts.")
    ] = "",
    mode: Annotated[str, typer.Option(help="min or max; default as defined, else by the name.")] = "",
    where: Annotated[str, typer.Option(help="Only runs that match: config.lr < 1e-3 and 'x' in tags.")] = "",
    top: Annotated[int, typer.Option(min=1, help="Maximum number of runs.")] = 1,
    directory: RunsDir = None,
    as_json: AsJson = False,
) -> None:
    """Find the best runs by a metric, with the settings that differ.

    Example: trackers best --metric final/best_val_loss --mode min --where "config.lr < 1e-3" --top 5
    """
    from trackers.analysis import best as work
    from trackers.analysis.collect import gather
    from trackers.analysis.compare import SHOWN_SETTINGS
    from trackers.analysis.tables import TextTable, render
    from trackers.errors import UsageError

    if not metric:
        raise UsageError("best by what? --metric final/best_val_loss; `trackers keys RUN` lists a run's metrics")
    gathered = gather(sources or [str(runs_root(directory))], directory)
    for reason in gathered.lost:
        print(f"trackers: left out: {printable(reason)}", file=sys.stderr)
    found = work.best(gathered.runs, metric, mode or None, where or None, top)
    if as_json:
        print(json.dumps([entry.to_dict() for entry in found], indent=2, allow_nan=False))
        return
    settings = list(dict.fromkeys(name for entry in found for name in entry.config))[:SHOWN_SETTINGS]
    headers = ["run", "id", metric, "step", "status", *settings]
    rows = [
        [entry.run.name, entry.run.id, entry.value, entry.step, entry.run.status or None,
         *(entry.config.get(name) for name in settings)]
        for entry in found
    ]  # fmt: skip
    print(render(TextTable(headers, rows, texts=2), "table"), end="")
