"""LightGBM: a callback for ``lightgbm.train``, ``lightgbm.cv`` and its scikit-learn estimators.

    with TrackersCallback("json", project="prices") as tracking:
        booster = lightgbm.train(parameters, data, valid_sets=[test], callbacks=[tracking])

Metrics are named after LightGBM's data set and metric (``valid_0-l2``; of ``cv`` ``valid-l2-mean`` and
``valid-l2-stdv``), the step is the boosting round, from 0 on. The parameters are the configuration. ``final/`` has the
best value of each metric, and the best iteration: that of early stopping, else of the first metric of validation.

LightGBM tells its callbacks nothing of early stopping. What it found is recorded at the end of a ``with`` block, by
``finish``, when the next fit begins, or when the process ends; without any of them a run of the user's lacks it.
"""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Iterable
from typing import Any

from trackers.frameworks.shared import guarded
from trackers.media.table import Table
from trackers_frameworks.fits import Fits, TracksFits


class TrackersCallback(TracksFits):
    """Records each boosting round.

    Args:
        trackers, run, init: as for :class:`trackers.frameworks.shared.RunHandle`.
        log_model: keep the trained booster as an artifact (``model.txt``).
        importance: the kind of feature importance that is recorded as a table after training: "gain", "split", or ""
            for none.
    """

    before_iteration = False
    order = 29
    """Before early stopping (30), which ends the round by an exception."""

    def __init__(
        self, trackers: Any = None, *, run: Any = None, log_model: bool = False, importance: str = "gain", **init: Any
    ) -> None:
        self._handle = Fits(trackers, run=run, **init)
        self._log_model, self._importance = log_model, importance
        self._model: Any = None
        self._last = 0
        self._best: tuple[float, int] | None = None

    def __call__(self, env: Any) -> None:
        """A round has ended (LightGBM calls this)."""
        if env.iteration == env.begin_iteration:
            self._begin(env)
        self._round(env)
        if env.iteration == env.end_iteration - 1:
            self._end()
        elif self._stops(env):
            from lightgbm.callback import EarlyStopException

            raise EarlyStopException(env.iteration, env.evaluation_result_list or [])

    @guarded
    def _stops(self, env: Any) -> bool:
        """Whether the run is asked to stop; the booster is kept if it is asked to save. Workers don't agree on it."""
        if int((env.params or {}).get("num_machines", 1) or 1) > 1:
            return False
        asked = self._handle.asked()
        if asked.save and hasattr(env.model, "save_model") and not hasattr(env.model, "boosters"):
            self._handle.keep("checkpoint.txt", lambda path: env.model.save_model(str(path)), framework="lightgbm")
        return asked.stop

    def finish(self) -> None:
        """Record the result of early stopping, and end the run that was begun here, if it is open."""
        self._end()
        super().finish()

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is None:
            self._end()
        super().__exit__(kind, error, trace)

    @guarded
    def _begin(self, env: Any) -> None:
        if _stopped_early(self._model):
            self._end()
        self._model = env.model
        self._handle.begin(env.params)
        at_exit = weakref.WeakMethod(self._at_exit)
        atexit.register(lambda: (at_exit() or _nothing)())

    @guarded
    def _round(self, env: Any) -> None:
        values, larger = {}, {}
        for name, value, maximize, deviation in _results(env.evaluation_result_list or ()):
            values[name], larger[name] = value, maximize
            if deviation is not None:
                values[f"{name.removesuffix('-mean')}-stdv"] = deviation
        if values and env.iteration == env.begin_iteration:
            self._handle.define(larger, env.iteration, larger.__getitem__)
            self._best = None
        of_interest = [name for name in larger if not name.startswith("training-")]
        if of_interest:
            score = values[of_interest[0]] * (1 if larger[of_interest[0]] else -1)
            if self._best is None or score > self._best[0]:
                self._best = (score, env.iteration)
        if values:
            self._handle.log(values, env.iteration)
        self._last = env.iteration

    @guarded
    def _end(self) -> None:
        model, self._model = self._model, None
        if model is None or not self._handle.is_open:
            return
        try:
            stopped = model.best_iteration - 1 if _stopped_early(model) else None
            ours = self._best[1] if self._best is not None else None
            best = ours if stopped is None else stopped
            self._handle.results({"num_boosted_rounds": self._last + 1, "best_iteration": best})
            if hasattr(model, "feature_importance") and not hasattr(model, "boosters"):
                self._importances(model)
                if self._log_model:
                    self._handle.keep("model.txt", lambda path: model.save_model(str(path)), framework="lightgbm")
        finally:
            self._handle.end()

    def _importances(self, model: Any) -> None:
        if self._importance:
            importances = zip(model.feature_name(), model.feature_importance(self._importance).tolist(), strict=True)
            rows = sorted(([name, value] for name, value in importances if value), key=lambda row: -row[1])
            table = Table(columns=["feature", self._importance], data=rows)
            self._handle.log({"feature_importance": table}, self._last)

    @guarded
    def _at_exit(self) -> None:
        """The process ends: a fit that early stopping ended has ended well; how others did, the exit code says."""
        if _stopped_early(self._model):
            self._end()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_model": None}


def _nothing() -> None:
    return


def _stopped_early(model: Any) -> bool:
    """Whether early stopping has ended a fit."""
    return model is not None and getattr(model, "best_iteration", 0) > 0


def _results(evaluations: Iterable[Any]) -> Iterable[tuple[str, float, bool, float | None]]:
    """LightGBM's evaluations: name, value, whether the largest is the best, standard deviation over the folds."""
    for data, metric, value, larger, *more in evaluations:
        deviation = more[0] if more else None
        if data == "cv_agg":  # of cv, before 4.7
            data, _, metric = metric.partition(" ")
        name = f"{data}-{metric}" if deviation is None else f"{data}-{metric}-mean"
        yield name, float(value), bool(larger), deviation if deviation is None else float(deviation)
