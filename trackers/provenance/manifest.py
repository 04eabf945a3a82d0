"""``code-<attempt>.json`` of a run: what exactly ran, so that it can be run again, sealed as a run's options are.

The content of the files that it names lies in ``code-<attempt>.zip`` beside it.
"""

from __future__ import annotations

import errno
import hashlib
import heapq
import io
import os
import re
import stat
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from trackers.errors import UNDECODABLE, Damaged, NotFound
from trackers.journal import signature
from trackers.journal.run_directory import RunDirectory, replace_file
from trackers.provenance.packages import Origin
from trackers.provenance.paths import ENDING
from trackers.support import confined
from trackers.support.interruption import pass_on, suppress

IMPORTED, CHANGED, UNTRACKED, DELETED = "imported", "changed", "untracked", "deleted"
NEAR_RUNS, MOST_RUNS = 8, 2000
"""How many of the newest runs beside one are looked at for the same archive; how many are looked at for the newest."""
MOST_FILES = 20_000
MANIFEST_BYTES = 64 * 1024 * 1024
ARCHIVE_BYTES = 1024 * 1024 * 1024
FILE_BYTES = 256 * 1024 * 1024
"""Maximum size of one file that is read out of an archive, in bytes."""
_DIGEST = re.compile(r"[0-9a-f]{64}")


class SourceFile(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A file of the program's own source.

    path: from the root, "/" between its parts. origin: why it is here: "imported" (as it is committed, where there is
    git), "changed", "untracked", "deleted". digest: SHA-256 of what was kept, or
    would have been; "" where it couldn't be read. bytes: its size. kept: it is in the archive. executable: it may be
    run. link: what a symbolic link points to. masked: numbers of lines in which secrets were masked, from 1. why: one
    line on why it isn't kept.
    """

    path: str
    origin: str
    digest: str = ""
    bytes: int = 0
    kept: bool = False
    executable: bool = False
    link: str = ""
    masked: list[int] = []
    why: str = ""


class Launcher(msgspec.Struct, omit_defaults=True):
    """What started the ranks: its command line, secrets masked, and its working directory."""

    argv: list[str]
    cwd: str = ""


class Data(msgspec.Struct, omit_defaults=True):
    """A file of data: its absolute path, size in bytes, and SHA-256; "" with the reason why it isn't known."""

    path: str
    bytes: int = 0
    digest: str = ""
    why: str = ""


class Manifest(msgspec.Struct, omit_defaults=True, kw_only=True):
    """What exactly ran.

    run, attempt: whose it is. root: the repository, or the directory that the program's own files lie below. program,
    argv, flags, cwd, python, python_version: the command; flags are the interpreter's. entry: what a program calls
    that a package installed ("package.module:function"). launcher: of several ranks. variables: of the environment,
    those that decide what is imported and computed. import_paths: directories that own modules were imported from,
    relative to the root. git: commit, branch, remote of the root; {} where it is no repository. submodules: paths with
    the commits that were checked out there. files: of the program's own. untracked: other files that are neither
    committed nor ignored, up to a hundred; a folder ends with "/". packages: versions by name. origins: of those that
    no index has. container: kind and image. data: files whose content was asked for. ranks, nodes: how many. notes:
    what couldn't be recorded, a line each. archive: SHA-256 of the archive.
    """

    run: str
    attempt: int = 1
    version: int = 1
    time: float = 0.0
    root: str = ""
    program: str = ""
    argv: list[str] = []
    flags: list[str] = []
    cwd: str = ""
    python: str = ""
    python_version: str = ""
    entry: str = ""
    launcher: Launcher | None = None
    ranks: int = 1
    nodes: int = 1
    variables: dict[str, str] = {}
    import_paths: list[str] = []
    git: dict[str, Any] = {}
    submodules: dict[str, str] = {}
    files: list[SourceFile] = []
    untracked: list[str] = []
    packages: dict[str, str] = {}
    origins: dict[str, Origin] = {}
    container: dict[str, str] = {}
    data: list[Data] = []
    notes: list[str] = []
    archive: str = ""
    seal: str = ""


def name(attempt: int, ending: str = "json") -> str:
    """``code-1.json``, ``code-1.zip``."""
    return f"code-{attempt}.{ending}"


def write(run: RunDirectory, manifest: Manifest, archive: bytes | None, mode: int) -> None:
    """Store a manifest, sealed, and its archive.

    Args:
        archive: the archive's bytes; None: the one that is there stays.
        mode: of the archive, which has text of files.

    Raises:
        OSError: it can't be written.
    """
    if archive is not None:
        path = run.path / name(manifest.attempt, "zip")
        if not _linked(run, path, archive, mode):
            replace_file(path, archive, mode=mode)
        manifest.archive = hashlib.sha256(archive).hexdigest()
    manifest.seal = signature.seal(_content(manifest))
    replace_file(run.path / name(manifest.attempt), msgspec.json.format(msgspec.json.encode(manifest)) + b"\n")


def _linked(run: RunDirectory, path: Path, content: bytes, mode: int) -> bool:
    """Give an archive to a run as a hard link to the same one of a run beside it: the runs of a sweep share their code.

    Such a file is never written to, only replaced, and stays for as long as one of the runs has it.
    """
    expected = 0
    with suppress(OSError):
        expected = os.stat(run.identity).st_mode & mode & 0o777
    for sibling in _siblings(run) if expected else []:
        for file in (sibling / name(1, "zip"), sibling / path.name):
            new = confined.temporary(path)
            try:
                seen = os.lstat(file)
                if not stat.S_ISREG(seen.st_mode) or seen.st_uid != os.geteuid() or seen.st_size != len(content):
                    continue
                if seen.st_mode & 0o777 != expected or confined.read(file, root=sibling, most=len(content)) != content:
                    continue
                os.link(file, new, follow_symlinks=False)
                confined.replace(new, path)
                return True
            except (OSError, AttributeError, NotImplementedError) as error:
                pass_on(error)
                with suppress(OSError):
                    confined.remove(new)
    return False


def _siblings(run: RunDirectory) -> list[Path]:
    """Directories beside a run's, the newest first."""
    with suppress(OSError), os.scandir(run.path.parent) as entries:
        siblings = [entry for _, entry in zip(range(MOST_RUNS), entries, strict=False) if entry.name != run.path.name]
        times = {entry.path: entry.stat(follow_symlinks=False).st_mtime for entry in siblings if not entry.is_symlink()}
        return [Path(path) for path in heapq.nlargest(NEAR_RUNS, times, key=times.__getitem__)]
    return []


def _content(manifest: Manifest) -> str:
    unsealed = msgspec.structs.replace(manifest, seal="")
    return "code " + hashlib.sha256(msgspec.json.encode(unsealed, order="deterministic")).hexdigest()


def read(run: RunDirectory, attempt: int | None = None) -> Manifest:
    """The manifest of an attempt; None: of the newest that has one.

    Raises:
        NotFound: there is none. Damaged: it can't be read.
    """
    for number in [attempt] if attempt is not None else range(run.attempt(), 0, -1):
        path = run.path / name(number)
        try:
            content = confined.read(path, root=run.path, most=MANIFEST_BYTES)
        except FileNotFoundError:
            continue
        except OSError as error:
            pass_on(error)
            raise Damaged(f"{path} can't be read: {error.strerror}") from None
        try:
            manifest = msgspec.json.decode(content, type=Manifest, strict=False)
        except UNDECODABLE:
            raise Damaged(f"{path} isn't what a record of code must be") from None
        manifest.files = [file for file in manifest.files[:MOST_FILES] if confined.is_inside(file.path)]
        return manifest
    which = f" of attempt {attempt}" if attempt is not None else ""
    raise NotFound(f"run {run.path.name} has no record of the code{which}")


def await_record(run: RunDirectory, seconds: float = 10.0) -> None:
    """Wait, while the run's relay lives, until what training told last is in its record: a moment after its end."""
    attempt = run.attempt()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            spooled_ns = os.lstat(run.path / name(attempt, ENDING)).st_mtime_ns
            os.lstat(run.path / "relay.lease")
        except OSError as error:
            pass_on(error)
            return
        with suppress(OSError):
            if os.lstat(run.path / name(attempt)).st_mtime_ns > spooled_ns:
                return
        time.sleep(0.05)


def is_own(manifest: Manifest) -> bool:
    """Whether this user's own trackers wrote it."""
    return signature.sealed(_content(manifest), manifest.seal)


class Archive:
    """The content of a manifest's files.

    Raises:
        Damaged: of each call, where a file isn't what the manifest says.
    """

    def __init__(self, run: RunDirectory, manifest: Manifest) -> None:
        self._path = run.path / name(manifest.attempt, "zip")
        self._root = run.path
        self._zip: zipfile.ZipFile | None = None

    def read(self, file: SourceFile) -> bytes:
        """A file's content, as it was kept."""
        if not file.kept or not _DIGEST.fullmatch(file.digest) or not 0 <= file.bytes <= FILE_BYTES:
            raise Damaged(f"{file.path} wasn't kept")
        try:
            if self._zip is None:
                with confined.open_file(self._path, root=self._root) as packed:
                    if os.fstat(packed.fileno()).st_size > ARCHIVE_BYTES:
                        raise OSError(errno.EFBIG, "is too long")
                    self._zip = zipfile.ZipFile(io.BytesIO(packed.read()))
            with self._zip.open(file.digest) as entry:
                content = entry.read(file.bytes + 1)
        except Exception as error:  # EOFError, LZMAError, struct.error: whatever unpacking one may raise
            pass_on(error)
            raise Damaged(f"{self._path} has no {file.path}, or is damaged") from None
        if hashlib.sha256(content).hexdigest() != file.digest:
            raise Damaged(f"{self._path}: {file.path} isn't what was recorded")
        return content


def pack(contents: Mapping[str, bytes]) -> bytes:
    """An archive of contents by digest; the same bytes for the same contents."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for digest in sorted(contents):
            archive.writestr(zipfile.ZipInfo(digest), contents[digest], zipfile.ZIP_DEFLATED)
    return packed.getvalue()
