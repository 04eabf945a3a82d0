"""Trackers by name: the built-in ones and those that other packages register, through one table."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from trackers.errors import MissingPackage, UnknownTracker, UsageError, did_you_mean
from trackers.support import client_versions, environments, plugins
from trackers.support.optional import found_package
from trackers.tracker import Tracker

GROUP = "trackers.trackers"
"""Entry-point group of tracker plug-ins: name = "package.module:Class"."""

PRECHECKS = "trackers.prechecks"
"""Entry-point group of what ``init`` asks of a plug-in: a class like a built-in tracker's ``NamePrecheck``, in a module
of its own, so that training doesn't load the tracker."""

PRELOADS = "trackers.preloads"
"""Entry-point group of functions that import what a plug-in's deliveries need, called in a process that forks them."""

BUILT_IN: dict[str, str] = {
    name: f"trackers.backends.{name}.tracker:{name.capitalize()}Tracker"
    for name in (
        "wandb",
        "trackio",
        "tensorboard",
        "mlflow",
        "json",
        "csv",
        "benchmark",
        "console",
        "progress",
        "storage",
    )
}
"""The built-in trackers, one line each, in the form of entry points, so that both are loaded by one function.

The folder ``trackers/backends/NAME`` holds ``NameTracker`` in ``tracker.py`` and ``NamePrecheck`` in ``precheck.py``.
"""

NONE = "none"


def tracker_names() -> list[str]:
    """Names of all trackers, sorted; plug-ins included."""
    return sorted({*BUILT_IN, *_plugins()})


def plugin_names() -> list[str]:
    """Names of the trackers that other distributions bring, sorted."""
    return sorted(_plugins())


def load(name: str) -> type[Tracker]:
    """The class of a tracker. Its client package isn't imported.

    Raises:
        UnknownTracker: no such name; the message lists the known ones.
        UsageError: the plug-in can't be loaded, or is no tracker.
    """
    return _load(name, BUILT_IN.get(name) or _plugins().get(name))


def precheck(name: str) -> type[Tracker]:
    """What can be asked of a tracker before the first step, without its client: what :class:`Tracker` calls identity.

    A built-in one has a precheck module, so that the tracker itself isn't loaded; a plug-in may name one
    (:data:`PRECHECKS`), else its own class is asked.

    Raises:
        UnknownTracker: no such name. UsageError: the plug-in can't be loaded, or is no tracker.
    """
    if name in BUILT_IN:
        folder, _, _ = BUILT_IN[name].rpartition(".")
        light = folder.startswith("trackers.backends.")
        return _load(name, f"{folder}.precheck:{name.capitalize()}Precheck" if light else BUILT_IN[name])
    target = plugins.targets(PRECHECKS).get(name)
    if target is None or name not in _plugins():
        return load(name)
    found: Any = plugins.load(f"tracker {name!r}", target)
    if not (isinstance(found, type) and issubclass(found, Tracker)):
        raise UsageError(f"tracker {name!r}: its precheck {target!r} doesn't derive from Tracker: {plugins.PAGE}")
    return found


def preloads(name: str) -> bool:
    """Whether a process that serves several runs may import a tracker: a plug-in only if it says so."""
    return name in BUILT_IN or name in plugins.targets(PRELOADS)


def preload(name: str) -> None:
    """Import what deliveries to a tracker need, if :func:`preloads` says so.

    Raises:
        Exception: whatever an import raises; deliveries say it.
    """
    if name in BUILT_IN:
        load(name).preload()
    elif target := plugins.targets(PRELOADS).get(name):
        plugins.load(f"the preload of {name!r}", target)()


def _load(name: str, target: str | None) -> type[Tracker]:
    if target is None and (install := plugins.install(name, "tracker")):
        raise MissingPackage(f"tracker {name!r} is a distribution of its own: {install}")
    if target is None:
        names = sorted({*tracker_names(), *plugins.ours("tracker")})
        raise UnknownTracker(f"unknown tracker {name!r}{did_you_mean(name, names)} Known: {', '.join(names)}, {NONE}")
    cls: type[Tracker] = plugins.load(f"tracker {name!r}", target)
    return cls if name in BUILT_IN else as_tracker(name, cls)


def as_tracker(name: str, cls: Any) -> type[Tracker]:
    """A plug-in's class, with the defaults of :class:`Tracker` if it doesn't derive from that.

    Raises:
        UsageError: it is no tracker.
    """
    tracker = plugins.implementation(Tracker, f"tracker {name!r}", cls)
    if not any("accepts" in vars(base) for base in tracker.__mro__ if base is not Tracker):
        where = f"{tracker.__module__}:{tracker.__qualname__}"
        raise UsageError(f"tracker {name!r}: {where} says in no `accepts` which records it takes: {plugins.PAGE}")
    return tracker


def check(name: str, options: Mapping[str, Any], *, elsewhere: bool = False) -> type[Tracker]:
    """Load a tracker's precheck and see whether it can work, as far as can be seen without a network.

    Args:
        elsewhere: its delivery runs with another Python, so its package needn't be in this one.

    Raises:
        UsageError: it can't. MissingPackage: its package isn't installed. TooOld: its package is older than it takes.
    """
    cls = precheck(name)
    if not elsewhere:
        for module in cls.needs:
            if not _installed(module):
                raise MissingPackage(
                    f"tracker {name!r} needs the {module} package: pip install '{_requirement(name)}'"
                    + (f", or trackers setup {name}" if name in BUILT_IN or name in plugins.OURS else "")
                )
        client_versions.check(cls)
    cls.check(options)
    return cls


def named_pythons(text: str) -> dict[str, str]:
    """``TRACKER_PYTHON`` as a table: ``"mlflow=/opt/py/bin/python,wandb=…"``."""
    table = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, _, path = part.partition("=")
        table[name.strip()] = os.path.expanduser(path.strip())
    return table


def other_pythons(names: Iterable[str], options: Mapping[str, Any]) -> dict[str, str]:
    """The interpreters that deliver to those trackers to which this one doesn't, by the trackers' names.

    The rule: what ``TRACKER_PYTHON`` names; else this Python, if the tracker's client is installed here in a version
    that the tracker takes; else the environment that ``trackers setup`` made. A tracker without any of these isn't
    named here: :func:`check` says what to do.
    """
    if options.get("TRACKER_INLINE"):
        return {}
    table = named_pythons(str(options.get("TRACKER_PYTHON") or ""))
    for name in names:
        if name not in table and (python := environments.python_of(name)) and not works_here(name):
            table[name] = python
    return table


def delivered_by(name: str, pythons: Mapping[str, str]) -> str:
    """Which interpreter delivers to a tracker, in words.

    Args:
        pythons: as :func:`other_pythons` gives them.
    """
    python = pythons.get(name)
    if python is None:
        return f"delivered by {sys.executable} (this environment)"
    made = environments.find(name)
    if made is None or made.python != python:
        return f"delivered by {python} (TRACKER_PYTHON)"
    versions = ", ".join(f"{need} {made.packages.get(need, '?')}" for need in precheck(name).needs)
    return f"delivered by {python} (trackers setup: {versions})"


def works_here(name: str) -> bool:
    """Whether a tracker's client is installed with this Python, in a version that the tracker takes."""
    try:
        cls = precheck(name)
        client_versions.check(cls)
    except UsageError:
        return False
    return all(_installed(module) for module in cls.needs)


def distribution(name: str) -> str:
    """The distribution that brings a tracker, for an installer; "" for a built-in one."""
    return "" if name in BUILT_IN else _distribution(name)


def notes(name: str, options: Mapping[str, Any]) -> list[str]:
    """What is to be said of the version of a tracker's client as it is used by a run with these options."""
    cls = precheck(name)
    return client_versions.notes(cls, offline=cls.is_offline(options))


def identity(name: str) -> type[Tracker]:
    """What can be asked of a tracker before the first step; what is the default of all for one not known here."""
    try:
        return precheck(name)
    except UsageError:
        return Tracker


def parse(trackers: str | Sequence[str] | None) -> list[str]:
    """``"a, b"`` or a sequence as a list of names without duplicates; "none" alone is the empty list."""
    if trackers is None:
        return []
    parts = trackers.split(",") if isinstance(trackers, str) else [str(part) for part in trackers]
    names = list(dict.fromkeys(part.strip() for part in parts if part.strip()))
    if NONE in names and len(names) > 1:
        raise UsageError(f"tracker 'none' can't be combined with {', '.join(n for n in names if n != NONE)}")
    return [name for name in names if name != NONE]


def _installed(module: str) -> bool:
    try:
        return found_package(module)
    except (ImportError, ValueError):
        return False


def _requirement(name: str) -> str:
    return f"trackers-relay[{name}]" if name in BUILT_IN or name in plugins.OURS else _distribution(name)


def _distribution(name: str) -> str:
    return plugins.distribution(GROUP, name)


def _plugins() -> dict[str, str]:
    # Only for names that aren't built in: reading every distribution's metadata takes tens of milliseconds.
    return plugins.targets(GROUP, but=BUILT_IN)
