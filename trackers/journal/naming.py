"""Resolves a reference to runs, in the same way for every command and for ``trackers.load``."""

from __future__ import annotations

import difflib
import fnmatch
import glob
import os
import re
import shlex
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote

from trackers.errors import NotFound, UsageError, did_you_mean, examples
from trackers.journal.run_directory import RunDirectory, find_runs, folders, is_run, project_folder, run_paths
from trackers.object_storage.addresses import display_name, is_address
from trackers.support.interruption import suppress

LATEST = "latest"
RUNS = "runs"
"""Where runs lie unless something else is said."""
HELP = "Id, name, project/id, latest, project/latest, a project, a pattern (lr*), or a directory"
"""The forms of a reference, for the help of commands."""
SOURCES = ": what is stored elsewhere is only read, by `trackers compare`, `tables`, `alerts`, `plot`, `sql` or `ui`"
_SOURCE = re.compile(r"[a-z][a-z0-9-]+:.+", re.DOTALL)


def runs_named(reference: str, root: Path) -> list[RunDirectory]:
    """All runs that a reference names.

    Args:
        reference: an id, a name, ``project/id``, ``project/name``, ``latest``, ``project/latest``, a project, a run's
            directory or one with runs in it, a pattern of paths, ids or names. What comes first in this list counts,
            but a directory counts before all others.
        root: the directory of all runs.

    Raises:
        NotFound: it names nothing; the message names what is near. UsageError: several runs have that name.
    """
    if is_address(reference):
        raise UsageError(f"{reference} is a store: give --dir {shlex.quote(reference.partition('#')[0])}, and a run")
    reference_path = Path(reference).expanduser()
    if reference in ("", LATEST):
        return [_latest(find_runs(root), root)]
    if is_run(reference_path):
        return [RunDirectory(reference_path)]
    if reference_path.is_dir() and (inside := list(find_runs(reference_path))):
        return inside
    if glob.has_magic(reference):
        inside = [run for path in glob.glob(str(reference_path)) for run in find_runs(Path(path))]
        if inside:
            return inside
    project, _, rest = reference.rpartition("/")
    if project and rest == LATEST and (folder := _folder(project, root)) is not None:
        return [_latest(find_runs(folder), folder)]
    return _among(reference, list(find_runs(root)), root)


def _among(reference: str, runs: list[RunDirectory], root: Path) -> list[RunDirectory]:
    """Those of all runs that a reference names by id, name, project or pattern."""
    if not runs:
        raise NotFound(none_in(root, ": give --dir, or a run's directory"))
    exact = [run for run in runs if reference in (run.path.name, f"{run.path.parent.name}/{run.path.name}")]
    if exact:
        return _exactly_one(exact, reference)
    names = [name_of(run) for run in runs]
    named = [run for run, name in zip(runs, names, strict=True) if reference in (name, f"{_project(run)}/{name}")]
    if named:
        return _exactly_one(named, reference)
    if (folder := _folder(reference, root)) is not None and (inside := list(find_runs(folder))):
        return inside
    matching = [run for run, name in zip(runs, names, strict=True) if _matches(reference, run, name)]
    if matching and glob.has_magic(reference):
        return matching
    if _SOURCE.fullmatch(reference):
        raise NotFound(f"no run {reference!r} in {display_name(root)}{SOURCES}")
    raise NotFound(f"no run {reference!r} in {display_name(root)}{_suggestion(reference, runs, names)}")


def find_run(reference: str, root: Path) -> RunDirectory:
    """The one run that a reference names; see :func:`runs_named`.

    Raises:
        NotFound: it names nothing. UsageError: it names several.
    """
    runs = runs_named(reference, root)
    if len(runs) > 1:
        choices = examples((f"{run.path.parent.name}/{run.path.name}" for run in runs), 3)
        raise UsageError(f"{reference!r} names {len(runs)} runs: name one ({choices}), or latest for the newest")
    return runs[0]


def name_of(run: RunDirectory) -> str:
    """A run's name; "" where its identity can't be read."""
    try:
        return run.read_info().name
    except NotFound:
        return ""


def none_in(root: Path, otherwise: str = "") -> str:
    """Says that no run is there, and where some are; or that those which are can't be read.

    Args:
        otherwise: the end of the message where nothing better is known.
    """
    below = [path for folder in folders(root) for path in (folder, *folders(folder))]
    closed = sum(not os.access(path, os.R_OK | os.X_OK) for path in below)
    text = f"no runs in {display_name(root)}"
    if closed:
        return f"{text} that you can read: {closed:,} directories are their owners' alone (TRACKER_SHARE)"
    if is_address(str(root)):
        return text + otherwise
    return f"{text}{'' if root.exists() else ', which does not exist'}{_elsewhere(root) or otherwise}"


def _elsewhere(root: Path) -> str:
    """Names a directory near by that has runs, for the end of a message; "" where there is none."""
    siblings = {Path(path).name: Path(path) for path in folders(root.parent)} if not root.exists() else {}
    near = [siblings[name] for name in difflib.get_close_matches(root.name, siblings)]
    for place in (*near, root / RUNS, Path(RUNS), Path(), Path("..", RUNS)):
        if place.absolute() != root.absolute() and (count := len(run_paths(place))):
            some = "1 run is" if count == 1 else f"{count:,} runs are"
            return f"; {some} in {place}: --dir {shlex.quote(str(place))}"
    return ""


def none_of_project(project: str, known: Iterable[str], root: Path) -> NotFound:
    """Says that no run is of a project, and which projects there are."""
    names = sorted(set(known))
    near = did_you_mean(project, names, f". Projects: {examples(names)}")
    return NotFound(f"no runs of project {project!r} in {display_name(root)}{near}")


def _latest(runs: Iterable[RunDirectory], root: Path) -> RunDirectory:
    newest = max(runs, key=_begin_time, default=None)
    if newest is None:
        raise NotFound(none_in(root, ": give --dir, or a run's directory"))
    return newest


def _begin_time(run: RunDirectory) -> float:
    for path in (run.identity, run.streams):
        with suppress(OSError):
            return path.stat().st_mtime
    return 0.0


def _exactly_one(runs: list[RunDirectory], reference: str) -> list[RunDirectory]:
    if len(runs) > 1:
        listed = "".join(f"\n  {run.path.parent.name}/{run.path.name}" for run in runs)
        raise UsageError(f"{len(runs)} runs are called {reference!r}; name one by its id:{listed}")
    return runs


def _project(run: RunDirectory) -> str:
    return unquote(run.path.parent.name)


def _folder(project: str, root: Path) -> Path | None:
    """A project's directory; None where there is none."""
    with suppress(UsageError, ValueError, OSError):
        folder = root / project_folder(project)
        return folder if folder.is_dir() else None
    return None


def _matches(pattern: str, run: RunDirectory, name: str) -> bool:
    words = (run.path.name, name, f"{_project(run)}/{run.path.name}", f"{_project(run)}/{name}")
    return any(fnmatch.fnmatchcase(word, pattern) for word in words if word)


def _suggestion(reference: str, runs: Iterable[RunDirectory], names: Iterable[str]) -> str:
    """The end of a message: the nearest known name, or how to list the runs."""
    known = dict.fromkeys([*names, *(run.path.name for run in runs), *map(_project, runs), LATEST])
    return did_you_mean(reference, filter(None, known), "; `trackers ls` lists them", most=3)
