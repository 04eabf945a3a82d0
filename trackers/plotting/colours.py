"""Colours and dashes that tell runs apart, also for the colour-blind and in print."""

from __future__ import annotations

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's colours (2008, https://jfly.uni-koeln.de/color/) without yellow, which white paper swallows."""

DASHES: tuple[tuple[float, ...], ...] = (
    (), (6, 2), (1.5, 1.5), (8, 2, 1.5, 2), (3, 1.5), (10, 3), (6, 2, 1, 2, 1, 2), (3, 1.5, 1, 1.5),
)  # fmt: skip
"""Lengths of dashes and gaps, in line widths; the second seven runs have the second kind, and so on."""

SECOND: tuple[float, ...] = (4, 2)
"""A run's second line, where each run has two."""


def colour(style: int) -> str:
    """The colour of a style."""
    return COLOURS[style % len(COLOURS)]


def dashes(style: int) -> tuple[float, ...]:
    """The dashes of a style; empty for a whole line."""
    return DASHES[style // len(COLOURS) % len(DASHES)]
