"""Stable-Baselines3: a callback for ``learn``, and an output format for its loggers.

    model.learn(10_000, callback=TrackersCallback("json", project="cartpole"))

Everything that Stable-Baselines3 logs (``rollout/ep_rew_mean``, ``train/loss``, ``eval/mean_reward``, …) is recorded
under its names at its time steps, and each episode's return and length as ``episode/return`` and ``episode/length``.
The algorithm's settings are the configuration; the largest mean rewards are results (``final/``). A logger of one's
own takes ``TrackersOutputFormat``:

    model.set_logger(Logger(folder=None, output_formats=[TrackersOutputFormat("json")]))
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stable_baselines3.common import logger as loggers
from stable_baselines3.common.callbacks import BaseCallback

from trackers.frameworks.shared import guarded
from trackers.media import Histogram, Image, Video
from trackers_frameworks.fits import Fits, TracksFits, converted

REWARDS = ("eval/mean_reward", "rollout/ep_rew_mean")
"""Names whose largest value is a result."""


class TrackersOutputFormat(loggers.KVWriter):  # type: ignore[misc]
    """Records what a logger of Stable-Baselines3 dumps. Keys with ``exclude="trackers"`` are left out.

    Args:
        trackers, run, init: as for :class:`trackers.frameworks.shared.RunHandle`.
    """

    def __init__(self, trackers: Any = None, *, run: Any = None, **init: Any) -> None:
        self._handle = Fits(trackers, run=run, **init)

    @guarded
    def write(self, key_values: Mapping[str, Any], key_excluded: Mapping[str, Any], step: int = 0) -> None:
        """Record values at a time step (the logger calls this)."""
        _write(self._handle, key_values, key_excluded, step, self)

    @guarded
    def close(self) -> None:
        """End the run if it was begun here (the logger calls this)."""
        self._handle.end()


class _Shared(loggers.KVWriter):  # type: ignore[misc]
    """The output format of a callback: of the callback's fit, which the logger doesn't end."""

    def __init__(self, handle: Fits) -> None:
        self._handle = handle

    @guarded
    def write(self, key_values: Mapping[str, Any], key_excluded: Mapping[str, Any], step: int = 0) -> None:
        _write(self._handle, key_values, key_excluded, step, self)

    def close(self) -> None:
        pass


class TrackersCallback(TracksFits, BaseCallback):  # type: ignore[misc]
    """Records a training.

    Args:
        trackers, run, init: as for :class:`trackers.frameworks.shared.RunHandle`.
        episodes: record each episode's return and length.
        log_model: keep the model as an artifact (``model.zip``) after training.
    """

    def __init__(
        self, trackers: Any = None, *, run: Any = None, episodes: bool = True, log_model: bool = False, **init: Any
    ) -> None:
        BaseCallback.__init__(self)
        self._handle = Fits(trackers, run=run, **init)
        self._episodes, self._log_model = episodes, log_model
        self._format = _Shared(self._handle)

    @guarded
    def _on_training_start(self) -> None:
        self._handle.begin(settings(self.model))
        self._handle.define(REWARDS, self.num_timesteps + 1, lambda name: True)
        if self._format not in self.logger.output_formats:
            self.logger.output_formats.append(self._format)

    def _on_step(self) -> bool:
        if self._episodes:
            self._step()
        return not self._stops()

    @guarded
    def _stops(self) -> bool:
        """Whether the run is asked to stop; the model is kept if it is asked to save."""
        asked = self._handle.asked()
        if asked.save:
            steps = self.num_timesteps
            self._handle.keep("checkpoint.zip", self.model.save, framework="stable-baselines3", num_timesteps=steps)
        return asked.stop

    @guarded
    def _step(self) -> None:
        for info in self.locals.get("infos") or ():
            episode = info.get("episode")
            if episode is not None:
                ended = {"episode/return": float(episode["r"]), "episode/length": int(episode["l"])}
                self._handle.log(ended, self.num_timesteps)

    @guarded
    def _on_training_end(self) -> None:
        try:
            self._handle.results({"num_timesteps": self.num_timesteps})
            if self._log_model:
                self._handle.keep("model.zip", self.model.save, framework="stable-baselines3")
        finally:
            if self._format in self.logger.output_formats:
                self.logger.output_formats.remove(self._format)
            self._handle.end()


def settings(model: Any) -> dict[str, Any]:
    """An algorithm's name and settings: its attributes that are numbers, texts or plain mappings."""
    values: dict[str, Any] = {"algorithm": type(model).__name__, "policy": type(model.policy).__name__}
    for name, value in vars(model).items():
        if name.startswith("_") or name in ("num_timesteps", "start_time", "verbose"):
            continue
        if value is None or isinstance(value, (bool, int, float, str)):
            values[name] = value
        elif isinstance(value, dict) and all(isinstance(item, (bool, int, float, str)) for item in value.values()):
            values[name] = dict(value)
    rate = getattr(model, "learning_rate", None)
    values["learning_rate"] = rate if isinstance(rate, (int, float)) else str(rate)
    environment = model.get_env()
    if environment is not None:
        specs = [spec for spec in environment.get_attr("spec") if spec is not None]
        values["env"] = specs[0].id if specs else type(environment).__name__
    return values


def _write(handle: Fits, values: Mapping[str, Any], excluded: Mapping[str, Any], step: int, owner: object) -> None:
    plain: dict[str, Any] = {}
    for name, value in values.items():
        if "trackers" in (excluded.get(name) or ()):
            continue
        if isinstance(value, loggers.HParam):
            handle.run.config.update(value.hparam_dict)
            handle.results(value.metric_dict)
        else:
            plain[name] = value
    if plain:
        handle.log(converted(handle, plain, lambda name, value: _converted(value), owner), step)


def _converted(value: Any) -> Any:
    if isinstance(value, loggers.Video):
        return Video(value.frames, fps=value.fps)
    if isinstance(value, loggers.Figure):
        return Image(value.figure)
    if isinstance(value, loggers.Image):
        return _images(value.image, value.dataformats)
    if getattr(value, "shape", ()):  # an array or a tensor
        return Histogram(value)
    return value


def _images(array: Any, axes: str) -> Any:
    """An image of TensorBoard's axes (NCHW, HWC, HW, …) as channels last; a batch as several."""
    import numpy

    pixels = numpy.asarray(array.detach().cpu() if hasattr(array, "detach") else array)
    order = [axes.index(axis) for axis in "NHWC" if axis in axes]
    pixels = pixels.transpose(order)
    return [Image(image) for image in pixels] if "N" in axes else Image(pixels)
