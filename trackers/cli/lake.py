"""``trackers lake``: runs put into a lake, listed, taken out; its files joined and deleted."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from trackers.cli import completion
from trackers.cli.common import AsJson, RunsDir, named, printable

LakePlace = Annotated[str, typer.Argument(metavar="LAKE", help="A directory, or s3://bucket/prefix and the like.")]
app = typer.Typer(
    name="lake", help="A lake of runs: Delta tables for SQL on DuckDB, Spark and others.", no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)  # fmt: skip


@app.command("add")
def add(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE… LAKE",
            help="Runs, projects, directories or other sources, as for `trackers compare`; then the lake's place.",
            autocompletion=completion.runs,
        ),
    ],
    replace: Annotated[
        bool, typer.Option("--replace", help="Also where the lake has another run of that project and id.")
    ] = False,
    directory: RunsDir = None,
    as_json: AsJson = False,
) -> None:
    """Have a lake hold these runs as they are now: what is new or has changed is put in.

    Example: trackers lake add runs lake; trackers lake add runs s3://bucket/lake; trackers sql "…" lake:lake
    """
    from trackers.copying.into_lake import add as work
    from trackers.errors import UsageError

    if len(sources) < 2:
        raise UsageError("lake add needs runs and a place: trackers lake add runs s3://bucket/lake")
    *given, where = sources
    done = work(named(given, directory), where, directory, replace=replace)
    for reason in done.lost:
        print(f"trackers: left out: {printable(reason)}", file=sys.stderr)
    if as_json:
        print(json.dumps({"added": ["/".join(key) for key in done.added], "unchanged": done.unchanged,
                          "values": done.values, "left_out": done.lost}))  # fmt: skip
    else:
        print(f"{len(done.added):,} runs added with {done.values:,} numbers; {done.unchanged:,} unchanged")
    if done.lost:
        raise typer.Exit(1)
