"""Which colour a run's curves have, the same one wherever they are drawn."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence

COLOURS = (
    "#D4788D", "#1408F9", "#F51E23", "#B073FC", "#0C3C61", "#73092F", "#E4289C", "#179DD3",
    "#B61CFD", "#B08E51", "#D1075A", "#156BC4", "#4013A3", "#60780A", "#763D24", "#940796",
)  # fmt: skip
"""On white paper and light pages. Each has a contrast of 3:1 or more to them.

All differ clearly, also for people who see no red, no green or no blue.
"""
DARK_COLOURS = (
    "#EFA0C1", "#3C57FA", "#CE0C0B", "#D4A1FD", "#057363", "#B04235", "#F9408A", "#059AC4",
    "#D36AFF", "#C8D61B", "#E77C1D", "#3EE6A3", "#7750BA", "#97DD67", "#B99D64", "#B54297",
)  # fmt: skip
"""The same on dark pages, each near the hue of its light one."""


def identity_of(run_id: str) -> int:
    """A number that a run has by its id alone, 0 to 2**32 - 1: its colour comes from it."""
    return zlib.crc32(run_id.encode("utf-8", "surrogatepass"))


def styles_of(identities: Sequence[int]) -> list[int]:
    """The styles of runs that are drawn together, distinct, and for each run the same one wherever it is drawn.

    A run has the colour that its identity asks for. Where another one of these runs has it, the run with the smaller
    identity keeps it, and the other one takes the next that is free; dashes begin when all colours are taken.
    """
    size = len(COLOURS)
    styles = [0] * len(identities)
    free: list[list[int]] = []
    for place in sorted(range(len(identities)), key=lambda place: (identities[place], place)):
        layer = next((layer for layer in range(len(free)) if free[layer]), None)
        if layer is None:
            layer = len(free)
            free.append(list(range(size)))
        wanted = identities[place] % size
        slot = min(free[layer], key=lambda slot: (slot - wanted) % size)
        free[layer].remove(slot)
        styles[place] = layer * size + slot
    return styles


def styles_of_groups(labels: Iterable[str]) -> dict[str, int]:
    """The styles of groups of runs by their labels: distinct, and the same wherever these groups are drawn together."""
    names = list(dict.fromkeys(labels))
    return dict(zip(names, styles_of([identity_of(name) for name in names]), strict=True))
