"""What a process prints, on its way into the journal: files of plain bytes that the relay reads and removes.

A process appends what it prints to ``console/<rank>.<attempt>.<stream>.<where it begins>``, one ``write`` for a
line, so that it is there though the process is killed. The relay folds it into lines, masks what is secret and appends
records to the journal's stream ``console-<rank>.<attempt>`` (:mod:`trackers.relay.console_collector`). Until then it is
raw, so only its owner may read it. A file that has reached :data:`SEGMENT_BYTES` is followed by the next one; of those
that nobody takes, the oldest are removed, so that the last lines before a death are there whatever came before.

Beside each file lies ``….times``: pairs of Unix seconds and the offset of what was written then.
"""

from __future__ import annotations

import os
import re
import struct
import threading
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from trackers.support import confined
from trackers.support.descriptors import identity, open_high
from trackers.support.interruption import pass_on, suppress

SEGMENT_BYTES = 4 * 1024 * 1024
TIME = struct.Struct("<dQ")
TIME_S = 0.05
"""Between two times that are noted."""
TIMES = ".times"
TIMES_BYTES = 1 << 20
"""Of them, that are read at once."""
STREAMS = ("stdout", "stderr", "output")
RETRY_S = 1.0
MOST_PARTS = 256
"""Parts of a line that are kept for its end."""
ENDED = ".ended"

_NAME = re.compile(
    rf"(?P<rank>\d{{1,9}})\.(?P<attempt>\d{{1,9}})\.(?P<source>(?P<stream>{'|'.join(STREAMS)})(?:-\d{{1,10}})?)"
    r"\.(?P<start>\d{15})"
)


class SegmentName(NamedTuple):
    """rank, attempt: whose. source: the stream, and the process where it isn't the one that made the run."""

    rank: int
    attempt: int
    source: str
    start: int

    @classmethod
    def parse(cls, text: str) -> SegmentName | None:
        match = _NAME.fullmatch(text)
        return match and cls(int(match["rank"]), int(match["attempt"]), match["source"], int(match["start"]))

    def __str__(self) -> str:
        return f"{self.rank}.{self.attempt}.{self.source}.{self.start:015d}"

    @property
    def stream(self) -> str:
        return self.source.partition("-")[0]


def segments(folder: Path) -> list[SegmentName]:
    """The files in a folder, by rank, attempt, source and start."""
    try:
        entries = os.listdir(folder)
    except OSError as error:
        pass_on(error)
        return []
    return sorted(name for entry in entries if (name := SegmentName.parse(entry)) is not None)


def next_attempt(folder: Path, rank: int) -> int:
    """A number for what a rank prints that no earlier process of it has used there."""
    return max((name.attempt for name in segments(folder) if name.rank == rank), default=0) + 1


def has_ended(folder: Path, name: SegmentName) -> bool:
    """Whether the process has recorded that it prints no more."""
    return (folder / f"{name.rank}.{name.attempt}{ENDED}").exists()


def say_ended(folder: Path, rank: int, attempt: int) -> None:
    """Record that a process prints no more, if it has printed anything."""
    with suppress(OSError):
        if folder.is_dir():
            confined.touch(folder / f"{rank}.{attempt}{ENDED}")


def forget_ends(folder: Path) -> None:
    """Remove the records of ended processes that have no files left, and the folder if it is empty."""
    remaining = {name[:2] for name in segments(folder)}
    with suppress(OSError):
        for entry in os.listdir(folder):
            words = entry.removesuffix(ENDED).split(".")
            if entry.endswith(ENDED) and tuple(int(word) for word in words if word.isdecimal()) not in remaining:
                confined.remove(folder / entry)
        folder.rmdir()


def remove(folder: Path, name: SegmentName) -> None:
    """Remove a file that was read, and its times."""
    for path in (folder / str(name), folder / f"{name}{TIMES}"):
        with suppress(OSError):
            confined.remove(path)


def read_times(path: Path, offset: int = 0) -> list[tuple[float, int]]:
    """Times and offsets of what a file holds, from an offset in its list on; [] where there are none."""
    try:
        with confined.open_file(Path(f"{path}{TIMES}")) as file:
            file.seek(offset)
            content = file.read(TIMES_BYTES)
    except OSError as error:
        pass_on(error)
        return []
    return list(TIME.iter_unpack(content[: len(content) // TIME.size * TIME.size]))


class PrintedFile(msgspec.Struct):
    """A regular file that a stream of a process is: nothing need be put between, the relay reads it.

    fd: the process's descriptor. path, device, inode: of the file. begin: where the run began in it. end: where it
    ended.
    """

    fd: int
    path: str
    device: int
    inode: int
    begin: int
    end: int | None = None


def _note(folder: Path, rank: int, attempt: int) -> Path:
    return folder / f"{rank}.{attempt}.files.json"


def note_files(folder: Path, rank: int, attempt: int, files: Mapping[str, PrintedFile]) -> None:
    """Record which streams of a process are files.

    Raises:
        OSError: it can't be written.
    """
    confined.make_own(folder.parent)
    confined.make_folder(folder)
    confined.write_whole(_note(folder, rank, attempt), msgspec.json.encode(files))


def noted_files(folder: Path, rank: int, attempt: int) -> dict[str, PrintedFile]:
    """A process's streams that are files, by :func:`note_files`; {} where it recorded none."""
    try:
        files = msgspec.json.decode(
            confined.read(_note(folder, rank, attempt), most=10_000), type=dict[str, PrintedFile]
        )
    except (OSError, ValueError) as error:
        pass_on(error)
        return {}
    return {stream: file for stream, file in files.items() if stream in STREAMS}


def forget_files(folder: Path, rank: int, attempt: int) -> None:
    """Remove the record of :func:`note_files`."""
    with suppress(OSError):
        confined.remove(_note(folder, rank, attempt))


COPYING = ".copying"


def say_copying(folder: Path, rank: int, attempt: int) -> None:
    """Record that another process copies here what a process prints (:mod:`trackers.relay.console_tee`).

    Raises:
        OSError: it can't be written.
    """
    confined.make_own(folder.parent)
    confined.make_folder(folder)
    confined.touch(folder / f"{rank}.{attempt}{COPYING}")


def forget_copying(folder: Path, rank: int, attempt: int) -> None:
    """Remove the record of :func:`say_copying`: all output has been copied."""
    with suppress(OSError):
        confined.remove(folder / f"{rank}.{attempt}{COPYING}")


def copying(folder: Path, rank: int, attempt: int) -> bool:
    """Whether another process may still copy output here."""
    return (folder / f"{rank}.{attempt}{COPYING}").exists()


class ConsoleSpool:
    """Appends what one stream of a process prints. No method raises.

    Args:
        folder: the run's, or the launch's, folder for it; made at the first write.
        rank, attempt: as in the names of files. stream: "stdout" or "stderr".
        most_bytes: of files that nobody takes.
        last: which of several spools was written to last: for where they share it, the order among them is known.
        beside: of another rank, whose files the relay may remove at any time.
    """

    def __init__(
        self, folder: Path, rank: int, attempt: int, stream: str, most_bytes: int, last: list[Any] | None = None,
        beside: bool = False,
    ) -> None:  # fmt: skip
        self._folder = folder
        self._name = SegmentName(rank, attempt, stream, 0)
        self._segments = max(2, most_bytes // SEGMENT_BYTES)
        self._parts: deque[str | bytes] = deque()
        self._lock = threading.Lock()
        self._last: list[Any] = [None] if last is None else last
        self._fd = self._times = -1
        self._file = self._times_file = (-1, -1)
        self._size = 0
        self._timed = self._tried = 0.0
        self._pid = os.getpid()
        self._closed, self._beside = False, beside

    def add(self, part: str | bytes) -> None:
        """Take what was printed; it is written with the end of its line, and when it is flushed."""
        self._parts.append(part)
        ends = ("\n" in part or "\r" in part) if isinstance(part, str) else (b"\n" in part or b"\r" in part)
        if ends or len(self._parts) > MOST_PARTS:
            self.flush()

    def flush(self) -> None:
        """Write what was taken. While another thread does, or a signal came meanwhile, that takes this along."""
        while self._parts and self._lock.acquire(blocking=False):
            try:
                self._append(self._join_parts())
            finally:
                self._lock.release()

    def _append(self, data: bytes) -> None:
        if not data or self._closed:
            return
        now = time.time()
        if self._fd < 0 or self._size >= SEGMENT_BYTES:
            self._next(now)
            if self._fd < 0:
                return
        try:
            if now - self._timed >= TIME_S or now < self._timed or self._last[0] is not self:  # the clock was set back
                self._timed, self._last[0] = now, self
                if identity(self._fd) != self._file or identity(self._times) != self._times_file:
                    self._close_files()  # this program closed them: their numbers may be other files' by now
                    return
                self._put_back()
                os.write(self._times, TIME.pack(now, self._name.start + self._size))
            self._size += os.write(self._fd, data)
        except OSError as error:  # a full disk
            pass_on(error)
            self._close_files()

    def after_fork(self) -> None:
        """In a forked child: what was taken is the parent's to write, and the child has files of its own."""
        self._parts.clear()
        self._lock = threading.Lock()
        self._close_files()
        self._pid = os.getpid()
        self._tried = self._timed = 0.0
        self._name = self._name._replace(source=f"{self._name.stream}-{self._pid}", start=0)
        self._size = 0

    def close(self) -> None:
        """Write what is left, and take nothing more."""
        self.flush()
        with suppress(OSError):
            self._put_back()
        self._closed = True
        self._close_files()

    def _join_parts(self) -> bytes:
        parts = []
        while True:
            try:
                part = self._parts.popleft()
            except IndexError:
                break
            parts.append(part if isinstance(part, bytes) else part.encode("utf-8", "backslashreplace"))
        return b"".join(parts)

    def _next(self, now: float) -> None:
        """Begin the next file."""
        if now - self._tried < RETRY_S and self._fd < 0 and self._tried:  # a full disk isn't asked at each line
            return
        self._tried = now
        start = self._name.start + self._size
        self._close_files()
        self._name, self._size = self._name._replace(start=start), 0
        try:
            self._forget_oldest()
            self._open()
            self._size, self._timed = os.fstat(self._fd).st_size, 0.0  # each file says when it begins
        except OSError as error:
            pass_on(error)
            self._close_files()

    def _open(self) -> None:
        confined.make_own(self._folder.parent)
        confined.make_folder(self._folder)
        path, flags = self._folder / str(self._name), os.O_RDWR | os.O_APPEND | os.O_CREAT
        self._times = open_high(Path(f"{path}{TIMES}"), flags, _private)
        self._fd = open_high(path, flags, _private)
        self._file, self._times_file = identity(self._fd), identity(self._times)

    def _put_back(self) -> None:
        """Write files that somebody deleted or moved anew, whole; a forked child's go when the run ends."""
        path, left = self._folder / str(self._name), (self._times, self._fd)
        if self._fd < 0 or self._beside or self._name.source != self._name.stream or path.exists():
            return
        try:
            self._open()
            for old, fresh in zip(left, (self._times, self._fd), strict=True):
                for begin in range(0, os.fstat(old).st_size, SEGMENT_BYTES):
                    os.write(fresh, os.pread(old, SEGMENT_BYTES, begin))
        finally:
            for old in {*left} - {self._times, self._fd}:
                os.close(old)

    def _forget_oldest(self) -> None:
        own = [name for name in segments(self._folder) if name[:3] == self._name[:3]]
        for name in own[: max(0, len(own) + 1 - self._segments)]:
            remove(self._folder, name)

    def _close_files(self) -> None:
        for fd, file in ((self._fd, self._file), (self._times, self._times_file)):
            if fd >= 0 and (file == (-1, -1) or identity(fd) == file):
                with suppress(OSError):
                    os.close(fd)
        self._fd = self._times = -1
        self._file = self._times_file = (-1, -1)


def _private(path: Path | str, flags: int, mode: int) -> int:
    return confined.open_fd(path, flags, 0o600)
