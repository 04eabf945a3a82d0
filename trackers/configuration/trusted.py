"""Directories whose own ``Kconfig``, ``.config`` and defconfigs count fully, by the user's own word.

As git's safe.directory: a list in the user's configuration directory, a path a line, which ``trackers trust`` keeps.
The files of any other directory, which the user may just be in, are data: ``docs/security.md``.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from trackers.configuration.declaration import ADDRESSES, INSTRUCTIONS, OPENING, is_directory
from trackers.errors import ConfigError
from trackers.support import confined, user_directories

HOW = "to let it count: trackers trust ."
MOST_BYTES = 1 << 20
_LOCAL = ("sqlite:///", "file://", "file:")
"""How addresses of MLflow's stores on this machine begin."""


def list_path() -> Path:
    """Where the list lies: ``trackers/trusted`` in the user's configuration directory."""
    return user_directories.of("CONFIG") / "trusted"


def directories() -> list[Path]:
    """The directories that the user trusts; none where others could have written the list."""
    with contextlib.suppress(OSError, RuntimeError):  # RuntimeError: there is no home
        fd = os.open(list_path(), os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
        with open(fd, "rb") as file:
            status = os.fstat(fd)
            private = not hasattr(os, "geteuid") or (status.st_uid == os.geteuid() and not status.st_mode & 0o022)
            text = file.read(MOST_BYTES) if private and stat.S_ISREG(status.st_mode) else b""
        return [Path(os.fsdecode(line)) for line in text.split(b"\n") if line.startswith(b"/") or line[1:3] == b":\\"]
    return []


def is_trusted(directory: Path) -> bool:
    """Whether the user trusts this directory; not those below one that is trusted."""
    known = directories()
    return bool(known) and directory.resolve() in known


def is_named(word: str, directory: Path) -> bool:
    """Whether a file that the user calls so counts fully in a directory: it is called by a path, ``./mine``, or the
    directory is trusted. A bare name may have been exported once for all, and any directory may have such a file."""
    return Path(word).name != word or is_trusted(directory)


def trust(directory: Path) -> Path:
    """Trust a directory, by its real path, which is given back.

    Raises:
        ConfigError: there is no such directory, or the list can't be written.
    """
    path = directory.expanduser().resolve()
    if not path.is_dir() or "\n" in str(path):  # the list has a line for each
        raise ConfigError(f"{directory}: no such directory")
    _write([*directories(), path])
    return path


def distrust(directory: Path) -> Path:
    """Trust a directory no longer, whether or not it is still there.

    Raises:
        ConfigError: it isn't trusted, or the list can't be written.
    """
    path, known = Path(os.path.abspath(directory.expanduser())), directories()
    path = path if path in known else path.resolve()  # a link may have come in its place
    if path not in known:
        raise ConfigError(f"{path} isn't trusted; `trackers trust --list` lists those that are")
    _write(one for one in known if one != path)
    return path


def _write(paths: Iterable[Path]) -> None:
    try:
        file = list_path()
        confined.make_private(file.parent)
        content = b"".join(os.fsencode(path) + b"\n" for path in dict.fromkeys(paths))
        confined.write_whole(file, content, mode=0o600)
    except (OSError, RuntimeError) as error:
        raise ConfigError(f"the list of trusted directories can't be written: {error}") from None


def is_harmless(symbol: str, value: object, home: Path) -> bool:
    """Whether a file that merely lies in ``home`` may give an option this value.

    Programs, addresses, what listens and who reads are the user's to name. A directory, or a store in a file, may lie
    in ``home``.
    """
    if symbol in OPENING:
        return value in OPENING[symbol]
    text = str(value or "")
    if not (symbol in INSTRUCTIONS or is_directory(symbol)) or not text:
        return True
    if symbol in ADDRESSES:
        begin = next((begin for begin in _LOCAL if text.startswith(begin)), "")
        store = symbol == "MLFLOW_TRACKING_URI" and not text.startswith("databricks") and (begin or ":" not in text)
        return bool(store) and _inside(text[len(begin) :], home)
    return is_directory(symbol) and all(_inside(part.strip(), home) for part in text.split(","))


def _inside(path: str, home: Path) -> bool:
    """Whether a path lies in a directory when its links are followed."""
    if not path or path.startswith(("~", "/", "\\")) or any(sign in path for sign in (":", "$", "%", "\0", "?", "#")):
        return False
    return Path(home, path).resolve().is_relative_to(home.resolve())
