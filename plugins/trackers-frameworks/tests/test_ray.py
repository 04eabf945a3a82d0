"""The Ray Tune callback and Ray Train's runs with the real library."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

os.environ["RAY_AUTH_MODE"] = "disabled"  # it would keep a token in the home of the first test
import ray
from ray import tune
from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer
from trackers_frameworks.ray import TrackersCallback, worker_run

import trackers
from tests.frameworks.support import config, only, recorded, results, series
from trackers.errors import UsageError
from trackers.journal.run_directory import find_runs
from trackers.journal.status import observe
from trackers.support import run_requests
from trackers.training import stopping

pytestmark = [pytest.mark.usefixtures("local_runs", "cluster"), pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Ray on two processors of this machine, gone afterwards."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=80 * 1024**2)
    yield
    ray.shutdown()


def objective(settings: dict[str, Any]) -> None:
    """Three reports, nested; trials of a negative rate fail at the second."""
    for step in range(3):
        if step == 1 and settings["rate"] < 0:
            raise RuntimeError("no memory")
        tune.report({"loss": settings["rate"] / (step + 1), "train": {"accuracy": step / 4}})


def tuned(callback: TrackersCallback, rates: list[float]) -> Any:
    """An experiment of one trial for each rate."""
    place = str(Path("results").absolute())
    running = tune.RunConfig(name="rates", storage_path=place, callbacks=[callback], verbose=0)
    return tune.Tuner(objective, param_space={"rate": tune.grid_search(rates)}, run_config=running).fit()


def test_each_trial_has_a_run() -> None:
    """Reports at Tune's iterations, the trial's configuration, the last report as result; one group; a failure."""
    found = tuned(TrackersCallback(project="tuning", tags=["a"]), [0.5, 1.0, -1.0])
    runs = {config(one)["rate"]: one for one in recorded()}
    assert len(found) == len(runs) == 3
    for rate in (0.5, 1.0):
        stored = runs[rate]
        assert series(stored, "loss") == [(1, rate), (2, rate / 2), (3, rate / 3)]
        assert results(stored)["loss"] == rate / 3
        assert results(stored)["train/accuracy"] == 0.5
        assert (stored.group, stored.status, stored.tags) == ("rates", "finished", ["a"])
    assert runs[-1.0].status == "failed"
    assert series(runs[-1.0], "loss") == [(1, -1.0)]


def test_fault_of_the_callback_never_stops_the_experiment(capsys: pytest.CaptureFixture[str]) -> None:
    """A fault on our side is one line, and the experiment goes on."""
    callback = TrackersCallback()
    callback._runs = None  # type: ignore[assignment]
    callback._handle.begun = True
    assert not tuned(callback, [0.5]).errors
    assert sum("TrackersCallback.log_trial_start" in line for line in capsys.readouterr().err.splitlines()) == 1


def test_train_records_on_rank_zero() -> None:
    """Of two workers that of rank 0 records, where it is told to."""

    def loop(settings: dict[str, Any]) -> None:
        if ray.train.get_context().get_world_rank() == 0:
            with pytest.raises(UsageError, match="an absolute path"):
                worker_run("json", dir="runs")
        with worker_run("json", project="training", dir=settings["dir"], config=settings, inline=True) as run:
            for step in range(2):
                run.log({"loss": settings["rate"] / (step + 1)}, step=step)
                ray.train.report({"loss": 1.0})

    place = str(Path("results").absolute())
    trainer = TorchTrainer(
        loop,
        train_loop_config={"rate": 0.5, "dir": str(Path("runs").absolute())},
        scaling_config=ScalingConfig(num_workers=2, use_gpu=False),
        run_config=ray.train.RunConfig(name="workers", storage_path=place),
    )
    trainer.fit()
    stored = only()
    assert series(stored, "loss") == [(0, 0.5), (1, 0.25)]
    assert config(stored)["rate"] == 0.5
    assert (stored.name, stored.status) == ("workers", "finished")


def until_killed(settings: dict[str, Any]) -> None:
    """Eight steps in a worker, from the one behind the checkpoint; rank 1 of the first start dies at the fifth."""
    place = Path(settings["dir"], "step")
    first = int(place.read_text()) if place.exists() else 0
    context = ray.train.get_context()
    rank, workers = context.get_world_rank(), context.get_world_size()
    begin = {"dir": settings["dir"], "resume": "auto", "step": first - 1 if first else None}
    with worker_run("json", project="training", **begin) as run:
        for step in range(first, 8):
            values = {"mean": trackers.Mean(float(step + rank), 1), "ranks": trackers.Sum(1)}
            run.log({"loss": 1 / (step + 1), "workers": workers, **values}, step=step)
            if rank == 1 and step == 4 and not first:
                os.kill(os.getpid(), signal.SIGKILL)
            ray.train.report({"loss": 1.0})  # waits for all workers
            if rank == 0:
                place.write_text(str(step + 1))
        if rank == 0:
            run.finish(timeout=120)


def trainer(workers: int, failures: int) -> TorchTrainer:
    """Trains so in the directory "runs"."""
    Path("runs").mkdir(exist_ok=True)
    return TorchTrainer(
        until_killed,
        train_loop_config={"dir": str(Path("runs").absolute())},
        scaling_config=ScalingConfig(num_workers=workers, use_gpu=False),
        run_config=ray.train.RunConfig(
            name="restarted", storage_path=str(Path(f"results-{workers}").absolute()),
            failure_config=ray.train.FailureConfig(max_failures=failures),
        ),
    )  # fmt: skip


def test_train_goes_on_with_its_run_after_a_worker_died() -> None:
    """Ray starts all workers again: the same run, a new attempt, from the step of the checkpoint; values across ranks
    are of both workers at every step."""
    trainer(2, failures=2).fit()
    stored = only()
    steps = list(range(8))
    assert series(stored, "loss") == [(step, 1 / (step + 1)) for step in steps]
    assert series(stored, "mean") == [(step, step + 0.5) for step in steps]
    assert series(stored, "ranks") == [(step, 2.0) for step in steps]
    assert (stored.name, stored.status) == ("restarted", "finished")
    (run,) = find_runs(Path("runs"))
    assert len(run.read_info().attempts) == 2


def test_train_goes_on_with_fewer_workers() -> None:
    """Two workers, one of which dies; what is started again has one: the same run, with values of those there are."""
    with pytest.raises(Exception, match=r"(?s).*"):
        trainer(2, failures=0).fit()
    (run,) = find_runs(Path("runs"))
    assert observe(run).name in ("crashed", "failed", "preempted")
    first = int(Path("runs/step").read_text())
    assert first > 0
    trainer(1, failures=0).fit()
    stored = only()
    assert series(stored, "mean") == [(step, step + (0.5 if step < first else 0.0)) for step in range(8)]
    assert series(stored, "ranks") == series(stored, "workers") == [(step, 2.0 if step < first else 1.0)
                                                                    for step in range(8)]  # fmt: skip
    assert stored.status == "finished"
    assert len(run.read_info().attempts) == 2


def test_trial_that_is_asked_to_stop_ends_with_its_next_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """As by Tune's own stopping criterion; it ends as stopped, and the other trials are trained to their end."""
    monkeypatch.setattr(stopping, "READ_S", 0.0)

    class Asked(TrackersCallback):
        def log_trial_start(self, trial: Any) -> None:
            super().log_trial_start(trial)
            if trial.config["rate"] == 1.0:
                asked = run_requests.new_request(1, stop=True, checkpoint=False, who="alice", by="trackers stop")
                run_requests.ask(Path(self._runs[trial.trial_id].path), asked)

    assert not tuned(Asked(project="tuning"), [0.5, 1.0]).errors
    runs = {config(one)["rate"]: one for one in recorded()}
    assert [step for step, _ in series(runs[0.5], "loss")] == [1, 2, 3]
    assert len(series(runs[1.0], "loss")) < 3
    statuses = {run.read_info().config["rate"]: observe(run) for run in find_runs(Path("runs"))}
    assert {rate: status.name for rate, status in statuses.items()} == {0.5: "finished", 1.0: "stopped"}
    assert statuses[1.0].reason == "by alice (trackers stop)"
