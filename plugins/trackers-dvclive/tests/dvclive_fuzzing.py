"""DVCLive's folders for ``make fuzz``."""

from __future__ import annotations

import zlib
from pathlib import Path

from test_dvclive_reader import by_the_client, written

from tests.fuzz.targets import JSON, Target, changed_files, everything, fetched


def seeds(place: Path, run: Path) -> None:
    """A folder of this package's, and one of the client's."""
    written(place / "dvclive/ours")
    by_the_client(place / "dvclive/theirs/dvclive")


def targets() -> dict[str, Target]:
    """What is damaged, and how."""
    return {"dvclive": Target("dvclive", "**/*.tsv **/*.json **/*.jsonl **/*.yaml", JSON, _read)}


def _read(place: Path) -> None:
    """Read the directories of which a file is damaged as a copy does, and one input of ten in every other way."""
    changed = changed_files(place, "**/*")
    often = zlib.crc32(b"".join((place / path).read_bytes() for path in changed)) % 10 != 0
    for name in sorted({path.parts[0] for path in changed}):
        fetched(f"dvclive:{place / name}", place)
        if not often:
            everything(f"dvclive:{place / name}")
    if not changed:
        fetched(f"dvclive:{place}", place)
