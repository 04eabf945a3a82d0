"""Checks of ``progress.txt`` that ``init`` makes before the first step. Imports nothing else of this tracker."""

from __future__ import annotations

from typing import ClassVar

from trackers.backends.shared.directory import FilePrecheck


class ProgressPrecheck(FilePrecheck):
    """``progress.txt``: the checkpoints' directory."""

    name = "progress"
    partial = True
    symbol = "PROGRESS_DIR"
    unedited: ClassVar[dict[str, str]] = dict.fromkeys(
        ("name", "tags", "notes", "group", "results"), "progress files have steps alone"
    )
