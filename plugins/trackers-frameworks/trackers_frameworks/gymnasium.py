"""Gymnasium: wrappers that record the episodes of an environment, with videos.

    env = TrackersWrapper(gymnasium.make("CartPole-v1", render_mode="rgb_array"), "json", video_every=100)

Each episode's return, length and duration are recorded (``episode/return``, ``episode/length``,
``episode/seconds``) at the number of the environment's steps so far. A video is made of the frames that ``render``
returns, without MoviePy. Of a vector of environments, ``TrackersVectorWrapper`` records the episodes of all of them; a
step there is one of each.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import gymnasium

from trackers.frameworks.shared import guarded
from trackers.media import Video
from trackers.support.interruption import pass_on
from trackers_frameworks.fits import Fits, TracksFits

MOST_FRAMES = 1000
"""Maximum number of frames of a video; a longer episode's later frames are left out."""


class TrackersWrapper(TracksFits, gymnasium.Wrapper):  # type: ignore[misc]
    """Records each episode of an environment.

    The run begins with the first ``reset``; where it was begun here, it ends with ``close``.

    Args:
        env: the environment; for videos with ``render_mode="rgb_array"``.
        trackers, run, init: as for :class:`trackers.frameworks.shared.RunHandle`.
        video_every: record a video of each so many episodes, of the first one on; 0: none. Or a function of the
            episode's number, from 0 on, that says whether to.
    """

    def __init__(
        self,
        env: Any,
        trackers: Any = None,
        *,
        run: Any = None,
        video_every: int | Callable[[int], bool] = 0,
        **init: Any,
    ) -> None:
        gymnasium.Wrapper.__init__(self, env)
        self._handle = Fits(trackers, run=run, **init)
        self._video_every = video_every if callable(video_every) else int(video_every)
        self._steps = self._episodes = self._length = 0
        self._return = 0.0
        self._began_s = 0.0
        self._frames: list[Any] | None = None

    def reset(self, **arguments: Any) -> Any:
        """Begin an episode; the run begins with the first one."""
        answer = super().reset(**arguments)
        self._begin()
        return answer

    def step(self, action: Any) -> Any:
        """Take a step in the environment; the last one of an episode is recorded."""
        answer = super().step(action)
        self._stepped(float(answer[1]), bool(answer[2] or answer[3]))
        return answer

    def close(self) -> None:
        """Close the environment, and end the run if it was begun here."""
        super().close()
        self._end()

    @guarded
    def _begin(self) -> None:
        if not self._handle.is_open:
            self._handle.begin(settings(self.env))
            self._handle.settle()
        self._return, self._length, self._began_s = 0.0, 0, time.perf_counter()
        self._frames = [] if self._is_recorded(self._episodes) else None
        self._capture()

    def _is_recorded(self, episode: int) -> bool:
        every = self._video_every
        return every(episode) if callable(every) else every > 0 and episode % every == 0

    @guarded
    def _stepped(self, reward: float, ended: bool) -> None:
        self._steps += 1
        self._length += 1
        self._return += reward
        self._capture()
        if not ended:
            return
        values: dict[str, Any] = {"episode/return": self._return, "episode/length": self._length}
        values["episode/seconds"] = time.perf_counter() - self._began_s
        self._episodes += 1
        frames, self._frames = self._frames, None
        self._handle.log(values, self._steps)
        if frames:
            import numpy

            rate = float(self.env.metadata.get("render_fps") or 30)
            self._handle.log({"episode/video": Video(numpy.stack(frames), fps=rate)}, self._steps)

    def _capture(self) -> None:
        """Take a frame where this episode is filmed; an environment that can't be drawn costs the video alone."""
        if self._frames is None or len(self._frames) >= MOST_FRAMES:
            return
        try:
            frame = self.env.render()
            if getattr(frame, "ndim", 0) != 3:
                raise TypeError('render() gave no picture: make the environment with render_mode="rgb_array"')
            self._frames.append(frame)
        except Exception as error:
            pass_on(error)
            self._frames = None
            self._handle.say(f"TrackersWrapper: no video: {error}; training goes on")

    @guarded
    def _end(self) -> None:
        self._handle.results({"episodes": self._episodes, "steps": self._steps})
        self._handle.end()


class TrackersVectorWrapper(TracksFits, gymnasium.vector.VectorWrapper):  # type: ignore[misc]
    """Records each episode of a vector of environments, by Gymnasium's own ``RecordEpisodeStatistics``.

    Args:
        envs: the environments, with that wrapper around them or without.
        trackers, run, init: as for :class:`trackers.frameworks.shared.RunHandle`.
    """

    def __init__(self, envs: Any, trackers: Any = None, *, run: Any = None, **init: Any) -> None:
        if _lacks_statistics(envs):
            envs = gymnasium.wrappers.vector.RecordEpisodeStatistics(envs)
        gymnasium.vector.VectorWrapper.__init__(self, envs)
        self._handle = Fits(trackers, run=run, **init)
        self._steps = self._episodes = 0

    def reset(self, **arguments: Any) -> Any:
        """Begin episodes in all environments; the run begins with the first ``reset``."""
        answer = super().reset(**arguments)
        self._begin()
        return answer

    def step(self, actions: Any) -> Any:
        """Take a step in each environment; episodes that end with it are recorded."""
        answer = super().step(actions)
        self._stepped(answer[4])
        return answer

    def close(self, **arguments: Any) -> None:
        """Close the environments, and end the run if it was begun here."""
        super().close(**arguments)
        self._end()

    @guarded
    def _begin(self) -> None:
        if not self._handle.is_open:
            self._handle.begin({**settings(self.env), "num_envs": int(self.env.num_envs)})
            self._handle.settle()

    @guarded
    def _stepped(self, infos: dict[str, Any]) -> None:
        self._steps += 1
        ended = infos.get("_episode")
        if ended is None:
            return
        episode = infos["episode"]
        for number in range(len(ended)):
            if ended[number]:
                self._episodes += 1
                values = {"episode/return": float(episode["r"][number]), "episode/length": int(episode["l"][number])}
                self._handle.log({**values, "episode/seconds": float(episode["t"][number])}, self._steps)

    @guarded
    def _end(self) -> None:
        self._handle.results({"episodes": self._episodes, "steps": self._steps})
        self._handle.end()


def settings(env: Any) -> dict[str, Any]:
    """An environment's id, arguments and limit of steps."""
    spec = getattr(env, "spec", None)
    if spec is None:
        return {"env": type(getattr(env, "unwrapped", env)).__name__}
    values: dict[str, Any] = {"env": str(spec.id)}
    if spec.kwargs:
        values["env_kwargs"] = {str(name): value for name, value in spec.kwargs.items()}
    if spec.max_episode_steps is not None:
        values["max_episode_steps"] = int(spec.max_episode_steps)
    return values


def _lacks_statistics(envs: Any) -> bool:
    """Whether no ``RecordEpisodeStatistics`` wraps the environments."""
    while isinstance(envs, gymnasium.vector.VectorWrapper):
        if isinstance(envs, gymnasium.wrappers.vector.RecordEpisodeStatistics):
            return False
        envs = envs.env
    return True
