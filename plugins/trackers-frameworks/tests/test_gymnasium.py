"""The Gymnasium wrappers with real environments."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import gymnasium
import numpy as np
import pytest
from trackers_frameworks.gymnasium import MOST_FRAMES, TrackersVectorWrapper, TrackersWrapper

import trackers
from tests.frameworks.support import config, directories, only, recorded, results, series
from trackers.errors import UsageError

pytestmark = pytest.mark.usefixtures("local_runs")


class Countdown(gymnasium.Env):  # type: ignore[misc]
    """Episodes of three steps with rewards 1, 2 and 3, and a picture of each step."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 5}  # noqa: RUF012 - Gymnasium's name
    observation_space = gymnasium.spaces.Discrete(4)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, pictures: bool = True, length: int = 3) -> None:
        self.render_mode = "rgb_array"
        self.pictures, self.length, self.at = pictures, length, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.at = 0
        return self.at, {}

    def step(self, action: Any) -> Any:
        self.at += 1
        return min(self.at, 3), float(self.at), self.at == self.length, False, {}

    def render(self) -> Any:
        return np.full((8, 6, 3), self.at % 256, np.uint8) if self.pictures else None


def play(env: Any, episodes: int) -> None:
    """Play whole episodes."""
    for _ in range(episodes):
        env.reset(seed=0)
        ended = False
        while not ended:
            _, _, terminated, truncated, _ = env.step(0)
            ended = terminated or truncated


@pytest.mark.parametrize("video_every", [0, 2])
def test_environment_can_be_copied_and_pickled(video_every: int) -> None:
    """Before and while it is played; copies play on."""
    env = TrackersWrapper(Countdown(), video_every=video_every)
    for _ in range(2):
        for other in (copy.deepcopy(env), pickle.loads(pickle.dumps(env))):
            other.reset()
            other.step(0)
            other.close()
        env.reset()
        env.step(0)
    env.close()


def test_episodes_and_videos_are_recorded() -> None:
    """Each episode's return and length at the environment's steps; videos of those that were asked for, whole."""
    env = TrackersWrapper(Countdown(), name="first", video_every=2)
    play(env, 3)
    env.close()
    stored = only()
    assert series(stored, "episode/return") == [(3, 6.0), (6, 6.0), (9, 6.0)]
    assert series(stored, "episode/length") == [(3, 3), (6, 3), (9, 3)]
    assert config(stored) == {"env": "Countdown"}
    assert (results(stored)["episodes"], results(stored)["steps"]) == (3, 9)
    assert (stored.name, stored.status) == ("first", "finished")
    videos = trackers.load(str(directories()[0])).media()
    assert [(one.name, one.step, one.items[0].fps) for one in videos] == [
        ("episode/video", 3, 5),
        ("episode/video", 9, 5),
    ]
    frames = np.load(directories()[0] / videos[0].items[0].file)
    assert frames.shape == (4, 8, 6, 3)
    assert frames[:, 0, 0, 0].tolist() == [0, 1, 2, 3]


def test_registered_environment_in_the_users_run() -> None:
    """Returns equal those of Gymnasium's own statistics; the environment's id is recorded; the run stays open."""
    run = trackers.init("json", project="p")
    inner = gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.make("CartPole-v1", max_episode_steps=50))
    env = TrackersWrapper(inner)
    play(env, 4)
    env.close()
    assert not run.finished
    run.finish()
    assert [value for _, value in series(only(), "episode/return")] == list(inner.return_queue)
    assert (config(only())["env"], config(only())["max_episode_steps"]) == ("CartPole-v1", 50)


def test_vector_of_environments() -> None:
    """Episodes of all environments are recorded, with Gymnasium's statistics around them already or not."""
    for wrapped in (False, True):
        envs: Any = gymnasium.make_vec("CartPole-v1", num_envs=3, vectorization_mode="sync")
        if wrapped:
            envs = gymnasium.wrappers.vector.RecordEpisodeStatistics(envs)
        envs = TrackersVectorWrapper(envs, project="vector")
        envs.reset(seed=0)
        lengths = []
        for _ in range(60):
            _, _, _, _, infos = envs.step(np.zeros(3, int))
            lengths += [int(length) for length, ended in zip(*_ended(infos), strict=True) if ended]
        envs.close()
        stored = recorded()[-1]
        assert len(lengths) > 10
        assert [value for _, value in series(stored, "episode/length")] == lengths
        assert config(stored)["num_envs"] == 3


def _ended(infos: Any) -> tuple[Any, Any]:
    return (infos["episode"]["l"], infos["_episode"]) if "_episode" in infos else ([], [])


def test_long_episode_has_a_bounded_video() -> None:
    """A video has so many frames at most."""
    env = TrackersWrapper(Countdown(length=MOST_FRAMES + 50), video_every=lambda episode: True)
    play(env, 1)
    env.close()
    (video,) = trackers.load(str(directories()[0])).media()
    assert np.load(directories()[0] / video.items[0].file).shape[0] == MOST_FRAMES


def test_faults_before_and_in_training(capsys: pytest.CaptureFixture[str]) -> None:
    """A setting that can't be is an error at the first reset; an environment without pictures costs the video alone."""
    with pytest.raises(UsageError, match="unknown tracker 'jsn'"):
        TrackersWrapper(Countdown(), "jsn").reset()
    env = TrackersWrapper(Countdown(pictures=False), video_every=1)
    play(env, 2)
    env.close()
    assert len(series(only(), "episode/return")) == 2
    assert sum("training goes on" in line for line in capsys.readouterr().err.splitlines()) == 1
