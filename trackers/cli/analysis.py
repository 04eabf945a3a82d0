"""Commands that compare runs and query them: compare, report, best, diff, argv, sql, bench-export."""

from __future__ import annotations

import datetime
import fnmatch
import json
import shutil
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from trackers.cli import completion
from trackers.cli.common import (
    AsJson,
    Columns,
    Force,
    Form,
    RunsDir,
    SortBy,
    SourceArgument,
    SourcesArgument,
    Statuses,
    Watch,
    inputs,
    load,
    open_runs,
    print_table,
    printable,
    refuse,
    resolve_conditions,
    terminal_table,
    watch,
)
from trackers.cli.roots import runs_root
from trackers.formats.word_list import split_words

if TYPE_CHECKING:
    from trackers.analysis.comparison import Comparison
    from trackers.analysis.diff import Difference, Provenance
    from trackers.analysis.groups import Group, Groups
    from trackers.analysis.run_stats import RunStats
    from trackers.analysis.tables import TextTable

Sources = Annotated[
    list[str],
    typer.Argument(
        metavar="SOURCE…",
        help="Runs by id, name or pattern, projects, where:CONDITION, directories, files, or sources as for "
        "`trackers keys`; latest is one too.",
        autocompletion=completion.runs,
    ),
]
FORMS = ("table", "markdown", "csv", "latex", "json")


def _known_form(form: str, as_json: bool) -> str:
    from trackers.errors import UsageError

    form = "json" if as_json else form
    if form not in FORMS:
        raise UsageError(f"unknown format {form!r}: known are {', '.join(FORMS)}")
    return form


def compare(
    context: typer.Context,
    sources: Sources,
    keys: Annotated[
        str,
        typer.Option(
            "--keys",
            "--metrics",
            help="Metrics, a,b; patterns as in val_*. Default training's and validation's.",
            autocompletion=completion.metrics,
        ),
    ] = "",
    config: Annotated[str, typer.Option(help="Which of the settings that differ to show: lr,model.*.")] = "",
    figures: Annotated[str, typer.Option(help="Figures of each metric: final,best,last,min,max.")] = "",
    by: Annotated[
        str,
        typer.Option(
            help="Aggregate by seed, group, tag or config.KEY: n, mean, std, 95 % interval.",
            autocompletion=completion.groupings,
        ),
    ] = "",
    baseline: Annotated[str, typer.Option(help="Baseline of speed-ups; default the run with the fewest GPUs.")] = "",
    status: Statuses = "",
    sort: SortBy = "",
    count: Annotated[int | None, typer.Option("-n", min=1, help="Only the first runs, or groups, so many.")] = None,
    columns: Columns = "",
    watching: Watch = False,
    form: Form = "table",
    directory: RunsDir = None,
    as_json: AsJson = False,
) -> None:
    """Compare runs: metrics, the settings that differ, speed, GPUs, memory, energy, speed-up, efficiency.

    Speed-up is from samples/s; efficiency is speed-up ÷ GPUs × 100. Warnings (stderr) say what makes it unfair. On a
    terminal, what has no room follows below or is left out, and the best values are marked.

    Example: trackers compare baseline wider --keys "val_*"; trackers compare digits --by config.lr --sort val_loss
    """
    from trackers.analysis.figures import FIGURES
    from trackers.errors import UsageError

    form = _known_form(form, as_json)
    chosen = split_words(figures) or list(FIGURES)
    for word in chosen:
        if word not in FIGURES:
            raise UsageError(f"unknown figure {word!r}: known are {', '.join(FIGURES)}")
    if by:
        refuse(context, "can't be had with --by: groups have no settings and no speed-up", "config", "baseline")
        if len(chosen) > 1 and figures:
            raise UsageError(f"--by shows one figure of each metric: --figures {chosen[0]}")
    if form in ("csv", "json"):
        refuse(context, f"is for tables: {form} has everything", "columns")
    if watching and form != "table":
        raise UsageError(f"--watch shows a table, not {form}")
    options = _CompareOptions(
        sources, directory, split_words(keys), split_words(config) or None, chosen if figures else [], by, baseline,
        status, sort, count, columns,
    )  # fmt: skip
    if watching:
        watch(lambda: _watched(options))
    elif by:
        _show_groups(options, form)
    else:
        _print_comparison(options, form)


class _CompareOptions(NamedTuple):
    """What a comparison is asked for: the options, taken apart."""

    sources: list[str]
    directory: Path | None
    keys: list[str]
    settings: list[str] | None
    figures: list[str]
    by: str
    baseline: str
    status: str
    sort: str
    most: int | None
    columns: str


def _gathered(options: _CompareOptions) -> tuple[list[RunStats], list[str]]:
    """The runs asked for, in order, and why others are left out."""
    from trackers.analysis import choosing
    from trackers.analysis.collect import gather

    gathered = gather(resolve_conditions(options.sources, options.directory), options.directory)
    runs = choosing.of_status(gathered.runs, options.status, lambda run: run.status)
    if not runs:
        raise choosing.none_of(options.status, [run.status for run in gathered.runs])
    if options.by:
        return runs, gathered.problems
    if options.sort:
        runs = choosing.ordered(
            runs, options.sort, choosing.figure, lambda: choosing.names(runs), choosing.direction(runs)
        )
    return runs[: options.most], gathered.problems


def _keys(options: _CompareOptions, runs: Sequence[RunStats]) -> list[str] | None:
    """The metrics to compare: those of --keys, else those that --columns names, else None: the usual ones."""
    from trackers.analysis import choosing
    from trackers.analysis.compare import chosen_keys

    if options.keys or not options.columns:
        return options.keys or None
    known = chosen_keys(runs, ["*"])
    patterns = [choosing.without_figure(word) for word in split_words(options.columns)]
    return [name for name in known if any(fnmatch.fnmatchcase(name, word) or name == word for word in patterns)] or None


def _warn(problems: Iterable[str], warnings: Iterable[str]) -> None:
    for text in [*(f"left out: {reason}" for reason in problems), *warnings]:
        print(f"trackers: {printable(text)}", file=sys.stderr)


def _print_comparison(options: _CompareOptions, form: str) -> None:
    from trackers.analysis.compare import compare
    from trackers.analysis.comparison import FEW_RUNS, by_run
    from trackers.analysis.tables import render

    runs, problems = _gathered(options)
    comparison = compare(runs, _keys(options, runs), baseline=options.baseline or None)
    _warn(problems, comparison.warnings)
    if form == "json":
        print(json.dumps(comparison.to_dict(), indent=2, allow_nan=False))
    elif form == "csv":
        print(render(by_run(comparison), form), end="")
    else:
        table, remarks = _compared(options, runs, comparison)
        print_table(table, form, parts=len(comparison.runs) <= FEW_RUNS)
        for text in remarks:
            print(f"trackers: {printable(text, 4096)}", file=sys.stderr)


def _compared(
    options: _CompareOptions, runs: Sequence[RunStats], comparison: Comparison
) -> tuple[TextTable, list[str]]:
    """The table of a comparison, and what it doesn't show."""
    from trackers.analysis import choosing
    from trackers.analysis.comparison import FEW_RUNS, SHOWN_KEYS, a_line_each, chosen_settings, remarks, side_by_side
    from trackers.analysis.figures import FIGURES
    from trackers.analysis.groups import headline

    everything = options.keys or options.columns
    keys = comparison.keys if everything else comparison.keys[:SHOWN_KEYS]
    settings = chosen_settings(comparison, ["*"] if options.columns and not options.settings else options.settings)
    if len(comparison.runs) <= FEW_RUNS:
        table = side_by_side(comparison, keys, settings, options.figures or FIGURES)
        table = choosing.rows_of(table, options.columns) if options.columns else table
    else:
        headlines = {key: options.figures[0] if options.figures else headline(runs, key) for key in comparison.keys}
        table = a_line_each(comparison, keys, settings, headlines)
        table.spare = choosing.removable_columns(table.headers, options.sort)
        table = choosing.of_table(table, options.columns) if options.columns else table
    return table, [] if options.columns else list(remarks(comparison, keys, settings))


def _show_groups(options: _CompareOptions, form: str) -> None:
    from trackers.analysis.groups import by_group

    groups, problems, warnings = _groups(options)
    _warn(problems, warnings)
    if form == "json":
        import msgspec

        from trackers.records import name_floats

        print(json.dumps(name_floats(msgspec.to_builtins(groups)), indent=2, allow_nan=False))
        return
    if form == "csv":
        print_table(by_group(groups, list(groups.figures), apart=True), form)
        return
    wide, narrow = _summed_up(options, groups)
    print_table(wide, form, narrower=narrow)


def _groups(options: _CompareOptions) -> tuple[Groups, list[str], list[str]]:
    """The groups in order, why runs are left out, and what makes them unfair."""
    from trackers.analysis import choosing
    from trackers.analysis.comparability import comparability_warnings
    from trackers.analysis.compare import chosen_keys
    from trackers.analysis.figures import SPEEDS
    from trackers.analysis.groups import by

    runs, problems = _gathered(options)
    keys = chosen_keys(runs, _keys(options, runs))
    groups = by(runs, options.by, keys, options.figures[0] if options.figures else None)
    if options.sort:
        known = [options.by, "n", *keys, *SPEEDS]

        def value(group: Group, name: str) -> Any:
            spreads = {**group.metrics, **group.speed}
            about = {options.by: group.label, "n": len(group.runs)}
            return spreads[name].mean if name in spreads else about.get(name)

        def direction(name: str) -> str | None:
            return groups.goals.get(name) or choosing.better(name)

        groups.groups = choosing.ordered(groups.groups, options.sort, value, lambda: known, direction)
    groups.groups = groups.groups[: options.most]
    return groups, problems, comparability_warnings(runs)  # groups have no speed-up


def _summed_up(options: _CompareOptions, groups: Groups) -> tuple[TextTable, TextTable]:
    """The table of the groups with intervals, and without."""
    from trackers.analysis import choosing
    from trackers.analysis.comparison import SHOWN_KEYS
    from trackers.analysis.groups import by_group

    keys = list(groups.figures)
    keys = keys if options.keys or options.columns else keys[:SHOWN_KEYS]
    tables = [by_group(groups, keys, interval=interval) for interval in (True, False)]
    if options.columns:
        tables = [choosing.of_table(table, options.columns) for table in tables]
    return tables[0], tables[1]


def _watched(options: _CompareOptions) -> str:
    from trackers.analysis.compare import compare
    from trackers.analysis.comparison import FEW_RUNS

    if options.by:
        wide, narrow = _summed_up(options, _groups(options)[0])
        return terminal_table(wide, narrower=narrow)[0]
    runs, _ = _gathered(options)
    comparison = compare(runs, _keys(options, runs), baseline=options.baseline or None)
    return terminal_table(_compared(options, runs, comparison)[0], parts=len(comparison.runs) <= FEW_RUNS)[0]


MARKDOWN, HTML = (".md", ".markdown"), (".html", ".htm")


def report(
    sources: Sources,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File: .md or .html; without it Markdown is printed.")
    ] = None,
    title: Annotated[str, typer.Option(help="Title of the report; default the number of runs.")] = "",
    to_terminal: Annotated[
        bool, typer.Option("--markdown", help="Print Markdown also where a file is written: for a CI's summary.")
    ] = False,
    force: Force = False,
    directory: RunsDir = None,
    as_json: AsJson = False,
) -> None:
    """Compare runs in a report: results, curves, the settings that differ, speed and hardware where measured.

    Logged tables are summed up. For session logs it adds speed-up, efficiency and communication. A page (.html) also
    has charts and the last pictures.

    Example: trackers report baseline wider -o report.html; trackers report logs/*/*_summary.json -o sessions.md
    """
    from trackers.analysis import report as work
    from trackers.analysis.curves import open_runs
    from trackers.errors import UsageError
    from trackers.support.atomic_write import SIGNATURE, check, write_text

    ending = output.suffix.lower() if output is not None else MARKDOWN[0]
    if ending not in (*MARKDOWN, *HTML):
        raise UsageError(f"{output}: a report's file ends in .md or .html, not in {ending or 'without an ending'}")
    if output is not None:
        check(output, inputs=inputs(sources, directory), force=force)
    runs = open_runs(resolve_conditions(sources, directory), directory)
    when = time.strftime("%Y-%m-%d %H:%M:%S")
    text = work.markdown(runs, when=when, title=title)
    if output is not None and ending in HTML:
        from trackers.plotting import html_page

        with_pictures = work.markdown(runs, when=when, title=title, pictures=True)
        html_page.save_report(runs, with_pictures, output, title=title)
    elif output is not None:
        write_text(output, f"{text}\n<!-- {SIGNATURE} -->\n")
    if as_json:
        from trackers.analysis.compare import compare

        comparison = compare([run.facts for run in runs]).to_dict()
        print(json.dumps({"file": str(output) if output else None, **comparison}, allow_nan=False))
    elif output is None or to_terminal:
        sys.stdout.write(text)
    if output is not None and not as_json:
        print(f"Saved {output}", file=sys.stderr if to_terminal else sys.stdout)


def best(
    sources: SourcesArgument = None,
    metric: Annotated[
        str,
        typer.Option(
            help="A result (final/best_val_loss) or a metric, of which the best counts.",
            autocompletion=completion.metrics,
        ),
    ] = "",
    mode: Annotated[str, typer.Option(help="min or max; default as defined, else by the name.")] = "",
    where: Annotated[str, typer.Option(help="Only runs that match: config.lr < 1e-3 and 'x' in tags.")] = "",
    top: Annotated[int, typer.Option("--top", "-n", min=1, help="Maximum number of runs.")] = 1,
    status: Statuses = "",
    columns: Columns = "",
    directory: RunsDir = None,
    as_json: AsJson = False,
) -> None:
    """Find the best runs by a metric, with the settings that differ.

    Example: trackers best --metric final/best_val_loss --mode min --where "config.lr < 1e-3" --top 5
    """
    from trackers.analysis import best as work
    from trackers.analysis import choosing
    from trackers.analysis.collect import gather
    from trackers.analysis.ranking import table
    from trackers.errors import UsageError

    gathered = gather(resolve_conditions(sources or [str(runs_root(directory))], directory), directory)
    for reason in gathered.problems:
        print(f"trackers: left out: {printable(reason)}", file=sys.stderr)
    runs = choosing.of_status(gathered.runs, status, lambda run: run.status)
    if not runs:
        raise choosing.none_of(status, [run.status for run in gathered.runs])
    if not metric:
        names = work.ranked_names(runs) or ["NAME"]
        raise UsageError(f"which metric? Give --metric {names[0]}; `trackers keys RUN` lists a run's metrics")
    ranked = work.best(runs, metric, mode or None, where or None, top)
    for entry in ranked:
        if entry.run.note:
            print(
                f"trackers: {printable(entry.run.name or entry.run.id)}: {printable(entry.run.note)}", file=sys.stderr
            )
    if as_json:
        print(json.dumps([entry.to_dict() for entry in ranked], indent=2, allow_nan=False))
        return
    print_table(table(ranked, metric, columns))


DIFF_LINES = 50
"""About how many lines of differences are shown without --full."""


def diff(
    first: Annotated[
        str, typer.Argument(metavar="A", help="A run, as for `trackers keys`.", autocompletion=completion.runs)
    ],
    second: Annotated[str, typer.Argument(metavar="B", help="The other run.", autocompletion=completion.runs)],
    full: Annotated[bool, typer.Option("--full", help="Show all of it, not the first fifty lines.")] = False,
    directory: RunsDir = None,
    as_json: AsJson = False,
) -> None:
    """Show what differs between two runs: config, argv, git, code, data, packages, hardware. Exit code 0 either way.

    Example: trackers diff baseline latest
    """
    from trackers.analysis import diff as work
    from trackers.analysis.diff import portrait
    from trackers.journal.run_directory import RunDirectory
    from trackers.provenance.manifest import await_record

    runs = []
    for source in (first, second):
        data = load(source, directory)
        if data.run.directory:
            await_record(RunDirectory(data.run.directory))
        runs.append(portrait(data))
    differences = work.diff(*runs)
    if as_json:
        about = [{"name": run.name, "source": run.source} for run in runs]
        print(json.dumps({"runs": about, "differences": work.to_json(differences)}, indent=2, allow_nan=False))
        return
    print(f"- {printable(runs[0].name)}  ({printable(runs[0].source)})")
    print(f"+ {printable(runs[1].name)}  ({printable(runs[1].source)})")
    if not differences:
        print("the same in all that was recorded")
    differing = [[entry for entry in differences if entry.part == part] for part in work.PARTS]
    printed = [_code_lines(entries) if part == "code" else _difference_lines(entries)
             for part, entries in zip(work.PARTS, differing, strict=True)]  # fmt: skip
    printed = printed if full else work.shortened(printed, DIFF_LINES - len(printed) - 2)
    for part, entries, lines in zip(work.PARTS, differing, printed, strict=True):
        print(f"{part}: {_difference_heading(part, entries, runs)}", *lines, sep="\n")


def _difference_heading(part: str, entries: Sequence[Difference], runs: Sequence[Provenance]) -> str:
    if entries:
        return f"{len(entries)} differ{'s' if len(entries) == 1 else ''}"
    says = [bool(run.program if part == "argv" else run.code if part == "code" else getattr(run, part)) for run in runs]
    if part == "code" and says[0] != says[1]:
        return f"only {'-' if says[0] else '+'} has a record of it"
    if part in ("git", "data", "packages") and says[0] != says[1]:
        return f"only {'-' if says[0] else '+'} says"
    return "the same" if any(says) else "neither run says"


DIFF_WIDTH = 100
"""Maximum width of the columns of differences where standard output is no terminal, in cells."""


def _difference_lines(entries: Sequence[Difference]) -> list[str]:
    """A line for each difference that has room beside its name; of the others the values below each other."""
    from trackers.analysis.tables import TextTable, format_value, render

    rows = [
        (entry, ["  " + printable(entry.name), *map(format_value, (entry.first, entry.second))]) for entry in entries
    ]
    rows = [(entry, cells) for entry, cells in rows if not any("\n" in cell for cell in cells)]
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else DIFF_WIDTH
    while rows and sum(max(len(cells[column]) for _, cells in rows) + 2 for column in range(3)) > width:
        rows.remove(max(rows, key=lambda row: max(map(len, row[1]))))
    lines = render(TextTable(["", "-", "+"], [cells for _, cells in rows], texts=3), "table").splitlines()
    lines = lines if rows else []
    for entry in entries:
        if not any(entry is row_entry for row_entry, _ in rows):
            lines.append(f"  {printable(entry.name)}")
            for sign, value in (("-", entry.first), ("+", entry.second)):
                several = isinstance(value, str) and "\n" in value
                lines += [
                    f"    {sign} {printable(line)}"
                    for line in (value.splitlines() if several else [format_value(value)])
                ]
    return lines


def _code_lines(entries: Sequence[Difference]) -> list[str]:
    """A line for each file, then what differs in each."""
    width = min(max((len(printable(entry.name)) for entry in entries), default=0), 60)
    lines = [f"  {printable(entry.name):<{width}}  {_size_of_change(entry)}" for entry in entries]
    for entry in entries:
        if entry.lines and entry.first is not None and entry.second is not None:
            lines.append(f"  {printable(entry.name)}")
            lines += [f"    {_code_line(line)}" for line in entry.lines]
    return lines


def _code_line(line: str) -> str:
    """A line with its indentation, which says something in Python."""
    text = line.expandtabs(4)
    stripped = text[1:].lstrip(" ")
    return f"{text[:1]}{' ' * min(len(text) - 1 - len(stripped), 60)}{printable(stripped)}".rstrip()


def _size_of_change(entry: Difference) -> str:
    if not entry.lines:
        how = "no text, or not kept" if None not in (entry.first, entry.second) else "no text"
    else:
        counts = {sign: sum(line.startswith(sign) for line in entry.lines) for sign in "+-"}
        how = " ".join(f"{sign}{count}" for sign, count in counts.items() if count)
    only = {(True, False): "  only -", (False, True): "  only +"}
    return how + only.get((entry.first is not None, entry.second is not None), "")


def argv(run: SourceArgument = "latest", directory: RunsDir = None, as_json: AsJson = False) -> None:
    """Print the command that starts a run again, quoted for the shell, secrets masked.

    Example: trackers argv latest
    """
    from trackers.analysis.diff import command, portrait, remarks

    provenance = portrait(load(run, directory))
    line = command(provenance)
    if as_json:
        keys = ("name", "source", "program", "argv", "cwd", "python", "ranks")
        values = {"command": line, **{key: getattr(provenance, key) for key in keys}, "git": provenance.git}
        print(json.dumps(values, indent=2))
        return
    print(line)
    for text in remarks(provenance):
        print(f"trackers: {printable(text)}", file=sys.stderr)


def sql(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="DuckDB's SQL.")],
    sources: SourcesArgument = None,
    engine: Annotated[
        str,
        typer.Option(
            metavar="duckdb|spark",
            help="Spark for lakes, in its dialect.",
            autocompletion=completion.words_of(lambda: ("duckdb", "spark"), many=False),
        ),
    ] = "duckdb",
    master: Annotated[str, typer.Option(help="Spark's: local[4], spark://HOST:PORT; default all cores here.")] = "",
    form: Form = "table",
    directory: RunsDir = None,
    as_json: AsJson = False,
) -> None:
    """Query runs with SQL, in memory: it can read these tables, and no file.

    runs: run, source, name, project, group_name, tags, notes, status, created, steps, attempts, gpus, gpu_name,
    steps_per_s, samples_per_s, tokens_per_s, gpu_percent, memory_gb, memory_kind, energy_j

    metrics: run, name, step, time, value; system: run, name, time, value (without a step)

    config and summary: run, name, value (text), number

    A lake (lake:PLACE) has events, too: run, kind, step, time, record (JSON).

    Example: trackers sql "select run, min(value) from metrics where name = 'val_loss' group by run order by 2"
    """
    from trackers.analysis.sql import sql as work
    from trackers.analysis.tables import TextTable
    from trackers.records import name_floats

    form = _known_form(form, as_json)
    root = runs_root(directory)
    references = resolve_conditions(sources or [str(root)], directory)
    table = work(query, references, root=root, engine=engine, master=master).table
    columns = [[_value(value) for value in column.to_pylist()] for column in table.columns]
    rows = [list(row) for row in zip(*columns, strict=True)]
    if form == "json":
        print(json.dumps([name_floats(dict(zip(table.column_names, row, strict=True))) for row in rows], indent=2))
    elif table.column_names:
        left = next((k for k, column in enumerate(columns) if any(map(_is_number, column))), len(columns))
        print_table(TextTable(table.column_names, rows, texts=left), form, parts=True)


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


def bench_export(
    source: SourceArgument = "latest",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File or directory; default benchmark_results/.")
    ] = None,
    num_gpus: Annotated[int | None, typer.Option(min=1, help="Used if the run doesn't state it.")] = None,
    global_batch_size: Annotated[int | None, typer.Option(min=1, help="Used if the run doesn't state it.")] = None,
    sequence_length: Annotated[int | None, typer.Option(min=1, help="Used if the run doesn't state it.")] = None,
    force: Force = False,
    directory: RunsDir = None,
    as_json: AsJson = False,
) -> None:
    """Write benchmark_{platform}_{timestamp}.json from a run, for each run that the source names.

    Example: trackers bench-export latest && trackers compare benchmark_results/*.json
    """
    from trackers.analysis.benchmark_results import document, save
    from trackers.errors import UsageError
    from trackers.readers import helpers
    from trackers.records import name_floats
    from trackers.support.atomic_write import check

    reader, runs = open_runs(source, directory)
    if output is not None and output.suffix == ".json" and len(runs) > 1:
        raise UsageError(f"{source!r} names {len(runs)} runs: give a directory as --output, not a file")
    read = inputs([source], directory)
    if output is not None and output.suffix == ".json":
        check(output, inputs=read, ours=lambda path, head: True)
    stated = {"num_gpus": num_gpus, "global_batch_size": global_batch_size, "sequence_length": sequence_length}
    for exported in helpers.those_of(runs, lambda run: document(reader, run, stated)):
        for text in exported["contradictions"]:
            print(f"trackers: {printable(text)}", file=sys.stderr)
        path = save(exported, output, inputs=read, force=force)
        print(json.dumps({"file": str(path), **name_floats(exported)}) if as_json else f"Saved {path}")
