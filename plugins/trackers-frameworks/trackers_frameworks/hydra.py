"""Hydra: a callback that gives each job a run, and OmegaConf's configurations as a run's.

    hydra:                      # in the application's configuration
      callbacks:
        trackers:
          _target_: trackers.frameworks.hydra.TrackersCallback
          trackers: json,mlflow
          project: digits

The run begins before the application's function, which logs with ``trackers.log``, and ends with it: failed where it
raised. Its configuration is the job's, with ``hydra/overrides``. The jobs of a sweep (``--multirun``) are a group.
What the function returns, where it is a number or several by name, is a result (``final/objective``).

Without the callback, ``trackers.init(config=settings(cfg))`` begins a run with a configuration of Hydra's.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from trackers.frameworks.shared import guarded
from trackers_frameworks.fits import Fits, TracksFits

MISSING = "???"


class TrackersCallback(TracksFits, Callback):  # type: ignore[misc]
    """Begins a run before each job, and ends it after it.

    Hydra prints what a callback raises as a warning, and goes on: a setting that can't be costs the record.

    Args:
        trackers, init: as for ``trackers.init``: project, name, tags, … A run that is open is used instead.
        log_files: keep the job's ``.hydra`` folder as an artifact.
    """

    def __init__(self, trackers: Any = None, *, log_files: bool = True, **init: Any) -> None:
        plain = {
            name: OmegaConf.to_object(value) if OmegaConf.is_config(value) else value for name, value in init.items()
        }
        self._handle = Fits(OmegaConf.to_object(trackers) if OmegaConf.is_config(trackers) else trackers, **plain)
        self._log_files = log_files

    @guarded
    def on_job_start(self, config: Any, **more: Any) -> None:
        """A job begins (Hydra calls this)."""
        job, name, group = config.hydra.job, config.hydra.job.name, None
        if str(config.hydra.mode).endswith("MULTIRUN"):
            name = f"{name}-{job.num}"
            group = f"{job.name}/{Path(str(config.hydra.sweep.dir)).as_posix()}"
        self._handle.begin(settings(config), name=name, group=group)
        self._handle.settle()

    @guarded
    def on_job_end(self, config: Any, job_return: Any, **more: Any) -> None:
        """A job has ended (Hydra calls this)."""
        returned = job_return._return_value
        try:
            if self._log_files and config.hydra.output_subdir is not None and self._handle.is_open:
                folder = Path(str(config.hydra.runtime.output_dir), str(config.hydra.output_subdir))
                self._handle.run.log_artifact(str(folder), name="hydra", type="config")
            if not isinstance(returned, BaseException):
                self._handle.results(_objectives(returned))
        finally:
            if isinstance(returned, BaseException):
                self._handle.end_failed(returned)
            else:
                self._handle.end()


def settings(config: Any) -> dict[str, Any]:
    """An OmegaConf configuration as a plain one, interpolations resolved.

    Within a Hydra job it has ``hydra``: the overrides of the command line, the job's name, number and output folder.
    A value that is missing stays ``???``; an interpolation that can't be resolved stays as it is written.
    """
    values: dict[str, Any] = {}
    for name in config:
        if name != "hydra":
            values[str(name)] = _value(config, name)
    if HydraConfig.initialized():
        here = HydraConfig.get()
        values["hydra"] = {
            "overrides": list(here.overrides.task),
            "job": str(here.job.name),
            "output_dir": str(_value(here.runtime, "output_dir")),
        }
        if not OmegaConf.is_missing(here.job, "num"):
            values["hydra"]["num"] = int(here.job.num)
    return values


def _value(parent: Any, name: Any) -> Any:
    """One value; where it can't be resolved as a whole, part by part, and at last as it is written."""
    if OmegaConf.is_missing(parent, name):
        return MISSING
    try:
        value = parent[name]
    except OmegaConfBaseException:
        return str(parent._get_node(name)._value())
    if not OmegaConf.is_config(value):
        return value
    if isinstance(value, DictConfig):
        return {str(key): _value(value, key) for key in value}
    return [_value(value, number) for number in range(len(value))]


def _objectives(returned: Any) -> dict[str, float]:
    if isinstance(returned, Mapping):
        return {str(name): float(value) for name, value in returned.items() if _is_number(value)}
    if isinstance(returned, (list, tuple)):
        return {f"objective_{number}": float(value) for number, value in enumerate(returned) if _is_number(value)}
    return {"objective": float(returned)} if _is_number(returned) else {}


def _is_number(value: Any) -> bool:
    return hasattr(value, "__float__") and not getattr(value, "shape", ())
