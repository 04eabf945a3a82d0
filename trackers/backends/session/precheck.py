"""Checks of the session logs that ``init`` makes before the first step. Imports nothing else of this tracker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trackers.backends.session.settings import check_levels
from trackers.backends.shared.file_precheck import FilePrecheck


class SessionPrecheck(FilePrecheck):
    """The session logs: their directory, and two levels."""

    name = "session"
    symbol = "SESSION_DIR"

    @classmethod
    def check(cls, options: Mapping[str, Any]) -> None:
        """Raise a UsageError for a directory that can't be written, or for a level that isn't one."""
        check_levels(options)
        super().check(options)
