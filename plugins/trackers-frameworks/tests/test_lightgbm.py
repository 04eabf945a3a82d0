"""The LightGBM callback: ``train``, ``cv`` and the estimators of the real library."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pytest
from trackers_frameworks.lightgbm import TrackersCallback

import trackers
from tests import ROOT
from tests.frameworks.support import config, directories, only, recorded, results, series
from trackers.errors import UsageError

pytestmark = pytest.mark.usefixtures("local_runs")
PARAMETERS = {"learning_rate": 0.1, "num_leaves": 4, "objective": "regression", "metric": ["l2", "l1"], "verbose": -1,
              "num_threads": 1, "min_data_in_leaf": 5}  # fmt: skip


def data(rows: int = 60) -> tuple[lightgbm.Dataset, lightgbm.Dataset]:
    """Training and test data of a sum with noise."""
    random = np.random.default_rng(0)
    features = random.random((2 * rows, 3))
    target = features.sum(1) + random.normal(0, 0.3, 2 * rows)
    train = lightgbm.Dataset(features[:rows], target[:rows], free_raw_data=False)
    return train, lightgbm.Dataset(features[rows:], target[rows:], reference=train, free_raw_data=False)


def test_training_is_recorded() -> None:
    """Each round's metrics, the parameters, the best values, the gain of features and the model."""
    train, test = data()
    history: dict[str, Any] = {}
    booster = lightgbm.train(
        PARAMETERS, train, 5, valid_sets=[train, test], valid_names=["training", "test"],
        callbacks=[TrackersCallback(name="first", log_model=True), lightgbm.record_evaluation(history)],
    )  # fmt: skip
    stored = only()
    for name in ("training", "test"):
        for metric in ("l2", "l1"):
            assert series(stored, f"{name}-{metric}") == list(enumerate(history[name][metric]))
    assert (stored.name, stored.status) == ("first", "finished")
    assert config(stored)["num_leaves"] == 4
    assert results(stored)["test-l2"] == min(history["test"]["l2"])
    assert (results(stored)["best_iteration"], results(stored)["num_boosted_rounds"]) == (4, 5)
    loaded = trackers.load(str(directories()[0]))
    (artifact,) = loaded.artifacts()
    kept = Path(directories()[0], artifact.files[0].file).read_text()
    assert lightgbm.Booster(model_str=kept).num_trees() == booster.num_trees() == 5
    (media,) = loaded.media()
    gains = dict(zip(booster.feature_name(), booster.feature_importance("gain"), strict=True))
    assert dict(media.items[0].data["rows"]) == pytest.approx(gains, rel=1e-5)


def stopped(**more: Any) -> Any:
    """A training that early stopping ends."""
    train, test = data()
    stopping = lightgbm.early_stopping(2, first_metric_only=True, verbose=False)
    return lightgbm.train({**PARAMETERS, "learning_rate": 1.0}, train, 50, valid_sets=[test],
                          callbacks=[stopping, *more.values()])  # fmt: skip


def test_early_stopping() -> None:
    """All rounds are recorded, and the best one is a result: by a block, and when the next fit begins."""
    history: dict[str, Any] = {}
    with TrackersCallback() as tracking:
        booster = stopped(tracking=tracking, history=lightgbm.record_evaluation(history))
    stored = only()
    assert len(history["valid_0"]["l2"]) < 50
    assert series(stored, "valid_0-l2") == list(enumerate(history["valid_0"]["l2"]))
    assert results(stored)["best_iteration"] == booster.best_iteration - 1
    tracking = TrackersCallback()
    for _ in range(2):
        stopped(tracking=tracking)
    tracking.finish()
    assert [(one.status, results(one)["best_iteration"]) for one in recorded()] == [
        ("finished", booster.best_iteration - 1)
    ] * 3


def test_early_stopping_in_a_script() -> None:
    """A script that only trains ends with a finished run that has the best iteration."""
    code = (
        "from test_lightgbm import stopped; from trackers_frameworks.lightgbm import TrackersCallback;"
        "tracking = TrackersCallback(); stopped(tracking=tracking)"
    )
    path = os.pathsep.join([str(ROOT), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": path})
    stored = only()
    assert stored.status == "finished"
    assert results(stored)["best_iteration"] < results(stored)["num_boosted_rounds"] - 1


def test_cross_validation_has_mean_and_deviation() -> None:
    """``cv`` records what it returns; metrics that are to be large have their largest value as the result."""
    random = np.random.default_rng(0)
    features = random.random((90, 3))
    binary = lightgbm.Dataset(features, (features[:, 0] > 0.4).astype(int) ^ (random.random(90) > 0.9))
    parameters = {**PARAMETERS, "objective": "binary", "metric": "auc"}
    found = lightgbm.cv(parameters, binary, 4, nfold=3, callbacks=[TrackersCallback()])
    stored = only()
    assert len(found) == 2
    for name, values in found.items():
        assert series(stored, name.replace(" ", "-")) == list(enumerate(values))
    assert results(stored)["valid-auc-mean"] == max(found["valid auc-mean"])
    assert stored.status == "finished"


def test_fits_in_one_run_are_told_apart() -> None:
    """In the user's run a second fit has names of its own, one that continues a model goes on."""
    train, test = data()
    run = trackers.init("json", project="p")
    booster = None
    for number in range(3):
        booster = lightgbm.train(PARAMETERS, train, 2, valid_sets=[test], callbacks=[TrackersCallback()],
                                 init_model=booster if number == 1 else None)  # fmt: skip
    assert not run.finished
    run.finish()
    stored = only()
    assert [step for step, _ in series(stored, "valid_0-l2")] == [0, 1, 2, 3]
    assert [step for step, _ in series(stored, "fit-2/valid_0-l2")] == [0, 1]
    assert config(stored)["fit-2"]["num_leaves"] == 4


def test_failed_training_is_a_failed_run() -> None:
    """In a ``with`` block at once; without one when the next fit begins."""
    train, test = data()

    def broken(env: Any) -> None:
        if env.iteration == 1:
            raise RuntimeError("no metric")

    broken.order = 35  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match="no metric"), TrackersCallback() as tracking:
        lightgbm.train(PARAMETERS, train, 3, valid_sets=[test], callbacks=[tracking, broken])
    tracking = TrackersCallback()
    with pytest.raises(RuntimeError, match="no metric"):
        lightgbm.train(PARAMETERS, train, 3, valid_sets=[test], callbacks=[tracking, broken])
    lightgbm.train(PARAMETERS, train, 3, valid_sets=[test], callbacks=[tracking])
    assert [one.status for one in recorded()] == ["failed", "failed", "finished"]


@pytest.mark.filterwarnings("ignore:The argument 'eval_set' is deprecated")
def test_estimator() -> None:
    """The scikit-learn estimators take the callback, with the names of their evaluation sets."""
    features = np.random.default_rng(0).random((60, 3))
    estimator = lightgbm.LGBMRegressor(n_estimators=3, n_jobs=1, verbose=-1, min_child_samples=5)
    estimator.fit(features, features.sum(1), eval_set=[(features, features.sum(1))], callbacks=[TrackersCallback()])
    stored = only()
    assert [value for _, value in series(stored, "valid_0-l2")] == estimator.evals_result_["valid_0"]["l2"]
    assert pickle.loads(pickle.dumps(TrackersCallback(project="q")))._handle.argument("project") == "q"


def test_faults_before_and_in_training(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A setting that can't be is an error before the first round; a fault later is one line, and training goes on."""
    train, test = data()
    with pytest.raises(UsageError, match="unknown tracker 'jsn'"):
        lightgbm.train(PARAMETERS, train, 2, valid_sets=[test], callbacks=[TrackersCallback("jsn")])
    capsys.readouterr()
    booster = lightgbm.train(PARAMETERS, train, 2, valid_sets=[test], callbacks=[TrackersCallback(importance="luck")])
    assert booster.num_trees() == 2
    assert only().status == "finished"
    assert sum("training goes on" in line for line in capsys.readouterr().err.splitlines()) == 1
