"""``trackers report``: runs compared in words, tables and charts, as Markdown or as a page."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from trackers.cli.common import AsJson, Force, RunsDir, inputs
from trackers.cli.compare import Sources

MARKDOWN, HTML = (".md", ".markdown"), (".html", ".htm")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("report", rich_help_panel="Analysis")(report)


def report(
    sources: Sources,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File: .md or .html; without it Markdown is printed.")
    ] = None,
    title: Annotated[str, typer.Option(help="Title of the report; default the number of runs.")] = "",
    force: Force = False,
    directory: RunsDir = None,
    as_json: AsJson = False,
) -> None:
    """Compare runs in a report: winner and why, hardware, configuration, speed, step times, memory, metrics.

    For session logs it adds speed-up, efficiency and communication. A page (.html) also has charts.

    Example: trackers report baseline wider -o report.html; trackers report logs/*/*_summary.json -o sessions.md
    """
    from trackers.analysis import report as work
    from trackers.analysis.curves import open_runs
    from trackers.errors import UsageError
    from trackers.support.atomic_write import MARK, check, write_text

    ending = output.suffix.lower() if output is not None else MARKDOWN[0]
    if ending not in (*MARKDOWN, *HTML):
        raise UsageError(f"{output}: a report is .md or .html, not {ending or 'without an ending'}")
    if output is not None:
        check(output, inputs=inputs(sources, directory), force=force)
    runs = open_runs(sources, directory)
    text = work.markdown(runs, when=time.strftime("%Y-%m-%d %H:%M:%S"), title=title)
    if output is not None and ending in HTML:
        from trackers.plotting import html_page

        html_page.save_report(runs, text, output, title=title or f"Report of {len(runs)} runs")
    elif output is not None:
        write_text(output, f"{text}\n<!-- {MARK} -->\n")
    if as_json:
        from trackers.analysis.compare import compare

        found = compare([run.facts for run in runs]).to_dict()
        print(json.dumps({"file": str(output) if output else None, **found}, allow_nan=False))
    elif output is None:
        sys.stdout.write(text)
    else:
        print(f"Saved {output}")
