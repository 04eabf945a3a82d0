"""torchtitan: a metric logger beside its own, with its configuration.

    install("json,mlflow", project="llama")     # before torchtitan.train.main(…)

torchtitan builds its loggers from the configuration, and has no place to name another one: ``install`` adds ours to
what it builds, on the rank that it lets log. Its metrics keep their names (``loss_metrics/global_avg_loss``,
``throughput(tps)``, …) and its step; the job's configuration is the run's. ``TrackersLogger`` is the logger by itself.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

from torchtitan.components import metrics as theirs

from trackers.frameworks.shared import guarded
from trackers_frameworks.fits import Fits, TracksFits


class TrackersLogger(TracksFits, theirs.BaseLogger):  # type: ignore[misc]
    """Records what torchtitan's metrics processor logs.

    Args:
        trackers, run, init: as for :class:`trackers.frameworks.shared.RunHandle`.
        job_config: torchtitan's configuration, which is recorded.
        tag: what names begin with, as torchtitan's own loggers have it.
    """

    def __init__(
        self, trackers: Any = None, *, run: Any = None, job_config: Any = None, tag: str | None = None, **init: Any
    ) -> None:
        self._handle = Fits(trackers, run=run, **init)
        self._job_config, self._tag = job_config, tag

    @guarded
    def log(self, metrics: Mapping[str, Any], step: int) -> None:
        """Record a step's metrics (torchtitan calls this)."""
        if not self._handle.is_open:
            self._handle.begin(settings(self._job_config))
        named = {name if self._tag is None else f"{self._tag}/{name}": value for name, value in metrics.items()}
        losses = [name for name in named if name.endswith("loss_metrics/global_avg_loss")]
        if not self._handle.rows and losses:
            self._handle.define(losses, step, lambda name: False)
        self._handle.log(named, step)

    @guarded
    def close(self) -> None:
        """Training has ended (torchtitan calls this, after a failure too): the process's end says how."""
        self._handle.results({"steps": self._handle.known.step if self._handle.is_open else None})


def install(trackers: Any = None, *, run: Any = None, **init: Any) -> None:
    """Have torchtitan log to a run besides the loggers of its configuration.

    Args:
        trackers, run, init: as for :class:`trackers.frameworks.shared.RunHandle`.
    """
    build = getattr(theirs._build_metric_logger, "__wrapped__", theirs._build_metric_logger)

    @functools.wraps(build)
    def with_ours(job_config: Any, parallel_dims: Any, tag: str | None = None) -> Any:
        import torch

        logger = build(job_config, parallel_dims, tag)
        if torch.distributed.get_rank() != theirs._get_metrics_rank(parallel_dims, job_config):
            return logger
        both = theirs.LoggerContainer()
        both.add_logger(logger)
        both.add_logger(TrackersLogger(trackers, run=run, job_config=job_config, tag=tag, **init))
        return both

    theirs._build_metric_logger = with_ours


def settings(job_config: Any) -> dict[str, Any]:
    """torchtitan's configuration as a plain one."""
    if job_config is None:
        return {}
    to_dict = getattr(job_config, "to_dict", None)
    return dict(to_dict()) if callable(to_dict) else dataclasses.asdict(job_config)
