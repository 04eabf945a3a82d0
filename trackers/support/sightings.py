"""For how long this machine has seen something unchanged, by its own clock: all that is known of processes elsewhere.

Clocks of two machines are never compared, for either may be wrong. What a process elsewhere changes again and again
(the count of its lease, the length of its journal) is its *sign*. A sign is remembered with the moment when this
machine saw it first, in a file of its own in the user's runtime directory, so that a command goes on from what earlier
ones saw. Moments are of the monotonic clock, which all processes since a boot share; what was seen by another clock
counts as never seen.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path
from typing import NamedTuple

import msgspec

from trackers.errors import UNDECODABLE
from trackers.support import confined, machines, runtime_directory

FOLDER = "seen"
KEPT_S = 7 * 86400.0
"""A sighting that nobody asked for in so many seconds is deleted."""
TIDY_S = 3600.0
CLOSE_S = 60.0
LOOKED_S = 10.0


class Moment(msgspec.Struct, frozen=True):
    """A moment of a monotonic clock, and whose (:func:`trackers.support.machines.clock_id`)."""

    clock: str
    monotonic: float

    def passed(self, since: Moment) -> float:
        """Seconds from an earlier moment; 0.0 where they can't be compared."""
        return max(0.0, self.monotonic - since.monotonic) if self.clock == since.clock else 0.0


class Sighting(NamedTuple):
    """still_s: for how long it is known to be unchanged, in seconds. moved: before that it was seen to change, between
    two looks that were less than :data:`CLOSE_S` apart."""

    still_s: float
    moved: bool


class _Seen(msgspec.Struct):
    """since, looked: when the sign was seen first, and last (to :data:`LOOKED_S`)."""

    sign: str
    since: Moment
    looked: Moment
    moved: bool = False


_unwritten: dict[str, _Seen] = {}
"""Sightings of this process that can't be written: a machine without a directory for temporary files."""


def now() -> Moment:
    """This moment."""
    return Moment(machines.clock_id(), machines.uptime())


def look(what: Path | str, sign: str, at: Moment | None = None) -> Sighting:
    """Note a sign, and for how long it has been the same.

    Args:
        what: whose sign: a file's path. sign: any text.
        at: when it was so; default now.
    """
    at = at or now()
    name = file_name(what, at)
    seen = _read(name)
    if seen is None or seen.since.clock != at.clock or seen.looked.monotonic > at.monotonic + LOOKED_S:
        seen = _Seen(sign, at, at)
        _write(name, seen)
    elif seen.sign != sign:
        seen = _Seen(sign, at, at, moved=at.passed(seen.looked) < CLOSE_S)
        _write(name, seen)
    elif at.passed(seen.looked) >= LOOKED_S:
        seen.looked = at
        _write(name, seen)
    return Sighting(at.passed(seen.since), seen.moved)


def file_name(what: Path | str, at: Moment) -> str:
    """Name of the file that remembers a sign."""
    return hashlib.sha256(os.fsencode(os.path.realpath(what)) + at.clock.encode()).hexdigest()[:32]


def _read(name: str) -> _Seen | None:
    with contextlib.suppress(OSError, *UNDECODABLE):
        return msgspec.json.decode(confined.read(directory() / name), type=_Seen)
    return _unwritten.get(name)


def _write(name: str, seen: _Seen) -> None:
    try:
        folder = directory(make=True)
        is_new = not (folder / name).exists()
        confined.write_whole(folder / name, msgspec.json.encode(seen), mode=0o600)
        if is_new:
            _tidy(folder, (folder / name).stat().st_mtime)
    except OSError:
        _unwritten[name] = seen


def directory(make: bool = False) -> Path:
    """Where sightings are remembered, in the directory that is this user's alone.

    Raises:
        OSError: there is none.
    """
    path = runtime_directory.directory()
    os.close(runtime_directory.open_directory(path, make=make))
    if make:
        (path / FOLDER).mkdir(mode=0o700, exist_ok=True)
    return path / FOLDER


def _tidy(folder: Path, today: float) -> None:
    """Delete old sightings, at most once an hour. today: by the clock of the directory's files."""
    stamp = folder / ".tidied"
    with contextlib.suppress(FileNotFoundError):
        if today - stamp.stat().st_mtime < TIDY_S:
            return
    confined.write_whole(stamp, b"")
    for entry in os.scandir(folder):
        with contextlib.suppress(OSError):
            if today - entry.stat().st_mtime > KEPT_S:
                os.unlink(entry.path)
