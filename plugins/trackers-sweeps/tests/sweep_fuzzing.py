"""Files of sweeps for ``make fuzz``."""

from __future__ import annotations

import os
from pathlib import Path

from tests.fuzz import planted
from tests.fuzz.targets import TEXT, Target
from trackers.errors import TrackersError


def seeds(place: Path, run: Path) -> None:
    """YAML of a sweep and of others, each of which a file of a sweep may be mistaken for."""
    (place / "sweeps").mkdir()
    for name, text in planted.YAML_FILES.items():
        (place / "sweeps" / name).write_text(text, "utf-8")


def targets() -> dict[str, Target]:
    """What is damaged, and how."""
    damages = (*TEXT, planted.yaml_aliases, planted.yaml_tags, *[planted.yaml_values] * 3)
    return {"sweeps": Target("sweeps", "*.yaml", damages, _read, alone=True)}


def _read(place: Path) -> None:
    """A sweep made of every file; nothing that it says is run."""
    from trackers_sweeps.space import of_file

    os.chdir(place)
    refused = []
    paths = sorted(place.glob("*.yaml"))
    for path in paths:
        try:
            of_file(path)
        except TrackersError as error:
            refused.append(error)
    assert not os.path.lexists("ran")
    if len(refused) == len(paths):
        raise refused[0]
