"""``trackers compare``: runs side by side, or summed up over seeds, groups, tags and settings."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer

from trackers.cli.common import AsJson, RunsDir, printable, refuse

Sources = Annotated[
    list[str],
    typer.Argument(
        metavar="SOURCE…",
        help="Runs, projects, directories of runs, files, or sources as for `trackers keys`; latest is one too.",
    ),
]
FORMS = ("table", "markdown", "csv", "latex", "json")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("compare", rich_help_panel="Analysis")(compare)


def compare(
    context: typer.Context,
    sources: Sources,
    keys: Annotated[
        str, typer.Option(help="Metrics, a,b; patterns as in val_*. Default training's and validation's.")
    ] = "",
    config: Annotated[str, typer.Option(help="Which of the settings that differ to show: lr,model.*.")] = "",
    figures: Annotated[str, typer.Option(help="Figures of each metric: final,best,last,min,max.")] = "",
    by: Annotated[
        str, typer.Option(help="Aggregate by seed, group, tag or config.KEY: n, mean, std, 95 % interval.")
    ] = "",
    baseline: Annotated[str, typer.Option(help="Baseline of speed-ups; default the run with the fewest GPUs.")] = "",
    form: Annotated[str, typer.Option("--format", help="table, markdown, csv, latex or json.")] = "table",
    directory: RunsDir = None,
    as_json: AsJson = False,
) -> None:
    """Compare runs: metrics, the settings that differ, speed, GPUs, memory, energy, speed-up, efficiency.

    Speed-up is from samples/s; efficiency is speed-up ÷ GPUs × 100. Warnings (stderr) say what makes it unfair.

    Example: trackers compare baseline wider --keys "val_*"; trackers compare digits --by config.lr
    """
    from trackers.analysis import compare as work
    from trackers.analysis.collect import gather
    from trackers.analysis.compare import FIGURES
    from trackers.errors import UsageError

    form = "json" if as_json else form
    if form not in FORMS:
        raise UsageError(f"unknown format {form!r}: known are {', '.join(FORMS)}")
    wanted = _words(figures) or list(FIGURES)
    for word in wanted:
        if word not in FIGURES:
            raise UsageError(f"unknown figure {word!r}: known are {', '.join(FIGURES)}")
    if by:
        refuse(context, "can't be had with --by: groups have no settings and no speed-up", "config", "baseline")
        if len(wanted) > 1 and figures:
            raise UsageError(f"--by shows one figure of each metric: --figures {wanted[0]}")
    gathered = gather(sources, directory)
    found = work.compare(gathered.runs, _words(keys) or None, baseline=baseline or None)
    warnings = work.comparability_warnings(gathered.runs) if by else found.warnings  # groups have no speed-up
    for text in [*(f"left out: {reason}" for reason in gathered.lost), *warnings]:
        print(f"trackers: {printable(text)}", file=sys.stderr)
    if by:
        _show_groups(work.by(gathered.runs, by, found.keys, wanted[0] if figures else None), form, bool(keys))
    elif form == "json":
        print(json.dumps(found.to_dict(), indent=2, allow_nan=False))
    else:
        headlines = {key: wanted[0] if figures else work.headline(gathered.runs, key) for key in found.keys}
        _show(found, form, headlines, wanted, bool(keys), _words(config) or None)


def _show(
    found: Any, form: str, headlines: dict[str, str], figures: list[str], all_keys: bool, settings: list[str] | None
) -> None:
    from trackers.analysis import compare as compare_tables
    from trackers.analysis.compare import by_run
    from trackers.analysis.tables import render

    if form == "csv":
        print(render(by_run(found), form), end="")
        return
    keys = found.keys if all_keys else found.keys[: compare_tables.SHOWN_KEYS]
    shown = compare_tables.chosen_settings(found, settings)
    if len(found.runs) <= compare_tables.FEW_RUNS:
        table = compare_tables.side_by_side(found, keys, shown, figures)
    else:
        table = compare_tables.a_line_each(found, keys, shown, headlines)
    print(render(table, form), end="")
    for text in compare_tables.remarks(found, keys, shown):
        print(f"trackers: {printable(text, 4096)}", file=sys.stderr)


def _show_groups(found: Any, form: str, all_keys: bool) -> None:
    from trackers.analysis import compare as compare_tables
    from trackers.analysis.tables import render

    if form == "json":
        import msgspec

        from trackers.records import name_floats

        print(json.dumps(name_floats(msgspec.to_builtins(found)), indent=2, allow_nan=False))
        return
    keys = list(found.figures)
    keys = keys if all_keys or form == "csv" else keys[: compare_tables.SHOWN_KEYS]
    print(render(compare_tables.by_group(found, keys, apart=form == "csv"), form), end="")


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]
