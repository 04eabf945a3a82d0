"""Small filesystems that are filled, made read-only and freed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real filesystem of 4 MB and 400 files."""
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a filesystem")
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m,nr_inodes=400", "tmpfs", str(place)], check=True)
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill(disk: Path) -> None:
    """Leave no byte free."""
    with (disk / "filler").open("ab", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while True:
                    if file.write(b"x" * size) < size:
                        break
            except OSError:
                continue


def free(disk: Path) -> None:
    """Give back what ``fill`` took."""
    (disk / "filler").unlink()
