"""Checks of the store of runs that ``init`` makes before the first step. Imports nothing else of this tracker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from trackers.errors import UsageError
from trackers.object_storage.place import address, is_address
from trackers.tracker import RunInfo


class StoragePrecheck:
    """The store: its address."""

    name = "storage"
    needs: ClassVar[tuple[str, ...]] = ("obstore",)
    partial = True

    @classmethod
    def check(cls, options: Mapping[str, Any]) -> None:
        """See that there is an address.

        Raises:
            UsageError: TRACKER_DIR is a directory of this machine, or no address of a store.
        """
        where = options.get("TRACKER_DIR")
        if not is_address(where):
            raise UsageError(
                f"tracker 'storage' sends runs to TRACKER_DIR, which is {where!r}: give s3://bucket/prefix"
            )
        address(str(where))

    @classmethod
    def place(cls, info: RunInfo) -> str:
        """The store's address."""
        return address(str(info.option("TRACKER_DIR", "")))
