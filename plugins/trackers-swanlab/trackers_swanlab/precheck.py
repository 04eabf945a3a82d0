"""Checks of SwanLab that ``init`` makes before the first step. Imports nothing else of this tracker."""

from __future__ import annotations

from trackers.backends.shared.directory import FilePrecheck


class SwanlabPrecheck(FilePrecheck):
    """SwanLab: its log directory."""

    name = "swanlab"
    symbol = "SWANLAB_LOG_DIR"
