"""``import trackers as wandb``: W&B's names on this package, each ours or an error that names the real call.

:func:`lookup` is asked by the package for every name it hasn't itself. What W&B's own service does (sweeps,
queries, the artifact registry) can be imported and compared with, but says so when it is called.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from trackers.as_wandb import modules, util
from trackers.errors import TrackersError, Unavailable, UsageError, did_you_mean
from trackers.training.wandb_arguments import (
    HINTS,
    NotProvided,
    RefusedName,
    Settings,
    assigned,
    init_arguments,
    printed_messages,
    refusal,
    warn,
)

__all__ = [
    "AlertLevel",
    "NoRun",
    "NotProvided",
    "RefusedName",
    "Settings",
    "init_arguments",
    "known_names",
    "lookup",
    "refusal",
]

WANDB_NAMES = (
    "__version__", "init", "finish", "setup", "save", "sweep", "controller", "agent", "config", "log", "summary",
    "join", "Api", "Graph", "Image", "Plotly", "Video", "Audio", "Table", "EvalTable", "Html", "box3d", "Object3D",
    "Molecule", "Histogram", "ArtifactTTL", "log_artifact", "use_artifact", "log_model", "use_model", "link_model",
    "define_metric", "watch", "unwatch", "plot_table", "Run",
)  # fmt: skip
"""``wandb.__all__`` of wandb 0.31.0."""

MODULE_OF = {
    "init": "trackers.training.init:init", "Run": "trackers.training.run:Run",
    "Config": "trackers.training.config:RunConfig",
    "Image": "trackers.media:Image", "Audio": "trackers.media:Audio", "Video": "trackers.media:Video",
    "Table": "trackers.media:Table", "Histogram": "trackers.media:Histogram", "Html": "trackers.media:Html",
    "Classes": "trackers.media:Classes", "data_types": "trackers.as_wandb.data_types",
    "wandb_run": "trackers.training.run", "errors": "trackers.as_wandb.wandb_errors",
    "tensorboard": "trackers.as_wandb.tensorboard",
    "plot": "trackers.as_wandb.plots", "plot_table": "trackers.as_wandb.plots:plot_table",
    "visualize": "trackers.as_wandb.plots:visualize", "sklearn": "trackers.as_wandb.sklearn_plots",
    **{name: f"trackers.media:{name}" for name in (
        "Graph", "Plotly", "EvalTable", "Object3D", "Molecule", "JoinedTable", "box3d", "CustomChart",
    )},
    "Artifact": "trackers.values.artifact:Artifact",
    "Api": "trackers.as_wandb.api:Api", "__version__": "trackers:__version__", "util": "trackers.as_wandb.util",
    "helper": "trackers.as_wandb.library", "PublicApi": "trackers.as_wandb.api:Api",
}  # fmt: skip
"""W&B's names, and the module and attribute of this package that each stands for."""

RUN_METHODS = (
    "log", "log_artifact", "save", "define_metric", "alert", "mark_preempting", "log_metrics", "status", "watch",
    "unwatch", "log_code", "log_model", "link_model", "link_artifact", "upsert_artifact", "finish_artifact",
    "pin_config_keys", "use_artifact", "use_model",
)  # fmt: skip

FUNCTIONS = ("sweep", "controller", "agent", "restore", "sagemaker_auth")
CLASSES = ("ArtifactTTL", "InternalApi")
NAMESPACES = (
    "keras", "tensorflow", "xgboost", "catboost", "gym", "lightgbm", "jupyter",
    "sacred", "sdk", "wandb_sdk", "wandb_lib", "integration", "integrations", "apis", "proto", "profiler",
    "wandb_agent", "automations", "docker", "beta", "fastai", "diffusers",
)  # fmt: skip


class AlertLevel(str, enum.Enum):
    """Severity of an alert."""

    INFO = "INFO"
    WARN = "WARN"
    ERROR = "ERROR"


OF_THE_RUN = ("run", "config", "summary")
"""Names of the module that are the current run, or parts of it."""


def lookup(name: str) -> Any:
    """What ``trackers.<name>`` is to a script written for W&B.

    Raises:
        AttributeError: neither ours nor W&B's; the message has the nearest name.
    """
    if name in assigned:
        return assigned[name]
    if name in MODULE_OF:
        module, _, attribute = MODULE_OF[name].partition(":")
        target = importlib.import_module(module)
        return getattr(target, attribute) if attribute else target
    if name == "run":
        return _current()
    if name in ("config", "summary"):
        run = _current()
        return getattr(run, name) if run is not None else NoRun(name)
    if name in RUN_METHODS:
        return _method(name)
    if name == "restore" and getattr(_current(), "disabled", False):
        return _current().restore
    if name in _OURS:
        return _OURS[name]
    if name in NAMESPACES and modules.is_package(f"wandb.{name}") is not None and modules.answers():
        return importlib.import_module(f"wandb.{name}")
    if name in FUNCTIONS or name in NAMESPACES:
        return RefusedName(name)
    if name in CLASSES:
        return _CLASSES[name]
    hint = _import_of(name) or did_you_mean(name, known_names(), f"; if it is W&B's: import wandb; wandb.{name}")
    raise AttributeError(f"module 'trackers' has no attribute {name!r}{hint}")


def assign(name: str, value: Any) -> bool:
    """Have a name of the current run mean something else on the module, until ``init`` or ``finish`` sets it anew.

    What is assigned to ``config`` becomes part of the configuration of the run that is open, or of the next one.

    Returns:
        False for any other name, with which nothing was done.
    """
    if name not in OF_THE_RUN and name not in RUN_METHODS:
        return False
    run = _current()
    if isinstance(value, NoRun) or (name in OF_THE_RUN and value is (run if name == "run" else getattr(run, name, 0))):
        assigned.pop(name, None)  # as it was: a test's patch has ended
        return True
    assigned[name] = value
    if name == "config" and run is not None:
        run.config.update(value)
    return True


def _import_of(name: str) -> str:
    """How a class of ``trackers.frameworks`` is imported, to stand behind an error; "" for any other name."""
    if not name[:1].isupper() or not name.isidentifier():
        return ""
    folder = Path(__file__).parents[1] / "frameworks"
    heads = (f"\nclass {name}(", f"\nclass {name}:", f" import {name} as {name}\n")
    texts = {path.stem: path.read_text("utf-8") for path in sorted(folder.glob("*.py"))}
    homes = [home for home, text in texts.items() if any(head in text for head in heads)]
    homes += [path.parent.name for path in folder.glob("*/__init__.py") if f'"{name}"' in path.read_text("utf-8")]
    if not homes:
        return ""
    of = f"; NAME is one of {', '.join(homes)}" if len(homes) > 1 else ""
    return f": from trackers.frameworks.{'NAME' if of else homes[0]} import {name}{of}"


def known_names() -> list[str]:
    """All names that :func:`lookup` answers to."""
    return sorted({*MODULE_OF, *RUN_METHODS, *_OURS, *FUNCTIONS, *NAMESPACES, *CLASSES, "run", "config", "summary"})


def offered() -> list[str]:
    """W&B's public names, and a run's that are called on the module: what ``dir(trackers)`` shows beside ours."""
    return sorted({*WANDB_NAMES, *RUN_METHODS, "alert", "plot", "run"})


def _refused_class(name: str) -> type:
    def refuse(self: Any, *arguments: Any, **more: Any) -> None:
        raise NotProvided(refusal(name))

    doc = f"W&B's class of this name, to compare with; making one raises NotProvided. {HINTS.get(name, '')}"
    return type(name, (), {"__init__": refuse, "__doc__": doc.strip(), "__module__": __name__})


_CLASSES = {name: _refused_class(name) for name in CLASSES}


class NoRun:
    """``wandb.config`` or ``wandb.summary`` while there is no run."""

    def __init__(self, name: str) -> None:
        self.__dict__["_name"] = name

    def _refuse(self, *arguments: Any, **more: Any) -> NoReturn:
        raise UsageError(f"call trackers.init() before trackers.{self.__dict__['_name']}")

    def __bool__(self) -> bool:
        return True  # as in W&B

    __getitem__ = __setitem__ = __setattr__ = __iter__ = __len__ = __contains__ = _refuse

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self._refuse()


def _current() -> Any:
    # A run exists only where this module was loaded to make it.
    start = sys.modules.get("trackers.training.init")
    run = None if start is None else start.current()
    return attached_run() if run is None else run


def attached_run() -> Any:
    """The run of another process that was unpickled here; None: there is none, or it has ended."""
    attached = sys.modules.get("trackers.training.attached")
    return next((run for run in reversed(attached.latest) if not run.finished), None) if attached else None


def _method(name: str) -> Callable[..., Any]:
    def call(*arguments: Any, **more: Any) -> Any:
        run = _current()
        if run is not None:
            return getattr(run, name)(*arguments, **more)
        if "trackers.training.init" not in sys.modules:
            raise UsageError(f"call trackers.init() before trackers.{name}()")
        # After finish: never an exception in training.
        warn(f"{name}: there is no run (init wasn't called, or the run has finished); nothing is recorded")
        from trackers.training.disabled import NullRun

        return getattr(NullRun(), name)(*arguments, **more)

    call.__name__ = call.__qualname__ = name
    call.__signature__ = _signature(name)  # type: ignore[attr-defined]
    call.__doc__ = f"``{name}`` of the current run; see :class:`trackers.training.run.Run`."
    return call


def _signature(name: str) -> inspect.Signature:
    """A run's method as a function."""
    from trackers.training.run import Run

    signature = inspect.signature(getattr(Run, name))
    return signature.replace(
        parameters=[parameter for parameter in signature.parameters.values() if parameter.name != "self"]
    )


def finish(exit_code: int | None = None, quiet: bool | None = None, timeout: float | None = None) -> None:
    """End the current run, if there is one; see ``Run.finish``."""
    run = _current()
    if run is not None:
        run.finish(exit_code, quiet, timeout)


def login(
    key: str | None = None,
    relogin: bool | None = None,
    host: str | None = None,
    force: bool | None = None,
    timeout: int | None = None,
    verify: bool = True,
    referrer: str | None = None,
    prompt: bool = True,
    anonymous: Any = None,
) -> bool:
    """True: the delivery to W&B reads W&B's own credentials (``wandb login``, ``WANDB_API_KEY``)."""
    if key and key != os.environ.get("WANDB_API_KEY"):
        warn("login: the key given here isn't stored; set WANDB_API_KEY, or run `wandb login` once")
    return True


set_up = Settings()
"""What ``setup`` was told, for each ``wandb.init`` after it."""


def setup(settings: Any = None) -> Settings:
    """Take settings for each ``init`` that follows; gives them back."""
    if settings is not None:
        set_up.update(settings if isinstance(settings, Mapping) else vars(settings))
    made = Settings(set_up)
    made.setdefault("settings", made)
    return made


def teardown(exit_code: int | None = None) -> None:
    """End the current run, if there is one, and forget what ``setup`` was told."""
    finish(exit_code)
    set_up.clear()


def require(requirement: Any = None, experiment: Any = None) -> None:
    """W&B's switches for experimental features: none here."""


def ensure_configured() -> None:
    """Nothing to configure."""


def termsetup(settings: Any = None, logger: Any = None) -> None:
    """Nothing to set up."""


def attach(attach_id: str | None = None, run_id: str | None = None, *, run: Any = None) -> Any:
    """The run that another process of this machine makes, for this one to log into.

    Args:
        attach_id: ``run._attach_id``, its directory.

    Raises:
        UsageError: there is no such run.
    """
    from trackers.training import attached
    from trackers.training import init as start
    from trackers.training import run as runs

    address = attached.find(attach_id) if attach_id else None
    if address is None:
        raise UsageError(f"attach: no run in {attach_id or run_id!r}: give run._attach_id")
    return start.become(runs.attach(address))


class _Api:
    """``wandb.api``: the key that scripts look for. Its queries are W&B's service."""

    @property
    def api_key(self) -> str | None:
        return os.environ.get("WANDB_API_KEY")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return RefusedName(f"api.{name}")


def termlog(string: str = "", newline: bool = True, repeat: bool = True, prefix: bool = True) -> None:
    """Print a line on stderr; with ``repeat=False`` only the first time."""
    if repeat or string not in printed_messages:
        printed_messages.add(string)
        print(f"trackers: {string}" if prefix else string, end="\n" if newline else "", file=sys.stderr)


def termwarn(string: str, newline: bool = True, repeat: bool = True, prefix: bool = True) -> None:
    """Print a warning on stderr."""
    termlog(f"WARNING {string}", newline, repeat, prefix)


def termerror(string: str, newline: bool = True, repeat: bool = True, prefix: bool = True) -> None:
    """Print an error on stderr."""
    termlog(f"ERROR {string}", newline, repeat, prefix)


_OURS: dict[str, Any] = {
    "Error": TrackersError, "UsageError": UsageError, "CommError": Unavailable, "AlertLevel": AlertLevel,
    "Settings": Settings, "finish": finish, "join": finish, "login": login, "setup": setup, "teardown": teardown,
    "require": require, "termlog": termlog, "ensure_configured": ensure_configured, "termsetup": termsetup,
    "attach": attach, "_attach": attach, "api": _Api(), "START_TIME": 0.0,
    "patched": {"tensorboard": [], "keras": [], "gym": []}, "termwarn": termwarn, "termerror": termerror,
    "generate_id": util.generate_id,
}  # fmt: skip
