"""``monitor_gym``: videos of Gymnasium's recorder. MoviePy, which writes them, is a stand-in."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import trackers
from trackers.as_wandb import gym
from trackers.as_wandb.init import init
from trackers.readers import registry
from trackers.records import Media
from trackers.training import wandb_arguments


class Picture(gymnasium.Env[Any, Any]):
    """Episodes of two steps."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 4}  # noqa: RUF012 - as Gymnasium has it
    observation_space = gymnasium.spaces.Discrete(2)
    action_space = gymnasium.spaces.Discrete(2)
    render_mode = "rgb_array"

    def reset(self, **more: Any) -> Any:
        """Begin."""
        self.at = 0
        return 0, {}

    def step(self, action: Any) -> Any:
        """Go on."""
        self.at += 1
        return 0, 1.0, self.at == 2, False, {}

    def render(self) -> Any:
        """A picture."""
        return np.zeros((4, 4, 3), np.uint8)


class Clip:
    """MoviePy's."""

    def __init__(self, frames: Any, fps: int) -> None:
        self.frames = frames

    def write_videofile(self, path: str, logger: Any = None) -> None:
        """Write."""
        Path(path).write_bytes(b"video of %d" % len(self.frames))


@pytest.fixture(autouse=True)
def _recorder(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    name = "moviepy.video.io.ImageSequenceClip"
    for part in ("moviepy", "moviepy.video", "moviepy.video.io", name):
        monkeypatch.setitem(sys.modules, part, types.ModuleType(part))
    sys.modules[name].ImageSequenceClip = Clip  # type: ignore[attr-defined]
    kind = gymnasium.wrappers.RecordVideo
    monkeypatch.setattr(kind, "stop_recording", kind.stop_recording)
    monkeypatch.setenv("TRACKER_INLINE", "y")
    wandb_arguments.printed_messages.clear()
    yield
    trackers.finish()


def play(folder: Path, episodes: int) -> None:
    """Play with a recorder."""
    env = gymnasium.wrappers.RecordVideo(Picture(), str(folder), episode_trigger=lambda number: True)
    for _ in range(episodes):
        env.reset()
        while not env.step(0)[2]:
            pass
    env.close()


def videos(run: Any) -> list[tuple[str, int | None, str]]:
    """Names, steps and formats."""
    reader, (one,) = registry.open_source(run.path)
    return [
        (record.name, record.step, record.items[0].format) for record in reader.read(one) if isinstance(record, Media)
    ]


def test_each_video_is_logged_once(tmp_path: Path) -> None:
    """As cleanrl asks for them, at the step of the values before; a second ``init`` doesn't log them twice."""
    for number in range(2):
        run = init(project="p", monitor_gym=True)
        run.log({"a": 1}, step=7)
        play(tmp_path / str(number), 2)
        gym.monitor()
        run.finish()
        assert videos(run) == [("videos", 7, "mp4"), ("videos", 8, "mp4")]
    play(tmp_path / "later", 1)
    assert len(videos(run)) == 2


@pytest.mark.slow
def test_without_being_asked_nothing_is_logged(tmp_path: Path) -> None:
    """The recorder is as it was."""
    run = init(project="p")
    play(tmp_path, 1)
    run.finish()
    assert videos(run) == []


def test_recorder_of_older_releases(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Gymnasium 0.29 and gym 0.26: the recorder is closed again when it is deleted."""

    class VideoRecorder:
        path = str(tmp_path / "x.video.3.mp4")

        def close(self) -> None:
            if not Path(self.path).exists():
                Path(self.path).write_bytes(b"video")

    name = "gymnasium.wrappers.monitoring.video_recorder"
    for part in ("gymnasium.wrappers.monitoring", name):
        monkeypatch.setitem(sys.modules, part, types.ModuleType(part))
    sys.modules[name].VideoRecorder = VideoRecorder  # type: ignore[attr-defined]
    run = init(project="p", monitor_gym=True)
    recorder = VideoRecorder()
    recorder.close()
    recorder.close()
    run.finish()
    assert [name for name, *_ in videos(run)] == ["video.3"]


def test_without_a_library_it_is_said(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Training goes on."""
    for name in ("gymnasium", "gym"):
        monkeypatch.setitem(sys.modules, name, None)
    run = init(project="p", monitor_gym=True)
    assert "neither gymnasium nor gym is installed" in caplog.text
    run.finish()
