"""All runs below a directory, a line each, as ``trackers ls`` shows them: kept, so that only what changed is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from trackers.analysis.run_overview import Overview, glance
from trackers.errors import TrackersError
from trackers.journal.fingerprint_cache import FingerprintCache, mark_of
from trackers.journal.run_directory import RunDirectory, run_places
from trackers.readers.boundary import boundary

LAST = 4
"""Maximum number of last values shown."""
_VERSION = "lines 2"


class Standing(NamedTuple):
    """State of one tracker: see ``trackers.relay.report``. why: the reason why it isn't delivered, or ""."""

    state: str
    waiting_bytes: int = 0
    rejected: int = 0
    why: str = ""


class RunLine(msgspec.Struct, array_like=True):
    """One run. last: some of its last values; more: there are others."""

    project: str
    id: str
    name: str
    created: float
    status: str
    step: int | None
    last: dict[str, Any]
    more: bool
    trackers: dict[str, Standing]


class Listing(NamedTuple):
    """lines: the oldest run first. lost: why others are not among them."""

    lines: list[RunLine]
    lost: list[str]


def listing(root: Path, project: str = "") -> Listing:
    """The runs below a directory.

    Args:
        project: only this project's; "": all.
    """
    shelf = FingerprintCache(f"listing of {root.resolve()}", _VERSION)
    lines, lost, there = [], [], set()
    for path in run_places(root):
        there.add(path)
        mark = mark_of(path, deliveries=True)
        line = shelf.get(path, mark, RunLine)
        if not isinstance(line, RunLine):
            try:
                with boundary(path):
                    view = glance(RunDirectory(path))
                    line = _line(view)
            except TrackersError as error:
                if str(error) not in lost:  # a package that is missing concerns many
                    lost.append(str(error))
                continue
            if _settled(view):
                shelf.put(path, mark, line)
        if project in ("", line.project):
            lines.append(line)
    shelf.keep_only(there)
    shelf.save()
    return Listing(sorted(lines, key=lambda line: line.created), lost)


def _line(view: Overview) -> RunLine:
    return RunLine(
        project=view.info.project,
        id=view.info.id,
        name=view.info.name,
        created=view.info.created,
        status=view.status.name,
        step=view.step,
        last=dict(list(view.last.items())[:LAST]),
        more=len(view.last) > LAST,
        trackers={
            name: Standing(entry["state"], entry["waiting_bytes"], entry["rejected"], entry["error"])
            for name, entry in view.trackers.items()
        },
    )


def _settled(view: Overview) -> bool:
    """Whether only a change of files can change the line: nobody trains and nobody delivers."""
    return view.status.name != "running" and not any(entry["held_by"] for entry in view.trackers.values())
