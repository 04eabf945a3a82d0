"""The agents of other interpreters than this one (``TRACKER_PYTHON``, ``trackers setup``), which fork deliveries."""

from __future__ import annotations

from collections.abc import Mapping

from trackers.journal import helper_process
from trackers.journal.helper_process import AGAIN
from trackers.journal.run_directory import RunDirectory
from trackers.relay.agent import client, endpoint
from trackers.relay.agent.client import AgentRelay
from trackers.relay.agent.start import AgentPlan, fork_job, idle_s, start_agent
from trackers.relay.parts.helper import avoided_by
from trackers.support import confined
from trackers.tracker import RunInfo

BELL = 100
"""The number of a delivery's pipe there: above those that libraries hold in the agent, which a fork keeps."""


class OtherAgents:
    """Has deliveries of a run forked by agents that have loaded their clients, and such agents started.

    Args:
        pythons: the interpreters, by the names of the trackers; empty where there are to be no agents.
    """

    def __init__(self, run: RunDirectory, info: RunInfo, pythons: Mapping[str, str]) -> None:
        self._run = run
        self._info = info
        self._pythons = pythons
        self._avoid = avoided_by(info)

    def fork(self, tracker: str, arguments: list[str], bell: int, nice: int) -> AgentRelay | None:
        """Have a delivery forked; None if this is for an interpreter of its own.

        Args:
            arguments: the delivery's, which knows its bell as :data:`BELL`. bell: the pipe. nice: its niceness.
        """
        python = self._pythons.get(tracker)
        if python is None:
            return None
        environment = helper_process.environment_for(self._info, python)
        try:
            name = endpoint.key(environment, self._avoid, python)
        except OSError:  # no such file, or a credential in what the agent would have
            return None
        job = fork_job(self._info, arguments, [], environment) | {"trackers": [tracker], "nice": nice}
        with confined.open_file(self._run.relay_log, "ab") as log:
            return client.fork_relay(name, job, {1: log.fileno(), BELL: bell}, AGAIN)

    def start(self) -> None:
        """Start those agents that there aren't, for later runs."""
        for python in set(self._pythons.values()):
            trackers = [tracker for tracker, its_python in self._pythons.items() if its_python == python]
            plan = AgentPlan(
                trackers=trackers, nice=int(self._info.option("TRACKER_NICE", 10)), idle_s=idle_s(self._info)
            )
            environment = helper_process.environment_for(self._info, python)
            start_agent(plan, environment, self._avoid, python=python)
