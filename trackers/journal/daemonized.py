"""Ownership of a run whose process becomes a daemon: the parent exits at once and the forked child continues.

Each child that a program forks by itself (not those of ``multiprocessing``, which are workers) adds a line to
``forks.<attempt>``. Where training is gone with exit code 0 and without a finish record, the relay follows the newest
child that still lives, and says so in ``heir.<attempt>``: the run is that process's from then on.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

from trackers.journal.run_directory import RunDirectory, replace_file
from trackers.support import confined, process_info

DIGITS = 20
GRACE_S = 1.0
"""Maximum wait of the relay for a child's line, in seconds: the parent may be gone before it is written."""


def forks(run: RunDirectory, attempt: int) -> Path:
    """A file with a line for each forked child: pid and start."""
    return run.path / f"forks.{attempt}"


def heir(run: RunDirectory, attempt: int) -> Path:
    """A file that names, in the same way, the process whose run it is now."""
    return run.path / f"heir.{attempt}"


def is_worker() -> bool:
    """Whether ``multiprocessing`` is forking this process, called as it begins."""
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        if str(frame.f_globals.get("__name__", "")).startswith("multiprocessing."):
            return True
    return False


def register(run: RunDirectory, attempt: int) -> None:
    """In a forked child: say that it is there. A full disk keeps it from that: then it isn't followed."""
    pid = os.getpid()
    with contextlib.suppress(OSError):
        fd = confined.open_fd(forks(run, attempt), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(fd, f"{pid} {process_info.process_start(pid):.0f}\n".encode())
        finally:
            os.close(fd)


def living(run: RunDirectory, attempt: int) -> tuple[int, float] | None:
    """The newest forked child that still lives, by pid and start."""
    for line in reversed(_lines(forks(run, attempt))):
        if process_info.alive(*line):
            return line
    return None


def daemon(run: RunDirectory, attempt: int) -> tuple[int, float] | None:
    """The same, where it lives in a session that one of the children made, as daemons do."""
    child = living(run, attempt)
    with contextlib.suppress(OSError):
        if child is not None and os.getsid(child[0]) in [pid for pid, _ in _lines(forks(run, attempt))]:
            return child
    return None


def follow(run: RunDirectory, attempt: int, child: tuple[int, float]) -> None:
    """Say that the run is this process's from now on."""
    with contextlib.suppress(OSError):
        replace_file(heir(run, attempt), f"{child[0]} {child[1]:.0f}\n".encode())


def named(run: RunDirectory, attempt: int) -> tuple[int, float] | None:
    """Whose run it is, where that isn't the process that began it."""
    return next(iter(_lines(heir(run, attempt))), None)


def _lines(path: Path) -> list[tuple[int, float]]:
    found = []
    with contextlib.suppress(OSError):
        for line in confined.read(path).decode("ascii", "replace").splitlines():
            words = line.split()
            if len(words) == 2 and all(word.isdigit() and len(word) < DIGITS for word in words):
                found.append((int(words[0]), float(words[1])))
    return found
