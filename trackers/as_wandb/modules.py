"""W&B's modules as this package has them: for each name the module or the names of ours that answer.

W&B's integrations that work through ``wandb.log`` (``wandb.integration.xgboost``, ``.lightgbm``, ``.sb3``, ``.keras``)
are W&B's own code where wandb is installed: it is executed anew here, and its ``import wandb`` finds this package.
Modules of the real package that were imported before are put aside while ours are in their place.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.machinery
import importlib.metadata
import importlib.util
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trackers.training.wandb_arguments import answering, assigned

HERE = "trackers.as_wandb."
NAMES = HERE + "names"
VERSION = "0.31.0"
"""The version of W&B that the dialect is compared with, where wandb isn't installed."""

_DATA = HERE + "data_types"
_SETTINGS = "trackers.training.wandb_arguments"
TABLE: dict[str, str | dict[str, str]] = {
    "wandb": {"*": NAMES, "init": HERE + "init:init"},
    "wandb.errors": HERE + "wandb_errors",
    "wandb.errors.errors": HERE + "wandb_errors",
    "wandb.errors.term": HERE + "wandb_errors",
    "wandb.util": HERE + "util",
    "wandb.data_types": _DATA,
    "wandb.wandb_run": "trackers.training.run",
    "wandb.plot": HERE + "plots",
    "wandb.plot.custom_chart": HERE + "plots",
    "wandb.plot.viz": HERE + "plots",
    "wandb.sklearn": HERE + "sklearn_plots",
    "wandb.integration.sklearn": HERE + "sklearn_plots",
    "wandb.integration.gym": HERE + "gym",
    "wandb.gym": HERE + "gym",
    "wandb.tensorboard": HERE + "tensorboard",
    "wandb.integration.tensorboard": HERE + "tensorboard",
    "wandb.apis": {"*": NAMES, "PublicApi": HERE + "api:Api"},
    "wandb.apis.public": NAMES,
    "wandb.proto": {"wandb_telemetry_pb2": HERE + "telemetry"},
    "wandb.proto.wandb_telemetry_pb2": HERE + "telemetry",
    "wandb.proto.wandb_deprecated": HERE + "telemetry",
    "wandb.integration": {},
    "wandb.sdk": {"*": NAMES, "init": HERE + "init:init"},
    "wandb.sdk.wandb_run": "trackers.training.run",
    "wandb.sdk.wandb_init": HERE + "init",
    "wandb.sdk.wandb_setup": HERE + "library",
    "wandb.sdk.wandb_helper": {"parse_config": HERE + "library:parse_config"},
    "wandb.sdk.wandb_metric": {"Metric": "trackers.training.wandb_run:Metric"},
    "wandb.env": HERE + "env",
    "wandb.sdk.wandb_config": {"Config": "trackers.training.config:RunConfig"},
    "wandb.sdk.wandb_summary": {"Summary": "trackers.training.config:RunSummary"},
    "wandb.sdk.wandb_settings": {"Settings": _SETTINGS + ":Settings"},
    "wandb.sdk.wandb_login": {"login": NAMES + ":login"},
    "wandb.sdk.wandb_alerts": {"AlertLevel": NAMES + ":AlertLevel"},
    "wandb.sdk.artifacts": {"Artifact": "trackers.values.artifact:Artifact"},
    "wandb.sdk.artifacts.exceptions": {
        "ArtifactNotLoggedError": "trackers.values.artifact:NotLogged",
        "ArtifactFinalizedError": "trackers.values.artifact:Finalized",
    },
    "wandb.sdk.artifacts.artifact_manifest_entry": {
        "ArtifactManifestEntry": "trackers.values.artifact:ArtifactManifestEntry",
    },
    "wandb.sdk.artifacts.artifact": {"Artifact": "trackers.values.artifact:Artifact"},
    "wandb.sdk.data_types": _DATA,
    **{
        f"wandb.sdk.data_types.{name}": _DATA
        for name in (
            "audio", "base_types", "base_types.media", "base_types.wb_value", "histogram", "html", "image",
            "molecule", "object_3d", "plotly", "table", "video", "helper_types", "helper_types.classes",
        )
    },
    "wandb.sdk.lib": {
        "RunDisabled": "trackers.training.disabled:NullRun", "telemetry": HERE + "telemetry",
        "config_util": HERE + "library", "printer": HERE + "library", "runid": HERE + "util",
        "disabled": HERE + "library", "ipython": HERE + "library",
    },
    "wandb.sdk.lib.disabled": HERE + "library",
    "wandb.sdk.lib.config_util": HERE + "library",
    "wandb.sdk.lib.printer": HERE + "library",
    "wandb.sdk.lib.ipython": HERE + "library",
    "wandb.sdk.lib.runid": HERE + "util",
    "wandb.sdk.lib.paths": HERE + "util",
    "wandb.sdk.lib.telemetry": HERE + "telemetry",
    "wandb.sdk.lib.deprecation": HERE + "library",
}  # fmt: skip
"""W&B's modules, and the module of ours or the names of ours ("module:name") that they have. "*": all others."""

PACKAGES = {"wandb", *(name.rpartition(".")[0] for name in TABLE if "." in name)}
"""Those that have submodules."""

WANDBS_OWN = (
    "wandb.integration", "wandb.proto", "wandb.sdk.integration_utils", "wandb.sdk.lib.timer",
    "wandb.sdk.lib.import_hooks",
)  # fmt: skip
"""W&B's code that runs here as it is, where it is installed: it only calls what this package has."""

OURS = ("wandb.integration", "wandb.integration.tensorboard", "wandb.integration.gym")
"""What of these has a module of ours all the same."""

SHORT = {
    f"wandb.{name}": f"wandb.integration.{name}"
    for name in (
        "keras", "xgboost", "lightgbm", "catboost", "fastai", "sacred", "sb3", "tensorflow", "diffusers"
    )
}  # fmt: skip
"""Short names of integrations."""

_made: dict[str, types.ModuleType] = {}
_aside: dict[str, types.ModuleType] = {}


class AliasModule(types.ModuleType):
    """A module of W&B's name whose attributes are those of a module of ours."""

    def __init__(self, name: str, target: str | dict[str, str]) -> None:
        super().__init__(name, f"``{name}``, answered by trackers.")
        self.__dict__["_target"] = target

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        if sys.meta_path is None:  # as in the package itself
            return None if name == "run" else lambda *arguments, **more: None
        if answers() and is_package(f"{self.__name__}.{name}") is not None:
            return importlib.import_module(f"{self.__name__}.{name}")
        target = self.__dict__["_target"]
        address = target if isinstance(target, str) else target.get(name) or target.get("*")
        if address is None:
            raise AttributeError(f"module {self.__name__!r} of trackers has no {name!r}")
        module, _, attribute = address.partition(":")
        loaded = importlib.import_module(module)
        if not attribute and isinstance(target, dict) and name in target:
            return loaded
        return _attribute(loaded, attribute or name)

    def __setattr__(self, name: str, value: Any) -> None:
        if self.__name__ != "wandb" or not importlib.import_module(NAMES).assign(name, value):
            super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        if self.__name__ != "wandb" or assigned.pop(name, self) is self:
            super().__delattr__(name)

    def __dir__(self) -> list[str]:
        target = self.__dict__["_target"]
        names = [*target] if isinstance(target, dict) else dir(importlib.import_module(target))
        return sorted({*self.__dict__, *(names if "*" not in names else importlib.import_module(NAMES).known_names())})


def _attribute(module: types.ModuleType, name: str) -> Any:
    if module.__name__ != NAMES:
        return getattr(module, name)
    return module.lookup(name)


def answers() -> bool:
    """Whether ``import wandb`` gives this package now."""
    return bool(answering)


def is_package(name: str) -> bool | None:
    """True for a module with submodules, False for one without; None for one that isn't known."""
    name = SHORT.get(name, name)
    path = real_file(name)
    if path is not None:
        return path.is_dir() or path.name == "__init__.py"
    target = TABLE.get(name)
    if target is None or (isinstance(target, str) and importlib.util.find_spec(target) is None):
        return None
    return name in PACKAGES


def real_file(name: str) -> Path | None:
    """The file of a module of W&B's own that runs here, a directory for a namespace; None where there is none."""
    if name in OURS or not any(name == own or name.startswith(f"{own}.") for own in WANDBS_OWN):
        return None
    root = real_root()
    if root is None:
        return None
    path = root.joinpath(*name.split(".")[1:])
    candidates = (path / "__init__.py", path.with_suffix(".py"))
    return next((file for file in candidates if file.is_file()), path if path.is_dir() else None)


def real_root() -> Path | None:
    """The directory of the installed wandb; None where there is none."""
    spec = importlib.machinery.PathFinder.find_spec("wandb")
    locations = list(spec.submodule_search_locations or ()) if spec is not None else []
    return Path(locations[0]) if locations else None


def module(name: str) -> types.ModuleType:
    """The module of that name, made once."""
    if name not in _made:
        made = _made[name] = AliasModule(name, TABLE[name])
        if name == "wandb":
            made.__dict__["__version__"] = version()
            made.__dict__["__all__"] = list(importlib.import_module(NAMES).WANDB_NAMES)
            made.__dict__["__file__"] = __file__
    return _made[name]


def real_distribution() -> importlib.metadata.Distribution | None:
    """The installed wandb's metadata; None where it isn't installed."""
    context = importlib.metadata.DistributionFinder.Context(name="wandb")
    for finder in sys.meta_path:
        find = getattr(finder, "find_distributions", None)
        if find is not None and not type(finder).__module__.startswith("trackers."):
            for distribution in find(context):
                return distribution  # type: ignore[no-any-return]
    return None


def version() -> str:
    """The installed wandb's version, or :data:`VERSION`."""
    distribution = real_distribution()
    return VERSION if distribution is None else str(distribution.version)


def _loaded() -> list[str]:
    return [name for name in sys.modules if name == "wandb" or name.startswith("wandb.")]


def put_aside() -> None:
    """Take the real wandb's modules from ``sys.modules``; from now on this package answers."""
    for name in _loaded():
        _aside[name] = sys.modules.pop(name)
    answering.append("wandb")


def put_back() -> None:
    """Put them back in the place of ours."""
    answering.clear()
    for name in _loaded():
        del sys.modules[name]
    sys.modules.update(_aside)
    _aside.clear()


@contextlib.contextmanager
def real() -> Iterator[None]:
    """``import wandb`` gives the installed package, for a delivery that runs inside this process."""
    ours = {name: sys.modules.pop(name) for name in _loaded()}
    sys.modules.update(_aside)
    previous, answering[:] = list(answering), []
    try:
        yield
    finally:
        _aside.clear()
        _aside.update({name: sys.modules.pop(name) for name in _loaded()})
        sys.modules.update(ours)
        answering[:] = previous
