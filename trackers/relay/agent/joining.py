"""Relays that begin together on a machine without an agent: they wait for one, and it forks others in their place.

Each relay that training starts as an interpreter of its own holds a lock while it begins (:class:`SlotLocks`). One that
finds others beginning, too, has loaded little yet. It has an agent started, unless another relay does, and hands its
run over: the relay that the agent forks gets its descriptors, and tells training how it ended.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable

import msgspec

from trackers.journal import detached_helper, trust
from trackers.journal.run_directory import RunDirectory
from trackers.relay.agent import client
from trackers.relay.agent.client import AgentRelay
from trackers.relay.agent.start import Starter, fork_job
from trackers.relay.agent.turns import Turns
from trackers.relay.parts.plans import RelayPlan, arguments
from trackers.support import processes

LOOK_S = 0.2
"""Interval between requests to the agent, in seconds."""


def hand_over(run: RunDirectory, plan: RelayPlan, turns: Turns, line: int, goes_on: Callable[[], bool]) -> bool:
    """If other relays begin, too, have an agent's fork go on with the run; whether it does.

    Args:
        plan: this relay's. turns: of its deliveries. line: over which training hears of the relay.
        goes_on: whether to wait any longer.
    """
    if line < 0 or not turns.slot_locks.others_begin():
        return False
    info = trust.delivered(run)[0]
    plan = msgspec.structs.replace(plan, beginning=-1)
    environment = {**os.environ, detached_helper.LINE: str(line)}
    job = fork_job(info, arguments("relay", run.path, plan), plan.trackers, environment)
    passed = {1: 1, line: line, **{fd: fd for fd in plan.descriptors()}}
    starter = Starter(turns.name, info, job["trackers"], turns)
    until, silent_s = time.monotonic() + turns.times.comes_s, 0.0
    while goes_on() and time.monotonic() < until and silent_s < turns.times.patience_s:
        starter.start_for_many()
        asked = time.monotonic()
        relay = client.fork_relay(turns.name, job, passed)
        silent_s = silent_s + time.monotonic() - asked if relay is None else 0.0
        if relay is not None and _has_begun(relay):
            detached_helper.say_name(line, relay.pid, processes.process_start(relay.pid))
            return True
        time.sleep(LOOK_S * random.uniform(0.5, 1.0))
    return False


def _has_begun(relay: AgentRelay) -> bool:
    """Wait for the agent's answer, which comes at once unless it has ended or hangs."""
    while relay.poll() is None and not relay.pid:
        time.sleep(LOOK_S / 10)
    return bool(relay.pid)
