"""``trackers sync``: deliver what trackers still lack; ``trackers copy``: copy runs from any source to a tracker."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn
from urllib.parse import unquote

import typer
from msgspec import to_builtins

from trackers.cli import completion
from trackers.cli.common import RUNS_HELP, SOURCE_HELP, WHERE, AsJson, RunsDir, emit, printable, resolve_conditions
from trackers.cli.roots import DELIVERED, refuse_copies, runs_root
from trackers.support import terminal
from trackers.support.progress import is_terminal, progress

if TYPE_CHECKING:
    from trackers.journal.run_directory import RunDirectory
    from trackers.tracker import RunInfo

PART_CHARACTERS = 1000
"""Maximum length of one part of a run's line: a command with two long paths is printed whole."""
_printed: dict[tuple[Path, str], str] = {}
_noted: dict[str, tuple[Mapping[str, Any], list[str]]] = {}
_damaged: set[Path] = set()
"""Runs whose journals were checked, and aren't as they were written."""


def sync(
    runs: Annotated[
        list[str] | None, typer.Argument(metavar="[RUN…]", help=f"{RUNS_HELP}.", autocompletion=completion.runs)
    ] = None,
    to: Annotated[
        str,
        typer.Option(
            help="Trackers, a,b; default the run's. A new one receives the whole run.",
            autocompletion=completion.words_of(completion.tracker_names),
        ),
    ] = "",
    follow: Annotated[bool, typer.Option("--follow", help="Keep delivering until stopped, new runs too.")] = False,
    timeout: Annotated[
        float,
        typer.Option(
            min=0, metavar="SECONDS", help="Without --follow: give up after this time without progress; 0: never."
        ),
    ] = 120.0,
    verify: Annotated[
        bool, typer.Option("--verify", help="Check the journal; read back what was delivered, and repair what lacks.")
    ] = False,
    gone: Annotated[
        bool, typer.Option("--gone", help="Their machines are gone: runs elsewhere without an ending have crashed.")
    ] = False,
    jobs: Annotated[int, typer.Option(min=1, help="Maximum number of runs at once.")] = 4,
    trust: Annotated[
        bool,
        typer.Option(
            "--trust", help="Use the options of runs that you didn't write: programs, addresses and directories."
        ),
    ] = False,
    directory: RunsDir = None,
    as_json: AsJson = False,
) -> None:
    """Deliver runs to their trackers; nothing is ever deleted, and running it twice changes nothing.

    Exit code 0 only if everything is delivered, nothing was rejected, and no line of a verified journal is damaged;
    with --follow, if every run had ended and was delivered when it was stopped. After SIGTERM, --follow delivers runs
    that have ended for at most 25 s. Of runs that somebody else wrote, options that name programs, addresses or
    directories come from your own configuration:
    see docs/security.md.

    Example: trackers sync latest --to wandb
    """
    from trackers.backends import registry
    from trackers.errors import UsageError

    if verify and follow:
        raise UsageError("--verify reads back runs that have ended: leave out --follow")
    if gone and (follow or not runs):
        raise UsageError("--gone is for runs that are named, and without --follow: trackers sync RUN --gone")
    names = registry.parse(to)
    root = _root(runs or [], directory)
    references = resolve_conditions(runs or [], directory)
    asked = _Asked(follow)
    if follow:
        done = _follow(references, root, names, asked, jobs=jobs, trusted=trust, as_json=as_json)
    else:
        how = {"patience_s": timeout, "trusted": trust, "verify": verify, "gone": gone, "jobs": jobs}
        done = _sync_once(references, root, names, asked, how, as_json=as_json)
    raise typer.Exit(0 if done and not _damaged else 1)


class _Asked:
    """Signals that ask the command to end: the first SIGTERM lets ``--follow`` deliver what has ended."""

    def __init__(self, follow: bool) -> None:
        self.stopped = self.leaving = False
        self._follow = follow
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, self._stop)

    def _stop(self, number: int, _: object) -> None:
        if self._follow and number == signal.SIGTERM and not self.leaving:
            self.leaving = True
        else:
            self.stopped = True


def _root(runs: list[str], directory: Path | None) -> Path:
    """The directory of all runs."""
    paths = [Path(run) for run in runs]
    if paths and all(path.is_dir() for path in paths):  # a node's own runs, of which the store's copy needn't be made
        for path in paths:
            refuse_copies(path, DELIVERED)
        return runs_root(directory, copy=False)
    return runs_root(directory, change=DELIVERED)


def _follow(
    references: list[str], root: Path, names: list[str], asked: _Asked, *, jobs: int, trusted: bool, as_json: bool
) -> bool:
    """Deliver until the command is stopped. Whether every run had ended and was delivered then."""
    from trackers.journal.run_directory import asked_for
    from trackers.relay.sync import Follower

    # The first run of all may be yet to come.
    directories = [
        inside
        for path in map(Path, asked_for(references, root))
        for inside in ([path] if path.exists() or path == root else _followed(str(path), root))
    ]
    follower = Follower(
        directories, names, lambda run: show_standing(run, as_json), say=_complain, jobs=jobs, trusted=trusted
    )
    return follower.serve(lambda: asked.stopped, lambda: asked.leaving)


def _sync_once(
    references: list[str], root: Path, names: list[str], asked: _Asked, how: dict[str, Any], *, as_json: bool
) -> bool:
    """Deliver runs that there are. how: arguments of :func:`trackers.relay.sync.sync`."""
    from trackers.relay import sync as work

    chosen = _chosen(references, root)
    # On a terminal a bar shows how far many runs are, and lines are for those that lack something.
    brief = len(chosen) > 1 and not (as_json or how["verify"]) and is_terminal() and sys.stdout.isatty()
    lacking: set[str] = set()

    def show(run: work.RunSync) -> None:
        if brief and not (run.over and not run.complete()):
            return
        if brief:
            lacking.add(str(run.run.path))
        show_standing(run, as_json)

    def complain(text: str) -> None:
        lacking.add(text)
        _complain(text)

    with progress("delivering", "runs") as bar:
        tell = bar if len(chosen) > 1 else lambda done, total: None
        done = work.sync(chosen, names, show, say=complain, stopping=lambda: asked.stopped, tell=tell, **how)
    if brief:
        count = f"{len(chosen) - len(lacking):,} of {len(chosen):,} runs"
        print("stopped" if asked.stopped else f"{count} delivered")
    return done


def _chosen(references: list[str], root: Path) -> list[RunDirectory]:
    """The runs that are named, or below directories that are.

    Raises:
        NotFound: none are.
    """
    from trackers.errors import NotFound
    from trackers.journal.naming import none_in, runs_named
    from trackers.journal.run_directory import asked_for
    from trackers.relay.sync import runs_below

    chosen: list[RunDirectory] = []
    for reference in asked_for(references, root):
        target = Path(reference)
        below = list(runs_below(target)) if target.is_dir() else []
        chosen += below or runs_named(reference, root)
    if not chosen:
        raise NotFound(none_in(root))
    return chosen


def _followed(reference: str, root: Path) -> list[Path]:
    """Directories to follow: a project's own, where new runs will lie, else those of the runs that are named."""
    from trackers.journal.naming import runs_named

    runs = [run.path for run in runs_named(reference, root)]
    projects = {path.parent for path in runs}
    whole = len(projects) == 1 and unquote(next(iter(projects)).name) == reference
    return list(projects) if whole else runs


def _complain(text: str) -> None:
    print(f"trackers: {printable(text)}", file=sys.stderr, flush=True)


def _late_notes(name: str, options: Mapping[str, Any]) -> list[str]:
    """What a tracker, and this version of its client, show otherwise of a run that is delivered late; a plug-in may be
    gone meanwhile."""
    from trackers.backends import registry
    from trackers.errors import TrackersError

    if name in _noted and _noted[name][0] == options:  # thousands of runs may have the same
        return _noted[name][1]
    notes = []
    with contextlib.suppress(TrackersError):
        note = registry.precheck(name).late_note
        here = name not in registry.other_pythons([name], options)
        notes = [*([note] if note else []), *(registry.notes(name, options) if here else [])]
    _noted[name] = options, notes
    return notes


def _verified(outcome: dict[str, Any]) -> str:
    """What reading back found, in words."""
    if outcome.get("unchecked"):
        return f"not verified: {outcome['unchecked']}"
    damaged = outcome.get("damaged") or []
    more = ", …" if len(damaged) > 1 else ""
    mended = [f"{len(damaged)} damaged and written anew: {damaged[0]}{more}"] if damaged else []
    lost = [f"{outcome[word]:,} {word}" for word in ("missing", "changed") if outcome.get(word)]
    if lost:
        unit, restored = outcome.get("unit", "rows"), outcome.get("restored", 0)
        mended.append(f"{', '.join(lost)}, {restored:,} restored ({unit})")
    return f"verified: {outcome.get('checked', '')}, {' and '.join(mended) or 'all as it was written'}"


def _journal_line(run: RunDirectory, info: RunInfo, as_json: bool) -> str:
    """What a check of a run's journal found."""
    from trackers.journal.integrity import check, named

    checked = check(run)
    if any(stream.damaged or stream.gone for stream in checked):
        _damaged.add(run.path)
    if as_json:
        streams = [to_builtins(stream) for stream in checked]
        return json.dumps({"run": info.id, "project": info.project, "directory": str(run.path), "journal": streams})
    return printable(f"{info.project}/{info.id} {named(checked)}")


def show_standing(run: object, as_json: bool) -> None:
    """A line for each tracker of a run whose standing has changed."""
    from trackers.analysis.run_list import rejected
    from trackers.journal.checksums import skipped
    from trackers.relay.sync import RunSync

    assert isinstance(run, RunSync)
    if run.verify and run.over and (run.run.path, "") not in _printed:
        _printed[run.run.path, ""] = line = _journal_line(run.run, run.info, as_json)
        emit(line)
    for name, entry in run.report().items():
        if as_json:
            named = {"run": run.info.id, "project": run.info.project, "directory": str(run.run.path)}
            line = json.dumps({**named, **entry})
        else:
            parts = [f"{run.info.project}/{run.info.id} {name}: {entry['state']}, {entry['delivered']} records"]
            if entry["waiting_bytes"]:
                parts.append(f"{entry['waiting_bytes']:,} bytes wait")
            if entry["rejected"]:
                first = "".join(f" (the first: {one['reason']})" for one in rejected(run.run, name)[:1] if run.over)
                parts.append(f"{entry['rejected']} rejected: trackers show {run.info.id} --rejected{first}")
            if entry["damaged"]:
                parts.append(skipped(entry["damaged"]))
            if entry["error"]:
                parts.append(str(entry["error"]))
            if run.held_by and entry["state"] != "delivered":
                parts.append(f"a relay works on this run: {run.held_by}")
            if run.verify and entry["state"] == "delivered":
                parts.append(_verified(entry["verified"]))
            if entry["state"] == "delivered" and entry["url"]:
                parts.append(str(entry["url"]))
                parts += _late_notes(name, run.info.options)
            line = ", ".join(printable(part, PART_CHARACTERS) for part in parts)
        if _printed.get((run.run.path, name)) != line:
            _printed[run.run.path, name] = line
            emit(line)


def copy(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help=f"{SOURCE_HELP} A project or a pattern: all of its runs.",
            autocompletion=completion.runs,
        ),
    ],
    destination: Annotated[
        str,
        typer.Argument(
            metavar="DEST",
            help="wandb:ENTITY/PROJECT, mlflow:URI#EXPERIMENT, trackio:PROJECT, tb:DIR, swanlab:DIR, aim:DIR, "
            "json:DIR, csv:DIR, a plug-in's SCHEME:WHERE, or a directory, which gets journals.",
        ),
    ],
    timeout: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="Give a run up after this time without progress; 0: never.")
    ] = 120.0,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on copying what is new until stopped, new runs too.")
    ] = False,
    directory: RunsDir = None,
    as_json: AsJson = False,
) -> None:
    """Copy runs: history, configuration, results, tags, notes, group, times, tables, images, files.

    What was interrupted goes on when the command is given again, and nothing is written twice. At the end of each run
    both sides are counted and checksummed. Exit code 0 only if all agree, up to what docs/copies.md lists.

    --follow is for a machine that reaches both sides where training reaches one: it looks every five seconds.

    Example: trackers copy tb:runs/baseline mlflow:sqlite:///mlflow.db#gpt2
    """
    from trackers.copying import copy as copied

    if follow:
        _follow_copies(source, destination, directory, timeout, as_json)
    reports = []
    with progress("copying", "records") as bar:

        def begin(run: Any, number: int, count: int) -> None:
            bar.title = f"run {number} of {count}"

        def say(what: str, done: int, total: int) -> None:
            title, bar.title = bar.title, f"{bar.title}, {what}"
            bar(done, total)
            bar.title = title

        finished = (
            report
            for name in resolve_conditions([source], directory)
            for report in copied(name, destination, directory=directory, patience_s=timeout, begin=begin, say=say)
        )
        for report in finished:
            reports.append(report)
            print(json.dumps(report.to_dict()) if as_json else terminal.lines(str(report)), flush=True)
    if not as_json and len(reports) > 1:
        values = sum(report.expected.values for report in reports)
        agree = sum(report.agrees for report in reports)
        print(f"{len(reports)} runs, {values:,} values: {agree} agree, {len(reports) - agree} do not")
    raise typer.Exit(0 if all(report.agrees for report in reports) else 1)


def _follow_copies(source: str, destination: str, directory: Path | None, timeout: float, as_json: bool) -> NoReturn:
    """Copy until the process is asked to end, which the run that is being copied may put off; asked twice, at once."""
    from trackers.copying import follow

    asked: list[int] = []

    def stop(number: int, _: object) -> None:
        if asked:
            raise typer.Exit(128 + number)
        asked.append(number)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    if ":" not in source or source.startswith(WHERE):
        runs_root(directory)  # a store's copy is kept up to date from now on
    agrees: dict[str, bool] = {}
    for report in follow(
        lambda: resolve_conditions([source], directory), destination, lambda: bool(asked), directory=directory,
        patience_s=timeout, say=_complain,
    ):  # fmt: skip
        agrees[report.source] = report.agrees
        brief = f"{report.name}: {report.expected.values:,} values, {report.expected.status or 'running'}: agrees"
        text = brief if report.agrees else str(report)
        print(json.dumps(report.to_dict()) if as_json else terminal.lines(text), flush=True)
    raise typer.Exit(0 if all(agrees.values()) else 1)
