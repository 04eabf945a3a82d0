"""A picture as text for a terminal: its panels below each other, their curves in characters."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import msgspec

from trackers.analysis.tables import plain
from trackers.metrics.styles import DARK_COLOURS
from trackers.plotting.braille import LETTERS, chart, key
from trackers.plotting.curve_math import Curve
from trackers.plotting.figure import Panel, Picture
from trackers.plotting.matplotlib_figure import short_label

if TYPE_CHECKING:
    from rich.text import Text

WIDTH, HEIGHT = 60, 12
"""The least that a diagram needs; in a smaller terminal its lines are broken."""
LEGEND = 20
LABEL = 36
"""Maximum width of a bar's label."""

Colour = Callable[[int], str] | None
"""A style's colour, as rich names it; None: each style has a letter."""


def text(picture: Picture, *, width: int, height: int, coloured: bool) -> str:
    """The panels below each other.

    Args:
        width, height: of each, in characters. coloured: with escapes for colours; else each run has a letter.
    """
    from rich.text import Text

    if not coloured:
        picture = picture.renumbered()  # letters in the order of the legend
    colour = (lambda style: DARK_COLOURS[style % len(DARK_COLOURS)]) if coloured else None  # most terminals are dark
    width, height = max(width, WIDTH), max(height, HEIGHT)
    parts = [Text(plain(picture.title), style="bold")] if picture.title else []
    for panel in picture.panels:
        if panel.blank:
            parts.append(Text(f"{short_label(panel.title)}: {panel.empty}"))
        elif panel.bars:
            parts.append(_bars(panel, width, colour))
        else:
            parts.append(chart(_with_curves(panel), width, height, colour))
    parts += [*_legend(picture, colour), *(Text(plain(line)) for line in picture.about)]
    return _printed(parts, width, coloured)


def _with_curves(panel: Panel) -> Panel:
    """The panel with its distributions as curves over the middles of their bins."""
    curves = [
        Curve(
            counted.label,
            [(low + high) / 2 for low, high in zip(counted.edges[:-1], counted.edges[1:], strict=True)],
            [float(count) for count in counted.counts],
            style=counted.style,
        )
        for counted in panel.distributions
    ]
    return msgspec.structs.replace(panel, lines=[*panel.lines, *curves], title=short_label(panel.title))


def _bars(panel: Panel, width: int, colour: Colour) -> Text:
    """A line for each bar, its length by its value; a negative one has none."""
    from rich.text import Text

    labels = {
        id(bar): f"{short_label(bar.label, 20)} {bar.value:.5g} {bar.note}".rstrip()[:LABEL] for bar in panel.bars
    }
    margin = max(map(len, labels.values()))
    most = max((bar.value for bar in panel.bars if bar.value < float("inf")), default=0.0)
    drawn = Text(short_label(panel.title), style="bold", no_wrap=True)
    for bar in panel.bars:
        part = min(bar.value / most, 1.0) if most > 0 and bar.value > 0 else 0.0
        drawn.append(f"\n{labels[id(bar)]:>{margin}} ", style="")
        sign = "█" if colour is not None else LETTERS[bar.style % len(LETTERS)]
        drawn.append(sign * round(part * (width - margin - 1)), style=colour(bar.style) if colour is not None else "")
    return drawn


def _legend(picture: Picture, colour: Colour) -> Iterator[Text]:
    from rich.text import Text

    if not any(panel.lines or panel.distributions for panel in picture.panels):
        return
    for label, style in picture.legend[:LEGEND]:
        line = key([(short_label(label), style)], colour)
        line.rstrip()
        yield line
    if len(picture.legend) > LEGEND:
        yield Text(f"and {len(picture.legend) - LEGEND} more")
    if picture.dashed:
        yield Text(f"each twice: {picture.dashed} as well")


def _printed(parts: list[Text], width: int, coloured: bool) -> str:
    if not coloured:
        return "".join(f"{line.rstrip()}\n" for part in parts for line in part.plain.split("\n"))
    from rich.console import Console

    file = io.StringIO()
    console = Console(file=file, force_terminal=True, color_system="truecolor", width=width, highlight=False)
    for part in parts:
        console.print(part, soft_wrap=True)
    return file.getvalue()
