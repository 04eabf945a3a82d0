"""What other distributions bring, by entry points: found, and loaded so that a fault is one line."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

from trackers.errors import MissingPackage, UsageError
from trackers.support.interruption import pass_on

PAGE = "see docs/plugins.md"
VARIABLE = "TRACKER_PLUGINS"
"""Environment variable with the names of the distributions that may bring something, separated by commas; unset: all;
"none": none. It is none of the options: those are known only when plug-ins are."""
COMMANDS = "trackers.commands"
"""Entry-point group of commands: name = "package.module:app", a ``typer.Typer``."""
FLAGS = "trackers.flags"
"""Entry-point group of flags of all commands that take sources: name = "package.module:function"."""
_GROUPS = "trackers."
_OWN = "trackers-relay"


class Own(NamedTuple):
    """A distribution of ours. kinds: what is of its name: "tracker", "source", "copies". options: that it declares.
    commands, flags: that it brings. source: the scheme, where that isn't its name."""

    kinds: frozenset[str] = frozenset()
    options: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    source: str = ""


OURS: dict[str, Own] = {
    "aim": Own(frozenset({"tracker", "source", "copies"}), ("AIM_DIR",)),
    "clearml": Own(frozenset({"tracker"}), ("CLEARML_OFFLINE_DIR",)),
    "comet": Own(frozenset({"tracker"}), ("COMET_OFFLINE_DIRECTORY",)),
    "dvclive": Own(frozenset({"tracker", "source"}), ("DVCLIVE_DIR",)),
    "kafka": Own(frozenset({"tracker", "source", "copies"}), ("KAFKA_SERVERS", "KAFKA_TOPIC", "KAFKA_CONFIG")),
    "lake": Own(frozenset({"tracker", "source"}), ("TRACKER_LAKE_WRITER",), ("lake",)),
    "logs": Own(commands=("benchmark.extract", "benchmark.run"), flags=("log-format",), source="log"),
    "mcp": Own(commands=("mcp", "skill")),
    "neptune": Own(frozenset({"source"})),
    "otlp": Own(frozenset({"tracker"}), ("TRACKER_OTLP_ENDPOINT",)),
    "rerun": Own(commands=("rerun",)),
    "session": Own(
        frozenset({"tracker", "source"}),
        (
            "SESSION_DIR",
            "SESSION_LOG_INTERVAL_STEPS",
            "SESSION_PERFORMANCE_LOG_STEPS",
            "TRAINING_LOG_LEVEL",
            "SESSION_GPU_SNAPSHOT_INTERVAL",
            "SESSION_DETAILED_COMMUNICATION_LOGS",
            "MULTIGPU_LOG_LEVEL",
        ),
        ("benchmark.sessions",),
    ),
    "sweeps": Own(commands=("run",)),
    "swanlab": Own(frozenset({"tracker", "source", "copies"}), ("SWANLAB_LOG_DIR",)),
    "watch": Own(commands=("watch",)),
}
"""What we keep in distributions of their own (plugins/), by the extra of ours that names it. Known without them, so
that messages say what to install."""
_METADATA = (".dist-info", ".egg-info")


def _unnamed() -> frozenset[str]:
    """What Python made of the empty and relative parts of PYTHONPATH (``:/my/code`` has an empty one): whichever
    directory the process began in, so that nobody installed what lies there."""
    parts = (os.environ.get("PYTHONPATH") or os.sep).split(os.pathsep)
    try:
        return frozenset(os.path.abspath(part) for part in parts if not os.path.isabs(part))
    except OSError:  # that directory is gone
        return frozenset()


_UNNAMED = _unnamed()


class Plugin(NamedTuple):
    """A distribution that brings something. brings: what, by group and name. allowed: not left out by the variable."""

    name: str
    version: str
    brings: list[str]
    allowed: bool


class PluginEntry(NamedTuple):
    """An entry point. value: "module:attribute". distribution, version: of what has it."""

    group: str
    name: str
    value: str
    distribution: str
    version: str


C = TypeVar("C")


def targets(group: str, *, but: frozenset[str] | dict[str, Any] = frozenset()) -> dict[str, str]:
    """What entry points of a group name ("module:attribute"), by their names; of two, the first on Python's path.

    Args:
        but: names that are taken.
    """
    found: dict[str, str] = {}
    for entry in entries(group):
        if entry.name not in but:
            found.setdefault(entry.name, entry.value)
    return found


def entries(group: str) -> list[PluginEntry]:
    """The entry points of a group that :data:`VARIABLE` allows."""
    return [entry for entry in all_entries() if entry.group == group]


def all_entries() -> list[PluginEntry]:
    """The entry points of all groups of ours that :data:`VARIABLE` allows."""
    only = _allowed()
    return [entry for entry in _found() if only is None or canonical(entry.distribution) in only]


def same(one: str, other: str) -> bool:
    """Whether two names are of one distribution, as installers compare them."""
    return canonical(one) == canonical(other)


def brought() -> list[Plugin]:
    """The distributions that bring something, by name."""
    only, found = _allowed(), dict[str, Plugin]()
    for entry in _found():
        name = canonical(entry.distribution)
        if name not in found:
            found[name] = Plugin(entry.distribution, entry.version, [], only is None or name in only)
        found[name].brings.append(f"{entry.group.removeprefix(_GROUPS)} {entry.name}")
    return [found[name] for name in sorted(found)]


def missing(names: Iterable[str]) -> list[str]:
    """The distributions that :data:`VARIABLE` names, but "none", and that aren't among these."""
    return sorted((_allowed() or frozenset()) - {"none", *map(canonical, names)})


def _allowed() -> frozenset[str] | None:
    """The names of distributions in :data:`VARIABLE`; None: all of them."""
    words = os.environ.get(VARIABLE, "").replace(",", " ").split()
    return frozenset(map(canonical, words)) if words else None


def canonical(name: str) -> str:
    """A distribution's name as installers compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _found() -> tuple[PluginEntry, ...]:
    first, *others = sys.path or [""]
    with contextlib.suppress(OSError):
        if first and os.path.samefile(first, os.curdir):  # `python -m` and notebooks: nobody installed what lies there
            first = ""
    return _look(tuple(path for path in (first, *others) if path and path not in _UNNAMED))


@functools.lru_cache(maxsize=8)
def _look(path: tuple[str, ...]) -> tuple[PluginEntry, ...]:
    """The entry points of all our groups, by one look at what is installed.

    What lies in directories is read here: most have no plug-in, and ``init`` looks in training, where to import and
    ask importlib.metadata takes ten times as long.
    """
    found: list[PluginEntry] = []
    seen: set[str] = set()  # a distribution counts once, where it is first on the path
    for place in path:
        try:
            names = sorted(os.listdir(place))
        except NotADirectoryError:  # an archive
            distributions = _asked(place)
        except OSError:
            continue
        else:
            homes = (os.path.join(place, name) for name in names if name.endswith(_METADATA) or name == "EGG-INFO")
            distributions = [_read(home) for home in homes]
        for entries in distributions:
            if entries and (name := canonical(entries[0].distribution)) not in seen and name != _OWN:
                seen.add(name)  # the first on the path counts, as imports find it
                found += entries
    return tuple(found)


def _read(home: str) -> list[PluginEntry]:
    """Our entry points of a distribution, from its directory of metadata."""
    try:
        with open(os.path.join(home, "entry_points.txt"), "rb") as file:
            text = file.read()
    except OSError:
        return []
    if b"[" + _GROUPS.encode() not in text:  # as most
        return []
    name, version = os.path.basename(home).rsplit(".", 1)[0].split("-", 1)[0], ""
    for file_name in ("METADATA", "PKG-INFO"):
        with (
            contextlib.suppress(OSError),
            open(os.path.join(home, file_name), encoding="utf-8", errors="replace") as on,
        ):
            for line in on:
                if not line.strip():  # what follows is the description
                    break
                key, _, value = line.partition(":")
                if key.lower() == "name":
                    name = value.strip()
                elif key.lower() == "version":
                    version = value.strip()
            break
    found, group = list[PluginEntry](), ""
    for line in text.decode("utf-8", "replace").splitlines():
        line = line.strip()
        if line.startswith("[") and line.endswith("]"):
            group = line[1:-1].strip()
        elif group.startswith(_GROUPS) and "=" in line and not line.startswith(("#", ";")):
            key, _, value = line.partition("=")
            found.append(PluginEntry(group, key.strip(), value.partition("[")[0].strip(), name, version))
    return found


def _asked(place: str) -> list[list[PluginEntry]]:
    """What importlib.metadata finds in an archive."""
    from importlib.metadata import distributions

    return [
        [
            PluginEntry(
                entry.group,
                entry.name,
                entry.value.partition("[")[0].strip(),
                str(distribution.metadata["Name"]),
                distribution.version,
            )
            for entry in distribution.entry_points
            if entry.group.startswith(_GROUPS)
        ]
        for distribution in distributions(path=[place])
    ]


def ours(what: str) -> list[str]:
    """Names of what we keep in distributions of their own: "tracker", "source", "copies", "command" or "flag"."""
    return [name for own in _names(what).values() for name in own]


def install(name: str, what: str) -> str:
    """The command that installs a thing of ours, for messages; "" if we have none of the name. what: see ``ours``."""
    extra = next((extra for extra, names in _names(what).items() if name in names), "")
    return f"pip install 'trackers-relay[{extra}]'" if extra else ""


def _names(what: str) -> dict[str, tuple[str, ...]]:
    """What we keep elsewhere of a kind, by extra."""
    if what in ("command", "flag"):
        return {extra: own.commands if what == "command" else own.flags for extra, own in OURS.items()}
    return {
        extra: (own.source,) if own.source and what == "source" else (extra,) * (what in own.kinds)
        for extra, own in OURS.items()
    }


def flag_variable(flag: str) -> str:
    """The environment variable with what a flag would add to all commands: ``TRACKER_LOG_FORMAT`` of ``log-format``."""
    return f"TRACKER_{flag.upper().replace('-', '_')}"


def distribution(group: str, name: str) -> str:
    """The name, for an installer, of the distribution that has an entry point."""
    return next((entry.distribution for entry in _found() if (entry.group, entry.name) == (group, name)), name)


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


def flag(name: str) -> Callable[[Sequence[str]], object]:
    """What a flag of commands calls with the values that it is given.

    Raises:
        UsageError: it can't be loaded, or is no function of one parameter with a docstring. MissingPackage: a
            distribution of ours brings it.
    """
    import inspect

    target = targets(FLAGS).get(name)
    if target is None:
        raise MissingPackage(f"flag '--{name}' is of another distribution: {install(name, 'flag')}")
    what = f"flag '--{name}' of {distribution(FLAGS, name)}"
    brought: Callable[[Sequence[str]], object] = load(what, target)
    if not inspect.isfunction(brought) or len(inspect.signature(brought).parameters) != 1 or not brought.__doc__:
        raise UsageError(f"{what}: {target!r} is no function of one parameter with a docstring: {PAGE}")
    return brought


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
