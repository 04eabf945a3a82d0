"""W&B's modules as this package has them: for each name the module of ours that answers.

Modules of the real package that were imported before are put aside while ours are in their place.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
import types
from typing import Any

NAMES = "trackers.as_wandb.names"
VERSION = "0.31.0"
"""The version of W&B that the dialect is compared with, where wandb isn't installed."""

TABLE: dict[str, str] = {
    "wandb.errors": "trackers.as_wandb.wandb_errors",
    "wandb.util": "trackers.as_wandb.util",
    "wandb.data_types": "trackers.media",
    "wandb.tensorboard": "trackers.as_wandb.tensorboard",
    "wandb.integration.tensorboard": "trackers.as_wandb.tensorboard",
    "wandb.sdk": NAMES,
    "wandb.wandb_run": "trackers.training.run",
    "wandb.sdk.wandb_run": "trackers.training.run",
}
"""W&B's modules and the modules of ours whose names they have."""

PACKAGES = {"wandb", "wandb.sdk", "wandb.errors"}
"""Those that have submodules."""

_made: dict[str, types.ModuleType] = {}
_aside: dict[str, types.ModuleType] = {}


def is_package(name: str) -> bool | None:
    """True for a module with submodules, False for one without; None for one that isn't known."""
    if name == "wandb" or name in TABLE:
        return name in PACKAGES
    return None


class Module(types.ModuleType):
    """A module of W&B's name whose attributes are those of a module of ours."""

    def __init__(self, name: str, target: str) -> None:
        super().__init__(name, f"``{name}``, answered by ``{target}`` of trackers.")
        self.__dict__["_target"] = target

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__version__":
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return _attribute(self.__dict__["_target"], name)

    def __dir__(self) -> list[str]:
        return sorted({*self.__dict__, *dir(importlib.import_module(self.__dict__["_target"]))})


def _attribute(target: str, name: str) -> Any:
    found = importlib.import_module(target)
    if target == NAMES:
        return found.lookup(name)
    return getattr(found, name)


def module(name: str) -> types.ModuleType:
    """The module of that name, made once."""
    if name not in _made:
        made = _made[name] = Module(name, TABLE.get(name, NAMES))
        if name == "wandb":
            made.__dict__["__version__"] = version()
            made.__dict__["__all__"] = list(importlib.import_module(NAMES).WANDB_NAMES)
    return _made[name]


def execute(module: types.ModuleType) -> None:
    """Run the code of a module of W&B's own; ours need nothing."""


def real_distribution() -> importlib.metadata.Distribution | None:
    """The installed wandb's metadata; None where it isn't installed."""
    context = importlib.metadata.DistributionFinder.Context(name="wandb")
    for finder in sys.meta_path:
        find = getattr(finder, "find_distributions", None)
        if find is not None and not type(finder).__module__.startswith("trackers."):
            for found in find(context):
                return found  # type: ignore[no-any-return]
    return None


def version() -> str:
    """The installed wandb's version, or :data:`VERSION`."""
    found = real_distribution()
    return VERSION if found is None else str(found.version)


def put_aside() -> None:
    """Take the real wandb's modules from ``sys.modules``."""
    for name in [name for name in sys.modules if name == "wandb" or name.startswith("wandb.")]:
        _aside[name] = sys.modules.pop(name)


def put_back() -> None:
    """Put them back in the place of ours."""
    for name in [name for name in sys.modules if name == "wandb" or name.startswith("wandb.")]:
        del sys.modules[name]
    sys.modules.update(_aside)
    _aside.clear()
