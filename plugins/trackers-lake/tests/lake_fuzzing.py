"""A lake's files for ``make fuzz``."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.fuzz import mutate
from tests.fuzz.targets import Target, everything


def seeds(place: Path, run: Path) -> None:
    """A lake with that run, and a checkpoint of one of its tables."""
    from trackers_lake.into_lake import add
    from trackers_lake.tables import Lake

    add([str(run)], place / "lake/lake")
    Lake(place / "lake/lake").compact("metrics")


def targets() -> dict[str, Target]:
    """What is damaged, and how."""
    return {
        "lake": Target("lake", "lake/*/*.parquet", (mutate.blind, mutate.parquet), _read),
        "lake-log": Target("lake", "lake/lake.json lake/*/_delta_log/*", (mutate.blind, mutate.json_in_lines), _read),
    }


def _read(place: Path) -> None:
    """A lake: its runs in every way, SQL, and a run put in once more."""
    from trackers_lake.tables import Lake

    from trackers.analysis.sql import sql

    everything(f"lake:{place}/lake")
    for table in ("metrics", "events", "runs"):
        sql(f"select * from {table}", [f"lake:{place}/lake"])
    shutil.copytree(place / "lake", place / "again", dirs_exist_ok=True)
    lake = Lake(place / "again")
    lake.remove([("digits", "seedrun1")])
    lake.vacuum(0)
