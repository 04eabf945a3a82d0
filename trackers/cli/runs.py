"""``trackers ls``, ``trackers show`` and ``trackers keys``: the runs there are, one of them whole, its metrics."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trackers.cli import completion
from trackers.cli.common import (
    WHERE,
    AsJson,
    Columns,
    RunsArgument,
    RunsDir,
    SortBy,
    SourceArgument,
    Statuses,
    Watch,
    is_other_source,
    open_runs,
    print_table,
    printable,
    refuse,
    resolve_conditions,
    show_number,
    show_time,
    terminal_table,
    watch,
)
from trackers.cli.roots import runs_root

if TYPE_CHECKING:
    from trackers.analysis.alert_list import RunAlert
    from trackers.analysis.run_list import Overview, RunLine
    from trackers.journal.run_directory import RunDirectory


def ls(
    context: typer.Context,
    runs: RunsArgument = None,
    directory: RunsDir = None,
    project: Annotated[str, typer.Option(help="Only runs of this project.", autocompletion=completion.projects)] = "",
    status: Statuses = "",
    sort: SortBy = "",
    count: Annotated[
        int | None, typer.Option("-n", min=1, help="Only so many: the newest, or the first that --sort gives.")
    ] = None,
    columns: Columns = "",
    tree: Annotated[bool, typer.Option("--tree", help="Forks below the runs that they were forked from.")] = False,
    watching: Watch = False,
    as_json: AsJson = False,
) -> None:
    """List runs: status, steps, results, last values, and what each tracker has, lacks and refused, and why.

    Runs of other sources (tb:runs/*, csv:metrics.csv) are listed, too.

    On a terminal the columns that fit are shown; the best value of a project's runs is marked.

    Example: trackers ls digits --sort final/best_val_loss -n 5; trackers ls "lr*" "where:config.depth > 2"
    """
    from trackers.analysis import run_table
    from trackers.analysis.run_list import as_tree
    from trackers.errors import UsageError
    from trackers.journal.naming import none_in

    root = runs_root(directory)
    views: dict[str, Overview] = {}
    if watching and as_json:
        raise UsageError("--watch and --json: only one of them")
    if as_json:
        refuse(context, "is for the table: --json has everything", "columns", "tree")

    def listed(say: Callable[[str], None]) -> list[RunLine]:
        own, others = _named(runs, directory)
        views.clear()
        if others:
            from trackers.analysis.source_list import overviews

            views.update({view.info.directory: view for view in overviews(others, say, whole=as_json)})
        lines = _choose_lines(root, own, views, project, status, sort, count, say)
        return as_tree(lines) if tree else lines

    def complain(text: str) -> None:
        print(f"trackers: {printable(text)}", file=sys.stderr)

    if watching:
        watch(lambda: _watched(listed(lambda text: None), columns, sort, root, views))
        return
    lines = listed(complain)
    if as_json:
        print(json.dumps(_views(lines, views, complain), indent=2))
    elif lines:
        print_table(run_table.table(lines, columns, run_table.Glances(views), sort=sort))
    else:
        print(printable(none_in(root), 4096), file=sys.stderr)


def _named(references: list[str] | None, directory: Path | None) -> tuple[list[RunDirectory] | None, list[str]]:
    """The runs of ours that are named (None: all of them), and the sources of others."""
    from trackers.journal.naming import runs_named

    if not references:
        return None, []
    root = runs_root(directory)
    names = resolve_conditions(references, directory)
    others = [name for name in names if is_other_source(name, root)]
    return [run for name in names if name not in others for run in runs_named(name, root)], others


def _choose_lines(
    root: Path,
    directories: list[RunDirectory] | None,
    views: Mapping[str, Overview],
    project: str,
    status: str,
    sort: str,
    count: int | None,
    say: Callable[[str], None],
) -> list[RunLine]:
    from trackers.analysis import choosing, run_table
    from trackers.analysis.run_list import listing, run_line
    from trackers.journal.naming import none_of_project

    listed = listing(root, project, directories)
    for text in listed.problems:
        say(text)
    others = [run_line(path, view) for path, view in views.items() if project in ("", view.info.project)]
    known = sorted([*listed.lines, *others], key=lambda line: line.created)
    if project and not known:
        projects = [line.project for line in listing(root, "", directories).lines]
        projects += [view.info.project for view in views.values()]
        if projects:
            raise none_of_project(project, projects, root)
    lines = choosing.of_status(known, status, lambda line: line.status)
    if known and not lines:
        raise choosing.none_of(status, [line.status for line in known])
    if sort:
        lines = run_table.ordered(lines, sort, run_table.Glances(views))
    if count is not None:
        lines = lines[:count] if sort else lines[-count:]
    return lines


def _watched(lines: list[RunLine], columns: str, sort: str, root: Path, views: Mapping[str, Overview]) -> str:
    from trackers.analysis import run_table
    from trackers.journal.naming import none_in

    if not lines:
        return printable(none_in(root), 4096)
    return terminal_table(run_table.table(lines, columns, run_table.Glances(views), sort=sort))[0]


def _views(lines: list[RunLine], others: Mapping[str, Overview], say: Callable[[str], None]) -> list[dict[str, Any]]:
    from trackers.analysis.run_list import glance
    from trackers.errors import TrackersError
    from trackers.journal.run_directory import RunDirectory
    from trackers.readers.boundary import boundary

    views = []
    for line in lines:
        try:
            with boundary(line.path):
                views.append((others.get(line.path) or glance(RunDirectory(line.path))).to_dict())
        except TrackersError as error:
            say(str(error))
    return views


def show(
    run: SourceArgument = "latest",
    rejected: Annotated[bool, typer.Option("--rejected", help="Only the records that trackers refused.")] = False,
    every: Annotated[bool, typer.Option("--all", help="Also samples of the machine, and all of long lists.")] = False,
    directory: RunsDir = None,
    as_json: AsJson = False,
) -> None:
    """Show one run: identity, configuration, last values, results, media, artifacts, and how each tracker stands.

    Of a long list the first 40 are shown, and samples of the machine are left out; --all and --json have all.

    Example: trackers show latest; trackers show tb:runs/baseline
    """
    from trackers.analysis.run_list import overview
    from trackers.errors import UsageError
    from trackers.journal.naming import find_run

    root = runs_root(directory)
    if not run.startswith(WHERE) and is_other_source(run, root):
        if rejected:
            raise UsageError(f"--rejected: {run} is no run of ours: no tracker refused records of it")
        _show_source(run, directory, as_json, every)
        return
    matches = [find_run(name, root) for name in resolve_conditions([run], directory)]
    if len(matches) > 1:
        raise UsageError(f"{run!r} names {len(matches)} runs: name one, as in {matches[0].path}")
    if rejected:
        _show_rejected(matches[0], as_json)
        return
    view = overview(matches[0])
    if as_json:
        print(json.dumps(view.to_dict(), indent=2))
        return
    info = view.info
    print(f"{printable(info.name)}  ({printable(f'{info.project}/{info.id}')})")
    print(f"  status     {view.status.name}" + (f": {printable(view.status.reason)}" if view.status.reason else ""))
    print(f"  started    {show_time(info.created)} on {printable(info.host)}, attempt {info.starts}")
    if info.forked_from:
        print(f"  forked     from {printable(info.forked_from)}")
    print(f"  command    {printable(' '.join([info.program, *info.argv]))}")
    if info.git.get("commit"):
        print(f"  git        {printable(info.git['commit'][:12])} {printable(info.git.get('branch', ''))}")
    for label, value in (("group", info.group), ("tags", ", ".join(info.tags)), ("notes", info.notes)):
        if value:
            print(f"  {label:<9}  {printable(value)}")
    print(f"  journal    {printable(info.directory, 4096)} ({view.records:,} records)")
    if any(name.writer == "console" for name in matches[0].stream_names()):
        print(f"  console    trackers logs {printable(info.id)}")
    if view.note:
        print(f"  note       {printable(view.note, 1000)}")
    _show_content(view, every)
    _show_alerts(view.alerts)
    print("trackers")
    for name, entry in view.trackers.items():
        print(f"  {printable(name):<12} {entry['state']}, {entry['delivered']:,} records" + _remarks(entry))
        if entry["url"]:
            print(f"  {'':<12} {printable(entry['url'])}")


def _show_source(source: str, directory: Path | None, as_json: bool, every: bool) -> None:
    """A run of any other source."""
    from trackers.analysis.source_list import overview_of_source
    from trackers.readers.run_data import RunData

    reader, (found,) = open_runs(source, directory, one=True)
    view = overview_of_source(RunData(reader, found))
    if as_json:
        print(json.dumps(view.to_dict(), indent=2))
        return
    info = view.info
    print(f"{printable(info.name or info.id)}  ({printable(info.directory, 4096)})")
    print(f"  status     {printable(view.status.name)}")
    host = f" on {printable(info.host)}" if info.host else ""
    attempts = f", attempt {info.starts}" if info.starts > 1 else ""
    print(f"  started    {show_time(info.created)}{host}{attempts}")
    forked = f"from {info.forked_from}" if info.forked_from else ""
    for label, value in (("project", info.project), ("forked", forked), ("group", info.group),
                         ("tags", ", ".join(info.tags)), ("notes", info.notes)):  # fmt: skip
        if value:
            print(f"  {label:<9}  {printable(value)}")
    if view.note:
        print(f"  note       {printable(view.note, 1000)}")
    _show_content(view, every)


def _show_content(view: Overview, every: bool) -> None:
    """What a run holds: configuration, last values, results, media, artifacts.

    Args:
        every: also samples of the machine, and all of long lists.
    """
    from trackers.metrics.groups import group_of

    most = sys.maxsize if every else SHOWN_VALUES
    shown = {name: value for name, value in view.last.items() if every or group_of(name) not in ("gpu", "system")}
    _show_values("config", view.info.config, separator=".", most=most)
    stepped = {name: value for name, value in shown.items() if view.steps[name] is not None}
    highest = max((at for at in view.steps.values() if at is not None), default=None)
    own_steps = {name: at for name, at in view.steps.items() if at != highest}
    _show_values("last values", stepped, f" at step {highest}", steps=own_steps, most=most)
    _show_values("last values without a step", {k: v for k, v in shown.items() if k not in stepped}, most=most)
    if len(shown) < len(view.last):
        print(f"  and {len(view.last) - len(shown)} samples of the machine: --all")
    _show_values("results", view.results, most=most)
    _show_files("media", view.media, most)
    _show_files("artifacts", view.artifacts, most)


SHOWN_VALUES = 40
"""Maximum number of values, media or artifacts of a kind that `trackers show` prints; --json has all."""
SHOWN_ALERTS = 10


def _show_alerts(alerts: list[RunAlert]) -> None:
    """The last ones, a line each."""
    if not alerts:
        return
    more = f" (the last {SHOWN_ALERTS} of {len(alerts):,}; trackers alerts lists all)"
    print("alerts" + (more if len(alerts) > SHOWN_ALERTS else ""))
    for alert in alerts[-SHOWN_ALERTS:]:
        step = f" at step {alert.step}" if alert.step is not None else ""
        text = f": {alert.text}" if alert.text else ""
        print(f"  {show_time(alert.time)}  {printable(f'{alert.level}: {alert.title}{text}{step}')}")


def _remarks(entry: dict[str, Any]) -> str:
    from trackers.journal.checksums import skipped

    parts = []
    if entry["waiting_bytes"]:
        parts.append(f"{entry['waiting_bytes']:,} bytes wait")
    if entry["rejected"]:
        parts.append(f"{entry['rejected']} rejected")
    if entry["damaged"]:
        parts.append(skipped(entry["damaged"]))
    if entry["error"]:
        parts.append(printable(entry["error"]))
    return "".join(f", {part}" for part in parts)


def _show_values(
    title: str,
    values: dict[str, Any],
    note: str = "",
    separator: str = "/",
    steps: Mapping[str, Any] | None = None,
    most: int = SHOWN_VALUES,
) -> None:
    """A line for each of the first values. steps: of those that have another step than the title says."""
    from trackers.records import flatten

    if not values:
        return
    print(f"{title}{note}")
    whole = list(flatten(values, separator))
    leaves = whole[:most]
    width = min(40, max(len(name) for name, _ in leaves))
    for name, value in leaves:
        own = f" at step {steps[name]}" if steps and name in steps else ""
        print(f"  {printable(name):<{width}}  {printable(show_number(value))}{own}")
    _show_rest(len(whole), most)


def _show_rest(count: int, most: int = SHOWN_VALUES) -> None:
    if count > most:
        print(f"  … and {count - most:,} more: --all")


def _show_files(title: str, entries: list[dict[str, Any]], most: int = SHOWN_VALUES) -> None:
    """A line for each of the first names of media or artifacts: how many, how large, and when."""
    from trackers.analysis.tables import format_size

    if not entries:
        return
    print(title)
    width = min(40, max(len(entry["name"]) for entry in entries))
    for entry in entries[:most]:
        first, last = entry["first_step"], entry["last_step"]
        when = "no step" if last is None else f"step {last}" if first == last else f"steps {first} to {last}"
        files = f", {entry['files']} files" if entry["files"] != entry["count"] else ""
        what = f"{printable(entry['kind'])}, {entry['count']:,} logged{files}, {when}, {format_size(entry['size'])}"
        print(f"  {printable(entry['name']):<{width}}  {what}")
    if len(entries) > most:
        _show_rest(len(entries))


def _show_rejected(run: Any, as_json: bool) -> None:
    from trackers.analysis.run_list import rejected

    refused = {name: rejected(run, name) for name in run.deliveries()}
    if as_json:
        print(json.dumps(refused, indent=2))
        return
    for name, entries in refused.items():
        for entry in entries:
            print(printable(f"{name}  {entry['id']}  {entry['reason']}", 1000))
            print(f"  {printable(json.dumps(entry['record']))}")
    if not any(refused.values()):
        print("no record was refused")


def keys(source: SourceArgument = "latest", directory: RunsDir = None, as_json: AsJson = False) -> None:
    """List every metric of a run by group: how many values, first and last step, last value; then media and artifacts.

    Example: trackers keys tb:runs/baseline
    """
    from trackers.readers import helpers
    from trackers.readers.run_data import RunData

    reader, runs = open_runs(source, directory)
    listed = helpers.those_of(runs, lambda run: _names_of(RunData(reader, run)))
    if as_json:
        print(json.dumps(listed, indent=2))
        return
    for number, run in enumerate(listed):
        if number:
            print()
        _show_names(run)


def _names_of(data: Any) -> dict[str, Any]:
    from trackers.analysis.run_files import logged_items, summed
    from trackers.metrics.groups import grouped
    from trackers.records import final_name, name_floats

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
    said = {final_name(name): value for name, value in data.summary.items() if isinstance(value, str)}
    unknown = {"count": 1, "first_step": None, "last_step": None}
    results = {name: {**unknown, "last": value} for name, value in said.items() if name not in series}
    if results:
        groups["final"] = {**groups.get("final", {}), **results}
    run = data.run
    about = {"source": run.source, "id": run.id, "name": run.name, "project": run.project, "status": data.status}
    with tempfile.TemporaryDirectory(prefix="trackers-keys-") as staging:
        media = data.every_media(Path(staging))
        root = Path(run.directory) if run.directory else None
        files = summed(logged_items([*media, *data.texts(), *data.artifacts()], root))
    log = data.config.get("log")
    known = [log.get("format"), log.get("release")] if isinstance(log, dict) else []
    format = ", ".join(part for part in known if isinstance(part, str) and part)
    return {**about, "note": run.note, "format": format, "groups": groups, **files}


def _show_names(run: dict[str, Any]) -> None:
    from trackers.metrics.groups import TITLES
    from trackers.records import FLOAT_NAMES

    names = [name for group in run["groups"].values() for name, entry in group.items()
             if not isinstance(entry["last"], str) or entry["last"] in FLOAT_NAMES]  # fmt: skip
    print(f"{printable(run['name'])}  ({printable(run['source'])})")
    note = f"; {printable(run['note'], 1000)}" if run["note"] else ""
    format = f"; format: {printable(run['format'])}" if run["format"] else ""
    print(f"  {printable(run['status']) or 'status unknown'}, {len(names)} metrics{format}{note}")
    width = min(60, max((len(name) for group in run["groups"].values() for name in group), default=0))
    for group, entries in run["groups"].items():
        if not entries:
            continue
        print(f"{TITLES[group]}: {len(entries):,}")
        for name, entry in entries.items():
            steps = "no step" if entry["first_step"] is None else f"steps {entry['first_step']} to {entry['last_step']}"
            counted = f"{entry['count']:,} value{'s' if entry['count'] != 1 else ''}"
            what = f"{counted}, {steps}, last " if group != "final" else ""
            legible = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in name)
            print(f"  {legible:<{width}}  {what}{printable(show_number(entry['last']), 200)}")
    for title in ("media", "artifacts"):
        _show_files(f"{title.capitalize()}: {len(run[title]):,}", run[title], len(run[title]))
