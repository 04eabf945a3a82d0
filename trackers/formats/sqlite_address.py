"""An SQLite file's path in a database address, as the SQLAlchemy that is installed reads it.

From 2.1 on it decodes ``%20`` there; before, it takes every character as it stands, and ends the path at a ``?``.
"""

from __future__ import annotations

import functools
import importlib.metadata
from urllib.parse import quote, unquote

from trackers.errors import ConfigError


def encoded(path: str) -> str:
    """A path as an address has it.

    Raises:
        ConfigError: it has a ``?``, and this SQLAlchemy has no way to write that.
    """
    if _decodes():
        return quote(path, safe="/", errors="surrogateescape")
    if "?" in path:
        raise ConfigError(f"SQLAlchemy before 2.1 can't open a database below a directory with a ? in its name: {path}")
    return path


def decoded(text: str) -> str:
    """The path that an address names: what stands between ``sqlite:///`` and ``?``."""
    return unquote(text, errors="surrogateescape") if _decodes() else text


@functools.cache
def _decodes() -> bool:
    try:
        major, minor = importlib.metadata.version("sqlalchemy").split(".")[:2]
    except importlib.metadata.PackageNotFoundError:
        return True
    return (int(major), int("".join(filter(str.isdigit, minor)) or 0)) >= (2, 1)
