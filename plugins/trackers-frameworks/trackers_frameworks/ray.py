"""Ray: a callback that gives each trial of Tune a run, and a run for the workers of Train.

    tuner = tune.Tuner(train, param_space=space, run_config=tune.RunConfig(
        callbacks=[TrackersCallback("json", project="tuning")]))

    def train_loop(config):                      # in Ray Train's workers
        with worker_run("json", project="training", dir="/shared/runs", config=config) as run:
            run.log({"loss": loss}, step=step)

A trial's run has Tune's iterations as steps, what it reports under its names, and its last report under ``final/``; it
ends as failed where the trial raised. The trials of an experiment are a group. A trial whose run is asked to stop ends
with its next report. Of Train's workers that of rank 0 records, and all add to values across ranks; they look at
``run.should_stop`` themselves.

The package ``amdsmi`` raises where its library isn't installed, and Ray imports it: uninstall it where ``import ray``
fails.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ray.tune.logger import LoggerCallback

from trackers.errors import UsageError
from trackers.frameworks.shared import RunHandle, guarded

FACTS = (
    "config", "trial_id", "date", "timestamp", "pid", "hostname", "node_ip", "done", "experiment_tag",
    "checkpoint_dir_name", "training_iteration",
)  # fmt: skip
"""What Tune adds to each report that is no measurement, or is the step."""


class TrackersCallback(LoggerCallback):  # type: ignore[misc]
    """Records each trial of an experiment of Ray Tune in a run of its own.

    Args:
        trackers, init: as for ``trackers.init``; the runs' names are the trials'.
    """

    def __init__(self, trackers: Any = None, **init: Any) -> None:
        self._handle = RunHandle(trackers, **init)  # for what guarded needs: it begins no run
        self._trackers, self._init = trackers, init
        self._runs: dict[str, Any] = {}
        self._last: dict[str, dict[str, Any]] = {}

    @guarded
    def log_trial_start(self, trial: Any) -> None:
        """A trial begins, or begins again after a failure (Tune calls this)."""
        from trackers.training.init import current, init, return_to

        if trial.trial_id in self._runs:
            return
        before = current()
        settings = {"group": trial.experiment_dir_name, "job_type": "trial", **self._init}
        config = {**_flat(settings.pop("config", None) or {}), **(trial.config or {}), "trial_id": trial.trial_id}
        name = settings.pop("name", None)
        settings["name"] = f"{name}-{trial.trial_id}" if name else str(trial)
        self._runs[trial.trial_id] = init(self._trackers, config=config, reinit="create_new", **settings)
        self._handle.begun = True
        return_to(before)

    @guarded
    def log_trial_result(self, iteration: int, trial: Any, result: dict[str, Any]) -> None:
        """A trial has reported (Tune calls this)."""
        run = self._runs.get(trial.trial_id)
        if run is not None:
            values = {name: value for name, value in _flat(result).items() if name.partition("/")[0] not in FACTS}
            self._last[trial.trial_id] = values
            run.log(values, step=int(result.get("training_iteration", iteration)))
            if run.should_stop:  # Tune looks at it before it hands on the next report, and ends the trial there
                trial.stopping_criterion = {**(trial.stopping_criterion or {}), "training_iteration": 0}

    @guarded
    def log_trial_save(self, trial: Any) -> None:
        """A trial has saved a checkpoint (Tune calls this): its place is recorded."""
        run, checkpoint = self._runs.get(trial.trial_id), trial.checkpoint
        if run is not None and checkpoint is not None:
            run.summary["final/checkpoint"] = str(checkpoint.path)

    @guarded
    def log_trial_end(self, trial: Any, failed: bool = False) -> None:
        """A trial has ended (Tune calls this)."""
        run = self._runs.pop(trial.trial_id, None)
        if run is None:
            return
        last = {name: value for name, value in self._last.pop(trial.trial_id, {}).items() if _is_number(value)}
        run.summary.update({f"final/{name}": value for name, value in last.items()})
        if failed:
            run.fail(1, _reason(trial))
        else:
            run.finish()

    @guarded
    def on_experiment_end(self, trials: Any, **more: Any) -> None:
        """The experiment has ended (Tune calls this), perhaps before its trials have."""
        for run in self._runs.values():
            run.fail(1, "the experiment ended before the trial did")
        self._runs = {}


def worker_run(trackers: Any = None, **init: Any) -> Any:
    """A run in a worker of Ray Train: that of rank 0 records, the others add to values across ranks.

    Those need to know of each other what TorchTrainer tells its workers (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT).
    Where nobody does, the other workers' runs record nothing.

    Args:
        trackers, init: as for ``trackers.init``. Workers have working directories of their own, so that ``dir``, or
            TRACKER_DIR, has to be an absolute path that the machine of rank 0 has; for values across ranks, every one.

    Raises:
        UsageError, NotFound: as ``trackers.init``; a relative ``dir``.
    """
    import ray.train

    from trackers.training.disabled import NullRun
    from trackers.training.init import init as begin

    context = ray.train.get_context()
    rank = int(context.get_world_rank())
    if rank and not all(os.environ.get(name) for name in ("WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")):
        return NullRun(config=init.get("config"))
    directory = os.fspath(init.pop("dir", None) or os.environ.get("TRACKER_DIR", ""))
    if not os.path.isabs(directory) and "://" not in directory:
        raise UsageError("worker_run: Ray's workers have directories of their own: give dir=, an absolute path")
    init.setdefault("name", context.get_experiment_name())
    options = {"TRACKER_RANK": "0", **(init.pop("options", None) or {})}
    return begin(trackers, dir=directory, rank=rank, options=options, **init)


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    def walk(prefix: str, nested: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        for name, value in nested.items():
            if isinstance(value, Mapping):
                yield from walk(f"{prefix}{name}/", value)
            else:
                yield f"{prefix}{name}", value

    return dict(walk("", values))


def _is_number(value: Any) -> bool:
    return hasattr(value, "__float__") and not getattr(value, "shape", ()) and not isinstance(value, bool)


def _reason(trial: Any) -> str:
    """The last line of a trial's error."""
    try:
        lines = [line for line in Path(trial.error_file).read_text("utf-8", "replace").splitlines() if line.strip()]
        return lines[-1].strip()[:500]
    except (OSError, TypeError, IndexError):
        return "the trial failed"
