"""The scikit-learn logger: fits, searches, cross-validation and evaluation with the real library."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from sklearn import metrics
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.ensemble import GradientBoostingClassifier, RandomForestRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from trackers_frameworks.sklearn import MOST_POINTS, TrackersLogger

import trackers
from tests.frameworks.support import config, directories, only, recorded, results, series
from trackers.errors import UsageError

pytestmark = [pytest.mark.usefixtures("local_runs"), pytest.mark.filterwarnings("ignore")]
FEATURES, TARGET = load_iris(return_X_y=True)


def tables(number: int = 0) -> dict[str, list[dict[str, Any]]]:
    """Tables of a run, as rows by column."""
    found = {}
    for media in trackers.load(str(directories()[number])).media():
        (item,) = media.items
        data = item.data or json.loads(Path(directories()[number], item.file).read_text())
        found[media.name] = [dict(zip(data["columns"], row, strict=True)) for row in data["rows"]]
    return found


def test_search_is_recorded() -> None:
    """Each candidate is a step, the table has them all, and the best one with its parameters is the result."""
    search = GridSearchCV(make_pipeline(StandardScaler(), LogisticRegression()), cv=3, return_train_score=True,
                          param_grid={"logisticregression__C": [0.01, 1.0, 100.0]})  # fmt: skip
    with TrackersLogger(name="search", log_model=True) as tracking:
        assert tracking.fit(search, FEATURES, TARGET) is search
    stored = only()
    for name in ("mean_test_score", "std_test_score", "split0_test_score", "mean_train_score", "rank_test_score"):
        assert [value for _, value in series(stored, name)] == pytest.approx(list(search.cv_results_[name]))
    assert [step for step, _ in series(stored, "mean_test_score")] == [0, 1, 2]
    found = results(stored)
    assert (found["best_score"], found["best_index"]) == (search.best_score_, search.best_index_)
    assert found["best_params/logisticregression__C"] == search.best_params_["logisticregression__C"]
    assert config(stored)["estimator_class"] == "GridSearchCV"
    assert config(stored)["estimator__logisticregression__max_iter"] == 100
    assert [row["param_logisticregression__C"] for row in tables()["cv_results"]] == [0.01, 1.0, 100.0]
    (artifact,) = trackers.load(str(directories()[0])).artifacts()
    kept = joblib.load(io.BytesIO(Path(directories()[0], artifact.files[0].file).read_bytes()))
    assert np.array_equal(kept.predict(FEATURES), search.predict(FEATURES))
    assert stored.status == "finished"


@pytest.mark.slow
def test_cross_validation_is_recorded() -> None:
    """Each split is a step, with several metrics; mean and deviation are results."""
    scoring = ("accuracy", "f1_macro")
    with TrackersLogger() as tracking:
        found = tracking.cross_validate(LogisticRegression(), FEATURES, TARGET, cv=4, scoring=scoring)
    again = cross_validate(LogisticRegression(), FEATURES, TARGET, cv=4, scoring=scoring)
    stored = only()
    for name in ("test_accuracy", "test_f1_macro"):
        assert list(found[name]) == list(again[name])
        assert series(stored, name) == list(enumerate(found[name]))
        assert results(stored)[f"mean_{name}"] == pytest.approx(np.mean(found[name]))
        assert results(stored)[f"std_{name}"] == pytest.approx(np.std(found[name]))


@pytest.mark.slow
def test_evaluation_of_a_classifier() -> None:
    """Scores equal scikit-learn's; the confusion matrix and the curves are tables."""
    with TrackersLogger() as tracking:
        model = tracking.fit(LogisticRegression(), FEATURES[::2], TARGET[::2])
        tracking.evaluate(model, FEATURES[1::2], TARGET[1::2])
    found = results(only())
    predicted, chances = model.predict(FEATURES[1::2]), model.predict_proba(FEATURES[1::2])
    assert found["test/accuracy"] == metrics.accuracy_score(TARGET[1::2], predicted)
    assert found["test/f1_macro"] == metrics.f1_score(TARGET[1::2], predicted, average="macro")
    assert found["test/roc_auc"] == metrics.roc_auc_score(TARGET[1::2], chances, multi_class="ovr")
    assert found["test/log_loss"] == metrics.log_loss(TARGET[1::2], chances)
    matrix = metrics.confusion_matrix(TARGET[1::2], predicted)
    rows = tables()["test/confusion_matrix"]
    assert [row["count"] for row in rows] == matrix.ravel().tolist()
    assert {row["class"] for row in tables()["test/roc_curve"]} == {"0", "1", "2"}
    assert {"class", "precision", "recall"} == set(tables()["test/precision_recall_curve"][0])


def test_two_classes_have_one_curve_that_is_short() -> None:
    """Of two classes the second one's curve is recorded, thinned out to the bound."""
    features, target = load_breast_cancer(return_X_y=True)
    features, target = np.tile(features, (3, 1)), np.tile(target, 3)
    random = np.random.default_rng(0)
    with TrackersLogger() as tracking:
        model = tracking.fit(make_pipeline(StandardScaler(), LogisticRegression()), features, target)
        tracking.evaluate(model, features + random.normal(0, features.std(0), features.shape), target, "noisy")
    rows = tables()["noisy/precision_recall_curve"]
    assert len(rows) == MOST_POINTS
    assert {row["class"] for row in rows} == {"1"}
    assert rows[-1] == {"class": "1", "precision": 1.0, "recall": 0.0}


def test_regression_and_importances() -> None:
    """A regressor's scores are results, the importances of its features a table."""
    target = FEATURES[:, 0] * 2
    with TrackersLogger() as tracking:
        model = tracking.fit(RandomForestRegressor(n_estimators=5, random_state=0), FEATURES, target)
        tracking.evaluate(model, FEATURES, target, name="train")
    found = results(only())
    predicted = model.predict(FEATURES)
    assert found["train/r2"] == metrics.r2_score(target, predicted)
    assert found["train/root_mean_squared_error"] == pytest.approx(metrics.mean_squared_error(target, predicted) ** 0.5)
    rows = {row["feature"]: row["importance"] for row in tables()["feature_importance"]}
    assert rows == {f"x{number}": value for number, value in enumerate(model.feature_importances_)}


@pytest.mark.parametrize(
    ("estimator", "name"),
    [
        (MLPClassifier((4,), max_iter=6, random_state=0), "loss_curve_"),
        (GradientBoostingClassifier(n_estimators=3), "train_score_"),
    ],
)
def test_curves_of_fitted_estimators(estimator: Any, name: str) -> None:
    """An estimator that keeps a value for each iteration has it as a series."""
    tracking = TrackersLogger()
    tracking.fit(estimator, FEATURES, TARGET)
    tracking.finish()
    assert series(only(), name) == list(enumerate(map(float, getattr(estimator, name))))


@pytest.mark.slow
def test_each_fit_has_a_run_or_names_of_its_own() -> None:
    """Two fits are two runs, each with its evaluation; in the user's run the second has names of its own."""
    tracking = TrackersLogger()
    for strength in (0.1, 1.0):
        model = tracking.fit(LogisticRegression(C=strength), FEATURES, TARGET)
        tracking.evaluate(model, FEATURES, TARGET)
    tracking.finish()
    assert [config(one)["C"] for one in recorded()] == [0.1, 1.0]
    assert all("test/accuracy" in results(one) and one.status == "finished" for one in recorded())
    run = trackers.init("json", project="p")
    for strength in (0.1, 1.0):
        model = tracking.fit(LogisticRegression(C=strength), FEATURES, TARGET)
        tracking.evaluate(model, FEATURES, TARGET)
    assert not run.finished
    run.finish()
    stored = recorded()[-1]
    assert {"test/accuracy", "fit-2/test/accuracy"} <= set(results(stored))
    assert (config(stored)["C"], config(stored)["fit-2"]["C"]) == (0.1, 1.0)


def test_fit_that_raises_is_a_failed_run() -> None:
    """scikit-learn's error reaches the user, and the run says that it failed."""
    with pytest.raises(ValueError, match="inconsistent"):
        TrackersLogger().fit(LogisticRegression(), FEATURES, TARGET[:3])
    assert only().status == "failed"
    with pytest.raises(UsageError, match="unknown tracker 'jsn'"):
        TrackersLogger("jsn").fit(LogisticRegression(), FEATURES, TARGET)


def test_fault_of_the_logger_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Data that can't be evaluated costs the evaluation alone."""
    tracking = TrackersLogger()
    model = tracking.fit(LogisticRegression(), FEATURES, TARGET)
    tracking.evaluate(model, FEATURES, TARGET[:3])
    tracking.finish()
    assert only().status == "finished"
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "training goes on" in line]
    assert "TrackersLogger.evaluate: ValueError" in line
