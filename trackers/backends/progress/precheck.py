"""What ``init`` asks of ``progress.txt`` before the first step. Loads nothing else of this tracker."""

from __future__ import annotations

from trackers.backends.shared.file_precheck import FilePrecheck


class ProgressPrecheck(FilePrecheck):
    """``progress.txt``: the checkpoints' directory."""

    name = "progress"
    partial = True
    symbol = "PROGRESS_DIR"
