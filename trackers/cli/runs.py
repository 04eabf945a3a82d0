"""``trackers ls``, ``trackers show`` and ``trackers keys``: the runs there are, one of them whole, its metrics."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trackers.cli.common import AsJson, RunsDir, SourceArgument, printable, runs_root, show_age, show_number, show_time

if TYPE_CHECKING:
    from trackers.analysis.run_list import Standing


_COLORS = {"finished": "green", "running": "cyan", "failed": "red", "crashed": "red", "preempted": "yellow"}


def ls(
    directory: RunsDir = None,
    project: Annotated[str, typer.Option(help="Only runs of this project.")] = "",
    as_json: AsJson = False,
) -> None:
    """List runs: status, steps, last values, and what each tracker has, lacks and refused, and why.

    Example: trackers ls --project digits
    """
    from trackers.analysis.run_list import listing

    root = runs_root(directory)
    if as_json:
        _print_json(root, project)
        return
    found = listing(root, project)
    for text in found.lost:
        print(f"trackers: {printable(text)}", file=sys.stderr)
    if not found.lines:
        print(f"no runs in {printable(str(root), 4096)}", file=sys.stderr)
        return
    _print_table(found.lines)


def _print_json(root: Path, project: str) -> None:
    from trackers.analysis.run_list import glance
    from trackers.errors import TrackersError
    from trackers.journal.run_directory import find_runs
    from trackers.readers.boundary import boundary

    views = []
    for run in find_runs(root):
        try:
            with boundary(str(run.path)):
                view = glance(run)
                if project in ("", view.info.project):
                    views.append((view.info.created, view.to_dict()))
        except TrackersError as error:
            print(f"trackers: {printable(str(error))}", file=sys.stderr)
    views.sort(key=lambda view: view[0])
    print(json.dumps([shown for _, shown in views], indent=2))


COLUMNS = ("run", "name", "status", "step", "age", "last values", "trackers")
LONGEST = 300
"""Maximum length of a name or a text, in characters; the rest is cut."""
LONGEST_WHY = 80
"""Maximum length of a failure's text, in characters; ``trackers show`` prints all of it."""
LAID_OUT = 200
"""Maximum number of runs fitted to the terminal's width, which takes a millisecond each; more are printed unfitted."""


def _print_table(lines: list[Any]) -> None:
    from rich.console import Console

    from trackers.analysis.tables import TextTable, plain, render

    now = time.time()
    rows = [
        [f"{line.project}/{line.id}", line.name[:LONGEST], line.status, "–" if line.step is None else str(line.step),
         show_age(now - line.created),
         ", ".join([*(f"{k[:LONGEST]} {show_number(v)[:LONGEST]}" for k, v in line.last.items()), *["…"] * line.more]),
         ", ".join(_tracker_word(name, entry) for name, entry in line.trackers.items())]
        for line in lines
    ]  # fmt: skip
    console = Console()
    if not console.is_terminal or len(rows) > LAID_OUT:
        sys.stdout.write(render(TextTable(list(COLUMNS), rows, texts=len(COLUMNS)), "table"))
        return
    from rich.table import Table as RichTable
    from rich.text import Text

    table = RichTable(box=None, pad_edge=False, header_style="bold")
    for column in COLUMNS:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(
            *(Text(plain(text), style=_COLORS.get(text, "") if place == 2 else "") for place, text in enumerate(row))
        )
    console.print(table)


def _tracker_word(name: str, entry: Standing) -> str:
    words = [name, "✓" if entry.state == "delivered" else entry.state]
    if entry.waiting_bytes:
        words.append(f"{entry.waiting_bytes:,} B")
    if entry.rejected:
        words.append(f"{entry.rejected} rejected")
    if entry.why:
        words.append(f"({entry.why[: LONGEST_WHY - 1]}…)" if len(entry.why) > LONGEST_WHY else f"({entry.why})")
    return " ".join(words)


def show(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Id, name, directory or latest.")] = "latest",
    rejected: Annotated[bool, typer.Option("--rejected", help="Only the records that trackers refused.")] = False,
    directory: RunsDir = None,
    as_json: AsJson = False,
) -> None:
    """Show one run: identity, configuration, last values, results, and how each tracker stands.

    Example: trackers show latest
    """
    from trackers.analysis.run_list import overview
    from trackers.journal.run_directory import find_run

    found = find_run(run, runs_root(directory))
    if rejected:
        _show_rejected(found, as_json)
        return
    view = overview(found)
    if as_json:
        print(json.dumps(view.to_dict(), indent=2))
        return
    info = view.info
    print(f"{printable(info.name)}  ({printable(f'{info.project}/{info.id}')})")
    print(f"  status     {view.status.name}" + (f": {printable(view.status.reason)}" if view.status.reason else ""))
    print(f"  started    {show_time(info.created)} on {printable(info.host)}, attempt {len(info.attempts)}")
    print(f"  command    {printable(' '.join([info.program, *info.argv]))}")
    if info.git.get("commit"):
        print(f"  git        {printable(info.git['commit'][:12])} {printable(info.git.get('branch', ''))}")
    for label, value in (("group", info.group), ("tags", ", ".join(info.tags)), ("notes", info.notes)):
        if value:
            print(f"  {label:<9}  {printable(value)}")
    print(f"  journal    {printable(info.directory, 4096)} ({view.records:,} records)")
    _show_values("config", info.config)
    _show_values("last values", view.last, f" at step {view.step}" if view.step is not None else "")
    _show_values("results", view.results)
    print("trackers")
    for name, entry in view.trackers.items():
        print(f"  {printable(name):<12} {entry['state']}, {entry['delivered']:,} records" + _remarks(entry))
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
    from trackers.analysis.run_list import rejected

    found = {name: rejected(run, name) for name in run.deliveries()}
    if as_json:
        print(json.dumps(found, indent=2))
        return
    for name, entries in found.items():
        for entry in entries:
            print(printable(f"{name}  {entry['id']}  {entry['reason']}", 1000))
            print(f"  {printable(json.dumps(entry['record']))}")
    if not any(found.values()):
        print("no record was refused")


def keys(source: SourceArgument = "latest", directory: RunsDir = None, as_json: AsJson = False) -> None:
    """List every metric of a run by group: how many values, first and last step, last value.

    Example: trackers keys tb:runs/baseline
    """
    from trackers.readers import helpers, registry
    from trackers.readers.run_data import RunData

    reader, runs = registry.open_source(source, directory)
    found = helpers.those_of(runs, lambda run: _names_of(RunData(reader, run)))
    if as_json:
        print(json.dumps(found, indent=2))
        return
    for number, run in enumerate(found):
        if number:
            print()
        _show_names(run)


def _names_of(data: Any) -> dict[str, Any]:
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


def _show_names(run: dict[str, Any]) -> None:
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
