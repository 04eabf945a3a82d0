"""What a framework is handed never keeps what holds it from being copied, pickled or sent to a worker."""

from __future__ import annotations

import copy
import importlib.util
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CLASSES = {
    "accelerate": "TrackersTracker", "catboost": "TrackersCallback", "composer": "TrackersLogger",
    "fastai": "TrackersCallback", "hydra": "TrackersCallback", "jax": "TrackersWriter", "keras": "TrackersCallback",
    "lightgbm": "TrackersCallback", "lightning": "TrackersLogger", "optuna": "TrackersCallback",
    "pytorch": "SummaryWriter", "ray": "TrackersCallback", "sklearn": "TrackersLogger",
    "stable_baselines3": "TrackersCallback", "torchtitan": "TrackersLogger", "transformers": "TrackersCallback",
    "ultralytics": "TrackersCallback", "xgboost": "TrackersCallback",
}  # fmt: skip
PACKAGES = {"keras": "tensorflow", "pytorch": "torch"}
HERE = [name for name in CLASSES if importlib.util.find_spec(PACKAGES.get(name, name))]
"""The others are installed where `make test-frameworks` runs."""
WAYS: dict[str, Callable[[Any], Any]] = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda thing: pickle.loads(pickle.dumps(thing)),
}


@pytest.mark.heavy
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("module", HERE)
def test_callback_can_be_copied_before_and_in_its_run(
    module: str, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each class that a framework's objects hold; tests/frameworks/test_gymnasium.py has those that need an object."""
    if module == "lightning":  # its logger is of those that are loaded when it is: tests that follow want both
        for name in ("lightning.pytorch", "pytorch_lightning"):
            importlib.import_module(name)
    kind = getattr(importlib.import_module(f"trackers.frameworks.{module}"), CLASSES[module])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRACKER_MODE", "offline")
    made = kind()
    assert type(WAYS[way](made)) is kind
    handle = getattr(made, "_handle", None)
    if handle is not None:
        handle.run.log({"loss": 1.0})
        assert type(WAYS[way](made)) is kind
        handle.run.finish()


def test_all_modules_with_callbacks_are_named() -> None:
    """A new one is tested here, or in its own file; NeMo is given a plug-in by name, which nothing holds."""
    folder = Path(importlib.import_module("trackers.frameworks").__file__ or "").parent
    found = {path.stem for path in folder.glob("*.py") if "\nclass Trackers" in path.read_text("utf-8")}
    assert found - CLASSES.keys() == {"gymnasium", "nemo"}
