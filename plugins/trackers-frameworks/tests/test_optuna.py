"""The Optuna callback, and a run for each trial, with the real library."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import optuna
import pytest
from trackers_frameworks.optuna import TrackersCallback

import trackers
from tests.frameworks.support import config, only, recorded, results, series
from trackers.errors import UsageError
from trackers.training.init import current

pytestmark = pytest.mark.usefixtures("local_runs")


@pytest.fixture(autouse=True)
def _quiet() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)


def study(**more: Any) -> Any:
    """A study that draws the same values each time."""
    return optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0), **{"study_name": "tuning", **more})


def parabola(trial: Any) -> float:
    """Smallest where x is 2."""
    x = trial.suggest_float("x", -10, 10)
    return float((x - 2) ** 2) + (0 if trial.suggest_categorical("kind", ["a", "b"]) == "a" else 1)


def test_study_is_recorded() -> None:
    """Each trial is a step with its value, the best so far, its parameters and state; the best are results."""
    found = study(direction="minimize")
    with TrackersCallback(project="p", name="study") as tracking:
        found.optimize(parabola, n_trials=6, callbacks=[tracking])
    stored = only()
    values = [trial.value for trial in found.trials]
    assert series(stored, "value") == list(enumerate(values))
    assert [value for _, value in series(stored, "best_value")] == [min(values[: k + 1]) for k in range(6)]
    assert [value for _, value in series(stored, "params/x")] == [trial.params["x"] for trial in found.trials]
    assert stored.texts is not None
    assert stored.texts["params/kind"] == [(trial.number, trial.params["kind"]) for trial in found.trials]
    assert stored.texts["state"] == [(number, "complete") for number in range(6)]
    got = results(stored)
    assert (got["best_value"], got["best_trial"]) == (found.best_value, found.best_trial.number)
    assert (got["best_params/x"], got["best_params/kind"]) == (found.best_params["x"], found.best_params["kind"])
    assert config(stored)["sampler"] == "RandomSampler"
    assert (stored.name, stored.status) == ("study", "finished")


class EverySecond(optuna.pruners.BasePruner):  # type: ignore[misc]
    """Prunes trials of odd numbers at their second report."""

    def prune(self, study: Any, trial: Any) -> bool:
        return trial.number % 2 == 1 and len(trial.intermediate_values) == 2


def training(trial: Any) -> float:
    """Reports three values, and stops where it is pruned."""
    x = trial.suggest_float("x", -10, 10)
    for epoch in range(3):
        trial.report(x * x / (epoch + 1), epoch)
        if trial.should_prune():
            raise optuna.TrialPruned
    return float(x * x)


@pytest.mark.slow
def test_each_trial_has_a_run() -> None:
    """Trials' runs have their parameters, values, reports and states, and the study's group; the study its best."""
    found = study(pruner=EverySecond())
    tracking = TrackersCallback(project="p", name="study")
    seen = []

    def objective(trial: Any, run: Any) -> float:
        assert current() is run
        seen.append(run.id)
        return training(trial)

    with tracking:
        found.optimize(tracking.objective(objective), n_trials=4, callbacks=[tracking])
    parent, *trials = recorded()
    assert len(seen) == len(set(seen)) == 4
    assert parent.name == "study"
    assert [one.name for one in trials] == [f"study-{number}" for number in range(4)]
    for trial, stored in zip(found.trials, trials, strict=True):
        assert (stored.group, stored.status) == ("tuning", "finished")
        assert config(stored)["x"] == trial.params["x"]
        assert series(stored, "intermediate_value") == sorted(trial.intermediate_values.items())
        pruned = trial.number % 2 == 1
        assert results(stored)["state"] == ("pruned" if pruned else "complete")
        assert stored.tags == (["pruned"] if pruned else [])
        assert results(stored).get("value") == (None if pruned else trial.value)
    assert not [name for name in parent.metrics if "intermediate" in name]
    assert results(parent)["best_value"] == found.best_value
    assert parent.texts is not None
    assert [state for _, state in parent.texts["state"]] == ["complete", "pruned"] * 2


def test_reports_without_trials_runs_are_the_studys() -> None:
    """Where a trial has no run, its intermediate values are in the study's."""
    found = study(pruner=EverySecond())
    with TrackersCallback() as tracking:
        found.optimize(training, n_trials=2, callbacks=[tracking])
    for trial in found.trials:
        assert series(only(), f"trial-{trial.number}/intermediate_value") == sorted(trial.intermediate_values.items())


def test_trial_with_a_run_is_pickled() -> None:
    """With its ``report``, which records in the copy, too."""

    def objective(trial: Any, run: Any) -> float:
        trial.report(1.0, 0)
        for number, other in enumerate((copy.deepcopy(trial), pickle.loads(pickle.dumps(trial))), 1):
            other.report(float(number), number)
        return parabola(trial)

    with TrackersCallback() as tracking:
        study().optimize(tracking.objective(objective), n_trials=1, callbacks=[tracking])
    (trial,) = [one for one in recorded() if one.name.endswith("-0")]
    assert series(trial, "intermediate_value") == [(0, 1.0), (1, 1.0), (2, 2.0)]


def test_failed_trials() -> None:
    """A trial that raises is a failed run; the study goes on where it catches that, else its run fails too."""

    def broken(trial: Any, run: Any) -> float:
        if trial.number == 1:
            raise RuntimeError("no memory")
        return parabola(trial)

    tracking = TrackersCallback()
    with tracking:
        study().optimize(tracking.objective(broken), n_trials=3, callbacks=[tracking], catch=RuntimeError)
    assert [one.status for one in recorded()] == ["finished", "finished", "failed", "finished"]
    with pytest.raises(RuntimeError, match="no memory"), tracking:
        study(study_name="second").optimize(tracking.objective(broken), n_trials=3, callbacks=[tracking])
    assert [one.status for one in recorded()[4:]] == ["failed", "finished", "failed"]


@pytest.mark.slow
def test_users_run_stays_current() -> None:
    """In the user's run the study is recorded beside what else it has, and it is current again after each trial."""
    run = trackers.init("json", project="mine", name="all")
    tracking = TrackersCallback()
    first, second = study(), study(study_name="second")
    for one in (first, second):
        one.optimize(tracking.objective(lambda trial, run: parabola(trial)), n_trials=2, callbacks=[tracking])
        assert current() is run
    assert not run.finished
    run.finish()
    stored = recorded()[0]
    assert series(stored, "value") == [(trial.number, trial.value) for trial in first.trials]
    assert series(stored, "fit-2/value") == [(trial.number, trial.value) for trial in second.trials]
    assert {one.name for one in recorded()} == {"all", "all-0", "all-1"}


@pytest.mark.filterwarnings("ignore:.*set_metric_names is experimental")
def test_several_objectives_and_threads() -> None:
    """Each objective's value has its name; trials in threads are all there."""
    found = study(directions=["minimize", "maximize"])
    found.set_metric_names(["loss", "speed"])
    with TrackersCallback() as tracking:

        def objective(trial: Any, run: Any) -> tuple[float, float]:
            x = trial.suggest_float("x", 0, 1)
            return x, x * x

        found.optimize(tracking.objective(objective), n_trials=6, n_jobs=2, callbacks=[tracking])
    parent, *trials = recorded()
    assert sorted(series(parent, "speed")) == [(trial.number, trial.values[1]) for trial in found.trials]
    assert len(trials) == 6
    assert sorted(results(one)["loss"] for one in trials) == sorted(trial.values[0] for trial in found.trials)
    best = {str(trial.number) for trial in found.best_trials}
    assert set(results(parent)["best_trials"].split(", ")) == best


def test_faults_before_and_in_training(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A setting that can't be ends the first trial; a fault later is one line, and the study goes on."""
    tracking = TrackersCallback("jsn")
    with pytest.raises(UsageError, match="unknown tracker 'jsn'"):
        study().optimize(tracking.objective(lambda trial, run: 0.0), n_trials=1)

    def broken(*arguments: Any) -> Any:
        raise OSError("no such disk")

    tracking = TrackersCallback()
    monkeypatch.setattr(tracking._handle, "log", broken)
    capsys.readouterr()
    found = study()
    with tracking:
        found.optimize(parabola, n_trials=2, callbacks=[tracking])
    assert len(found.trials) == 2
    assert only().status == "finished"
    assert sum("training goes on" in line for line in capsys.readouterr().err.splitlines()) == 1
