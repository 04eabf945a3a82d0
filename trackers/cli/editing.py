"""``trackers edit``: change the name, tags, notes and group of runs that exist, and add results found later."""

from __future__ import annotations

import json
import math
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trackers.cli import completion
from trackers.cli.common import RUNS_HELP, AsJson, RunsDir, named, printable
from trackers.cli.place import runs_root

if TYPE_CHECKING:
    from trackers.editing.edits import Attributes
    from trackers.journal.run_directory import RunDirectory


def edit(
    runs: Annotated[list[str], typer.Argument(metavar="RUN…", help=f"{RUNS_HELP}.", autocompletion=completion.runs)],
    name: Annotated[str | None, typer.Option(help="New name; of one run.")] = None,
    tags: Annotated[str | None, typer.Option(help='Tags, a,b, in place of the present ones; "" for none.')] = None,
    add_tag: Annotated[list[str] | None, typer.Option(metavar="TAG", help="A tag to add; may be repeated.")] = None,
    remove_tag: Annotated[
        list[str] | None, typer.Option(metavar="TAG", help="A tag to remove; may be repeated.")
    ] = None,
    notes: Annotated[str | None, typer.Option(help='Notes; "-" reads them from standard input, "" for none.')] = None,
    group: Annotated[str | None, typer.Option(help='Group; "" for none.')] = None,
    result: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A result found later; may be repeated.")
    ] = None,
    later: Annotated[
        bool, typer.Option("--later", help="Only write it to the journal: `trackers sync` delivers it.")
    ] = False,
    timeout: Annotated[
        float,
        typer.Option(min=0, metavar="SECONDS", help="Stop delivering after this time without progress; 0: never."),
    ] = 60.0,
    directory: RunsDir = None,
    as_json: AsJson = False,
) -> None:
    """Change runs that exist: name, tags, notes, group, results. Each tracker that has a run gets the change.

    The change is in the run's journal before it is delivered; what is interrupted, `trackers sync` delivers, once. A
    run that goes on gets it from its relay.

    Example: trackers edit latest --name baseline --add-tag best --notes "lr 3e-4 is too high"
    """
    from trackers.editing import edits
    from trackers.editing.edits import Attributes, as_tags
    from trackers.errors import TrackersError, UsageError
    from trackers.retention.lock import chosen

    results = _results(result or [])
    if (name, tags, notes, group) == (None,) * 4 and not (add_tag or remove_tag or results):
        raise UsageError(
            "nothing to change: give --name, --tags, --add-tag, --remove-tag, --notes, --group or --result"
        )
    if tags is not None and (add_tag or remove_tag):
        raise UsageError("--tags replaces all tags: leave out --add-tag and --remove-tag")
    if notes == "-":
        notes = sys.stdin.read()
    added, removed = as_tags(add_tag or []), as_tags(remove_tag or [])
    found = chosen(named(runs, directory), runs_root(directory, change="edited"))
    if name is not None and len(found) > 1:
        raise UsageError(f"--name is for one run, and these are {len(found)}: a group or a tag is for several")

    def change(now: Attributes) -> Attributes:
        kept = now.tags if tags is None else as_tags(tags)
        return Attributes(
            name=now.name if name is None else name,
            tags=tuple(tag for tag in dict.fromkeys([*kept, *added]) if tag not in removed),
            notes=now.notes if notes is None else notes,
            group=now.group if group is None else group,
        )

    failed = False
    told: list[dict[str, Any]] = []
    for run in found:
        try:
            changed = edits.edit(run, change)
            edits.add_results(run, results)
        except (TrackersError, OSError) as error:
            failed = True
            print(f"trackers: {printable(str(error), 1000)}", file=sys.stderr)
            continue
        fresh = bool(changed or results)
        entry: dict[str, Any] = {"run": str(run.path), "changed": {k: list(v) for k, v in changed.items()}}
        told.append({**entry, "results": results, "delivered": None})
        if not as_json:
            parts = [edits.describe(changed)] if changed else []
            parts += [f"{key} = {value}" for key, value in results.items()]
            print(f"{printable(_label(run))}: {printable(', '.join(parts) or 'unchanged', 1000)}", flush=True)
        lacking = edits.unheld(run, [*changed, *(["results"] if results else [])])
        told[-1]["unheld"] = lacking
        for line in () if as_json else lacking:
            print(f"  {printable(line, 1000)}")
        if not later:
            told[-1]["delivered"] = _deliver(run, timeout, fresh, as_json)
            failed = failed or told[-1]["delivered"] is False
    if as_json:
        print(json.dumps(told, indent=2))
    raise typer.Exit(1 if failed else 0)


def _deliver(run: RunDirectory, timeout: float, fresh: bool, quiet: bool) -> bool | None:
    """Deliver an edit, and say where it is not; None where nobody is asked to now."""
    from trackers.cli import sync
    from trackers.editing import delivering
    from trackers.errors import TrackersError

    def show(work: Any) -> None:
        if work.over and not quiet:
            sync.show_standing(work, False)

    why = delivering.awaits(run)
    if why:
        if fresh and not quiet:
            print(f"  {printable(why, 1000)}")
        return None
    try:
        done = delivering.deliver(run, show, timeout_s=timeout, complain=_complain)
    except (TrackersError, OSError) as error:
        _complain(delivering.problem(error, run))
        return False
    except KeyboardInterrupt:
        _complain(f"interrupted: the edit is in the journal; trackers sync {run.quoted} delivers it")
        raise
    if not done:
        _complain(f"the edit is in the journal: trackers sync {run.quoted} delivers what is lacking")
    return done


def _complain(text: str) -> None:
    print(f"trackers: {printable(text, 1000)}", file=sys.stderr, flush=True)


def _label(run: RunDirectory) -> str:
    info = run.read_info(edited=False)
    return f"{info.project}/{info.id}"


def _results(given: list[str]) -> dict[str, Any]:
    from trackers.errors import UsageError

    found: dict[str, Any] = {}
    for text in given:
        name, separator, value = text.partition("=")
        if not separator or not name.strip():
            raise UsageError(f"--result {text!r}: give NAME=VALUE, as in final/test_acc=0.93")
        found[name.strip()] = _value(value.strip())
    return found


def _value(text: str) -> Any:
    """A number where the text is one, else the text."""
    for kind in (int, float):
        try:
            value = kind(text)
            return value if isinstance(value, int) or math.isfinite(value) else str(value)
        except ValueError:
            continue
    return text
