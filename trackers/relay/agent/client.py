"""Requests to the host agent, and handles of its relays and samplers that work like a ``subprocess.Popen``."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
from collections.abc import Mapping
from typing import Any

from trackers.journal.detached_helper import DetachedHelper
from trackers.journal.helper_process import DONE
from trackers.support import descriptors, processes
from trackers.support.clock import monotonic
from trackers.support.interruption import pass_on, suppress

GREETING_S = 1.0
"""Maximum wait for an agent's first byte, in seconds: it may be forking for others."""
ANSWER_S = 10.0
"""Time after which an agent that accepted a request and hasn't answered counts as gone, in seconds."""
NAME_S = 0.5
"""Maximum wait for a relay's pid, in seconds; if it comes later, it is read when it is needed."""
EXIT_CODE_S = 1.0
"""Maximum wait after a relay's end for its exit code from the agent, in seconds."""
READY, BUSY = b"+", b"-"
"""An agent's first byte: it accepts the connection, or refuses."""
LENGTH = struct.Struct("!I")
DESCRIPTORS = 16
END = b"e"
"""A relay's message to a sampler: end this run."""
_GPU_VARIABLES = ("CUDA_DEVICE_ORDER", "TRACKER_JOB_PASSED")


class AgentRelay(DetachedHelper):
    """A relay that this machine's agent forked. If the agent dies, the relay goes on, identified by pid and start.

    Args:
        connection: to the agent, after the request; owned by this object.
        unsaid: what counts as its exit code if the agent didn't say it.
    """

    def __init__(self, connection: socket.socket, unsaid: int = DONE) -> None:
        super().__init__(connection.detach())
        self._unsaid = unsaid
        self._asked_at = monotonic()
        self._gone_at = 0.0

    def wait_for_name(self) -> None:
        """Wait up to :data:`NAME_S` for the agent to send the relay's pid."""
        until = self._asked_at + NAME_S
        while not self.pid and self._line is not None and (remaining_s := until - monotonic()) > 0:
            descriptors.readable(self._line.number, remaining_s)
            self._receive()

    def _exit_code(self) -> int | None:
        """As of any helper; ``unsaid`` if the agent didn't say it, 1 if the relay never started."""
        if self._code is not None:
            return self._code
        now = monotonic()
        if not self.pid:
            return 1 if self._line is None or self._is_named or now - self._asked_at > ANSWER_S else None
        if processes.alive(self.pid, self._start):
            return None
        self._gone_at = self._gone_at or now
        return self._unsaid if self._line is None or now - self._gone_at > EXIT_CODE_S else None

    def wait(self, timeout: float = float("inf")) -> int:
        """Wait until it has ended; returns the exit code."""
        return super().wait(timeout)

    def kill(self) -> None:
        """SIGKILL, if it runs and has said who it is."""
        self.send(signal.SIGKILL)


class AgentSampler:
    """A handle, like a ``subprocess.Popen``, of the sampler that the runs of an agent share.

    Args:
        line: to the sampler; owned by this object.
    """

    pid = 0

    def __init__(self, line: socket.socket) -> None:
        line.setblocking(False)
        self._line: socket.socket | None = line
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """1 once the sampler is gone; None before that."""
        if self._line is not None and self.returncode is None:
            try:
                received = self._line.recv(1)
            except BlockingIOError:
                return None
            except OSError as error:
                pass_on(error)
                received = b""
            if not received:
                self.kill()
        return self.returncode

    def terminate(self) -> None:
        """Have it write the run's last interval."""
        if self._line is not None:
            with suppress(OSError):
                self._line.send(END)

    def kill(self) -> None:
        """Disconnect from it: it goes on for other runs."""
        if self._line is not None:
            self._line.close()
            self._line = None
        self.returncode = 1


def sample(name: str, run: str, plan: str, nice: int, beat: int) -> AgentSampler | None:
    """Have this machine's agent's sampler sample a run.

    Args:
        name: the agent's key. run: its directory. plan: a :class:`trackers.hardware.plan.SamplingPlan`, as JSON.
        nice: its niceness. beat: a pipe to which it writes its state.

    Returns:
        None if there is no agent, or it refuses.
    """
    line = _connect(name)
    if line is None:
        return None
    environment = {key: value for key, value in os.environ.items() if "VISIBLE_DEVICES" in key or key in _GPU_VARIABLES}
    request = {"sample": {"run": run, "plan": json.loads(plan), "environment": environment, "nice": nice}}
    try:
        _send(line, request, [beat])
    except OSError as error:
        pass_on(error)
        line.close()
        return None
    return AgentSampler(line)


def fork_relay(name: str, start: Mapping[str, Any], passed: Mapping[int, int], unsaid: int = DONE) -> AgentRelay | None:
    """Have this machine's agent fork a relay; one of another interpreter, a delivery.

    Args:
        name: the agent's key.
        start: fields of :class:`trackers.journal.forked_helper.ForkJob`, and ``idle_s`` and ``trackers``.
        passed: descriptors that the relay gets: the number in the relay, and the number in this process. Its log comes
            first.
        unsaid: what counts as its exit code if the agent dies before it.

    Returns:
        None if there is no agent, or it refuses.
    """
    line = _connect(name)
    if line is None:
        return None
    try:
        _send(line, {**start, "passed": list(passed)}, list(passed.values()))
        relay = AgentRelay(line, unsaid)
    except OSError as error:
        pass_on(error)
        return None
    finally:
        line.close()
    relay.wait_for_name()
    if not relay.pid and relay.poll() is not None:  # it ended before it could fork
        return None
    return relay


def _connect(name: str) -> socket.socket | None:
    """A connection to an agent that has accepted it; None if there is no agent, or it refuses."""
    from trackers.relay.agent import endpoint

    try:
        folder = endpoint.open_directory(endpoint.directory())
    except OSError as error:
        pass_on(error)
        return None
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        line.settimeout(GREETING_S)
        line.connect(endpoint.address(folder, name))
        if endpoint.peer(line) == os.geteuid() and line.recv(1) == READY:
            line.settimeout(ANSWER_S)
            return line
    except OSError as error:
        pass_on(error)
    finally:
        os.close(folder)
    line.close()
    return None


def _send(line: socket.socket, request: Mapping[str, Any], descriptors: list[int]) -> None:
    text = json.dumps(request).encode()
    socket.send_fds(line, [LENGTH.pack(len(text))], descriptors)
    line.sendall(text)
