"""Which runs a removal is for, what keeps each, and what became of it."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from trackers.backends import registry
from trackers.editing import trash
from trackers.editing.trash import Removed
from trackers.errors import TrackersError
from trackers.journal.run_directory import RunDirectory
from trackers.journal.status import watch
from trackers.object_storage import mirror
from trackers.retention.lock import choose_runs, need_meant
from trackers.retention.sizes import run_sizes, total


class Candidate(msgspec.Struct):
    """A run that was named. size: bytes. reason: why it stays; "" if nothing keeps it.

    action: keep, remove (what would be done), removed, deleted (for good), failed. trackers: what became of it at each:
    a state and a text.
    """

    run: RunDirectory
    size: int
    reason: str = ""
    action: str = "remove"
    trackers: dict[str, list[str]] | None = None

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        entry: dict[str, Any] = {"run": str(self.run.path), "size": self.size, "action": self.action}
        if self.reason:
            entry["reason"] = self.reason
        if self.trackers is not None:
            entry["trackers"] = self.trackers
        return entry


class RemovalPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How runs are removed.

    at: trackers to delete them from for good. local: leave all trackers. forever: without an undo. store: the address
    of the store that they are in, "" for none; root: the directory of all runs, or the store's copy here; own: where
    this machine writes runs for the store.
    """

    at: Sequence[str]
    local: bool
    forever: bool
    store: str
    root: Path
    own: Path

    def candidates(
        self, references: list[str], count: int | None, say: Callable[[str], None] = lambda text: None
    ) -> list[Candidate]:
        """The runs that are named.

        Args:
            count: how many there must be; None for any.
            say: called with what is waited for.

        Raises:
            UsageError: an unknown tracker, other runs than ``count``. NotFound: no such runs.
        """
        for name in self.at:
            registry.precheck(name)
        need_meant(references, self.root, count)
        runs = choose_runs(references, self.root)
        refresh = functools.partial(mirror.refresh, self.store, self.root) if self.store else None
        watch(runs, say, refresh=refresh)
        found = [Candidate(run, total(run_sizes(run.path)), trash.why_not(run, self.store)) for run in runs]
        for one in found:
            one.action = "keep" if one.reason else "remove"
        return found

    def remove(self, candidate: Candidate) -> Removed:
        """Remove a run; the candidate says how it went.

        Raises:
            TrackersError, OSError: it is still there.
        """
        run = candidate.run
        try:
            home = run
            if self.store:  # whole, where this machine writes, so that it can be brought back
                home = RunDirectory(mirror.fetch_run(self.store, self.own, run.path.parent.name, run.path.name))
            removed = trash.remove(home, at=self.at, local=self.local, store=self.store)
        except (TrackersError, OSError) as error:
            candidate.action, candidate.reason = "failed", str(error)
            raise
        outcomes = removed.note.trackers.items()
        candidate.action, candidate.trackers = "removed", {name: [one.state, one.text] for name, one in outcomes}
        if self.store:
            shutil.rmtree(run.path, ignore_errors=True)  # the copy; the run itself is in the trash
        return removed

    def empty_if_asked(self, candidate: Candidate, removed: Removed, *, lacks: bool) -> None:
        """Delete a removed run's files; not where a tracker lacks something, which the next call does again.

        Raises:
            OSError: they can't be deleted.
        """
        if self.forever and not lacks:
            trash.empty(removed)
            candidate.action = "deleted"
