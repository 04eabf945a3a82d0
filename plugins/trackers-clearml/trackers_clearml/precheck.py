"""Checks of ClearML that ``init`` makes before the first step. Imports nothing else of this tracker."""

from __future__ import annotations

from trackers.backends.shared.directory import FilePrecheck


class ClearmlPrecheck(FilePrecheck):
    """ClearML: the directory of its offline sessions."""

    name = "clearml"
    symbol = "CLEARML_OFFLINE_DIR"
