"""The XGBoost callback: ``train``, ``cv`` and the estimators of the real library."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xgboost
from trackers_frameworks.xgboost import TrackersCallback

import trackers
from tests.frameworks.support import config, directories, only, recorded, results, series
from trackers.errors import UsageError

pytestmark = pytest.mark.usefixtures("local_runs")
PARAMETERS = {"eta": 0.1, "max_depth": 2, "objective": "reg:squarederror", "nthread": 1, "eval_metric": ["rmse", "mae"]}


def data(rows: int = 60) -> tuple[xgboost.DMatrix, xgboost.DMatrix]:
    """Training and test data of a sum with noise."""
    random = np.random.default_rng(0)
    features = random.random((2 * rows, 3))
    target = features.sum(1) + random.normal(0, 0.3, 2 * rows)
    return xgboost.DMatrix(features[:rows], target[:rows]), xgboost.DMatrix(features[rows:], target[rows:])


def test_training_is_recorded() -> None:
    """Each round's metrics, XGBoost's parameters, the best values, and the model that predicts the same."""
    train, test = data()
    history: dict[str, Any] = {}
    tracking = TrackersCallback("json", project="prices", name="first", config={"seed": 7}, log_model=True)
    booster = xgboost.train(
        PARAMETERS, train, 5, evals=[(train, "train"), (test, "test")], evals_result=history, verbose_eval=False,
        callbacks=[tracking],
    )  # fmt: skip
    stored = only()
    for name in ("train", "test"):
        for metric in ("rmse", "mae"):
            assert series(stored, f"{name}-{metric}") == list(enumerate(history[name][metric]))
    assert (stored.name, stored.status) == ("first", "finished")
    assert {**config(stored), **PARAMETERS, "seed": 7} == {**config(stored), "eval_metric": PARAMETERS["eval_metric"]}
    assert results(stored)["test-rmse"] == min(history["test"]["rmse"])
    assert results(stored)["num_boosted_rounds"] == 5
    (artifact,) = trackers.load(str(directories()[0])).artifacts()
    assert (artifact.name, artifact.type) == ("model.ubj", "model")
    kept = xgboost.Booster(model_file=bytearray(Path(directories()[0], artifact.files[0].file).read_bytes()))
    assert np.array_equal(kept.predict(test), booster.predict(test))


def test_importance_is_a_table() -> None:
    """The gain of each feature is recorded after training, the largest first."""
    train, test = data()
    tracking = TrackersCallback()
    booster = xgboost.train(PARAMETERS, train, 3, evals=[(test, "test")], verbose_eval=False, callbacks=[tracking])
    (media,) = trackers.load(str(directories()[0])).media()
    gains = booster.get_score(importance_type="gain")
    assert media.name == "feature_importance"
    assert media.items[0].data == {
        "columns": ["feature", "gain"],
        "rows": [[name, gains[name]] for name in sorted(gains, key=lambda name: -gains[name])],
    }


@pytest.mark.parametrize("ours_first", [True, False])
def test_early_stopping_keeps_the_last_round(ours_first: bool) -> None:
    """All rounds are recorded wherever the callback is in the list; the best one is a result."""
    train, test = data()
    stopping = xgboost.callback.EarlyStopping(rounds=2, metric_name="rmse", data_name="test")
    tracking = TrackersCallback()
    history: dict[str, Any] = {}
    booster = xgboost.train(
        {**PARAMETERS, "eta": 1.0}, train, 50, evals=[(test, "test")], evals_result=history, verbose_eval=False,
        callbacks=[tracking, stopping] if ours_first else [stopping, tracking],
    )  # fmt: skip
    stored = only()
    assert len(history["test"]["rmse"]) < 50
    assert series(stored, "test-rmse") == list(enumerate(history["test"]["rmse"]))
    assert results(stored)["best_iteration"] == booster.best_iteration
    assert results(stored)["best_score"] == pytest.approx(booster.best_score)


def test_cross_validation_has_mean_and_deviation() -> None:
    """``cv`` records what its table has; metrics that XGBoost maximizes have their largest value as the result."""
    random = np.random.default_rng(0)
    features = random.random((90, 3))
    binary = xgboost.DMatrix(features, (features[:, 0] > 0.4).astype(int) ^ (random.random(90) > 0.9))
    table = xgboost.cv({"objective": "binary:logistic", "eval_metric": "auc", "nthread": 1, "max_depth": 2}, binary, 4,
                       nfold=3, callbacks=[TrackersCallback()])  # fmt: skip
    stored = only()
    for name in table.columns:
        assert series(stored, name) == list(enumerate(table[name]))
    assert results(stored)["test-auc-mean"] == max(table["test-auc-mean"])
    assert "test-auc-std" not in results(stored)


def test_each_fit_has_a_run_and_goes_on_from_a_model() -> None:
    """Two fits are two runs; one that continues a booster goes on with its rounds."""
    train, test = data()
    tracking = TrackersCallback()
    booster = None
    for _ in range(2):
        booster = xgboost.train(PARAMETERS, train, 2, evals=[(test, "test")], verbose_eval=False, xgb_model=booster,
                                callbacks=[tracking])  # fmt: skip
    assert [[step for step, _ in series(one, "test-rmse")] for one in recorded()] == [[0, 1], [2, 3]]
    assert [one.status for one in recorded()] == ["finished", "finished"]


def test_fits_in_one_run_are_told_apart() -> None:
    """In the user's run a second fit has names of its own, a continued one goes on, and the run stays the user's."""
    train, test = data()
    run = trackers.init("json", project="p", config={"eta": 0.5})
    history: list[dict[str, Any]] = [{}, {}, {}]
    booster = None
    for number in range(3):
        booster = xgboost.train(
            PARAMETERS, train, 2, evals=[(test, "test")], evals_result=history[number], verbose_eval=False,
            xgb_model=booster if number == 1 else None, callbacks=[TrackersCallback()],
        )  # fmt: skip
    assert not run.finished
    run.log({"mine": 1.0})
    run.finish()
    stored = only()
    rounds = history[0]["test"]["rmse"] + history[1]["test"]["rmse"]
    assert series(stored, "test-rmse") == list(enumerate(rounds))
    assert series(stored, "fit-2/test-rmse") == list(enumerate(history[2]["test"]["rmse"]))
    assert config(stored)["eta"] == 0.5
    assert config(stored)["fit-2"]["eta"] == 0.1
    assert results(stored)["fit-2/num_boosted_rounds"] == 2


def test_failed_training_is_a_failed_run() -> None:
    """In a ``with`` block at once; without one when the next fit begins."""
    train, test = data()

    def broken(predictions: Any, matrix: Any) -> Any:
        raise RuntimeError("no gradient")

    with pytest.raises(RuntimeError, match="no gradient"), TrackersCallback() as tracking:
        xgboost.train(PARAMETERS, train, 2, evals=[(test, "test")], obj=broken, callbacks=[tracking])
    tracking = TrackersCallback()
    with pytest.raises(RuntimeError, match="no gradient"):
        xgboost.train(PARAMETERS, train, 2, evals=[(test, "test")], obj=broken, callbacks=[tracking])
    xgboost.train(PARAMETERS, train, 2, evals=[(test, "test")], verbose_eval=False, callbacks=[tracking])
    assert [one.status for one in recorded()] == ["failed", "failed", "finished"]


def test_block_gives_its_fits_one_run() -> None:
    """Fits in one ``with`` block share a run."""
    train, test = data()
    with TrackersCallback(name="both") as tracking:
        for _ in range(2):
            xgboost.train(PARAMETERS, train, 2, evals=[(test, "test")], verbose_eval=False, callbacks=[tracking])
        assert not tracking.run.finished
    assert {"test-rmse", "fit-2/test-rmse"} <= set(only().metrics)


def test_estimator_and_its_clones() -> None:
    """scikit-learn's cross-validation clones the estimator with its callback: each fold has its own names."""
    from sklearn.model_selection import cross_val_score

    features = np.random.default_rng(0).random((60, 3))
    run = trackers.init("json", project="p")
    estimator = xgboost.XGBRegressor(n_estimators=2, n_jobs=1, callbacks=[TrackersCallback(importance="")])
    cross_val_score(estimator, features, features.sum(1), cv=3)
    run.finish()
    stored = only()
    names = {"num_boosted_rounds", "fit-2/num_boosted_rounds", "fit-3/num_boosted_rounds"}
    assert names <= set(results(stored))
    assert pickle.loads(pickle.dumps(TrackersCallback(project="q")))._handle.argument("project") == "q"
    assert copy.deepcopy(TrackersCallback(project="q"))._handle.argument("project") == "q"


def test_bad_setting_is_an_error_before_the_first_round() -> None:
    """A tracker that isn't known stops training before it begins; a fault of ours later never does."""
    train, _test = data()
    with pytest.raises(UsageError, match="unknown tracker 'jsn'"):
        xgboost.train(PARAMETERS, train, 2, callbacks=[TrackersCallback("jsn")])


def test_fault_of_the_callback_never_stops_training(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A fault on our side is said in one line; the model is there and the run finished."""

    def broken(*arguments: Any) -> None:
        raise OSError("no such disk")

    monkeypatch.setattr(TrackersCallback, "_importances", broken)
    train, test = data()
    booster = xgboost.train(PARAMETERS, train, 2, evals=[(test, "test")], verbose_eval=False,
                            callbacks=[TrackersCallback()])  # fmt: skip
    assert booster.num_boosted_rounds() == 2
    assert only().status == "finished"
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "training goes on" in line]
    assert line.endswith("TrackersCallback._end: OSError: no such disk; training goes on")


def test_other_ranks_record_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several ranks rank 0 alone records."""
    train, test = data()
    monkeypatch.setattr(xgboost.collective, "get_rank", lambda: 1)
    xgboost.train(PARAMETERS, train, 2, evals=[(test, "test")], verbose_eval=False, callbacks=[TrackersCallback()])
    assert directories() == []
