"""What ``init`` asks of the terminal before the first step. Loads nothing else of this tracker."""

from __future__ import annotations


class ConsolePrecheck:
    """The terminal: it runs inside training."""

    name = "console"
    partial = True
    inside = True
