"""``trackers prune``: delete runs that trackers have whole elsewhere."""

from __future__ import annotations

import sys

import typer

from trackers.cli.archive import Days, RunsArgument, Yes, each
from trackers.cli.common import AsJson, RunsDir, printable, runs_root


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("prune", rich_help_panel="Keeping")(prune)


def prune(
    runs: RunsArgument = None,
    older_than: Days = 30.0,
    yes: Yes = False,
    directory: RunsDir = None,
    as_json: AsJson = False,
) -> None:
    """Delete runs of which a tracker has everything, outside of the run's own directory.

    Sizes are shown by kind. Kept: runs that go on, that somebody works on, of which a tracker lacks or refused
    something, and those that no tracker has elsewhere (the JSON log in the run's own directory would go with it).

    Example: trackers prune --older-than 90 --yes
    """
    from trackers.errors import TrackersError
    from trackers.keeping.prune import begun, delete, finish
    from trackers.keeping.sizes import show_size
    from trackers.keeping.standing import DAY_S, chosen, why_not_deleted

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
