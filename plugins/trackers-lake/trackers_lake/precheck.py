"""Checks of the lake that ``init`` makes before the first step. Imports nothing else of this tracker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from trackers.backends.shared.directory import check_directory, option_directory
from trackers.errors import UsageError
from trackers.object_storage.addresses import store_of
from trackers.tracker import RunInfo, Tracker

SYMBOL = "TRACKER_LAKE"


class LakePrecheck(Tracker):
    """Location of the lake, and the checks that ``init`` makes of it."""

    name = "lake"
    common = True
    needs: ClassVar[tuple[str, ...]] = ("obstore", "pyarrow", "numpy", "duckdb")
    partial = True

    @classmethod
    def check(cls, options: Mapping[str, Any]) -> None:
        """Check that ``TRACKER_LAKE`` names a store or a writable directory.

        Raises:
            UsageError: it is empty, or the directory can't be written.
        """
        location = str(options.get(SYMBOL) or "")
        if not location:
            raise UsageError("tracker 'lake' needs a place: TRACKER_LAKE=s3://bucket/lake, or a directory")
        if not store_of(location):
            check_directory(options, SYMBOL)

    @classmethod
    def place(cls, info: RunInfo) -> str:
        """The lake's location: a store's address, or a directory, relative to where training was started."""
        return store_of(info.option(SYMBOL, "")) or str(option_directory(info, SYMBOL) or "")
