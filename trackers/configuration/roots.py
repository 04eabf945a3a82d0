"""Which Kconfig tree counts, and parsing it: ours, or another one that sources ours."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trackers.errors import ConfigError

KCONFIG = Path(__file__).resolve().parents[1] / "Kconfig"
"""The file that declares every option."""

PATH_VARIABLE = "TRACKERS_KCONFIG"
"""What another tree sources us by: ``source "$(TRACKERS_KCONFIG)"``; set while such a tree is read."""

_MAX_SOURCED_FILES = 200
_SOURCE = re.compile(r'^\s*o?(r?)source\s+"([^"]+)"', re.MULTILINE)
_OURS = re.compile(r"^\s*(?:menu)?config\s+TRACKER\s*$", re.MULTILINE)
_VARIABLE = re.compile(r"\$\((\w+)\)|\$(\w+)")


def find_root(environ: Mapping[str, str], cwd: Path) -> Path:
    """The tree that counts here: TRACKER_KCONFIG, else KCONFIG or ./Kconfig if it sources ours, else ours.

    Raises:
        ConfigError: TRACKER_KCONFIG names no file, or a tree without our options.
    """
    named = environ.get("TRACKER_KCONFIG")
    if named:
        root = cwd / named
        if not root.is_file():
            raise ConfigError(f"TRACKER_KCONFIG={named}: no such file")
        if not _sources_ours(root, environ):
            raise ConfigError(f"TRACKER_KCONFIG={named}: doesn't source trackers' options: source \"{KCONFIG}\"")
        return _same(root)
    for candidate in (environ.get("KCONFIG"), "Kconfig"):
        if candidate and (cwd / candidate).is_file() and _sources_ours(cwd / candidate, environ):
            return _same(cwd / candidate)
    return KCONFIG


def _same(root: Path) -> Path:
    return KCONFIG if root.resolve() == KCONFIG else root.resolve()


def _sources_ours(root: Path, environ: Mapping[str, str]) -> bool:
    # Read as text, not parsed: parsing a stranger's tree (a kernel's) would run its $(shell) macros.
    def value(match: re.Match[str]) -> str:
        name = match.group(1) or match.group(2)
        return environ.get(name) or (str(KCONFIG) if name == PATH_VARIABLE else "")

    seen: set[str] = set()
    waiting = [str(root)]
    while waiting and len(seen) < _MAX_SOURCED_FILES:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        try:
            text = Path(path).read_text("utf-8", errors="replace")
        except OSError:
            continue
        if _OURS.search(text):
            return True
        for relative, target in _SOURCE.findall(text):
            base = os.path.dirname(path) if relative else str(root.parent)
            waiting.extend(glob.glob(os.path.join(base, _VARIABLE.sub(value, target))))
    return False


def parse(root: Path) -> Any:
    """kconfiglib's tree of a Kconfig file.

    Raises:
        ConfigError: it can't be read or parsed.
    """
    import kconfiglib

    class Kconfig(kconfiglib.Kconfig):  # type: ignore[misc]
        """kconfiglib's class with room for attributes: an editor's way to load a file is replaced (menu.py)."""

    surroundings = _without_functions() if root == KCONFIG else _rooted_at(root)
    try:
        with surroundings:
            kconf = Kconfig(str(root), warn=False, warn_to_stderr=False)
    except (kconfiglib.KconfigError, OSError) as error:
        raise ConfigError(" ".join(str(error).split())) from None
    kconf.config_prefix = "CONFIG_"
    return kconf


@contextlib.contextmanager
def _without_functions() -> Iterator[None]:
    # kconfiglib imports any kconfigfunctions.py it finds on sys.path: a file in the user's directory would run.
    name = os.environ.get("KCONFIG_FUNCTIONS", "kconfigfunctions")
    before = sys.modules.get(name)
    sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        if before is None:
            del sys.modules[name]
        else:
            sys.modules[name] = before


@contextlib.contextmanager
def _rooted_at(root: Path) -> Iterator[None]:
    # kconfiglib takes these from the environment only.
    wanted = {"srctree": str(root.parent), PATH_VARIABLE: os.environ.get(PATH_VARIABLE, str(KCONFIG))}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
