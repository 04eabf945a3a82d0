"""Runs that are sent to a store, as they begin: what the store has of a run that goes on, and whose an attempt is."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trackers.errors import DeliveryError, NotFound, UsageError
from trackers.journal.run_directory import project_folder
from trackers.object_storage.addresses import STORAGE
from trackers.support import confined
from trackers.support.interruption import pass_on, suppress

EVERY_S = 5.0
"""How often, where the options don't say it."""
LEASE = "relay.lease"
LEASE_BYTES = 64 * 1024


def with_tracker(names: list[str], where: str, options: Mapping[str, Any]) -> list[str]:
    """A run's trackers, with the one that sends it to its store.

    Raises:
        UsageError: that one was asked for, and there is no store.
    """
    if STORAGE in names and not where:
        directory = str(options.get("TRACKER_DIR") or "runs")
        raise UsageError(
            f"tracker 'storage' sends runs to TRACKER_DIR, which is {directory!r}: give s3://bucket/prefix"
        )
    return [*names, STORAGE] if where and names and STORAGE not in names else names


def fetch(where: str, root: Path, project: str, run_id: str, resume: str | None) -> list[str]:
    """Fetch what the store has of the run with an id, or of the project's runs.

    Returns:
        directories of the runs that were copied, since the store has later attempts of them.

    Raises:
        UsageError: the store can't be read.
    """
    from trackers.object_storage import mirror

    try:
        return mirror.fetch_runs(where, root, project_folder(project), run_id)
    except (DeliveryError, OSError) as error:
        pass_on(error)
        asked = f"resume={resume!r}" if resume else f"id={run_id!r}"
        raise UsageError(f"{asked} needs what the store has: {error}") from None


def fetch_lease(where: str, run: Path) -> None:
    """Fetch the lease of a run's relay, which changes while the run goes on; without an answer it stays as it was."""
    from trackers.object_storage.store import Store

    with suppress(DeliveryError, NotFound, OSError):
        content = Store(where).get(f"{_home(run)}/{LEASE}", LEASE_BYTES)
        confined.write_whole(run / LEASE, content, root=run)


def claimed(where: str, run: Path) -> tuple[int, str]:
    """The newest attempt of a run that a process has begun, as the store has it, and on which host; 0 before the first.

    One that was killed before it had sent anything has its number, too.

    Raises:
        UsageError: the store can't be asked.
    """
    from trackers.object_storage import removal
    from trackers.object_storage.store import Store

    try:
        return removal.newest(Store(where), _home(run))
    except DeliveryError as error:
        raise UsageError(f"id={run.name!r} needs what the store has: {error}") from None


def claim(where: str, run: Path, attempt: int, discard: Callable[[], None]) -> None:
    """Claim an attempt of a run with a given id, or of a continued one, in the store, before anything is logged to it.

    Args:
        discard: called where it is another process's.

    Raises:
        UsageError: it is, or the store can't be asked.
    """
    from trackers.object_storage.shipping import claim_attempt
    from trackers.object_storage.store import Store

    try:
        claim_attempt(Store(where), run, _home(run), attempt)
    except DeliveryError as error:
        discard()
        raise UsageError(f"{error}; begin again, or begin a new run") from None


def _home(run: Path) -> str:
    """A run's place in a store, ``<project>/<run id>``."""
    return "/".join(run.parts[-2:])


def notice(host: str, last_time: float, step: int | None, options: Mapping[str, Any]) -> str:
    """What is said where a run goes on from what the store has.

    Args:
        last_time: of its last record there, in Unix seconds. step: its last step there, if it has one.
        options: with which it was written there.
    """
    clock = time.strftime("%H:%M:%S", time.localtime(last_time))
    upto = clock if step is None else f"step {step:,} at {clock}"
    every_s = float(options.get("TRACKER_STORE_EVERY") or EVERY_S)
    return (
        f"goes on from what the store has, up to {upto}; what {host or 'its machine'} logged after that, at most "
        f"{every_s:g} s of it if it could reach the store, isn't there"
    )
