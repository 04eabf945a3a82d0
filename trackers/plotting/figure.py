"""Contents of a picture, independent of how it is drawn: panels with lines, bars or a distribution.

Colours and dashes that tell runs apart, also for the colour-blind and in print.
"""

from __future__ import annotations

from typing import Any

import msgspec

from trackers.metrics.styles import COLOURS
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
    """One diagram. Lines, bars or distributions; with none of them it says ``empty``.

    floor, ceiling: what a linear y axis reaches down and up to at least, so that it doesn't exaggerate: 0 and 100 of a
    utilisation in percent; None: as the values are.
    """

    title: str
    x_label: str = ""
    y_label: str = ""
    lines: list[Curve] = []
    bars: list[Bar] = []
    distributions: list[Distribution] = []
    log_x: bool = False
    log_y: bool = False
    empty: str = "no values"
    floor: float | None = None
    ceiling: float | None = None

    @property
    def heights(self) -> tuple[float, float] | None:
        """The ends of a linear y axis, as far as ``floor`` and ``ceiling`` decide; None where nothing does."""
        import numpy as np

        if self.log_y or not self.lines or (self.floor is None and self.ceiling is None):
            return None
        parts = [np.asarray(part, np.float64) for line in self.lines for part in (line.y, line.low, line.high)]
        values = np.concatenate(parts)
        values = values[np.isfinite(values)]
        if not len(values):
            return None
        low, high = float(values.min()), float(values.max())
        edge = (max(high, self.ceiling or high) - min(low, self.floor if self.floor is not None else low)) * 0.04
        bottom = self.floor if self.floor is not None and low >= self.floor else low - edge
        return bottom, max(high, self.ceiling if self.ceiling is not None else high) + (edge or 1.0)

    def has_whole_numbers(self, axis: str) -> bool:
        """Whether all finite values along an axis, "x" or "y", are whole numbers: then so are its ticks."""
        import numpy as np

        parts = [np.asarray(getattr(line, axis), np.float64) for line in self.lines]
        return bool(parts) and all(bool((part == np.round(part))[np.isfinite(part)].all()) for part in parts)

    @property
    def blank(self) -> bool:
        """Nothing can be drawn, not even the position of a NaN."""
        shown = any(len(line.x) or len(line.nans) or len(line.highs) or len(line.lows) for line in self.lines)
        return not (shown or self.bars or self.distributions)

    @property
    def styles(self) -> set[int]:
        """Those of the runs that it has something of."""
        items: list[Curve | Bar | Distribution] = [*self.lines, *self.bars, *self.distributions]
        return {item.style for item in items}


class Picture(msgspec.Struct):
    """Panels in rows. columns: of panels. legend: label and style of each run, or of each group of runs.

    dashed: what dashed lines are, "" where there are none. about: what the runs are, a line each,
    and notes: how the picture is meant; both below all. title: above all, "" for none. aligned: rows or columns of
    panels belong together.
    """

    panels: list[Panel]
    columns: int
    legend: list[tuple[str, int]]
    dashed: str = ""
    notes: list[str] = []
    about: list[str] = []
    title: str = ""
    aligned: bool = False

    def leave_out_blank(self) -> list[str]:
        """Leave out the panels that have nothing to draw, unless none has anything, or they are aligned with others.

        Returns:
            what each of those that have nothing to draw is called.
        """
        titles = [panel.title for panel in self.panels]
        blank = [
            panel.title if titles.count(panel.title) == 1 else f"{panel.title}, {panel.y_label}"
            for panel in self.panels
            if panel.blank
        ]
        if blank and len(blank) < len(self.panels) and not self.aligned:
            self.panels = [panel for panel in self.panels if not panel.blank]
            self.columns = min(self.columns, len(self.panels))
        return blank

    def renumbered(self) -> Picture:
        """The same with styles that are places in the legend: 0, 1, …"""
        places = {style: place for place, (_, style) in enumerate(self.legend)}

        def again(items: list[Any]) -> list[Any]:
            return [msgspec.structs.replace(item, style=places.get(item.style, item.style)) for item in items]

        panels = [
            msgspec.structs.replace(
                panel, lines=again(panel.lines), bars=again(panel.bars), distributions=again(panel.distributions)
            )
            for panel in self.panels
        ]
        return msgspec.structs.replace(self, panels=panels, legend=[(label, places[s]) for label, s in self.legend])

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


DASHES: tuple[tuple[float, ...], ...] = (
    (), (6, 2), (1.5, 1.5), (8, 2, 1.5, 2), (3, 1.5), (10, 3), (6, 2, 1, 2, 1, 2), (3, 1.5, 1, 1.5),
)  # fmt: skip
"""Lengths of dashes and gaps, in line widths; the second sixteen runs have the second kind, and so on."""

SECOND: tuple[float, ...] = (4, 2)
"""A run's second line, where each run has two."""


def colour(style: int) -> str:
    """The colour of a style."""
    return COLOURS[style % len(COLOURS)]


def dashes(style: int) -> tuple[float, ...]:
    """The dashes of a style; empty for a whole line."""
    return DASHES[style // len(COLOURS) % len(DASHES)]
