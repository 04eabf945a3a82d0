"""Relays and samplers that this process isn't the parent of, in the place of their ``subprocess.Popen``."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import time
from collections.abc import Mapping
from typing import Any

from trackers.support import process_info
from trackers.support.descriptors import Descriptor

WAIT_S = 0.02
GREETING_S = 1.0
"""Maximum wait for an agent to say that it listens, in seconds: it may be forking for others."""
ANSWER_S = 10.0
"""Time after which an agent that listened, and doesn't say whom it has forked, counts as gone, in seconds."""
NAME_S = 0.5
"""How long a relay's start is waited for, in seconds; later its name is read where it is needed."""
CODE_S = 1.0
"""How long after a relay's end its agent's word on the exit code is waited for, in seconds."""
READY, BUSY = b"+", b"-"
"""What an agent says first: go on, or do without me."""
NAME = struct.Struct("!id")
"""What it says of the relay: its pid and start (``process_info.process_start``); 0, 0.0: it couldn't be forked."""
CODE = struct.Struct("!i")
"""What it says last: the relay's exit code."""
LENGTH = struct.Struct("!I")
DESCRIPTORS = 16
END = b"e"
"""What its run's relay says to a sampler."""
_OF_GPUS = ("CUDA_DEVICE_ORDER", "TRACKER_JOB_PASSED")


class Elsewhere:
    """A relay that another process started."""

    def __init__(self, pid: int, start: float) -> None:
        self.pid = pid
        self._start = start
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """0 once it has ended."""
        if not process_info.alive(self.pid, self._start):
            self.returncode = 0
        return self.returncode

    def wait(self, timeout: float) -> None:
        """Wait until it has ended, up to a timeout."""
        until = time.monotonic() + timeout
        while self.poll() is None and time.monotonic() < until:
            time.sleep(WAIT_S)


class AgentsRelay(Elsewhere):
    """A relay that this machine's agent forked. If the agent dies, the relay goes on, and is known by pid and start.

    Args:
        connection: to the agent, after the request; taken over.
    """

    def __init__(self, connection: socket.socket) -> None:
        super().__init__(0, 0.0)
        connection.setblocking(False)
        self._line: Descriptor | None = Descriptor(connection.detach())
        self._said = b""
        self._asked = time.monotonic()
        self._gone = 0.0

    def poll(self) -> int | None:
        """Its exit code once it has ended; 0 where nobody can tell, 1 where it never began."""
        if self.returncode is None:
            self._listen()
            self.returncode = self._ended(time.monotonic())
            if self.returncode is not None:
                self._hang_up()
        return self.returncode

    def wait(self, timeout: float) -> None:
        """Wait until it has ended, up to a timeout."""
        until = time.monotonic() + timeout
        while self.poll() is None and (left := until - time.monotonic()) > 0:
            if self._line is None:
                time.sleep(min(left, WAIT_S))
            else:  # its agent says so
                process_info.readable(self._line.number, min(left, WAIT_S))

    def wait_for_name(self) -> None:
        """Wait a moment for the agent to say which process it is."""
        until = self._asked + NAME_S
        while not self.pid and self._line is not None and (left := until - time.monotonic()) > 0:
            process_info.readable(self._line.number, left)
            self._listen()

    def _listen(self) -> None:
        while self._line is not None:
            said = b""
            if self._line.own():  # training may have closed it, and its number may be of another file
                try:
                    said = os.read(self._line.number, 64)
                except BlockingIOError:
                    break
                except OSError:  # as at the end
                    pass
            self._said += said
            if not said:
                self._hang_up()
        if not self.pid and len(self._said) >= NAME.size:
            self.pid, self._start = NAME.unpack_from(self._said)
            if not self.pid:
                self.returncode = 1

    def _ended(self, now: float) -> int | None:
        if self.returncode is not None:
            return self.returncode
        if len(self._said) >= NAME.size + CODE.size:
            return int(CODE.unpack_from(self._said, NAME.size)[0])
        if not self.pid:
            return 1 if self._line is None or now - self._asked > ANSWER_S else None
        if process_info.alive(self.pid, self._start):
            return None
        self._gone = self._gone or now
        return 0 if self._line is None or now - self._gone > CODE_S else None

    def _hang_up(self) -> None:
        if self._line is not None:
            with contextlib.suppress(OSError):
                self._line.close()
            self._line = None


class AgentsSampler:
    """This run's part of the sampler that the runs of an agent share, with what is used of ``subprocess.Popen``.

    Args:
        line: to the sampler; taken over.
    """

    pid = 0

    def __init__(self, line: socket.socket) -> None:
        line.setblocking(False)
        self._line: socket.socket | None = line
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """1 once it is gone, and None before that."""
        if self._line is not None and self.returncode is None:
            try:
                said = self._line.recv(1)
            except BlockingIOError:
                return None
            except OSError:
                said = b""
            if not said:
                self.kill()
        return self.returncode

    def terminate(self) -> None:
        """Have it write the run's last interval."""
        if self._line is not None:
            with contextlib.suppress(OSError):
                self._line.send(END)

    def kill(self) -> None:
        """Leave it: it goes on for other runs."""
        if self._line is not None:
            self._line.close()
            self._line = None
        self.returncode = 1


def sample(name: str, run: str, plan: str, nice: int, beat: int) -> AgentsSampler | None:
    """Have this machine's agent's sampler sample a run.

    Args:
        name: the agent's key. run: its directory. plan: a :class:`trackers.hardware.plan.Plan`, as JSON.
        nice: how much it gives way to training. beat: a pipe to which it says how it stands.

    Returns:
        None where there is no agent, or it has no time.
    """
    line = _reach(name)
    if line is None:
        return None
    environment = {key: value for key, value in os.environ.items() if "VISIBLE_DEVICES" in key or key in _OF_GPUS}
    request = {"sample": {"run": run, "plan": json.loads(plan), "environment": environment, "nice": nice}}
    try:
        _send(line, request, [beat])
    except OSError:
        line.close()
        return None
    return AgentsSampler(line)


def ask(name: str, start: Mapping[str, Any], passed: Mapping[int, int]) -> AgentsRelay | None:
    """Have this machine's agent fork a relay.

    Args:
        name: the agent's key.
        start: fields of :class:`trackers.journal.forked_helper.Start`, and ``idle_s`` and ``trackers``.
        passed: descriptors that the relay gets: the number that it knows one by, and the one that it has here. That
            of its log comes first.

    Returns:
        None where there is no agent, or it has no time.
    """
    line = _reach(name)
    if line is None:
        return None
    try:
        _send(line, {**start, "passed": list(passed)}, list(passed.values()))
        relay = AgentsRelay(line)
    except OSError:
        return None
    finally:
        line.close()
    relay.wait_for_name()
    if not relay.pid and relay.poll() is not None:  # it ended before it could fork
        return None
    return relay


def _reach(name: str) -> socket.socket | None:
    """A connection to an agent that listens; None where there is none, or it has no time."""
    from trackers.relay.agent import place

    try:
        folder = place.open_directory(place.directory())
    except OSError:
        return None
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        line.settimeout(GREETING_S)
        line.connect(place.address(folder, name))
        if place.peer(line) == os.geteuid() and line.recv(1) == READY:
            line.settimeout(ANSWER_S)
            return line
    except OSError:
        pass
    finally:
        os.close(folder)
    line.close()
    return None


def _send(line: socket.socket, request: Mapping[str, Any], descriptors: list[int]) -> None:
    text = json.dumps(request).encode()
    socket.send_fds(line, [LENGTH.pack(len(text))], descriptors)
    line.sendall(text)
