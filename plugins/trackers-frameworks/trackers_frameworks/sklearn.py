"""scikit-learn: fits, searches, cross-validations and evaluations of estimators.

    with TrackersLogger("json", project="digits") as tracking:
        search = tracking.fit(GridSearchCV(SVC(), {"C": [1, 10]}), features, target)
        tracking.evaluate(search, test_features, test_target)

Names are scikit-learn's (``mean_test_score``, ``split0_test_score``, ``loss_curve_``). The step of a search is the
candidate, of a cross-validation the split, of a curve the iteration, each from 0 on. The estimator's parameters are the
configuration; scores, the best candidate and its parameters are results (``final/``); curves and matrices are tables.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from trackers.frameworks.shared import guarded
from trackers.media.table import Table
from trackers_frameworks.fits import Fits, TracksFits

CURVES = ("loss_curve_", "validation_scores_", "train_score_", "validation_score_", "oob_improvement_", "oob_scores_")
"""Attributes of fitted estimators with a value for each iteration."""
MOST_POINTS = 500
"""Maximum number of points of a recorded curve; longer ones are thinned out evenly."""


class TrackersLogger(TracksFits):
    """Records what is fitted, and then evaluated, with it.

    Where no run is open, each fit begins one. It ends with the next fit, ``finish``, or the process; in a ``with``
    block all fits have one run.

    Args:
        trackers, run, init: as for :class:`trackers.frameworks.shared.RunHandle`.
        log_model: keep each fitted estimator as an artifact (``model.joblib``).
    """

    def __init__(self, trackers: Any = None, *, run: Any = None, log_model: bool = False, **init: Any) -> None:
        self._handle = Fits(trackers, run=run, **init)
        self._log_model = log_model

    def fit(self, estimator: Any, *arguments: Any, **more: Any) -> Any:
        """Fit an estimator, pipeline or search, and record its parameters and what it found.

        Args:
            arguments, more: as for the estimator's ``fit``.

        Returns:
            the estimator, fitted. What its ``fit`` raises is raised, and the run of the fit has failed.
        """
        fitted, seconds = self._timed(estimator, estimator.fit, arguments, more)
        self._fitted(fitted, seconds)
        return fitted

    def cross_validate(self, estimator: Any, *arguments: Any, **more: Any) -> dict[str, Any]:
        """``sklearn.model_selection.cross_validate``, and record the scores of each split, their mean and deviation.

        Args:
            arguments, more: as for scikit-learn's function.

        Returns:
            its answer. What it raises is raised, and the run has failed.
        """
        from sklearn.model_selection import cross_validate

        scores, seconds = self._timed(estimator, cross_validate, (estimator, *arguments), more)
        self._cross_validated(scores, seconds)
        return dict(scores)

    @guarded
    def evaluate(self, estimator: Any, features: Any, target: Any, name: str = "test") -> None:
        """Record scores and curves of a fitted estimator on data.

        For classifiers: accuracy, precision, recall and F1 (macro), ROC AUC and log loss where it has probabilities,
        the confusion matrix, ROC and precision-recall curves. For regressors: R², mean absolute and root mean squared
        error. For others its own ``score``.

        Args:
            name: of the data; names of results and tables begin with it.
        """
        from sklearn.base import is_classifier, is_regressor

        if not self._handle.is_open:
            self._begin(estimator)
        predicted = estimator.predict(features)
        if is_classifier(estimator):
            scores, tables = _classification(estimator, features, target, predicted)
        elif is_regressor(estimator):
            scores, tables = _regression(target, predicted), {}
        else:
            scores, tables = {"score": float(estimator.score(features, target))}, {}
        self._handle.results({f"{name}/{key}": value for key, value in scores.items()})
        step = self._handle.run.step
        if tables:
            self._handle.log({f"{name}/{key}": table for key, table in tables.items()}, step)

    def _timed(self, estimator: Any, work: Callable[..., Any], arguments: Any, more: Any) -> tuple[Any, float]:
        """Do what is to be recorded; the run ends as failed if it raises."""
        self._begin(estimator)
        begun = time.perf_counter()
        try:
            result = work(*arguments, **more)
        except BaseException as error:
            self._handle.end_failed(error)
            raise
        return result, time.perf_counter() - begun

    @guarded
    def _begin(self, estimator: Any) -> None:
        self._handle.end()  # the run of an earlier fit
        self._handle.begin(parameters(estimator))

    @guarded
    def _fitted(self, estimator: Any, seconds: float) -> None:
        self._handle.results({"fit_seconds": seconds})
        best = estimator
        if hasattr(estimator, "cv_results_"):
            self._searched(estimator)
            best = getattr(estimator, "best_estimator_", estimator)
        last = best[-1] if hasattr(best, "steps") else best
        self._curves(last)
        self._importances(best, last)
        if self._log_model:
            self._handle.keep("model.joblib", lambda path: _dump(best, path), framework="scikit-learn")

    @guarded
    def _cross_validated(self, scores: Mapping[str, Any], seconds: float) -> None:
        self._handle.results({"fit_seconds": seconds})
        series = {name: values for name, values in scores.items() if name.startswith(("test_", "train_"))}
        series |= {name: scores[name] for name in ("fit_time", "score_time") if name in scores}
        _log_series(self._handle, series)
        for name, values in series.items():
            mean, deviation = _mean_and_deviation(values)
            self._handle.results({f"mean_{name}": mean, f"std_{name}": deviation})

    def _searched(self, search: Any) -> None:
        """A search's candidates: a step each, a table of all, and the best one."""
        numbers, columns = {}, {}
        for name, values in search.cv_results_.items():
            if name.startswith("param_"):
                columns[name] = [None if value is _masked() else value for value in values]
            elif name != "params":
                numbers[name] = values
        _log_series(self._handle, numbers)
        rows = [list(row) for row in zip(*columns.values(), *numbers.values(), strict=True)]
        table = Table(columns=[*columns, *numbers], data=[[_cell(value) for value in row] for row in rows])
        self._handle.log({"cv_results": table}, max(len(rows) - 1, 0))
        best = {f"best_params/{name}": _cell(value) for name, value in getattr(search, "best_params_", {}).items()}
        index = getattr(search, "best_index_", None)
        score = getattr(search, "best_score_", None)
        self._handle.results(
            {
                **best,
                "best_index": None if index is None else int(index),
                "best_score": None if score is None else float(score),
            }
        )

    def _curves(self, estimator: Any) -> None:
        curves = {}
        for name in CURVES:
            values = getattr(estimator, name, None)
            if values is not None and len(values) and all(_is_number(value) for value in values):
                curves[name] = values
        _log_series(self._handle, curves)
        attributes = ("n_iter_", "loss_", "best_loss_", "best_validation_score_", "oob_score_")
        self._handle.results({name: _one(getattr(estimator, name, None)) for name in attributes})

    def _importances(self, best: Any, last: Any) -> None:
        values = getattr(last, "feature_importances_", None)
        if values is None:
            coefficients = getattr(last, "coef_", None)
            values = coefficients if coefficients is not None and getattr(coefficients, "ndim", 0) == 1 else None
        if values is None:
            return
        names = _feature_names(best, len(values))
        rows = sorted(zip(names, map(float, values), strict=True), key=lambda row: -abs(row[1]))
        table = Table(columns=["feature", "importance"], data=[list(row) for row in rows])
        self._handle.log({"feature_importance": table}, self._handle.run.step)


def parameters(estimator: Any) -> dict[str, Any]:
    """An estimator's class and parameters, those of its parts by scikit-learn's names (``svc__C``)."""
    values: dict[str, Any] = {"estimator_class": type(estimator).__name__}
    for name, value in estimator.get_params(deep=True).items():
        is_part = hasattr(value, "get_params") or (name == "steps" and isinstance(value, list))
        values[name] = type(value).__name__ if is_part else _cell(value)
    if hasattr(estimator, "steps"):
        values["steps"] = [f"{name}: {type(part).__name__}" for name, part in estimator.steps]
    return values


def _classification(estimator: Any, features: Any, target: Any, predicted: Any) -> tuple[dict[str, float], Any]:
    from sklearn import metrics

    scores = {"accuracy": metrics.accuracy_score(target, predicted)}
    for name in ("precision", "recall", "f1"):
        score = getattr(metrics, f"{name}_score")
        scores[f"{name}_macro"] = score(target, predicted, average="macro", zero_division=0)
    labels = list(getattr(estimator, "classes_", sorted(set(target))))
    matrix = metrics.confusion_matrix(target, predicted, labels=labels)
    rows = [
        [str(true), str(guess), int(matrix[i][j])] for i, true in enumerate(labels) for j, guess in enumerate(labels)
    ]
    tables = {"confusion_matrix": Table(columns=["actual", "predicted", "count"], data=rows)}
    chances = _probabilities(estimator, features)
    if chances is not None and len(labels) > 1:
        scores["log_loss"] = metrics.log_loss(target, chances, labels=labels)
        scores["roc_auc"] = _area(metrics, target, chances, labels)
        tables["roc_curve"] = _curve(metrics.roc_curve, ("fpr", "tpr"), target, chances, labels)
        curve = metrics.precision_recall_curve
        tables["precision_recall_curve"] = _curve(curve, ("precision", "recall"), target, chances, labels)
    return {name: float(value) for name, value in scores.items() if value is not None}, tables


def _regression(target: Any, predicted: Any) -> dict[str, float]:
    from sklearn import metrics

    return {
        "r2": float(metrics.r2_score(target, predicted)),
        "mean_absolute_error": float(metrics.mean_absolute_error(target, predicted)),
        "root_mean_squared_error": math.sqrt(metrics.mean_squared_error(target, predicted)),
    }


def _probabilities(estimator: Any, features: Any) -> Any:
    try:
        return estimator.predict_proba(features)
    except (AttributeError, NotImplementedError):
        return None


def _area(metrics: Any, target: Any, chances: Any, labels: Sequence[Any]) -> float | None:
    try:
        if len(labels) == 2:
            return float(metrics.roc_auc_score(target, chances[:, 1]))
        return float(metrics.roc_auc_score(target, chances, multi_class="ovr", labels=labels))
    except ValueError:  # a class that the data lacks
        return None


def _curve(
    curve: Callable[..., Any], columns: tuple[str, str], target: Any, chances: Any, labels: Sequence[Any]
) -> Table:
    rows = []
    for number, label in list(enumerate(labels))[1 if len(labels) == 2 else 0 :]:
        first, second, _ = curve([value == label for value in target], chances[:, number])
        points = list(zip(first.tolist(), second.tolist(), strict=True))
        rows += [[str(label), *point] for point in _thinned(points)]
    return Table(columns=["class", *columns], data=rows)


def _thinned(points: list[Any]) -> list[Any]:
    if len(points) <= MOST_POINTS:
        return points
    return [points[round(k * (len(points) - 1) / (MOST_POINTS - 1))] for k in range(MOST_POINTS)]


def _log_series(handle: Fits, series: Mapping[str, Any]) -> None:
    for row in range(max(map(len, series.values()), default=0)):
        handle.log({name: float(values[row]) for name, values in series.items() if row < len(values)}, row)


def _mean_and_deviation(values: Any) -> tuple[float, float]:
    numbers = [float(value) for value in values]
    mean = sum(numbers) / len(numbers)
    return mean, math.sqrt(sum((number - mean) ** 2 for number in numbers) / len(numbers))


def _feature_names(best: Any, count: int) -> Iterator[str]:
    front = best[:-1] if hasattr(best, "steps") else None
    names = getattr(best, "feature_names_in_", None)
    if front is not None and len(front.steps):
        names = front.get_feature_names_out()
    return map(str, names if names is not None and len(names) == count else (f"x{number}" for number in range(count)))


def _masked() -> Any:
    import numpy

    return numpy.ma.masked


def _dump(estimator: Any, path: Any) -> None:
    import joblib

    joblib.dump(estimator, path)


def _is_number(value: Any) -> bool:
    return hasattr(value, "__float__") and not getattr(value, "shape", ())


def _one(value: Any) -> float | int | None:
    if value is None or not _is_number(value):
        return None
    number = float(value)
    return int(number) if number.is_integer() and not isinstance(value, float) else number


def _cell(value: Any) -> Any:
    """A value as JSON has it, or its text."""
    if hasattr(value, "item") and not getattr(value, "shape", ()):
        value = value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)) and len(value) < 100:
        return [_cell(item) for item in value]
    if isinstance(value, Mapping) and len(value) < 100:
        return {str(name): _cell(item) for name, item in value.items()}
    return type(value).__name__ if hasattr(value, "get_params") else str(value)[:200]
