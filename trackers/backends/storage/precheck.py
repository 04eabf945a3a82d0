"""Checks of the store of runs that ``init`` makes before the first step. Imports nothing else of this tracker."""

from __future__ import annotations

from typing import ClassVar

from trackers.object_storage.addresses import normalize
from trackers.tracker import RunInfo, Tracker


class StoragePrecheck(Tracker):
    """The store's address and what it requires."""

    name = "storage"
    needs: ClassVar[tuple[str, ...]] = ("obstore",)
    partial = True

    @classmethod
    def place(cls, info: RunInfo) -> str:
        """The store's address."""
        return normalize(str(info.option("TRACKER_DIR", "")))
