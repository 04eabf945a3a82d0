"""Distributions as an installer leaves them, for tests of what plug-ins bring."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def install(site: Path, name: str, points: Mapping[str, Mapping[str, str]], version: str = "1", **modules: str) -> None:
    """Put a distribution with entry points into a directory, which is to stand on Python's path.

    Args:
        points: by group without ``trackers.``, name and what it stands for. modules: sources by module.
    """
    metadata = site / f"{name.replace('-', '_')}-{version}.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    sections = (
        "\n".join([f"[trackers.{group}]", *(f"{key} = {value}" for key, value in named.items()), ""])
        for group, named in points.items()
    )
    (metadata / "entry_points.txt").write_text("\n".join(sections))
    for module, text in modules.items():
        (site / f"{module}.py").write_text(text)
