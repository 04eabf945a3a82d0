"""Having an edit delivered: by the relay of a run that goes on, else by a process of its own."""

from __future__ import annotations

import json
from collections.abc import Callable

from trackers.editing.edits import trackers_of
from trackers.errors import TrackersError
from trackers.journal import helper_process, trust
from trackers.journal.lease import read_holder
from trackers.journal.run_directory import RunDirectory
from trackers.journal.status import observe
from trackers.relay.sync import RunSync, sync

WAIT_S = 60.0


def awaits(run: RunDirectory) -> str:
    """Who delivers a run's edits without being asked, or why nobody does, in a few words; "" where it is to be asked.

    A run that goes on has its relay. One that was made offline waits for ``trackers sync``.
    """
    if not trackers_of(run):
        return "it has no trackers"
    if observe(run).name == "running":
        holder = read_holder(run.path / "relay.lease")
        if holder is not None and not (holder.here() and holder.dead()):
            return "its relay delivers it"
    if run.read_info().mode == "offline" and not run.deliveries():
        return f"it is offline: trackers sync {run.quoted} delivers it"
    return ""


def deliver(
    run: RunDirectory,
    show: Callable[[RunSync], None] = lambda work: None,
    *,
    timeout_s: float = WAIT_S,
    complain: Callable[[str], None] = lambda text: None,
    stopping: Callable[[], bool] = lambda: False,
) -> bool:
    """Bring a run to its trackers now. True if each has all of it.

    Args:
        timeout_s: give up after this time without progress; 0: never.

    Raises:
        UsageError: it can't be delivered.
    """
    if awaits(run):
        return True
    return sync([run], _named(run), show, complain=complain, stopping=stopping, patience_s=timeout_s)


def deliver_later(run: RunDirectory) -> None:
    """Have a process of its own bring a run to its trackers. What keeps it from that is in ``relay.log``.

    Raises:
        OSError: it can't be started.
    """
    if not awaits(run):
        info, _ = trust.delivered(run)
        helper_process.start(run, ["sync", str(run.path.resolve()), json.dumps(_named(run))], info=info)


def _named(run: RunDirectory) -> list[str]:
    """Trackers to name for a sync; none where the run's own are all."""
    names = trackers_of(run)
    return [] if set(names) <= set(run.read_info().trackers) else names


def problem(error: TrackersError | OSError, run: RunDirectory) -> str:
    """What to say where an edit is in the journal and its delivery couldn't begin."""
    return f"{error}; the edit is in the journal: trackers sync {run.quoted} delivers it"
