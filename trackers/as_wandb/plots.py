"""``wandb.plot``: charts of tables, with the columns, names and texts that W&B's own have.

What a chart can't be made of is named once, and the chart is None, which ``log`` leaves out: a mistake in a chart
ends no training.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar, cast

from trackers.errors import UsageError, reason
from trackers.media import CustomChart, CustomChartSpec, Table, Visualize, VisualizeSpec
from trackers.support.interruption import pass_on
from trackers.training.wandb_arguments import warn

__all__ = [
    "CustomChart", "Visualize", "bar", "confusion_matrix", "histogram", "line", "line_series", "plot_table",
    "pr_curve", "roc_curve", "scatter", "visualize",
]  # fmt: skip

MAX_ROWS = 10_000
"""Rows of a chart's table; of more, as many are drawn by lot, as W&B does."""

Made = TypeVar("Made", bound=Callable[..., Any])


def harmless(function: Made) -> Made:
    """A function of charts that raises nothing: it names once what it can't draw, and returns None."""

    @functools.wraps(function)
    def call(*arguments: Any, **more: Any) -> Any:
        try:
            return function(*arguments, **more)
        except Exception as error:
            pass_on(error)
            warn(f"{function.__name__}: no chart is recorded: {reason(error)}")
            return None

    return cast("Made", call)


@harmless
def plot_table(
    vega_spec_name: str,
    data_table: Table,
    fields: dict[str, Any],
    string_fields: dict[str, Any] | None = None,
    split_table: bool = False,
) -> CustomChart:
    """A table with a chart of W&B's that draws it.

    Args:
        vega_spec_name: the chart's name at W&B. data_table: a Table.
        fields: the chart's fields, and the columns that they are. string_fields: its texts.
        split_table: W&B shows the table in a section of its own.
    """
    return _chart(vega_spec_name, data_table, fields, string_fields or {}, split_table)


@harmless
def visualize(id: str, value: Table) -> Visualize:
    """A table with one of the charts that W&B has built in."""
    return Visualize(table=_table(value), spec=VisualizeSpec(name=id))


@harmless
def line(
    table: Table, x: str, y: str, stroke: str | None = None, title: str = "", split_table: bool = False
) -> CustomChart:
    """Lines of a table's columns; one for each value of the column stroke."""
    return _chart("wandb/line/v0", table, {"x": x, "y": y, "stroke": stroke}, {"title": title}, split_table)


@harmless
def scatter(table: Table, x: str, y: str, title: str = "", split_table: bool = False) -> CustomChart:
    """Points of two columns."""
    return _chart("wandb/scatter/v0", table, {"x": x, "y": y}, {"title": title}, split_table)


@harmless
def bar(table: Table, label: str, value: str, title: str = "", split_table: bool = False) -> CustomChart:
    """A bar for each row: its label and its length."""
    return _chart("wandb/bar/v0", table, {"label": label, "value": value}, {"title": title}, split_table)


@harmless
def histogram(table: Table, value: str, title: str = "", split_table: bool = False) -> CustomChart:
    """A histogram of a column."""
    return _chart("wandb/histogram/v0", table, {"value": value}, {"title": title}, split_table)


@harmless
def line_series(
    xs: Iterable[Iterable[Any]] | Iterable[Any],
    ys: Iterable[Iterable[Any]],
    keys: Iterable[str] | None = None,
    title: str = "",
    xname: str = "x",
    split_table: bool = False,
) -> CustomChart:
    """Several lines: of one sequence of x values, or of one for each."""
    lines = [list(ordinates) for ordinates in ys]
    along: list[Any] = list(xs)
    if not along or not isinstance(along[0], Iterable) or isinstance(along[0], (str, bytes)):
        along = [along] * len(lines)
    names = [f"line_{number}" for number in range(len(lines))] if keys is None else list(keys)
    if not len(along) == len(lines) == len(names):
        raise UsageError(f"{len(along)} sequences of x, {len(lines)} of y and {len(names)} keys")
    rows = [
        [x, name, y] for name, xx, yy in zip(names, along, lines, strict=True) for x, y in zip(xx, yy, strict=False)
    ]
    columns = ["step", "lineKey", "lineVal"]
    strings = {"title": title, "xname": xname}
    return _chart("wandb/lineseries/v0", Table(columns, rows), {name: name for name in columns}, strings, split_table)


@harmless
def confusion_matrix(
    probs: Sequence[Sequence[float]] | None = None,
    y_true: Sequence[Any] | None = None,
    preds: Sequence[Any] | None = None,
    class_names: Sequence[str] | None = None,
    title: str = "Confusion Matrix Curve",
    split_table: bool = False,
) -> CustomChart:
    """How often a class was predicted where another, or it, was true.

    Args:
        probs: probabilities, samples x classes; or preds: predicted classes. y_true: true classes.
        class_names: names of the classes 0, 1, …; default "Class_1", … of the classes that there are.
    """
    import numpy as np

    if (probs is None) == (preds is None):
        raise UsageError("give either probs or preds")
    if y_true is None:
        raise UsageError("give y_true")
    guessed = np.argmax(np.asarray(probs), axis=1).tolist() if preds is None else _listed(preds)
    true = _listed(y_true)
    if len(guessed) != len(true):
        raise UsageError(f"{len(guessed)} predictions for {len(true)} true labels")
    if class_names is not None:
        names, classes = list(class_names), list(range(len(class_names)))
        if max(len(set(guessed)), len(set(true))) > len(names):
            raise UsageError(f"more classes than the {len(names)} class names")
    else:
        classes = sorted({*guessed, *true})
        names = [f"Class_{number + 1}" for number in range(len(classes))]
    index_of = {label: index for index, label in enumerate(classes)}
    counts = np.zeros((len(classes), len(classes)))
    for label, guess in zip(true, guessed, strict=True):
        counts[index_of[label], index_of[guess]] += 1
    columns = ["Actual", "Predicted", "nPredictions"]
    rows = [
        [names[row], names[column], float(counts[row, column])]
        for row in range(len(classes))
        for column in range(len(classes))
    ]
    fields = {name: name for name in columns}
    return _chart("wandb/confusion_matrix/v1", Table(columns, rows), fields, {"title": title}, split_table)


@harmless
def pr_curve(
    y_true: Iterable[Any] | None = None,
    y_probas: Iterable[Any] | None = None,
    labels: list[str] | None = None,
    classes_to_plot: list[Any] | None = None,
    interp_size: int = 21,
    title: str = "Precision-Recall Curve",
    split_table: bool = False,
) -> CustomChart:
    """Precision over recall for each class, at ``interp_size`` recalls from 1 to 0.

    Args:
        y_true: true classes. y_probas: scores, samples x classes. labels: names of the classes 0, 1, ….
    """
    import numpy as np
    from sklearn.metrics import precision_recall_curve

    recalls = np.linspace(0, 1, interp_size)[::-1]
    curves = {}
    for name, true, scores, which in _by_class(y_true, y_probas, labels, classes_to_plot):
        precision, recall, _ = precision_recall_curve(true, scores, pos_label=which)
        smooth = np.maximum.accumulate(precision)[::-1]
        curves[name] = (smooth[np.searchsorted(recall[::-1], recalls, side="left")], recalls)
    strings = {"title": title, "x-axis-title": "Recall", "y-axis-title": "Precision"}
    return _areas(curves, ["class", "precision", "recall"], ("recall", "precision"), strings, split_table)


@harmless
def roc_curve(
    y_true: Sequence[Any],
    y_probas: Sequence[Sequence[float]] | None = None,
    labels: list[str] | None = None,
    classes_to_plot: list[Any] | None = None,
    title: str = "ROC Curve",
    split_table: bool = False,
) -> CustomChart:
    """True positive rate over false positive rate for each class; arguments as for :func:`pr_curve`."""
    from sklearn.metrics import roc_curve as rates

    curves = {}
    for name, true, scores, which in _by_class(y_true, y_probas, labels, classes_to_plot):
        false_rate, true_rate, _ = rates(true, scores, pos_label=which)
        curves[name] = (false_rate, true_rate)
    strings = {"title": title, "x-axis-title": "False positive rate", "y-axis-title": "True positive rate"}
    return _areas(curves, ["class", "fpr", "tpr"], ("fpr", "tpr"), strings, split_table)


def _by_class(y_true: Any, y_probas: Any, labels: Any, chosen: Any) -> Iterable[tuple[Any, Any, Any, Any]]:
    """Each class's name, the true classes, its scores, and the class itself."""
    import numpy as np

    if y_true is None or y_probas is None:
        raise UsageError("give y_true and y_probas")
    true, scores = np.asarray(_listed(y_true)), np.asarray(_listed(y_probas))
    classes = np.unique(true)
    for column, label in enumerate(classes):
        if chosen is None or np.isin(label, _listed(chosen)):
            named = labels is not None and isinstance(label, np.integer)
            yield (labels[label] if named else label.item()), true, scores[..., column], label


def _areas(
    curves: dict[Any, tuple[Any, Any]],
    columns: list[str],
    axes: tuple[str, str],
    strings: dict[str, Any],
    split_table: bool,
) -> CustomChart:
    import numpy as np

    rows = [
        [name, *pair]
        for name, (x, y) in curves.items()
        for pair in zip(np.round(x, 3).tolist(), np.round(y, 3).tolist(), strict=True)
    ]
    if len(rows) > MAX_ROWS:
        from sklearn.utils import resample

        classes = [row[0] for row in rows]
        sample = resample(np.arange(len(rows)), replace=False, n_samples=MAX_ROWS, random_state=42, stratify=classes)
        rows = sorted((rows[index] for index in sample.tolist()), key=lambda row: (*row[1:], str(row[0])))
        warn(f"{strings['title']}: {MAX_ROWS:,} of {len(classes):,} points are in the chart")
    fields = {"x": axes[0], "y": axes[1], "class": "class"}
    return _chart("wandb/area-under-curve/v0", Table(columns, rows), fields, strings, split_table)


def _chart(name: str, table: Any, fields: dict[str, Any], strings: dict[str, Any], split_table: bool) -> CustomChart:
    spec = CustomChartSpec(spec_name=name, fields=fields, string_fields=strings, split_table=split_table)
    return CustomChart(table=_table(table), spec=spec)


def _table(value: Any) -> Table:
    from trackers.media import as_media

    table = as_media(value)
    if not isinstance(table, Table):
        raise UsageError(f"a chart needs a Table, not {type(value).__name__}")
    return table


def _listed(values: Any) -> list[Any]:
    """Values of a list, an array or a tensor as Python's own."""
    from trackers.media.image import as_numpy, is_array

    if is_array(values):
        return cast("list[Any]", as_numpy(values).tolist())
    return [value.item() if hasattr(value, "item") and getattr(value, "ndim", 1) == 0 else value for value in values]
