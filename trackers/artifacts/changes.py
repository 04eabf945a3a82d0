"""What people said of versions after their runs: aliases set and removed, versions removed.

A journal of its own beside the project's runs, ``runs/<project>/.artifacts/changes.jsonl``: a run that has ended
isn't written to.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from trackers.artifacts.numbers import FOLDER
from trackers.errors import UNDECODABLE
from trackers.support import confined

MOST_BYTES = 64 * 1024 * 1024


class Change(msgspec.Struct, omit_defaults=True):
    """One of them. what: alias, unalias or removed. digest: of the version's content. time: Unix seconds."""

    what: str
    name: str
    number: int
    time: float
    alias: str = ""
    digest: str = ""


def add(project: Path, change: Change) -> None:
    """Write one down.

    Raises:
        OSError: it can't be written.
    """
    path = _path(project)
    confined.make_folder(path.parent, root=project)
    with confined.open_file(path, "ab", buffering=0, root=project) as file:
        file.write(msgspec.json.encode(change) + b"\n")


def read(project: Path) -> list[Change]:
    """All of them, in order; damaged lines are left out."""
    try:
        content = confined.read(_path(project), root=project, most=MOST_BYTES)
    except OSError:
        return []
    found = []
    for line in content.splitlines():
        try:
            found.append(msgspec.json.decode(line, type=Change))
        except UNDECODABLE:
            continue
    return found


def _path(project: Path) -> Path:
    return project / FOLDER / "changes.jsonl"
