"""MosaicML Composer: a logger for its ``Trainer``.

    trainer = Trainer(model, loader, max_duration="2ep", loggers=TrackersLogger("json,mlflow", project="llm"))
    trainer.fit()

The step is the number of finished batches: the first batch's loss lies at 1, where Composer's own loggers have it at 0,
since a checkpoint after that batch has it. Names are Composer's (``loss/train/total``, ``metrics/eval/…``); its
hyperparameters are the run's configuration. A checkpoint remembers its run: a trainer that loads it continues that run,
and what the run has after the checkpoint's batch is replaced. The run begins with training or evaluation, not with the
trainer. Of several ranks the first alone records.
"""

from __future__ import annotations

import atexit
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from composer.loggers.logger_destination import LoggerDestination
from composer.utils import dist

from trackers.frameworks.shared import RunHandle, guarded, model_sizes
from trackers.media import Image, Table
from trackers.metrics.roles import direction
from trackers.support.interruption import suppress
from trackers_frameworks.fits import ENDED_EARLY

SYMLINK = ".symlink"
"""Suffix of files in which Composer names its newest checkpoint; that is the one with the alias "latest"."""


class TrackersLogger(LoggerDestination):  # type: ignore[misc]
    """Records what Composer logs.

    Args:
        trackers, run, project, name, config, init: as for :class:`trackers.frameworks.shared.RunHandle`. The name is by
            default the trainer's ``run_name``.
        log_model: keep what Composer uploads as artifacts: the checkpoints of its ``CheckpointSaver``, if that has
            ``save_folder`` or ``remote_file_name``.

    The run that this begins ends with ``trainer.close()``, or with the process.
    """

    def __init__(
        self,
        trackers: str | Sequence[str] | None = None,
        *,
        run: Any = None,
        project: str | None = None,
        name: str | None = None,
        config: Any = None,
        log_model: bool = False,
        **init: Any,
    ) -> None:
        self._handle = RunHandle(trackers, run=run, project=project, name=name, config=config, **init)
        self._log_model = log_model
        self._enabled = dist.get_global_rank() == 0
        self._waiting: dict[str, Any] = {}
        self._defined: set[str] = set()
        self._loaded: dict[str, Any] = {}
        self._run_name: str | None = None
        self._batch: int | None = None
        self._fitting = self._exiting = False

    @property
    def run(self) -> Any:
        """The ``trackers.Run``; None before training, and on other ranks than the first."""
        return self._handle.known

    def init(self, state: Any, logger: Any) -> None:
        """The trainer has been made (Composer calls this, and the other methods)."""
        self._run_name = state.run_name
        atexit.register(self._exit)

    @guarded
    def fit_start(self, state: Any, logger: Any) -> None:
        """Training begins: begin the run, or continue that of the checkpoint."""
        if self._enabled:
            batch = int(state.timestamp.batch.value)
            if self._handle.known is None and self._loaded and self._handle.argument("id") is None:
                self._handle.suggest(**self._loaded, resume="allow", step=batch)
            elif self._handle.known is not None and batch < self._handle.known.step:
                self._handle.rewind(batch)
            self._begin().config.update(model_sizes(state.model))
            self._fitting = True

    def batch_start(self, state: Any, logger: Any) -> None:
        """A batch begins: until it has ended Composer's count lacks it."""
        self._batch = int(state.timestamp.batch.value)

    def batch_end(self, state: Any, logger: Any) -> None:
        """A batch has ended, and is counted."""
        self._batch = None

    @guarded
    def eval_start(self, state: Any, logger: Any) -> None:
        """Evaluation begins."""
        if self._enabled:
            self._begin()

    @guarded
    def fit_end(self, state: Any, logger: Any) -> None:
        """Training has ended."""
        if self._enabled:
            self._fitting = False
            counts = {name: getattr(state.timestamp, name).value for name in ("epoch", "batch", "sample", "token")}
            self._begin().summary.update({f"final/{name}": value for name, value in counts.items()})

    @guarded
    def log_hyperparameters(self, hyperparameters: Mapping[str, Any]) -> None:
        """Add to the run's configuration; what comes before the run begins waits for it."""
        if self._enabled:
            self._waiting.update(hyperparameters)
            if self._handle.known is not None:
                self._begin()

    @guarded
    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Record values at a batch."""
        if not self._enabled:
            return
        run = self._begin()
        for name in metrics.keys() - self._defined:
            self._defined.add(name)
            aim = direction(name) if name.startswith(("metrics/", "loss/")) else None
            if aim is not None:
                run.define_metric(name, summary="best", goal="maximize" if aim == "max" else "minimize")
        run.log(dict(metrics), step=self._step(step))

    @guarded
    def log_traces(self, traces: Mapping[str, Any]) -> None:
        """Record what algorithms did, as texts."""
        if self._enabled:
            run = self._begin()
            run.log({name: str(value) for name, value in traces.items()}, step=max(int(run.step), 0))

    @guarded
    def log_table(
        self, columns: list[str], rows: list[list[Any]], name: str = "Table", step: int | None = None
    ) -> None:
        """Record a table."""
        if self._enabled:
            table = Table(columns=list(columns), data=[list(row) for row in rows])
            self._begin().log({name: table}, step=self._step(step))

    @guarded
    def log_images(
        self,
        images: Any,
        name: str = "Images",
        channels_last: bool = False,
        step: int | None = None,
        masks: Mapping[str, Any] | None = None,
        mask_class_labels: Mapping[int, str] | None = None,
        use_table: bool = True,
    ) -> None:
        """Record images, with masks: arrays or tensors of (C, H, W), (H, W, C) or (H, W), one or several."""
        if not self._enabled:
            return
        each = list(images) if isinstance(images, Sequence) or images.ndim > 3 else [images]
        pictures = []
        for number, image in enumerate(each):
            more: dict[str, Any] = {}
            if masks:
                labels = dict(mask_class_labels or {})
                more["masks"] = {
                    key: {"mask_data": _array(_nth(mask, number, each, images)), "class_labels": labels}
                    for key, mask in masks.items()
                }
            pictures.append(Image(_pixels(image, channels_last), **more))
        self._begin().log({name: pictures}, step=self._step(step))

    @guarded
    def upload_file(self, state: Any, remote_file_name: str, file_path: Any, *, overwrite: bool) -> None:
        """Keep a file as an artifact, now: Composer removes its own when it makes the next one."""
        if not self._enabled or not self._log_model or remote_file_name.endswith(SYMLINK):
            return
        stamp = state.timestamp
        aliases = ["latest", f"ep{stamp.epoch.value}-ba{stamp.batch.value}"]
        name = remote_file_name.replace("/", "-")
        kind = "model" if Path(remote_file_name).suffix == ".pt" else "file"
        metadata = {"file": remote_file_name, "epoch": stamp.epoch.value, "batch": stamp.batch.value}
        self._begin().log_artifact(str(file_path), name=name, type=kind, aliases=aliases, metadata=metadata)

    def can_upload_files(self) -> bool:
        """Composer asks this before it makes files to upload."""
        return bool(self._log_model)

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint remembers: the run."""
        run = self._handle.known
        return {} if run is None or not run.id else {"id": run.id, "project": run.project}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """A checkpoint was loaded: its run is continued where the user named no other."""
        self._loaded = {name: str(state[name]) for name in ("id", "project") if state.get(name)}

    @guarded
    def post_close(self) -> None:
        """The trainer was closed: by the user, or at the end of the process, which says itself how the run ends."""
        if not self._enabled or self._exiting or not self._handle.begun:
            return
        error = sys.exc_info()[1]
        if error is not None:
            self._handle.fail(error)
        elif self._fitting:
            self._handle.fail(RuntimeError(ENDED_EARLY))
        else:
            self._handle.finish()
        with suppress(Exception):
            atexit.unregister(self._exit)

    def _step(self, step: int | None) -> int | None:
        """Composer's batch as the number of finished ones."""
        return step + 1 if step is not None and step == self._batch else step

    def _begin(self) -> Any:
        if self._handle.argument("id") is None:
            self._handle.suggest(name=self._run_name)
        run = self._handle.run
        if self._waiting:
            waiting, self._waiting = self._waiting, {}
            run.config.update(waiting)
        return run

    def _exit(self) -> None:
        self._exiting = True


def _nth(masks: Any, number: int, each: Sequence[Any], images: Any) -> Any:
    """The mask of one of several images; a single image may come with a single mask."""
    alone = len(each) == 1 and not isinstance(images, Sequence) and getattr(masks, "ndim", 0) <= 2
    return masks if alone else masks[number]


def _array(value: Any) -> Any:
    return value.detach().cpu().numpy() if hasattr(value, "detach") else value


def _pixels(image: Any, channels_last: bool) -> Any:
    """An image with its channels last, in the range that it came in."""
    pixels = _array(image)
    return pixels if pixels.ndim == 2 or channels_last else pixels.transpose(1, 2, 0)
