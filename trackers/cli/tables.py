"""``trackers tables``: tables of a run listed and printed, those of several runs side by side, and what differs."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trackers.cli import completion
from trackers.cli.common import (
    AsJson,
    Force,
    ListedByDefault,
    RunsDir,
    SourceArgument,
    inputs,
    load,
    open_runs,
    print_table,
    printable,
    refuse,
)
from trackers.formats.word_list import split_words

if TYPE_CHECKING:
    from trackers.analysis.table_diff import TableDiff
    from trackers.readers.logged_tables import LoggedTable
    from trackers.readers.run_data import RunData

FORMS = ("table", "markdown", "csv", "latex", "json", "parquet")
ENDINGS = {".csv": "csv", ".json": "json", ".md": "markdown", ".tex": "latex", ".txt": "table", ".parquet": "parquet"}
"""What a file's ending says of its form."""
ROWS = 20
"""Rows that are printed of a table, unless more are asked for; files have all."""
EVERY_STEP = "all"

Name = Annotated[
    str, typer.Argument(metavar="[NAME]", help="A table; without it all are listed.", autocompletion=completion.tables)
]
OneRun = Annotated[
    str, typer.Argument(metavar="A", help="A run, as for `trackers keys`.", autocompletion=completion.runs)
]
OtherRun = Annotated[str, typer.Argument(metavar="B", help="The other run.", autocompletion=completion.runs)]
On = Annotated[str, typer.Option("--on", help="Columns that name a row: a,b. Default the row's number.")]
Where = Annotated[
    str, typer.Option("--where", help='Only rows that fit all words: cat, answer:cat, "loss>0.5", -answer:cat.')
]
SortBy = Annotated[str, typer.Option("--sort", metavar="COLUMN", help="Sort by a column; -COLUMN: descending.")]
Count = Annotated[
    int | None, typer.Option("-n", "--rows", min=0, help=f"Maximum number of rows. Default {ROWS}, in a file all.")
]
Form = Annotated[
    str,
    typer.Option(
        "--format",
        metavar="|".join(FORMS),
        help="Default by the file's ending, else table.",
        autocompletion=completion.words_of(lambda: FORMS, many=False),
    ),
]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", help="File to write to: .csv, .json, .parquet, .md, .tex.")
]
Step = Annotated[str, typer.Option("--step", help="Of which step; all: of all, with a column step. Default the last.")]
OneStep = Annotated[int | None, typer.Option("--step", help="Of which step. Default the last of each run.")]

app = typer.Typer(
    name="tables", cls=ListedByDefault, help="Logged tables of a run: ls; of several runs: diff, join.",
    context_settings={"help_option_names": ["-h", "--help"]},
)  # fmt: skip


@app.command("ls")
def ls(
    context: typer.Context,
    run: SourceArgument = "latest",
    name: Name = "",
    step: Step = "",
    where: Where = "",
    sort: SortBy = "",
    columns: Annotated[str, typer.Option(help="Columns to print, a,b; patterns as in score_*.")] = "",
    count: Count = None,
    form: Form = "",
    output: Output = None,
    force: Force = False,
    directory: RunsDir = None,
    as_json: AsJson = False,
) -> None:
    """List a run's tables, or print one. "ls" may be left out.

    Example: trackers tables latest; trackers tables latest predictions --where "loss>1" --sort -loss
    """
    if not name:
        refuse(context, "is for one table: name it", "step", "where", "sort", "columns", "count", "form", "output")
        _list(load(run, directory), as_json)
        return
    form = _form(form, output, as_json)
    _check(output, [run], directory, force)
    table = _table(load(run, directory), name, step)
    page = _page(table, where, sort, _row_limit(count, form, output))
    _write(_choose_columns(page.table, columns), form, output)
    _say_more(page.table.num_rows, page.total, output)


@app.command("diff")
def diff(
    first: OneRun,
    second: OtherRun,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A table of both.", autocompletion=completion.tables)],
    on: On = "",
    step: OneStep = None,
    tolerance: Annotated[float, typer.Option(min=0.0, help="Numbers that differ by no more are the same.")] = 0.0,
    where: Where = "",
    sort: SortBy = "",
    every: Annotated[bool, typer.Option("--all", help="Also rows and columns that don't differ.")] = False,
    count: Count = None,
    form: Form = "",
    output: Output = None,
    force: Force = False,
    directory: RunsDir = None,
    as_json: AsJson = False,
) -> None:
    """Show what differs between the tables of two runs: rows added, removed and changed. Exit code 0 either way.

    For each column: how many rows changed, the means, and the largest change. Then the rows that differ, with - for the
    first run and + for the second.

    Example: trackers tables diff baseline latest predictions --on id --sort "-loss change"
    """
    from trackers.analysis import table_diff as work
    from trackers.analysis import table_rows

    form = _form(form, output, as_json)
    _check(output, [first, second], directory, force)
    datas = [load(source, directory) for source in (first, second)]
    tables = [_last_table(data, name, step) for data in datas]
    left, right = (table.frame().table for table in tables)
    difference = work.diff(left, right, split_words(on), tolerance)
    frame = difference.frame(*(work.STATES if every else ()), every=every).table
    page = _page(frame, where, sort, _row_limit(count, form, output))
    if form == "json":
        runs = [{"run": data.run.name or data.run.id, "source": data.run.source, "step": table.step, "rows": len(table)}
                for data, table in zip(datas, tables, strict=True)]  # fmt: skip
        value = {"table": name, "runs": runs, **difference.to_dict(), "rows": table_rows.to_json(page.table)}
        _write_text(json.dumps(value, indent=2, allow_nan=False) + "\n", output)
    elif form == "table" and output is None:
        for sign, data, table in zip("-+", datas, tables, strict=True):
            at = "" if table.step is None else f" at step {table.step}"
            title = f"{sign} {data.run.name or data.run.id}  ({data.run.source})"
            print(printable(f"{title}: {name}{at}, {_count(len(table), 'row')}"))
        _print_summary(difference)
        if page.total:
            print()
            _write(page.table, form, None)
    else:
        _write(page.table, form, output)
    _warn(work.repeats(difference))
    _say_more(page.table.num_rows, page.total, output)


@app.command("join")
def join(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN… NAME",
            help="Runs, as for `trackers compare`, and a table of theirs.",
            autocompletion=completion.runs,
        ),
    ],
    on: On = "",
    step: OneStep = None,
    where: Where = "",
    sort: SortBy = "",
    columns: Annotated[str, typer.Option(help="Columns to print, a,b; patterns as in *loss*.")] = "",
    count: Count = None,
    form: Form = "",
    output: Output = None,
    force: Force = False,
    directory: RunsDir = None,
    as_json: AsJson = False,
) -> None:
    """Print the tables of several runs side by side: the keys, and each column as "NAME (RUN)".

    Example: trackers tables join baseline wider deeper predictions --on id --columns "id,loss*"
    """
    from trackers.analysis import table_diff as work
    from trackers.errors import UsageError
    from trackers.readers.run_data import RunData

    if len(words) < 2:
        raise UsageError(f"which runs, and which table? trackers tables join A B {words[0]} --on id")
    *sources, name = words
    form = _form(form, output, as_json)
    _check(output, sources, directory, force)
    pairs = [open_runs(source, directory) for source in sources]
    datas = [RunData(reader, run) for reader, runs in pairs for run in runs]
    if len(datas) > JOINED:
        raise UsageError(f"these are {len(datas)} runs: name {JOINED} at most")
    frames = [_last_table(data, name, step).frame().table for data in datas]
    labels = [data.run.name or data.run.id for data in datas]
    page = _page(work.join(frames, labels, split_words(on)).table, where, sort, _row_limit(count, form, output))
    _write(_choose_columns(page.table, columns), form, output)
    _say_more(page.table.num_rows, page.total, output)


JOINED = 50
"""Maximum number of runs side by side."""


def _last_table(data: RunData, name: str, step: int | None) -> LoggedTable:
    from trackers.readers.logged_tables import choose_tables

    return choose_tables(data.tables(), name, data.run.name or data.run.id, step)[-1]


def _table(data: RunData, name: str, step: str) -> Any:
    from trackers.errors import UsageError

    if step == EVERY_STEP:
        return data.table_over_steps(name).table
    try:
        number = int(step) if step else None
    except ValueError:
        raise UsageError(f"--step takes a number or all, not {step!r}") from None
    return data.table(name, number).table


def _list(data: RunData, as_json: bool) -> None:
    from trackers.analysis.table_rows import kind
    from trackers.analysis.tables import TextTable
    from trackers.errors import TrackersError, examples

    by_name: dict[str, list[LoggedTable]] = {}
    for table in data.tables():
        by_name.setdefault(table.name, []).append(table)
    rows, listed = [], []
    for name, tables in by_name.items():
        steps = [table.step for table in tables if table.step is not None]
        size, names, kinds, problem = None, [], {}, ""
        try:
            frame = tables[-1].frame().table
            size, names = frame.num_rows, frame.column_names
            kinds = {field.name: kind(field.type) for field in frame.schema}
        except TrackersError as error:
            problem = str(error)
        entry = {"name": name, "count": len(tables), "steps": steps, "rows": size, "columns": kinds}
        listed.append({**entry, "problem": problem} if problem else entry)
        span = f"{min(steps)}" if len(set(steps)) == 1 else f"{min(steps)} to {max(steps)}" if steps else None
        rows.append([name, len(tables), span, size, problem or examples(names, 12)])
    if as_json:
        print(json.dumps(listed, indent=2))
    elif not rows:
        hint = "run.log({'predictions': trackers.Table(columns=…, data=…)}) logs one"
        print(f"trackers: the run has no tables: {hint}", file=sys.stderr)
    else:
        heads = ["table", "logged", "steps", "rows", "columns"]
        print_table(TextTable(heads, rows, more_texts=frozenset({2, 4})))


def _page(table: Any, where: str, sort: str, most: int | None) -> Any:
    from trackers.analysis.table_rows import page

    down = sort.startswith("-") and sort not in table.column_names
    return page(table, where, sort.removeprefix("-") if down else sort, down, most=most)


def _row_limit(count: int | None, form: str, output: Path | None) -> int | None:
    return count if count is not None else ROWS if form in ("table", "markdown", "latex") and output is None else None


def _choose_columns(table: Any, columns: str) -> Any:
    """The columns that patterns name; all without any."""
    import fnmatch

    from trackers.analysis.table_rows import column_index

    if not columns:
        return table
    indices: dict[int, None] = {}
    for word in split_words(columns):
        matching = [k for k, name in enumerate(table.column_names) if name == word or fnmatch.fnmatchcase(name, word)]
        indices.update(dict.fromkeys(matching or [column_index(table, word)]))
    return table.select(list(indices))


def _form(form: str, output: Path | None, as_json: bool) -> str:
    from trackers.errors import UsageError, did_you_mean

    ending = output.suffix.lower() if output is not None else ""
    form = "json" if as_json else form or ENDINGS.get(ending, "" if output is not None else "table")
    if not form:
        raise UsageError(f"{output}: the file's ending must be one of {', '.join(ENDINGS)}, or give --format")
    if form not in FORMS:
        raise UsageError(f"unknown format {form!r}{did_you_mean(form, FORMS, ':')} known are {', '.join(FORMS)}")
    if form == "parquet" and output is None:
        raise UsageError("parquet is written to a file: give --output table.parquet")
    return form


def _check(output: Path | None, sources: list[str], directory: Path | None, force: bool) -> None:
    from trackers.support.atomic_write import check, never

    if output is not None:
        check(output, inputs=inputs(sources, directory), ours=never, force=force)


def _write(table: Any, form: str, output: Path | None) -> None:
    """A table in one of :data:`FORMS`."""
    from trackers.analysis import table_rows
    from trackers.analysis.tables import TextTable, render

    if form == "parquet":
        import pyarrow.parquet as pq

        from trackers.support.atomic_write import write

        assert output is not None
        write(output, lambda partial: pq.write_table(table, partial))
        print(f"Saved {printable(str(output), 4096)}")
        return
    if form == "json":
        _write_text(json.dumps(table_rows.to_json(table), indent=2, allow_nan=False) + "\n", output)
        return
    cell = _file_or_text if form == "csv" else table_rows.display_value
    columns = [[cell(value) for value in column.to_pylist()] for column in table.columns]
    rows = [list(row) for row in zip(*columns, strict=True)]
    if form == "csv" and output is not None:
        _write_text(_csv(table.column_names, rows), output)
        return
    numbers = {k for k, field in enumerate(table.schema) if table_rows.kind(field.type) in ("integer", "number")}
    text = TextTable(table.column_names, rows, texts=0, more_texts=frozenset(range(len(table.column_names))) - numbers)
    if output is not None:
        _write_text(render(text, form), output)
    else:
        print_table(text, form, parts=True)


def _file_or_text(value: Any) -> Any:
    """A cell for programs: media are their file."""
    from trackers.analysis.table_rows import display_value

    return value.get("file") if isinstance(value, dict) else display_value(value)


def _csv(names: list[str], rows: list[list[Any]]) -> str:
    """For a file, texts as they are, but for formulas: what is printed has no line breaks in cells."""
    from trackers.formats.csv_cell import csv_cell
    from trackers.records import name_floats

    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(map(csv_cell, names))
    writer.writerows(["" if value is None else csv_cell(name_floats(value)) for value in row] for row in rows)
    return file.getvalue()


def _write_text(text: str, output: Path | None) -> None:
    from trackers.support.atomic_write import write_text

    if output is None:
        sys.stdout.write(text)
        return
    write_text(output, text)
    print(f"Saved {printable(str(output), 4096)}")


def _print_summary(difference: TableDiff) -> None:
    """How many rows differ, and each column's change."""
    from trackers.analysis.tables import TextTable
    from trackers.errors import examples

    counts = (
        (difference.changed, "changed"),
        (difference.added, "added"),
        (difference.removed, "removed"),
        (difference.same, "the same"),
    )
    print("rows: " + ", ".join(f"{count:,} {word}" for count, word in counts))
    for sign, names in (("-", difference.only_first), ("+", difference.only_second)):
        if names:
            print(f"only in {sign}: {printable(examples(names))}")
    rows = [
        [column.name, column.changed, column.first, column.second,
         None if column.first is None or column.second is None else column.second - column.first, column.largest]
        for column in difference.columns if column.changed
    ]  # fmt: skip
    if rows:
        print()
        print_table(TextTable(["column", "changed", "mean -", "mean +", "change", "largest change"], rows))


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _warn(text: str) -> None:
    if text:
        print(f"trackers: {printable(text)}", file=sys.stderr)


def _say_more(shown: int, total: int, output: Path | None) -> None:
    if shown < total:
        _warn(f"{'the first ' if shown else ''}{shown:,} of {total:,} rows: -n prints more, --where fewer")
    elif not total and output is None:
        _warn("no rows")
