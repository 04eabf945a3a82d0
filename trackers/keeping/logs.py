"""Logs that lie about in a directory of results: compressed after some days, deleted after more."""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import time
from pathlib import Path
from typing import NamedTuple

from trackers.errors import NotFound, UsageError
from trackers.failpoints import failpoint
from trackers.keeping.sizes import walk
from trackers.packed import FRAME_BYTES, content_of

COMPRESS_AFTER_S = 7 * 86400.0
DELETE_AFTER_S = 30 * 86400.0
_PART = ".part"


class Due(NamedTuple):
    """A log for which it is time. action: "compress" or "delete"; "keep", with a reason, where it mustn't be."""

    path: Path
    size: int
    action: str
    reason: str = ""


def due(folder: Path, compress_after_s: float = COMPRESS_AFTER_S, delete_after_s: float = DELETE_AFTER_S) -> list[Due]:
    """The ``*.log`` and ``*.log.gz`` below a directory that weren't written for so long; those of runs aren't loose.

    Raises:
        NotFound: there is no such directory.
    """
    if not folder.is_dir():
        raise NotFound(f"no directory {folder}: name the one that has the logs")
    now, open_now = time.time(), _open_files()
    found = []
    for path, size in walk(folder, runs=False):
        try:
            status = path.stat()
        except FileNotFoundError:
            continue
        age_s = now - status.st_mtime
        if path.name.endswith(".log") and age_s > compress_after_s:
            busy = (status.st_dev, status.st_ino) in open_now
            found.append(Due(path, size, "keep", "a process has it open") if busy else Due(path, size, "compress"))
        elif path.name.endswith(".log.gz") and age_s > delete_after_s:
            found.append(Due(path, size, "delete"))
    return found


def carry_out(entry: Due) -> int:
    """Compress or delete a log; return how many bytes were freed.

    Raises:
        UsageError: it can't be compressed without harm to another file. OSError: no space, say; the log is as it was.
    """
    if entry.action == "delete":
        entry.path.unlink()
        return entry.size
    return _compress(entry.path)


def benchmark_results(folder: Path) -> int:
    """How many benchmark results there are: they are never touched."""
    return sum(path.name.startswith("benchmark_") and path.suffix == ".json" for path, _ in walk(folder, runs=False))


def _compress(path: Path) -> int:
    """As ``gzip``: the log's time and permissions stay. It is removed once what was written reads back the same."""
    target = path.with_name(path.name + ".gz")
    seen = path.stat()
    content = content_of(path).sha256
    if target.exists():
        # A call that was killed before it could remove the log left both.
        if _unzipped_digest(target) != content:
            raise UsageError(f"{target} is there and holds something else: rename it; {path} stays")
    else:
        part = path.with_name(f".{path.name}{_PART}")
        try:
            with open(path, "rb") as log, open(part, "wb") as out:
                with gzip.GzipFile(path.name, "wb", fileobj=out, mtime=seen.st_mtime) as zipped:
                    shutil.copyfileobj(log, zipped, FRAME_BYTES)
                out.flush()
                os.fsync(out.fileno())
            failpoint("logs.written")
            if _unzipped_digest(part) != content:
                raise UsageError(f"{path} doesn't read back as it was compressed: it stays; look after this disk")
            os.chmod(part, seen.st_mode & 0o7777)
            os.utime(part, ns=(seen.st_atime_ns, seen.st_mtime_ns))
            os.replace(part, target)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
    failpoint("logs.unlink.before")
    now = path.stat()
    if (now.st_size, now.st_mtime_ns, now.st_ino) != (seen.st_size, seen.st_mtime_ns, seen.st_ino):
        target.unlink()
        raise UsageError(f"{path} is being written: it stays")
    path.unlink()
    return seen.st_size - target.stat().st_size


def _unzipped_digest(path: Path) -> str:
    digest = hashlib.sha256()
    try:
        with gzip.open(path, "rb") as file:
            while block := file.read(FRAME_BYTES):
                digest.update(block)
    except (EOFError, gzip.BadGzipFile):
        return ""
    return digest.hexdigest()


def _open_files() -> set[tuple[int, int]]:
    """Device and inode of every file that a process has open, as far as this user may see; Linux only."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            for entry in os.scandir(process / "fd"):
                try:
                    status = os.stat(entry.path)
                except OSError:
                    continue
                found.add((status.st_dev, status.st_ino))
        except OSError:  # gone, or another user's
            continue
    return found
