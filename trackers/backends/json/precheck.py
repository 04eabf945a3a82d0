"""Checks of the JSON log that ``init`` makes before the first step. Imports nothing else of this tracker."""

from __future__ import annotations

from trackers.backends.shared.directory import FilePrecheck


class JsonPrecheck(FilePrecheck):
    """The JSON log: its directory."""

    name = "json"
    symbol = "JSON_DIR"
