"""Neptune's exports for ``make fuzz``."""

from __future__ import annotations

from pathlib import Path

from neptune_export import T0, described, export, row, safe
from PIL import Image

from tests.fuzz import mutate
from tests.fuzz.targets import Target, everything, fetched


def seeds(place: Path, run: Path) -> None:
    """An export of Neptune in two files, with a picture and a set of files."""
    place = place / "neptune"
    files = place / "files" / safe("me/digits") / "run"
    (files / "set").mkdir(parents=True)
    (files / "set/a.txt").write_text("a")
    Image.new("RGB", (4, 4)).save(files / "picture.png")
    points = [row("loss", "float_series", 1 / (step + 1), step / 4, T0 + step) for step in range(12)]
    others = [
        row("log", "string_series", "text", 1, T0),
        row("weights", "histogram_series", {"edges": [0.0, 1.0], "values": [3.0]}, 1, T0),
        row("picture", "file_series", {"path": "run/picture.png"}, 2, T0),
        row("set", "file_set", {"path": "run/set"}),
    ]
    export(place, [[*described(), row("parameters/lr", "float", 0.1), *points], others])


def targets() -> dict[str, Target]:
    """What is damaged, and how."""
    return {"neptune": Target("neptune", "data/*/*.parquet", (mutate.blind, mutate.parquet), _read)}


def _read(place: Path) -> None:
    everything(f"neptune:{place}")
    fetched(f"neptune:{place}", place)
