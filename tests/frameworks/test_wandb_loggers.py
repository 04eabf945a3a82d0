"""Further frameworks' own W&B loggers, unchanged, leave here what they leave with W&B's client."""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path

import pytest

from tests.as_wandb.test_framework_loggers import agree
from tests.as_wandb.test_same_as_wandb import Left, left_by
from tests.frameworks import wandb_logger_scripts as scripts

ARTIFACTS = {"composer", "fastai", "lerobot", "lm_eval", "tianshou", "torchtune", "ultralytics"}
"""Loggers that keep models or results."""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, list[Left]]]:
    """What each script's run left, by who ran it."""
    place = tmp_path_factory.mktemp("loggers")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("YOLO_OFFLINE", "true")
        # Their environment lacks most of what a forking process imports.
        return left_by(scripts.__name__, place, functools.partial(subprocess.run, capture_output=True, text=True))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", [name for name in scripts.SCRIPTS if name not in (*scripts.ONLY_OURS, "tianshou")])
def test_logger_leaves_the_same_values(name: str, found: dict[str, dict[str, list[Left]]]) -> None:
    """Every value at its step, media, configuration, artifacts of models, and how the run ended."""
    (their,), (our,) = found[name]["real"], found[name]["ours"]
    if name == "torchtune":  # the reader of W&B's files takes this axis for the step
        our = at_its_axis(our, "global_step")
    elif name == "fastai":  # it can't log this configuration to W&B's client
        assert "Learner" in our.config
        our.config.clear()
    elif name == "openrlhf":  # a namespace in a namespace is its ``repr`` at W&B
        assert our.config["logger"]["wandb"]["group"] == "g"
        their.config["logger"] = our.config["logger"]
    elif name == "ultralytics":
        for config in (their.config, our.config):
            assert Path(config.pop("data")).name == "data"
            assert Path(config.pop("save_dir")).name == "u"
    agree(their, our)
    assert bool(our.artifacts) == (name in ARTIFACTS)


def at_its_axis(left: Left, axis: str) -> Left:
    """Values at what their row has for another value, without that one."""
    steps = {step: value for (name, step), value in left.values.items() if name == axis}
    return left._replace(
        values={(name, steps[step]): value for (name, step), value in left.values.items() if name != axis}
    )


def test_values_of_tensorboard_are_the_same(found: dict[str, dict[str, list[Left]]]) -> None:
    """tianshou's, which W&B's client reads from event files and puts at a step of its own: here at the writer's."""
    (their,), (our,) = found["tianshou"]["real"], found["tianshou"]["ours"]
    names = {name for name, _ in our.values}
    assert {name for name, _ in their.values} == {*names, "global_step"}
    for name in names:
        ours = sorted((step, value) for (other, step), value in our.values.items() if other == name)
        theirs = sorted((step, value) for (other, step), value in their.values.items() if other == name)
        assert [value for _, value in ours] == [value for _, value in theirs]
    assert [step for name, step in sorted(our.values) if name == "train/train/return"] == [10, 20, 30]
    assert our.config == their.config
    assert our.artifacts


def test_loggers_that_wandb_runs_no_longer(found: dict[str, dict[str, list[Left]]]) -> None:
    """Composer's and lerobot's, with this package alone: their values, media, models and ends."""
    assert all("real" not in found[name] for name in scripts.ONLY_OURS)
    (composer,), (lerobot,) = (found[name]["ours"] for name in ("composer", "lerobot"))
    assert [step for name, step in composer.values if name == "loss/train/total"] == list(range(8))
    assert [step for name, step in composer.values if name == "metrics/eval/MulticlassAccuracy"] == [4, 8]
    assert {name for name, _ in composer.media} == {"images Table", "table"}
    assert composer.artifacts
    assert composer.identity["tags"] == ["t"]
    assert {step: value for (name, step), value in lerobot.values.items() if name == "train/loss"} == {
        1: 1.0, 2: 0.5, 3: 1 / 3
    }  # fmt: skip
    assert ("train/return", 3) in lerobot.values
    assert lerobot.config["seed"] == 1
    assert len(lerobot.artifacts) == 1
    assert sorted(lerobot.identity["tags"]) == ["dataset:a/b", "env:pusht", "policy:act", "seed:1"]
    assert (composer.status, lerobot.status) == ("finished", "finished")
