"""What people said of versions after their runs: aliases set and removed, descriptions, versions removed.

A journal of its own beside the project's runs, ``runs/<project>/.artifacts/changes.jsonl``: a run that has ended
isn't written to.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import msgspec

from trackers.artifacts.numbers import FOLDER
from trackers.errors import UNDECODABLE
from trackers.records import check_depth
from trackers.support import confined
from trackers.support.interruption import pass_on

MOST_BYTES = 64 * 1024 * 1024


class Change(msgspec.Struct, omit_defaults=True):
    """One of them. what: alias, unalias, described or removed. digest: of a removed version's content.

    description, metadata: of a version that was described anew; metadata replaces what it had. time: Unix seconds.
    """

    what: str
    name: str
    number: int
    time: float
    alias: str = ""
    digest: str = ""
    description: str | None = None
    metadata: dict[str, Any] = {}


def add(project: Path, change: Change) -> None:
    """Write one down.

    Raises:
        OSError: it can't be written.
    """
    path = _path(project)
    confined.make_folder(path.parent, root=project)
    line = msgspec.json.encode(change) + b"\n"
    if _is_torn(path, project):
        line = b"\n" + line
    with confined.open_file(path, "ab", buffering=0, root=project) as file:
        if file.write(line) < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


def _is_torn(path: Path, project: Path) -> bool:
    """Whether the last line is half of one: whoever wrote it found the disk full, or was killed."""
    try:
        with confined.open_file(path, root=project) as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) != b"\n"
    except OSError as error:  # there is none, or it is empty
        pass_on(error)
        return False


def check(change: Change) -> None:
    """See that a change can be written and read back.

    Raises:
        TypeError, ValueError: it can't.
    """
    msgspec.json.decode(msgspec.json.encode(change), type=Change)


def read(project: Path) -> list[Change]:
    """All of them, in order; damaged lines are left out."""
    try:
        content = confined.read(_path(project), root=project, most=MOST_BYTES)
    except OSError as error:
        pass_on(error)
        return []
    changes = []
    for line in content.splitlines():
        try:
            change = msgspec.json.decode(line, type=Change)
            check_depth(change.metadata)
            changes.append(change)
        except UNDECODABLE:
            continue
    return changes


def _path(project: Path) -> Path:
    return project / FOLDER / "changes.jsonl"
