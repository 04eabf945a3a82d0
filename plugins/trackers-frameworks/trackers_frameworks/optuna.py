"""Optuna: a callback for ``study.optimize``, and a run for each trial.

    tracking = TrackersCallback("json,mlflow", project="tuning", name="study")

    @tracking.objective
    def objective(trial, run):
        rate = trial.suggest_float("rate", 1e-4, 1e-1, log=True)
        for epoch in range(10):
            run.log({"loss": train(rate)}, step=epoch)
            trial.report(loss, epoch)           # recorded as intermediate_value
        return loss

    study.optimize(objective, n_trials=20, callbacks=[tracking])

The study has a run whose steps are the trials: value, best value, parameters, state and duration of each, and the best
ones under ``final/``. With ``objective`` each trial has a run of its own too, in the study's group: pruned and complete
trials end as finished, others as failed. Without it the values that trials report are in the study's run, as
``trial-7/intermediate_value``.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trackers.frameworks.shared import guarded
from trackers_frameworks.fits import Fits, TracksFits


class TrackersCallback(TracksFits):
    """Records the trials of a study.

    The study's run ends with a ``with`` block, ``finish``, the next study, or the process.

    Args:
        trackers, run, init: as for :class:`trackers.frameworks.shared.RunHandle`; trials' runs have them too.
    """

    def __init__(self, trackers: Any = None, *, run: Any = None, **init: Any) -> None:
        self._handle = Fits(trackers, run=run, **init)
        self._trackers, self._init = trackers, init
        self._lock = threading.RLock()
        self._study = ""
        self._alone: set[int] = set()

    def __call__(self, study: Any, trial: Any) -> None:
        """A trial has ended (Optuna calls this)."""
        with self._lock:
            self._begin(study)
            self._trial(study, trial)

    def objective(self, function: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
        """An objective for Optuna from one that takes the trial and the trial's run.

        While it runs in Optuna's main thread, the trial's run is the current one.
        """

        @functools.wraps(function)
        def objective(trial: Any) -> Any:
            before = self._open(trial)
            run = before[0]
            try:
                result = function(trial, run)
            except BaseException as error:
                self._close(trial, before, None, error)
                raise
            self._close(trial, before, result, None)
            return result

        return objective

    @guarded
    def _begin(self, study: Any) -> None:
        if self._study == study.study_name and self._handle.is_open:
            return
        self._handle.end()
        self._study = study.study_name
        self._alone = set()
        self._handle.begin(
            {
                "study": study.study_name,
                "directions": [direction.name.lower() for direction in study.directions],
                "sampler": type(study.sampler).__name__,
                "pruner": type(study.pruner).__name__,
            }
        )

    @guarded
    def _trial(self, study: Any, trial: Any) -> None:
        names = _names(study)
        values: dict[str, Any] = dict(zip(names, trial.values or (), strict=False))
        values |= {f"params/{name}": value for name, value in trial.params.items()}
        if trial.duration is not None:
            values["duration_s"] = trial.duration.total_seconds()
        values["state"] = trial.state.name.lower()
        if trial.number not in self._alone:
            for step, value in sorted(trial.intermediate_values.items()):
                self._handle.run.log({f"trial-{trial.number}/intermediate_value": value}, step=step)
        best = _best(study)
        if len(names) == 1 and best:
            values["best_value"] = best[0].value
        self._handle.log(values, trial.number)
        if any(winner.number == trial.number for winner in best):
            self._handle.results(_results(names, best))

    def _open(self, trial: Any) -> tuple[Any, Any]:
        """The trial's run, begun beside the study's, and the run that was current before."""
        from trackers.training.disabled import NullRun
        from trackers.training.init import current, init

        with self._lock:
            self._begin(trial.study)
            here = current()
            study = self._handle.known
            if study is None or study.disabled:
                return NullRun(), here
            given = {
                name: value for name, value in self._init.items() if name not in ("name", "id", "resume", "config")
            }
            settings = {
                "project": study.project, "group": self._study, "mode": study.mode, "job_type": "trial",
                "dir": Path(study.dir).parents[1], **given, "name": f"{study.name}-{trial.number}",
                "config": {"study": self._study, "trial": trial.number, **(self._init.get("config") or {})},
            }  # fmt: skip
            run = init(self._trackers or list(study.status()) or None, reinit="create_new", **settings)
            self._alone.add(trial.number)
        trial.report = _Report(trial, run)
        return run, here

    @guarded
    def _close(self, trial: Any, opened: tuple[Any, Any], result: Any, error: BaseException | None) -> None:
        import optuna

        from trackers.training.init import return_to

        run, before = opened
        try:
            run.config.update(trial.params)
            pruned = isinstance(error, optuna.TrialPruned)
            state = "pruned" if pruned else "complete" if error is None else "fail"
            run.summary["final/state"] = state
            if pruned:
                run.tags = (*run.tags, "pruned")
            if error is None:
                values = result if isinstance(result, (list, tuple)) else [result]
                names = _names(trial.study)
                run.summary.update({f"final/{name}": float(value) for name, value in zip(names, values, strict=False)})
        finally:
            if error is None or isinstance(error, optuna.TrialPruned):
                run.finish()
            else:
                run.__exit__(type(error), error, error.__traceback__)
            return_to(before)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_lock": None, "_alone": set()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update({**state, "_lock": threading.RLock()})


class _Report:
    """``trial.report``, which records, too; a copy of the trial has it, with the run."""

    def __init__(self, trial: Any, run: Any) -> None:
        self._trial, self._run = trial, run

    def __call__(self, value: Any, step: int) -> None:
        type(self._trial).report(self._trial, value, step)
        self._run.config.update(self._trial.params)
        self._run.log({"intermediate_value": value}, step=step)


def _names(study: Any) -> list[str]:
    """Names of a study's values: the user's, else ``value``, or ``value_0`` … of several objectives."""
    count = len(study.directions)
    names = getattr(study, "metric_names", None)
    return list(names) if names else ["value"] if count == 1 else [f"value_{number}" for number in range(count)]


def _best(study: Any) -> list[Any]:
    """The best trial, or the best ones of several objectives; none while no trial is complete."""
    try:
        return [study.best_trial] if len(study.directions) == 1 else list(study.best_trials)
    except ValueError:
        return []


def _results(names: list[str], best: list[Any]) -> dict[str, Any]:
    if len(names) > 1:
        return {"best_trials": ", ".join(str(trial.number) for trial in best)}
    (trial,) = best
    return {
        "best_value": trial.value,
        "best_trial": trial.number,
        **{f"best_params/{name}": value for name, value in trial.params.items()},
    }
