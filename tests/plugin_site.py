"""Distributions as an installer leaves them, for tests of what plug-ins bring."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

_POINTS = re.compile(r'^\[project\.entry-points\."trackers\.(\w+)"\]\n((?:\w+ = ".*"\n)+)', re.M)
_POINT = re.compile(r'(\w+) = "(.*)"')


def points(home: Path) -> dict[str, dict[str, str]]:
    """What a distribution's pyproject.toml declares, as :func:`install` takes it."""
    found: dict[str, dict[str, str]] = {}
    for group, lines in _POINTS.findall((home / "pyproject.toml").read_text("utf-8")):
        found[group] = dict(_POINT.findall(lines))
    return found


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
