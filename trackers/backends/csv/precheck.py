"""Checks of the CSV table that ``init`` makes before the first step. Imports nothing else of this tracker."""

from __future__ import annotations

from typing import ClassVar

from trackers.backends.shared.directory import FilePrecheck


class CsvPrecheck(FilePrecheck):
    """The table: its directory."""

    name = "csv"
    symbol = "CSV_DIR"
    unedited: ClassVar[dict[str, str]] = dict.fromkeys(("name", "tags", "notes", "group"), "a table has values alone")
