"""Removal of versions of artifacts: their files go, their records and numbers stay."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from trackers.artifacts import changes, numbers
from trackers.artifacts.names import LATEST
from trackers.artifacts.versions import Version, known_numbers, of_project
from trackers.errors import UsageError
from trackers.journal.run_directory import RunDirectory
from trackers.journal.status import observe
from trackers.media.base import FOLDER
from trackers.records import ArtifactRecord, CorruptLine, decode
from trackers.retention.lock import locked, why_kept
from trackers.support import confined
from trackers.support.failpoints import failpoint
from trackers.support.seekable_zstd import open_file

_MEDIA = f'"{FOLDER}/'.encode()
_NAME = re.compile(rf'"({FOLDER}/[^"\\]{{1,300}})"'.encode())
STRAY_S = 86400.0
"""Minimum age of a file that no record names before it is removed, in seconds: copying one takes less."""
LONGEST_BYTES = 64 * 1024 * 1024
"""Maximum length of a line that is looked at; a run with a longer one keeps its files."""


def out_of_date(versions: Iterable[Version], keep: int) -> list[Version]:
    """All versions but the newest so many; those whose content is removed don't count."""
    remaining = [version for version in versions if not version.removed]
    return remaining[: max(len(remaining) - keep, 0)]


def why_version_kept(version: Version, *, named: bool, force: bool = False) -> str:
    """Why a version must not be removed, in a few words; "" if it may be.

    Args:
        named: the user named this very version. force: aliases, uses and trackers that lack it don't matter.
    """
    if version.removed and not any(map(os.path.lexists, _remaining_files(version))):
        return "it is removed already"
    aliases = [alias for alias in version.aliases if not (named and alias == LATEST)]
    if aliases and not force:
        return f"it has the alias {', '.join(aliases)}"
    if version.users and not named and not force:
        return f"run {next(iter(version.users.values()))} used it"
    for path in () if force else dict.fromkeys(version.used_in):
        if observe(RunDirectory(path)).name == "running":
            return f"run {path.name} uses it and goes on"
    for run in _runs(version):
        why = why_kept(run, 0.0)
        if why and (not force or "running" in why or "works on it" in why):
            return f"run {run.path.name}: {why}"
    return ""


def remove(version: Version) -> int:
    """Remove the files of a version from all runs that logged it; return how many bytes were freed.

    Files that something else in their run needs stay. The caller has asked :func:`why_version_kept`.

    Its removal is written down first: who is killed after that finishes it with the next call.

    Raises:
        UsageError: somebody works on one of the runs. OSError: the rest goes with the next call.
    """
    with contextlib.ExitStack() as stack:
        runs = _runs(version)
        for run in runs:
            stack.enter_context(locked(run))
        folder = runs[0].path.parent
        if not version.removed:
            change = changes.Change("removed", version.name, version.number, time.time(), digest=version.digest)
            changes.add(folder, change)
        failpoint("artifact.removed")
        numbers.forget(folder, version.name, version.number, lambda: known_numbers(folder, version.name))
        return sum(_remove_files(run, version) for run in runs)


def _runs(version: Version) -> list[RunDirectory]:
    return [RunDirectory(path) for path in dict.fromkeys(maker.directory for maker in version.makers)]


def _remaining_files(version: Version) -> Iterator[Path]:
    """Files that are left of a version, and are deleted with it."""
    for run in _runs(version):
        for file in _own_files(run, version):
            yield run.path / file


def _own_files(run: RunDirectory, version: Version) -> list[str]:
    """Files of a run that only this version needs."""
    records = [maker.record for maker in version.makers if maker.directory == run.path]
    files = {file.file for record in records for file in record.files if confined.is_inside(file.file)}
    return sorted(file for file in files - _needed(run, version) if file.startswith(f"{FOLDER}/"))


def _remove_files(run: RunDirectory, version: Version) -> int:
    freed = 0
    for file in _own_files(run, version):
        with contextlib.suppress(FileNotFoundError):
            size = os.lstat(run.path / file).st_size
            confined.remove(run.path / file, root=run.path)
            failpoint("artifact.file.after")
            freed += size
    return freed


def why_strays_kept(run: RunDirectory) -> str:
    """Why nothing may be removed from a run, in a few words; "" if files that nothing names may be."""
    if run.archived():
        return ""
    if observe(run).name == "running":
        return "it is running"
    return "its journal can't be read" if not run.stream_names() else ""


def strays(run: RunDirectory, older_than_s: float = STRAY_S) -> dict[Path, int]:
    """Files among a run's media that no record of it names, with their bytes: whoever wrote them was killed before.

    Args:
        older_than_s: younger ones may be named any moment.
    """
    before = time.time() - older_than_s
    named = _named_files(run, lambda line: False)
    unnamed = {}
    for path in [*run.media.glob(".tmp-*"), *run.media.glob("[0-9a-f][0-9a-f]/*")]:
        with contextlib.suppress(OSError):
            about = path.lstat()
            old = about.st_mtime < before and about.st_ctime < before
            if stat.S_ISREG(about.st_mode) and old and path.relative_to(run.path).as_posix() not in named:
                unnamed[path] = about.st_size
    return unnamed


def remove_strays(run: RunDirectory, older_than_s: float = STRAY_S) -> int:
    """Remove them; return how many bytes were freed.

    Raises:
        UsageError: somebody works on the run, or it goes on. OSError: the rest goes with the next call.
    """
    freed = 0
    with locked(run):
        reason = why_strays_kept(run)
        if reason:
            raise UsageError(f"run {run.path} stays as it is: {reason}")
        for path, size in strays(run, older_than_s).items():
            confined.remove(path, root=run.path)
            freed += size
    return freed


def _needed(run: RunDirectory, version: Version) -> set[str]:
    """Files of the run that other versions have, its other records name, and the tables among its media."""
    needed = _named_files(run, _has_versions)
    for others in of_project(run.path.parent).names.values():
        for other in others:
            if not other.removed and (other.name, other.number) != (version.name, version.number):
                records = [maker.record for maker in other.makers if maker.directory == run.path]
                needed.update(file.file for record in records for file in record.files)
    return needed


def _named_files(run: RunDirectory, left_out: Callable[[bytes], bool]) -> set[str]:
    """Files that the lines of a run's journal name, and the tables among its media.

    Args:
        left_out: says of a line that it doesn't count.
    """
    named: set[str] = set()
    for name in run.stream_names():
        for line in _read_lines(run.stream(name)):
            if _MEDIA in line and not left_out(line):
                named.update(match.decode("utf-8", "replace") for match in _NAME.findall(line))
    for path in run.media.glob("*/*.json"):
        with contextlib.suppress(OSError):
            content = confined.read(path, root=run.path)
            named.update(match.decode("utf-8", "replace") for match in _NAME.findall(content))
    return named


def _has_versions(line: bytes) -> bool:
    """Whether a line is of an artifact with versions, which the project's catalog has."""
    try:
        record = decode(line.rstrip(b"\n"))
    except CorruptLine:
        return False
    return isinstance(record, ArtifactRecord) and record.versioned and bool(record.name)


def _read_lines(path: Path) -> Iterator[bytes]:
    with open_file(path) as file:
        while line := file.readline(LONGEST_BYTES):
            if len(line) == LONGEST_BYTES:
                raise UsageError(f"{path} has a line of more than {LONGEST_BYTES:,} bytes: its run stays as it is")
            yield line
