"""What a framework is handed never keeps what holds it from being copied, pickled or sent to a worker."""

from __future__ import annotations

import copy
import importlib.util
import os
import pickle
import re
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trackers.frameworks import elsewhere

CLASSES = {
    "accelerate": "TrackersTracker", "catboost": "TrackersCallback", "composer": "TrackersLogger",
    "fastai": "TrackersCallback", "hydra": "TrackersCallback", "jax": "TrackersWriter", "keras": "TrackersCallback",
    "lightgbm": "TrackersCallback", "lightning": "TrackersLogger", "optuna": "TrackersCallback",
    "pytorch": "SummaryWriter", "ray": "TrackersCallback", "sklearn": "TrackersLogger",
    "stable_baselines3": "TrackersCallback", "torchtitan": "TrackersLogger", "transformers": "TrackersCallback",
    "ultralytics": "TrackersCallback", "xgboost": "TrackersCallback",
}  # fmt: skip
MOVED = (
    "catboost", "composer", "fastai", "gymnasium", "hydra", "jax", "keras", "lightgbm", "optuna", "ray", "sklearn",
    "stable_baselines3", "torchtitan", "ultralytics", "xgboost",
)  # fmt: skip
"""Modules of the distribution ``trackers-frameworks``, whose tests make this one again for them."""
PACKAGES = {"pytorch": "torch"}
os.environ.setdefault("KERAS_BACKEND", "torch")
os.environ["KERAS_HOME"] = os.devnull  # Keras writes its configuration there when it is imported
INSTALLED = [name for name in CLASSES if importlib.util.find_spec(PACKAGES.get(name, name))]
"""The others are where `make test-frameworks` runs."""
BASES: dict[str, dict[str, dict[str, Any]]] = {
    "composer": {"composer.loggers.logger_destination": {"LoggerDestination": type("LoggerDestination", (), {})},
                 "composer.utils": {"dist": types.SimpleNamespace(get_global_rank=lambda: 0)}},
    "fastai": {"fastai.callback.core": {"Callback": type("Callback", (), {"__init__": lambda self: None})},
               "fastai.learner": {"Recorder": types.SimpleNamespace(order=50), "save_model": print},
               "fastai.torch_core": {"rank_distrib": lambda: 0}},
    "ray": {"ray.tune.logger": {"LoggerCallback": type("LoggerCallback", (), {})}},
    "torchtitan": {"torchtitan.components.metrics": {"BaseLogger": type("BaseLogger", (), {})}},
}  # fmt: skip
"""What our classes of frameworks that aren't installed here take of them: the bases, which hold nothing themselves."""
KNOWN = [*INSTALLED, *(name for name in BASES if name not in INSTALLED)]
"""The classes that can be made here."""
WAYS: dict[str, Callable[[Any], Any]] = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda thing: pickle.loads(pickle.dumps(thing)),
}


@pytest.mark.heavy
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("module", [name for name in KNOWN if name not in MOVED])
def test_callback_can_be_copied_before_and_in_its_run(
    module: str, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each class that a framework's objects hold; tests/frameworks/test_gymnasium.py has those that need an object."""
    if module == "lightning":  # its logger is of those that are loaded when it is: tests that follow want both
        for name in ("lightning.pytorch", "pytorch_lightning"):
            importlib.import_module(name)
    if module not in INSTALLED:
        _stand_in(module, monkeypatch)
    kind = getattr(importlib.import_module(f"trackers.frameworks.{module}"), CLASSES[module])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRACKER_MODE", "offline")
    made = kind()
    assert type(WAYS[way](made)) is kind
    handle = getattr(made, "_handle", None)
    if module == "ray":  # each of its trials has a run
        trial = type("Trial", (), {"trial_id": "a", "experiment_dir_name": "e", "config": {"lr": 1},
                                   "__str__": lambda self: "train_a"})()  # fmt: skip
        made.log_trial_start(trial)
        made.log_trial_result(1, trial, {"loss": 1.0})
        assert type(WAYS[way](made)) is kind
        made.log_trial_end(trial)
    elif handle is not None:
        handle.run.log({"loss": 1.0})
        assert type(WAYS[way](made)) is kind
        handle.run.finish()


def _stand_in(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make our module's imports of its framework succeed, and have it imported anew."""
    for name, held in BASES[module].items():
        parts = name.split(".")
        for size in range(1, len(parts) + 1):
            path = ".".join(parts[:size])
            if path not in sys.modules:
                monkeypatch.setitem(sys.modules, path, types.ModuleType(path))
            if size > 1:
                monkeypatch.setattr(sys.modules[".".join(parts[: size - 1])], parts[size - 1], sys.modules[path],
                                    raising=False)  # fmt: skip
        for attribute, value in held.items():
            monkeypatch.setattr(sys.modules[name], attribute, value, raising=False)
    homes = ["trackers.frameworks", *(["trackers_frameworks"] if module in MOVED else [])]
    for home in homes:
        monkeypatch.delitem(sys.modules, f"{home}.{module}", raising=False)
    importlib.import_module(f"trackers.frameworks.{module}")
    for home in homes:
        monkeypatch.setitem(sys.modules, f"{home}.{module}", sys.modules[f"{home}.{module}"])


def test_all_modules_with_callbacks_are_named() -> None:
    """A new one is tested here, or in its own file; NeMo is given a plug-in by name, which nothing holds."""
    folder = Path(importlib.import_module("trackers.frameworks").__file__ or "").parent
    found = {path.stem for path in folder.glob("*.py") if "\nclass Trackers" in path.read_text("utf-8")}
    assert found - CLASSES.keys() == {"nemo"}


@pytest.mark.parametrize("module", MOVED)
def test_what_moved_out_says_how_to_get_it(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script that imports it reads the command, and can go on without it."""
    monkeypatch.delitem(sys.modules, f"trackers.frameworks.{module}", raising=False)
    monkeypatch.setitem(sys.modules, "trackers_frameworks", None)
    monkeypatch.delitem(sys.modules, f"trackers_frameworks.{module}", raising=False)
    wanted = re.escape(f"{module} is in a distribution of its own: pip install 'trackers-relay[frameworks]'")
    with pytest.raises(ImportError, match=wanted):
        importlib.import_module(f"trackers.frameworks.{module}")


def test_package_that_the_distribution_needs_is_named() -> None:
    """Where it is installed, and its framework isn't: the framework's own error."""
    with pytest.raises(ImportError, match="No module named 'composer'"), elsewhere.named("trackers.frameworks.x"):
        raise ModuleNotFoundError("No module named 'composer'", name="composer")
