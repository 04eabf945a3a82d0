"""Makes a tree of small files, as the kernel shows devices, from its text: ``path value`` or ``path -> target``."""

from __future__ import annotations

from pathlib import Path

TREES = Path(__file__).parent / "sysfs"


def plant(name: str, root: Path) -> Path:
    """Make the tree called so below a folder; returns the folder."""
    for line in (TREES / f"{name}.txt").read_text().splitlines():
        if line.startswith("#"):
            continue
        path, _, value = line.partition(" ")
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        if value.startswith("-> "):
            (root / path).symlink_to(root / value.removeprefix("-> "))
        else:
            (root / path).write_text(value + "\n")
    return root
