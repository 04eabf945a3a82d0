"""A request to stop, or to save, in each framework's own way."""

from __future__ import annotations

import os

import numpy as np
import pytest

from tests.frameworks import test_stopping as stopping
from tests.helpers import Lazy
from trackers.training.run import Run

os.environ.setdefault("KERAS_BACKEND", "torch")
os.environ["KERAS_HOME"] = os.devnull
keras, for_keras = Lazy("keras"), Lazy("trackers.frameworks.keras")
lightgbm, for_lightgbm = Lazy("lightgbm"), Lazy("trackers.frameworks.lightgbm")
xgboost, for_xgboost = Lazy("xgboost"), Lazy("trackers.frameworks.xgboost")

pytestmark = [
    pytest.mark.usefixtures("local_runs"),
    pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept"),
]
FEATURES = np.arange(60, dtype="float32").reshape(20, 3) / 60
TARGET = (FEATURES.sum(1) > 1).astype("float32")
run = stopping.run


def test_keras_stops_after_the_batch(run: Run) -> None:
    """Of fifty epochs one batch is trained; the model is kept."""
    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1, "sigmoid")])
    model.compile(keras.optimizers.SGD(0.1), loss="binary_crossentropy")
    model.fit(FEATURES, TARGET, batch_size=5, epochs=50, verbose=0, callbacks=[for_keras.TrackersCallback()])
    assert int(model.optimizer.iterations.numpy()) < 8
    stopping.ended(run, "checkpoint.keras")


def test_xgboost_stops_after_the_round(run: Run) -> None:
    """Of fifty rounds one is boosted; the booster is kept."""
    data = xgboost.DMatrix(FEATURES, TARGET)
    booster = xgboost.train({"max_depth": 2}, data, 50, evals=[(data, "train")], verbose_eval=False,
                            callbacks=[for_xgboost.TrackersCallback()])  # fmt: skip
    assert booster.num_boosted_rounds() == 1
    stopping.ended(run, "checkpoint.ubj")


def test_lightgbm_stops_after_the_round(run: Run) -> None:
    """As early stopping does; the booster is kept."""
    data = lightgbm.Dataset(FEATURES, TARGET)
    parameters = {"verbose": -1, "min_data_in_leaf": 1, "min_data_in_bin": 1}
    with for_lightgbm.TrackersCallback() as callback:
        booster = lightgbm.train(parameters, data, 50, valid_sets=[data], callbacks=[callback])
    assert booster.current_iteration() == 1
    stopping.ended(run, "checkpoint.txt")
