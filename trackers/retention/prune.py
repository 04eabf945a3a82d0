"""Deletion of runs that trackers have whole elsewhere, and compression and deletion of old training logs."""

from __future__ import annotations

import contextlib
import fnmatch
import gzip
import hashlib
import json
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from trackers.analysis.benchmark_results import document, save
from trackers.benchmark.result import PATTERN
from trackers.errors import Damaged, NotFound, TrackersError, UsageError
from trackers.journal.run_directory import DOOMED, RunDirectory
from trackers.object_storage import addresses, removal
from trackers.object_storage.store import Store
from trackers.readers import helpers, registry
from trackers.readers.boundary import DATA_ERRORS
from trackers.records import name_floats
from trackers.retention.lock import locked, why_not_deleted
from trackers.retention.sizes import run_sizes, total, walk
from trackers.support import confined
from trackers.support.failpoints import failpoint
from trackers.support.seekable_zstd import FRAME_BYTES


def delete(run: RunDirectory, older_than_s: float) -> int:
    """Delete a run's directory; return how many bytes were freed.

    Raises:
        UsageError: it must stay, or another process works on it. OSError: the rest goes with the next call.
    """
    with locked(run):
        reason = why_not_deleted(run, older_than_s, held=True)
        if reason:
            raise UsageError(f"run {run.path} stays as it is: {reason}")
        size = total(run_sizes(run.path))
        failpoint("delete.before")
        run.put_back()
        confined.replace(run.identity, run.path / DOOMED, root=run.path)
        failpoint("delete.doomed")
        _remove(run.path)
    return size


def delete_stored(run: RunDirectory, store: str, older_than_s: float) -> int:
    """Delete a run from a store, and its copy here; return how many bytes were freed there.

    Args:
        run: the copy. store: the address.

    Raises:
        UsageError: it must stay. DeliveryError: the rest goes with the next call.
    """
    reason = why_not_deleted(run, older_than_s, but=addresses.STORAGE)
    if reason:
        raise UsageError(f"run {run.path} stays as it is: {reason}")
    freed = removal.remove(Store(store), "/".join(run.path.parts[-2:]))
    shutil.rmtree(run.path)
    return freed


def unfinished_deletions(root: Path) -> Iterator[Path]:
    """Directories whose deletion was begun and not completed, because its process was killed."""
    for pattern in (DOOMED, f"*/{DOOMED}", f"*/*/{DOOMED}"):
        yield from (path.parent for path in sorted(root.glob(pattern)))


def finish(path: Path) -> int:
    """End such a deletion; return how many bytes were freed.

    Raises:
        UsageError: a new run has begun there, or it may be somebody else who says that it was.
    """
    if (path / "run.json").exists():
        raise UsageError(f"{path}: a new run began where an old one was being deleted; remove {path / DOOMED} yourself")
    if path.is_symlink() or len({entry.lstat().st_uid for entry in (path, *path.rglob("*"))}) > 1:
        raise UsageError(f"{path}: not all there is one account's, or it is a link; remove {path / DOOMED} yourself")
    size = total(run_sizes(path))
    _remove(path)
    return size


def _remove(path: Path) -> None:
    aside = path if path.name.endswith(".deleting") else path.with_name(f".{path.name}.deleting")
    if aside != path:
        if (aside / DOOMED).exists():
            confined.remove_folder(aside, DOOMED)
        confined.replace(path, aside, root=path.parent)
    failpoint("delete.aside")
    confined.remove_folder(aside, DOOMED, lambda: failpoint("delete.entry.after"))


COMPRESS_AFTER_S = 7 * 86400.0
DELETE_AFTER_S = 30 * 86400.0
_PART = ".part"


class DueLog(NamedTuple):
    """A log for which it is time. action: "compress", "delete", or "extract" its benchmark's result and then delete it;
    "keep", with a reason, where it mustn't be. folder: that was named, through no link below which it is reached.
    written: when it was written last, in nanoseconds of Unix time."""

    path: Path
    size: int
    action: str
    folder: Path
    reason: str = ""
    written: int = 0


def due_logs(
    folder: Path,
    compress_after_s: float = COMPRESS_AFTER_S,
    delete_after_s: float = DELETE_AFTER_S,
    *,
    extract: bool = False,
) -> list[DueLog]:
    """The ``*.log`` and ``*.log.gz`` below a directory that weren't written for the given time, except those of runs.

    A log that a benchmark's result can be had from is only deleted where that result lies below the directory.

    Args:
        extract: where it doesn't, extract it first; else the log is kept.

    Raises:
        NotFound: there is no such directory.
    """
    if not folder.is_dir():
        raise NotFound(f"no directory {folder}: name the one that has the logs")
    now, open_now = time.time(), _open_files()
    logs, results = [], _Results(folder)
    for path, size in walk(folder, runs=False):
        try:
            status = path.stat()
        except FileNotFoundError:
            continue
        age_s = now - status.st_mtime
        if path.name.endswith(".log") and age_s > compress_after_s:
            busy = (status.st_dev, status.st_ino) in open_now
            action, reason = ("keep", "a process has it open") if busy else ("compress", "")
            logs.append(DueLog(path, size, action, folder, reason))
        elif path.name.endswith(".log.gz") and age_s > delete_after_s:
            try:
                missing = results.lack(path)
            except TrackersError as error:
                logs.append(DueLog(path, size, "keep", folder, str(error)))
                continue
            action = "delete" if not missing else "extract" if extract else "keep"
            reason = "" if action != "keep" else "its benchmark's result isn't here: --extract writes it first"
            logs.append(DueLog(path, size, action, folder, reason, status.st_mtime_ns))
    return logs


class _Results:
    """The benchmark's results below a directory, by the log that each was extracted from."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ids: set[str] | None = None
        self._series: set[str] = set()

    def lack(self, log: Path) -> bool:
        """Whether a log has a result that isn't there.

        Raises:
            NotFound: it can't be read, or not whole. MissingPackage: nothing here reads logs.
        """
        if self._ids is None:
            self._ids = set()
            for path, _ in walk(self._folder, runs=False):
                if fnmatch.fnmatchcase(path.name, PATTERN):
                    with contextlib.suppress(OSError, *DATA_ERRORS):
                        content = json.loads(confined.read(path))
                        self._series.add(json.dumps(content["raw_step_times"]))
                        self._ids.add(str(content["source"]["run_id"]))
        if {helpers.log_id(log), helpers.log_id(log.with_suffix(""))} & self._ids:
            return False
        result = _result(log, self._folder)
        return result is not None and json.dumps(name_floats(result["raw_step_times"])) not in self._series


def _result(log: Path, root: Path) -> dict[str, Any] | None:
    """The benchmark's result of a log below a directory; None where it has none.

    Raises:
        NotFound: it can't be read, or not whole. MissingPackage: nothing here reads logs.
    """
    if not _unzipped_digest(log, root):
        raise NotFound("it is damaged: what can be read of it may be all that is left")
    reader = registry.load("log")()
    (run,) = reader.runs(str(log))
    try:
        return document(reader, run)
    except Damaged:
        raise
    except NotFound:  # it says nothing of steps
        return None


def carry_out(entry: DueLog) -> int:
    """Compress or delete a log, with its result extracted before; return how many bytes were freed.

    Raises:
        UsageError: it can't be compressed without harm to another file, or was written since it was listed.
        OSError: no space, say; the log is as it was.
    """
    if entry.action == "extract":
        result = _result(entry.path, entry.folder)
        if result is not None:
            save(result, entry.folder)
    if entry.action in ("delete", "extract"):
        with confined.open_file(entry.path, root=entry.folder) as log:
            if os.fstat(log.fileno()).st_mtime_ns != entry.written:
                raise UsageError(f"{entry.path} was written since it was listed: it stays")
        confined.remove(entry.path, root=entry.folder)
        return entry.size
    return _compress(entry.path, entry.folder)


def benchmark_results(folder: Path) -> int:
    """How many benchmark results there are: they are never touched."""
    return sum(path.name.startswith("benchmark_") and path.suffix == ".json" for path, _ in walk(folder, runs=False))


def _compress(path: Path, root: Path) -> int:
    """As ``gzip``: the log's time and permissions stay. It is removed once what was written reads back the same."""
    target = path.with_name(path.name + ".gz")
    with confined.open_file(path, root=root) as log:
        seen = os.fstat(log.fileno())
        content = _digest(log)
    if target.exists():
        # A call that was killed before it could remove the log left both.
        if _unzipped_digest(target, root) != content:
            raise UsageError(f"{target} is there and holds something else: rename it; {path} stays")
    else:
        part = path.with_name(f".{path.name}.{secrets.token_hex(8)}{_PART}")
        try:
            with confined.open_file(path, root=root) as log, confined.open_file(part, "xb", root=root) as out:
                with gzip.GzipFile(path.name, "wb", fileobj=out, mtime=seen.st_mtime) as zipped:
                    shutil.copyfileobj(log, zipped, FRAME_BYTES)
                out.flush()
                os.fsync(out.fileno())
                os.fchmod(out.fileno(), seen.st_mode & 0o777)  # not by its name, which may be a link by then
                os.utime(out.fileno(), ns=(seen.st_atime_ns, seen.st_mtime_ns))
            failpoint("logs.written")
            if _unzipped_digest(part, root) != content:
                raise UsageError(f"{path} doesn't read back as it was compressed: it stays; look after this disk")
            confined.replace(part, target, root=root)
        except BaseException:
            with contextlib.suppress(OSError):
                confined.remove(part, root=root)
            raise
    failpoint("logs.unlink.before")
    now = path.stat()
    if (now.st_size, now.st_mtime_ns, now.st_ino) != (seen.st_size, seen.st_mtime_ns, seen.st_ino):
        confined.remove(target, root=root)
        raise UsageError(f"{path} is being written: it stays")
    confined.remove(path, root=root)
    return seen.st_size - target.stat().st_size


def _unzipped_digest(path: Path, root: Path) -> str:
    try:
        with confined.open_file(path, root=root) as packed, gzip.open(packed, "rb") as file:
            return _digest(file)
    except (EOFError, gzip.BadGzipFile):
        return ""


def _digest(file: BinaryIO | gzip.GzipFile) -> str:
    digest = hashlib.sha256()
    while block := file.read(FRAME_BYTES):
        digest.update(block)
    return digest.hexdigest()


def _open_files() -> set[tuple[int, int]]:
    """Device and inode of every file that a process has open, as far as this user may see; Linux only."""
    open_files = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            for entry in os.scandir(process / "fd"):
                try:
                    status = os.stat(entry.path)
                except OSError:
                    continue
                open_files.add((status.st_dev, status.st_ino))
        except OSError:  # gone, or another user's
            continue
    return open_files
