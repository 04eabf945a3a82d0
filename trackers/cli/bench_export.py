"""``trackers bench-export``: a benchmark result from any run."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from trackers.cli.common import AsJson, Force, RunsDir, inputs, printable
from trackers.cli.keys import SourceArgument


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("bench-export", rich_help_panel="Analysis")(bench_export)


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
    from trackers.readers import helpers, registry
    from trackers.records import name_floats
    from trackers.support.atomic_write import check

    reader, runs = registry.open_source(source, directory)
    if output is not None and output.suffix == ".json" and len(runs) > 1:
        raise UsageError(f"{source!r} names {len(runs)} runs: give a directory as --output, not a file")
    read = inputs([source], directory)
    if output is not None and output.suffix == ".json":
        check(output, inputs=read, ours=lambda path, head: True)
    given = {"num_gpus": num_gpus, "global_batch_size": global_batch_size, "sequence_length": sequence_length}
    for found in helpers.those_of(runs, lambda run: document(reader, run, given)):
        for text in found["contradictions"]:
            print(f"trackers: {printable(text)}", file=sys.stderr)
        path = save(found, output, inputs=read, force=force)
        print(json.dumps({"file": str(path), **name_floats(found)}) if as_json else f"Saved {path}")
