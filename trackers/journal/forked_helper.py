"""Helper processes as forks of one that has loaded what they need, in the place of new interpreters. Linux only.

A fork becomes what a new interpreter would be: its environment, descriptors, session, signals and arguments are those
that it is given, and it ends as Python ends. It never returns into the code of its parent.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from trackers.support import descriptors, failpoints, processes, temporary_directories

Entry = Callable[[Sequence[str]], int]
"""What a helper does with its arguments; returns the exit code."""
PAUSE_S = 0.02


class ForkJob(msgspec.Struct, kw_only=True):
    """What a fork becomes.

    arguments: what its entry gets. environment: all of it. avoid: directories that must not be on its import path.
    session: it leads one of its own. nice: on top of its parent's. umask: -1 for its parent's. processors: on which it
    may run; empty for its parent's.
    """

    arguments: list[str]
    environment: dict[str, str]
    avoid: list[str] = []
    session: bool = True
    nice: int = 0
    umask: int = -1
    processors: list[int] = []


class Forked:
    """A fork of this process, with what is used of ``subprocess.Popen``."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._pidfd = processes.open_pidfd(pid)

    def poll(self) -> int | None:
        """Its exit code, negative for the signal that ended it; None while it runs."""
        if self.returncode is None:
            try:
                ended, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:  # somebody else asked for it
                ended, status = self.pid, 0
            if ended:
                self.returncode = os.waitstatus_to_exitcode(status)
                if self._pidfd >= 0:
                    os.close(self._pidfd)
                    self._pidfd = -1
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended.

        Raises:
            subprocess.TimeoutExpired: it runs after ``timeout`` seconds.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            left = 3600.0 if until is None else until - time.monotonic()
            if left <= 0:
                raise subprocess.TimeoutExpired([str(self.pid)], timeout or 0.0)
            if self._pidfd >= 0:
                descriptors.readable(self._pidfd, left)
            else:
                time.sleep(min(left, PAUSE_S))
        return code

    def terminate(self) -> None:
        """SIGTERM, if it runs."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL, if it runs."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if self.poll() is None:  # its pid isn't another's before it was asked for
            os.kill(self.pid, number)


def possible() -> bool:  # another thread's locks would stay locked in the fork
    """Whether this process can fork without harm: on Linux, while it has one thread only."""
    try:
        return sys.platform == "linux" and len(os.listdir("/proc/self/task")) == 1
    except OSError:
        return False


def fork(
    entry: Entry, start: ForkJob, *, log: int, passed: Mapping[int, int], library_fds: Collection[int] = ()
) -> Forked:
    """Fork a helper.

    Args:
        log: a descriptor that becomes its standard output and standard error.
        passed: descriptors that it gets: the number that it knows one by, and the one that it has here.
        library_fds: descriptors that libraries hold, which stay open; all others are closed.

    Raises:
        OSError: it can't be forked.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # no handler of the parent's in the fork
    try:
        pid = os.fork()
        if pid == 0:
            _become(entry, start, log, passed, library_fds)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return Forked(pid)


def fork_listener(
    entry: Entry, role: str, *more: str, library_fds: Collection[int] = ()
) -> tuple[Forked, socket.socket]:
    """Fork a helper that hears over a socket what to do, and prints nothing. Its arguments: role, socket, more.

    Args:
        library_fds: see :func:`fork`.

    Returns:
        the helper, and this process's end of the socket: one message at a time, never waited for.

    Raises:
        OSError: it can't be forked.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    log = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    number = theirs.fileno()
    start = ForkJob(arguments=[role, str(number), *more], environment=dict(os.environ))
    try:
        helper = fork(entry, start, log=log, passed={number: number}, library_fds=library_fds)
    except OSError:
        ours.close()
        raise
    finally:
        os.close(log)
        theirs.close()
    ours.setblocking(False)
    return helper, ours


def _become(entry: Entry, job: ForkJob, log: int, passed: Mapping[int, int], library_fds: Collection[int]) -> NoReturn:
    """Be a helper, to its end."""
    code = 1
    try:
        gc.freeze()  # what was made before isn't collected here: it holds descriptors that are closed below
        _set_descriptors(log, passed, library_fds)
        _reset(job)
        code = entry(job.arguments)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        with contextlib.suppress(BaseException):
            sys.excepthook(*sys.exc_info())
    finally:
        _end(code)


def _end(code: int) -> NoReturn:
    """End as Python does: threads that aren't daemons are waited for, what was registered for the end is done."""
    try:
        for last in (threading._shutdown, atexit._run_exitfuncs):  # type: ignore[attr-defined]
            with contextlib.suppress(Exception):
                last()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
    finally:
        os._exit(code & 0xFF)


def _set_descriptors(log: int, passed: Mapping[int, int], library_fds: Collection[int]) -> None:
    """Give each descriptor the number that the helper knows it by, and close all others."""
    import fcntl

    null = os.open(os.devnull, os.O_RDONLY)
    above = max((2, *passed, *library_fds)) + 1  # out of the way first: one's number may be another's old one
    high = {number: fcntl.fcntl(fd, fcntl.F_DUPFD, above) for number, fd in {0: null, 1: log, 2: log, **passed}.items()}
    kept_fds = {*library_fds, *high.values()}
    for number in map(int, os.listdir("/proc/self/fd")):
        if number not in kept_fds:
            with contextlib.suppress(OSError):
                os.close(number)
    for number, fd in high.items():
        if number in library_fds:
            raise OSError(f"descriptor {number} is a library's")
        os.dup2(fd, number)
        os.close(fd)


def _reset(start: ForkJob) -> None:
    """Undo what a new interpreter wouldn't have inherited, and take what it would."""
    if start.session:
        os.setsid()
    os.chdir(os.sep)
    if start.umask >= 0:
        os.umask(start.umask)
    if start.processors:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, start.processors)
    if start.nice:
        os.nice(start.nice)
    os.environ.clear()
    os.environ.update(start.environment)
    time.tzset()  # TZ may be another
    tempfile.tempdir = None  # so may TMPDIR
    temporary_directories.leave()
    sys.path[:] = [path for path in sys.path if path not in start.avoid]
    sys.argv[:] = ["-c", *start.arguments]
    failpoints.arm(os.environ.get("TRACKERS_FAILPOINT", ""))
    random.seed()  # forks of one state would draw the same numbers
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None and "random" in vars(numpy):
        numpy.random.seed()
    _show(start.arguments)
    signal.set_wakeup_fd(-1)  # the parent's, which is closed by now
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)) and number != signal.SIGINT:  # SIGINT: a new interpreter has Python's
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _show(arguments: Sequence[str]) -> None:
    """Have ``ps`` show a fork's own arguments, as far as its parent's command line has room."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        text = Path("/proc/self/stat").read_text()
        first, end = map(int, text[text.rindex(")") + 2 :].split()[45:47])
        words = [sys.executable, "-c", "trackers", *arguments]
        content = b"\0".join(map(os.fsencode, words))[: end - first - 1]
        fd = os.open("/proc/self/mem", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.pwrite(fd, content.ljust(end - first, b"\0"), first)
        finally:
            os.close(fd)
