"""Panels as an image: png, svg or pdf, drawn with matplotlib."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trackers.analysis.tables import format_value, plain
from trackers.errors import UsageError
from trackers.plotting.curve_math import Curve
from trackers.plotting.figure import SECOND, Bar, Panel, Picture, colour, dashes
from trackers.support.atomic_write import write
from trackers.support.optional import need

FORMATS = ("png", "svg", "pdf")
LEGEND_ROWS = 24
"""Maximum number of rows in a legend."""
LEGEND_MOST = 4 * LEGEND_ROWS
LONGEST = 40
DOTS = 60
"""Maximum number of points of a curve that shows each point."""
MARKERS = (("nans", "x", 0.02, "NaN"), ("highs", "^", 0.98, "∞"), ("lows", "v", 0.02, "-∞"))
"""Values without a position on the axis: the line's field, the marker, how high it stands, its name."""


def save(picture: Picture, path: Path) -> None:
    """Draw an image; its directory is made.

    Raises:
        UsageError: the file's ending isn't one of FORMATS, or it can't be written. MissingPackage: no matplotlib.
    """
    form = path.suffix.lower().removeprefix(".")
    if form not in FORMATS:
        raise UsageError(f"{path}: what {path.suffix or 'no ending'!r} is isn't known: {', '.join(FORMATS)}, html")
    need("matplotlib", "an image")
    import matplotlib

    def draw(partial: Path) -> None:
        image = io.BytesIO()  # matplotlib's writers don't stop at the first error of a file
        with matplotlib.rc_context(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # letters that no font here has are drawn as boxes
            matplotlib.rcdefaults()
            matplotlib.rcParams.update({"font.size": 8.5, "axes.titlesize": 10, "path.simplify_threshold": 0.2,
                                        "svg.fonttype": "none", "agg.path.chunksize": 20_000})  # fmt: skip
            _figure(picture).savefig(image, format=form, dpi=130)
        partial.write_bytes(image.getbuffer())

    write(path, draw)


def _figure(picture: Picture) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = math.ceil(len(picture.panels) / picture.columns)
    wide = {1: 8.0, 2: 5.6}.get(picture.columns, 4.4)
    high = {1: 4.6, 2: 3.6}.get(rows, 3.0 if rows < 5 else 2.4)
    beside = 1.4 * max(0, math.ceil(min(len(picture.legend), LEGEND_MOST) / LEGEND_ROWS) - 1)
    figure = Figure(figsize=(wide * picture.columns + beside, high * rows))
    figure.set_layout_engine("constrained", w_pad=0.08, h_pad=0.08)
    FigureCanvasAgg(figure)
    axes: Any = figure.subplots(rows, picture.columns, squeeze=False)
    axes = axes.ravel()
    for index, panel in enumerate(picture.panels):
        _panel(axes[index], panel)
    for index in range(len(picture.panels), len(axes)):
        axes[index].set_visible(False)
    _legend(figure, picture)
    if picture.title:
        _disable_math(figure.suptitle(short_label(picture.title, 100), fontsize=11, x=0.01, ha="left"))
    below = [*picture.about, *picture.notes]
    if below:
        _disable_math(figure.supxlabel("\n".join(map(plain, below)), fontsize=7.5, color="#555555"))
    return figure


def _panel(axes: Any, panel: Panel) -> None:
    _disable_math(axes.set_title(short_label(panel.title, 60)))
    _disable_math(axes.set_xlabel(short_label(panel.x_label)))
    _disable_math(axes.set_ylabel(short_label(panel.y_label) if panel.y_label != panel.title else ""))
    axes.spines[["top", "right"]].set_visible(False)
    if panel.blank:
        axes.text(0.5, 0.5, panel.empty, ha="center", va="center", color="#555555", transform=axes.transAxes)
        axes.set(xticks=[], yticks=[])
        return
    axes.grid(True, color="#e4e4e4", linewidth=0.6)
    axes.set_axisbelow(True)
    if panel.bars:
        _bars(axes, panel.bars)
        return
    if panel.log_x and panel.lines:
        axes.set_xscale("log")
    if panel.log_y and panel.lines:
        axes.set_yscale("log")
    for distribution in panel.distributions:
        axes.stairs(distribution.counts, distribution.edges, color=colour(distribution.style),
                    fill=len(panel.distributions) == 1, linewidth=1.2, alpha=0.85,
                    linestyle=_dashed(dashes(distribution.style)))  # fmt: skip
    many = len(panel.lines) > 12
    for line in panel.lines:
        _line(axes, line, many)
    _ticks(axes, panel)
    if all(not len(line.x) for line in panel.lines) and panel.lines:
        axes.set_yticks([])
    elif (heights := panel.heights) is not None:
        axes.set_ylim(*heights)
    _draw_markers(axes, panel.lines)


def _ticks(axes: Any, panel: Panel) -> None:
    """Numbers as people write them: 0.2 on logarithmic axes, 1.5M tokens, no offsets."""
    from matplotlib.ticker import EngFormatter, FuncFormatter, MaxNLocator

    if panel.distributions:  # their numbers are long: by itself matplotlib lets them touch
        axes.xaxis.set_major_locator(MaxNLocator(4))
    for axis, logarithmic in ((axes.xaxis, panel.log_x), (axes.yaxis, panel.log_y)):
        if logarithmic and panel.lines:
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            low, high = sorted(axis.get_view_interval())
            axis.set_minor_formatter(_minor_formatter(low, high))
        elif not logarithmic:
            axis.get_major_formatter().set_useOffset(False)
    for axis, whole, logarithmic in (
        (axes.xaxis, panel.x_label == "step" or panel.has_whole_numbers("x"), panel.log_x),
        (axes.yaxis, panel.has_whole_numbers("y"), panel.log_y),
    ):
        if whole and not logarithmic:
            axis.get_major_locator().set_params(integer=True)
    if panel.x_label == "tokens" and not panel.log_x:
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))


def _minor_formatter(low: float, high: float) -> Any:
    from matplotlib.ticker import FuncFormatter, NullFormatter

    return FuncFormatter(lambda value, _: f"{value:g}") if low > 0 and high / low < 20 else NullFormatter()


def _line(axes: Any, line: Curve, many: bool) -> None:
    import numpy as np

    look: dict[str, Any] = {"color": colour(line.style), "solid_joinstyle": "bevel", "dash_joinstyle": "bevel"}
    pattern = SECOND if line.dashed else dashes(line.style)
    if len(line.low):
        axes.fill_between(line.x, line.low, line.high, color=colour(line.style), alpha=0.18, linewidth=0)
    smoothed = len(line.smooth_x) > 0
    if smoothed:
        axes.plot(line.x, line.y, alpha=0.18 if many else 0.3, linewidth=0.6, **look)
        axes.plot(line.smooth_x, line.smooth_y, linestyle=_dashed(pattern), linewidth=1.3, **look)
    else:
        marker = "o" if line.count <= DOTS and len(line.x) <= DOTS and not len(line.low) else ""
        if line.dashed:  # what stands behind a run's other line
            marker, look["alpha"] = "", 0.55
        axes.plot(line.x, line.y, linestyle=_dashed(pattern), linewidth=0.9 if many else 1.2, marker=marker,
                  markersize=2.6, **look)  # fmt: skip
    y = np.asarray(line.y)
    if len(y):
        gap = np.concatenate([[True], ~np.isfinite(y), [True]])
        isolated = np.isfinite(y) & gap[:-2] & gap[2:]
        axes.plot(
            np.asarray(line.x)[isolated], y[isolated], linestyle="", marker="o", markersize=2.6, color=look["color"]
        )


def _draw_markers(axes: Any, lines: Sequence[Curve]) -> None:
    """NaN at the lower edge, infinities where they point; the legend names them."""
    for name, marker, height, _ in MARKERS:
        for line in lines:
            xs = getattr(line, name)
            if not len(xs):  # a line of no points takes the layout's measure away
                continue
            axes.plot(xs, [height] * len(xs), linestyle="", marker=marker, markersize=4.5, clip_on=False,
                      color=colour(line.style), transform=axes.get_xaxis_transform(), zorder=5)  # fmt: skip


def _bars(axes: Any, bars: Sequence[Bar]) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    positions = list(range(len(bars)))
    values = [bar.value if math.isfinite(bar.value) else 0.0 for bar in bars]
    axes.barh(positions, values, color=[colour(bar.style) for bar in bars], height=0.7)
    for position, bar in enumerate(bars):
        if bar.low is not None and bar.high is not None:
            axes.plot([bar.low, bar.high], [position, position], color="#333333", linewidth=1, marker="|", markersize=5)
        axes.annotate(
            f" {format_value(float(bar.value))} {bar.note}".rstrip(),
            (max(values[position], bar.high or 0.0), position),
            va="center",
            fontsize=7,
        )
    for label in axes.set_yticks(positions, [short_label(bar.label, 22) for bar in bars]):
        _disable_math(label.label1)
    axes.tick_params(axis="y", labelsize=8 if len(bars) <= 10 else 6)
    axes.invert_yaxis()
    axes.grid(False, axis="y")
    axes.margins(x=0.38 if any(bar.note for bar in bars) else 0.2)
    axes.set_xlim(left=0)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))


def _legend(figure: Any, picture: Picture) -> None:
    from matplotlib.lines import Line2D

    entries = picture.legend[:LEGEND_MOST]
    drawn = any(panel.lines or panel.distributions for panel in picture.panels)
    if not drawn or not entries:
        return
    handles = [
        Line2D([], [], color=colour(style), linestyle=_dashed(dashes(style)), linewidth=1.6) for _, style in entries
    ]
    labels = [short_label(label) for label, _ in entries]
    if picture.dashed:
        handles.append(Line2D([], [], color="#555555", linestyle=_dashed(SECOND), linewidth=1.2))
        labels.append(f"dashed: {picture.dashed}")
    lines = [line for panel in picture.panels if not panel.blank for line in panel.lines]
    for name, marker, _, label in MARKERS:  # beside the diagrams: in one they would hide what they name
        if any(len(getattr(line, name)) for line in lines):
            handles.append(Line2D([], [], linestyle="", marker=marker, markersize=4.5, color="#555555"))
            labels.append(label)
    if len(picture.legend) > len(entries):
        handles.append(Line2D([], [], linestyle=""))
        labels.append(f"and {len(picture.legend) - len(entries)} more")
    columns = math.ceil(len(handles) / LEGEND_ROWS)
    placeholder = [f"{number}" for number in range(len(handles))]  # a label that begins with _ would be left out
    legend = figure.legend(handles, placeholder, loc="outside right upper", ncols=columns, fontsize=7.5, frameon=False,
                           handlelength=3.2)  # fmt: skip
    for text, label in zip(legend.get_texts(), labels, strict=True):
        _disable_math(text)
        text.set_text(label)


def _disable_math(text: Any) -> None:
    """Show ``$`` in a text as a character: names of users are no formulas."""
    text.set_parse_math(False)


def _dashed(pattern: tuple[float, ...]) -> Any:
    return (0, pattern) if pattern else "-"


def short_label(text: str, longest: int = LONGEST) -> str:
    """A name as a label: on one line, its middle left out where it is long, since ends tell runs apart."""
    text = plain(text)
    half = (longest - 1) // 2
    return text if len(text) <= longest else f"{text[:half]}…{text[-half:]}"
