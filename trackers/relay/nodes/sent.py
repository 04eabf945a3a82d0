"""What a node's launches have left on its own disk, and the store has whole: deleted a day later, or it fills the disk.

A launch's carrier notes what it sent; the next carrier on this node deletes what earlier ones noted.
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
"""How long it stays: a store may have lost what it accepted, and the same launch may begin again."""
WRITERS = ("sampler", "console")
"""Whose streams of a run a node sends, beside its ranks' in the launch's folder."""


def note(folder: Path, files: Iterable[Path]) -> None:
    """Note that the store has all of a launch.

    Args:
        folder: the launch's, in the directory of runs. files: that were sent, there and in runs.

    Raises:
        OSError: it can't be written.
    """
    root = folder.parent.parent
    paths = sorted(path.relative_to(root).as_posix() for path in files if root in path.parents)
    confined.write_whole(folder / NOTE, msgspec.json.encode(paths), root=folder)


def forget(launches: Path, but: Path, kept_s: float = KEPT_S) -> int:
    """Delete what was noted so long ago; how many launches.

    Args:
        launches: the folder of all launches on this node. but: one that goes on.
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
    if time.time() - written < kept_s or any(_newer(path, written) for path in folder.iterdir()):
        return False
    root = folder.parent.parent
    for path in msgspec.json.decode(confined.read(folder / NOTE, root=folder), type=list[str]):
        name = StreamName.parse(path.rpartition("/")[2].removesuffix(".jsonl"))
        if confined.inside(path) and path.count("/") == 3 and name is not None and name.writer in WRITERS:
            with contextlib.suppress(OSError):
                if not _newer(root / path, written):
                    confined.remove(root / path, root=root)
    shutil.rmtree(folder)
    return True


def _newer(path: Path, than: float) -> bool:
    """Whether something was written there after the note: the launch went on."""
    return path.name != NOTE and os.stat(path, follow_symlinks=False).st_mtime > than
