"""The process beside training that shows and keeps what is written to descriptors which training gave away.

Training's descriptors 1 and 2 are files in memory meanwhile (:mod:`trackers.training.console_descriptors`): who writes
to them waits for nobody, whatever happens to this process. It copies what is there to where it would have gone, and to
the run's spool. How far it has shown them is the offset of each file, which training goes on from should this process
die. What is shown and kept is taken out of memory.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from trackers.journal.console_spool import ConsoleSpool, forget_copying
from trackers.support import processes

BLOCK_BYTES = 64 * 1024
PIPE_BYTES = 4096
"""Bytes that a pipe takes at once when it says that it takes any (pipe(7), PIPE_BUF)."""
PAUSE_S = (0.002, 0.05)
"""Pause while there is no output, at first and at most, in seconds."""
QUIET_S = 0.3
"""Time without output after which, once training has exited, no child of it is taken to print, in seconds."""
BEHIND_BYTES = 64 * 1024 * 1024
"""Maximum number of bytes that wait for a reader that doesn't read; older ones aren't shown."""
END, ENDED = b"e", b"k"


class GivenStream(msgspec.Struct):
    """name: of the stream. memory: descriptor of the file in memory. target: of where it goes."""

    name: str
    memory: int
    target: int


class TeeTask(msgspec.Struct):
    """pid, pid_start: of training. folder, rank, attempt, most_bytes: of the spools. bell: a socket to training."""

    pid: int
    pid_start: float
    folder: str
    rank: int
    attempt: int
    most_bytes: int
    bell: int
    streams: list[GivenStream]


class CopiedStream:
    """Copies one stream to its target and to the spool.

    Args:
        keep: called with bytes for the spool.
    """

    def __init__(self, stream: GivenStream, keep: Callable[[bytes], None]) -> None:
        self._memory = stream.memory
        self._target = stream.target
        self._keep = keep
        self._shown = os.lseek(stream.memory, 0, os.SEEK_CUR)
        self._kept = self._shown
        self._freed = 0

    def move(self) -> bool:
        """Copy one block to each. False if there was nothing to do now."""
        size = os.fstat(self._memory).st_size
        moved = False
        if self._kept < size:
            data = os.pread(self._memory, BLOCK_BYTES, self._kept)
            self._keep(data)
            self._kept += len(data)
            moved = bool(data)
        if self._shown < size:
            moved = self._show(size) or moved
        self._free()
        return moved

    def _show(self, size: int) -> bool:
        if size - self._shown > BEHIND_BYTES:
            self._shown = size - BEHIND_BYTES // 2
        moved = False
        while self._shown < size and self._is_writable():
            data = os.pread(self._memory, min(PIPE_BYTES, size - self._shown), self._shown)
            try:
                self._shown += os.write(self._target, data)
            except BlockingIOError:
                break
            except OSError:  # nobody reads it any more
                self._shown = size
            os.lseek(self._memory, self._shown, os.SEEK_SET)
            moved = True
        return moved

    def _is_writable(self) -> bool:
        poller = select.poll()
        poller.register(self._target, select.POLLOUT)
        return bool(poller.poll(0))

    def _free(self) -> None:
        end = min(self._shown, self._kept) // BLOCK_BYTES * BLOCK_BYTES
        if end > self._freed:
            _punch(self._memory, self._freed, end - self._freed)
            self._freed = end


def _punch(fd: int, offset: int, size: int) -> None:
    """Free the memory of a range of a file without changing its length."""
    import ctypes

    keep_size_and_punch_hole = 0x01 | 0x02
    library = ctypes.CDLL(None)
    library.fallocate(fd, keep_size_and_punch_hole, ctypes.c_long(offset), ctypes.c_long(size))


def serve(task: TeeTask) -> int:
    """Copy until training has exited and there is no more output. Returns the exit code."""
    last: list[object] = [None]
    spools = [
        ConsoleSpool(Path(task.folder), task.rank, task.attempt, stream.name, task.most_bytes, last)
        for stream in task.streams
    ]
    keeping = True

    def keep(spool: ConsoleSpool) -> Callable[[bytes], None]:
        def add(data: bytes) -> None:
            if keeping:
                spool.add(data)
                spool.flush()

        return add

    streams = [CopiedStream(stream, keep(spool)) for stream, spool in zip(task.streams, spools, strict=True)]
    bell = socket.socket(fileno=task.bell)
    bell.setblocking(False)
    pause, quiet_since = PAUSE_S[0], time.monotonic()
    while True:
        if _move(streams):
            pause, quiet_since = PAUSE_S[0], time.monotonic()
            continue
        if keeping and _was_asked_to_end(bell):
            while _move(streams):  # what was written before it asked
                pass
            keeping = False
            for spool in spools:
                spool.close()
            forget_copying(Path(task.folder), task.rank, task.attempt)
            with contextlib.suppress(OSError):
                bell.send(ENDED)
        if time.monotonic() - quiet_since > QUIET_S and not processes.alive(task.pid, task.pid_start):
            break
        time.sleep(pause)
        pause = min(PAUSE_S[1], 1.5 * pause)
    for spool in spools:
        spool.close()
    forget_copying(Path(task.folder), task.rank, task.attempt)
    return 0


def _move(streams: list[CopiedStream]) -> bool:
    """Copy one block of each stream. False if there was nothing to do."""
    return sum(stream.move() for stream in streams) > 0


def _was_asked_to_end(bell: socket.socket) -> bool:
    try:
        return bell.recv(1) == END
    except OSError:
        return False
