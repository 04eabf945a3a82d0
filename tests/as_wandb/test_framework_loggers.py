"""Frameworks' own W&B loggers, unchanged, leave here what they leave with W&B's client: two tiny epochs each."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import pytest

from tests.as_wandb import framework_scripts
from tests.as_wandb.test_same_as_wandb import Left, is_result, left_by, same

TIMES = re.compile(r"runtime|per_sec|fps|start_time|time_elapsed|flos|\(ms\)")
"""Names of what isn't the same twice."""

FILLED = {"trainer/global_step", "train/global_step"}
"""Axes that W&B's client repeats in rows that have no such value (``step_sync``)."""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, list[Left]]]:
    """What each script's run left, by who ran it."""
    return left_by(framework_scripts.__name__, tmp_path_factory.mktemp("frameworks"))


@pytest.mark.slow
@pytest.mark.parametrize("name", framework_scripts.SCRIPTS)
def test_logger_leaves_the_same_values(name: str, found: dict[str, dict[str, list[Left]]]) -> None:
    """Every value at its step, media, configuration, artifacts of models, and how the run ended."""
    (their,), (our,) = found[name]["real"], found[name]["ours"]
    agree(their, our)
    assert bool(our.artifacts) == (name not in ("fabric", "huggingface", "accelerate"))


def agree(their: Left, our: Left) -> None:
    """A run of W&B's client and one of this package have the same."""
    wanted = {key: value for key, value in their.values.items() if key in our.values or key[0] not in FILLED}
    assert wanted.keys() == our.values.keys()
    pairs = {key: (value, our.values[key]) for key, value in wanted.items() if not TIMES.search(key[0])}
    assert {key: pair for key, pair in pairs.items() if not same(*pair)} == {}
    assert {(key.removesuffix("_table"), step): kind for (key, step), kind in their.media.items()} == our.media
    assert same(lasting(their.config), lasting(our.config))
    results = {key: value for key, value in our.summary.items() if not TIMES.search(key)}
    assert {key: value for key, value in results.items() if not is_result(their.summary, key, value)} == {}
    assert their.identity["tags"] == our.identity["tags"]
    assert our.status == "finished"


def lasting(values: dict[str, Any]) -> dict[str, Any]:
    """A configuration without times and addresses of objects."""
    return {
        key: re.sub(r"0x[0-9a-f]+", "0x", value) if isinstance(value, str) else value
        for key, value in values.items()
        if not TIMES.search(key)
    }


LIGHTNING = """
import pathlib
import trackers
trackers.install_as_wandb()
import wandb
from lightning.pytorch.loggers import WandbLogger

with wandb.init(project="digits", name="maker") as run:
    pathlib.Path("model.ckpt").write_text("weights")
    artifact = wandb.Artifact(f"model-{run.id}", type="model")
    artifact.add_file("model.ckpt")
    run.log_artifact(artifact, aliases=["latest", "best"])
    name = artifact.name
folder = WandbLogger.download_artifact(f"team/digits/{name}:best", artifact_type="model", use_artifact=False)
print(pathlib.Path(folder, "model.ckpt").read_text(), len(wandb.Api().artifact(f"digits/{name}").used_by()))
logger = WandbLogger(project="digits")
found = logger.use_artifact(f"{name}:v0", artifact_type="model")
again = WandbLogger.download_artifact(f"{name}:latest", save_dir="checkpoints")
print(found.version, pathlib.Path(again, "model.ckpt").read_text(), len(found.used_by()))
wandb.finish()
"""


@pytest.mark.slow
def test_lightning_finds_its_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its logger's ``use_artifact`` and ``download_artifact``, as its documentation has them."""
    monkeypatch.setenv("TRACKER_RELAY", "n")
    done = subprocess.run([sys.executable, "-c", LIGHTNING], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["weights 0", "v0 weights 1"]
