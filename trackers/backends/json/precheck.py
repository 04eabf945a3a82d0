"""What ``init`` asks of the JSON log before the first step. Loads nothing else of this tracker."""

from __future__ import annotations

from trackers.backends.shared.file_precheck import FilePrecheck


class JsonPrecheck(FilePrecheck):
    """The JSON log: its directory."""

    name = "json"
    symbol = "JSON_DIR"
