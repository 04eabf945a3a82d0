"""Checks of the terminal that ``init`` makes before the first step. Imports nothing else of this tracker."""

from __future__ import annotations

from trackers.tracker import Tracker


class ConsolePrecheck(Tracker):
    """The terminal: it runs inside training."""

    name = "console"
    partial = True
    inside = True
