"""``trackers diff`` and ``trackers argv``: how two runs came about, and the command that starts one again."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from trackers.cli.common import AsJson, RunsDir, printable
from trackers.cli.keys import SourceArgument

PATCH_LINES = 20
"""Maximum number of lines of uncommitted changes shown for each run."""


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("diff", rich_help_panel="Analysis")(diff)
    app.command("argv", rich_help_panel="Analysis")(argv)


def diff(
    first: Annotated[str, typer.Argument(metavar="A", help="A run, as for `trackers keys`.")],
    second: Annotated[str, typer.Argument(metavar="B", help="The other run.")],
    directory: RunsDir = None,
    as_json: AsJson = False,
) -> None:
    """Show what differs between two runs: config, argv, git, packages, hardware. Exit code 0 either way.

    Example: trackers diff baseline latest
    """
    from trackers.analysis import diff as work
    from trackers.analysis.diff import portrait

    runs = [portrait(_load(source, directory)) for source in (first, second)]
    found = work.diff(*runs)
    if as_json:
        about = [{"name": run.name, "source": run.source} for run in runs]
        print(json.dumps({"runs": about, "differences": work.to_json(found)}, indent=2, allow_nan=False))
        return
    print(f"- {printable(runs[0].name)}  ({printable(runs[0].source)})")
    print(f"+ {printable(runs[1].name)}  ({printable(runs[1].source)})")
    for part in work.PARTS:
        entries = [entry for entry in found if entry.part == part]
        if not entries:
            said = any(run.program if part == "argv" else getattr(run, part) for run in runs)
            print(f"{part}: {'the same' if said else 'neither run says'}")
            continue
        print(f"{part}: {len(entries)} differ{'s' if len(entries) == 1 else ''}")
        for entry in entries:
            print(f"  {printable(entry.name)}")
            for sign, value in (("-", entry.first), ("+", entry.second)):
                _print_value(sign, value)


def _print_value(sign: str, value: Any) -> None:
    from trackers.analysis.tables import show

    lines = str(value).splitlines() if isinstance(value, str) and "\n" in value else [show(value)]
    for line in lines[:PATCH_LINES]:
        print(f"    {sign} {printable(line)}")
    if len(lines) > PATCH_LINES:
        print(f"    {sign} and {len(lines) - PATCH_LINES} more lines: --json")


def argv(run: SourceArgument = "latest", directory: RunsDir = None, as_json: AsJson = False) -> None:
    """Print the command that starts a run again, quoted for the shell, secrets masked.

    Example: trackers argv latest
    """
    from trackers.analysis.diff import command, portrait, remarks

    found = portrait(_load(run, directory))
    line = command(found)
    if as_json:
        keys = ("name", "source", "program", "argv", "cwd", "python", "ranks")
        values = {"command": line, **{key: getattr(found, key) for key in keys}, "git": found.git}
        print(json.dumps(values, indent=2))
        return
    print(line)
    for text in remarks(found):
        print(f"trackers: {printable(text)}", file=sys.stderr)


def _load(source: str, directory: Path | None) -> Any:
    from trackers.errors import UsageError
    from trackers.readers import registry
    from trackers.readers.run_data import RunData

    reader, runs = registry.open_source(source, directory)
    if len(runs) > 1:
        raise UsageError(f"{source!r} names {len(runs)} runs: name one, as in {runs[0].source}")
    return RunData(reader, runs[0])
