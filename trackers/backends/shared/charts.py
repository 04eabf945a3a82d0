"""Charts of W&B's, drawn from their tables, for trackers that show pictures but no charts."""

from __future__ import annotations

import io
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from trackers.backends.shared import media_files
from trackers.errors import Rejected
from trackers.records import MediaFile
from trackers.tracker import RunInfo

MAX_GROUPS = 20
MAX_POINTS = 20_000
BINS = 32
WIDTH, HEIGHT = 600, 400
LEFT, TOP, RIGHT, BOTTOM = 70, 40, WIDTH - 20, HEIGHT - 60
"""Of a picture, in pixels."""
LABEL = 20
"""Longest label that is shown whole, in characters."""
COLOURS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22", "#17becf")


class Drawing(NamedTuple):
    """How a chart is drawn. kind: line, points, bars, matrix or counts. x, y, group: fields or columns."""

    kind: str
    x: str
    y: str = ""
    group: str = ""


DRAWINGS = {
    "wandb/line/v0": Drawing("line", "x", "y", "stroke"),
    "wandb/lineseries/v0": Drawing("line", "step", "lineVal", "lineKey"),
    "wandb/scatter/v0": Drawing("points", "x", "y"),
    "wandb/bar/v0": Drawing("bars", "label", "value"),
    "wandb/histogram/v0": Drawing("counts", "value"),
    "wandb/area-under-curve/v0": Drawing("line", "x", "y", "class"),
    "wandb/confusion_matrix/v1": Drawing("matrix", "Predicted", "Actual", "nPredictions"),
    "wandb/feature_importances/v1": Drawing("bars", "feature_names", "importances"),
    "wandb/class_proportions/v1": Drawing("bars", "class", "count", "dataset"),
    "wandb/calibration/v1": Drawing("line", "mean_predicted_value", "fraction_of_positives", "model"),
    "wandb/metrics/v1": Drawing("bars", "metric_name", "metric_value"),
    "wandb/learning_curve/v1": Drawing("line", "train_size", "score", "dataset"),
    "wandb/outliers/v1": Drawing("points", "instance_indicies", "distance"),
    "wandb/residuals_plot/v1": Drawing("points", "y_pred", "residuals", "dataset"),
    "wandb/elbow/v1": Drawing("line", "cluster_ranges", "errors"),
    "wandb/silhouette_/v1": Drawing("points", "x2", "y_sil", "color_sil"),
}
"""W&B's charts by name (https://docs.wandb.ai/guides/app/features/custom-charts), and those of ``wandb.sklearn``."""


def picture(info: RunInfo, item: MediaFile) -> bytes | None:
    """A chart as a PNG file, by matplotlib, or plainer by Pillow; None for a table that is no chart, for a chart that
    isn't known, and without either.

    Raises:
        Rejected: the table is missing or broken.
    """
    chart = item.meta.get("chart")
    drawing = DRAWINGS.get(str(chart.get("spec", ""))) if isinstance(chart, Mapping) else None
    if drawing is None or not isinstance(chart, Mapping):
        return None
    columns, rows = media_files.table(info, item)
    fields, strings = _texts(chart.get("fields")), _texts(chart.get("strings"))
    names = {part: fields.get(part, part) for part in (drawing.x, drawing.y, drawing.group) if part}
    if "Count" in columns and drawing.kind == "matrix":  # as wandb.sklearn calls it
        names["nPredictions"] = "Count"
    column_of = {part: columns.index(name) for part, name in names.items() if name in columns}
    if drawing.x not in column_of or (drawing.y and drawing.y not in column_of):
        return None
    values = {part: [row[index] for row in rows[:MAX_POINTS] if index < len(row)] for part, index in column_of.items()}
    titles = (
        strings.get("title", ""),
        strings.get("x-axis-title") or strings.get("xname") or names[drawing.x],
        strings.get("y-axis-title") or names.get(drawing.y, "count"),
    )
    try:
        shape = _shape(drawing, values)
        return _by_matplotlib(shape, titles) or _by_pillow(shape, titles)
    except (TypeError, ValueError, KeyError) as error:
        raise Rejected(f"the chart of {item.file or 'a table'} can't be drawn: {error}") from error


def histogram(counts: Sequence[float], edges: Sequence[float], title: str) -> bytes:
    """A histogram as a PNG file. edges: one more than counts."""
    middles = [(left + right) / 2 for left, right in itertools.pairwise(edges)]
    points = [(x, float(y)) for x, y in zip(middles, counts, strict=False) if _number(x) and _number(y)]
    shape, titles = _Shape("bars", {"": points}), (title, "", "count")
    drawn = _by_matplotlib(shape, titles) or _by_pillow(shape, titles)
    assert drawn is not None  # the client has one of both
    return drawn


class _Shape(NamedTuple):
    """What is drawn. kind: line, points, bars or matrix.

    groups: points by name; x are numbers, or places among the labels. labels: of x, where they are no numbers; of a
    matrix its columns. rows: a matrix's rows' labels; its cells are points (column, row) and values.
    """

    kind: str
    groups: dict[str, list[tuple[float, float]]]
    labels: Sequence[str] = ()
    rows: Sequence[str] = ()
    cells: Sequence[Sequence[float]] = ()


def _shape(drawing: Drawing, values: Mapping[str, list[Any]]) -> _Shape:
    x, y = values[drawing.x], values.get(drawing.y, [])
    groups = values.get(drawing.group) or [None] * len(x)
    if drawing.kind == "matrix":
        columns, rows = list(dict.fromkeys(map(str, x))), list(dict.fromkeys(map(str, y)))
        cells = [[0.0] * len(columns) for _ in rows]
        for x_value, y_value, count in zip(x, y, groups, strict=False):
            cells[rows.index(str(y_value))][columns.index(str(x_value))] = float(count or 0)
        return _Shape("matrix", {}, columns, rows, cells)
    if drawing.kind == "counts":
        import numpy

        counts, edges = numpy.histogram([float(value) for value in x if _number(value)], bins=BINS)
        middles = ((edges[:-1] + edges[1:]) / 2).tolist()
        return _Shape("bars", {"": list(zip(middles, map(float, counts), strict=True))})
    labels: list[str] = []
    if drawing.kind == "bars" or not all(_number(value) for value in x):
        labels = list(dict.fromkeys(map(str, x)))
        position_of = {label: float(position) for position, label in enumerate(labels)}
        x = [position_of[str(value)] for value in x]
    series: dict[str, list[tuple[float, float]]] = {}
    for x_value, y_value, group in zip(x, y, groups, strict=False):
        name = "" if group is None else str(group)
        if _number(y_value) and (name in series or len(series) < MAX_GROUPS):
            series.setdefault(name, []).append((float(x_value), float(y_value)))
    return _Shape(drawing.kind, series, labels)


def _by_matplotlib(shape: _Shape, titles: tuple[str, str, str]) -> bytes | None:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return None
    figure = Figure(figsize=(WIDTH / 100, HEIGHT / 100), dpi=100, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    labels = [label[:LABEL] for label in shape.labels]
    if shape.kind == "matrix":
        axes.imshow(shape.cells, cmap="Blues", aspect="auto")
        axes.set_yticks(range(len(shape.rows)), [label[:LABEL] for label in shape.rows])
        most = max((value for row in shape.cells for value in row), default=0.0)
        for row_index, row in enumerate(shape.cells if len(shape.rows) * len(shape.labels) <= 400 else ()):
            for column_index, value in enumerate(row):
                colour = "white" if value > most / 2 else "black"
                axes.text(column_index, row_index, f"{value:g}", ha="center", va="center", color=colour)
    for number, (name, points) in enumerate(shape.groups.items()):
        x, y = [x_point for x_point, _ in points], [y_point for _, y_point in points]
        if shape.kind == "bars":
            width = _bar_width(shape)
            moved = [position + width * (number - (len(shape.groups) - 1) / 2) for position in x]
            axes.bar(moved, y, width=width, label=name)
        elif shape.kind == "line":
            axes.plot(x, y, label=name)
        else:
            axes.scatter(x, y, s=8, label=name)
    if labels:
        axes.set_xticks(range(len(labels)), labels, rotation=45 if len(labels) > 6 else 0)
    if any(shape.groups):
        axes.legend()
    title, below, beside = titles
    axes.set_title(title)
    axes.set_xlabel(below)
    axes.set_ylabel(beside)
    out = io.BytesIO()
    figure.savefig(out, format="png", metadata={"Software": None})  # matplotlib's version would change the bytes
    return out.getvalue()


def _by_pillow(shape: _Shape, titles: tuple[str, str, str]) -> bytes | None:
    try:
        from PIL import Image, ImageDraw
    except ImportError:
        return None
    picture = Image.new("RGB", (WIDTH, HEIGHT), "white")
    draw = ImageDraw.Draw(picture)
    title, below, beside = (plain_text(text) for text in titles)
    draw.text((LEFT, 10), title, fill="black")
    draw.text((LEFT, HEIGHT - 20), below, fill="black")
    draw.text((5, TOP - 20), beside, fill="black")
    if shape.kind == "matrix":
        _draw_matrix(draw, shape)
    else:
        _draw_groups(draw, shape, _Plane(shape))
    wide = (RIGHT - LEFT) / max(len(shape.labels), 1)
    for index, label in enumerate(shape.labels[:40]):
        draw.text((LEFT + wide * index + 2, BOTTOM + 5), plain_text(label[: max(1, int(wide / 6))]), fill="black")
    out = io.BytesIO()
    picture.save(out, format="PNG")
    return out.getvalue()


def _draw_matrix(draw: Any, shape: _Shape) -> None:
    """Cells, darker the larger their values."""
    most = max((value for row in shape.cells for value in row), default=0.0) or 1.0
    wide, high = (RIGHT - LEFT) / max(len(shape.labels), 1), (BOTTOM - TOP) / max(len(shape.rows), 1)
    for index, row in enumerate(shape.cells):
        draw.text((5, TOP + high * (index + 0.5) - 5), plain_text(shape.rows[index][:10]), fill="black")
        for column_index, value in enumerate(row):
            corner = (LEFT + wide * column_index, TOP + high * index)
            shade = int(255 - 200 * value / most)
            draw.rectangle((*corner, corner[0] + wide, corner[1] + high), fill=(shade, shade, 255), outline="grey")
            draw.text((corner[0] + wide / 2 - 5, corner[1] + high / 2 - 5), f"{value:g}", fill="black")


class _Plane:
    """Where values lie in the picture: from the least to the largest of all groups, bars from zero."""

    def __init__(self, shape: _Shape) -> None:
        every = [point for points in shape.groups.values() for point in points] or [(0.0, 0.0)]
        self.low_x, self.high_x = min(x for x, _ in every), max(x for x, _ in every)
        self.low_y, self.high_y = min(y for _, y in every), max(y for _, y in every)
        if shape.kind == "bars":
            half = _bar_width(shape) * len(shape.groups) / 2
            self.low_x, self.high_x = self.low_x - half, self.high_x + half
            self.low_y, self.high_y = min(self.low_y, 0.0), max(self.high_y, 0.0)
        self.across, self.up = (self.high_x - self.low_x) or 1.0, (self.high_y - self.low_y) or 1.0

    def at(self, x: float, y: float) -> tuple[float, float]:
        return (
            LEFT + (x - self.low_x) / self.across * (RIGHT - LEFT),
            BOTTOM - (y - self.low_y) / self.up * (BOTTOM - TOP),
        )


def _draw_groups(draw: Any, shape: _Shape, plane: _Plane) -> None:
    """Lines, points or bars, a colour for each group, and the ends of both axes."""
    draw.rectangle((LEFT, TOP, RIGHT, BOTTOM), outline="grey")
    draw.text((5, TOP), f"{plane.high_y:.4g}", fill="black")
    draw.text((5, BOTTOM - 10), f"{plane.low_y:.4g}", fill="black")
    if not shape.labels:
        draw.text((LEFT, BOTTOM + 5), f"{plane.low_x:.4g}", fill="black")
        draw.text((RIGHT - 40, BOTTOM + 5), f"{plane.high_x:.4g}", fill="black")
    width = _bar_width(shape) / plane.across * (RIGHT - LEFT)
    for number, (name, points) in enumerate(shape.groups.items()):
        colour = COLOURS[number % len(COLOURS)]
        placed = [plane.at(*point) for point in points]
        if shape.kind == "line" and len(placed) > 1:
            draw.line(placed, fill=colour, width=2)
        for x, y in placed if shape.kind != "line" else ():
            if shape.kind == "points":
                draw.ellipse((x - 2, y - 2, x + 2, y + 2), fill=colour)
            else:
                begin, zero = x + width * (number - len(shape.groups) / 2), plane.at(0.0, 0.0)[1]
                draw.rectangle((begin, min(y, zero), begin + width, max(y, zero)), fill=colour)
        if name:
            draw.text((RIGHT - 120, TOP + 5 + 12 * number), plain_text(name[:LABEL]), fill=colour)


def _bar_width(shape: _Shape) -> float:
    """In units of x: four fifths of the space between two positions, for all groups together."""
    positions = sorted({x for points in shape.groups.values() for x, _ in points})
    space = min((right - left for left, right in itertools.pairwise(positions)), default=1.0)
    return 0.8 * space / max(len(shape.groups), 1)


def plain_text(text: str) -> str:
    """Text as Pillow's own font has it."""
    return text.encode("latin-1", "replace").decode("latin-1")


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _texts(value: Any) -> dict[str, str]:
    mapping = value if isinstance(value, Mapping) else {}
    return {str(name): item for name, item in mapping.items() if isinstance(item, str)}
