"""Files that a script keeps with its run (``run.save``) and goes on to write: the last content counts, as in W&B.

Training records such a file when it is saved, and again when the run ends, if it has changed. Beside that, the run's
directory has a hard link to each, ``live/<attempt>/<number>``, where the filesystem can: of a run that was killed, the
relay or ``trackers sync`` finds the content there. It opens no path that the run's directory names.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from trackers.errors import TrackersError
from trackers.journal.run_directory import FILES, RunDirectory
from trackers.media import MediaStore
from trackers.records import ArtifactFile, ArtifactRecord
from trackers.support import confined
from trackers.support.backlog import Backlog
from trackers.support.clock import monotonic
from trackers.values.file_snapshot import inside_name, snapshot, walk

LIVE = "live"
"""Folder of a run for the links."""
INDEX = "index.jsonl"
POLL_S = 10.0
"""Interval of looking for files that were replaced by others, in seconds."""
MOST = 1000
"""Maximum number of links of an attempt."""


class Link(msgspec.Struct):
    """A line of the index. number: of the link. size, mtime_ns: of the file when it was recorded."""

    name: str
    number: int
    size: int
    mtime_ns: int


State = tuple[int, int] | list[Any]
"""A file's size and time of change, or those of the files below a directory."""


class _Kept(NamedTuple):
    path: Path
    state: State
    link: Path | None


class LiveFiles:
    """Training's side: which files were recorded, and how they were then."""

    def __init__(self, run: RunDirectory, attempt: int) -> None:
        self._folder = run.path / LIVE / str(attempt)
        self._kept: dict[str, _Kept] = {}
        self._poll_at = 0.0

    def add(self, path: Path, name: str, keep: Callable[[], None]) -> None:
        """Record a file, or a directory, under a name by calling ``keep``; see it again at the end."""
        state = _state(path)
        keep()
        known = self._kept.get(name)
        number = len(self._kept) if known is None or known.link is None else int(known.link.name)
        self._kept[name] = _Kept(path, state, self._link(path, name, number, state))

    def poll(self) -> None:
        """Link anew what was replaced by another file. Does so now and then."""
        now = monotonic()
        if now < self._poll_at:
            return
        self._poll_at = now + POLL_S
        for name, kept in self._kept.items():
            if kept.link is not None:
                with contextlib.suppress(OSError):
                    if not os.path.samestat(os.stat(kept.path), os.stat(kept.link)):
                        link = self._link(kept.path, name, int(kept.link.name), kept.state)
                        self._kept[name] = kept._replace(link=link)

    def changed(self) -> Iterator[tuple[str, Path]]:
        """Name and path of what isn't as it was recorded: of a file that was removed, the link."""
        for name, kept in self._kept.items():
            with contextlib.suppress(OSError):
                path = kept.path if kept.link is None or kept.path.exists() else kept.link
                if path.exists() and _state(path) != kept.state:
                    yield name, path

    def close(self) -> None:
        """Remove the links."""
        _remove(self._folder)

    def _link(self, path: Path, name: str, number: int, state: State) -> Path | None:
        link = self._folder / str(number)
        if number >= MOST or not isinstance(state, tuple):  # no hard links to directories
            return None
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            link.unlink(missing_ok=True)
            os.link(path.resolve(), link)  # else a link to a symbolic link
            line = msgspec.json.encode(Link(name, number, *state)) + b"\n"
            with confined.open_file(self._folder / INDEX, "ab", buffering=0, root=self._folder) as index:
                index.write(line)
        except OSError:  # another filesystem, or one without hard links
            return None
        return link


def of_killed(run: RunDirectory, attempt: int, moment: float, backlog: Backlog | None = None) -> list[ArtifactRecord]:
    """Records of the files that training would have kept at the end of an attempt.

    Never raises: how a run ended is written in any case.

    Args:
        backlog: takes what the disk refuses; without one that is left out.
    """
    made: list[ArtifactRecord] = []
    folder, store = run.path / LIVE / str(attempt), MediaStore(run.path, backlog=backlog)
    with contextlib.suppress(OSError, TrackersError, ValueError):
        for link in _index(folder):
            path = folder / str(link.number)
            with contextlib.suppress(OSError, TrackersError):
                status = path.lstat()
                if (status.st_size, status.st_mtime_ns) != (link.size, link.mtime_ns):
                    name = inside_name(link.name)
                    file = snapshot(path, store, name=os.path.basename(name), root=run.path)
                    made.append(ArtifactRecord(time=moment, name=name, files=[file], versioned=False))
    with contextlib.suppress(OSError, TrackersError):
        files = list(_own_files(run, store))
        if files:
            made.append(ArtifactRecord(time=moment, name=FILES, files=files, versioned=False))
    return made


def forget(run: RunDirectory, attempt: int) -> None:
    """Remove the links of an attempt whose files are recorded."""
    _remove(run.path / LIVE / str(attempt))


def _own_files(run: RunDirectory, store: MediaStore) -> Iterator[ArtifactFile]:
    folder = run.path / FILES
    for parent, folders, names in () if folder.is_symlink() else os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(parent, name)
            with contextlib.suppress(OSError, TrackersError):
                yield snapshot(path, store, name=path.relative_to(folder).as_posix(), root=run.path)


def _index(folder: Path) -> list[Link]:
    lines = confined.read(folder / INDEX, root=folder, most=MOST * 1000 * 10).split(b"\n")
    links = {}
    for line in lines[:-1]:  # the last one is torn, or empty
        with contextlib.suppress(msgspec.MsgspecError):
            link = msgspec.json.decode(line, type=Link)
            links[link.number] = link
    return list(links.values())


def _state(path: Path) -> State:
    if path.is_dir():
        return [(name, _state(file)) for name, file in walk(path)]
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def _remove(folder: Path) -> None:
    with contextlib.suppress(OSError), confined.pinned(folder, root=folder.parents[1]) as own:
        shutil.rmtree(own, ignore_errors=True)
        folder.parent.rmdir()
