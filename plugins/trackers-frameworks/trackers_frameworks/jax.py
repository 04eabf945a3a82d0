"""JAX and Flax: a ``clu.metric_writers.MetricWriter``.

    writer = TrackersWriter("json,mlflow", project="mnist")     # instead of metric_writers.create_default_writer(…)
    writer.write_hparams({"learning_rate": 1e-3})
    writer.write_scalars(step, {"loss": loss})                  # values on a device are not waited for
    writer.close()

It has the writer's whole interface, so that ``MultiWriter``, ``AsyncWriter`` and ``write_values`` take it too, but
needs neither clu nor TensorFlow, which clu's own writers import. Of several processes process 0 alone records.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from trackers.frameworks.shared import RunHandle, guarded
from trackers.media import Audio, Histogram, Image, Video
from trackers_frameworks.fits import converted, temporary_folder


class TrackersWriter:
    """Records what is written to it.

    Args:
        trackers, run, init: as for :class:`trackers.frameworks.shared.RunHandle`.
        fps: frames per second of videos, which clu doesn't say.
    """

    def __init__(self, trackers: Any = None, *, run: Any = None, fps: float = 10.0, **init: Any) -> None:
        self._handle = RunHandle(trackers, run=run, **init)
        self._fps = fps

    @property
    def run(self) -> Any:
        """The run; None before the first value."""
        return self._handle.known

    @guarded
    def write_scalars(self, step: int, scalars: Mapping[str, Any]) -> None:
        """Record numbers or arrays of one number."""
        single = {name for name, value in scalars.items() if getattr(value, "shape", ()) and value.size == 1}
        self._log(step, scalars, lambda name, value: value.reshape(()) if name in single else value)

    @guarded
    def write_images(self, step: int, images: Mapping[str, Any]) -> None:
        """Record images, [height, width, channels], or several, [N, height, width, channels]."""
        self._log(step, images, lambda name, value: [Image(pixels) for pixels in _batch(value, 3)])

    @guarded
    def write_videos(self, step: int, videos: Mapping[str, Any]) -> None:
        """Record videos, [time, height, width, channels], or several, [N, time, height, width, channels]."""
        self._log(step, videos, lambda name, value: [Video(frames, fps=self._fps) for frames in _batch(value, 4)])

    @guarded
    def write_audios(self, step: int, audios: Mapping[str, Any], *, sample_rate: int) -> None:
        """Record sounds, [N, time, channels], with values from -1 to 1.

        Args:
            sample_rate: Hz.
        """
        self._log(step, audios, lambda name, value: [Audio(samples, sample_rate) for samples in _batch(value, 2)])

    @guarded
    def write_texts(self, step: int, texts: Mapping[str, str]) -> None:
        """Record texts."""
        self._log(step, texts, lambda name, value: value)

    @guarded
    def write_histograms(
        self, step: int, arrays: Mapping[str, Any], num_buckets: Mapping[str, int] | None = None
    ) -> None:
        """Record histograms of arrays.

        Args:
            num_buckets: bins by name; at most 512.
        """
        bins = {name: min(count, 512) for name, count in (num_buckets or {}).items() if count}
        self._log(step, arrays, lambda name, value: Histogram(_array(value), num_bins=bins.get(name, 64)))

    @guarded
    def write_summaries(self, step: int, values: Mapping[str, Any], metadata: Mapping[str, Any] | None = None) -> None:
        """Keep arrays as they are, as artifacts (``.npy``): what they mean is known to a TensorBoard plug-in alone."""
        if _process():
            return
        import numpy

        run = self._handle.run
        for name, value in values.items():
            with temporary_folder() as folder:
                path = Path(folder, "summary.npy")
                numpy.save(path, _array(value))
                label = f"{name}-{step}".replace("/", "-")
                more = {"step": int(step), "summary": str(metadata)[:1000]}
                run.log_artifact(str(path), name=label, type="summary", metadata=more)

    @guarded
    def write_hparams(self, hparams: Mapping[str, Any]) -> None:
        """Record the configuration."""
        if not _process():
            self._handle.run.config.update(hparams)

    def flush(self) -> None:
        """Nothing waits here: what was written is in the run's journal."""

    @guarded
    def close(self) -> None:
        """End the run if it was begun here."""
        self._handle.finish()

    def __enter__(self) -> TrackersWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if error is None:
            self.close()
        else:
            self._handle.fail(error)

    def _log(self, step: int, values: Mapping[str, Any], convert: Callable[[str, Any], Any]) -> None:
        if values and not _process():
            self._handle.run.log(converted(self._handle, values, convert, self), step=int(step))


def _process() -> int:
    """This process's number; 0 where JAX isn't loaded."""
    jax = sys.modules.get("jax")
    return 0 if jax is None else int(jax.process_index())


def _array(value: Any) -> Any:
    """A JAX array as NumPy's; anything else as it is."""
    import numpy

    return numpy.asarray(value)


def _batch(value: Any, axes: int) -> list[Any]:
    """The single ones of a batch; one that is none, as a batch of one."""
    array = _array(value)
    return list(array) if array.ndim == axes + 1 else [array]
