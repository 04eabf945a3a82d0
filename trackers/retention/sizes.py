"""Disk space of runs and related files, by kind of file."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from trackers.journal.run_directory import is_run
from trackers.support.seekable_zstd import SUFFIX

RUN_KINDS = ("journal", "archived", "media", "delivery", "logs", "outputs", "identity")
"""Of a run. outputs: what trackers wrote into its directory. delivery: how far each tracker is."""
LOOSE_KINDS = ("benchmark results", "reports", "plots", "profiles", "logs", "compressed logs", "other")
"""Of a directory of results, in the words of the documents that describe one."""
_LOOSE = (
    ("benchmark results", re.compile(r"(benchmark|run)_.*\.json")),
    ("reports", re.compile(r".*\.(md|html)")),
    ("plots", re.compile(r".*\.(png|svg|pdf)")),
    ("profiles", re.compile(r"(perf_logs.*|.*\.pt\.trace|.*trace)\.json(\.gz)?")),
    ("logs", re.compile(r".*\.log")),
    ("compressed logs", re.compile(r".*\.log\.gz")),
)


class Size(NamedTuple):
    """files: how many. size: their bytes together."""

    files: int = 0
    size: int = 0


def run_sizes(run: Path) -> dict[str, Size]:
    """The files of a run's directory by :data:`RUN_KINDS`."""
    return _counted(((_run_kind(path.relative_to(run)), size) for path, size in walk(run)), RUN_KINDS)


def loose_sizes(folder: Path) -> dict[str, Size]:
    """The files of a directory and those below it by :data:`LOOSE_KINDS`; runs in it aren't counted."""
    named = ((path.name, size) for path, size in walk(folder, runs=False))
    kinds = ((next((kind for kind, one in _LOOSE if one.fullmatch(name)), "other"), size) for name, size in named)
    return _counted(kinds, LOOSE_KINDS)


def together(all_sizes: Iterable[dict[str, Size]]) -> dict[str, Size]:
    """Several of them as one."""
    total: dict[str, Size] = {}
    for sizes in all_sizes:
        for kind, (files, size) in sizes.items():
            before = total.get(kind, Size())
            total[kind] = Size(before.files + files, before.size + size)
    return total


def total(sizes: dict[str, Size]) -> int:
    """Bytes of all kinds."""
    return sum(entry.size for entry in sizes.values())


def walk(folder: Path, *, runs: bool = True) -> Iterator[tuple[Path, int]]:
    """Every file below a directory with its length; links aren't followed, and pipes and the like are none.

    Args:
        runs: False leaves out directories of runs: they are not loose files.
    """
    for parent, folders, files in os.walk(folder):
        if not runs and ("run.json" in files or is_run(parent)):
            folders.clear()
            continue
        folders.sort()
        for name in sorted(files):
            path = Path(parent, name)
            try:
                status = path.lstat()
            except OSError:  # gone meanwhile
                continue
            if stat.S_ISREG(status.st_mode):
                yield path, status.st_size


def _counted(entries: Iterable[tuple[str, int]], kinds: tuple[str, ...]) -> dict[str, Size]:
    sizes = dict.fromkeys(kinds, Size())
    for kind, size in entries:
        sizes[kind] = Size(sizes[kind].files + 1, sizes[kind].size + size)
    return {kind: entry for kind, entry in sizes.items() if entry.files}


def _run_kind(path: Path) -> str:
    first = path.parts[0]
    if first == "streams":
        return "archived" if path.name.endswith(SUFFIX) else "journal"
    if first in ("media", "delivery"):
        return first
    if path.name.removesuffix(SUFFIX) in ("relay.log", "messages.jsonl"):
        return "archived" if path.name.endswith(SUFFIX) else "logs"
    return "identity" if str(path) in ("run.json", "archive.json") or path.name.endswith(".lease") else "outputs"
