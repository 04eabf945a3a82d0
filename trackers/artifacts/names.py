"""How a version of an artifact is named: ``dataset``, ``dataset:latest``, ``project/model:v3``."""

from __future__ import annotations

import contextlib
import re
from typing import NamedTuple

from trackers.errors import UsageError

LATEST = "latest"
_NUMBER = re.compile(r"v(\d{1,9})")


class Reference(NamedTuple):
    """project: "" where none was given. alias: as given: ``v3``, ``latest``, a user's own."""

    project: str
    name: str
    alias: str

    @property
    def number(self) -> int | None:
        """The version's number; None for an alias."""
        return number_of(self.alias)

    def __str__(self) -> str:
        return f"{self.project}/{self.name}:{self.alias}" if self.project else f"{self.name}:{self.alias}"


def parse(text: str) -> Reference:
    """A reference as W&B writes it: ``[[entity/]project/]name[:alias]``; without an alias ``latest``.

    The entity is left out: a directory of runs has none. A scheme in front (``wandb-artifact://``) is taken off.

    Raises:
        UsageError: no name, an empty alias, or what can be none of these.
    """
    rest = text.removeprefix("wandb-artifact://").strip()
    path, colon, alias = rest.rpartition(":")
    if not colon:
        path, alias = rest, LATEST
    parts = path.split("/")
    wrong = not alias or len(parts) > 3 or any(part in ("", ".", "..") for part in parts)
    if wrong or "/" in alias or not rest.isprintable():
        raise UsageError(f"{text!r:.200} can't name an artifact: give name:alias, name:v3 or project/name:alias")
    return Reference(parts[-2] if len(parts) > 1 else "", parts[-1], alias)


def readings(text: str) -> list[Reference]:
    """All that a reference can mean where names have "/" and ":" themselves, what :func:`parse` gives first.

    Raises:
        UsageError: it can mean nothing.
    """
    rest = text.removeprefix("wandb-artifact://").strip()
    if not rest.isprintable() or any(part in ("", ".", "..") for part in rest.split("/")):
        parse(text)  # raises
    found = []
    with contextlib.suppress(UsageError):
        found.append(parse(text))
    path, _, alias = rest.rpartition(":")
    for whole, of in ((path, alias), (rest, LATEST)):
        if of and "/" not in of and not any(part in ("", ".", "..") for part in whole.split("/")):
            found.append(Reference("", whole, of))
            project, slash, name = whole.partition("/")
            if slash and project and name:
                found.append(Reference(project, name, of))
    return found


def can_name(name: str) -> bool:
    """Whether a reference can name an artifact of that name."""
    try:
        return any(reading.name == name and reading.alias == LATEST for reading in readings(f"{name}:{LATEST}"))
    except UsageError:
        return False


def number_of(alias: str) -> int | None:
    """The number in ``v3``; None where it is no number."""
    match = _NUMBER.fullmatch(alias)
    return int(match[1]) if match else None


def check_alias(alias: str) -> str:
    """The alias itself, if a user may give it.

    Raises:
        UsageError: it may not: ``latest`` and numbers are given by themselves.
    """
    if alias == LATEST or number_of(alias) is not None:
        raise UsageError(f"alias {alias!r} is given by itself, to the version that was logged last or by number")
    if not alias or len(alias) > 128 or not alias.isprintable() or any(sign in alias for sign in "/:, "):
        raise UsageError(f"{alias!r:.200} can't be an alias: at most 128 characters, without '/', ':', ',' and spaces")
    return alias
