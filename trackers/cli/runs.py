"""``trackers ls`` and ``trackers show``: what runs there are, and one of them whole."""

from __future__ import annotations

import json
import sys
import time
from typing import Annotated, Any

import typer

from trackers.cli.common import AsJson, RunsDir, printable, runs_root, show_age, show_number, show_time

_COLORS = {"finished": "green", "running": "cyan", "failed": "red", "crashed": "red", "preempted": "yellow"}


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("ls", rich_help_panel="Runs")(ls)
    app.command("show", rich_help_panel="Runs")(show)


def ls(
    directory: RunsDir = None,
    project: Annotated[str, typer.Option(help="Only runs of this project.")] = "",
    as_json: AsJson = False,
) -> None:
    """List runs: status, steps, last values, and what each tracker has and lacks.

    Example: trackers ls --project digits
    """
    from trackers.errors import NotFound
    from trackers.overview import glance
    from trackers.rundir import find_runs

    views = []
    for run in find_runs(runs_root(directory)):
        try:
            view = glance(run)
        except NotFound as error:
            print(f"trackers: {error}", file=sys.stderr)
            continue
        if project in ("", view.info.project):
            views.append(view)
    views.sort(key=lambda view: view.info.created)
    if as_json:
        print(json.dumps([view.to_dict() for view in views], indent=2))
        return
    if not views:
        print(f"no runs in {runs_root(directory)}", file=sys.stderr)
        return
    _print_table(views)


def _print_table(views: list[Any]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("run", "name", "status", "step", "age", "last values", "trackers"):
        table.add_column(column, overflow="fold")
    for view in views:
        last = ", ".join(f"{printable(k)} {show_number(v)}" for k, v in list(view.last.items())[:4])
        table.add_row(
            Text(f"{view.info.project}/{view.info.id}"),
            Text(printable(view.info.name)),
            Text(view.status.name, style=_COLORS.get(view.status.name, "")),
            "–" if view.step is None else str(view.step),
            show_age(time.time() - view.info.created),
            Text(last + (", …" if len(view.last) > 4 else "")),
            Text(", ".join(_tracker_word(name, entry) for name, entry in view.trackers.items())),
        )
    console = Console()
    if not console.is_terminal:
        console.width = 240
    console.print(table)


def _tracker_word(name: str, entry: dict[str, Any]) -> str:
    if entry["state"] == "delivered":
        return f"{name} ✓"
    waiting = f" {entry['waiting_bytes']:,} B" if entry["waiting_bytes"] else ""
    return f"{name} {entry['state']}{waiting}"


def show(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Id, name, directory or latest.")] = "latest",
    rejected: Annotated[bool, typer.Option("--rejected", help="Only the records that trackers refused.")] = False,
    directory: RunsDir = None,
    as_json: AsJson = False,
) -> None:
    """Show one run: identity, configuration, last values, results, and how each tracker stands.

    Example: trackers show latest
    """
    from trackers.overview import overview
    from trackers.rundir import find_run

    found = find_run(run, runs_root(directory))
    if rejected:
        _show_rejected(found, as_json)
        return
    view = overview(found)
    if as_json:
        print(json.dumps(view.to_dict(), indent=2))
        return
    info = view.info
    print(f"{printable(info.name)}  ({printable(info.project)}/{info.id})")
    print(f"  status     {view.status.name}" + (f": {printable(view.status.reason)}" if view.status.reason else ""))
    print(f"  started    {show_time(info.created)} on {info.host}, attempt {len(info.attempts)}")
    print(f"  command    {printable(' '.join([info.program, *info.argv]))}")
    if info.git.get("commit"):
        print(f"  git        {info.git['commit'][:12]} {printable(info.git.get('branch', ''))}")
    for label, value in (("group", info.group), ("tags", ", ".join(info.tags)), ("notes", info.notes)):
        if value:
            print(f"  {label:<9}  {printable(value)}")
    print(f"  journal    {info.directory} ({view.records:,} records)")
    _show_values("config", info.config)
    _show_values("last values", view.last, f" at step {view.step}" if view.step is not None else "")
    _show_values("results", view.results)
    print("trackers")
    for name, entry in view.trackers.items():
        print(f"  {name:<12} {entry['state']}, {entry['delivered']:,} records" + _remarks(entry))
        if entry["url"]:
            print(f"  {'':<12} {printable(entry['url'])}")


def _remarks(entry: dict[str, Any]) -> str:
    parts = []
    if entry["waiting_bytes"]:
        parts.append(f"{entry['waiting_bytes']:,} bytes wait")
    if entry["rejected"]:
        parts.append(f"{entry['rejected']} rejected")
    if entry["error"]:
        parts.append(printable(entry["error"]))
    return "".join(f", {part}" for part in parts)


def _show_values(title: str, values: dict[str, Any], note: str = "") -> None:
    from trackers.records import flatten

    if not values:
        return
    print(f"{title}{note}")
    leaves = list(flatten(values))
    width = min(40, max(len(name) for name, _ in leaves))
    for name, value in leaves:
        print(f"  {printable(name):<{width}}  {printable(show_number(value))}")


def _show_rejected(run: Any, as_json: bool) -> None:
    from trackers.overview import rejected

    found = {name: rejected(run, name) for name in run.deliveries()}
    if as_json:
        print(json.dumps(found, indent=2))
        return
    for name, entries in found.items():
        for entry in entries:
            print(f"{name}  {entry['id']}  {printable(entry['reason'])}")
            print(f"  {printable(json.dumps(entry['record']))}")
    if not any(found.values()):
        print("no record was refused")
