"""What reruns left in the user's cache: directories with restored files, and environments.

Whoever uses one holds it: the command, and the program that it started, by a descriptor that the program inherits.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from trackers.errors import UsageError
from trackers.provenance.paths import is_below
from trackers_rerun.restore import CODE, cache, git

KINDS = ("reruns", "environments")
GIT_FILE_BYTES = 10_000


class Leftover(msgspec.Struct):
    """A directory in the cache. kind: one of :data:`KINDS`. bytes: of its files. used: a process uses it now."""

    path: Path
    kind: str
    bytes: int
    used: bool


@contextlib.contextmanager
def lock_directories(directories: Iterable[Path]) -> Iterator[list[int]]:
    """Lock directories against removal for a block. Yields the descriptors that hold the locks; fewer if that fails."""
    fds: list[int] = []
    try:
        with contextlib.suppress(ImportError):
            import fcntl

            for directory in directories:
                with contextlib.suppress(OSError):  # it is being removed, or the filesystem knows no locks
                    fds.append(os.open(directory, os.O_RDONLY))
                    fcntl.flock(fds[-1], fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield fds
    finally:
        for fd in fds:
            os.close(fd)


def leftovers() -> list[Leftover]:
    """All leftovers in the cache, with their sizes."""
    entries = []
    for kind in KINDS:
        for path in _directories(cache() / kind):
            with _exclusive(path) as alone:
                used = not alone
            entries.append(Leftover(path, kind, _bytes(path), used))
    return entries


def remove(leftover: Leftover) -> bool:
    """Remove a leftover and its work trees' entries in repositories. False: it is in use or can't be removed."""
    with _exclusive(leftover.path) as alone:
        if not alone:
            return False
        commons = _repositories(leftover.path / CODE) if leftover.kind == "reruns" else []
        shutil.rmtree(leftover.path, ignore_errors=True)
        for common in commons:
            with contextlib.suppress(UsageError):
                git(common, "worktree", "prune")
        return not os.path.lexists(leftover.path)


@contextlib.contextmanager
def _exclusive(directory: Path) -> Iterator[bool]:
    """Lock a directory exclusively; False if another process holds it."""
    try:
        import fcntl
    except ImportError:
        yield True
        return
    fds = []
    try:
        # An environment's lock file is held while it is made.
        for path in (directory, directory.with_suffix(".lock")):
            with contextlib.suppress(FileNotFoundError):
                fds.append(os.open(path, os.O_RDONLY))
                fcntl.flock(fds[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
        alone = True
    except OSError:
        alone = False
    try:
        yield alone
    finally:
        for fd in fds:
            os.close(fd)


def _directories(folder: Path) -> list[Path]:
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        return sorted(Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False))
    return []


def _bytes(directory: Path) -> int:
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(folder, name)).st_size
    return total


def _repositories(code: Path) -> list[str]:
    """Git directories that have work trees below a directory: of its repository, and of submodules."""
    git_directories = []
    for folder, folders, names in os.walk(code):
        folders[:] = [name for name in folders if name != ".git"]
        if ".git" in names:
            with contextlib.suppress(OSError, ValueError):
                own = _first_line(os.path.join(folder, ".git")).removeprefix("gitdir: ")
                tree = _first_line(os.path.join(own, "gitdir"))
                git_directory, kind = os.path.split(os.path.dirname(own))
                if (
                    kind == "worktrees"
                    and os.path.samefile(os.path.dirname(tree), folder)
                    and not is_below(git_directory, str(code))
                ):
                    git_directories.append(git_directory)
    return list(dict.fromkeys(git_directories))


def _first_line(path: str) -> str:
    """The first line of a small file.

    Raises:
        OSError: it can't be read. ValueError: it is no text.
    """
    with os.fdopen(
        os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)), "rb"
    ) as file:
        return file.read(GIT_FILE_BYTES).decode().partition("\n")[0]
