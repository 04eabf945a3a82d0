"""What helper processes are told: ``ROLE DIRECTORY PLAN`` on their command line, the plan as JSON.

Plans that one part alone knows stand beside it.
"""

from __future__ import annotations

import os

import msgspec


class RelayPlan(msgspec.Struct, omit_defaults=True):
    """A run's relay.

    Attributes:
        trackers: names of the deliveries. pid, pid_start: of training. attempt: its number.
        nice: of what is started while training runs.
        pidfd: a descriptor of training. bell: a pipe over which it says that the run has ended. -1: none.
        agent: the key of the agent that later runs are to have.
        places: how many delivery processes it lets work at once.
        beginning: see :class:`trackers.relay.agent.slot_locks.SlotLocks`, ``fd``.
    """

    trackers: list[str]
    pid: int
    pid_start: float
    attempt: int
    nice: int = 0
    pidfd: int = -1
    bell: int = -1
    agent: str = ""
    places: int = 0
    beginning: int = -1

    def descriptors(self) -> tuple[int, ...]:
        """Those that the process inherits."""
        return tuple(fd for fd in (self.pidfd, self.bell, self.beginning) if fd >= 0)


class DeliveryPlan(msgspec.Struct, omit_defaults=True):
    """A delivery.

    Attributes:
        tracker: its name. parent: pid of what has started it; when that is gone, it ends.
        parent_start: when that began; 0: it is this process's parent (as the fork of an agent it has another).
        nice: the niceness of its session, until training has ended; 0: it has its starter's session.
        attempt: the one whose relay the parent is; 0: all attempts are delivered.
        bell: a pipe that is closed when others wait for this process's slot; a byte from it means new records. -1:
            none.
    """

    tracker: str
    parent: int
    attempt: int = 0
    bell: int = -1
    parent_start: float = 0.0
    nice: int = 0


class AlertsPlan(msgspec.Struct):
    """The process that sends alerts. parent: pid of what has started it."""

    parent: int


class SyncPlan(msgspec.Struct):
    """A delivery by hand. trackers: names; none: those of the run."""

    trackers: list[str]


def arguments(role: str, directory: str | os.PathLike[str], plan: msgspec.Struct) -> list[str]:
    """The words that start a helper.

    Args:
        directory: the run's, or that of a launch; absolute.
    """
    return [role, os.fspath(directory), msgspec.json.encode(plan).decode()]
