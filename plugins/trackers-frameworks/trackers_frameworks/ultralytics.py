"""Ultralytics: callbacks for a YOLO model's training.

    model = YOLO("yolo11n.pt")
    TrackersCallback("json,mlflow", project="coco").add_to(model)
    model.train(data="coco8.yaml", epochs=2)

The step is the number of finished epochs; names are Ultralytics's (``train/box_loss``, ``metrics/mAP50(B)``,
``val/cls_loss``, ``lr/pg0``). Its arguments are the configuration, its plots images, and the last validation, of the
best weights, results (``final/metrics/…``). Each training is a run, unless the script has one open. ``resume=True``
continues the run of the interrupted training from the epoch where it goes on: the run's id lies in its directory, as
``trackers_run.json``. A run that is asked to stop ends with its epoch, as by early stopping (``trainer.stop``); one
that is asked to save has its model then as an artifact.

Ultralytics trains on several GPUs in processes that it gives no callbacks to: there this records nothing.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trackers.errors import UsageError
from trackers.frameworks.shared import guarded, model_sizes
from trackers.media import Image
from trackers.metrics.roles import direction
from trackers.support import confined
from trackers_frameworks.fits import ENDED_EARLY, Fits, TracksFits

EVENTS = (
    "on_pretrain_routine_end", "on_train_batch_end", "on_train_epoch_end", "on_fit_epoch_end", "on_train_end",
    "teardown",
)  # fmt: skip
REMEMBERED = "trackers_run.json"
_REMEMBERED_BYTES = 4096


class TrackersCallback(TracksFits):
    """Records each epoch of a training.

    Args:
        trackers, run, init: as for :class:`trackers.frameworks.shared.RunHandle`. The name is by default that of the
            training's directory.
        plots: record Ultralytics's plots (batches, curves, confusion matrix) as images.
        log_model: keep the best weights as an artifact (``best.pt``) when training has ended.
    """

    def __init__(
        self, trackers: Any = None, *, run: Any = None, plots: bool = True, log_model: bool = False, **init: Any
    ) -> None:
        self._handle = Fits(trackers, run=run, **init)
        self._plots, self._log_model = plots, log_model
        self._shown: dict[str, float] = {}
        self._epoch = 0
        self._active = self._ended = False
        self._saves = self._stops = False

    def add_to(self, model: Any) -> TrackersCallback:
        """Have a model, or a trainer, call this. Adding it twice is adding it once.

        Raises:
            UsageError: something that takes no callbacks.
        """
        if not callable(getattr(model, "add_callback", None)):
            raise UsageError(f"TrackersCallback.add_to: {type(model).__name__} is neither a model nor a trainer")
        for event in EVENTS:
            method = getattr(self, event)
            if method not in (getattr(model, "callbacks", None) or {}).get(event, ()):
                model.add_callback(event, method)
        return self

    @guarded
    def on_pretrain_routine_end(self, trainer: Any) -> None:
        """Model and data are there; training begins."""
        named: dict[str, Any] = {"name": Path(trainer.save_dir).name}
        if trainer.args.resume:
            named |= _remembered(Path(trainer.save_dir))
            if "id" in named:
                named |= {"resume": "allow", "step": int(trainer.start_epoch)}
        kinds = (int, float, str, list, tuple, Mapping)
        config = {name: value for name, value in vars(trainer.args).items() if isinstance(value, kinds)}
        self._handle.begin({**config, **model_sizes(trainer.model), "save_dir": str(trainer.save_dir)}, **named)
        self._active, self._ended, self._epoch, self._shown = True, False, int(trainer.start_epoch), {}
        self._saves = self._stops = False
        _remember(Path(trainer.save_dir), self._handle.known)

    @guarded
    def on_train_batch_end(self, trainer: Any) -> None:
        """A batch is done: what the run is asked for is done at the epoch's end."""
        if self._active:
            asked = self._handle.asked()
            self._saves, self._stops = self._saves or asked.save, self._stops or asked.stop
            if self._stops:
                trainer.stop = True

    @guarded
    def on_train_epoch_end(self, trainer: Any) -> None:
        """An epoch's batches are done: its losses and learning rates."""
        if self._active:
            self._epoch = int(trainer.epoch) + 1
            losses = trainer.label_loss_items(trainer.tloss, prefix="train")
            self._handle.log({**losses, **trainer.lr}, self._epoch)

    @guarded
    def on_fit_epoch_end(self, trainer: Any) -> None:
        """An epoch's validation is done; after the last one that of the best weights, whose values are results."""
        if not self._active:
            return
        metrics = dict(trainer.metrics or {})
        if int(trainer.epoch) + 1 > self._epoch:
            self._handle.results(metrics)
        else:
            ways = {name: aim for name in metrics if (aim := "max" if "mAP" in name else direction(name)) is not None}
            if self._epoch == int(trainer.start_epoch) + 1:
                self._handle.define(ways, self._epoch, lambda name: ways[name] == "max")
            self._handle.log(metrics, self._epoch)
        self._show(trainer)
        if self._saves:
            self._saves = False
            if not Path(trainer.last).exists():
                trainer.save_model()
            self._handle.run.log_artifact(str(trainer.last), name="checkpoint.pt", type="model")

    @guarded
    def on_train_end(self, trainer: Any) -> None:
        """Training has ended well."""
        if not self._active:
            return
        self._ended = True
        fitness = getattr(trainer, "best_fitness", None)
        best = getattr(getattr(trainer, "stopper", None), "best_epoch", None)
        self._handle.results({"best_fitness": None if fitness is None else float(fitness), "best_epoch": best or None})
        self._show(trainer)
        if self._log_model and Path(trainer.best).exists():
            name = f"{self._handle.prefix or ''}best.pt".replace("/", "-")
            self._handle.run.log_artifact(str(trainer.best), name=name, type="model", aliases=["best"])

    @guarded
    def teardown(self, trainer: Any) -> None:
        """Training is over, well or not (Ultralytics calls this where training raises, too)."""
        if not self._active:
            return
        self._active = False
        if self._ended:
            self._handle.end()
        else:
            self._handle.end_failed(sys.exc_info()[1] or ENDED_EARLY)

    def _show(self, trainer: Any) -> None:
        if not self._plots:
            return
        images: dict[str, Any] = {}
        for plots in (trainer.plots, getattr(getattr(trainer, "validator", None), "plots", None) or {}):
            for path, plot in list(plots.items()):
                if Path(path).is_file() and self._shown.get(str(path)) != plot["timestamp"]:
                    self._shown[str(path)] = plot["timestamp"]
                    images[f"plots/{Path(path).stem}"] = Image(str(path))
        if images:
            self._handle.log(images, self._epoch)


def _remember(folder: Path, run: Any) -> None:
    """Have the training's directory name its run."""
    if run is not None and run.id and not run.disabled:
        with contextlib.suppress(OSError):
            content = json.dumps({"id": run.id, "project": run.project}).encode()
            confined.write_whole(folder / REMEMBERED, content, root=folder)


def _remembered(folder: Path) -> dict[str, str]:
    """The run that a training's directory names; nothing where it names none that could be one."""
    try:
        content = json.loads(confined.read(folder / REMEMBERED, root=folder, most=_REMEMBERED_BYTES))
    except (OSError, ValueError):
        return {}
    names = {name: content.get(name) for name in ("id", "project")} if isinstance(content, dict) else {}
    return {name: value for name, value in names.items() if isinstance(value, str) and value}
