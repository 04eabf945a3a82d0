"""Files of data by their content: SHA-256, remembered for as long as a file has the same inode, size and time."""

from __future__ import annotations

import glob
import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence

from trackers.journal.fingerprint_cache import SETTLED_S, FingerprintCache
from trackers.provenance.manifest import Data
from trackers.support.interruption import pass_on

MOST_FILES = 10_000
CHUNK_BYTES = 1 << 20
_KEY = "digests of data"


class Stopped(Exception):
    """Nobody wants to know any more."""


class Digests:
    """Digests of files.

    Args:
        go_on: asked between two megabytes; False ends with :class:`Stopped`.
    """

    def __init__(self, go_on: Callable[[], bool] = lambda: True) -> None:
        self._known = FingerprintCache(_KEY, "1")
        self._go_on = go_on

    def describe(self, path: str, most: int | None = None) -> Data:
        """Describe a file by its size and digest, or by the reason why its content is unknown.

        Args:
            most: bytes that are read; None: all.
        """
        try:
            before = os.stat(path)
            if not stat.S_ISREG(before.st_mode):
                return Data(path, why="it is no regular file")
            fingerprint = f"{before.st_ino}:{before.st_size}:{before.st_mtime_ns}"
            known = self._known.get(path, fingerprint, str)
            if known is not None:
                return Data(path, before.st_size, known)
            if most is not None and before.st_size > most:
                return Data(path, before.st_size, why="it is too large to be read now")
            digest = self._read(path)
            after = os.stat(path)
        except OSError as error:
            pass_on(error)
            return Data(path, why=error.strerror or str(error))
        if (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
            return Data(path, after.st_size, why="it changed while it was read")
        if time.time() - before.st_mtime > SETTLED_S:
            self._known.put(path, fingerprint, digest)
        return Data(path, before.st_size, digest)

    def save(self) -> None:
        """Remember them for the next time."""
        self._known.save()

    def _read(self, path: str) -> str:
        hashed = hashlib.sha256()
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
        with os.fdopen(fd, "rb", buffering=0) as file:
            while chunk := file.read(CHUNK_BYTES):
                hashed.update(chunk)
                if not self._go_on():
                    raise Stopped
        return hashed.hexdigest()


def files(patterns: Sequence[str], cwd: str) -> Iterator[str]:
    """Absolute paths of the files that fit; of a directory all that are in it; a pattern that fits none, as it is."""
    count = 0
    for pattern in patterns:
        whole = os.path.join(cwd, os.path.expanduser(pattern))
        matches = [whole] if os.path.lexists(whole) else sorted(glob.iglob(whole, recursive=True))
        for path in matches or [whole]:
            for file in _files_below(path):
                count += 1
                if count > MOST_FILES:
                    return
                yield os.path.normpath(file)


def _files_below(path: str) -> Iterator[str]:
    if not os.path.isdir(path):
        yield path
        return
    for folder, folders, names in os.walk(path):
        folders.sort()
        yield from (os.path.join(folder, name) for name in sorted(names))
