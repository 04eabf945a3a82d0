"""A panel's curves in characters: braille dots, two by four in each cell, with axes of round numbers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from trackers.analysis.tables import plain
from trackers.plotting.curve_math import Curve
from trackers.plotting.figure import Panel

if TYPE_CHECKING:
    from rich.text import Text

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
"""What stands for a run's dots where there is no colour."""
LEAST = (24, 6)
"""Minimum width and height of a chart, in cells."""
FAINT = "bright_black"
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bits of a braille character, by row and column."""
_MOST_POINTS = 4096
"""Maximum number of dots between two points of a curve."""


def chart(panel: Panel, width: int, height: int, colour: Callable[[int], str] | None) -> Text:
    """Title, curves and axes, in ``height`` lines of ``width`` cells.

    A smoothed curve is drawn in the place of the logged one: two of one colour can't be told apart in dots.

    Args:
        colour: of a style, as rich names colours; None: each style has a letter of :data:`LETTERS`.
    """
    from rich.text import Text

    width, height = max(width, LEAST[0]), max(height, LEAST[1])
    title = Text(plain(panel.title)[:width], style="bold", no_wrap=True)
    if panel.blank:
        return Text("\n", no_wrap=True).join([title, Text(panel.empty, style=FAINT), *[Text("")] * (height - 2)])
    x_axis, y_axis = _axes(panel)
    rows = height - 3
    y_ticks = {y_axis.row(value, rows): label for value, label in y_axis.ticks(max(3, rows // 2))}
    margin = max(map(len, y_ticks.values()), default=0)
    columns = width - margin - 1
    canvas = _Canvas(columns, rows, letters=colour is None)
    for line in panel.lines:
        canvas.curve(line, x_axis, y_axis)
    for line in panel.lines:
        canvas.draw_markers(line, x_axis)
    drawn = [title]
    for number, cells in enumerate(canvas.rows()):
        label = y_ticks.get(number, "")
        text = Text(f"{label:>{margin}}", style=FAINT, no_wrap=True)
        text.append("┤" if label else "│", style=FAINT)
        for part, style in cells:
            text.append(part, style=colour(style) if colour is not None and style >= 0 else "")
        drawn.append(text)
    drawn += [Text(line, style=FAINT, no_wrap=True) for line in _x_axis(x_axis, columns, margin, panel.x_label)]
    return Text("\n", no_wrap=True).join(drawn)


def _axes(panel: Panel) -> tuple[_Axis, _Axis]:
    import numpy as np

    xs = [line.x for line in panel.lines]
    xs += [part for line in panel.lines for part in (line.nans, line.highs, line.lows)]
    ys = [_smooth_or_raw(line)[1] for line in panel.lines]
    axes = []
    for parts, logarithmic in ((xs, panel.log_x), (ys, panel.log_y)):
        values = np.concatenate([np.asarray(part, np.float64) for part in parts])
        values = values[np.isfinite(values)]
        whole = bool((values == np.round(values)).all())
        values = values[values > 0] if logarithmic else values
        low, high = (float(values.min()), float(values.max())) if len(values) else (1.0, 1.0)
        axes.append(_Axis(low, high, logarithmic, whole))
    if (heights := panel.heights) is not None:
        top = heights[1] if panel.ceiling is None else max(panel.ceiling, axes[1].high)
        axes[1] = _Axis(heights[0], top, False)
    return axes[0], axes[1]


def _smooth_or_raw(line: Curve) -> tuple[Any, Any]:
    return (line.smooth_x, line.smooth_y) if len(line.smooth_x) else (line.x, line.y)


class _Axis:
    """Values between two ends, which differ. logarithmic: both are above zero. whole: ticks are whole numbers."""

    def __init__(self, low: float, high: float, logarithmic: bool, whole: bool = False) -> None:
        self.logarithmic, self._whole = logarithmic, whole
        self._only = low if low == high else None
        if low == high:
            part = abs(low) * 0.05 or 0.5
            low, high = (low / 1.2, max(high * 1.2, high + math.ulp(0.0))) if logarithmic else (low - part, high + part)
        self.low, self.high = low, high

    def parts(self, values: Any) -> Any:
        """Where values lie, 0 to 1."""
        import numpy as np

        if self.logarithmic:
            low, high = math.log(self.low), math.log(self.high)
            return (np.log(values) - low) / (high - low)
        return (np.asarray(values) / 2 - self.low / 2) / (self.high / 2 - self.low / 2)  # the span may be no double

    def row(self, value: float, rows: int) -> int:
        """The line of cells, from above, in which a value lies."""
        return min(max(int(rows - float(self.parts(value)) * rows), 0), rows - 1)

    def ticks(self, most: int) -> list[tuple[float, str]]:
        """Round values and their labels, at most so many and at least the ends where no round one is."""
        if self._only is not None:
            return [(self._only, _label(self._only, abs(self._only) / 1e4 or 1.0))]
        values = self._decades(most) if self.logarithmic else self._round(most)
        if self.logarithmic and len(values) > 1:
            return [(value, _label(value, value)) for value in values]
        if len(values) < 2:
            return [(value, _label(value, (self.high / 4 - self.low / 4))) for value in (self.low, self.high)]
        gap = min(abs(left - right) for left, right in itertools.pairwise(values))
        return [(value, _label(value, gap)) for value in values]

    def _round(self, most: int) -> list[float]:
        rough = (self.high / 2 - self.low / 2) / max(most - 1, 1) * 2
        if not math.isfinite(rough) or rough <= 0:
            return []
        if self._whole:
            rough = max(rough, 1.0)
        size = 10.0 ** math.floor(math.log10(rough))
        if size == 0:
            return []
        for step in (size, 2 * size, 5 * size, 10 * size, 20 * size):
            first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
            if last - first < most:
                return [min(max(number * step, self.low), self.high) for number in range(first, last + 1)]
        return []

    def _decades(self, most: int) -> list[float]:
        low, high = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
        every = max(1, -(-(high - low + 1) // most))
        decades = [10.0**power for power in range(low, high + 1, every)]
        if len(decades) >= 2:
            return decades
        powers = range(math.floor(math.log10(self.low)), high + 1)
        finer = [part * 10.0**power for power in powers for part in (1, 2, 5)]
        return [value for value in finer if self.low <= value <= self.high][:most]


def _label(value: float, gap: float) -> str:
    """A value of an axis, with as many digits as tell it from one at a distance of ``gap``."""
    size = max(abs(value), gap)
    if value == 0 or abs(value) < gap * 1e-6:
        return "0"
    if 1e-3 <= size < 1e4:
        digits = max(0, -math.floor(math.log10(gap) + 1e-9)) if gap > 0 else 3
        text = f"{value:.{min(digits, 6)}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    for unit, sign in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if unit <= abs(value) < unit * 1e4:
            return f"{value / unit:.5g}{sign}" if abs(value) < 1e15 else f"{value:.3g}"
    return f"{value:.3g}"


def _x_axis(axis: _Axis, columns: int, margin: int, title: str) -> tuple[str, str]:
    """The line below the cells, and the labels below that, the axis' name at the right."""
    line, labels = ["─"] * columns, [" "] * (columns + margin + 1)
    name = plain(title)[: columns // 3]
    room = len(labels) - (len(name) + 2 if name else 0)
    end = 0
    for value, label in axis.ticks(max(3, columns // 7)):
        column = min(int(float(axis.parts(value)) * columns), columns - 1)
        start = min(max(margin + 1 + column - len(label) // 2, 0), len(labels) - len(label))
        if start < end or start + len(label) > room:
            continue
        line[column] = "┬"
        labels[start : start + len(label)] = label
        end = start + len(label) + 1
    if name:
        labels[len(labels) - len(name) :] = name
    return " " * margin + "└" + "".join(line), "".join(labels)


class _Canvas:
    """Cells of dots. Where two curves share a cell, it shows the later one alone: a cell has one colour."""

    def __init__(self, columns: int, rows: int, *, letters: bool) -> None:
        import numpy as np

        self._columns, self._rows, self._letters = columns, rows, letters
        self._wide, self._high = (1, 1) if letters else (2, 4)
        self._bits: Any = np.zeros((rows, columns), np.uint8)
        self._styles: Any = np.full((rows, columns), -1, np.int64)
        self._signs: dict[tuple[int, int], tuple[str, int]] = {}

    def curve(self, line: Curve, x_axis: _Axis, y_axis: _Axis) -> None:
        """Draw a curve: lines between its points, none across a gap."""
        import numpy as np

        xs, ys = (np.asarray(part, np.float64) for part in _smooth_or_raw(line))
        drawable = np.isfinite(ys) & (xs > 0 if x_axis.logarithmic else True) & (ys > 0 if y_axis.logarithmic else True)
        wide, high = self._columns * self._wide, self._rows * self._high
        px: Any = np.full(len(xs), -1)
        py: Any = np.full(len(xs), -1)
        px[drawable] = np.clip(x_axis.parts(xs[drawable]) * wide, 0, wide - 1).astype(np.int64)
        py[drawable] = np.clip(high - y_axis.parts(ys[drawable]) * high, 0, high - 1).astype(np.int64)
        joined = drawable[:-1] & drawable[1:]
        starts = np.flatnonzero(joined)
        counts = np.maximum(np.abs(px[starts + 1] - px[starts]), np.abs(py[starts + 1] - py[starts]))
        counts = np.clip(counts, 1, _MOST_POINTS)
        which: Any = np.repeat(starts, counts)
        steps = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
        part = steps / np.repeat(counts, counts)
        xs = np.concatenate([np.rint(px[which] + (px[which + 1] - px[which]) * part).astype(np.int64), px[drawable]])
        ys = np.concatenate([np.rint(py[which] + (py[which + 1] - py[which]) * part).astype(np.int64), py[drawable]])
        cells = ys // self._high, xs // self._wide
        own = np.zeros_like(self._bits)
        np.bitwise_or.at(own, cells, np.array(_DOTS, np.uint8)[ys % self._high, xs % self._wide])
        self._bits[cells], self._styles[cells] = own[cells], line.style

    def draw_markers(self, line: Curve, x_axis: _Axis) -> None:
        """NaN and infinities, at the edges."""
        for xs, sign, row in ((line.nans, "×", self._rows - 1), (line.lows, "▼", self._rows - 1),
                                  (line.highs, "▲", 0)):  # fmt: skip
            for x in xs:
                if not x_axis.logarithmic or x > 0:
                    column = min(max(int(float(x_axis.parts(float(x))) * self._columns), 0), self._columns - 1)
                    self._signs[row, column] = sign, line.style

    def rows(self) -> list[list[tuple[str, int]]]:
        """For each line of cells its parts of one style; -1 for what has none."""
        lines = []
        for row, (bits, styles) in enumerate(zip(self._bits.tolist(), self._styles.tolist(), strict=True)):
            parts: list[tuple[str, int]] = []
            for column, (bit, style) in enumerate(zip(bits, styles, strict=True)):
                sign, style = self._signs.get((row, column)) or (self._sign(bit, style), style)
                if parts and parts[-1][1] == style:
                    parts[-1] = parts[-1][0] + sign, style
                else:
                    parts.append((sign, style))
            lines.append(parts)
        return lines

    def _sign(self, bits: int, style: int) -> str:
        if not bits:
            return " "
        return LETTERS[style % len(LETTERS)] if self._letters else chr(0x2800 + bits)


def key(labels: Sequence[tuple[str, int]], colour: Callable[[int], str] | None) -> Text:
    """A legend in one line: each run's sign and name."""
    from rich.text import Text

    text = Text(no_wrap=True, overflow="ellipsis")
    for label, style in labels:
        sign = "━━" if colour is not None else LETTERS[style % len(LETTERS)]
        text.append(f"{sign} ", style=colour(style) if colour is not None else "")
        text.append(f"{plain(label)}  ")
    return text
