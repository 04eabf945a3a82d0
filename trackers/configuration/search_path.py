"""Selects and parses the Kconfig tree: the package's own, or another one that sources it."""

from __future__ import annotations

import glob
import logging
import os
import re
import stat
import types
from collections import ChainMap
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from trackers.errors import ConfigError

KCONFIG = Path(__file__).resolve().parents[1] / "Kconfig"
"""The file that declares every option."""

PATH_VARIABLE = "TRACKERS_KCONFIG"
"""Variable with which another tree sources this one: ``source "$(TRACKERS_KCONFIG)"``; set while it is read."""

_MAX_SOURCED_FILES = 200
_SOURCE = re.compile(r'^[^\S\n]*o?(r?)source\s+"([^"]+)"', re.MULTILINE)
_OURS = re.compile(r"^[^\S\n]*(?:menu)?config[^\S\n]+TRACKER[^\S\n]*$", re.MULTILINE)
_MACRO = re.compile(r"\$\((?!\w+\))")
"""A macro that is more than a variable's name: a function of Kconfig or of Python, or a name that is computed."""
_MAX_BYTES = 4 << 20
_VARIABLE = re.compile(r"\$\((\w+)\)|\$(\w+)")
_REFERENCE = re.compile(r"\$(\w+|\{[^}]*\})", re.ASCII)
"""A reference that ``os.path.expandvars`` replaces."""


class Root(NamedTuple):
    """A tree's first file. named: the user named it, by a variable or by asking for the menu; else it was found."""

    path: Path
    named: bool = True


def find_root(environ: Mapping[str, str], cwd: Path) -> Path:
    """The tree that counts where its directory is configured (`make menuconfig` and its relatives).

    TRACKER_KCONFIG, else KCONFIG or ./Kconfig if it sources ours, else ours.

    Raises:
        ConfigError: TRACKER_KCONFIG names no file, or a tree without our options.
    """
    named = _named_root(environ, cwd)
    if named is not None:
        return named
    ours = _scan(cwd / "Kconfig", environ) if (cwd / "Kconfig").is_file() else None
    return _same(cwd / "Kconfig") if ours is not None else KCONFIG


def found_root(environ: Mapping[str, str], cwd: Path) -> Root:
    """The tree that counts where options are only read: as :func:`find_root`, but a tree that isn't named is data.

    One that runs programs or Python functions, or reads files outside of its directory, is left alone; it is said
    once how it counts.

    Raises:
        ConfigError: as :func:`find_root`.
    """
    named = _named_root(environ, cwd)
    if named is not None:
        return Root(named)
    path = cwd / "Kconfig"
    reason = _scan(path, environ) if path.is_file() else None
    if not reason:
        return Root(KCONFIG) if reason is None else Root(_same(path), named=False)
    if path not in _warned:
        _warned.add(path)
        logging.getLogger("trackers.configuration").warning(
            "Kconfig %s, so it counts for `make menuconfig` and its relatives only; to let it count here, too: "
            "export TRACKER_KCONFIG=Kconfig",
            reason,
        )
    return Root(KCONFIG)


_warned: set[Path] = set()


def _named_root(environ: Mapping[str, str], cwd: Path) -> Path | None:
    named = environ.get("TRACKER_KCONFIG")
    if named:
        root = cwd / named
        if not root.is_file():
            raise ConfigError(f"TRACKER_KCONFIG={named}: no such file")
        if _scan(root, environ) is None:
            raise ConfigError(f"TRACKER_KCONFIG={named}: doesn't source trackers' options: source \"{KCONFIG}\"")
        return _same(root)
    candidate = environ.get("KCONFIG")
    if candidate and (cwd / candidate).is_file() and _scan(cwd / candidate, environ) is not None:
        return _same(cwd / candidate)
    return None


def _same(root: Path) -> Path:
    return KCONFIG if root.resolve() == KCONFIG else root.resolve()


def _scan(root: Path, environ: Mapping[str, str]) -> str | None:
    """None for a tree that doesn't source ours; else why it is more than data, "" for one that is data.

    The tree is read as text, not parsed: parsing a stranger's (a kernel's) would run its $(shell) macros.
    """

    def value(match: re.Match[str]) -> str:
        name = match.group(1) or match.group(2)
        return environ.get(name) or (str(KCONFIG) if name == PATH_VARIABLE else "")

    home = root.parent.resolve()
    ours, reason = False, ""
    seen: set[str] = set()
    waiting = [str(root)]
    while waiting and len(seen) < _MAX_SOURCED_FILES:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        text = _text(path)
        if text is None:
            reason = reason or f"sources {path}, which is no ordinary file"
            continue
        if os.path.realpath(path) == str(KCONFIG):
            ours = True
            continue
        if not Path(path).resolve().is_relative_to(home):
            reason = reason or f"sources {path}, which lies elsewhere"
        if _MACRO.search(text):
            reason = reason or "calls macros, which can run programs"
        ours = ours or bool(_OURS.search(text))
        for relative, target in _SOURCE.findall(text):
            base = os.path.dirname(path) if relative else str(root.parent)
            waiting.extend(glob.glob(os.path.join(base, _VARIABLE.sub(value, target))))
    if waiting:
        reason = reason or f"sources more than {_MAX_SOURCED_FILES} files"
    return reason if ours else None


def _text(path: str) -> str | None:
    """A file as text; None for what is no regular file, or too large for a Kconfig file."""
    try:
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    except OSError:
        return ""
    with open(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        content = file.read(_MAX_BYTES + 1)
    return None if len(content) > _MAX_BYTES else content.decode("utf-8", "replace")


def parse(root: Path, named: bool = True, environ: Mapping[str, str] | None = None) -> Any:
    """kconfiglib's tree of a Kconfig file.

    Args:
        named: False: nobody asked for this tree, so no Python function and no program of it is run.
        environ: what the tree's variables are taken from; None for the process's own environment.

    Raises:
        ConfigError: it can't be read or parsed.
    """
    import kconfiglib

    variables = os.environ if environ is None else environ
    if root != KCONFIG:
        variables = ChainMap({"srctree": str(root.parent)}, variables, {PATH_VARIABLE: str(KCONFIG)})  # type: ignore[arg-type]
    try:
        kconf = _reader(variables, runs=named and root != KCONFIG)(str(root), warn=False, warn_to_stderr=False)
    except (kconfiglib.KconfigError, OSError) as error:
        raise ConfigError(" ".join(str(error).split())) from None
    kconf.config_prefix = "CONFIG_"
    return kconf


def _reader(variables: Mapping[str, str], *, runs: bool) -> Any:
    """kconfiglib's class, whose methods find other things behind the names that they take from their module.

    kconfiglib reads the process's environment, and imports any kconfigfunctions.py on sys.path. To change the
    environment, or the module, while it parses would change them for other threads, too.

    Args:
        variables: what the methods take for the environment.
        runs: programs and Python functions are run.
    """
    import kconfiglib

    def refuse(kconf: Any, _name: str, command: str) -> str:
        raise kconfiglib.KconfigError(f"{kconf.filename}:{kconf.linenr}: $(shell,{command}) isn't run here")

    def no_module(name: str) -> NoReturn:
        raise ImportError(name)

    def expandvars(text: str) -> str:
        return _REFERENCE.sub(lambda match: variables.get(match.group(1).strip("{}"), match.group()), text)

    system = types.SimpleNamespace(**{**vars(os), "environ": variables, "getenv": variables.get})
    names = {**vars(kconfiglib), "os": system, "expandvars": expandvars}
    if not runs:
        names |= {"_shell_fn": refuse, "importlib": types.SimpleNamespace(import_module=no_module)}
    methods = {
        name: types.FunctionType(method.__code__, names, name, method.__defaults__, method.__closure__)
        for name, method in vars(kconfiglib.Kconfig).items()
        if isinstance(method, types.FunctionType)
    }
    return type("Kconfig", (kconfiglib.Kconfig,), methods)
