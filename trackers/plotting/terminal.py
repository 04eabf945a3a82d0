"""Panels as text for a terminal, drawn with plotext."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trackers.analysis.tables import plain
from trackers.metrics.styles import DARK_COLOURS
from trackers.plotting.curve_math import Curve
from trackers.plotting.figure import Panel, Picture
from trackers.plotting.matplotlib_figure import short_label
from trackers.support.optional import need

WIDTH, HEIGHT = 60, 12
"""The least that a diagram needs; in a smaller terminal its lines are broken."""
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
"""Letters that distinguish runs without colours."""
LEGEND = 20
TICKS = 5


def text(picture: Picture, *, width: int, height: int, coloured: bool) -> str:
    """The panels below each other.

    Args:
        width, height: of each, in characters. coloured: with escapes for colours; else each run has a letter.

    Raises:
        MissingPackage: no plotext.
    """
    need("plotext", "a plot in the terminal (-o FILE draws an image)")
    if not coloured:
        picture = picture.renumbered()  # letters in the order of the legend
    parts = [_panel(panel, max(width, WIDTH), max(height, HEIGHT), coloured) for panel in picture.panels]
    title = [plain(picture.title)] if picture.title else []
    return "\n".join([*title, *parts, *_legend(picture, coloured), *map(plain, picture.about)]) + "\n"


def _panel(panel: Panel, width: int, height: int, coloured: bool) -> str:
    import plotext

    if panel.blank:
        return f"{short_label(panel.title)}: {panel.empty}"
    plotext.clear_figure()
    plotext.theme("clear")
    plotext.limit_size(False, False)
    plotext.plotsize(width, height)
    plotext.title(short_label(panel.title))
    plotext.xlabel(panel.x_label)
    if panel.bars:
        bars = panel.bars[::-1]
        labels = [f"{short_label(bar.label, 20)} {bar.value:.5g} {bar.note}".rstrip() for bar in bars]
        plotext.plotsize(width, max(height, 2 * len(bars) + 4))
        plotext.bar(labels, [bar.value for bar in bars], orientation="horizontal", width=0.5)
    for distribution in panel.distributions:
        middles = [(low + high) / 2 for low, high in zip(distribution.edges[:-1], distribution.edges[1:], strict=True)]
        plotext.plot(
            middles, [int(count) for count in distribution.counts], **_line_style(distribution.style, coloured)
        )
    _scales(panel)
    for line in panel.lines:
        for x, y in segments(line):
            plotext.plot(x, y, **_line_style(line.style, coloured))
    _draw_markers(panel)
    if panel.lines:
        for axis, logarithmic, ticks in (("x", panel.log_x, plotext.xticks), ("y", panel.log_y, plotext.yticks)):
            positions = _ticks(
                [value for line in panel.lines for value in getattr(line, axis)[_finite(line.y)]], logarithmic
            )
            if panel.has_whole_numbers(axis):
                positions = sorted({float(round(position)) for position in positions})
            ticks(positions, [f"{position:.4g}" for position in positions])
    if (heights := panel.heights) is not None:
        plotext.ylim(*heights)
        positions = [heights[0] * (1 - part) + heights[1] * part for part in (0, 0.25, 0.5, 0.75, 1)]
        positions = [position for position in positions if panel.ceiling is None or position <= panel.ceiling]
        if panel.floor is not None and panel.ceiling is not None and heights[0] == panel.floor:
            positions = [panel.floor + (panel.ceiling - panel.floor) * part for part in (0, 0.25, 0.5, 0.75, 1)]
        plotext.yticks(positions, [f"{position:.4g}" for position in positions])
    drawn = plotext.build()
    return str(drawn if coloured else plotext.uncolorize(drawn)).rstrip("\n")


def _scales(panel: Panel) -> None:
    import plotext

    if panel.lines:
        drawn = any(_finite(line.y).any() for line in panel.lines)
        plotext.xscale("log" if panel.log_x and drawn else "linear")
        plotext.yscale("log" if panel.log_y and drawn else "linear")


def _ticks(values: list[Any], logarithmic: bool) -> list[float]:
    """Positions of numbers on an axis; plotext's own would write hundreds of digits of 1e300."""
    import numpy as np

    low, high = float(min(values, default=1.0)), float(max(values, default=1.0))
    if low == high:
        return [low]
    if logarithmic:
        return [float(position) for position in np.geomspace(low, high, TICKS)]
    return [low * (1 - part) + high * part for part in (number / (TICKS - 1) for number in range(TICKS))]


def _draw_markers(panel: Panel) -> None:
    """NaN and infinities at the lower and upper edge of what is drawn."""
    import plotext

    values = [value for line in panel.lines for value in line.y[_finite(line.y)].tolist()]
    low, high = min(values, default=1.0), max(values, default=1.0)
    for name, marker, height in (("nans", "×", low), ("highs", "▲", high), ("lows", "▼", low)):
        xs = [float(x) for line in panel.lines for x in getattr(line, name)]
        if xs:
            plotext.scatter(xs, [height] * len(xs), marker=marker)


def segments(line: Curve) -> Iterator[tuple[list[float], list[float]]]:
    """The parts of a curve between its gaps, as logged: there is no place for a smoothed one beside it."""
    import numpy as np

    x, y = line.x, line.y
    whole = _finite(y)
    for part in np.split(np.arange(len(x)), np.flatnonzero(np.diff(whole.astype(int))) + 1):
        if len(part) and whole[part[0]]:
            yield x[part].tolist(), y[part].tolist()


def _finite(values: Any) -> Any:
    import numpy as np

    return np.isfinite(np.asarray(values, np.float64))


def _line_style(style: int, coloured: bool) -> dict[str, Any]:
    if not coloured:
        return {"marker": LETTERS[style % len(LETTERS)]}
    text = DARK_COLOURS[style % len(DARK_COLOURS)]  # most terminals are dark
    return {"marker": "braille", "color": tuple(int(text[at : at + 2], 16) for at in (1, 3, 5))}


def _legend(picture: Picture, coloured: bool) -> Iterator[str]:
    import plotext

    if not any(panel.lines or panel.distributions for panel in picture.panels):
        return
    for label, style in picture.legend[:LEGEND]:
        look = _line_style(style, coloured)
        sign = look["marker"] if not coloured else "━━"
        yield f"{plotext.colorize(sign, look['color']) if 'color' in look else sign} {short_label(label)}"
    if len(picture.legend) > LEGEND:
        yield f"and {len(picture.legend) - LEGEND} more"
    if picture.dashed:
        yield f"each twice: {picture.dashed} as well"
