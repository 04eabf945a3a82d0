"""Check that ``init`` makes for a tracker that writes files: its directory must be writable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trackers.backends.shared.directory import check_directory, option_directory
from trackers.tracker import RunInfo


class FilePrecheck:
    """A tracker that writes files to the directory that an option names, or to the run's own."""

    symbol = ""

    @classmethod
    def check(cls, options: Mapping[str, Any]) -> None:
        """Raise a UsageError for a directory that can't be written."""
        check_directory(options, cls.symbol)

    @classmethod
    def place(cls, info: RunInfo) -> str:
        """The directory that the option names; "" where it is unset and the run's own is taken."""
        return str(option_directory(info, cls.symbol) or "")
