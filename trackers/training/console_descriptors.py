"""Descriptors 1 and 2 given away, so that what C libraries and other programs write to them is kept, too.

Each becomes a file in memory (memfd_create(2)), which a process beside training copies to where the output went before
and to the run's spool (:mod:`trackers.relay.console_tee`). A write to such a file waits for nobody and fails for
nobody's death: should the process die, training shows the rest itself and takes its descriptors back. Children inherit
them as they would the others.

A terminal isn't given away: programs ask whether it is one, and how wide. Nor is a regular file, which can be read.
"""

from __future__ import annotations

import os
import socket
import stat
import sys
from typing import Any

from trackers.journal import helper_process
from trackers.journal.console_spool import forget_copying, say_copying
from trackers.journal.run_directory import RunDirectory
from trackers.relay.console_tee import END, GivenStream, TeeTask
from trackers.relay.parts.plans import arguments
from trackers.support import processes
from trackers.support.descriptors import Descriptor, open_high
from trackers.support.interruption import pass_on, suppress

END_S = 5.0
"""Maximum wait at the end for what was printed to be shown and kept, in seconds."""
BLOCK_BYTES = 64 * 1024


class _Redirection:
    """One of the two descriptors, or both where they lead to the same file, redirected to a file in memory.

    Attributes:
        fds: their numbers. before: what they led to. memory: the file in memory.
    """

    def __init__(self, name: str, fds: list[int]) -> None:
        self.name = name
        self.fds = fds
        self.before = Descriptor(os.dup(fds[0]))
        made = os.memfd_create(f"trackers-{name}", os.MFD_CLOEXEC)
        try:
            self.memory = open_high(f"/proc/self/fd/{made}", os.O_RDWR)
            self._append = open_high(f"/proc/self/fd/{made}", os.O_WRONLY | os.O_APPEND)
        finally:
            os.close(made)

    def redirect(self) -> None:
        for fd in self.fds:
            os.dup2(self._append, fd)

    def restore(self) -> None:
        """Where somebody has put another file in its place meanwhile, that stays."""
        ours = os.fstat(self.memory)
        for fd in self.fds:
            with suppress(OSError):
                if os.path.samestat(os.fstat(fd), ours):  # the script may have put another one there
                    os.dup2(self.before.number, fd)

    def show_rest(self) -> None:
        """Write what the process that died hadn't shown."""
        with suppress(OSError):
            while data := os.read(self.memory, BLOCK_BYTES):
                while data:
                    data = data[os.write(self.before.number, data) :]

    def close(self) -> None:
        self.before.close()
        for fd in (self.memory, self._append):
            with suppress(OSError):
                os.close(fd)


class DescriptorCapture:
    """Gives them away for one run. No method raises.

    Args:
        run: whose. rank, attempt, most_bytes: of the spools.

    Attributes:
        taken: the streams whose output is kept.
    """

    def __init__(self, run: RunDirectory, rank: int, attempt: int, most_bytes: int) -> None:
        self._run = run
        self._rank, self._attempt, self._most_bytes = rank, attempt, most_bytes
        self._pid = os.getpid()
        self._redirections: list[_Redirection] = []
        self._helper: Any = None
        self._bell: socket.socket | None = None
        self.stream_names: frozenset[str] = frozenset()

    def begin(self) -> None:
        """Give those away that are pipes or sockets."""
        if not hasattr(os, "memfd_create"):  # macOS
            return
        try:
            for name, fds in _pipes():
                self._redirections.append(_Redirection(name, fds))
            if self._redirections:
                say_copying(self._run.console, self._rank, self._attempt)
                self._start()
                _flush()
                for redirection in self._redirections:
                    redirection.redirect()
                self.stream_names = frozenset(
                    name for redirection in self._redirections for name in _names(redirection)
                )
        except (OSError, ValueError) as error:
            pass_on(error)
            self._leave(shown=False)

    def poll(self) -> None:
        """Restore the descriptors if the helper that shows what is printed has ended."""
        if self._redirections and os.getpid() == self._pid and self._helper.poll() is not None:
            self._leave(shown=False)

    def end(self) -> None:
        """Restore the descriptors, once what was printed is shown and kept."""
        if not self._redirections or os.getpid() != self._pid:
            return
        _flush()
        for redirection in self._redirections:
            redirection.restore()
        shown = False
        if self._bell is not None and self._helper.poll() is None:
            with suppress(OSError):
                self._bell.settimeout(END_S)
                self._bell.send(END)
                shown = bool(self._bell.recv(1))
        self._leave(shown=shown or self._helper.poll() is None)

    def _start(self) -> None:
        own, theirs = socket.socketpair()
        with theirs:
            self._bell = own
            task = TeeTask(
                pid=self._pid, pid_start=processes.process_start(self._pid), folder=str(self._run.console.absolute()),
                rank=self._rank, attempt=self._attempt, most_bytes=self._most_bytes, bell=theirs.fileno(),
                streams=[GivenStream(entry.name, entry.memory, entry.before.number) for entry in self._redirections],
            )  # fmt: skip
            fds = [
                theirs.fileno(),
                *(fd for redirection in self._redirections for fd in (redirection.memory, redirection.before.number)),
            ]
            words = arguments("tee", self._run.path.absolute(), task)
            self._helper = helper_process.start(self._run, words, pass_fds=tuple(fds), fresh=True, detached=True)

    def _leave(self, shown: bool = True) -> None:
        for redirection in self._redirections:
            redirection.restore()
            if not shown:
                redirection.show_rest()
            redirection.close()
        self._redirections = []
        if not shown:
            forget_copying(self._run.console, self._rank, self._attempt)
        if self._bell is not None:
            self._bell.close()
            self._bell = None


def _pipes() -> list[tuple[str, list[int]]]:
    """Which of the descriptors are pipes or sockets; as one where they are the same."""
    pipes: list[tuple[str, int, os.stat_result]] = []
    for name, fd in (("stdout", 1), ("stderr", 2)):
        with suppress(OSError):
            status = os.fstat(fd)
            if stat.S_ISFIFO(status.st_mode) or stat.S_ISSOCK(status.st_mode):
                pipes.append((name, fd, status))
    if len(pipes) == 2 and os.path.samestat(pipes[0][2], pipes[1][2]):  # 2>&1
        return [("output", [1, 2])]
    return [(name, [fd]) for name, fd, _ in pipes]


def _names(redirection: _Redirection) -> list[str]:
    return ["stdout", "stderr"] if redirection.name == "output" else [redirection.name]


def _flush() -> None:
    """Have what Python and the C library hold written."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    with suppress(Exception):
        import ctypes

        ctypes.CDLL(None).fflush(None)
