"""Checks of the lake that ``init`` makes before the first step. Imports nothing else of this tracker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from trackers.errors import UsageError
from trackers.object_storage.place import store_of
from trackers.tracker import RunInfo


class LakePrecheck:
    """The lake: its place."""

    name = "lake"
    needs: ClassVar[tuple[str, ...]] = ("obstore", "pyarrow", "numpy", "duckdb")
    partial = True

    @classmethod
    def check(cls, options: Mapping[str, Any]) -> None:
        """Whether there is a place that can be a lake's.

        Raises:
            UsageError: there is none.
        """
        where = str(options.get("TRACKER_LAKE") or "")
        if not where:
            raise UsageError("tracker 'lake' needs a place: TRACKER_LAKE=s3://bucket/lake, or a directory")
        store_of(where)

    @classmethod
    def place(cls, info: RunInfo) -> str:
        """The lake's place."""
        return str(info.option("TRACKER_LAKE", ""))
