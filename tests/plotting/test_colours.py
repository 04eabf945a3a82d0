"""Curves stay apart for people who see colours otherwise: distances under simulated colour blindness."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from importlib import resources
from typing import Any

import numpy as np
import pytest

from trackers.metrics.styles import COLOURS, DARK_COLOURS

# Machado, Oliveira, Fernandes 2009, severity 1.0: https://www.inf.ufrgs.br/~oliveira/pubs_files/CVD_Simulation/
SIGHT = {
    "all": np.eye(3),
    "no red": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "no green": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "no blue": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
# https://www.w3.org/Graphics/Color/sRGB and CIE 15: linear RGB to XYZ, and D65's white.
XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)
WHITE = np.array([0.95047, 1.0, 1.08883])
APART = 15.0
"""In CIE Lab; 2.3 is a difference that can just be seen."""


def seen(colour: str, sight: Any) -> Any:
    """A colour in CIE Lab, as somebody with this sight has it."""
    parts = np.array([int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)])
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    xyz = XYZ @ np.clip(np.array(sight) @ linear, 0, 1) / WHITE
    cubic = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    return np.array([116 * cubic[1] - 16, 500 * (cubic[0] - cubic[1]), 200 * (cubic[1] - cubic[2])])


def nearest(colours: Sequence[str], sight: Any) -> float:
    """How far apart the two are that are nearest to each other."""
    found = [seen(colour, sight) for colour in colours]
    return min(float(np.linalg.norm(one - other)) for one, other in itertools.combinations(found, 2))


@pytest.mark.parametrize("colours", [COLOURS, DARK_COLOURS], ids=["light", "dark"])
@pytest.mark.parametrize("sight", SIGHT)
def test_colours_stay_apart_for_every_sight(sight: str, colours: Sequence[str]) -> None:
    """Any two of the colours differ clearly."""
    assert len(colours) >= 16
    assert nearest(colours, SIGHT[sight]) >= APART


def luminance(colour: str) -> float:
    """The relative luminance that https://www.w3.org/TR/WCAG22 defines."""
    parts = np.array([int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)])
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ np.array([0.2126, 0.7152, 0.0722]))


@pytest.mark.parametrize(
    ("colours", "ground"), [(COLOURS, "#ffffff"), (DARK_COLOURS, "#14181d")], ids=["light", "dark"]
)
def test_colours_are_seen_on_their_ground(colours: Sequence[str], ground: str) -> None:
    """A contrast of 3:1 or more, which WCAG asks for of what is drawn."""
    below = luminance(ground)
    for colour in colours:
        low, high = sorted((below, luminance(colour)))
        assert (high + 0.05) / (low + 0.05) >= 3, colour
    page = (resources.files("trackers.ui") / "page" / "app.css").read_text("utf-8")
    assert f"--page: {ground}" in page


def test_common_palette_would_fail() -> None:
    """The first seven of matplotlib's usual colours are too near to each other for people who see no red."""
    usual = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2")
    assert nearest(usual, SIGHT["no red"]) < APART / 2
