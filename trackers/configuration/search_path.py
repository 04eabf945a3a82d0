"""Selects and parses the Kconfig tree: the package's own, or another one that sources it."""

from __future__ import annotations

import contextlib
import fnmatch
import glob
import io
import itertools
import os
import re
import types
from collections import ChainMap, Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TextIO

from trackers.configuration import trusted
from trackers.configuration.trusted import HOW
from trackers.errors import ConfigError
from trackers.support import confined

KCONFIG = Path(__file__).resolve().parents[1] / "Kconfig"
"""The file that declares every option."""

PATH_VARIABLE = "TRACKERS_KCONFIG"
"""Variable with which another tree sources this one: ``source "$(TRACKERS_KCONFIG)"``; set while it is read."""

MOST_DEFINITIONS = 50
"""Maximum number of definitions of one option in such files: with each, kconfiglib's conditions become longer."""
_DEFINITION = re.compile(rb"(?m)^[ \t]*(?:menu)?config[ \t]+(\w+)")
MOST_FILES = 200
"""Maximum number of files that a tree which nobody trusts sources, each time counted."""
MOST_BYTES = 256 * 1024
"""Maximum number of bytes of them."""
MOST_OURS = 4
"""Maximum number of times that it sources our own file: each takes some milliseconds."""
_REFERENCE = re.compile(r"\$(\w+|\{[^}]*\})", re.ASCII)
"""A reference that ``os.path.expandvars`` replaces."""
_NOTHING = os.devnull
"""What is sourced in the place of what isn't to be read."""


class Root(NamedTuple):
    """A tree's first file.

    trusted: the user named it, by a path, or trusts its directory; else it is data. refused: why the tree that was
    found is more than data, so that our own file stands in its place.
    """

    path: Path
    trusted: bool = True
    refused: str = ""


def find_root(environ: Mapping[str, str], cwd: Path) -> Root:
    """The tree that counts in a directory: TRACKER_KCONFIG, else KCONFIG or ./Kconfig if it sources ours, else ours.

    Raises:
        ConfigError: TRACKER_KCONFIG names no file, or a tree without our options.
    """
    named = environ.get("TRACKER_KCONFIG")
    if named:
        if not (cwd / named).is_file():
            raise ConfigError(f"TRACKER_KCONFIG={named}: no such file")
        if (root := _root(named, environ, cwd)) is None:
            raise ConfigError(f"TRACKER_KCONFIG={named}: doesn't source trackers' options: source \"{KCONFIG}\"")
        return root
    for candidate in filter(None, (environ.get("KCONFIG"), "Kconfig")):
        if (cwd / candidate).is_file() and (root := _root(candidate, environ, cwd)) is not None:
            return root
    return Root(KCONFIG)


def _root(word: str, environ: Mapping[str, str], cwd: Path) -> Root | None:
    """The tree that a file begins, which is called so; None if it doesn't source ours."""
    path = cwd / word
    if _same(path) == KCONFIG:
        return Root(KCONFIG)
    is_trusted = trusted.is_named(word, cwd)
    door = _look(path, environ, is_trusted)
    if not door.ours:
        return None
    if is_trusted:
        return Root(_same(path))
    return Root(KCONFIG, False, door.refused) if door.refused else Root(Path(os.path.abspath(path)), False)


def _same(root: Path) -> Path:
    return KCONFIG if root.resolve() == KCONFIG else root.resolve()


class _Stop(Exception):
    """The tree is larger than one that nobody trusts may be."""


class _Door:
    """Through which kconfiglib reaches all that a tree names: files, folders, variables and functions.

    Args:
        root: the tree's first file. environ: variables.
        trusted: the user named the tree or trusts its directory; else it reads its own directory alone, without links,
            and no variable but ours.
        looks: nothing is run, and our own file is only recognised, not read.
        more: what stands behind our own file.

    Attributes:
        ours: our own file was sourced. refused: why the tree is more than data, the first reason.
    """

    def __init__(self, root: Path, environ: Mapping[str, str], *, trusted: bool, looks: bool, more: str = "") -> None:
        self.home, self._more = root.parent, more
        self.trusted, self.looks = trusted, looks
        self.ours, self.refused = False, ""
        own = {"srctree": str(root.parent)} if root != KCONFIG else {}
        self._environ = environ
        place = {PATH_VARIABLE: str(KCONFIG)} if not trusted or PATH_VARIABLE not in environ else {}
        self.variables: Mapping[str, str] = ChainMap(own, place, dict(environ) if trusted else {})
        self._files = self._bytes = self._sourced = 0
        self._defined: Counter[bytes] = Counter()

    def refuse(self, why: str) -> None:
        self.refused = self.refused or why

    def open(self, filename: str) -> TextIO:
        """A file to parse; an empty one for what isn't to be read."""
        if os.path.realpath(filename) == str(KCONFIG):
            self.ours = True
            self._sourced += 1
            if self._sourced > MOST_OURS and not self.trusted:
                self.refuse(f"sources trackers' own file more than {MOST_OURS} times")
                raise _Stop
            return io.StringIO("" if self.looks else KCONFIG.read_text("utf-8") + self._more)
        if filename == _NOTHING:
            return io.StringIO()
        if self.trusted and not self.looks:
            return open(filename, encoding="utf-8")
        self._files += 1
        if self._files > MOST_FILES and not self.trusted:
            self.refuse(f"sources more than {MOST_FILES} files")
            raise _Stop
        try:
            if self.trusted:
                content = Path(filename).read_bytes() if os.path.isfile(filename) else b""
            else:
                content = confined.read(Path(os.path.normpath(filename)), root=self.home, most=MOST_BYTES)
        except OSError as error:
            self.refuse(f"sources {filename}, which {error.strerror or error}")
            return io.StringIO()
        self._bytes += len(content)
        if self._bytes > MOST_BYTES and not self.trusted:
            self.refuse(f"is longer than {MOST_BYTES:,} bytes")
            raise _Stop
        if not self.trusted:
            self._defined.update(_DEFINITION.findall(content))
            if self._defined and self._defined.most_common(1)[0][1] > MOST_DEFINITIONS:
                self.ours = self.ours or PATH_VARIABLE.encode() in content
                self.refuse(f"defines an option more than {MOST_DEFINITIONS} times")
                raise _Stop
        return io.StringIO(content.decode("utf-8", "replace").replace("\0", "\N{REPLACEMENT CHARACTER}"))

    def glob(self, pattern: str) -> list[str]:
        """Files that a pattern names."""
        if self.trusted:
            return glob.glob(pattern)
        path = os.path.normpath(pattern)
        if path == str(KCONFIG):
            return [path]
        inside = os.path.relpath(path, os.path.realpath(self.home))
        if inside.startswith("..") or os.path.isabs(inside):
            self.refuse(f"sources {pattern}, which lies elsewhere")
            return [_NOTHING]
        found = [str(self.home)]
        for part in inside.split(os.sep):
            found = [os.path.join(folder, name) for folder in found for name in self._names(folder, part)][:_ENTRIES]
        return found

    def _names(self, folder: str, part: str) -> list[str]:
        """Names in a folder that fit a part of a pattern; a link isn't followed, but given where it is named itself."""
        if not glob.has_magic(part):
            return [part] if os.path.lexists(os.path.join(folder, part)) else []
        if os.path.islink(folder):
            self.refuse(f"sources files in {folder}, which is a link")
            return []
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            names = [entry.name for entry in itertools.islice(entries, _ENTRIES)]
            return [name for name in names if fnmatch.fnmatchcase(name, part) and name[0] != "."]
        return []

    def expandvars(self, text: str) -> str:
        """As ``os.path.expandvars``."""
        found = [match.group(1).strip("{}") for match in _REFERENCE.finditer(text)]
        if not self.trusted and any(name in self._environ for name in found):
            self.refuse(f"expands variables of the environment ({text[:40]})")
            return text
        return _REFERENCE.sub(lambda match: self.variables.get(match.group(1).strip("{}"), match.group()), text)


_ENTRIES = 10_000


def _look(root: Path, environ: Mapping[str, str], is_trusted: bool) -> _Door:
    """What a tree would reach, found by parsing it without running, or in the end reading, anything of it."""
    door = _Door(root, environ, trusted=is_trusted, looks=True)
    kind = _reader(door)
    kconf = kind.__new__(kind)
    try:
        kind.__init__(kconf, str(root), warn=False, warn_to_stderr=False)
    except Exception as error:  # a mistake is named when the tree is parsed; whatever else a stranger's file provokes
        if not isinstance(error, _kinds_of_mistakes()) and not isinstance(error, _Stop):
            door.refuse(f"can't be parsed ({type(error).__name__})")
    symbol = getattr(kconf, "syms", {}).get("TRACKER")  # a copy of our file
    door.ours = door.ours or bool(symbol is not None and symbol.nodes)
    return door


def _kinds_of_mistakes() -> tuple[type[Exception], ...]:
    import kconfiglib

    return kconfiglib.KconfigError, OSError


def parse(root: Path, trusted: bool = True, environ: Mapping[str, str] | None = None, more: str = "") -> Any:
    """kconfiglib's tree of a Kconfig file.

    Args:
        trusted: False: the tree is data: no program and no Python function is run, nothing outside of its directory
            is read, and no variable of the environment is expanded.
        environ: what the tree's variables are taken from; None for the process's own environment.
        more: what stands behind our own file, where the tree sources that.

    Raises:
        ConfigError: it can't be read or parsed.
    """
    door = _Door(root, os.environ if environ is None else environ, trusted=trusted, looks=False, more=more)
    try:
        kconf = _reader(door)(str(root), warn=False, warn_to_stderr=False)
    except _kinds_of_mistakes() as error:
        raise ConfigError(" ".join(str(error).split())[:1000]) from None
    except Exception as error:
        if trusted:
            raise
        raise ConfigError(f"{root}: can't be parsed ({door.refused or type(error).__name__})") from None
    if door.refused:
        raise ConfigError(f"{root}: {door.refused}; {HOW}")
    kconf.config_prefix = "CONFIG_"
    return kconf


def _reader(door: _Door) -> Any:
    """kconfiglib's class, whose methods find other things behind the names that they take from their module.

    kconfiglib reads the process's environment, and imports any kconfigfunctions.py on sys.path. To change the
    environment, or the module, while it parses would change them for other threads, too.
    """
    import kconfiglib

    runs = door.trusted and not door.looks and door.home != KCONFIG.parent

    def no_module(name: str) -> NoReturn:
        raise ImportError(name)

    def function(kconf: Any, *arguments: str) -> str:
        door.refuse(f"calls $({arguments[0]},…)")
        return ""

    def value_of(kconf: Any, arguments: list[str]) -> str:
        name = arguments[0]
        if not door.trusted and not (len(arguments) == 1 and name in door.variables):
            door.refuse(f"calls macros, as $({name[:40]})")
            return "" if kconf.__dict__.get("alone") else "n"
        return str(own_value(kconf, arguments))

    def assignment(kconf: Any, line: str) -> None:
        kconf.alone = True  # a macro that stands alone in a line has to expand to nothing
        try:
            own_assignment(kconf, line)
        finally:
            kconf.alone = False

    system = types.SimpleNamespace(**{**vars(os), "environ": door.variables, "getenv": door.variables.get})
    names = {**vars(kconfiglib), "os": system, "expandvars": door.expandvars, "iglob": door.glob}
    if not runs:
        names |= {"importlib": types.SimpleNamespace(import_module=no_module)}
        names |= dict.fromkeys(("_shell_fn", "_info_fn", "_warning_if_fn", "_error_if_fn"), function)
    methods: dict[str, Any] = {
        name: types.FunctionType(method.__code__, names, name, method.__defaults__, method.__closure__)
        for name, method in vars(kconfiglib.Kconfig).items()
        if isinstance(method, types.FunctionType)
    }
    own_value, own_assignment, own_open = methods["_fn_val"], methods["_parse_assignment"], methods["_open"]

    def opened(kconf: Any, filename: str, mode: str) -> Any:
        reads = mode == "r" and kconf._parsing_kconfigs
        return door.open(filename) if reads else own_open(kconf, filename, mode)

    methods |= {"_fn_val": value_of, "_parse_assignment": assignment, "_open": opened}
    return type("Kconfig", (kconfiglib.Kconfig,), methods)
