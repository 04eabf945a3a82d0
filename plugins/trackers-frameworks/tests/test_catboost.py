"""The CatBoost callback with the real library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import catboost
import numpy as np
import pytest
from trackers_frameworks.catboost import TrackersCallback

import trackers
from tests.frameworks.support import config, directories, only, recorded, results, series
from trackers.errors import UsageError

pytestmark = pytest.mark.usefixtures("local_runs")
RANDOM = np.random.default_rng(0)
FEATURES = RANDOM.random((60, 3))
TARGET = FEATURES.sum(1) + RANDOM.normal(0, 0.3, 60)
TEST = (FEATURES[:30] + 0.1, TARGET[:30])


def regressor(**more: Any) -> Any:
    """A small model that writes nothing."""
    return catboost.CatBoostRegressor(
        **{"iterations": 4, "depth": 2, "verbose": False, "allow_writing_files": False, "thread_count": 1, **more}
    )


def test_fit_is_recorded() -> None:
    """Each iteration's metrics, all parameters, the best values, the importances and the model."""
    model = TrackersCallback(name="first", log_model=True).fit(regressor(), FEATURES, TARGET, eval_set=TEST)
    stored = only()
    history = model.get_evals_result()
    for name in ("learn", "validation"):
        assert series(stored, f"{name}-RMSE") == list(enumerate(history[name]["RMSE"]))
    assert (stored.name, stored.status) == ("first", "finished")
    assert (config(stored)["depth"], config(stored)["grow_policy"]) == (2, "SymmetricTree")
    found = results(stored)
    assert (found["best_iteration"], found["tree_count"]) == (model.best_iteration_, model.tree_count_)
    assert found["validation-RMSE"] == model.best_score_["validation"]["RMSE"]
    loaded = trackers.load(str(directories()[0]))
    (artifact,) = loaded.artifacts()
    kept = regressor().load_model(blob=Path(directories()[0], artifact.files[0].file).read_bytes())
    assert np.array_equal(kept.predict(FEATURES), model.predict(FEATURES))
    (media,) = loaded.media()
    assert sorted(value for _, value in media.items[0].data["rows"]) == pytest.approx(
        sorted(model.get_feature_importance())
    )


def test_early_stopping() -> None:
    """All iterations are recorded, the best one is CatBoost's."""
    model = TrackersCallback().fit(regressor(iterations=200, learning_rate=1.0), FEATURES, TARGET, eval_set=TEST,
                                   early_stopping_rounds=2)  # fmt: skip
    stored = only()
    history = model.get_evals_result()["validation"]["RMSE"]
    assert len(history) < 200
    assert series(stored, "validation-RMSE") == list(enumerate(history))
    assert results(stored)["best_iteration"] == int(np.argmin(history))


def test_plain_callback_and_several_fits() -> None:
    """CatBoost's own argument takes the callback; fits in the user's run are told apart."""
    run = trackers.init("json", project="p")
    for _ in range(2):
        tracking = TrackersCallback()
        model = regressor()
        model.fit(FEATURES, TARGET, eval_set=TEST, callbacks=[tracking])
        tracking.fitted(model)
    assert not run.finished
    run.finish()
    stored = only()
    assert series(stored, "learn-RMSE") == series(stored, "fit-2/learn-RMSE")
    assert config(stored)["fit-2"]["depth"] == 2


def test_failures(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A fit that raises is a failed run; a bad setting is an error before it; a fault of ours is one line."""
    with pytest.raises(catboost.CatBoostError):
        TrackersCallback().fit(regressor(), FEATURES, TARGET[:3])
    assert only().status == "failed"
    with pytest.raises(UsageError, match="unknown tracker 'jsn'"):
        TrackersCallback("jsn").fit(regressor(), FEATURES, TARGET)

    def broken(*arguments: Any) -> None:
        raise OSError("no such disk")

    tracking = TrackersCallback()
    monkeypatch.setattr(tracking._handle, "log", broken)
    capsys.readouterr()
    model = tracking.fit(regressor(), FEATURES, TARGET)
    assert model.tree_count_ == 4
    assert recorded()[-1].status == "finished"
    lines = [line for line in capsys.readouterr().err.splitlines() if "training goes on" in line]
    assert len(lines) == 2
