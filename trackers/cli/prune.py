"""``trackers prune``: delete runs that trackers have whole elsewhere."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from trackers.cli.archive import Days, RunsArgument, Yes, each, show_sizes
from trackers.cli.common import AsJson, RunsDir, printable, refuse, runs_root

DONE = {"compress": "compressed", "delete": "deleted", "extract": "extracted and deleted"}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("prune", rich_help_panel="Keeping")(prune)


def prune(
    context: typer.Context,
    runs: RunsArgument = None,
    older_than: Days = 30.0,
    logs: Annotated[
        bool, typer.Option("--logs", help="Loose logs below directories instead of runs; default benchmark_results.")
    ] = False,
    compress_after: Annotated[
        float, typer.Option(min=0, metavar="DAYS", help="With --logs: compress *.log older than this to *.log.gz.")
    ] = 7.0,
    extract: Annotated[
        bool, typer.Option("--extract", help="With --logs: write a log's benchmark result before the log is deleted.")
    ] = False,
    delete_after: Annotated[
        float,
        typer.Option(min=0, metavar="DAYS", help="With --logs: delete older *.log.gz whose results are kept."),
    ] = 30.0,
    yes: Yes = False,
    directory: RunsDir = None,
    as_json: AsJson = False,
) -> None:
    """Delete runs of which a tracker has everything, outside of the run's own directory.

    Sizes are shown by kind. Kept: runs that go on, that somebody works on, of which a tracker lacks or refused
    something, and those that no tracker has elsewhere (the JSON log in the run's own directory would go with it).

    Example: trackers prune --older-than 90 --yes; trackers prune --logs benchmark_results --yes
    """
    from trackers.errors import TrackersError
    from trackers.retention.lock import DAY_S, chosen, why_not_deleted
    from trackers.retention.prune import begun, delete, finish
    from trackers.retention.sizes import show_size

    if logs:
        refuse(context, "is for runs: logs have --compress-after and --delete-after", "older_than")
        _prune_logs(runs or ["benchmark_results"], compress_after * DAY_S, delete_after * DAY_S, extract, yes, as_json)
    refuse(context, "belongs to --logs; runs have --older-than", "compress_after", "delete_after", "extract")
    root = runs_root(directory)
    for path in begun(root) if yes else ():
        try:
            freed = finish(path)
            print(f"trackers: {printable(str(path))}: deletion ended, {show_size(freed)} freed", file=sys.stderr)
        except (TrackersError, OSError) as error:
            print(f"trackers: {printable(str(error))}", file=sys.stderr)
    each(
        chosen(runs or [], root),
        lambda run: why_not_deleted(run, older_than * DAY_S),
        lambda run: delete(run, older_than * DAY_S),
        ("delete", "deleted"),
        yes=yes,
        as_json=as_json,
    )


def _prune_logs(
    folders: list[str], compress_after_s: float, delete_after_s: float, extract: bool, yes: bool, as_json: bool
) -> NoReturn:
    from trackers.errors import TrackersError
    from trackers.retention.prune import benchmark_results, carry_out, due
    from trackers.retention.sizes import loose_sizes, show_size, together

    places = [Path(folder).expanduser() for folder in folders]
    found = [entry for place in places for entry in due(place, compress_after_s, delete_after_s, extract=extract)]
    sizes = together(loose_sizes(place) for place in places)
    told: list[dict[str, Any]] = []
    for entry in found:
        line = {"file": str(entry.path), "size": entry.size, "freed": 0, **entry._asdict()}
        del line["path"], line["folder"]
        if yes and entry.action != "keep":
            try:
                line.update(freed=carry_out(entry), action=DONE[entry.action])
            except (TrackersError, OSError) as error:
                line.update(action="failed", reason=str(error))
                print(f"trackers: {printable(str(error))}", file=sys.stderr)
        told.append(line)
        if not as_json:
            why = f": {line['reason']}" if line["action"] == "keep" else ""
            print(f"{printable(line['file'])}  {show_size(entry.size)}  {line['action']}{why}")
    results = sum(benchmark_results(place) for place in places)
    if as_json:
        kinds = {kind: size._asdict() for kind, size in sizes.items()}
        print(json.dumps({"logs": told, "sizes": kinds, "benchmark_results": results}, indent=2))
    else:
        show_sizes(sizes)
        if yes:
            print("Cleaned up old training logs")
        elif found:
            print("nothing was changed: --yes does it")
        print(f"Benchmark JSONs retained: {results}")
    raise typer.Exit(1 if any(line["action"] == "failed" for line in told) else 0)
