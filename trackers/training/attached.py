"""A run in another process than the one that made it: pickled, as spawned workers and Lightning's ddp_spawn get it.

While the process that made it lives on this machine, what the other one logs is appended to the same stream, as a
forked child's is; it doesn't end the run. Elsewhere, and afterwards, nothing is recorded, which is said once.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import msgspec

from trackers.journal.messages import Message, show
from trackers.journal.run_directory import RunDirectory, StreamName
from trackers.journal.status import last_status
from trackers.journal.stream import StreamWriter
from trackers.records import unname_floats
from trackers.relay.client import RelayClient
from trackers.support import machines, processes
from trackers.support.clock import Clock
from trackers.support.interruption import pass_on
from trackers.training.recorder import Recorder


class RunAddress(msgspec.Struct, frozen=True):
    """Where another process finds a run. stream: its file. pid, pid_start, host, boot_id, pid_namespace: of the
    process that made it. following: the next step. holds_steps: of its recorder."""

    directory: str
    stream: str
    id: str
    name: str
    project: str
    following: int
    pid: int
    pid_start: float
    host: str
    boot_id: str
    pid_namespace: str
    config: dict[str, Any]
    holds_steps: bool = False


latest: list[Any] = []
"""Runs of other processes that this one logs into, the latest last: W&B's names on the module are such a run's."""


class AttachedRecorder(Recorder):
    """Appends to the stream of a run that another process made, and never ends it."""

    def __init__(self, address: RunAddress) -> None:
        run = RunDirectory(Path(address.directory))
        info = run.stored_info()
        info.directory = address.directory
        writer = StreamWriter(Path(address.stream), joined=True)
        relay = RelayClient(run, info, [], start=False)
        clock = Clock()
        super().__init__(info, run, writer, relay, clock=clock.now, first_step=address.following, inside=None)
        self.pid = address.pid
        self.fast = False
        self.holds_steps = address.holds_steps
        self.go_on_with_axes()

    def adopt(self, wait_s: float = 0.0) -> bool:
        """False: the run is ended by the process that made it."""
        return False

    def poll(self, now: float) -> None:
        """See now and then whether the run has ended."""
        if now > self.poll_at and last_status(self.run).name != "running":
            self.mark_over()
        super().poll(now)


def recorder_of(address: RunAddress) -> AttachedRecorder | None:
    """A recorder for the run of that address in this process; None, which is said, where nothing can be recorded."""
    why = "the process that made it is on another machine, or has ended"
    try:
        if _reachable(address):
            if last_status(RunDirectory(Path(address.directory))).name == "running":
                return AttachedRecorder(address)
            why = "the run has ended"
    except (OSError, ValueError) as error:
        pass_on(error)
        why = str(error)
    show(Message(time.time(), f"run {address.id}: what process {os.getpid()} logs isn't recorded: {why}"))
    return None


def _reachable(address: RunAddress) -> bool:
    here = machines.is_here(address) and processes.alive(address.pid, address.pid_start)
    return here and os.path.exists(address.stream)


def find(directory: str | Path) -> RunAddress | None:
    """The address of the run in a directory that a process of this machine makes now; None where there is none."""
    run = RunDirectory(Path(directory))
    try:
        info = run.stored_info()
    except (OSError, ValueError) as error:
        pass_on(error)
        return None
    newest = info.attempts[-1] if info.attempts else {}
    stream = run.streams / f"{StreamName('rank', int(newest.get('rank', 0)), int(newest.get('number', 1)))}.jsonl"
    return RunAddress(
        directory=str(run.path), stream=str(stream), id=info.id, name=info.name, project=info.project, following=0,
        pid=info.pid, pid_start=info.pid_start, host=info.host, boot_id=info.boot_id, pid_namespace=info.pid_namespace,
        config=unname_floats(info.config),
    )  # fmt: skip
