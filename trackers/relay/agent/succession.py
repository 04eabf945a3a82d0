"""Replacing a hung agent: its successor asks it first, and has the time to wait for an answer."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from pathlib import Path

from trackers.relay.agent import endpoint
from trackers.relay.agent.client import BUSY, READY
from trackers.support import descriptors, processes

ANSWER_S = 15.0
"""Time after which an agent that listens and doesn't answer is killed, in seconds."""
END_S = 5.0
"""Maximum wait for its end, in seconds: a process blocked on a filesystem doesn't die at once."""


def end_hung(folder: int, directory: str, name: str) -> bool:
    """Kill the agent of a name if it listens and doesn't answer; True if the name is free then.

    It may have resumed meanwhile, on a machine that was suspended or overloaded. Relays that it forked don't need it.

    Args:
        folder: descriptor of the directory where it listens.
    """
    pid = 0
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.settimeout(ANSWER_S)
        try:
            line.connect(endpoint.address(folder, name))
            if endpoint.peer(line) == os.geteuid():
                pid = endpoint.peer_pid(line)
            return line.recv(1) not in (READY, BUSY)
        except TimeoutError:  # it hangs
            pass
        except OSError:  # it has ended, or loads packages
            return True
    return _kill(pid, directory, name)


def _kill(pid: int, directory: str, name: str) -> bool:
    pidfd = processes.open_pidfd(pid) if pid else -1
    if pidfd < 0:
        return False
    try:
        if _is_agent(pid, directory, name):  # not another process that has its pid now
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        return descriptors.readable(pidfd, END_S)
    except OSError:
        return False
    finally:
        os.close(pidfd)


def _is_agent(pid: int, directory: str, name: str) -> bool:
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return words[3:6] == [b"agent", os.fsencode(directory), name.encode()]
    return False
