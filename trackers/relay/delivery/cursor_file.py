"""State of a delivery, its progress and its failures, and the report of all deliveries of a run.

The file is replaced atomically at each commit.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from trackers.backends import registry
from trackers.errors import UNDECODABLE
from trackers.journal.lease import living_holder
from trackers.journal.run_directory import RunDirectory, read_small
from trackers.journal.status import observe
from trackers.object_storage import addresses, others
from trackers.records import check_depth


class DeliveryState(msgspec.Struct, kw_only=True):
    """State of a delivery: the content of ``delivery/<tracker>.json``.

    delivered, rejected: number of records, up to sequence number ``counted``. skipped: number of records by kind that
    the tracker doesn't take. error: a lasting failure, or "". last: the latest failure, or "", which a retry may end.
    failures: consecutive ones, over restarts. strange: the unexpected exceptions among them. stopped: it won't continue
    by itself. told: failures reported to the user, by attempt and kind. closed: the status it closed with.
    verify: delivered records are to be read back. verified: the result when this was done last.
    times: of the last record of each stream. damaged: lines of the journal skipped, up to ``damaged_at`` in a stream.
    """

    tracker: str = ""
    seq: int = 0
    offsets: dict[str, Annotated[int, msgspec.Meta(ge=0)]] = {}
    times: dict[str, float] = {}
    damaged: int = 0
    damaged_at: dict[str, int] = {}
    state: dict[str, Any] = {}
    delivered: int = 0
    rejected: int = 0
    counted: int = 0
    skipped: dict[str, int] = {}
    error: str = ""
    error_since: float = 0.0
    last: str = ""
    failures: int = 0
    strange: int = 0
    told: list[str] = []
    stopped: bool = False
    closed: str = ""
    verify: bool = False
    verified: dict[str, Any] = {}
    time: float = 0.0


_decoder = msgspec.json.Decoder(DeliveryState, strict=False)


def read_account(run: RunDirectory, tracker: str) -> DeliveryState:
    """The stored state; a new one if the file is missing or can't be read, as ``last`` says then."""
    try:
        account = _decoder.decode(read_small(run.delivery_state(tracker)))
        check_depth([account.state, account.verified])
        account.tracker = tracker
        return account
    except FileNotFoundError:
        return DeliveryState(tracker=tracker)
    except (OSError, *UNDECODABLE, MemoryError) as error:
        why = getattr(error, "strerror", "") or "it is damaged"
        return DeliveryState(tracker=tracker, last=f"its progress can't be read: {why}")


def is_outdated(run: RunDirectory, account: DeliveryState) -> bool:
    """Whether a closed delivery to a store has to close again, because other trackers' state has changed since."""
    return account.tracker == addresses.STORAGE and bool(account.closed) and others.outdated(run.path, account.state)


def delivery_report(run: RunDirectory, trackers: Iterable[str]) -> dict[str, dict[str, Any]]:
    """By tracker: ``state`` (delivered, waiting, delivering, stopped, not begun, unknown), ``delivered`` and
    ``rejected`` records, ``waiting_bytes`` of the journal, ``error``, ``url``, ``closed`` (the status it closed with),
    ``skipped``, ``damaged`` (lines of the journal), ``verified`` (the last result of reading it back). A delivery that
    runs only inside training is ``ended`` after it, with nothing waiting.
    """
    sizes = run.sizes()
    names = list(dict.fromkeys([*trackers, *run.deliveries()]))
    return {name: tracker_report(run, read_account(run, name), sizes) for name in names}


def is_at_rest(run: RunDirectory, account: DeliveryState, status: str, sizes: Mapping[str, int]) -> bool:
    """Whether a delivery would do nothing: it has all of each stream, no more and no less, and closed with this status.

    Args:
        status: the run's. sizes: of its streams, in bytes.
    """
    closed = account.closed == status and not account.stopped and not account.verify
    return closed and account.offsets == sizes and not is_outdated(run, account)


def tracker_report(run: RunDirectory, account: DeliveryState, sizes: Mapping[str, int]) -> dict[str, Any]:
    """One tracker's entry of :func:`delivery_report`."""
    name = account.tracker
    waiting = sum(max(0, size - account.offsets.get(stream, 0)) for stream, size in sizes.items())
    lease = f"{os.fspath(run.delivery)}/{name}.lease"
    holder = living_holder(Path(lease)) if os.path.lexists(lease) else None  # commands ask of thousands of runs
    if account.stopped:
        state = "stopped"
    elif not waiting and account.closed and not account.verify and not is_outdated(run, account):
        state = "delivered"
    elif holder is not None:
        state = "delivering"
    elif not account.time:
        state = "unknown" if account.last else "not begun"
    else:
        state = "waiting"
    if state != "delivered" and registry.identity(name).inside and observe(run).name != "running":
        state, waiting = "ended", 0
    return {
        "tracker": name, "state": state, "delivered": account.delivered, "rejected": account.rejected,
        "skipped": account.skipped, "damaged": account.damaged, "waiting_bytes": waiting, "closed": account.closed,
        "error": account.error or (account.last if state == "unknown" else ""), "verified": account.verified,
        "url": str(account.state.get("url", "")), "held_by": "" if holder is None else str(holder),
    }  # fmt: skip
