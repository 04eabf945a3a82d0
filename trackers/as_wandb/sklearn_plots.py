"""``wandb.sklearn``: charts of scikit-learn's models, logged with the current run, with the tables that W&B makes.

What can't be drawn is named once and nothing is logged: no function raises.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable
from typing import Any

from trackers.as_wandb import plots
from trackers.as_wandb.plots import harmless
from trackers.errors import UsageError
from trackers.media import Table
from trackers.training.wandb_arguments import warn

__all__ = [
    "plot_calibration_curve", "plot_class_proportions", "plot_classifier", "plot_clusterer",
    "plot_confusion_matrix", "plot_elbow_curve", "plot_feature_importances", "plot_learning_curve",
    "plot_outlier_candidates", "plot_precision_recall", "plot_regressor", "plot_residuals", "plot_roc",
    "plot_silhouette", "plot_summary_metrics",
]  # fmt: skip

LIMIT = 1000
"""Rows of a chart; further ones are left out, as by W&B."""
RESIDUALS = 100
"""Residuals of each part of the data."""


@harmless
def plot_classifier(
    model: Any,
    X_train: Any,
    X_test: Any,
    y_train: Any,
    y_test: Any,
    y_pred: Any,
    y_probas: Any,
    labels: Any,
    is_binary: bool = False,
    model_name: str = "Classifier",
    feature_names: Any = None,
    log_learning_curve: bool = False,
) -> None:
    """All charts of a fitted classifier: importances, confusion matrix, scores, classes, calibration, curves."""
    from sklearn import naive_bayes

    counts_words = isinstance(model, naive_bayes.MultinomialNB)
    if not counts_words:
        plot_feature_importances(model, feature_names)
    if log_learning_curve:
        plot_learning_curve(model, X_train, y_train)
    plot_confusion_matrix(y_test, y_pred, labels)
    plot_summary_metrics(model, X=X_train, y=y_train, X_test=X_test, y_test=y_test)
    plot_class_proportions(y_train, y_test, labels)
    if not counts_words:
        plot_calibration_curve(model, X_train, y_train, model_name)
    plot_roc(y_test, y_probas, labels)
    plot_precision_recall(y_test, y_probas, labels)


@harmless
def plot_regressor(
    model: Any, X_train: Any, X_test: Any, y_train: Any, y_test: Any, model_name: str = "Regressor"
) -> None:
    """All charts of a fitted regressor: scores, learning curve, outliers, residuals."""
    plot_summary_metrics(model, X_train, y_train, X_test, y_test)
    plot_learning_curve(model, X_train, y_train)
    plot_outlier_candidates(model, X_train, y_train)
    plot_residuals(model, X_train, y_train)


@harmless
def plot_clusterer(
    model: Any, X_train: Any, cluster_labels: Any, labels: Any = None, model_name: str = "Clusterer"
) -> None:
    """All charts of a fitted clusterer: elbow curve (of KMeans) and silhouettes."""
    from sklearn.cluster import KMeans

    if isinstance(model, KMeans):
        plot_elbow_curve(model, X_train)
        plot_silhouette(model, X_train, cluster_labels, labels=labels, kmeans=True)
    else:
        plot_silhouette(model, X_train, cluster_labels, kmeans=False)


@harmless
def plot_roc(
    y_true: Any = None,
    y_probas: Any = None,
    labels: Any = None,
    plot_micro: bool = True,
    plot_macro: bool = True,
    classes_to_plot: Any = None,
) -> None:
    """ROC curves, as ``roc``."""
    _log("roc", plots.roc_curve(y_true, y_probas, labels, classes_to_plot))


@harmless
def plot_precision_recall(
    y_true: Any = None, y_probas: Any = None, labels: Any = None, plot_micro: bool = True, classes_to_plot: Any = None
) -> None:
    """Precision-recall curves, as ``precision_recall``."""
    _log("precision_recall", plots.pr_curve(y_true, y_probas, labels, classes_to_plot))


@harmless
def plot_confusion_matrix(
    y_true: Any = None,
    y_pred: Any = None,
    labels: Any = None,
    true_labels: Any = None,
    pred_labels: Any = None,
    normalize: bool = False,
) -> None:
    """How often which class was predicted, as ``confusion_matrix``; normalize: as parts of each true class."""
    import numpy as np
    from sklearn import metrics
    from sklearn.utils.multiclass import unique_labels

    _need(y_true=y_true, y_pred=y_pred)
    true, predicted = np.asarray(y_true), np.asarray(y_pred)
    matrix = metrics.confusion_matrix(true, predicted)
    classes = unique_labels(true, predicted) if labels is None else np.asarray(labels)
    if normalize:
        with np.errstate(invalid="ignore"):
            matrix = np.nan_to_num(np.around(matrix.astype(float) / matrix.sum(axis=1)[:, np.newaxis], decimals=2))
    rows, columns = classes, classes
    if true_labels is not None:
        selected = np.isin(classes, true_labels)
        rows, matrix = classes[selected], matrix[selected]
    if pred_labels is not None:
        selected = np.isin(classes, pred_labels)
        columns, matrix = classes[selected], matrix[:, selected]
    cells = itertools.product(range(len(rows)), range(len(columns)))
    # W&B calls the matrix's rows "Predicted" and its columns "Actual".
    counts = [[rows[i], columns[j], matrix[i, j]] for i, j in _limited("confusion matrix", cells)]
    _visualize("confusion_matrix", "wandb/confusion_matrix/v1", ["Predicted", "Actual", "Count"], counts)


@harmless
def plot_feature_importances(
    model: Any = None, feature_names: Any = None, title: str = "Feature Importance", max_num_features: int = 50
) -> None:
    """The importances of a fitted model's features, the greatest first, as ``feature_importances``."""
    import numpy as np

    _need(model=model)
    names = ("feature_importances_", "feature_log_prob_", "coef_")
    attribute = next((name for name in names if hasattr(model, name)), None)
    if attribute is None:
        raise UsageError(f"{type(model).__name__} has none of {', '.join(names)}")
    importances = np.squeeze(np.asarray(getattr(model, attribute)))
    if importances.ndim != 1:
        raise UsageError(f"{attribute} of {type(model).__name__} has the shape {importances.shape}: a row is needed")
    order = np.argsort(importances)[::-1]
    named = order if feature_names is None else np.array(feature_names)[order]
    rows = [[name, value] for name, value in zip(named, importances[order], strict=True)]
    _visualize("feature_importances", "wandb/feature_importances/v1", ["feature_names", "importances"], rows)


@harmless
def plot_class_proportions(y_train: Any = None, y_test: Any = None, labels: Any = None) -> None:
    """How many samples there are of each class, as ``class_proportions``."""
    import numpy as np
    from sklearn.utils.multiclass import unique_labels

    _need(y_train=y_train, y_test=y_test)
    train, test = np.asarray(y_train), np.asarray(y_test)
    rows = []
    for label in unique_labels(train, test):
        name = labels[label] if labels is not None and isinstance(label, (int, np.integer)) else label
        rows += [[name, "train", (train == label).sum()], [name, "test", (test == label).sum()]]
    columns = ["class", "dataset", "count"]
    _visualize("class_proportions", "wandb/class_proportions/v1", columns, list(_limited("classes", rows)))


@harmless
def plot_calibration_curve(clf: Any = None, X: Any = None, y: Any = None, clf_name: str = "Classifier") -> None:
    """How true a binary classifier's probabilities are, as ``calibration_curve``. It fits calibrated models."""
    import numpy as np
    from sklearn import model_selection, naive_bayes
    from sklearn.calibration import CalibratedClassifierCV, calibration_curve
    from sklearn.linear_model import LogisticRegression

    _need(clf=clf, X=X, y=y)
    true, features = np.asarray(y), X
    if true.dtype.kind not in "biuf" or not np.isin(true, (0, 1)).all():
        raise UsageError("the classes must be 0 and 1")
    if isinstance(clf, naive_bayes.ComplementNB):
        features = features - features.min()
    rows: list[list[Any]] = [["Perfectly calibrated", 0, 0, 0, 0], ["Perfectly calibrated", 1, 1, 0, 0]]
    parts = model_selection.train_test_split(features, true, test_size=0.9, random_state=42)
    train, test, true_train, true_test = parts
    models = {
        "Logistic": LogisticRegression(C=1.0),
        f"{clf_name} Isotonic": CalibratedClassifierCV(clf, cv=2, method="isotonic"),
        f"{clf_name} Sigmoid": CalibratedClassifierCV(clf, cv=2, method="sigmoid"),
    }
    for name, model in models.items():
        model.fit(train, true_train)
        scores = model.predict_proba(test)[:, 1]
        counts, edges = np.histogram(scores, bins=10)
        positive, predicted = calibration_curve(true_test, scores, n_bins=10)
        for index, (fraction, mean) in enumerate(zip(positive, predicted, strict=True)):
            rows.append([name, round(fraction, 3), round(mean, 3), counts[index], edges[index]])
    columns = ["model", "fraction_of_positives", "mean_predicted_value", "hist_dict", "edge_dict"]
    _visualize("calibration_curve", "wandb/calibration/v1", columns, rows)


@harmless
def plot_summary_metrics(
    model: Any = None, X: Any = None, y: Any = None, X_test: Any = None, y_test: Any = None
) -> None:
    """Scores of a fitted classifier or regressor, as ``summary_metrics``."""
    import numpy as np
    from sklearn import base, metrics

    _need(model=model, X_test=X_test, y_test=y_test)
    true, predicted = np.asarray(y_test), model.predict(X_test)
    if base.is_classifier(model):
        scores = {"accuracy_score": metrics.accuracy_score(true, predicted)}
        for name in ("precision", "recall", "f1_score"):
            score = getattr(metrics, name if name.endswith("_score") else f"{name}_score")
            scores[name] = score(true, predicted, average="weighted")
    elif base.is_regressor(model):
        scores = {
            "mae": metrics.mean_absolute_error(true, predicted),
            "mse": metrics.mean_squared_error(true, predicted),
            "r2_score": metrics.r2_score(true, predicted),
        }
    else:
        raise UsageError(f"{type(model).__name__} is neither a classifier nor a regressor")
    rows = [[name, round(float(value), 2), type(model).__name__] for name, value in scores.items()]
    _visualize("summary_metrics", "wandb/metrics/v1", ["metric_name", "metric_value", "model_name"], rows)


@harmless
def plot_learning_curve(
    model: Any = None,
    X: Any = None,
    y: Any = None,
    cv: Any = None,
    shuffle: bool = False,
    random_state: Any = None,
    train_sizes: Any = None,
    n_jobs: int = 1,
    scoring: Any = None,
) -> None:
    """Scores over the number of samples, as ``learning_curve``. Fits models; arguments as scikit-learn's."""
    import numpy as np
    from sklearn import model_selection

    _need(model=model, X=X, y=y)
    sizes, train, test = model_selection.learning_curve(
        model,
        X,
        np.asarray(y),
        cv=cv,
        n_jobs=n_jobs,
        train_sizes=np.linspace(0.1, 1.0, 5) if train_sizes is None else train_sizes,
        scoring=scoring,
        shuffle=shuffle,
        random_state=random_state,
    )
    rows = []
    for size, train_score, test_score in zip(sizes, np.mean(train, axis=1), np.mean(test, axis=1), strict=True):
        rows += [["train", round(train_score, 2), size], ["test", round(test_score, 2), size]]
    columns = ["dataset", "score", "train_size"]
    _visualize("learning_curve", "wandb/learning_curve/v1", columns, list(_limited("learning curve", rows)))


@harmless
def plot_outlier_candidates(regressor: Any = None, X: Any = None, y: Any = None) -> None:
    """Cook's distance of each sample, as ``outlier_candidates``. Fits the regressor."""
    import numpy as np

    _need(regressor=regressor, X=X, y=y)
    features, true = np.asarray(X), np.asarray(y)
    regressor.fit(X, true)
    leverage = (features * np.linalg.pinv(features).T).sum(1)
    freedom = features.shape[0] - np.linalg.matrix_rank(features)
    residuals = true - regressor.predict(X)
    error = np.dot(residuals, residuals) / freedom
    studentized = residuals / np.sqrt(error) / np.sqrt(1 - leverage)
    distances = studentized**2 / features.shape[1] * (leverage / (1 - leverage))
    threshold = 4 / features.shape[0]
    percentage = round(float((distances >= threshold).sum() / features.shape[0] * 100), 3)
    rows = [[distance, index, percentage, threshold] for index, distance in enumerate(_limited("distances", distances))]
    columns = ["distance", "instance_indicies", "outlier_percentage", "influence_threshold"]
    _visualize("outlier_candidates", "wandb/outliers/v1", columns, rows)


@harmless
def plot_residuals(regressor: Any = None, X: Any = None, y: Any = None) -> None:
    """Predictions less true values, of samples learned from and of others, as ``residuals``. It fits the model."""
    import numpy as np
    from sklearn import model_selection

    _need(regressor=regressor, X=X, y=y)
    train, test, true_train, true_test = model_selection.train_test_split(X, np.asarray(y), test_size=0.2)
    regressor.fit(train, true_train)
    scores = [regressor.score(train, true_train), regressor.score(test, true_test)]
    rows = []
    for name, features, true in (("train", train, true_train), ("test", test, true_test)):
        predicted = regressor.predict(features)
        pairs = zip(predicted, predicted - true, strict=True)
        rows += [
            [name, predicted_value, residual, *scores]
            for predicted_value, residual in _limited("residuals", pairs, RESIDUALS)
        ]
    columns = ["dataset", "y_pred", "residuals", "train_score", "test_score"]
    _visualize("residuals", "wandb/residuals_plot/v1", columns, rows)


@harmless
def plot_elbow_curve(
    clusterer: Any = None, X: Any = None, cluster_ranges: Any = None, n_jobs: int = 1, show_cluster_time: bool = True
) -> None:
    """Errors and times of a clusterer by its number of clusters, as ``elbow_curve``. Fits models."""
    from joblib import Parallel, delayed

    _need(clusterer=clusterer, X=X)
    if not hasattr(clusterer, "n_clusters"):
        raise UsageError(f"{type(clusterer).__name__} has no n_clusters")
    numbers = list(range(1, 10, 2)) if cluster_ranges is None else sorted(cluster_ranges)
    results = Parallel(n_jobs=n_jobs)(delayed(_clustered)(clusterer, X, number) for number in numbers)
    rows = [[number, abs(score), seconds] for number, (score, seconds) in zip(numbers, results, strict=True)]
    _visualize("elbow_curve", "wandb/elbow/v1", ["cluster_ranges", "errors", "clustering_time"], rows)


@harmless
def plot_silhouette(
    clusterer: Any = None,
    X: Any = None,
    cluster_labels: Any = None,
    labels: Any = None,
    metric: str = "euclidean",
    kmeans: bool = True,
) -> None:
    """How well each sample fits its cluster, as ``silhouette_plot``."""
    import numpy as np
    from sklearn.metrics import silhouette_samples, silhouette_score

    _need(clusterer=clusterer, X=X, cluster_labels=cluster_labels)
    features, clusters = np.asarray(X), np.asarray(cluster_labels)
    average = silhouette_score(features, clusters, metric=metric)
    values = silhouette_samples(features, clusters, metric=metric)
    points: list[tuple[int, Any, int]] = []
    lower = 10
    for cluster in range(len(np.unique(clusters))):
        ordered = np.sort(values[clusters == cluster])
        points += [(lower + index, value, cluster) for index, value in enumerate(ordered)]
        lower += len(ordered) + 10
    rows = []
    for index, (height, value, cluster) in enumerate(_limited("silhouettes", points)):
        own = clusters[index]
        centre = clusterer.cluster_centers_[own, :2].tolist() if kmeans else [None, None]
        rows.append([*features[index, :2], own, *centre, height, 0, value, cluster, average])
    columns = ["x", "y", "colors", "centerx", "centery", "y_sil", "x1", "x2", "color_sil", "silhouette_avg"]
    _visualize("silhouette_plot", "wandb/silhouette_/v1", columns, rows)


def _clustered(clusterer: Any, X: Any, number: int) -> tuple[float, float]:
    from sklearn.base import clone

    began = time.time()
    made = clone(clusterer)
    made.n_clusters = number
    return made.fit(X).score(X), time.time() - began


def _need(**arguments: Any) -> None:
    missing = [name for name, value in arguments.items() if value is None]
    if missing:
        raise UsageError(f"give {', '.join(missing)}")


def _limited(what: str, rows: Iterable[Any], limit: int = LIMIT) -> Iterable[Any]:
    limited = list(rows)
    if len(limited) > limit:
        warn(f"{what}: the first {limit} of {len(limited):,} are in the chart")
    return limited[:limit]


def _visualize(name: str, chart: str, columns: list[str], rows: list[list[Any]]) -> None:
    _log(name, plots.visualize(chart, Table(columns, rows)))


def _log(name: str, chart: Any) -> None:
    from trackers.as_wandb.names import lookup

    if chart is not None:
        log: Callable[..., Any] = lookup("log")
        log({name: chart})
