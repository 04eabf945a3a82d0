"""The Hydra callback in real applications, and OmegaConf's configurations."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from omegaconf import OmegaConf
from trackers_frameworks.hydra import settings

import trackers
from tests.frameworks.support import config, directories, only, recorded, results, series

pytestmark = pytest.mark.usefixtures("local_runs")

APPLICATION = """
import hydra
import trackers

@hydra.main(version_base="1.2", config_path=".", config_name="config")
def main(cfg):
    for epoch in range(cfg.epochs):
        trackers.log({"loss": cfg.rate / (epoch + 1)}, step=epoch)
        if epoch == cfg.fails_at:
            raise RuntimeError("no memory")
    return cfg.rate

if __name__ == "__main__":
    main()
"""
CONFIG = """
epochs: 2
rate: 0.5
twice: ${rate}
fails_at: -1
hydra:
  callbacks:
    trackers:
      _target_: trackers.frameworks.hydra.TrackersCallback
      trackers: [json]
      project: digits
      tags: [a, b]
"""


def application(*overrides: str, code: int = 0) -> str:
    """Run the application; what it said."""
    Path("train.py").write_text(APPLICATION)
    Path("config.yaml").write_text(CONFIG)
    command = [sys.executable, "train.py", *overrides]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return done.stderr


@pytest.mark.slow
def test_job_has_a_run() -> None:
    """Its values, configuration, overrides and files are recorded; what it returns is a result."""
    application("rate=0.25", "+new=[1,2]")
    stored = only()
    assert series(stored, "loss") == [(0, 0.25), (1, 0.125)]
    found = config(stored)
    assert (found["rate"], found["twice"], found["epochs"], found["new"]) == (0.25, 0.25, 2, [1, 2])
    assert found["hydra"]["overrides"] == ["rate=0.25", "+new=[1,2]"]
    assert results(stored)["objective"] == 0.25
    assert (stored.name, stored.status, stored.tags) == ("train", "finished", ["a", "b"])
    (artifact,) = trackers.load(str(directories()[0])).artifacts()
    assert {Path(file.path).name for file in artifact.files} == {"config.yaml", "hydra.yaml", "overrides.yaml"}


@pytest.mark.slow
def test_sweep_is_a_group_of_runs() -> None:
    """Each job of a sweep has a run with its overrides; they have one group."""
    application("--multirun", "rate=1,2,4")
    runs = recorded()
    assert [config(one)["rate"] for one in runs] == [1, 2, 4]
    assert [config(one)["hydra"]["overrides"] for one in runs] == [["rate=1"], ["rate=2"], ["rate=4"]]
    assert [one.name for one in runs] == ["train-0", "train-1", "train-2"]
    (group,) = {one.group for one in runs}
    assert group is not None
    assert group.startswith("train/multirun/")


def test_job_that_raises_is_a_failed_run() -> None:
    """Hydra's exit code is as without the callback, and the run says that the job failed."""
    said = application("fails_at=0", code=1)
    assert "no memory" in said
    stored = only()
    assert stored.status == "failed"
    assert series(stored, "loss") == [(0, 0.5)]


@pytest.mark.slow
def test_bad_setting_is_said() -> None:
    """Hydra turns what a callback raises into a warning, which names the tracker; the job runs."""
    said = application("hydra.callbacks.trackers.trackers=jsn")
    assert "unknown tracker 'jsn'" in said
    assert directories() == []


def test_configurations_of_omegaconf() -> None:
    """Nested values are resolved; what is missing or can't be resolved stays as it is written."""
    made = OmegaConf.create({"a": {"b": [1, "${a.c}"], "c": 3}, "missing": "???", "lost": "${nowhere.x}"})
    assert settings(made) == {"a": {"b": [1, 3], "c": 3}, "missing": "???", "lost": "${nowhere.x}"}
    run = trackers.init("json", project="p", config=settings(made))
    run.finish()
    assert config(only())["a"] == {"b": [1, 3], "c": 3}
