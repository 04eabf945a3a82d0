"""What other distributions bring, by entry points: found, and loaded so that a fault is one line."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import re
import sys
from collections.abc import Iterable
from typing import Any, NamedTuple, TypeVar

from trackers.errors import UsageError
from trackers.support.interruption import pass_on

PAGE = "see docs/plugins.md"
VARIABLE = "TRACKER_PLUGINS"
"""Environment variable with the names of the distributions that may bring something, separated by commas; unset: all;
"none": none. It is none of the options: those are known only when plug-ins are."""
_GROUPS = "trackers."
_OWN = "trackers-relay"


class Plugin(NamedTuple):
    """A distribution that brings something. brings: what, by group and name. allowed: not left out by the variable."""

    name: str
    version: str
    brings: list[str]
    allowed: bool


C = TypeVar("C")


def targets(group: str, *, but: frozenset[str] | dict[str, Any] = frozenset()) -> dict[str, str]:
    """What entry points of a group name ("module:attribute"), by their names.

    Args:
        but: names that are taken.
    """
    if not _may_have(group, tuple(sys.path)):
        return {}
    return {entry.name: entry.value for entry in entries(group) if entry.name not in but}


def entries(group: str) -> list[Any]:
    """The entry points of a group that :data:`VARIABLE` allows."""
    from importlib.metadata import entry_points

    only = _allowed()
    return [entry for entry in entry_points(group=group) if only is None or _owner(entry) in only]


def brought() -> list[Plugin]:
    """The distributions that bring something, by name."""
    from importlib.metadata import distributions

    only, found = _allowed(), dict[str, Plugin]()
    for distribution in distributions():
        name = str(distribution.metadata["Name"])
        brings = [
            f"{entry.group.removeprefix(_GROUPS)} {entry.name}"
            for entry in distribution.entry_points
            if entry.group.startswith(_GROUPS)
        ]
        if brings and name != _OWN:
            allowed = only is None or _normal(name) in only
            found.setdefault(
                _normal(name), Plugin(name, distribution.version, brings, allowed)
            )  # the first on the path
    return [found[name] for name in sorted(found)]


def missing(names: Iterable[str]) -> list[str]:
    """The distributions that :data:`VARIABLE` names, but "none", and that aren't among these."""
    return sorted((_allowed() or frozenset()) - {"none", *map(_normal, names)})


def _allowed() -> frozenset[str] | None:
    """The names of distributions in :data:`VARIABLE`; None: all of them."""
    words = os.environ.get(VARIABLE, "").replace(",", " ").split()
    return frozenset(map(_normal, words)) if words else None


def _owner(entry: Any) -> str:
    return _normal(entry.dist.name) if entry.dist is not None else ""


def _normal(name: str) -> str:
    """A distribution's name as installers compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


@functools.lru_cache(maxsize=32)
def _may_have(group: str, path: tuple[str, ...]) -> bool:
    """Whether something that is installed as a directory of metadata names a group; True where it lies otherwise.

    Importing and asking importlib.metadata takes ten times as long, and most have no plug-in.
    """
    section = f"[{group}]".encode()
    for place in path:
        try:
            names = os.listdir(place or os.curdir)
        except NotADirectoryError:  # an archive
            return True
        except OSError:
            continue
        for name in names:
            if name.endswith((".dist-info", ".egg-info", ".egg")):
                with contextlib.suppress(OSError), open(os.path.join(place, name, _FILE), "rb") as file:
                    if section in file.read():
                        return True
                if name.endswith(".egg"):
                    return True
    return False


_FILE = "entry_points.txt"


def distribution(group: str, name: str) -> str:
    """The name, for an installer, of the distribution that has an entry point; the entry point's own where that isn't
    known."""
    from importlib.metadata import entry_points

    for entry in entry_points(group=group, name=name):
        if entry.dist is not None:
            return str(entry.dist.name)
    return name


def load(what: str, target: str) -> Any:
    """What a "module:attribute" names.

    Args:
        what: what it is, for messages ("tracker 'postgres'").

    Raises:
        UsageError: it can't be loaded: one line that says why.
    """
    module, _, attribute = target.partition(":")
    try:
        return functools.reduce(getattr, attribute.split("."), importlib.import_module(module))
    except Exception as error:  # a plug-in's module runs code of its own
        pass_on(error)
        why = str(error) if isinstance(error, (ImportError, AttributeError)) else f"{type(error).__name__}: {error}"
        raise UsageError(f"{what} can't be loaded from {target!r}: {why}") from error


@functools.cache
def implementation(contract: type[C], what: str, cls: Any) -> type[C]:
    """A plug-in's class as one that derives from a contract, whose defaults it gets if it doesn't.

    Args:
        contract: a class with abstract methods.
        what: what it is, for messages.

    Raises:
        UsageError: it is no class, or a method that has no default is missing.
    """
    if not isinstance(cls, type):
        raise UsageError(f"{what}: {cls!r:.100} is no class: {PAGE}")
    derived: type[C] = cls
    if not issubclass(cls, contract):
        names = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
        try:
            derived = type(cls.__name__, (cls, contract), names)
        except TypeError:  # of metaclasses that don't go together, and of object itself
            raise UsageError(f"{what}: {_path(cls)} can't derive from {contract.__name__}: {PAGE}") from None
    if missing := sorted(getattr(derived, "__abstractmethods__", ())):
        raise UsageError(f"{what}: {_path(cls)} has no {', no '.join(missing)}: {PAGE}")
    return derived


def _path(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"
