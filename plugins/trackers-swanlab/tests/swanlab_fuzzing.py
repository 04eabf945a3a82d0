"""SwanLab's files for ``make fuzz``."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from tests.fuzz import mutate
from tests.fuzz.targets import Target, of_files

TRACKERS = ("swanlab",)


def seeds(place: Path, run: Path) -> None:
    """The directory of a run."""
    shutil.copytree(next((run / "swanlab").iterdir()), place / "swanlab")


def changed_records(data: bytes, dice: random.Random) -> bytes:
    """SwanLab's records, one of them changed, with checksums that fit."""
    payloads = list(mutate.wandb_payloads(data))
    place = dice.randrange(len(payloads))
    payloads[place] = mutate.message(payloads[place], dice)
    if dice.random() < 0.2:
        dice.shuffle(payloads)
    return data[:7] + mutate.wandb_file(payloads)[7:]


def targets() -> dict[str, Target]:
    """What is damaged, and how."""
    ways = (mutate.blind, changed_records)
    return {
        "swanlab": Target("swanlab", "*.swanlab files/* media/*/*", ways, of_files("swanlab", "*.swanlab", copied=True))
    }
