"""``trackers stop``: ask runs that go on to stop, or to save a checkpoint."""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from trackers.cli import completion
from trackers.cli.common import RUNS_HELP, AsJson, StoreOrDir, printable, resolve_conditions
from trackers.cli.roots import named_store, runs_root


def stop(
    runs: Annotated[list[str], typer.Argument(metavar="RUN…", help=f"{RUNS_HELP}.", autocompletion=completion.runs)],
    checkpoint: Annotated[
        bool, typer.Option("--checkpoint", help="Have it save a checkpoint before it stops.")
    ] = False,
    only_checkpoint: Annotated[
        bool, typer.Option("--only-checkpoint", help="Have it save a checkpoint, and go on.")
    ] = False,
    reason: Annotated[str, typer.Option(help="Why, in a line: each tracker shows it.")] = "",
    wait: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="How long to wait for training to see it.")
    ] = 10.0,
    until_ended: Annotated[bool, typer.Option("--until-ended", help="Wait for the run's end, too.")] = False,
    directory: StoreOrDir = None,
    as_json: AsJson = False,
) -> None:
    """Ask runs that go on to stop: their scripts see it in run.should_stop, their frameworks stop by themselves.

    Says what became of it; a training that never looks is named, for it goes on. Exit code 1 if one has ended, or
    hasn't seen the request in time.

    Example: trackers stop latest --checkpoint --reason "the loss diverges"
    """
    from trackers.editing import requests
    from trackers.errors import UsageError
    from trackers.retention.lock import choose_runs

    if checkpoint and only_checkpoint:
        raise UsageError("--checkpoint stops the run after it has saved, --only-checkpoint doesn't: give one of them")
    store, _ = named_store(directory)
    root = runs_root(directory, follow=False) if store else runs_root(directory, change="stopped")
    entries: list[dict[str, Any]] = []
    asked = []
    for run in choose_runs(resolve_conditions(runs, root if store else directory), root):
        try:
            asked.append((run, requests.ask(
                run, stop=not only_checkpoint, checkpoint=checkpoint or only_checkpoint, reason=reason,
                by="trackers stop", store=store,
            )))  # fmt: skip
        except UsageError as error:
            entries.append({"run": str(run.path), "state": "refused", "text": str(error)})
            print(f"trackers: {printable(str(error), 1000)}", file=sys.stderr)
    refresh = functools.partial(_refresh, store, root) if store else None
    for run, request in asked:
        answer = requests.wait(run, request, wait, ended=until_ended, refresh=refresh)
        entries.append({"run": str(run.path), "state": answer.state, "looks": answer.looks, "text": answer.text})
        if not as_json:
            print(f"{printable(run.read_info().name)}: {printable(answer.text, 1000)}", flush=True)
    if as_json:
        print(json.dumps(entries, indent=2))
    done = ("ended",) if until_ended else ("ended", "stopping", "saving")
    raise typer.Exit(0 if all(entry["state"] in done for entry in entries) else 1)


def _refresh(store: str, root: Path) -> None:
    """Bring the copy of a store up to date; without an answer it stays as it was."""
    from trackers.errors import TrackersError
    from trackers.object_storage import mirror

    try:
        mirror.refresh(store, root)
    except (TrackersError, OSError) as error:
        print(f"trackers: {printable(str(error), 1000)}", file=sys.stderr)
