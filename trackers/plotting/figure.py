"""Contents of a picture, independent of how it is drawn: panels with lines, bars or a distribution.

Colours and dashes that tell runs apart, also for the colour-blind and in print.
"""

from __future__ import annotations

from typing import Any

import msgspec

from trackers.plotting.curve_math import Curve
from trackers.records import name_floats

NAMED = 5
"""Maximum number of runs named that have no data for a picture."""


class Bar(msgspec.Struct):
    """One bar. low, high: what its whisker spans; None for none. style: as a line's. note: behind its value."""

    label: str
    value: float
    low: float | None = None
    high: float | None = None
    style: int = 0
    note: str = ""


class Distribution(msgspec.Struct):
    """One run's values, counted between edges (one more than there are counts)."""

    label: str
    edges: Any
    counts: Any
    style: int = 0


class Panel(msgspec.Struct):
    """One diagram. Lines, bars or distributions; with none of them it says ``empty``."""

    title: str
    x_label: str = ""
    y_label: str = ""
    lines: list[Curve] = []
    bars: list[Bar] = []
    distributions: list[Distribution] = []
    log_x: bool = False
    log_y: bool = False
    empty: str = "no values"

    @property
    def blank(self) -> bool:
        """Nothing can be drawn, not even the place of a NaN."""
        shown = any(len(line.x) or len(line.nans) or len(line.highs) or len(line.lows) for line in self.lines)
        return not (shown or self.bars or self.distributions)

    @property
    def styles(self) -> set[int]:
        """Those of the runs that it has something of."""
        shown: list[Curve | Bar | Distribution] = [*self.lines, *self.bars, *self.distributions]
        return {one.style for one in shown}


class Picture(msgspec.Struct):
    """Panels in rows. columns: of panels. legend: label and style of each run, or of each group of runs.

    dashed: what dashed lines are, "" where there are none. about: what the runs are, a line each,
    and notes: how the picture is meant; both below all.
    """

    panels: list[Panel]
    columns: int
    legend: list[tuple[str, int]]
    dashed: str = ""
    notes: list[str] = []
    about: list[str] = []

    def leave_out_absent(self) -> None:
        """Name below the picture, rather than in the legend, what it has nothing of; unless that is all."""
        drawn = {style for panel in self.panels for style in panel.styles}
        absent = [label for label, style in self.legend if style not in drawn]
        if drawn and absent:
            self.legend = [entry for entry in self.legend if entry[1] in drawn]
            more = f" and {len(absent) - NAMED} more" if len(absent) > NAMED else ""
            self.notes.append(f"nothing of this in {', '.join(absent[:NAMED])}{more}")


def as_builtins(picture: Picture) -> Any:
    """What is drawn, for JSON: lines as lists, NaN and infinities as the journal writes them."""

    def listed(value: Any) -> Any:
        return value.tolist()  # an array

    return name_floats(msgspec.to_builtins(picture, enc_hook=listed))


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
