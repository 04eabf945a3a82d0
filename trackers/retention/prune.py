"""Deleting runs that trackers have whole, outside of the run's own directory."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from trackers.errors import UsageError
from trackers.journal.run_directory import DOOMED, RunDirectory
from trackers.retention.lock import held, why_not_deleted
from trackers.retention.sizes import run_sizes, total
from trackers.support.failpoints import failpoint


def delete(run: RunDirectory, older_than_s: float) -> int:
    """Delete a run's directory; return how many bytes were freed.

    Raises:
        UsageError: it must stay, or another process works on it. OSError: the rest goes with the next call.
    """
    with held(run):
        kept = why_not_deleted(run, older_than_s, held=True)
        if kept:
            raise UsageError(f"run {run.path} stays as it is: {kept}")
        size = total(run_sizes(run.path))
        failpoint("delete.before")
        run.put_back()
        os.replace(run.identity, run.path / DOOMED)
        failpoint("delete.doomed")
        _remove(run.path)
    return size


def begun(root: Path) -> Iterator[Path]:
    """Directories whose deletion was begun and not ended: its process was killed."""
    for pattern in (DOOMED, f"*/{DOOMED}", f"*/*/{DOOMED}"):
        yield from (path.parent for path in sorted(root.glob(pattern)))


def finish(path: Path) -> int:
    """End such a deletion; return how many bytes were freed.

    Raises:
        UsageError: a new run has begun there.
    """
    if (path / "run.json").exists():
        raise UsageError(f"{path}: a new run began where an old one was being deleted; remove {path / DOOMED} yourself")
    size = total(run_sizes(path))
    _remove(path)
    return size


def _remove(path: Path) -> None:
    aside = path if path.name.endswith(".deleting") else path.with_name(f".{path.name}.deleting")
    if aside != path:
        if aside.exists():
            shutil.rmtree(aside)
        os.replace(path, aside)
    failpoint("delete.aside")
    for entry in sorted(aside.iterdir()):
        if entry.name == DOOMED:  # last: it tells who comes after a kill what this is
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
        failpoint("delete.entry.after")
    (aside / DOOMED).unlink()
    aside.rmdir()
