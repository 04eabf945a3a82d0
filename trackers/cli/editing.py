"""``trackers edit`` and ``trackers rm``: change runs that exist; delete them, with an undo."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec.structs import replace

from trackers.cli import completion
from trackers.cli.common import RUNS_HELP, AsJson, RunsDir, StoreOrDir, printable, refuse, resolve_conditions, show_time
from trackers.cli.retention import Count, Yes
from trackers.cli.roots import named_store, runs_root

if TYPE_CHECKING:
    from trackers.editing.plan import AppliedEdit, EditPlan
    from trackers.editing.removing import Candidate, RemovalPlan
    from trackers.journal.run_directory import RunDirectory


def edit(
    runs: Annotated[list[str], typer.Argument(metavar="RUN…", help=f"{RUNS_HELP}.", autocompletion=completion.runs)],
    name: Annotated[str | None, typer.Option(help="New name; of one run.")] = None,
    tags: Annotated[str | None, typer.Option(help='Tags, a,b, in place of the present ones; "" for none.')] = None,
    add_tag: Annotated[list[str] | None, typer.Option(metavar="TAG", help="Tags to add, a,b; may be repeated.")] = None,
    remove_tag: Annotated[
        list[str] | None, typer.Option(metavar="TAG", help="Tags to remove, a,b; may be repeated.")
    ] = None,
    notes: Annotated[str | None, typer.Option(help='Notes; "-" reads them from standard input, "" for none.')] = None,
    group: Annotated[str | None, typer.Option(help='Group; "" for none.')] = None,
    result: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A result found later; may be repeated.")
    ] = None,
    undo: Annotated[
        bool,
        typer.Option("--undo", help="Take back the last edit of name, tags, notes or group; again: the one before."),
    ] = False,
    redo: Annotated[bool, typer.Option("--redo", help="Make the edit again that was taken back last.")] = False,
    history: Annotated[bool, typer.Option("--history", help="List the edits of a run.")] = False,
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
    from trackers.editing.edits import NOTES_CHARACTERS
    from trackers.editing.plan import EditPlan
    from trackers.records import name_floats
    from trackers.retention.lock import choose_runs

    plan = EditPlan(
        name=name, tags=tags, notes=notes, group=group, added=add_tag or [], removed=remove_tag or [],
        results=_results(result or []), again="undo" if undo else "redo" if redo else "",
    )  # fmt: skip
    plan.check(alone=undo + redo + history)
    if notes == "-":
        read = sys.stdin.buffer.read(4 * NOTES_CHARACTERS + 1).decode("utf-8", "replace")
        plan = replace(plan, notes=read)
    root = runs_root(directory, change="" if history else "edited")
    selected = choose_runs(resolve_conditions(runs, directory), root)
    if history:
        _show_history(selected, as_json)
        return
    plan.check_runs(selected)
    applied = list(_apply(plan, selected, later, as_json))
    lacking = _deliver([edit.run for edit in applied if edit.waits], timeout, as_json)
    for edit in applied:
        edit.delivered = edit.run.path not in lacking if edit.waits else None
    if as_json:
        entries = [edit.to_dict() for edit in applied]
        print(json.dumps(name_floats({"runs": entries})["runs"], indent=2))
    raise typer.Exit(1 if lacking or len(applied) < len(selected) else 0)


def _apply(plan: EditPlan, runs: list[RunDirectory], later: bool, quiet: bool) -> Iterator[AppliedEdit]:
    """Edit runs and say what was changed; one that can't be edited is said and left out."""
    from trackers.errors import TrackersError

    for run in runs:
        try:
            applied = plan.apply(run, later=later)
        except (TrackersError, OSError) as error:
            print(f"trackers: {printable(str(error), 1000)}", file=sys.stderr)
            continue
        if not quiet:
            print(f"{printable(_label(run))}: {printable(applied.described(), 1000)}", flush=True)
            waits = applied.awaits if applied.changed or applied.results else ""
            for line in (*applied.unheld, *filter(None, [waits])):
                print(f"  {printable(line, 1000)}")
        yield applied


def rm(
    context: typer.Context,
    runs: Annotated[
        list[str] | None, typer.Argument(metavar="[RUN…]", help=f"{RUNS_HELP}.", autocompletion=completion.runs)
    ] = None,
    at: Annotated[
        str, typer.Option(help="Trackers, a,b, to delete it from for good, where nothing brings it back: wandb.")
    ] = "",
    undo: Annotated[bool, typer.Option("--undo", help="Bring removed runs back, at their trackers, too.")] = False,
    listing: Annotated[bool, typer.Option("--list", help="List removed runs that can be brought back.")] = False,
    forever: Annotated[bool, typer.Option("--forever", help="Delete the files at once: there is no undo.")] = False,
    empty: Annotated[bool, typer.Option("--empty", help="Delete runs for good that were removed before.")] = False,
    older_than: Annotated[
        float, typer.Option(min=0, metavar="DAYS", help="With --empty: only those removed before so many days.")
    ] = 30.0,
    local: Annotated[
        bool, typer.Option("--local", help="Only the run's directory: its trackers keep the run.")
    ] = False,
    count: Count = None,
    yes: Yes = False,
    directory: StoreOrDir = None,
    as_json: AsJson = False,
) -> None:
    """Delete runs: from the directory of runs, and at each tracker that can bring them back. --undo does that.

    A removed run lies in .trash until `trackers rm --empty`. A run that goes on, or that somebody works on, stays.

    Example: trackers rm "lr*" --yes; trackers rm --undo latest
    """
    from trackers.backends import registry
    from trackers.editing.removing import RemovalPlan
    from trackers.errors import UsageError

    if sum((undo, listing, empty)) > 1:
        raise UsageError("--undo, --list and --empty: only one of them")
    if undo or listing or empty:
        refuse(context, "is for runs that are removed now", "at", "forever", "local", "count")
    if at and local:
        raise UsageError("--at deletes it at trackers, and --local nowhere: only one of them")
    if not empty:
        refuse(context, "belongs to --empty", "older_than")
    store, own = named_store(directory)
    if store:
        root = runs_root(directory, follow=False) if not (listing or undo or empty) else own
        os.environ["TRACKER_DIR"] = store  # where a run is sent again that another machine wrote
    else:
        root = runs_root(directory, change="removed")
    if listing:
        _show_trash(root, as_json)
    elif undo:
        _bring_back(runs or [], root, as_json)
    elif empty:
        _empty(runs or [], root, older_than, yes, as_json)
    elif not runs:
        raise UsageError("name the runs to remove, or give --list, --undo RUN or --empty")
    else:
        references = resolve_conditions(runs, root if store else directory)
        asked = RemovalPlan(at=registry.parse(at), local=local, forever=forever, store=store, root=root, own=own)
        _remove(asked, references, count, yes, as_json)


def _remove(plan: RemovalPlan, references: list[str], count: int | None, yes: bool, as_json: bool) -> None:
    """Remove runs of a directory, or say which would be."""
    from trackers.analysis.run_list import forks_of
    from trackers.editing import trash

    candidates = plan.candidates(references, count, say=_complain)
    going = [one for one in candidates if not one.reason]
    _show_candidates(candidates, quiet=as_json or yes)
    runs = [one.run for one in going]
    for line in [*trash.used_by(runs), *forks_of(runs)]:
        _complain(line)
    if going and not yes and not as_json and sys.stdin.isatty() and sys.stdout.isatty():
        yes = typer.confirm(f"Delete {len(going)} runs{' for good' if plan.forever else ''}?", default=False)
    failed = len(going) < len(candidates)
    if yes:
        for removal in trash.unfinished(plan.own if plan.store else plan.root):
            failed = _tell_removed(trash.finish(removal), as_json) or failed
        for one in going:
            failed = _remove_one(plan, one, as_json) or failed
    elif going and not as_json:
        print(f"{len(going)} to remove; nothing was changed; add --yes to do it")
    if as_json:
        print(json.dumps([one.to_dict() for one in candidates], indent=2))
    raise typer.Exit(1 if failed else 0)


def _show_candidates(candidates: list[Candidate], *, quiet: bool) -> None:
    """The runs that would be removed, and what keeps the others."""
    from trackers.analysis.tables import format_size

    for one in candidates:
        if one.reason:
            _complain(f"{one.run.path} stays as it is: {one.reason}")
        elif not quiet:
            label = f"{printable(_label(one.run))} ({printable(one.run.read_info().name)})"
            print(f"{label}  {format_size(one.size)}")


def _remove_one(plan: RemovalPlan, candidate: Candidate, quiet: bool) -> bool:
    """Remove a run and say what became of it. True if something failed."""
    from trackers.editing import trash
    from trackers.errors import TrackersError

    try:
        removed = plan.remove(candidate)
    except (TrackersError, OSError) as error:
        _complain(str(error))
        return True
    lacks = _tell_removed(removed, quiet, candidate.size)
    plan.empty_if_asked(candidate, removed, lacks=lacks)
    if candidate.action == "removed" and not quiet:
        below = candidate.run.path.resolve().is_relative_to(plan.root.resolve())
        where = f" --dir {printable(plan.store)}" if plan.store else ""
        label = printable(trash.label(removed.note)) if below else candidate.run.quoted
        print(f"  back with: trackers rm --undo {label}{where}")
    return lacks


def _tell_removed(removed: Any, quiet: bool, size: int | None = None) -> bool:
    """A line for the run and for each tracker. True if one failed."""
    from trackers.analysis.tables import format_size
    from trackers.editing import trash

    if not quiet:
        much = f", {format_size(size)}" if size is not None else ""
        print(f"{printable(trash.label(removed.note))} ({printable(removed.note.name)}): removed{much}")
    return _tell_trackers(removed, quiet)


def _tell_trackers(removed: Any, quiet: bool) -> bool:
    failed = False
    for name, outcome in removed.note.trackers.items():
        lacks = outcome.state == "failed"
        failed = failed or lacks
        if lacks:
            _complain(f"{name}: {outcome.text}")
        elif not quiet:
            print(f"  {printable(name)}: {printable(outcome.text, 1000)}")
    return failed


def _bring_back(references: list[str], root: Path, as_json: bool) -> None:
    from trackers.editing import trash
    from trackers.errors import TrackersError, UsageError
    from trackers.journal.run_directory import RunDirectory

    if not references:
        raise UsageError("which run? Name it, as in trackers rm --undo latest; `trackers rm --list` lists them")
    failed, entries = False, []
    for reference in references:
        try:
            back = trash.bring_back(trash.find(reference, root))
        except (TrackersError, OSError) as error:
            if len(references) == 1:
                raise
            failed = True
            _complain(str(error))
            continue
        if not as_json:
            print(f"{printable(trash.label(back.note))} ({printable(back.note.name)}): back in {back.path}")
        failed = _tell_trackers(back, as_json) or failed
        if any(outcome.state == "again" for outcome in back.note.trackers.values()):
            failed = bool(_deliver([RunDirectory(back.path)], 60.0, as_json)) or failed
        outcomes = {name: [outcome.state, outcome.text] for name, outcome in back.note.trackers.items()}
        entries.append({"run": str(back.path), "trackers": outcomes})
    if failed:
        _complain("what failed is tried again by the same command")
    if as_json:
        print(json.dumps(entries, indent=2))
    raise typer.Exit(1 if failed else 0)


def _show_trash(root: Path, as_json: bool) -> None:
    from trackers.analysis.tables import format_size
    from trackers.editing import trash

    trashed = list(trash.in_trash(root))
    if as_json:
        import msgspec

        print(
            json.dumps(
                [{"path": str(removal.path), **msgspec.to_builtins(removal.note)} for removal in trashed], indent=2
            )
        )
        return
    for removal in trashed:
        when = f"{show_time(removal.note.time)} by {printable(removal.note.user)}"
        label = f"{printable(trash.label(removal.note))} ({printable(removal.note.name)})"
        print(f"{label}  {format_size(removal.size())}, removed {when}")
    if not trashed:
        print(f"no removed runs in {printable(str(root), 4096)}", file=sys.stderr)


def _empty(references: list[str], root: Path, older_than: float, yes: bool, as_json: bool) -> None:
    from trackers.analysis.tables import format_size
    from trackers.editing import trash

    selected = [trash.find(name, root) for name in references] or list(trash.in_trash(root))
    due = [removal for removal in selected if time.time() - removal.note.time >= older_than * 86400.0]
    entries, failed = [], False
    for removal in due:
        size = removal.size()
        entry = {"run": trash.label(removal.note), "path": str(removal.path), "size": size, "deleted": False}
        entries.append(entry)
        if yes:
            try:
                trash.empty(removal)
                entry["deleted"] = True
            except OSError as error:
                failed = True
                _complain(f"{removal.path}: {error.strerror or error}; the rest goes with the next call")
        if not as_json:
            what = "deleted for good" if entry["deleted"] else "to delete for good"
            print(
                f"{printable(trash.label(removal.note))} ({printable(removal.note.name)}): {what}, {format_size(size)}"
            )
    if as_json:
        print(json.dumps(entries, indent=2))
    elif not due:
        younger = f"; {len(selected)} younger than {older_than:g} days stay" if selected else ""
        print(f"nothing to delete{younger}")
    elif not yes:
        print("nothing was changed; add --yes to do it")
    raise typer.Exit(1 if failed else 0)


def _show_history(runs: list[RunDirectory], as_json: bool) -> None:
    from trackers.editing import edits
    from trackers.records import name_floats

    entries = []
    for run in runs:
        for change in edits.history(run):
            changed = {name: list(pair) for name, pair in change.changed.items()}
            results = name_floats(change.results)
            entries.append({"run": str(run.path), "time": change.time, "changed": changed, "results": results})
            parts = [edits.describe(change.changed)] if change.changed else []
            parts += [f"{name} = {value}" for name, value in change.results.items()]
            if not as_json:
                what = printable(", ".join(parts) or "unchanged", 1000)
                print(f"{printable(_label(run))}  {show_time(change.time)}  {what}")
    if as_json:
        print(json.dumps(entries, indent=2))
    elif not entries:
        print("no edits", file=sys.stderr)


def _deliver(runs: list[RunDirectory], timeout: float, quiet: bool) -> set[Path]:
    """Deliver edits, and say of which runs a tracker lacks something; their directories."""
    from trackers.cli import sync
    from trackers.editing import delivering
    from trackers.relay.delivery.cursor_file import read_account

    complained: set[tuple[Path, str]] = set()

    def show(work: Any) -> None:
        if work.over and not quiet:
            sync.show_standing(work, False)
        for name in () if work.over else work.names:
            account = read_account(work.run, name)
            why = account.error or account.last
            if why and (work.run.path, name) not in complained:
                complained.add((work.run.path, name))
                until = f"tried again for {timeout:.0f} s" if timeout else "tried again"
                _complain(f"{_label(work.run)} {name}: {why}; {until} (Ctrl-C leaves it to trackers sync)")

    try:
        lacking = delivering.deliver(runs, show, timeout_s=timeout, say=_complain)
    except KeyboardInterrupt:
        _complain("interrupted: all edits are in the journals, and trackers sync delivers them")
        raise
    for run in runs:
        if run.path in lacking:
            _complain(f"the edit is in the journal: trackers sync {run.quoted} delivers what is lacking")
    return lacking


def _complain(text: str) -> None:
    print(f"trackers: {printable(text, 1000)}", file=sys.stderr, flush=True)


def _label(run: RunDirectory) -> str:
    info = run.read_info(edited=False)
    return f"{info.project}/{info.id}"


def _results(texts: list[str]) -> dict[str, Any]:
    from trackers.errors import UsageError

    results: dict[str, Any] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name.strip():
            raise UsageError(f"--result {text!r}: give NAME=VALUE, as in final/test_acc=0.93")
        results[name.strip()] = _value(value.strip())
    return results


def _value(text: str) -> Any:
    """A number where the text is one, else the text."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
