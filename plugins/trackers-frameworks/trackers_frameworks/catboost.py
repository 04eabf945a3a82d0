"""CatBoost: a callback for its estimators' ``fit``.

    with TrackersCallback("json", project="prices") as tracking:
        model = tracking.fit(CatBoostRegressor(iterations=100), features, target, eval_set=test)

``fit`` passes the callback on by itself. CatBoost tells its callbacks the metrics alone, so with
``model.fit(…, callbacks=[tracking])`` parameters, best values and the model are recorded by ``tracking.fitted(model)``.

Metrics are named after CatBoost's data set and metric (``learn-RMSE``, ``validation-RMSE``), the step is the iteration,
from 0 on as in CatBoost's own logs. CatBoost takes callbacks on CPUs only.
"""

from __future__ import annotations

from typing import Any

from trackers.frameworks.shared import guarded
from trackers.media.table import Table
from trackers_frameworks.fits import Fits, TracksFits


class TrackersCallback(TracksFits):
    """Records each iteration.

    Where no run is open, each fit begins one. It ends with ``fitted``, which ``fit`` calls, else with the next fit,
    ``finish``, or the process; in a ``with`` block all fits have one run.

    Args:
        trackers, run, init: as for :class:`trackers.frameworks.shared.RunHandle`.
        log_model: keep the trained model as an artifact (``model.cbm``).
        importance: record the importance of features as a table after training.
    """

    def __init__(
        self, trackers: Any = None, *, run: Any = None, log_model: bool = False, importance: bool = True, **init: Any
    ) -> None:
        self._handle = Fits(trackers, run=run, **init)
        self._log_model, self._importance = log_model, importance
        self._begun = False
        self._last = 0

    def fit(self, model: Any, *arguments: Any, **more: Any) -> Any:
        """Fit a model with this callback, and record its parameters, results and importances.

        Args:
            arguments, more: as for the model's ``fit``.

        Returns:
            the model. What ``fit`` raises is raised, and the run of the fit has failed.
        """
        self._begin(model.get_params())
        try:
            model.fit(*arguments, **more, callbacks=[*(more.pop("callbacks", None) or ()), self])
        except BaseException as error:
            self._begun = False
            self._handle.end_failed(error)
            raise
        self.fitted(model)
        return model

    def after_iteration(self, info: Any) -> bool:
        """An iteration has ended (CatBoost calls this)."""
        if not self._begun or info.iteration <= self._last:
            self._begin({})
        self._iteration(info)
        return True

    @guarded
    def fitted(self, model: Any) -> None:
        """Record a model's parameters, best values and importances after a fit, which is over then."""
        self._begun = False
        if not self._handle.is_open:
            return
        try:
            self._handle.run.config.setdefaults(self._under_prefix(model.get_all_params()))
            scores = {f"{data}-{metric}": value for data, by_metric in (model.best_score_ or {}).items()
                      for metric, value in by_metric.items()}  # fmt: skip
            self._handle.results({**scores, "best_iteration": model.best_iteration_, "tree_count": model.tree_count_})
            if self._importance:
                rows = sorted(zip(model.feature_names_, map(float, model.get_feature_importance()), strict=True),
                              key=lambda row: -row[1])  # fmt: skip
                table = Table(columns=["feature", "importance"], data=[list(row) for row in rows])
                self._handle.log({"feature_importance": table}, max(self._last - 1, 0))
            if self._log_model:
                self._handle.keep("model.cbm", lambda path: model.save_model(str(path)), framework="catboost")
        finally:
            self._handle.end()

    @guarded
    def _begin(self, config: Any) -> None:
        self._handle.end()
        self._begun, self._last = True, 0
        self._handle.begin(config)

    @guarded
    def _iteration(self, info: Any) -> None:
        self._last = info.iteration
        values = {f"{data}-{metric}": values[-1] for data, metrics in info.metrics.items()
                  for metric, values in metrics.items() if values}  # fmt: skip
        self._handle.log(values, info.iteration - 1)

    def _under_prefix(self, config: dict[str, Any]) -> dict[str, Any]:
        prefix = self._handle.prefix
        return {prefix.rstrip("/"): config} if prefix else config
