"""Options: declared once in the Kconfig file; given by file, environment, flag or argument.

Importing this package is cheap; kconfiglib is loaded when options are first resolved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trackers.configuration.options import SWEEP_RUN, Options, add_arguments, flags_from_args, resolve
    from trackers.configuration.run_names import fill_template, project_name, run_name

__all__ = [
    "SWEEP_RUN", "Options", "add_arguments", "fill_template", "flags_from_args", "project_name", "resolve", "run_name",
]  # fmt: skip

_RUN_NAMES = ("fill_template", "project_name", "run_name")


def __getattr__(name: str) -> Any:
    if name in __all__:
        import importlib

        module = "run_names" if name in _RUN_NAMES else "options"
        return getattr(importlib.import_module(f"trackers.configuration.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
