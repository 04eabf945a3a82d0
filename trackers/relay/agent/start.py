"""Starting a host agent: done by the relay of a run that had none."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from trackers.backends import registry
from trackers.journal import helper_process
from trackers.relay.agent import endpoint
from trackers.relay.agent.turns import Turns
from trackers.relay.parts.helper import avoided_by
from trackers.tracker import RunInfo

AFTER_S = 15.0
"""Age of a run, in seconds, at which its relay starts an agent."""
AGAIN_S = 2.0
"""Least time between two starts of an agent that many wait for, in seconds."""
CLAIM_S = 10.0
"""Time for which one of many relays is the one that starts an agent, in seconds."""


class AgentPlan(msgspec.Struct, kw_only=True):
    """trackers: those whose packages are loaded first. nice: niceness while it loads them. idle_s: seconds after the
    last run until it ends. left_out: trackers whose packages start threads when imported, after which no process can be
    forked safely. succeeds: it replaces an agent that doesn't answer, which is killed."""

    trackers: list[str] = []
    nice: int = 10
    idle_s: float = 600.0
    left_out: list[str] = []
    succeeds: bool = False


def idle_s(info: RunInfo) -> float:
    """How long an agent stays after the last run, in seconds."""
    return float(info.option("TRACKER_AGENT_IDLE", 600))


def fork_job(
    info: RunInfo, arguments: list[str], names: Iterable[str], environment: Mapping[str, str]
) -> dict[str, Any]:
    """What an agent is to fork: the fields of a ``ForkJob`` for a relay that is like one of this process's.

    Args:
        arguments: the relay's. names: its trackers. environment: all of it.
    """
    others = registry.other_pythons(names, info.options)
    umask = os.umask(0o077)
    os.umask(umask)
    return {
        "arguments": arguments,
        "environment": dict(environment),
        "avoid": helper_process.avoided(avoided_by(info)),
        "umask": umask,
        "processors": sorted(os.sched_getaffinity(0)),
        "trackers": [name for name in names if name not in others],
        "idle_s": idle_s(info),
    }


def start_agent(
    plan: AgentPlan, environment: Mapping[str, str], avoid: tuple[str, ...], *, name: str = "", python: str = ""
) -> subprocess.Popen[bytes] | None:
    """Start an agent, unless one answers.

    Args:
        environment: of the helpers whose agent it is. avoid: directories that aren't on their import path.
        name: its key; default: computed. python: its interpreter; default: this one.

    Returns:
        None where one answers, or it can't be started: later runs do without.
    """
    with contextlib.suppress(OSError):
        name = name or endpoint.key(environment, avoid, python)
        directory = endpoint.directory()
        folder = endpoint.open_directory(directory, make=True)
        try:
            if not plan.succeeds and endpoint.is_alive(folder, name):
                return None
        finally:
            os.close(folder)
        arguments = ["agent", str(directory), name, msgspec.json.encode(plan).decode()]
        return subprocess.Popen(
            helper_process.command(arguments, python=python, avoid=avoid),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=os.sep,
            env=endpoint.environment(environment),
            start_new_session=True,
        )
    return None


class Starter:
    """Starts an agent for later runs, from a relay.

    It does so when its own run has lasted a while, or has ended, so that the first run of a machine has the processors
    to itself at its start and end. If many relays find no free slot, one of them does so at once.

    Args:
        name: the agent's key; "" for none.
        info: of the run. trackers: those whose packages the run's relay uses in this Python.
        turns: the turns of the run's deliveries.
        others: starts the agents of other interpreters.
    """

    def __init__(
        self, name: str, info: RunInfo, trackers: list[str], turns: Turns, others: Callable[[], None] = lambda: None
    ) -> None:
        self._others = others
        self._name = name
        self._turns = turns
        self._claimed_until = self._try_at = 0.0
        self._avoid = avoided_by(info)
        nice = int(info.option("TRACKER_NICE", 10))
        self._plan = AgentPlan(trackers=trackers, nice=nice, idle_s=idle_s(info))
        self._due = time.monotonic() + AFTER_S
        self._process: subprocess.Popen[bytes] | None = None

    def poll(self) -> None:
        """Start the agent when it is due. Takes microseconds."""
        if not self._name:
            return
        now = time.monotonic()
        if self._claimed_until and now >= self._claimed_until:
            self._claimed_until = 0.0
            self._turns.slot_locks.release_start()
        if now >= self._due:
            self._due = float("inf")
            self._turns.slot_locks.has_begun()
            self.start()
            self._others()
        elif (self._turns.is_short or self._turns.hung) and now >= self._try_at:
            self._try_at = now + CLAIM_S
            if self._turns.slot_locks.acquire_start():
                self._claimed_until = now + CLAIM_S
                self.start(nice=0)  # many wait for it
        elif self._process is not None:
            self._process.poll()

    def end(self) -> None:
        """The run has ended: start what later runs have use for."""
        self.start()
        if self._name:
            self._others()

    def start_for_many(self) -> None:
        """Start an agent that many wait for, unless another process does; again where it has ended."""
        if self._process is not None and self._process.poll() is not None:
            self._process = None
        now = time.monotonic()
        if self._process is None and now >= self._try_at and self._turns.slot_locks.acquire_start():
            self._try_at = now + AGAIN_S
            self.start(nice=0)

    def start(self, nice: int | None = None) -> None:
        """Start the agent, unless one answers. After a failure, later runs do without an agent.

        Args:
            nice: niceness while it loads packages; default: that of relays.
        """
        if not self._name:
            return
        plan = msgspec.structs.replace(self._plan, succeeds=self._turns.hung)
        if nice is not None:
            plan.nice = nice
        started = start_agent(plan, helper_process.environment(), self._avoid, name=self._name)
        self._process = started or self._process
