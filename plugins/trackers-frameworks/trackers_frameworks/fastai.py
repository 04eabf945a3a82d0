"""fastai: a callback for a ``Learner``.

    learn = vision_learner(dls, resnet18, metrics=accuracy, cbs=TrackersCallback("json", project="pets"))
    learn.fine_tune(2)

The step is the number of finished batches of training; all fits of a learner go on in one run, so ``fine_tune`` is one
run and not two. At each batch ``train_loss`` (smoothed, as fastai prints it), ``raw_loss``, ``epoch`` and each group's
learning rate and momentum (``lr_0``, ``mom_0``) are recorded, under the names of fastai's other callbacks; at the end
of an epoch its ``valid_loss`` and metrics. ``final/`` has their best values. What ``lr_find``, ``validate`` and
``get_preds`` run isn't recorded. Of several processes the first alone records.

The attribute ``run`` of a callback is fastai's own, whether it is to be called: the run is ``tracked``.
"""

from __future__ import annotations

import weakref
from typing import Any

from fastai.callback.core import Callback
from fastai.learner import Recorder, save_model
from fastai.torch_core import rank_distrib

from trackers.frameworks.shared import guarded, model_sizes
from trackers.metrics.roles import direction
from trackers_frameworks.fits import Fits, HoldsFits

NO_METRICS = ("epoch", "train_loss", "time")
"""What fastai's recorder has in an epoch's row besides: the series have it already."""


class TrackersCallback(HoldsFits, Callback):  # type: ignore[misc]
    """Records each batch and each epoch of a learner.

    Args:
        trackers, run, init: as for :class:`trackers.frameworks.shared.RunHandle`.
        log_every: record every so many batches.
        log_model: keep the model as an artifact after each fit: what fastai's ``SaveModelCallback`` saved last, else
            the weights as they are then (``model.pth``).

    The run that this begins ends with the process, when another logger's run begins, or with ``finish``.
    """

    order = Recorder.order + 1
    remove_on_fetch = True

    def __init__(
        self, trackers: Any = None, *, run: Any = None, log_every: int = 1, log_model: bool = False, **init: Any
    ) -> None:
        Callback.__init__(self)
        self._handle = Fits(trackers, run=run, **init)
        self._every, self._log_model = max(int(log_every), 1), log_model
        self._learner: weakref.ref[Any] | None = None
        self._awaited, self._active, self._well = False, False, True
        self._before = self._last = 0

    @property
    def tracked(self) -> Any:
        """The ``trackers.Run`` of the current fit, or of the last one; None before the first."""
        return self._handle.known

    @guarded
    def before_fit(self) -> None:
        """A fit begins, or what isn't recorded: a validation, predictions, the search for a learning rate."""
        self._active = False
        others = hasattr(self.learn, "lr_finder") or hasattr(self.learn, "gather_preds")
        self._awaited = not others and rank_distrib() == 0

    @guarded
    def before_train(self) -> None:
        """An epoch of training begins; with a fit's first one its run."""
        if not self._awaited:
            return
        self._awaited = False
        known = self._learner() if self._learner is not None else None
        if known is not self.learn or not self._handle.is_open:
            if self._well:  # the fits before this one ended well, and their run with them
                self._handle.finish()
            self._handle.begin(settings(self.learn))
            continued = self._handle.argument("id") is not None and not self._handle.known.disabled
            self._last = max(int(self._handle.known.step), 0) if continued else 0
            self._learner = weakref.ref(self.learn)
        self._before = self._last
        self._active, self._well = True, False

    @guarded
    def after_batch(self) -> None:
        """A batch has ended: of training, or of validation, which is part of its epoch."""
        if not self._active or not self.learn.training:
            return
        done = int(self.learn.train_iter)
        self._last = self._before + done
        if done % self._every:
            return
        values: dict[str, Any] = {"epoch": self.learn.epoch + (self.learn.iter + 1) / max(self.learn.n_iter, 1)}
        if hasattr(self.learn, "smooth_loss"):
            values["train_loss"] = self.learn.smooth_loss
        values["raw_loss"] = self.learn.loss.detach()
        for number, group in enumerate(self.learn.opt.hypers):
            values |= {f"{name}_{number}": group[name] for name in ("lr", "mom") if name in group}
        self._handle.log(values, self._last)

    @guarded
    def after_epoch(self) -> None:
        """An epoch has ended, with its validation."""
        if not self._active:
            return
        recorder = self.learn.recorder
        row = dict(zip(recorder.metric_names, recorder.log, strict=False))
        values = {name: value for name, value in row.items() if name not in NO_METRICS and value is not None}
        ways = {name: aim for name in values if (aim := direction(name)) is not None}
        if not self.learn.epoch:
            self._handle.define(ways, self._last, lambda name: ways[name] == "max")
        self._handle.log(values, self._last)

    @guarded
    def after_fit(self) -> None:
        """A fit has ended."""
        if not self._active:
            return
        self._active, self._well = False, True
        self._handle.settle()
        if self._log_model:
            self._keep()
        self._handle.rest()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_learner": None, "_active": False, "_well": True}

    def _keep(self) -> None:
        saved = getattr(getattr(self.learn, "save_model", None), "last_saved_path", None)
        if saved is not None:
            name = f"{self._handle.prefix or ''}{saved.name}".replace("/", "-")
            self._handle.run.log_artifact(str(saved), name=name, type="model")
        else:
            self._handle.keep(
                "model.pth", lambda path: save_model(path, self.learn.model, None, with_opt=False), framework="fastai"
            )


def settings(learn: Any) -> dict[str, Any]:
    """What a learner trains, and with what."""
    made = getattr(learn.opt_func, "func", learn.opt_func)  # it may be a partial
    values: dict[str, Any] = {
        "model": type(learn.model).__name__,
        **model_sizes(learn.model),
        "loss_func": getattr(learn.loss_func, "__name__", type(learn.loss_func).__name__),
        "opt_func": str(getattr(made, "__name__", type(made).__name__)),
        "n_epoch": learn.n_epoch,
        "batch_size": getattr(learn.dls, "bs", None),
        "batches_per_epoch": len(learn.dls.train),
        "callbacks": [type(callback).__name__ for callback in learn.cbs],
    }
    opt = getattr(learn, "opt", None)
    if opt is not None:
        values["frozen_idx"] = opt.frozen_idx
        group = {name: value for name, value in opt.hypers[-1].items() if isinstance(value, (bool, int, float))}
        values["optimizer"] = group
    return {name: value for name, value in values.items() if value is not None}
