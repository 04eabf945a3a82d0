"""Helpers that are nobody's children: what training's own waiting for children sees is what it would see without them.

A script may wait until it has no child left (``os.wait``), count its children, or have a handler of SIGCHLD. So a
helper is started by a shell that ends at once; training waits for that one, and hears no SIGCHLD meanwhile. The helper
says over a pipe who it is and, at its end, its exit code; where the pipe ends without one, it was killed.

Where training itself inherits orphans, because it is a container's first process or asked for them
(``PR_SET_CHILD_SUBREAPER``), it inherits these, too.
"""

from __future__ import annotations

import contextlib
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from trackers.support import descriptors, processes
from trackers.support.clock import monotonic
from trackers.support.descriptors import Descriptor
from trackers.support.interruption import pass_on, suppress

WAIT_S = 0.02
NAME = struct.Struct("!id")
"""A helper's pid and start time (``processes.process_start``); 0, 0.0: it couldn't be started. A later name replaces
it: the helper has handed its work over."""
CODE = struct.Struct("!i")
"""The last message: the exit code."""
LINE = "TRACKER_HELPER_LINE"
"""Environment variable with the descriptor over which a helper says who it is and how it ended."""
KILLED = -9
"""What counts as the exit code of a helper that ended without saying one."""
_PYTHON = (sys.executable, "-ISc", "import os, sys\nos.posix_spawn(sys.argv[1], sys.argv[1:], os.environ)")
PARENT = ("/bin/sh", "-c", '"$@" &', "sh") if os.path.exists("/bin/sh") else _PYTHON  # images without a shell
"""The command before a helper's, which starts it and ends."""
_SIGACTION_BYTES = 512
"""More than ``struct sigaction`` has on any system."""


class KnownHelper:
    """A helper that another process started, known by its pid and start."""

    def __init__(self, pid: int, start: float) -> None:
        self.pid = pid
        self._start = start
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """0 once it has ended."""
        if not processes.alive(self.pid, self._start):
            self.returncode = 0
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Wait until it has ended; returns the exit code.

        Raises:
            subprocess.TimeoutExpired: it runs after ``timeout`` seconds.
        """
        until = monotonic() + timeout
        while (code := self.poll()) is None:
            remaining_s = until - monotonic()
            if remaining_s <= 0:
                raise subprocess.TimeoutExpired([str(self.pid)], timeout)
            self._pause(min(remaining_s, WAIT_S))
        return code

    def terminate(self) -> None:
        """SIGTERM, if it runs and has said who it is."""
        self.send(signal.SIGTERM)

    def send(self, number: int) -> None:
        """Send a signal, if it runs and has said who it is."""
        if self.poll() is None and processes.alive(self.pid, self._start):  # its pid may be another's by now
            with suppress(OSError):
                os.kill(self.pid, number)

    def _pause(self, seconds: float) -> None:
        time.sleep(seconds)


class DetachedHelper(KnownHelper):
    """A helper that says over a line who it is and how it ended.

    Args:
        line: what it writes to can be read here; owned by this object.
    """

    def __init__(self, line: int) -> None:
        super().__init__(0, 0.0)
        os.set_blocking(line, False)
        self._line: Descriptor | None = Descriptor(line)
        self._owner = os.getpid()
        self._received = b""
        self._code: int | None = None
        self._is_named = False

    def poll(self) -> int | None:
        """Its exit code once it has ended; :data:`KILLED` if it said none."""
        if self.returncode is None:
            self._receive()
            self.returncode = self._exit_code()
            if self.returncode is not None:
                self._close()
        return self.returncode

    def _pause(self, seconds: float) -> None:
        if self._line is None:
            time.sleep(seconds)
        else:  # it says so
            descriptors.readable(self._line.number, seconds)

    def _receive(self) -> None:
        if os.getpid() != self._owner:  # a fork of this process: what it read here would be missing there
            return
        while self._line is not None:
            received = b""
            if self._line.own():  # training may have closed it, and its number may be of another file
                try:
                    received = os.read(self._line.number, 64)
                except BlockingIOError:
                    break
                except OSError as error:  # as at the end
                    pass_on(error)
            self._received += received
            if not received:
                self._close()
        while len(self._received) >= NAME.size:
            self.pid, self._start = NAME.unpack_from(self._received)
            self._received = self._received[NAME.size :]
            self._is_named = True
        if len(self._received) >= CODE.size:
            self._code = int(CODE.unpack_from(self._received)[0])

    def _exit_code(self) -> int | None:
        if self._code is not None:
            return self._code
        if self._line is not None or processes.alive(self.pid, self._start):
            return None
        return KILLED

    def _close(self) -> None:
        if self._line is not None:
            with suppress(OSError):
                self._line.close()
            self._line = None


def start(
    words: Sequence[str], *, log: IO[bytes], environment: Mapping[str, str], pass_fds: Sequence[int] = ()
) -> DetachedHelper:
    """Start a helper that is no child of this process, in a session of its own.

    Args:
        words: its command line. log: its standard output and error. pass_fds: descriptors that it inherits.

    Raises:
        OSError: it can't be started.
    """
    reading, writing = os.pipe()
    helper = DetachedHelper(reading)
    try:
        with unnoticed(), subprocess.Popen(
            [*PARENT, *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=os.sep,
            env={**environment, LINE: str(writing)}, start_new_session=True, pass_fds=(*pass_fds, writing),
        ) as parent:  # fmt: skip
            code = parent.wait()
        if code:
            raise OSError(f"{PARENT[0]} can't start it (exit code {code})")
    except BaseException:
        helper._close()
        raise
    finally:
        os.close(writing)
    return helper


@contextlib.contextmanager
def unnoticed() -> Iterator[None]:
    """What this process starts and waits for in here causes no SIGCHLD that it notices.

    The C library's handler is taken away meanwhile, whoever installed it: Python's own, in whichever thread it would be
    called, or a library's. If another child has ended meanwhile, SIGCHLD is sent again.
    """
    before = _take_handler()
    if before is None:
        yield
        return
    try:
        yield
    finally:
        _set_handler(before)
        with suppress(ChildProcessError):
            changes = os.WEXITED | os.WSTOPPED | os.WCONTINUED
            if os.waitid(os.P_ALL, 0, changes | os.WNOHANG | os.WNOWAIT) is not None:
                os.kill(os.getpid(), signal.SIGCHLD)


def _take_handler() -> bytes | None:
    """Have SIGCHLD's default action done; returns what was done before, or None where it is the default already."""
    if sys.platform == "linux":  # Python doesn't know of a C library's handler
        with suppress(OSError, ValueError):
            status = Path("/proc/self/status").read_text()
            caught = int(status[status.index("\nSigCgt:") + 8 :].split(maxsplit=1)[0], 16)
            if not caught & 1 << (signal.SIGCHLD - 1):
                return None
    elif not callable(signal.getsignal(signal.SIGCHLD)):
        return None
    return _set_handler(bytes(_SIGACTION_BYTES))


def _set_handler(action: bytes) -> bytes:
    """Set a ``struct sigaction`` for SIGCHLD; returns the earlier one. All zeros are the default action."""
    import ctypes

    before = ctypes.create_string_buffer(_SIGACTION_BYTES)
    ctypes.CDLL(None).sigaction(int(signal.SIGCHLD), action, before)
    return before.raw


def introduce(line: int) -> None:
    """Be a detached helper: lead a session, and say over the line who this is."""
    os.set_inheritable(line, False)  # children that outlive it would keep the line open
    with contextlib.suppress(OSError):  # it leads one already
        os.setsid()
    say_name(line, os.getpid(), processes.process_start(os.getpid()))


def say_name(line: int, pid: int, start: float) -> None:
    """Say over a line who the helper is."""
    with contextlib.suppress(OSError):  # training has ended
        os.write(line, NAME.pack(pid, start))


def say_code(line: int, code: int) -> None:
    """Say over a line how the helper ended: its last word."""
    with contextlib.suppress(OSError):
        os.write(line, CODE.pack(code))
