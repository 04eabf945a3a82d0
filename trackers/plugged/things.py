"""What a distribution brings, thing by thing: can it be used, and why not; for ``doctor`` and the kit."""

from __future__ import annotations

from collections.abc import Callable, Container

from trackers.analysis import sql
from trackers.backends import registry
from trackers.configuration import plugin_options
from trackers.copying import destinations
from trackers.errors import MissingPackage, TrackersError, did_you_mean
from trackers.hardware.gpus import detect
from trackers.readers import registry as readers
from trackers.relay import beside
from trackers.support import plugins

SEEDS = "trackers.fuzz"
"""Entry-point group of functions that write healthy files to be damaged: see :func:`trackers.testing.check_plugin`."""

LOADS: dict[str, Callable[[str], object]] = {
    registry.GROUP: registry.load,
    registry.PRECHECKS: registry.precheck,
    readers.GROUP: readers.load,
    destinations.GROUP: destinations.target,
    plugin_options.GROUP: plugin_options.read,
    sql.GROUP: sql.load,
    plugins.FLAGS: plugins.flag,
}
TAKEN: dict[str, Container[str]] = {
    registry.GROUP: registry.BUILT_IN,
    readers.GROUP: readers.BUILT_IN,
    destinations.GROUP: destinations.BUILT_IN,
    detect.GROUP: detect.BUILT_IN,
}
CALLED = (registry.PRELOADS, detect.GROUP, beside.GROUP, SEEDS)
"""Groups of functions."""
GROUPS = tuple(sorted((*LOADS, *CALLED, plugins.COMMANDS)))


def state(group: str, name: str, commands: Container[str] = ()) -> tuple[str, str]:
    """Whether a thing can be used ("ok", "absent" where a package is missing, "problem"), and why not.

    Args:
        group: "trackers.readers". commands: names of our own.
    """
    if group not in GROUPS:
        return "problem", f"there is no group {group!r}{did_you_mean(group, GROUPS)} {plugins.PAGE}"
    if name in (commands if group == plugins.COMMANDS else TAKEN.get(group, ())):
        return "problem", f"ignored: {name!r} is built in"
    of_group = name.rpartition(".")[0] if group == plugins.COMMANDS and commands else ""
    if of_group and of_group not in commands:
        return "problem", f"ignored: there is no command {of_group!r}"
    try:
        if group in LOADS:
            LOADS[group](name)
        else:
            _check(group, name)
    except MissingPackage as error:
        return "absent", str(error)
    except TrackersError as error:
        return "problem", str(error)
    return "ok", ""


def _check(group: str, name: str) -> None:
    target = plugins.targets(group)[name]
    found = plugins.load(f"{group.removeprefix('trackers.')} {name!r}", target)
    if group == plugins.COMMANDS:
        import typer

        if not isinstance(found, typer.Typer):
            raise TrackersError(f"{target!r} is no typer.Typer: {plugins.PAGE}")
    elif not callable(found):
        raise TrackersError(f"{target!r} is no function: {plugins.PAGE}")
