"""Checks of Aim that ``init`` makes before the first step. Imports nothing else of this tracker."""

from __future__ import annotations

from trackers.backends.shared.directory import FilePrecheck


class AimPrecheck(FilePrecheck):
    """Aim: its package, and the directory of its store."""

    name = "aim"
    common = True
    needs = ("aim",)
    symbol = "AIM_DIR"
