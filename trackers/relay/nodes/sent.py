"""Deletes files on a node's own disk a day after the store has all of them: they would fill the disk.

A launch's carrier notes which files it sent; the next carrier on this node deletes those that earlier ones noted.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec

from trackers.errors import UNDECODABLE
from trackers.journal.run_directory import StreamName
from trackers.support import confined

NOTE = "sent.json"
KEPT_S = 86400.0
"""How long the files are kept: the store may lose what it accepted, and the same launch may begin again."""
WRITERS = ("sampler", "console")
"""Writers whose streams of a run a node sends, besides its ranks' streams in the launch's folder."""


def note(folder: Path, files: Iterable[Path]) -> None:
    """Note that the store has all files of a launch.

    Args:
        folder: the launch's, in the directory of runs. files: those sent, from there and from runs.

    Raises:
        OSError: it can't be written.
    """
    root = folder.parent.parent
    paths = sorted(path.relative_to(root).as_posix() for path in files if root in path.parents)
    confined.write_whole(folder / NOTE, msgspec.json.encode(paths), root=folder)


def forget(launches: Path, but: Path, kept_s: float = KEPT_S) -> int:
    """Delete files noted more than ``kept_s`` ago. Returns the number of launches.

    Args:
        launches: the folder of all launches on this node. but: the launch that is running.
    """
    count = 0
    with contextlib.suppress(OSError):
        for entry in sorted(os.scandir(launches), key=lambda entry: entry.name):
            if entry.is_dir(follow_symlinks=False) and entry.name != but.name:
                with contextlib.suppress(OSError, *UNDECODABLE):
                    count += _forget(Path(entry.path), kept_s)
    return count


def _forget(folder: Path, kept_s: float) -> bool:
    written = os.stat(folder / NOTE, follow_symlinks=False).st_mtime
    if time.time() - written < kept_s or any(_newer(path, written) for path in folder.iterdir()):  # not sent whole
        return False
    root = folder.parent.parent
    for path in msgspec.json.decode(confined.read(folder / NOTE, root=folder, own=True), type=list[str]):
        name = StreamName.parse(path.rpartition("/")[2].removesuffix(".jsonl"))
        if confined.is_inside(path) and path.count("/") == 3 and name is not None and name.writer in WRITERS:
            with contextlib.suppress(OSError):
                if not _newer(root / path, written):
                    confined.remove(root / path, root=root)
    shutil.rmtree(folder)
    return True


def _newer(path: Path, than: float) -> bool:
    """Whether a file was written after the note: the launch went on."""
    return path.name != NOTE and os.stat(path, follow_symlinks=False).st_mtime > than
