"""XGBoost: a callback for ``xgboost.train``, ``xgboost.cv`` and its scikit-learn estimators.

    booster = xgboost.train(parameters, data, evals=[(test, "test")], callbacks=[TrackersCallback("json")])

Metrics keep XGBoost's names (``test-rmse``; of ``cv`` ``test-rmse-mean`` and ``test-rmse-std``), the step is the
boosting round. The booster's parameters are the configuration. ``final/`` has the best value of each metric, the best
iteration and score of early stopping, and the number of rounds. Of several ranks rank 0 alone records.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy
from xgboost import collective
from xgboost.callback import TrainingCallback

from trackers.frameworks.shared import guarded
from trackers.media import Table
from trackers_frameworks.fits import Fits, TracksFits, number_or_text

LARGER_IS_BETTER = ("auc", "aucpr", "pre", "map", "ndcg")
"""XGBoost's built-in metrics that its early stopping maximizes; ``ndcg@10`` and ``map-`` belong to them."""


class TrackersCallback(TracksFits, TrainingCallback):  # type: ignore[misc]
    """Records each boosting round.

    Args:
        trackers, run, init: as for :class:`trackers.frameworks.shared.RunHandle`.
        log_model: keep the trained booster as an artifact (``model.ubj``).
        importance: the kind of feature importance that is recorded as a table after training: "gain", "weight",
            "cover", "total_gain", "total_cover", or "" for none.
    """

    def __init__(
        self, trackers: Any = None, *, run: Any = None, log_model: bool = False, importance: str = "gain", **init: Any
    ) -> None:
        TrainingCallback.__init__(self)
        self._handle = Fits(trackers, run=run, **init)
        self._log_model, self._importance = log_model, importance
        self._first = 0
        self._evals_log: Any = {}

    def before_training(self, model: Any) -> Any:
        """A fit begins (XGBoost calls this)."""
        self._begin(model)
        return model

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        """A round has ended (XGBoost calls this)."""
        self._round(epoch, evals_log)
        return bool(self._stops(model))

    @guarded
    def _stops(self, model: Any) -> bool:
        """Whether the run is asked to stop; the booster is kept if it is asked to save. Workers don't agree on it."""
        if collective.get_world_size() > 1:
            return False
        asked = self._handle.asked()
        boosters = _boosters(model)
        if asked.save and len(boosters) == 1:
            self._handle.keep("checkpoint.ubj", boosters[0].save_model, framework="xgboost")
        return asked.stop

    def after_training(self, model: Any) -> Any:
        """A fit has ended (XGBoost calls this)."""
        self._end(model)
        return model

    @guarded
    def _begin(self, model: Any) -> None:
        self._rank = collective.get_rank()
        if self._rank:
            return
        self._first, self._rows, self._evals_log = int(model.num_boosted_rounds()), 0, {}
        self._handle.begin(parameters(_boosters(model)[0]))

    @guarded
    def _round(self, epoch: int, evals_log: Any) -> None:
        if self._rank:
            return
        self._evals_log = evals_log
        self._record()

    def _record(self) -> None:
        """Rows that aren't recorded yet: one a round; more where an earlier callback ended the round before us."""
        series = dict(_series(self._evals_log))
        for row in range(self._rows, max(map(len, series.values()), default=0)):
            if not row:
                scores = [name for name in series if not name.endswith("-std")]
                self._handle.define(scores, self._first, larger_is_better)
            values = {name: values[row] for name, values in series.items() if row < len(values)}
            self._handle.log(values, self._first + row)
            self._rows = row + 1

    @guarded
    def _end(self, model: Any) -> None:
        if self._rank:
            return
        try:
            self._record()
            boosters = _boosters(model)
            stopped = {name: number_or_text(model.attr(name)) for name in ("best_iteration", "best_score")}
            self._handle.results({**stopped, "num_boosted_rounds": int(model.num_boosted_rounds())})
            if len(boosters) == 1:
                self._importances(boosters[0])
                if self._log_model:
                    self._handle.keep("model.ubj", boosters[0].save_model, framework="xgboost")
        finally:
            self._handle.end()

    def _importances(self, booster: Any) -> None:
        scores = booster.get_score(importance_type=self._importance) if self._importance else {}
        rows = sorted(scores.items(), key=lambda item: -_total(item[1]))
        if rows:
            table = Table(columns=["feature", self._importance], data=[[name, _total(value)] for name, value in rows])
            self._handle.log({"feature_importance": table}, max(self._first + self._rows - 1, 0))


def parameters(booster: Any) -> dict[str, Any]:
    """A booster's parameters by name, as XGBoost has them after its defaults; numbers as numbers."""
    settings: dict[str, Any] = {}

    def walk(values: Any) -> None:
        for name, value in values.items() if isinstance(values, Mapping) else ():
            if name.endswith("_param") and isinstance(value, Mapping):
                settings.update({key: _parameter(text) for key, text in value.items() if isinstance(text, str)})
            walk(value)

    learner = json.loads(booster.save_config())["learner"]
    walk(learner)
    settings["objective"] = learner["objective"]["name"]
    return settings


def larger_is_better(name: str) -> bool:
    """Whether a metric's best value is its largest, as XGBoost's early stopping takes it."""
    metric = name.split("-")[1] if "-" in name else name
    return metric.partition("@")[0] in LARGER_IS_BETTER


def _boosters(model: Any) -> list[Any]:
    return [fold.bst for fold in model.cvfolds] if hasattr(model, "cvfolds") else [model]


def _series(evals_log: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, list[float]]]:
    for data, metrics in evals_log.items():
        for metric, values in metrics.items():
            if values and isinstance(values[0], tuple):
                yield f"{data}-{metric}-mean", [float(mean) for mean, _ in values]
                yield f"{data}-{metric}-std", [float(deviation) for _, deviation in values]
            else:
                yield f"{data}-{metric}", [float(value) for value in values]


def _parameter(text: str) -> Any:
    """A parameter as a number where it is one; XGBoost writes its single-precision floats with double's digits."""
    value = number_or_text(text)
    return float(str(numpy.float32(value))) if isinstance(value, float) else value


def _total(value: Any) -> float:
    return float(sum(value)) if isinstance(value, list) else float(value)
