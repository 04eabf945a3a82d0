"""``trackers copy``: runs from any source to any tracker, with a report that says whether both sides agree."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from trackers.cli.common import AsJson, RunsDir
from trackers.cli.keys import SOURCE_HELP


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("copy", rich_help_panel="Sources")(copy)


def copy(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help=f"{SOURCE_HELP} A project or a pattern: all of its runs.")
    ],
    destination: Annotated[
        str,
        typer.Argument(
            metavar="DEST",
            help="wandb:ENTITY/PROJECT, mlflow:URI#EXPERIMENT, trackio:PROJECT, tb:DIR, json:DIR, csv:DIR, or a "
            "directory, which gets journals.",
        ),
    ],
    timeout: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="Give a run up after this time without progress; 0: never.")
    ] = 120.0,
    directory: RunsDir = None,
    as_json: AsJson = False,
) -> None:
    """Copy runs: history, configuration, results, tags, notes, group, times, tables, images, files.

    What was interrupted goes on when the command is given again, and nothing is written twice. At the end of each run
    both sides are counted and checksummed. Exit code 0 only if all agree, up to what docs/sources.md lists.

    Example: trackers copy tb:runs/baseline mlflow:sqlite:///mlflow.db#gpt2
    """
    from trackers.copying import copy as copied

    reports = []
    with _progress() as (begin, say):
        found = copied(source, destination, directory=directory, patience_s=timeout, begin=begin, say=say)
        for report in found:
            reports.append(report)
            print(json.dumps(report.to_dict()) if as_json else _lines(str(report)), flush=True)
    if not as_json and len(reports) > 1:
        values = sum(report.want.values for report in reports)
        agree = sum(report.agrees for report in reports)
        print(f"{len(reports)} runs, {values:,} values: {agree} agree, {len(reports) - agree} do not")
    raise typer.Exit(0 if all(report.agrees for report in reports) else 1)


def _lines(text: str) -> str:
    """What a report says, names of runs and metrics in it as harmless text."""
    return "".join(char if char.isprintable() or char == "\n" else "\N{REPLACEMENT CHARACTER}" for char in text)


@contextmanager
def _progress() -> Iterator[tuple[Any, Any]]:
    """Callbacks for the copy; they draw a bar where stderr is a terminal, and nothing elsewhere."""
    if not sys.stderr.isatty():
        yield (lambda run, number, count: None), (lambda what, done, total: None)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[records]}"), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None, records="")

        def begin(run: Any, number: int, count: int) -> None:
            bar.reset(task, description=f"run {number} of {count}", total=None, records="")

        def say(what: str, done: int, total: int) -> None:
            bar.update(task, completed=done, total=total or None, records=f"{what} {done:,} records" if done else what)

        yield begin, say
