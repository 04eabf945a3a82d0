"""Summaries of sessions for ``make fuzz``."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.fuzz.targets import JSON, Target, of_files

TRACKERS = ("session",)


def seeds(place: Path, run: Path) -> None:
    """The summary of the run."""
    (place / "session").mkdir()
    for path in run.parents[2].glob("logs/*/*_summary.json"):
        shutil.copy(path, place / "session")


def targets() -> dict[str, Target]:
    """What is damaged, and how."""
    return {"session": Target("session", "*.json", JSON, of_files("session", "*.json"))}
