"""State of each of a run's trackers, from the deliveries' files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from trackers.backends import registry
from trackers.journal.lease import read_holder
from trackers.journal.run_directory import RunDirectory
from trackers.journal.status import observe
from trackers.relay.delivery.cursor_file import read_account


def report(run: RunDirectory, trackers: Iterable[str]) -> dict[str, dict[str, Any]]:
    """By tracker: ``state`` (delivered, waiting, delivering, stopped, not begun), ``delivered`` and ``rejected``
    records, ``waiting_bytes`` of the journal, ``error``, ``url``, ``closed`` (the status it was told), ``skipped``,
    ``damaged`` (lines of the journal), ``verified`` (what reading it back found last). One that runs in training only
    has ``ended`` with it: nothing waits for it.
    """
    sizes = run.sizes()
    names = list(dict.fromkeys([*trackers, *run.deliveries()]))
    return {name: _one(run, name, sizes) for name in names}


def _one(run: RunDirectory, name: str, sizes: dict[str, int]) -> dict[str, Any]:
    account = read_account(run, name)
    waiting = sum(max(0, size - account.offsets.get(stream, 0)) for stream, size in sizes.items())
    holder = read_holder(run.delivery / f"{name}.lease")
    alive = holder is not None and not holder.dead()
    if account.stopped:
        state = "stopped"
    elif not waiting and account.closed and not account.verify:
        state = "delivered"
    elif alive:
        state = "delivering"
    elif not account.time:
        state = "not begun"
    else:
        state = "waiting"
    if state != "delivered" and registry.is_inside(name) and observe(run).name != "running":
        state, waiting = "ended", 0
    return {
        "tracker": name,
        "state": state,
        "delivered": account.delivered,
        "rejected": account.rejected,
        "skipped": account.skipped,
        "damaged": account.damaged,
        "waiting_bytes": waiting,
        "closed": account.closed,
        "error": account.error,
        "verified": account.verified,
        "url": str(account.state.get("url", "")),
        "held_by": str(holder) if alive else "",
    }
