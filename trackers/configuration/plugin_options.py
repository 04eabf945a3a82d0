"""Options of plug-ins: declared in a Kconfig fragment of their distribution, or of a plug-in that declares none.

An entry point of the group ``trackers.options`` names the fragment, a file of an importable package
(``postgres = "trackers_postgres:Kconfig"``). It is data: one file, whose symbols begin with the entry point's name
(``POSTGRES_``). It becomes a menu of our own Kconfig file, so that its options have flags, variables and all else that
ours have. One that can't be read is left out, and said once.

A tracker without a fragment gets what begins with its name as text, from ``init``, the environment and ``.config``:
a misspelt name can't be told there.
"""

from __future__ import annotations

import functools
import importlib.util
import logging
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from trackers.backends import registry
from trackers.configuration.search_path import parse
from trackers.errors import ConfigError
from trackers.support import plugins

GROUP = "trackers.options"
MOST_BYTES = 256 * 1024


class Fragment(NamedTuple):
    """name: of the entry point. title: of its menu. text: of the file. symbols: that it declares."""

    name: str
    title: str
    text: str
    symbols: frozenset[str]


def prefix(name: str) -> str:
    """What the symbols of a plug-in begin with: ``MY_DB_`` of ``my-db``."""
    return re.sub(r"\W", "_", name).upper() + "_"


def beginnings(name: str) -> tuple[str, ...]:
    """What options of a plug-in begin with; of a distribution of ours, options with other names too."""
    return (prefix(name), *(plugins.OURS[name].options if name in plugins.OURS else ()))


@functools.cache
def fragments() -> Mapping[str, Fragment]:
    """The fragments of what is installed, by the plug-ins' names."""
    found: dict[str, Fragment] = {}
    for name in plugins.targets(GROUP):
        try:
            found[name] = read(name)
        except ConfigError as error:
            logging.getLogger("trackers.configuration").warning("%s", error)
    return MappingProxyType(found)


def read(name: str) -> Fragment:
    """The fragment that an entry point names.

    Raises:
        ConfigError: it can't be read, or isn't as a fragment must be.
    """
    target = plugins.targets(GROUP)[name]
    try:
        return _read(name, target)
    except (ConfigError, OSError, ValueError, ImportError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError(f"the options of plug-in {name} are left out ({target}): {why}") from None


def plugin_of(symbol: str) -> str:
    """The plug-in whose fragment declares an option; "" for ours."""
    return next((name for name, fragment in fragments().items() if symbol in fragment.symbols), "")


def absent(symbol: str) -> str:
    """Why an option has no effect, with the command to install what it belongs to: a distribution of ours that isn't
    installed; "" for any other."""
    for name, own in plugins.OURS.items():
        if symbol in own.options and name not in fragments():
            return f"{symbol} has no effect without trackers-{name}: pip install 'trackers-relay[{name}]'"
    return ""


def menus() -> str:
    """What stands behind our own Kconfig file: a menu for each fragment."""
    return "".join(f'\nmenu "{fragment.title}"\n{fragment.text}\nendmenu\n' for fragment in fragments().values())


@functools.cache
def undeclared() -> tuple[str, ...]:
    """What options of trackers begin with that declare none."""
    return tuple(prefix(name) for name in registry.plugin_names() if name not in fragments())


def _read(name: str, target: str) -> Fragment:
    path = _path(target)
    text = path.read_text("utf-8") if path.stat().st_size <= MOST_BYTES else ""
    if not text.strip():
        raise ConfigError(f"{path} is empty, or longer than {MOST_BYTES:,} bytes")
    kconf = parse(path, trusted=False)
    if len(kconf.kconfig_filenames) > 1:
        raise ConfigError(f"{path} sources other files")
    symbols = frozenset(symbol.name for symbol in kconf.unique_defined_syms)
    if strange := sorted(symbol for symbol in symbols if not symbol.startswith(beginnings(name))):
        raise ConfigError(f"{path} declares {strange[0]}: its options begin with {prefix(name)}")
    if not symbols:
        raise ConfigError(f"{path} declares no option")
    distribution = plugins.distribution(GROUP, name)
    title = name if distribution == name else f"{name} ({distribution})"
    return Fragment(name, re.sub(r'["\\\n]', "", title), text, symbols)


def _path(target: str) -> Path:
    """The file that ``package:file`` names; the package isn't imported."""
    package, _, file = target.partition(":")
    top, *inside = package.split(".")
    spec = importlib.util.find_spec(top)
    if spec is None or not file:
        raise ConfigError(f"there is no {package}" if file else 'it has the form "package:file"')
    origin = Path(spec.origin or "").parent
    homes = [Path(home) for home in spec.submodule_search_locations or ()] or [origin]
    for home in homes:
        if (path := home.joinpath(*inside, file)).is_file():
            return path
    raise ConfigError(f"{homes[0].joinpath(*inside, file)} is no file")
