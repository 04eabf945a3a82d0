"""What ``init`` asks of the CSV table before the first step. Loads nothing else of this tracker."""

from __future__ import annotations

from trackers.backends.shared.file_precheck import FilePrecheck


class CsvPrecheck(FilePrecheck):
    """The table: its directory."""

    name = "csv"
    symbol = "CSV_DIR"
