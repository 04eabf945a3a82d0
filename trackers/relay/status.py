"""How a run stands: what its last writer said, or what can be seen of a process that can't say it any more."""

from __future__ import annotations

import os
import time
from pathlib import Path

from trackers import identity
from trackers.errors import NotFound
from trackers.journal import last_record
from trackers.records import Finish
from trackers.relay.lease import STALE_S, read_holder
from trackers.rundir import RunDirectory
from trackers.tracker import Status

SILENT_S = 120.0
"""A run elsewhere whose relay and streams were silent for so long is taken for crashed."""


def last_status(run: RunDirectory) -> Status:
    """How the newest attempt ended, as its last writer said: the relay's word before the rank's; else running."""
    newest = run.attempt()
    names = [name for name in run.stream_names() if name.attempt == newest]
    for writer in ("node", "rank"):
        for name in names:
            record = last_record(run.stream(name)) if name.writer == writer else None
            if isinstance(record, Finish):
                return status_of(record)
    return Status("running", time=time.time())


def observe(run: RunDirectory) -> Status:
    """As :func:`last_status`, but a run whose processes are gone without a word has crashed.

    On the machine of the run, the process itself is looked for; elsewhere a heartbeat that stopped tells.
    """
    said = last_status(run)
    if said.name != "running":
        return said
    try:
        info = run.read_info()
    except NotFound:
        return said
    seen = _last_sign(run)
    if info.host == identity.host() and info.boot_id == identity.boot_id():
        if identity.alive(info.pid, info.pid_start):
            return Status("running", time=seen)
        return Status("crashed", time=seen, reason=f"process {info.pid} is gone")
    holder = read_holder(run.path / "relay.lease")
    # A sync elsewhere holds the lease too, and says nothing of the run's own machine.
    its_own = holder is not None and (holder.host, holder.boot_id) == (info.host, info.boot_id)
    if holder is not None and its_own and time.time() - holder.time < STALE_S + holder.allow_s:
        return Status("running", time=holder.time)
    if time.time() - seen < SILENT_S:
        return Status("running", time=seen)
    return Status("crashed", time=seen, reason=f"no sign of life from {info.host} for {time.time() - seen:.0f} s")


def status_of(record: Finish) -> Status:
    """A finish record as a status; an unknown word counts as failed."""
    known = ("finished", "failed", "crashed", "preempted")
    name = record.status if record.status in known else "failed"
    return Status(name, record.exit_code, record.time, record.reason)  # type: ignore[arg-type]


def _last_sign(run: RunDirectory) -> float:
    times = []
    for name in run.stream_names():
        if name.writer != "rank":
            continue  # the relay's own heart beats in its lease, and a sync may write the node's stream, too
        try:
            times.append(os.stat(run.stream(name)).st_mtime)
        except OSError:
            continue
    return max(times, default=0.0)


def preempting(run: RunDirectory, attempt: int) -> Path:
    """A file that says: if this attempt ends without a word, it was preempted."""
    return run.path / f"preempting.{attempt}"
