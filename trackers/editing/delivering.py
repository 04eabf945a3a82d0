"""Having an edit delivered: by the relay of a run that goes on, else by a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from trackers.editing.edits import trackers_of
from trackers.errors import TrackersError
from trackers.journal import helper_process, trust
from trackers.journal.lease import living_holder
from trackers.journal.run_directory import RunDirectory
from trackers.journal.status import observe
from trackers.relay.parts.plans import SyncPlan, arguments
from trackers.relay.sync import RunSync, sync

WAIT_S = 60.0
"""How long a delivery goes on without progress where nobody says otherwise, in seconds."""


def awaits(run: RunDirectory) -> str:
    """Who delivers a run's edits without being asked, or why nobody does, in a few words; "" where it is to be asked.

    A run that goes on has its relay. One that was made offline waits for ``trackers sync``.
    """
    if not trackers_of(run):
        return "it has no trackers"
    if observe(run).name == "running" and living_holder(run.path / "relay.lease") is not None:
        return "its relay delivers it"
    if run.read_info().mode == "offline" and not run.deliveries():
        return f"it is offline: trackers sync {run.quoted} delivers it"
    return ""


def deliver(
    runs: Iterable[RunDirectory],
    show: Callable[[RunSync], None] = lambda work: None,
    *,
    timeout_s: float = WAIT_S,
    say: Callable[[str], None] = lambda text: None,
    jobs: int = 4,
) -> set[Path]:
    """Bring runs to their trackers now.

    Args:
        show: called now and then with a run at work, and once at its end.
        timeout_s: give up after this time without progress; 0: never.
        say: called with what keeps a run from being delivered.
        jobs: maximum number of runs at once.

    Returns:
        the directories of those that a tracker still lacks something of.
    """
    groups: dict[tuple[str, ...], list[RunDirectory]] = {}
    for run in runs:
        groups.setdefault(tuple(_trackers_to_name(run)), []).append(run)
    lacking = {run.path for members in groups.values() for run in members}

    def note(work: RunSync) -> None:
        if work.over and work.complete():
            lacking.discard(work.run.path)
        show(work)

    for names, members in groups.items():
        try:
            sync(members, names, note, say=say, patience_s=timeout_s, jobs=jobs)
        except (TrackersError, OSError) as error:
            say(str(error))
    return lacking


def deliver_later(run: RunDirectory) -> None:
    """Have a process of its own bring a run to its trackers. What keeps it from that is in ``relay.log``.

    Raises:
        OSError: it can't be started.
    """
    if not awaits(run):
        info, _ = trust.delivered(run)
        words = arguments("sync", run.path.absolute(), SyncPlan(_trackers_to_name(run)))
        helper_process.start(run, words, info=info, detached=True)


def _trackers_to_name(run: RunDirectory) -> list[str]:
    """The trackers that a sync must name; none where they are all the run's own."""
    names = trackers_of(run)
    return [] if set(names) <= set(run.read_info().trackers) else names
