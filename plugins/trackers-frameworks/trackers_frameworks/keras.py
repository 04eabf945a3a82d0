"""Keras 3: a callback for ``fit`` and ``evaluate``, with any backend.

    model.fit(features, target, validation_data=test, epochs=2, callbacks=[TrackersCallback("json")])

The step is the number of finished optimizer steps (``optimizer.iterations``), so that a second ``fit`` of a model goes
on where the first ended. At the end of each epoch its metrics are recorded under Keras's names (``loss``,
``val_loss``), with ``epoch`` and ``learning_rate``; batches' as ``batch_loss``, those of ``evaluate`` as
``evaluation_loss``, as Keras's own TensorBoard callback calls them. ``final/`` has each metric's best value and the
best epoch. Of several processes the first alone records.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping
from typing import Any

import keras

from trackers.frameworks.shared import Asked, guarded
from trackers_frameworks.fits import Fits, TracksFits


class TrackersCallback(TracksFits, keras.callbacks.Callback):  # type: ignore[misc]
    """Records each epoch, and batches where asked to.

    Args:
        trackers, run, init: as for :class:`trackers.frameworks.shared.RunHandle`.
        log_every: record every so many batches, too; 0: epochs alone.
        log_model: keep the model as an artifact (``model.keras``) after training.
    """

    def __init__(
        self, trackers: Any = None, *, run: Any = None, log_every: int = 0, log_model: bool = False, **init: Any
    ) -> None:
        keras.callbacks.Callback.__init__(self)
        self._handle = Fits(trackers, run=run, **init)
        self._every, self._log_model = log_every, log_model
        self._training = False
        self._best: tuple[float, int] | None = None

    @guarded
    def on_train_begin(self, logs: Any = None) -> None:
        """``fit`` begins."""
        if _process():
            return
        self._handle.begin(settings(self.model, self.params or {}))
        self._training, self._best = True, None

    @guarded
    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """A batch has ended. Training stops after it, or the model is kept, if the run is asked to."""
        if self._training:
            self._do_asked()
        if self._every and self._training and self._step() % self._every == 0:
            self._handle.log({f"batch_{name}": value for name, value in (logs or {}).items()}, self._step())

    @guarded
    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """An epoch has ended, with its validation."""
        if not self._training:
            return
        values: dict[str, Any] = {**(logs or {}), "epoch": epoch}
        rate = getattr(self.model.optimizer, "learning_rate", None)
        with contextlib.suppress(TypeError, ValueError):
            values.setdefault("learning_rate", float(rate))  # type: ignore[arg-type]
        directions = {name: direction for name in logs or {} if (direction := _direction(self.model, name))}
        if self._best is None:
            self._handle.define(directions, self._step(), lambda name: directions[name] == "up")
        score = values.get("val_loss", values.get("loss"))
        if score is not None and (self._best is None or float(score) < self._best[0]):
            self._best = (float(score), epoch)
        self._handle.log(values, self._step())

    @guarded
    def on_train_end(self, logs: Any = None) -> None:
        """``fit`` has ended."""
        if not self._training:
            return
        self._training = False
        try:
            self._handle.results({"best_epoch": self._best[1] if self._best else None})
            if self._log_model:
                self._handle.keep("model.keras", self.model.save, framework="keras")
        finally:
            self._handle.end()

    @guarded
    def on_test_end(self, logs: Any = None) -> None:
        """``evaluate`` has ended; validation inside ``fit`` is part of its epoch."""
        if self._training or _process():
            return
        values = {f"evaluation_{name}": value for name, value in (logs or {}).items()}
        if not self._handle.is_open:
            self._handle.begin(settings(self.model, self.params or {}))
        self._handle.log(values, self._step())
        self._handle.results(values)
        self._handle.end()

    def _do_asked(self) -> None:
        asked = self._handle.asked() if keras.backend.backend() == "torch" or not _others() else Asked()
        if asked.save:
            self._handle.keep("checkpoint.keras", self.model.save, framework="keras", step=self._step())
        if asked.stop:
            self.model.stop_training = True

    def _step(self) -> int:
        iterations = getattr(getattr(self.model, "optimizer", None), "iterations", 0)
        return int(keras.ops.convert_to_numpy(iterations))


def settings(model: Any, params: Mapping[str, Any]) -> dict[str, Any]:
    """A model's name and size, what it was compiled with, and the parameters of ``fit``."""
    values: dict[str, Any] = {name: value for name, value in params.items() if value is not None}
    values |= {"model": model.name, "backend": keras.backend.backend()}
    if model.built:
        values["parameters"] = int(model.count_params())
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None:
        values["optimizer"] = optimizer.get_config()
    compiled = model.get_compile_config() or {}
    values |= {name: compiled[name] for name in ("loss", "metrics") if compiled.get(name)}
    return values


def _direction(model: Any, name: str) -> str | None:
    """Whether a metric is to go "up" or "down", as Keras's early stopping finds it; None where Keras doesn't know."""
    plain = name.removeprefix("val_")
    if plain == "loss" or plain.endswith("_loss"):
        return "down"
    for metric in model.metrics:
        for part in getattr(metric, "metrics", None) or [metric]:
            if part.name == plain:
                direction = getattr(part, "_direction", None)
                return None if direction is None else str(direction)
    return None


def _others() -> int:
    """How many processes train beside this one with JAX, whose processes don't agree when to stop."""
    jax = sys.modules.get("jax")
    return int(jax.process_count()) - 1 if keras.backend.backend() == "jax" and jax is not None else 0


def _process() -> int:
    """The number of this process among those that train together."""
    torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
    backend = keras.backend.backend()
    if backend == "torch" and torch is not None and torch.distributed.is_available():
        return int(torch.distributed.get_rank()) if torch.distributed.is_initialized() else 0
    if backend == "jax" and jax is not None:
        return int(jax.process_index())
    return 0
