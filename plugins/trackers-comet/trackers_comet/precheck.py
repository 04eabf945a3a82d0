"""Checks of Comet that ``init`` makes before the first step. Imports nothing else of this tracker."""

from __future__ import annotations

from trackers.backends.shared.directory import FilePrecheck


class CometPrecheck(FilePrecheck):
    """Comet: the directory of its archives."""

    name = "comet"
    symbol = "COMET_OFFLINE_DIRECTORY"
