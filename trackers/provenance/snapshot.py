"""A snapshot of the program's own source: what was imported, and what isn't as it was committed."""

from __future__ import annotations

import fnmatch
import hashlib
import os
import stat
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from trackers.provenance import repository
from trackers.provenance.manifest import CHANGED, DELETED, IMPORTED, UNTRACKED, SourceFile
from trackers.provenance.modules import Module
from trackers.provenance.paths import is_below
from trackers.support import confined, git_head
from trackers.support.interruption import pass_on
from trackers.support.redaction import mask_source

NAMED = 100
"""Maximum number of files that aren't kept and are named."""
MOST_FILES = 10_000
MB = 1_000_000


class SnapshotOptions(NamedTuple):
    """What is kept beside what was imported or changed.

    untracked: patterns of files that are neither committed nor ignored; "*" is all. max_mb: of all contents together.
    submodules: changes in them, too. runs: directory of runs, which are no code.
    """

    untracked: Sequence[str] = ()
    max_mb: float = 10.0
    submodules: bool = True
    runs: str = ""


class SnapshotResult(NamedTuple):
    """files, and the contents of those that are kept, by digest. untracked: names of others. notes: a line each."""

    files: list[SourceFile]
    contents: dict[str, bytes]
    untracked: list[str]
    submodules: dict[str, str]
    notes: list[str]


class _Snapshot:
    def __init__(
        self, root: str, options: SnapshotOptions, earlier: Sequence[SourceFile], only: Iterable[str] | None
    ) -> None:
        self.root = root
        self.files: dict[str, SourceFile] = {file.path: file for file in earlier}
        self._only = None if only is None else frozenset(only)
        self.contents: dict[str, bytes] = {}
        self.notes: list[str] = []
        self.untracked: list[str] = []
        self.submodules: dict[str, str] = {}
        self._left = int(options.max_mb * MB) - sum({file.digest: file.bytes for file in earlier if file.kept}.values())
        self._skipped = 0

    def add(self, path: str, origin: str, module: Module | None = None) -> None:
        """Keep a file, once; the first one to ask says why."""
        if path in self.files or not _is_sound(path) or not (self._only is None or path in self._only):
            return
        if len(self.files) >= MOST_FILES:
            self._skipped += 1
            return
        entry = SourceFile(path=path, origin=origin)
        self.files[path] = entry
        if origin == DELETED:
            return
        whole = os.path.join(self.root, path)
        try:
            seen = os.lstat(whole)
            if stat.S_ISLNK(seen.st_mode):
                entry.link = os.readlink(whole)
                return
            if module is not None and (seen.st_size, seen.st_mtime_ns) != (module.size, module.changed):
                entry.why = "it was changed after it was imported"
            entry.executable = bool(seen.st_mode & stat.S_IXUSR)
            entry.bytes = seen.st_size
            if seen.st_size > self._left:
                entry.why = "there is no room for it: TRACKER_CODE_MAX_MB"
                return
            content = confined.read(Path(whole), root=Path(self.root), most=self._left)
        except OSError as error:
            pass_on(error)
            entry.why = error.strerror or str(error)
            return
        content, entry.masked = masked(content)
        entry.bytes, entry.digest, entry.kept = len(content), hashlib.sha256(content).hexdigest(), True
        if entry.digest not in self.contents:
            self._left -= len(content)
            self.contents[entry.digest] = content

    def end(self) -> SnapshotResult:
        if self._skipped:
            self.notes.append(f"{self._skipped:,} files more than {MOST_FILES:,} aren't kept")
        files = sorted(self.files.values(), key=lambda file: file.path)
        others = [path for path in self.untracked if path not in self.files]
        return SnapshotResult(files, self.contents, others, self.submodules, self.notes)


def take(
    root: str,
    modules: Iterable[Module],
    program: str,
    is_repository: bool,
    options: SnapshotOptions,
    earlier: Sequence[SourceFile] | None = None,
) -> SnapshotResult:
    """Take a snapshot.

    Args:
        root: the directory that own files lie below. modules: that were imported. program: the script's path, or
            ``-m package``. is_repository: it is the root of a git repository. earlier: what was taken while training
            ran already: it stays, for files may have been changed since, and only modules are added; None: nothing.
    """
    modules = list(modules)
    named = [Module("__main__", program)] if os.path.isabs(program) and not os.path.isdir(program) else []
    if any(module.path == program for module in modules):
        named = []
    paths = [(path, module) for module in [*modules, *named] if (path := _relative_path(module.path, root)) is not None]
    only = None if earlier is None else [path for path, _ in paths]
    snapshot = _Snapshot(root, options, earlier or (), only)
    if is_repository and not (only is not None and snapshot.files.keys() >= set(only)):
        _of_repository(snapshot, options)
    for path, module in paths:
        snapshot.add(path, IMPORTED, module if module.size >= 0 else None)
    return snapshot.end()


def _relative_path(path: str, root: str) -> str | None:
    """A file's path relative to the root; of a link the path of its target; None if it is outside."""
    if not is_below(path, root):
        return None
    real, top = os.path.realpath(path), os.path.realpath(root)
    if is_below(real, top):
        return os.path.relpath(real, top)
    return None


def _of_repository(snapshot: _Snapshot, options: SnapshotOptions) -> None:
    try:
        for path, letter in repository.changed_files(snapshot.root).items():
            if not os.path.isdir(os.path.join(snapshot.root, path)):  # a submodule
                snapshot.add(path, DELETED if letter == "D" else CHANGED)
        snapshot.submodules = repository.submodules(snapshot.root)
        others = repository.untracked(snapshot.root, whole=bool(options.untracked))
    except (OSError, subprocess.SubprocessError) as error:
        pass_on(error)
        snapshot.notes.append("git didn't say what isn't committed")
        return
    for path in others:
        whole = os.path.join(snapshot.root, path).rstrip("/")
        if whole == options.runs or is_below(whole, options.runs) or "__pycache__" in path.split("/"):
            continue
        if any(_matches(path, pattern) for pattern in options.untracked):
            snapshot.add(path, UNTRACKED)
        elif len(snapshot.untracked) < NAMED and _is_sound(path):
            snapshot.untracked.append(path)
    for path in snapshot.submodules:
        _of_submodule(snapshot, path, options)


def _of_submodule(snapshot: _Snapshot, path: str, options: SnapshotOptions) -> None:
    root = os.path.join(snapshot.root, path)
    if os.path.islink(root) or not os.path.lexists(os.path.join(root, ".git")):  # it isn't checked out
        return
    try:
        git_head.places(Path(root))
        snapshot.submodules[path] = repository.run_git(root, "rev-parse", "--verify", "HEAD").decode().strip()
        if options.submodules:
            for inner, letter in repository.changed_files(root).items():
                if not os.path.isdir(os.path.join(root, inner)):
                    snapshot.add(f"{path}/{inner}", DELETED if letter == "D" else CHANGED)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        pass_on(error)
        snapshot.notes.append(f"git didn't say what isn't committed in {path}")


def _matches(path: str, pattern: str) -> bool:
    """Whether a pattern matches a path: the whole path, its name, or a folder above it."""
    name = path.rstrip("/")
    folder = pattern.rstrip("/") + "/"
    return (
        fnmatch.fnmatchcase(name, pattern)
        or fnmatch.fnmatchcase(os.path.basename(name), pattern)
        or (name.startswith(folder))
    )


def _is_sound(path: str) -> bool:
    try:
        path.encode()
    except UnicodeError:
        return False
    return confined.is_inside(path.rstrip("/"))


def masked(content: bytes) -> tuple[bytes, list[int]]:
    """A file's content without secrets, and the numbers of the lines that had some."""
    if b"\0" in content:
        return content, []
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return content, []
    hidden = mask_source(text)
    if hidden == text:
        return content, []
    before, after = text.split("\n"), hidden.split("\n")
    differ = [number for number, (old, new) in enumerate(zip(before, after, strict=False), 1) if old != new]
    return hidden.encode(), differ if len(before) == len(after) else differ[:1]  # a private key of several lines
