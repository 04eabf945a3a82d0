"""The Stable-Baselines3 callback and output format with the real library."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import gymnasium
import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from stable_baselines3 import A2C, DQN
from stable_baselines3.common import logger as loggers
from stable_baselines3.common.callbacks import BaseCallback, EvalCallback
from stable_baselines3.common.monitor import Monitor
from trackers_frameworks.stable_baselines3 import TrackersCallback, TrackersOutputFormat

import trackers
from tests.frameworks import test_stopping as stopping
from tests.frameworks.support import config, directories, only, recorded, results, series
from trackers.errors import UsageError
from trackers.training.run import Run

pytestmark = pytest.mark.usefixtures("local_runs")


def algorithm(**more: Any) -> Any:
    """A small A2C on CartPole that logs each iteration."""
    torch.set_num_threads(1)
    return A2C("MlpPolicy", "CartPole-v1", n_steps=8, seed=0, device="cpu", policy_kwargs={"net_arch": [4]}, **more)


@pytest.mark.slow
def test_training_is_recorded() -> None:
    """What Stable-Baselines3 logs, as its CSV has it, each episode, the settings, the best reward and the model."""
    model = algorithm(learning_rate=0.01)
    model.set_logger(loggers.configure("log", ["csv"]))
    evaluating = EvalCallback(Monitor(gymnasium.make("CartPole-v1")), eval_freq=100, n_eval_episodes=2, verbose=0)
    model.learn(300, log_interval=5, callback=[TrackersCallback(name="first", log_model=True), evaluating])
    stored = only()
    rows = list(csv.DictReader(Path("log/progress.csv").read_text().splitlines()))
    for name in ("rollout/ep_rew_mean", "eval/mean_reward", "time/iterations"):
        theirs = [float(row[name]) for row in rows if row[name]]
        assert len(theirs) >= 3
        assert [value for _, value in series(stored, name)] == pytest.approx(theirs), name
    assert [step for step, _ in series(stored, "eval/mean_reward")] == [100, 200, 300]
    episodes = series(stored, "episode/return")
    assert [value for _, value in series(stored, "episode/length")] == [value for _, value in episodes]
    assert sum(value for _, value in episodes) <= 300
    found = config(stored)
    assert (found["algorithm"], found["n_steps"], found["env"]) == ("A2C", 8, "CartPole-v1")
    assert (found["learning_rate"], found["gamma"]) == (0.01, 0.99)
    assert results(stored)["eval/mean_reward"] == evaluating.best_mean_reward
    assert (stored.name, stored.status) == ("first", "finished")
    (artifact,) = trackers.load(str(directories()[0])).artifacts()
    Path("kept.zip").write_bytes(Path(directories()[0], artifact.files[0].file).read_bytes())
    kept = A2C.load("kept.zip", device="cpu")
    weights = kept.policy.state_dict()
    assert all(torch.equal(weights[name], value) for name, value in model.policy.state_dict().items())


@pytest.mark.slow
def test_further_training_goes_on() -> None:
    """In the user's run a continued training goes on at its time steps; a new model has names of its own."""
    run = trackers.init("json", project="p")
    model = algorithm()
    model.learn(80, log_interval=5, callback=TrackersCallback())
    model.learn(80, log_interval=5, callback=TrackersCallback(), reset_num_timesteps=False)
    DQN("MlpPolicy", "CartPole-v1", learning_starts=10, seed=0, device="cpu").learn(60, callback=TrackersCallback())
    assert not run.finished
    run.finish()
    stored = only()
    assert [step for step, _ in series(stored, "time/iterations")] == [40, 80, 120, 160]
    assert config(stored)["fit-2"]["algorithm"] == "DQN"
    assert results(stored)["fit-2/num_timesteps"] == 60
    assert not any(type(one).__name__ == "_Shared" for one in model.logger.output_formats)


class Broken(BaseCallback):  # type: ignore[misc]
    """Fails at the tenth step."""

    def _on_step(self) -> bool:
        if self.num_timesteps == 10:
            raise RuntimeError("no simulator")
        return True


@pytest.mark.slow
def test_failed_training_is_a_failed_run() -> None:
    """In a ``with`` block at once; without one when the next training begins."""
    with pytest.raises(RuntimeError, match="no simulator"), TrackersCallback() as tracking:
        algorithm().learn(40, callback=[tracking, Broken()])
    tracking = TrackersCallback()
    with pytest.raises(RuntimeError, match="no simulator"):
        algorithm().learn(40, callback=[tracking, Broken()])
    algorithm().learn(40, callback=tracking)
    assert [one.status for one in recorded()] == ["failed", "failed", "finished"]


def test_output_format_takes_every_value() -> None:
    """Numbers, texts, histograms, videos, figures, images and hyperparameters, as TensorBoard's format takes them."""
    figure = plt.figure()
    logger = loggers.Logger(None, [TrackersOutputFormat(project="p")])
    logger.record("loss", np.float32(0.5))
    logger.record("note", "good")
    logger.record("weights", torch.arange(4.0))
    logger.record("video", loggers.Video(torch.zeros(1, 3, 3, 4, 4, dtype=torch.uint8), fps=20))
    logger.record("figure", loggers.Figure(figure, close=True))
    logger.record("image", loggers.Image(np.zeros((3, 4, 5)), "CHW"))
    logger.record("images", loggers.Image(np.zeros((2, 4, 5, 3)), "NHWC"))
    logger.record("hparams", loggers.HParam({"lr": 0.1}, {"score": 3.0}))
    logger.record("hidden", 1.0, exclude="trackers")
    logger.dump(7)
    logger.close()
    stored = only()
    assert series(stored, "loss") == [(7, 0.5)]
    assert stored.texts == {"note": [(7, "good")]}
    assert "hidden" not in stored.metrics
    assert (config(stored)["lr"], results(stored)["score"]) == (0.1, 3.0)
    media = {one.name: (one.type, len(one.items)) for one in trackers.load(str(directories()[0])).media()}
    assert media == {"weights": ("histogram", 1), "video": ("video", 1), "figure": ("image", 1), "image": ("image", 1),
                     "images": ("image", 2)}  # fmt: skip
    plt.close(figure)


def test_faults_before_and_in_training(capsys: pytest.CaptureFixture[str]) -> None:
    """A setting that can't be is an error before the first step; a value that can't be kept is one line."""
    with pytest.raises(UsageError, match="unknown tracker 'jsn'"):
        algorithm().learn(40, callback=TrackersCallback("jsn"))
    model = algorithm()

    class Odd(BaseCallback):  # type: ignore[misc]
        def _on_step(self) -> bool:
            self.logger.record("odd", loggers.Image("no image", "HWC"))
            return True

    capsys.readouterr()
    model.set_logger(loggers.Logger(None, []))
    model.learn(40, log_interval=1, callback=[TrackersCallback(), Odd()])
    assert model.num_timesteps == 40
    assert only().status == "finished"
    assert len(series(only(), "time/iterations")) == 5
    assert sum("training goes on" in line for line in capsys.readouterr().err.splitlines()) == 1


run = stopping.run


def test_training_stops_after_the_step(run: Run) -> None:
    """Of ten thousand steps a few are taken; the model is kept."""
    model = A2C("MlpPolicy", "CartPole-v1", device="cpu", n_steps=5)
    model.learn(10_000, callback=TrackersCallback())
    assert model.num_timesteps < 10
    stopping.ended(run, "checkpoint.zip")
