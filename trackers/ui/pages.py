"""The files of the live page: its frame, its style and its scripts, a module for each view."""

from __future__ import annotations

from importlib import resources

SHARED = ("chart.js", "chart.css")
"""Those of the pages of ``plot`` and ``report``, too."""


def names() -> list[str]:
    """All scripts and styles."""
    own = (path.name for path in (resources.files("trackers.ui") / "page").iterdir())
    return sorted([*SHARED, *(name for name in own if name.endswith((".js", ".css")))])


def part(name: str) -> str:
    """The text of a file."""
    if name in SHARED:
        return (resources.files("trackers.plotting") / name).read_text("utf-8")
    return (resources.files("trackers.ui") / "page" / name).read_text("utf-8")
