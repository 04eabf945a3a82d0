"""``SummaryWriter``: PyTorch's TensorBoard writer, for every tracker. One changed line sends a script everywhere.

    from trackers.frameworks.pytorch import SummaryWriter      # was: from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter("runs/digits", trackers="wandb,mlflow")
    writer.add_scalar("loss", loss, step)
    writer.close()

It is a subclass of torch's writer, with its arguments and methods. No event file is written, but by the tracker
``tensorboard``. What a run has no kind of record for (graphs, embeddings, meshes) is kept as an artifact, a directory
that TensorBoard opens.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event
from torch.utils.tensorboard import SummaryWriter as TorchWriter
from torch.utils.tensorboard._convert_np import make_np
from torch.utils.tensorboard._utils import _prepare_video, convert_to_HWC

from trackers.frameworks.shared import RunHandle, guarded
from trackers.media import Image, Video, record
from trackers.records import Metrics, Text
from trackers.support import launcher
from trackers.support.interruption import pass_on, suppress
from trackers.training.tensorboard_writers import WriterTap

MARKER_FILE = ".trackers-run"
"""File in a writer's directory that names its run, for ``purge_step``."""
SPLIT = ("train", "training", "val", "valid", "validation", "eval", "test")
"""Last parts of directories of writers that belong together."""

_roots: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
"""The directory of the first writer of a run that several share."""


class SummaryWriter(TorchWriter):  # type: ignore[misc]
    """Records what is given to TensorBoard's writer with a run.

    A step that isn't given is 0, as in torch's event files; ``walltime`` is the record's time. Scalars keep double
    precision; one on a GPU isn't waited for. ``add_scalars`` records ``main_tag/tag``. ``add_hparams`` adds to the
    configuration, its metrics are results (``final/…``); each further call with other values is a run of its own, in
    one group. ``add_custom_scalars`` has no effect.

    A writer begins a run of its own, named by its directory, and ``close`` ends it. A run that the script began by
    ``trackers.init`` is used by all writers, and left open; names of a second writer begin with its directory's.
    Of several processes (torchrun, SLURM) the first alone records.

    Args:
        log_dir: as torch's; it is made, for the script's own files.
        comment: as torch's: put behind the default ``log_dir``.
        purge_step: continue the run that this directory's writer began last, without what it has from this step on.
        max_queue, flush_secs, filename_suffix: without effect: what was given is kept at once.
        trackers, project, name, config, **init: as for ``trackers.init``.
        run: the run to log to; default the current one, if any.

    Attributes:
        log_dir: the directory. run: the ``trackers.Run``.

    Raises:
        UsageError, NotFound: as ``trackers.init``.
    """

    def __init__(
        self, log_dir: Any = None, comment: str = "", purge_step: int | None = None, max_queue: int = 10,
        flush_secs: int = 120, filename_suffix: str = "", *, trackers: str | Sequence[str] | None = None,
        run: Any = None, project: str | None = None, name: str | None = None, config: Any = None, **init: Any,
    ) -> None:  # fmt: skip
        init.setdefault("rank", launcher.rank())
        self._handle = RunHandle(trackers, run=run, project=project, name=name, config=config, **init)
        self._sink = _Sink(self)
        super().__init__(log_dir, comment, purge_step, max_queue, flush_secs, filename_suffix)
        self.log_dir: str = os.fspath(self.log_dir)
        self._handle.suggest(name=Path(self.log_dir).name)
        Path(self.log_dir).mkdir(parents=True, exist_ok=True)
        if purge_step is not None:
            self._continue(int(purge_step))
        self._taps: dict[int, WriterTap] = {}
        self._configured: Mapping[str, Any] | None = None
        self._trials = 1
        begun = self._handle.run
        self._prefix = ""
        if self._handle.own:
            self._write_marker(begun)
        elif _records(begun):
            self._prefix = _prefix(_roots.setdefault(begun, self.log_dir), self.log_dir)

    @property
    def run(self) -> Any:
        """The ``trackers.Run``."""
        return self._handle.known

    @guarded
    def add_scalar(
        self,
        tag: Any,
        scalar_value: Any,
        global_step: Any = None,
        walltime: Any = None,
        new_style: Any = False,
        double_precision: Any = False,
    ) -> None:
        """Record a number, in double precision."""
        self._log({str(tag): scalar_value}, global_step, walltime)

    @guarded
    def add_scalars(self, main_tag: Any, tag_scalar_dict: Any, global_step: Any = None, walltime: Any = None) -> None:
        """Record a group of numbers, as ``main_tag/tag``."""
        values = {f"{main_tag}/{tag}": value for tag, value in tag_scalar_dict.items()}
        self._log(values, global_step, walltime)

    @guarded
    def add_text(self, tag: Any, text_string: Any, global_step: Any = None, walltime: Any = None) -> None:
        """Record a text."""
        run = self._handle.run
        if walltime is None or not _records(run):
            run.log({f"{self._prefix}{tag}": str(text_string)}, step=_step(global_step), commit=False)
        else:
            texts = {f"{self._prefix}{tag}": str(text_string)}
            run._recorder.take(Text(step=_step(global_step), time=float(walltime), values=texts))

    @guarded
    def add_image(
        self, tag: Any, img_tensor: Any, global_step: Any = None, walltime: Any = None, dataformats: Any = "CHW"
    ) -> None:
        """Record an image. It is encoded outside of training."""
        self._log({str(tag): Image(_bytes(convert_to_HWC(make_np(img_tensor), dataformats)))}, global_step, walltime)

    @guarded
    def add_images(
        self, tag: Any, img_tensor: Any, global_step: Any = None, walltime: Any = None, dataformats: Any = "NCHW"
    ) -> None:
        """Record a batch of images as one grid, as torch does."""
        self._log({str(tag): Image(_bytes(convert_to_HWC(make_np(img_tensor), dataformats)))}, global_step, walltime)

    @guarded
    def add_video(self, tag: Any, vid_tensor: Any, global_step: Any = None, fps: Any = 4, walltime: Any = None) -> None:
        """Record a batch of videos as one grid, as torch does; without moviepy."""
        self._log({str(tag): Video(_bytes(_prepare_video(make_np(vid_tensor))), fps=fps)}, global_step, walltime)

    @guarded
    def add_hparams(
        self,
        hparam_dict: Any,
        metric_dict: Any,
        hparam_domain_discrete: Any = None,
        run_name: Any = None,
        global_step: Any = None,
    ) -> None:
        """Record hyperparameters as configuration, and metrics as results.

        A further call with other values, or one with ``run_name``, is a run of its own, in the group of this one.
        """
        results = {f"final/{name}": value for name, value in metric_dict.items()}
        run = self._handle.run
        if run_name is None and (self._configured is None or self._configured == hparam_dict):
            self._configured = dict(hparam_dict)
            run.config.update(hparam_dict)
            run.log(results, step=_step(global_step))
            return
        self._trials += 1
        settings = {key: self._handle.argument(key) for key in ("trackers", "dir", "mode", "options", "tags", "inline")}
        trial = RunHandle(
            project=run.project or None, group=run.group or run.name, config=hparam_dict,
            name=str(run_name or f"{run.name}-{self._trials}"), rank=launcher.rank(), alone=True, **settings,
        )  # fmt: skip
        trial.run.log(results, step=_step(global_step))
        trial.finish(timeout=0.0)

    @guarded
    def add_tensor(self, tag: Any, tensor: Any, global_step: Any = None, walltime: Any = None) -> None:
        """Record a tensor: one value as a number, others as a file that TensorBoard opens."""
        if getattr(tensor, "numel", lambda: 0)() == 1:
            self._log({str(tag): tensor.reshape(())}, global_step, walltime)
        else:
            self._keep("tensor", tag, global_step, lambda torch: torch.add_tensor(tag, tensor, global_step, walltime))

    @guarded
    def add_graph(
        self, model: Any, input_to_model: Any = None, verbose: Any = False, use_strict_trace: Any = True
    ) -> None:
        """Keep the model's graph as a file that TensorBoard opens."""
        arguments = (model, input_to_model, verbose, use_strict_trace)
        self._keep("graph", "graph", None, lambda torch: torch.add_graph(*arguments))

    @guarded
    def add_onnx_graph(self, prototxt: Any) -> None:
        """Keep an ONNX model's graph as a file that TensorBoard opens."""
        self._keep("graph", "onnx_graph", None, lambda torch: torch.add_onnx_graph(prototxt))

    @guarded
    def add_embedding(
        self,
        mat: Any,
        metadata: Any = None,
        label_img: Any = None,
        global_step: Any = None,
        tag: Any = "default",
        metadata_header: Any = None,
    ) -> None:
        """Keep points, their labels and pictures as files for TensorBoard's projector."""
        arguments = (mat, metadata, label_img, global_step, tag, metadata_header)
        self._keep("embedding", tag, global_step, lambda torch: torch.add_embedding(*arguments))

    @guarded
    def add_mesh(
        self,
        tag: Any,
        vertices: Any,
        colors: Any = None,
        faces: Any = None,
        config_dict: Any = None,
        global_step: Any = None,
        walltime: Any = None,
    ) -> None:
        """Keep a mesh or a cloud of points as a file that TensorBoard opens."""
        arguments = (tag, vertices, colors, faces, config_dict, global_step, walltime)
        self._keep("mesh", tag, global_step, lambda torch: torch.add_mesh(*arguments))

    def add_custom_scalars(self, layout: Any) -> None:
        """No effect: how curves are put together is each tracker's to say."""
        self._handle.say("SummaryWriter.add_custom_scalars has no effect: arrange charts in the tracker")

    def add_custom_scalars_multilinechart(self, tags: Any, category: Any = "default", title: Any = "untitled") -> None:
        """No effect; see ``add_custom_scalars``."""
        self.add_custom_scalars(None)

    def add_custom_scalars_marginchart(self, tags: Any, category: Any = "default", title: Any = "untitled") -> None:
        """No effect; see ``add_custom_scalars``."""
        self.add_custom_scalars(None)

    def get_logdir(self) -> str:
        """The writer's directory."""
        return str(self.log_dir)

    def flush(self) -> None:
        """Nothing waits: what was given is in the run's journal."""

    @guarded
    def close(self) -> None:
        """End the run, if this writer began it; a later call continues it."""
        self._handle.finish()

    def __exit__(self, exc_type: Any, exc_val: Any, exc_tb: Any) -> None:
        if exc_val is None:
            self.close()
        else:
            self._handle.fail(exc_val)

    def _get_file_writer(self) -> Any:
        self.all_writers = {self.log_dir: self._sink}
        self.file_writer = self._sink
        return self._sink

    def _log(self, values: dict[str, Any], step: Any, walltime: Any) -> None:
        run = self._handle.run
        if self._prefix:
            values = {f"{self._prefix}{name}": value for name, value in values.items()}
        if walltime is None or not _records(run):
            run.log(values, step=_step(step), commit=False)
            return
        for name, value in values.items():
            if isinstance(value, (Image, Video)):
                run._recorder.take(record(name, value, _step(step), float(walltime), run._recorder.store()))
            else:
                number = value.item() if hasattr(value, "item") else float(value)
                run._recorder.take(Metrics(step=_step(step), time=float(walltime), values={name: number}))

    def _event(self, event: Any) -> None:
        """Record what torch has made an event of."""
        run = self._handle.run
        if not _records(run):
            return
        tap = self._taps.get(id(run))
        if tap is None:
            self._taps.clear()
            tap = self._taps[id(run)] = WriterTap(run, os.sep)
        tap.take_under(event, self._prefix.rstrip("/"))

    def _keep(self, kind: str, tag: Any, step: Any, write: Callable[[Any], object]) -> None:
        """Keep what torch's own writer makes as an artifact."""
        run = self._handle.run
        if not _records(run):
            return
        with tempfile.TemporaryDirectory(prefix="trackers-summary-") as folder:
            with contextlib.closing(TorchWriter(folder)) as writer:
                write(writer)
            name = f"{self._prefix}{tag}".replace("/", "-").replace(" ", "-")
            aliases = [] if step is None else [f"step-{int(step)}"]
            run.log_artifact(folder, name=name, type=kind, aliases=aliases, metadata={"tag": str(tag)})

    def _continue(self, step: int) -> None:
        """Take the run that this directory names, without what it has from the step on."""
        try:
            known = json.loads(Path(self.log_dir, MARKER_FILE).read_text())
            id, project = str(known["id"]), str(known["project"])
        except (OSError, ValueError, TypeError, KeyError) as error:
            pass_on(error)
            self._handle.say(f"purge_step={step}: {self.log_dir} has no run to continue: a new one begins")
            return
        self._handle.suggest(id=id, project=project, resume="allow")
        if step > 0:
            self._handle.suggest(step=step - 1)

    def _write_marker(self, run: Any) -> None:
        if _records(run):
            with suppress(OSError):
                Path(self.log_dir, MARKER_FILE).write_text(json.dumps({"id": run.id, "project": run.project}))


class _Sink:
    """Stands where torch's writer has its file: takes the summaries that torch has made."""

    def __init__(self, writer: SummaryWriter) -> None:
        self._writer = writer

    def get_logdir(self) -> str:
        return str(self._writer.log_dir)

    def add_event(self, event: Any, step: Any = None, walltime: Any = None) -> None:
        event.wall_time = time.time() if walltime is None else walltime
        if step is not None:
            event.step = int(step)
        self._writer._event(event)

    def add_summary(self, summary: Any, global_step: Any = None, walltime: Any = None) -> None:
        self.add_event(Event(summary=summary), global_step, walltime)

    def flush(self) -> None:
        pass

    close = reopen = flush


def _records(run: Any) -> bool:
    """Whether records can be written to it: not on other ranks than the first, nor where nothing is recorded."""
    return not run.disabled and run._recorder.is_main


def _step(value: Any) -> int:
    return 0 if value is None else int(value)


def _bytes(pixels: Any) -> Any:
    """Pixels as torch encodes them: bytes are taken as they are, others go from 0 to 1."""
    import numpy

    if pixels.dtype == numpy.uint8:
        return pixels
    return (pixels.astype(numpy.float32) * 255).clip(0, 255).astype(numpy.uint8)


def _prefix(root: str, log_dir: str) -> str:
    """What stands before the names of a writer that shares its run: its directory, as seen from the first one's."""
    root, log_dir = os.path.abspath(root), os.path.abspath(log_dir)
    if root == log_dir and os.path.basename(root) not in SPLIT:
        return ""
    if os.path.basename(root) in SPLIT:
        root = os.path.dirname(root)
    inside = os.path.relpath(log_dir, root).replace(os.sep, "/")
    return f"{os.path.basename(log_dir) if inside.startswith('..') else inside}/"


for _name in ("add_histogram", "add_histogram_raw", "add_figure", "add_audio", "add_image_with_boxes", "add_pr_curve",
              "add_pr_curve_raw"):  # fmt: skip
    setattr(SummaryWriter, _name, guarded(getattr(TorchWriter, _name)))
