"""Log a training run once; every tracker gets all of it, none of them can hurt the training, nothing is lost.

    import trackers
    run = trackers.init("json,tensorboard,mlflow", project="digits", config={"lr": 1e-3})
    run.log({"train_loss": loss}, step=step)
    run.log({"final/best_val_loss": best})
    run.finish()

``import trackers as wandb`` runs an ordinary W&B script; after ``trackers.install_as_wandb()`` so does
``import wandb``.
This module imports no tracker's package, no NumPy and no torch, and what it doesn't need at once it imports on first
use.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
from typing import TYPE_CHECKING, Any

from trackers._version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trackers.analysis.compare import compare_runs
    from trackers.analysis.ranking import best_runs
    from trackers.analysis.sql import sql
    from trackers.analysis.table_diff import diff_tables, join_tables
    from trackers.as_wandb.replacement import install_as_wandb
    from trackers.configuration import add_arguments
    from trackers.editing.opened import OpenedRun, open
    from trackers.errors import NotFound, TrackersError, UsageError
    from trackers.frameworks.callbacks import BenchmarkCallback
    from trackers.media import Audio, Histogram, Html, Image, Table, Video
    from trackers.readers.run_data import RunData, load, load_all
    from trackers.reductions import All, Max, Mean, Min, MinMax, Std, Sum
    from trackers.tracker import Cursor, RunInfo, State, Status, Tracker
    from trackers.training.disabled import NullRun
    from trackers.training.init import init, init_from_args
    from trackers.training.run import Run
    from trackers.values.artifact import Artifact

_MODULE_OF = {
    "init": "training.init", "init_from_args": "training.init", "add_arguments": "configuration",
    "install_as_wandb": "as_wandb.replacement",
    "open": "editing.opened", "OpenedRun": "editing.opened",
    "Run": "training.run", "NullRun": "training.disabled",
    "Tracker": "tracker", "RunInfo": "tracker", "State": "tracker", "Status": "tracker", "Cursor": "tracker",
    "TrackersError": "errors", "UsageError": "errors", "NotFound": "errors",
    "Artifact": "values.artifact", "BenchmarkCallback": "frameworks.callbacks",
    "compare_runs": "analysis.compare", "sql": "analysis.sql",
    "best_runs": "analysis.ranking",
    "diff_tables": "analysis.table_diff", "join_tables": "analysis.table_diff",
    "RunData": "readers.run_data", "load": "readers.run_data", "load_all": "readers.run_data",
    "Image": "media", "Audio": "media", "Video": "media", "Table": "media", "Histogram": "media", "Html": "media",
    "Mean": "reductions", "Sum": "reductions", "Min": "reductions", "Max": "reductions", "MinMax": "reductions",
    "Std": "reductions", "All": "reductions",
}  # fmt: skip

__all__ = [
    "All", "Artifact", "Audio", "BenchmarkCallback", "Cursor", "Histogram", "Html", "Image", "Max", "Mean", "Min",
    "MinMax", "NotFound", "NullRun", "OpenedRun", "Run", "RunData", "RunInfo", "State", "Status", "Std", "Sum",
    "Table", "Tracker", "TrackersError", "UsageError", "Video", "__version__", "add_arguments", "best_runs",
    "compare_runs", "diff_tables", "init", "init_from_args", "install_as_wandb", "join_tables", "load", "load_all",
    "open", "sql",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is not None:
        value = globals()[name] = getattr(importlib.import_module(f"trackers.{module}"), name)
        return value
    if sys.meta_path is None and not name.startswith("__"):
        # A destructor calls ``finish`` while the interpreter ends, and imports nothing any more: runs have ended.
        return None if name == "run" else _Nothing()
    if name.startswith("__") or importlib.util.find_spec(f"trackers.{name}") is not None:
        # A submodule that isn't imported yet: this error makes `from trackers import …` import it.
        raise AttributeError(f"module 'trackers' has no attribute {name!r}")
    # What a W&B script calls on the module: log, config, summary, run, … or an error that names the real call.
    return importlib.import_module("trackers.as_wandb.names").lookup(name)


class _Nothing:
    """What names of the current run are while the interpreter ends: calls and items are taken, and nothing is kept."""

    def __call__(self, *arguments: Any, **more: Any) -> None: ...

    def __setitem__(self, name: str, value: Any) -> None: ...

    def __setattr__(self, name: str, value: Any) -> None: ...

    def __getitem__(self, name: str) -> None: ...

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __getattr__(self, name: str) -> _Nothing:
        if name.startswith("__"):
            raise AttributeError(name)
        return self


class _Package(types.ModuleType):
    """Scripts assign to names of the current run: ``wandb.config = {"lr": 0.1}``."""

    def __setattr__(self, name: str, value: Any) -> None:
        own = isinstance(value, types.ModuleType) or name in _MODULE_OF or name.startswith("_")
        if own or not importlib.import_module("trackers.as_wandb.names").assign(name, value):
            super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        arguments = sys.modules.get("trackers.training.wandb_arguments")  # loaded by what was assigned
        if arguments is None or arguments.assigned.pop(name, self) is self:
            super().__delattr__(name)


sys.modules[__name__].__class__ = _Package


def __dir__() -> list[str]:
    """The names of this package, and W&B's, which scripts call on the module."""
    return sorted({*__all__, *importlib.import_module("trackers.as_wandb.names").offered()})
