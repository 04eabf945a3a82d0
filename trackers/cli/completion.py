"""What a shell offers at the Tab key: runs, projects, metrics, columns, panels, defconfigs, trackers.

Names come from runs that anybody may have written, and shells evaluate what they are offered: only names of harmless
characters are. ``trackers --install-completion`` sets it up in bash, zsh and fish.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from trackers.analysis.run_list import RunLine

Offer = list[tuple[str, str]]
"""Words, each with its help."""
Completer = Callable[[typer.Context, str], Offer]

SHOWN = 200
"""Maximum number of runs offered, the newest."""
CONFIGS = 10
"""Maximum number of runs, the newest, whose settings are offered."""
_HARMLESS = re.compile(r"[\w.+@%][\w.+@%/=,-]{0,199}")


def runs(context: typer.Context, incomplete: str) -> Offer:
    """Names of runs, ids of those whose name isn't theirs alone, projects, ``latest``."""
    lines = _run_lines(context)
    offer: dict[str, str] = {}
    if lines:
        offer["latest"] = "the newest run"
    names = [line.name for line in lines]
    for line in reversed(lines[-SHOWN:]):
        word = line.name if names.count(line.name) == 1 else line.id
        offer.setdefault(word, line.status)
        if incomplete and line.id.startswith(incomplete):
            offer.setdefault(line.id, line.status)
    for project in dict.fromkeys(line.project for line in lines):
        offer.setdefault(project, "project")
        if incomplete.startswith(f"{project}/"):
            offer.setdefault(f"{project}/latest", "the newest run of the project")
            offer.update({f"{project}/{line.id}": line.status for line in lines if line.project == project})
    return _matching(offer.items(), incomplete)


def projects(context: typer.Context, incomplete: str) -> Offer:
    """Names of projects."""
    names = dict.fromkeys(line.project for line in _run_lines(context))
    return _matching(((name, "") for name in names), incomplete)


def metrics(context: typer.Context, incomplete: str) -> Offer:
    """Names of metrics and results; after a comma the next one."""
    return _listed(_values(_run_lines(context)), incomplete)


def columns(context: typer.Context, incomplete: str) -> Offer:
    """Names of columns: of runs, metrics, results, settings; after a comma the next one."""
    from trackers.analysis.run_table import ABOUT
    from trackers.formats.word_list import split_words

    about = ["name", "id", "status", "steps"] if context.info_name != "ls" else [*ABOUT]
    used = set(split_words(incomplete))
    # Settings are read from the runs themselves.
    settings = _settings(context) if incomplete.rpartition(",")[2].startswith("c") else []
    return _listed(
        (name for name in [*about, *_values(_run_lines(context)), *settings] if name not in used), incomplete
    )


def files(context: typer.Context, incomplete: str) -> Offer:
    """Names of the media and artifacts of the run that stands before."""
    return _matching(_kept_files(context, "source"), incomplete)


def tables(context: typer.Context, incomplete: str) -> Offer:
    """Names of the tables of the run that stands before."""
    run = "run" if context.params.get("run") else "first"
    return _matching(((name, kind) for name, kind in _kept_files(context, run) if kind == "table"), incomplete)


def _kept_files(context: typer.Context, run: str) -> Offer:
    """Names and kinds of what the run keeps that an argument names."""
    from trackers.analysis.run_list import overview
    from trackers.cli.roots import runs_root
    from trackers.errors import TrackersError
    from trackers.journal.naming import find_run

    directory = context.params.get("directory")
    try:
        view = overview(
            find_run(str(context.params.get(run)), runs_root(Path(directory) if directory else None, copy=False))
        )
    except (TrackersError, OSError, ValueError):
        return []
    return [(entry["name"], entry["kind"]) for entry in [*view.media, *view.artifacts]]


def artifacts(context: typer.Context, incomplete: str) -> Offer:
    """Names of artifacts, with their projects where two have one of that name."""
    from trackers.artifacts.versions import catalogs
    from trackers.cli.roots import runs_root

    directory = context.params.get("directory")
    try:
        known = catalogs(runs_root(Path(directory) if directory else None))
    except (OSError, ValueError):
        return []
    pairs = [(catalog.project, name) for catalog in known for name in catalog.names]
    names = [name for _, name in pairs]
    words = {name if names.count(name) == 1 else f"{project}/{name}": project for project, name in pairs}
    if context.info_name == "ls":  # the word may as well be a command
        words.update(
            {"alias": "give an alias", "gc": "remove strays", "get": "write the files", "rm": "remove versions"}
        )
    return _matching(words.items(), incomplete)


def groupings(context: typer.Context, incomplete: str) -> Offer:
    """What --by takes."""
    fixed = {"seed": "runs that differ in seeds alone", "group": "", "tag": ""}
    return _matching([*fixed.items(), *((name, "") for name in _settings(context))], incomplete)


def words_of(known: Callable[[], Iterable[str]], *, many: bool = True) -> Completer:
    """A completer of known words.

    Args:
        many: a list of them is taken, separated by commas.
    """

    def offered(context: typer.Context, incomplete: str) -> Offer:
        return _listed(known(), incomplete) if many else _matching(((word, "") for word in known()), incomplete)

    return offered


def statuses() -> Iterable[str]:
    """Words of --status."""
    from trackers.analysis.choosing import STATUSES

    return STATUSES


def tracker_names() -> Iterable[str]:
    """Names of trackers, plug-ins included."""
    from trackers.backends import registry

    return registry.tracker_names()


def defconfigs(context: typer.Context, incomplete: str) -> Offer:
    """Names of defconfigs."""
    from trackers.configuration import files

    listed = files.list_defconfigs(Path.cwd())
    return _matching(((name, files.describe(path)) for name, path in listed.items()), incomplete)


def _run_lines(context: typer.Context) -> list[RunLine]:
    from trackers.analysis.run_list import listing
    from trackers.cli.roots import runs_root

    directory = context.params.get("directory")
    try:
        return listing(runs_root(Path(directory) if directory else None, copy=False)).lines
    except (OSError, ValueError):
        return []


def _values(lines: Iterable[RunLine]) -> list[str]:
    names: dict[str, None] = {}
    for line in lines:
        names.update(dict.fromkeys([*line.results, *line.last]))
    return list(names)


def _settings(context: typer.Context) -> list[str]:
    from trackers.analysis.run_table import Glances

    names = Glances().names(_run_lines(context)[-CONFIGS:])
    return [name for name in names if name.startswith("config.")]


def _listed(known: Iterable[str], incomplete: str) -> Offer:
    before, comma, last = incomplete.rpartition(",")
    return [(before + comma + word, text) for word, text in _matching(((word, "") for word in known), last)]


def _matching(offer: Iterable[tuple[str, str]], incomplete: str) -> Offer:
    return [
        (word, "".join(char for char in text if char.isalnum() or char in " .,/-"))
        for word, text in offer
        if word.startswith(incomplete) and _HARMLESS.fullmatch(word)
    ]
