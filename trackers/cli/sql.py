"""``trackers sql``: queries over all runs."""

from __future__ import annotations

import datetime
import json
from typing import Annotated, Any

import typer

from trackers.cli.common import AsJson, RunsDir
from trackers.cli.compare import FORMS


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("sql", rich_help_panel="Analysis")(sql)


def sql(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="DuckDB's SQL.")],
    sources: Annotated[
        list[str] | None, typer.Argument(metavar="[SOURCE…]", help="Runs, projects, directories; default all runs.")
    ] = None,
    form: Annotated[str, typer.Option("--format", help="table, markdown, csv, latex or json.")] = "table",
    directory: RunsDir = None,
    as_json: AsJson = False,
) -> None:
    """Query runs with SQL. The query reads these tables, in memory, and no file:

    runs: run, source, name, project, group_name, tags, notes, status, created, steps, attempts, gpus, gpu_name,
    steps_per_s, samples_per_s, tokens_per_s, gpu_percent, memory_gb, memory_kind, energy_j

    metrics: run, name, step, time, value; system: run, name, time, value (without a step)

    config and summary: run, name, value (text), number

    Example: trackers sql "select run, min(value) from metrics where name = 'val_loss' group by run order by 2"
    """
    from trackers.analysis.sql import sql as work
    from trackers.analysis.tables import TextTable, render
    from trackers.cli.common import runs_root
    from trackers.errors import UsageError
    from trackers.records import name_floats

    form = "json" if as_json else form
    if form not in FORMS:
        raise UsageError(f"unknown format {form!r}: known are {', '.join(FORMS)}")
    root = runs_root(directory)
    table = work(query, sources or [str(root)], root=root).table
    columns = [[_value(value) for value in column.to_pylist()] for column in table.columns]
    rows = [list(row) for row in zip(*columns, strict=True)]
    if form == "json":
        print(json.dumps([name_floats(dict(zip(table.column_names, row, strict=True))) for row in rows], indent=2))
    elif table.column_names:
        left = next((k for k, column in enumerate(columns) if any(map(_is_number, column))), len(columns))
        print(render(TextTable(table.column_names, rows, texts=left), form), end="")


def _value(value: Any) -> Any:
    """A value as tables and JSON have it: numbers and texts stay, times and lists are texts, structs JSON."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, list):
        return ", ".join(str(_value(item)) for item in value)
    if isinstance(value, dict):
        return json.dumps({str(key): _value(item) for key, item in value.items()})
    return float(value) if hasattr(value, "as_tuple") else str(value)  # a decimal number


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
