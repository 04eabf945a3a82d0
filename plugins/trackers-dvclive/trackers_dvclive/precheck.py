"""Checks of DVCLive that ``init`` makes before the first step. Imports nothing else of this tracker."""

from __future__ import annotations

from typing import ClassVar

from trackers.backends.shared.directory import FilePrecheck


class DvclivePrecheck(FilePrecheck):
    """DVCLive: the directory of its folders."""

    name = "dvclive"
    symbol = "DVCLIVE_DIR"
    unedited: ClassVar[dict[str, str]] = dict.fromkeys(("name", "tags", "notes", "group"), "DVCLive has none")
