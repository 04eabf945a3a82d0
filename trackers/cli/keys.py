"""``trackers keys``: every metric of a run, grouped."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from trackers.cli.common import AsJson, RunsDir, printable, show_number

SOURCE_HELP = (
    "A run of ours (id, name, directory, latest), a .wandb file, or wandb:entity/project/run, tb:DIR, "
    "mlflow:[uri#]experiment/run, trackio:project/run, json:FILE, csv:FILE, hf:FILE, log:FILE, session:FILE."
)
SourceArgument = Annotated[str, typer.Argument(metavar="SOURCE", help=SOURCE_HELP)]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("keys", rich_help_panel="Sources")(keys)


def keys(source: SourceArgument = "latest", directory: RunsDir = None, as_json: AsJson = False) -> None:
    """List every metric of a run by group: how many values, first and last step, last value.

    Example: trackers keys tb:runs/baseline
    """
    from trackers.readers import helpers, registry
    from trackers.readers.run_data import RunData

    reader, runs = registry.open_source(source, directory)
    found = helpers.those_of(runs, lambda run: _run(RunData(reader, run)))
    if as_json:
        print(json.dumps(found, indent=2))
        return
    for number, run in enumerate(found):
        if number:
            print()
        _show(run)


def _run(data: Any) -> dict[str, Any]:
    from trackers.metrics.groups import grouped
    from trackers.records import name_floats

    series = data.series()
    groups = {
        group: {
            name: {
                "count": series[name].count,
                "first_step": series[name].first,
                "last_step": series[name].last,
                "last": name_floats(series[name].value),
            }
            for name in names
        }
        for group, names in grouped(series).items()
    }
    run = data.run
    about = {"source": run.source, "id": run.id, "name": run.name, "project": run.project, "status": data.status}
    return {**about, "note": run.note, "groups": groups}


def _show(run: dict[str, Any]) -> None:
    from trackers.metrics.groups import TITLES

    names = [name for group in run["groups"].values() for name in group]
    print(f"{printable(run['name'])}  ({printable(run['source'])})")
    note = f"; {printable(run['note'])}" if run["note"] else ""
    print(f"  {printable(run['status']) or 'status unknown'}, {len(names)} metrics{note}")
    width = min(60, max((len(name) for name in names), default=0))
    for group, entries in run["groups"].items():
        if not entries:
            continue
        print(f"{TITLES[group]}: {len(entries):,}")
        for name, entry in entries.items():
            steps = "no step" if entry["first_step"] is None else f"steps {entry['first_step']} to {entry['last_step']}"
            counted = f"{entry['count']:,} value{'s' if entry['count'] != 1 else ''}"
            what = f"{counted}, {steps}, last " if group != "final" else ""
            print(f"  {_whole(name):<{width}}  {what}{show_number(entry['last'])}")


def _whole(name: str) -> str:
    """A name without what a terminal would obey, but whole."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in name)
