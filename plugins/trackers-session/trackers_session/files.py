"""The five files of a session's directory: three growing logs, two summaries. NCCL's files are read here.

The summary's lists grow in files of their own in the run's directory (``session/``), from which the summary is put
together; so what is written stays in proportion to the run, and each file is whole at every moment.

NCCL's debug output (``NCCL_DEBUG``) is in growing files, one a rank (``trackers.training.environment``). NCCL's lines
say which host and process they are from, but no time, so they are passed on as they are.
https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-debug-file
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from trackers.backends.shared.append_file import (
    Digests,
    OwnedFile,
    file_name,
    remove_temporary,
    replace,
    unavailable,
    write_new,
)
from trackers.backends.shared.json_document import Lists
from trackers.support import confined

LOGS = ("main", "multigpu", "performance")
LISTS = ("training_metrics", "gpu_snapshots", "communication_logs")
TRAINING, SNAPSHOTS, COMMUNICATION = LISTS
MOST = 10_000
"""Sessions that began in one second."""
HEAD_BYTES = 4096
"""Bytes read to find which run a summary belongs to."""


class SessionFiles:
    """The files of one session.

    Args:
        root: where sessions' directories lie. run_id: whose it is. parts: where the lists grow.
        digests: of the files; see :class:`trackers.backends.shared.append_file.OwnedFile`.

    Attributes:
        name: the session's id, once it is known.
    """

    def __init__(self, root: Path, run_id: str, parts: Path, digests: Digests | None = None) -> None:
        self._root = root
        self._run_id_field = f'"run_id": {msgspec.json.encode(run_id).decode()},'.encode()
        self._beginning = f".training-{file_name(run_id)}."
        self._logs: dict[str, OwnedFile] = {}
        self.digests: Digests = {} if digests is None else digests
        self.lists = Lists(parts, LISTS, (), self.digests)
        self.name = ""

    @property
    def directory(self) -> Path:
        """The session's own."""
        return self._root / self.name

    def path(self, ending: str) -> Path:
        """One of its files: ``path("main.log")``."""
        return self.directory / f"{self.name}_{ending}"

    def reserve(self, created: float, content: Callable[[str], Iterable[bytes]]) -> str:
        """A name that no other session has, with a directory that already says whose it is.

        A process that was killed right after it had reserved a name finds the same one again.

        Args:
            created: when the run began. content: the first JSON summary, by the session's id.

        Raises:
            Unavailable: the directory can't be made.
        """
        stem = f"training_{datetime.fromtimestamp(created):%Y%m%d_%H%M%S}"
        for number in range(1, MOST):
            self.name = stem if number == 1 else f"{stem}_{number}"
            if self.is_ours():
                return self.name
            if not self.directory.exists() and self._make(content(self.name)):
                return self.name
        raise unavailable("make", self._root / stem, OSError("too many sessions have that name"))

    def _make(self, content: Iterable[bytes]) -> bool:
        """Make the directory with its summary in one step; False if another process was quicker."""
        self._remove_temporary()
        temporary = self._root / f"{self._beginning}{secrets.token_hex(8)}.tmp"
        name = self.path("summary.json").name
        written, _ = write_new(temporary / name, content, self._root)
        try:
            confined.replace(written, temporary / name, root=self._root)
            os.rename(temporary, self.directory)
        except OSError as error:
            self._remove_temporary()
            if self.directory.exists():
                return False
            raise unavailable("make", self.directory, error) from error
        return True

    def is_ours(self) -> bool:
        """Whether the directory of this name is this run's."""
        try:
            with confined.open_file(self.path("summary.json"), root=self._root) as summary:
                return self._run_id_field in summary.read(HEAD_BYTES)
        except OSError:
            return False

    def is_others(self) -> bool:
        """Whether the directory of this name is another run's."""
        return self.path("summary.json").exists() and not self.is_ours()

    def open(self, lengths: Mapping[str, int], lists: Mapping[str, int], generation: int) -> None:
        """Cut the logs and the lists back to what was committed.

        Raises:
            Damaged: a file is gone or shorter.
        """
        self.close()
        self._remove_temporary()
        for ending in ("summary.json", "summary.txt"):
            remove_temporary(self._temporary(ending))
        for log in LOGS:
            self._logs[log] = OwnedFile(self.path(f"{log}.log"), self._root, self.digests).open(lengths.get(log, 0))
        self.lists.open(lists, generation)

    def append(self, texts: Mapping[str, str], items: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        """Append to the logs and the lists, all or nothing.

        Raises:
            Unavailable: a file can't be written; all are as before.
        """
        before = self.lengths()
        try:
            for log, text in texts.items():
                if text:
                    self._logs[log].append(text.encode("utf-8", "replace"))
            for name, item in items:
                self.lists.add(name, item)
            self.lists.flush()
        except BaseException:
            self.lists.drop()
            for log, file in self._logs.items():
                file.truncate(before[log])
            raise

    def lengths(self) -> dict[str, int]:
        """Bytes of each log."""
        return {log: file.length for log, file in self._logs.items()}

    def save(self, head: Mapping[str, Any], text: str) -> None:
        """Replace both summaries.

        Args:
            head: what stands before the lists. text: for people.

        Raises:
            Unavailable: they can't be written; each is as before.
        """
        replace(self.path("summary.json"), self._temporary("summary.json"), self.pieces(head), self._root, self.digests)
        people = [text.encode("utf-8", "replace")]
        replace(self.path("summary.txt"), self._temporary("summary.txt"), people, self._root, self.digests)

    def paths(self) -> list[tuple[Path, Path]]:
        """All files that are there, each with the directory that it must lie beneath."""
        logs = [file.path for file in self._logs.values()]
        own = [*logs, self.path("summary.json"), self.path("summary.txt")]
        return [*((path, self._root) for path in own), *self.lists.paths()]

    def pieces(self, head: Mapping[str, Any]) -> Iterable[bytes]:
        """The JSON summary, in pieces."""
        return self.lists.pieces({"session": head}, {"version": 1}, {})

    def close(self) -> None:
        """Close all files."""
        for file in self._logs.values():
            file.close()
        self._logs = {}
        self.lists.close()

    def _temporary(self, ending: str) -> Path:
        return self.directory / f".{self.name}_{ending}.tmp"

    def _remove_temporary(self) -> None:
        with contextlib.suppress(OSError):
            for entry in os.listdir(self._root):
                if entry.startswith(self._beginning) and entry.endswith(".tmp"):
                    shutil.rmtree(self._root / entry, ignore_errors=True)


NCCL_FOLDER = "nccl"
NCCL_BLOCK_BYTES = 1 << 20
"""Read from a file at a time: with NCCL_DEBUG_SUBSYS=ALL they are large."""
_LEVEL = re.compile(r"\bNCCL (WARN|TRACE|ERROR)\b")
_LEVELS = {"WARN": logging.WARNING, "ERROR": logging.ERROR, "TRACE": logging.DEBUG}
_WHO = re.compile(r"nccl|gloo|mpi|ucc|collective|process ?group|watchdog|communicator|recv|rendezvous", re.IGNORECASE)
_TIMEOUT = re.compile(r"time[d ]*-?out", re.IGNORECASE)
_INITIALIZATION = re.compile(
    r"init_process_group|DistStoreError|DistNetworkError|rendezvous|TCPStore|ncclCommInit|NCCL(?:(?!NCCL).)*initiali[sz]"
    r"|initiali[sz](?:(?!initiali[sz]).)*(process ?group|NCCL|backend)|ncclUniqueId",
    re.IGNORECASE,
)


def gather_nccl(folders: Sequence[Path], offsets: dict[str, int], *, last: bool = False) -> list[str]:
    """Lines that have come since the last time, of one file, a block at most; [] when there are no more.

    Args:
        folders: folders in which files of the same name are the same. offsets: by file, what was read; it is changed.
        last: take a line that has no end yet, too.
    """
    for path in sorted((path for folder in folders for path in _files(folder)), key=lambda path: path.name):
        offset = offsets.get(path.name, 0)
        with contextlib.suppress(OSError), confined.open_file(path, root=path.parent) as file:
            file.seek(offset)
            block = file.read(NCCL_BLOCK_BYTES)
            whole = len(block) == NCCL_BLOCK_BYTES or last
            end = block.rfind(b"\n") + 1 or (len(block) if whole else 0)
            if end:
                offsets[path.name] = offset + end
                return block[:end].decode("utf-8", "replace").splitlines()
    return []


def _files(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if path.suffix == ".log" and not path.is_symlink()]
    except OSError:
        return []


def collect_nccl(folders: Sequence[Path], home: Path) -> None:
    """Move the files of an ended run to its own directory, so that they go where it goes."""
    for folder in folders:
        if folder == home:
            continue
        for path in _files(folder):
            with contextlib.suppress(OSError):  # another filesystem, a file that is gone: it stays where it is
                confined.make_folder(home)
                confined.move(path, home / path.name)
        with contextlib.suppress(OSError):
            folder.rmdir()
            folder.parent.rmdir()


def nccl_level(line: str) -> int:
    """The level of one of NCCL's lines."""
    match = _LEVEL.search(line)
    return _LEVELS[match[1]] if match else logging.INFO


def nccl_timeout(text: str) -> str:
    """The warning for a text about a collective that timed out; "" for any other text."""
    who, what = _WHO.search(text), _TIMEOUT.search(text)
    if who is None or what is None or not (_TIMEOUT.search(text, who.end()) or _WHO.search(text, what.end())):
        return ""
    return f"{'NCCL communication' if 'nccl' in text.lower() else 'Communication'} timeout: {text}"


def nccl_failed_start(text: str) -> str:
    """The error for an exception that says that ranks didn't connect; "" for any other."""
    return f"Distributed backend initialization failed: {text}" if _INITIALIZATION.search(text) else ""
