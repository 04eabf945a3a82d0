"""Checks of the CSV table that ``init`` makes before the first step. Imports nothing else of this tracker."""

from __future__ import annotations

from trackers.backends.shared.directory import FilePrecheck


class CsvPrecheck(FilePrecheck):
    """The table: its directory."""

    name = "csv"
    symbol = "CSV_DIR"
