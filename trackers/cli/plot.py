"""``trackers plot``: curves of runs as an image."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from trackers.cli import completion
from trackers.cli.analysis import Sources
from trackers.cli.common import AsJson, Force, RunsDir, inputs, printable, resolve_conditions
from trackers.formats.word_list import split_words

PANELS = ("training", "benchmark", "validation", "gpu")

FIXED = {"gpu": ("--by", "--x", "--log-x", "--log-y"), "benchmark": ("--by", "--x")}
"""Options that a panel fixes."""


def plot(
    sources: Sources,
    keys: Annotated[
        str,
        typer.Option(
            "--keys",
            "--metrics",
            help="Metrics, a,b; patterns as in val_*. Default losses first.",
            autocompletion=completion.metrics,
        ),
    ] = "",
    panel: Annotated[
        str,
        typer.Option(
            metavar="|".join(PANELS),
            help="Instead of --keys.",
            autocompletion=completion.words_of(lambda: PANELS, many=False),
        ),
    ] = "",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File: .png, .svg, .pdf or .html; without it the terminal.")
    ] = None,
    x: Annotated[
        str,
        typer.Option(
            "--x",
            metavar="step|time|tokens",
            help="Time counts since the run began.",
            autocompletion=completion.words_of(lambda: ("step", "time", "tokens"), many=False),
        ),
    ] = "step",
    by: Annotated[
        str,
        typer.Option(help="Means with bands over seed, group, tag or config.KEY.", autocompletion=completion.groupings),
    ] = "",
    smooth: Annotated[
        float | None, typer.Option(help="Weight of the past, 0 (none) to below 1; default a 50th of long curves.")
    ] = None,
    log_x: Annotated[bool, typer.Option("--log-x", help="Logarithmic x axis.")] = False,
    log_y: Annotated[bool, typer.Option("--log-y", help="Logarithmic y axis.")] = False,
    force: Force = False,
    directory: RunsDir = None,
    as_json: AsJson = False,
) -> None:
    """Draw runs' metrics over steps, time or tokens; every spike stays visible, NaN and infinity are marked.

    Example: trackers plot digits --keys "*_loss" --log-y -o losses.png; trackers plot latest --panel gpu -o gpu.svg
    """
    from trackers.analysis.curves import open_runs, with_tokens
    from trackers.errors import UsageError
    from trackers.plotting import presets
    from trackers.support.atomic_write import check

    if panel and panel not in PANELS:
        raise UsageError(f"unknown panel {panel!r}: known are {', '.join(PANELS)}")
    if panel and keys:
        raise UsageError("--panel and --keys: only one of them")
    view = presets.PlotOptions(x, by, smooth, log_x, log_y)
    view.check()
    options = {"--by": bool(by), "--x": x != "step", "--log-x": log_x, "--log-y": log_y}
    fixed = [flag for flag in FIXED.get(panel, ()) if options[flag]]
    if fixed:
        raise UsageError(f"--panel {panel} can't be drawn with {', '.join(fixed)}: its axes and lines are given")
    if output is not None:
        check(output, inputs=inputs(sources, directory), force=force)
    patterns = split_words(keys)
    runs, notes = open_runs(resolve_conditions(sources, directory), directory), list[str]()
    if x == "tokens":
        runs, notes = with_tokens(runs)
    if panel:
        picture = {**presets.PANELS, "benchmark": presets.benchmark}[panel](runs, view)
    else:
        picture = presets.metrics(runs, view, patterns)
    picture.leave_out_absent()
    picture.notes += notes
    for run in runs:
        if run.data.run.note:
            picture.notes.append(f"{run.label}: {run.data.run.note}")
    _out(picture, output, as_json)


def _out(picture: Any, output: Path | None, as_json: bool) -> None:
    notes = [*picture.notes, *(f"{title}: nothing to draw" for title in picture.leave_out_blank())]
    if output is not None:
        from trackers.plotting import html_page, matplotlib_figure

        if output.suffix.lower() in (".html", ".htm"):
            html_page.save(picture, output, title=picture.title or "Runs")
        else:
            matplotlib_figure.save(picture, output)
    elif not as_json:
        from trackers.plotting import terminal

        size = shutil.get_terminal_size((100, 30))
        coloured = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        height = max(terminal.HEIGHT, (size.lines - 4) // min(len(picture.panels), 2))
        print(terminal.text(picture, width=size.columns, height=height, coloured=coloured), end="")
    for note in notes:
        print(f"trackers: {printable(note)}", file=sys.stderr)
    if as_json:
        from trackers.plotting.figure import as_builtins

        print(json.dumps(as_builtins(picture), allow_nan=False))
    elif output is not None:
        print(f"Saved {output}")
