"""A host agent for the tests whose training runs in the test process: their relays and deliveries are its forks.

Most of what such a test takes is the start of interpreters that import vendors' clients anew. The agent is the one of
``TRACKER_AGENT=y``, but for its key: each test has a HOME and a ``WANDB_…`` of its own, for which a user's run would
get an agent of its own. Packages that read these as they are imported are left out, as in :mod:`tests.forked`.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import msgspec

from trackers.journal import helper_process
from trackers.relay.agent import elsewhere, place
from trackers.relay.agent.start import Plan, avoided_by
from trackers.relay.client import RelayClient
from trackers.support import confined

KEY = "tests"
PRELOADED = ("csv", "json", "mlflow", "tensorboard", "wandb")
"""Trackers whose packages can be loaded before a test's environment is known."""
OWN_START = (
    "journal/", "relay/", "faults/", "hardware/", "chaos/", "testing/", "retention/", "e2e/test_benchmarks.py",
)  # fmt: skip
"""Tests about how helpers are started, die, are found and measured: theirs are interpreters of their own."""
IDLE_S = 600.0
MARK = "room for the arguments of forks, by which tests find them"
"""Part of the agent's command line, and of no fork's."""


DIRECTORY = "TRACKERS_TEST_AGENT"
"""Environment variable: where the agent listens, for programs that begin with :func:`use`."""

current: SharedAgent | None = None
"""That of this test process."""


def use() -> None:
    """In a training script of a test: have its relays forked, too."""
    directory = os.environ.get(DIRECTORY)
    if directory:
        agent = SharedAgent(Path(directory))
        RelayClient._forked = lambda client, options, fd: agent.forked(client, options, fd)


def started() -> dict[str, str]:
    """The environment of a program that begins with :func:`use`."""
    return {} if current is None else current.start()


class SharedAgent:
    """One agent for all workers of a session. Where it is gone, relays are started as ever.

    Args:
        directory: where it listens, of one session.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self._asked = False

    def start(self) -> dict[str, str]:
        """Start it, unless it was started; returns what a program that uses it has in its environment."""
        if not self._asked:
            self._asked = True
            self._start()
        return {DIRECTORY: str(self._directory)}

    def _start(self) -> None:
        self._directory.mkdir(mode=0o700, exist_ok=True)
        folder = place.open_directory(self._directory)
        try:
            if place.held(folder, KEY):
                return
        finally:
            os.close(folder)
        plan = Plan(trackers=list(PRELOADED), nice=0, idle_s=IDLE_S, left_out=[MARK * 20])
        environment = helper_process.environment()
        environment.pop("TRACKERS_TEST", None)  # it belongs to no test
        words = ["agent", str(self._directory), KEY, msgspec.json.encode(plan).decode()]
        self._process = subprocess.Popen(
            helper_process.command(words, avoid=()), cwd=os.sep, env=environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip

    def end(self) -> None:
        """End it, if this worker has started it."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:  # it imports: it looks at signals afterwards
                self._process.kill()
                self._process.wait()

    def forked(self, client: RelayClient, options: dict[str, Any], pidfd: int) -> elsewhere.Elsewhere | None:
        """In the place of ``RelayClient._forked``."""
        if client._deaths:  # it may have died of being a fork
            return None
        umask = os.umask(0o077)
        os.umask(umask)
        start = {
            "arguments": client._arguments({**options, "agent": ""}),
            "environment": helper_process.environment_for(client._info),
            "avoid": helper_process.avoided(avoided_by(client._info)),
            "umask": umask,
            "processors": sorted(os.sched_getaffinity(0)),
            "trackers": [],
            "idle_s": IDLE_S,
        }
        with confined.open_file(client._run.relay_log, "ab") as log:
            passed = {1: log.fileno(), **({pidfd: pidfd} if pidfd >= 0 else {})}
            return self._ask(start, passed)

    def _ask(self, start: dict[str, Any], passed: dict[int, int]) -> elsewhere.Elsewhere | None:
        real = place.directory
        place.directory = lambda: self._directory
        try:
            return elsewhere.ask(KEY, start, passed)
        finally:
            place.directory = real
