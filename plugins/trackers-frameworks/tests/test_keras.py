"""The Keras callback with the real library, on torch unless KERAS_BACKEND says otherwise."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trackers
from tests.frameworks.support import config, directories, only, recorded, results, series
from tests.helpers import Lazy
from trackers.errors import UsageError

os.environ.setdefault("KERAS_BACKEND", "torch")  # `make test-frameworks` has jax too
os.environ["KERAS_HOME"] = os.devnull  # Keras writes its configuration there when it is imported
keras = Lazy("keras")
own = Lazy("trackers_frameworks.keras")

pytestmark = [
    pytest.mark.usefixtures("local_runs"),
    pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept"),
]
RANDOM = np.random.default_rng(0)
FEATURES = RANDOM.random((24, 3)).astype("float32")
TARGET = (FEATURES.sum(1) > 1.5).astype("float32")


def classifier(name: str = "small") -> Any:
    """A compiled model of two layers."""
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Input((3,)), keras.layers.Dense(2, "relu"), keras.layers.Dense(1, "sigmoid")]
    model = keras.Sequential(layers, name=name)
    model.compile(keras.optimizers.SGD(0.125), loss="binary_crossentropy", metrics=["accuracy"])
    return model


def fit(model: Any, *callbacks: Any, epochs: int = 2, **more: Any) -> dict[str, list[float]]:
    """Train with validation; the history."""
    history = model.fit(FEATURES, TARGET, batch_size=8, epochs=epochs, validation_data=(FEATURES, TARGET), verbose=0,
                        callbacks=list(callbacks), **more)  # fmt: skip
    found: dict[str, list[float]] = history.history
    return found


def test_training_is_recorded() -> None:
    """Each epoch's metrics at the optimizer's steps, batches', the settings, the best values, and the model."""
    model = classifier()
    history = fit(model, own.TrackersCallback(name="first", log_every=1, log_model=True))
    stored = only()
    for name, values in history.items():
        assert series(stored, name) == list(zip((3, 6), values, strict=True))
    assert series(stored, "epoch") == [(3, 0), (6, 1)]
    assert series(stored, "learning_rate") == [(3, 0.125), (6, 0.125)]
    assert [step for step, _ in series(stored, "batch_loss")] == [1, 2, 3, 4, 5, 6]
    assert series(stored, "batch_loss")[2][1] == pytest.approx(history["loss"][0])
    assert (stored.name, stored.status) == ("first", "finished")
    found = config(stored)
    assert (found["model"], found["parameters"], found["epochs"], found["loss"]) == (
        "small",
        11,
        2,
        "binary_crossentropy",
    )
    assert found["optimizer"]["learning_rate"] == 0.125
    assert results(stored)["val_loss"] == min(history["val_loss"])
    assert results(stored)["val_accuracy"] == max(history["val_accuracy"])
    assert results(stored)["best_epoch"] == int(np.argmin(history["val_loss"]))
    (artifact,) = trackers.load(str(directories()[0])).artifacts()
    Path("kept.keras").write_bytes(Path(directories()[0], artifact.files[0].file).read_bytes())
    kept = keras.models.load_model("kept.keras")
    assert np.allclose(kept.predict(FEATURES, verbose=0), model.predict(FEATURES, verbose=0))


def test_second_fit_and_evaluation_go_on() -> None:
    """In the user's run a second fit of the model goes on with its steps; an evaluation has names of its own."""
    run = trackers.init("json", project="p")
    model = classifier()
    tracking = own.TrackersCallback()
    first, second = fit(model, tracking), fit(model, tracking)
    found = model.evaluate(FEATURES, TARGET, verbose=0, return_dict=True, callbacks=[tracking])
    assert not run.finished
    run.finish()
    stored = only()
    assert series(stored, "loss") == list(zip((3, 6, 9, 12), first["loss"] + second["loss"], strict=True))
    assert series(stored, "evaluation_loss") == [(12, found["loss"])]
    assert results(stored)["evaluation_accuracy"] == found["accuracy"]


@pytest.mark.slow
def test_each_fit_has_a_run() -> None:
    """Without a run of the user's, two fits are two runs; other models' names are told apart in one run."""
    tracking = own.TrackersCallback()
    for _ in range(2):
        fit(classifier(), tracking)
    assert [[step for step, _ in series(one, "loss")] for one in recorded()] == [[3, 6], [3, 6]]
    with own.TrackersCallback(project="both") as tracking:
        fit(classifier("one"), tracking)
        fit(classifier("two"), tracking)
    stored = recorded()[-1]
    assert series(stored, "loss") == series(stored, "fit-2/loss")
    assert config(stored)["fit-2"]["model"] == "two"


def test_early_stopping() -> None:
    """Epochs until the stop are recorded, the best one is the result."""
    stopping = keras.callbacks.EarlyStopping(monitor="val_loss", patience=1, min_delta=10.0)
    history = fit(classifier(), stopping, own.TrackersCallback(), epochs=9)
    assert len(history["loss"]) == 2
    assert len(series(only(), "val_loss")) == 2
    assert only().status == "finished"


def broken() -> Any:
    """A callback that fails in the second epoch."""

    def begin(epoch: int, logs: Any = None) -> None:
        if epoch == 1:
            raise RuntimeError("no data")

    return keras.callbacks.LambdaCallback(on_epoch_begin=begin)


@pytest.mark.slow
def test_failed_training_is_a_failed_run() -> None:
    """In a ``with`` block at once; without one when the next fit begins."""
    with pytest.raises(RuntimeError, match="no data"), own.TrackersCallback() as tracking:
        fit(classifier(), tracking, broken())
    tracking = own.TrackersCallback()
    with pytest.raises(RuntimeError, match="no data"):
        fit(classifier(), tracking, broken())
    fit(classifier(), tracking)
    assert [one.status for one in recorded()] == ["failed", "failed", "finished"]


@pytest.mark.slow
def test_faults_before_and_in_training(capsys: pytest.CaptureFixture[str]) -> None:
    """A setting that can't be is an error before the first step; a fault later is one line, and training goes on."""
    with pytest.raises(UsageError, match="unknown tracker 'jsn'"):
        fit(classifier(), own.TrackersCallback("jsn"))
    tracking = own.TrackersCallback(log_every=1)
    tracking._step = lambda: int("none")  # type: ignore[method-assign]
    capsys.readouterr()
    assert len(fit(classifier(), tracking)["loss"]) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if "training goes on" in line]
    assert len(lines) == 2
    assert only().status == "finished"


def test_other_processes_record_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several processes the first alone records."""
    monkeypatch.setattr("trackers_frameworks.keras._process", lambda: 1)
    model = classifier()
    fit(model, own.TrackersCallback())
    model.evaluate(FEATURES, TARGET, verbose=0, callbacks=[own.TrackersCallback()])
    assert directories() == []
