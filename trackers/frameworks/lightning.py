"""``TrackersLogger``: a logger for Lightning's trainer and for Fabric, under either of its names.

    from trackers.frameworks.lightning import TrackersLogger

    trainer = lightning.Trainer(logger=TrackersLogger("wandb,mlflow", project="digits", log_model="all"))

It is a subclass of the ``Logger`` of ``lightning.pytorch`` and of ``pytorch_lightning``, whichever of them is loaded
when this module is imported; of the one that is installed if neither is.
"""

from __future__ import annotations

import importlib
import os
import sys
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from trackers.errors import MissingPackage
from trackers.frameworks.shared import RunHandle, guarded, model_sizes
from trackers.media import Audio, Image, Table, Video

PACKAGES = ("lightning.pytorch", "pytorch_lightning")
LOG_MODEL = (False, True, "all")


def _base() -> Any:
    """A class that is Lightning's logger under each name that is loaded."""
    names = [name for name in PACKAGES if name in sys.modules]
    for name in PACKAGES if not names else ():
        if importlib.util.find_spec(name.partition(".")[0]) is not None:
            names = [name]
            break
    if not names:
        raise MissingPackage("trackers.frameworks.lightning needs Lightning: pip install lightning")
    loggers = [importlib.import_module(f"{name}.loggers.logger") for name in names]
    callbacks = tuple(importlib.import_module(name).Callback for name in names)
    logger = types.new_class("LightningLogger", tuple(module.Logger for module in loggers))
    return logger, loggers[0], types.new_class("LightningCallback", callbacks)


_Logger: Any
_Logger, _module, _Callback = _base()


def _main_rank() -> bool:
    from lightning_utilities.core.rank_zero import rank_zero_only

    return not getattr(rank_zero_only, "rank", 0)


class _Stopping(_Callback):  # type: ignore[misc, valid-type]
    """Stops a trainer, or has it save, if the run of its logger is asked to."""

    def __init__(self, handle: RunHandle) -> None:
        self._handle = handle

    @guarded
    def on_train_start(self, *_: Any) -> None:
        """A fit begins (Lightning calls this)."""
        self._handle.ask_anew()

    @guarded
    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        """A batch has ended (Lightning calls this)."""
        asked = self._handle.asked()
        if asked.save:
            folder = getattr(trainer.checkpoint_callback, "dirpath", None) or trainer.default_root_dir
            trainer.save_checkpoint(os.path.join(folder, f"asked-step={trainer.global_step}.ckpt"))
        if asked.stop:
            trainer.should_stop = True


class Checkpoint(NamedTuple):
    """A checkpoint that a callback has written."""

    time: float
    path: str
    score: Any
    best: bool


class TrackersLogger(_Logger):  # type: ignore[misc]
    """Logs a Lightning training to a run; on the main rank, the others do nothing.

    The step is the one that Lightning passes, its global step; ``epoch`` is recorded as Lightning passes it. The run
    goes on after ``fit``, so that ``test`` logs to it as well; it ends with the process, when another logger's run
    begins, or as failed when training fails. A run that the script began by ``trackers.init`` is used, and left open.

    Args:
        trackers, project, name, config, **init: as for ``trackers.init``.
        run: the run to log to; default the current one, if any.
        version: the run's id. A run of that id is continued; with ``step=`` it is taken back to that step first, and
            what it has after it is replaced.
        save_dir: where Lightning puts checkpoints (``save_dir/project/id/checkpoints``); default its
            ``default_root_dir``. Runs lie where ``dir=`` says.
        log_model: "all" keeps each checkpoint as an artifact when it is written, True the best and the last when
            training ends or fails, False none. Aliases are "best" and "latest".
        checkpoint_name: the artifacts' name; default "model-<run id>".
        prefix: put before each metric's name, with "-" between them.

    Raises:
        ValueError: a log_model that isn't known.
        UsageError, NotFound: as ``trackers.init``, when training begins.
    """

    LOGGER_JOIN_CHAR = "-"

    def __init__(
        self, trackers: str | Sequence[str] | None = None, *, run: Any = None, project: str | None = None,
        name: str | None = None, version: str | None = None, config: Any = None,
        save_dir: str | os.PathLike[str] | None = None, log_model: bool | str = False,
        checkpoint_name: str | None = None, prefix: str = "", **init: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        if log_model not in LOG_MODEL:
            raise ValueError(f"TrackersLogger: log_model={log_model!r}: known are False, True and 'all'")
        init.setdefault("id", version)
        self._handle = RunHandle(trackers, run=run, project=project, name=name, config=config, **init)
        self._save_dir = None if save_dir is None else os.fspath(save_dir)
        self._log_model, self._checkpoint_name, self._prefix = log_model, checkpoint_name, prefix
        self._waiting: dict[int, Any] = {}
        self._logged_checkpoints: dict[str, float] = {}
        self._step: int | None = None
        self._graph: tuple[str, int] | None = None

    @property
    @_module.rank_zero_experiment  # type: ignore[untyped-decorator]
    def experiment(self) -> Any:
        """The ``trackers.Run``; on other ranks than the main one an object whose methods do nothing.

        A run that has ended stays the one that is returned here, until something is logged or trained again.

        Raises:
            UsageError, NotFound: as ``trackers.init``, where this begins the run.
        """
        known = self._handle.known
        return known if known is not None and known.finished else self._handle.run

    @property
    def save_dir(self) -> str | None:
        """Where Lightning puts what it saves; None: its ``default_root_dir``."""
        return self._save_dir

    @property
    def name(self) -> str | None:
        """The run's project."""
        run = self._handle.known
        project = self._handle.argument("project") if run is None else run.project
        return None if project is None else str(project)

    @property
    def version(self) -> str | None:
        """The run's id; None while neither an id was given nor the run begun."""
        return self._handle.id

    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Record values at Lightning's step. Without a step: at the last one, or counted where there never was one."""
        if _main_rank():
            self._log(metrics, step)

    def log_hyperparams(self, params: Any, metrics: Mapping[str, Any] | None = None, **more: Any) -> None:
        """Add to the run's configuration.

        Args:
            params: a mapping, a namespace or a dataclass.
            metrics: results that belong to these hyperparameters, recorded as ``final/<name>``.
        """
        if _main_rank():
            self._log_hyperparams(params, metrics, more)

    def log_graph(self, model: Any, input_array: Any = None) -> None:
        """Record the model's layers as the text ``model/graph``, and how many parameters it has."""
        self._attach(model)
        if _main_rank():
            self._log_graph(model)

    @guarded
    def watch(self, model: Any, log: str | None = "gradients", log_freq: int = 100, log_graph: bool = True) -> None:
        """As ``run.watch``."""
        if _main_rank():
            self._handle.run.watch(model, log=log, log_freq=log_freq, log_graph=log_graph)

    def log_table(
        self,
        key: str,
        columns: list[str] | None = None,
        data: list[list[Any]] | None = None,
        dataframe: Any = None,
        step: int | None = None,
    ) -> None:
        """Log a table, given by columns and rows or as a data frame."""
        if _main_rank():
            self._log_media(key, lambda: Table(columns=columns, data=data, dataframe=dataframe), step)

    def log_text(
        self,
        key: str,
        columns: list[str] | None = None,
        data: list[list[str]] | None = None,
        dataframe: Any = None,
        step: int | None = None,
    ) -> None:
        """Log texts as a table."""
        self.log_table(key, columns, data, dataframe, step)

    def log_image(self, key: str, images: list[Any], step: int | None = None, **kwargs: Any) -> None:
        """Log images: tensors, arrays, Pillow images or paths.

        Args:
            kwargs: lists, an element for each image: caption, masks, boxes.

        Raises:
            TypeError: images that are no list. ValueError: a list of another length.
        """
        self._log_list(key, "images", images, Image, step, kwargs)

    def log_audio(self, key: str, audios: list[Any], step: int | None = None, **kwargs: Any) -> None:
        """Log sounds: arrays or paths. kwargs: lists, an element for each: caption, sample_rate."""
        self._log_list(key, "audios", audios, Audio, step, kwargs)

    def log_video(self, key: str, videos: list[Any], step: int | None = None, **kwargs: Any) -> None:
        """Log videos: arrays or paths. kwargs: lists, an element for each: caption, fps, format."""
        self._log_list(key, "videos", videos, Video, step, kwargs)

    def after_save_checkpoint(self, checkpoint_callback: Any) -> None:
        """Keep the new checkpoints as artifacts, now or when training ends (Lightning calls this)."""
        if self._log_model is False or not _main_rank():
            return
        if self._log_model == "all" or getattr(checkpoint_callback, "save_top_k", None) == -1:
            self._log_checkpoints(checkpoint_callback)
        else:
            self._waiting[id(checkpoint_callback)] = checkpoint_callback

    def save(self) -> None:
        """Begin the run, if it isn't yet: so a wrong option is an error before the first step."""
        if _main_rank():
            _ = self._handle.run

    def finalize(self, status: str) -> None:
        """Training has ended: "success", "failed", "aborted", or "finished" where SLURM takes the job back."""
        if _main_rank() and self._handle.begun:
            self._finalize(status)

    @guarded
    def _log(self, metrics: Mapping[str, Any], step: int | None) -> None:
        if self._prefix:
            metrics = {f"{self._prefix}{self.LOGGER_JOIN_CHAR}{name}": value for name, value in metrics.items()}
        self._step = self._step if step is None else step
        self._handle.run.log(metrics, step=self._step)

    @guarded
    def _log_hyperparams(self, params: Any, metrics: Mapping[str, Any] | None, more: Mapping[str, Any]) -> None:
        self._handle.run.log_hyperparams(params, **more)
        if metrics:
            self._handle.run.log({f"final/{name}": value for name, value in metrics.items()}, step=self._step)

    @guarded
    def _log_graph(self, model: Any) -> None:
        run = self._handle.run
        if self._graph == (run.id, id(model)):  # Lightning calls this before each fit, validate and test
            return
        self._graph = run.id, id(model)
        run.log({"model/graph": str(model)}, step=self._step or 0, commit=False)
        run.config.update(model_sizes(model))

    @guarded
    def _attach(self, model: Any) -> None:
        """Have the trainer ask, after each batch, what the run is asked to do. Lightning calls log_graph before a fit,
        on every process, and gives a logger no other way to its trainer."""
        trainer = getattr(model, "_trainer", None)
        callbacks = getattr(trainer, "callbacks", None)
        if isinstance(callbacks, list) and not any(isinstance(each, _Stopping) for each in callbacks):
            callbacks.append(_Stopping(self._handle))

    @guarded
    def _log_media(self, key: str, made: Any, step: int | None) -> None:
        self._log({key: made()}, step)

    def _log_list(self, key: str, kind: str, values: Any, make: Any, step: int | None, kwargs: dict[str, Any]) -> None:
        if not isinstance(values, list):
            raise TypeError(f"log_{kind[:-1]}: {kind} must be a list, not {type(values).__name__}")
        for name, each in kwargs.items():
            if len(each) != len(values):
                raise ValueError(f"log_{kind[:-1]}: {len(values)} {kind}, but {len(each)} elements of {name}")
        if not _main_rank():
            return
        each = [{name: kwargs[name][number] for name in kwargs} for number in range(len(values))]
        self._log_media(key, lambda: [make(value, **more) for value, more in zip(values, each, strict=True)], step)

    @guarded
    def _finalize(self, status: str) -> None:
        waiting, self._waiting = self._waiting, {}
        for callback in waiting.values():
            self._log_checkpoints(callback)
        if status in ("failed", "aborted"):
            self._handle.fail()
        elif status == "finished":  # SLURM sends the job back to its queue
            self._handle.run.mark_preempting()
        else:
            self._handle.rest()

    @guarded
    def _log_checkpoints(self, callback: Any) -> None:
        unsaved = [
            checkpoint
            for checkpoint in _checkpoints(callback)
            if self._logged_checkpoints.get(checkpoint.path) != checkpoint.time
        ]
        run = self._handle.run
        for number, checkpoint in enumerate(unsaved, 1):
            aliases = [*(["latest"] if number == len(unsaved) else []), *(["best"] if checkpoint.best else [])]
            metadata = {
                "score": None if checkpoint.score is None else float(checkpoint.score),
                "original_filename": Path(checkpoint.path).name,
                "monitor": getattr(callback, "monitor", None),
                "mode": getattr(callback, "mode", None),
                "save_top_k": getattr(callback, "save_top_k", None),
            }
            name = self._checkpoint_name or f"model-{run.id}"
            run.log_artifact(checkpoint.path, name=name, type="model", aliases=aliases, metadata=metadata)
            self._logged_checkpoints[checkpoint.path] = checkpoint.time

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_waiting": {}}  # proxies of the trainer's callbacks, which aren't pickled


def _checkpoints(callback: Any) -> list[Checkpoint]:
    """What a callback has on disk now, the oldest first."""
    best = str(getattr(callback, "best_model_path", "") or "")
    scores = dict(getattr(callback, "best_k_models", None) or {})
    if best:
        scores.setdefault(best, getattr(callback, "best_model_score", None))
    last = str(getattr(callback, "last_model_path", "") or "")
    if last:
        scores.setdefault(last, getattr(callback, "current_score", None))
    return sorted(
        (Checkpoint(os.stat(path).st_mtime, path, score, path == best) for path, score in scores.items()
         if os.path.exists(path)),
        key=lambda checkpoint: (checkpoint.time, checkpoint.path),
    )  # fmt: skip
