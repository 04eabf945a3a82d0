"""Charts of W&B's, drawn from their tables, for trackers that show pictures but no charts."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any, NamedTuple

from trackers.backends.shared import media_files
from trackers.errors import Rejected
from trackers.records import MediaFile
from trackers.tracker import RunInfo

MAX_GROUPS = 20
MAX_POINTS = 20_000


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
    """A chart as a PNG file; None for a table that is no chart, one that isn't known, or without matplotlib.

    Raises:
        Rejected: the table is missing or broken.
    """
    chart = item.meta.get("chart")
    drawing = DRAWINGS.get(chart.get("spec", "")) if isinstance(chart, Mapping) else None
    if drawing is None or not isinstance(chart, Mapping):
        return None
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return None
    columns, rows = media_files.table(info, item)
    fields, strings = _texts(chart.get("fields")), _texts(chart.get("strings"))
    names = {part: fields.get(part, part) for part in (drawing.x, drawing.y, drawing.group) if part}
    if "Count" in columns and drawing.kind == "matrix":  # as wandb.sklearn calls it
        names["nPredictions"] = "Count"
    found = {part: columns.index(name) for part, name in names.items() if name in columns}
    if drawing.x not in found or (drawing.y and drawing.y not in found):
        return None
    values = {part: [row[place] for row in rows[:MAX_POINTS] if place < len(row)] for part, place in found.items()}
    figure = Figure(figsize=(6, 4), dpi=100, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    try:
        _draw(axes, drawing, values)
    except (TypeError, ValueError, KeyError) as error:
        raise Rejected(f"the chart of {item.file or 'a table'} can't be drawn: {error}") from error
    axes.set_title(strings.get("title", ""))
    axes.set_xlabel(strings.get("x-axis-title") or strings.get("xname") or names[drawing.x])
    axes.set_ylabel(strings.get("y-axis-title") or names.get(drawing.y, "count"))
    out = io.BytesIO()
    figure.savefig(out, format="png", metadata={"Software": None})
    return out.getvalue()


def _draw(axes: Any, drawing: Drawing, values: Mapping[str, list[Any]]) -> None:
    x, y = values[drawing.x], values.get(drawing.y, [])
    groups = values.get(drawing.group) or [None] * len(x)
    if drawing.kind == "counts":
        axes.hist([float(value) for value in x if _number(value)], bins=32)
        return
    if drawing.kind == "matrix":
        _matrix(axes, x, y, groups)
        return
    shown = list(dict.fromkeys(map(str, groups)))[:MAX_GROUPS]
    labels = list(dict.fromkeys(map(str, x)))
    for number, group in enumerate(shown):
        points = [(one, other) for one, other, own in zip(x, y, groups, strict=False) if str(own) == group]
        points = [(one, float(other)) for one, other in points if _number(other)]
        named = None if group == "None" else group
        if drawing.kind == "bars":
            width = 0.8 / len(shown)
            places = [labels.index(str(one)) + width * (number - (len(shown) - 1) / 2) for one, _ in points]
            axes.bar(places, [other for _, other in points], width=width, label=named)
            axes.set_xticks(range(len(labels)), [label[:20] for label in labels], rotation=45 if len(labels) > 6 else 0)
        elif drawing.kind == "line":
            axes.plot([one for one, _ in points], [other for _, other in points], label=named)
        else:
            axes.scatter([one for one, _ in points], [other for _, other in points], s=8, label=named)
    if shown != ["None"]:
        axes.legend()


def _matrix(axes: Any, x: list[Any], y: list[Any], counts: list[Any]) -> None:
    columns, rows = list(dict.fromkeys(map(str, x))), list(dict.fromkeys(map(str, y)))
    cells = [[0.0] * len(columns) for _ in rows]
    for one, other, count in zip(x, y, counts, strict=False):
        cells[rows.index(str(other))][columns.index(str(one))] = float(count)
    axes.imshow(cells, cmap="Blues", aspect="auto")
    axes.set_xticks(range(len(columns)), [name[:20] for name in columns], rotation=45 if len(columns) > 6 else 0)
    axes.set_yticks(range(len(rows)), [name[:20] for name in rows])
    most = max((value for row in cells for value in row), default=0.0)
    if len(columns) * len(rows) <= 400:
        for place, row in enumerate(cells):
            for other, value in enumerate(row):
                colour = "white" if value > most / 2 else "black"
                axes.text(other, place, f"{value:g}", ha="center", va="center", color=colour)


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _texts(value: Any) -> dict[str, str]:
    found = value if isinstance(value, Mapping) else {}
    return {str(name): item for name, item in found.items() if isinstance(item, str)}
