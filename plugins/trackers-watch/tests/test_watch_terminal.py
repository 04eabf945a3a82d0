"""``trackers watch`` in a real terminal: live values, keys, signals; the terminal is as it was afterwards."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable

import pytest

from tests import forked
from trackers.support.descriptors import readable
from trackers.training.run import Run

ENDS: dict[str, Callable[[int, subprocess.Popen[str]], object]] = {
    "q": lambda terminal, process: os.write(terminal, b"q"),
    "Ctrl-C": lambda terminal, process: os.write(terminal, b"\x03"),
    "SIGTERM": lambda terminal, process: process.send_signal(signal.SIGTERM),
}


def read_until(terminal: int, word: str, seen: str = "") -> str:
    """Read what a program writes until a word of it comes."""
    until = time.monotonic() + 60
    while word not in seen:
        assert time.monotonic() < until, seen[-2000:]
        if readable(terminal, 0.1):
            seen += os.read(terminal, 65536).decode(errors="replace")
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("end", ENDS)
def test_live_run_in_a_terminal(end: str, run: Run) -> None:
    """What is logged meanwhile is shown; the screen, the cursor and the line discipline are given back."""
    run.log({"loss": 1.0}, step=0)
    terminal, inside = pty.openpty()
    fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    before = termios.tcgetattr(inside)
    words = [sys.executable, "-m", "trackers", "watch", run.path]
    environment = {**os.environ, "TERM": "screen-256color", "COLORTERM": ""}
    process = forked.Program(words, stdin=inside, stdout=inside, stderr=inside, env=environment)
    try:
        seen = read_until(terminal, "running")
        run.log({"loss": 0.5}, step=4321)
        seen = read_until(terminal, "4,321", seen)
        assert "\x1b[?1049h" in seen
        assert "38;2;" not in seen  # no true colour where the terminal has none
        ENDS[end](terminal, process)
        seen = read_until(terminal, "\x1b[?1049l", seen)
        assert process.wait(60) == 0
        seen += os.read(terminal, 65536).decode(errors="replace") if readable(terminal, 0) else ""
        assert "\x1b[?25h" in seen
        assert termios.tcgetattr(inside) == before
    finally:
        process.kill()
        process.wait(60)
        os.close(terminal)
        os.close(inside)
