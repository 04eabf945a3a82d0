"""Options: declared once in the Kconfig file; given by file, environment, flag or argument.

Importing this package is cheap; kconfiglib is loaded when options are first resolved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trackers.configuration.flags import add_arguments, flags_from_args
    from trackers.configuration.options import Options, resolve
    from trackers.configuration.run_names import fill_template, project_name, run_name

__all__ = ["Options", "add_arguments", "fill_template", "flags_from_args", "project_name", "resolve", "run_name"]

_HOMES = {
    "Options": "options", "resolve": "options",
    "add_arguments": "flags", "flags_from_args": "flags",
    "fill_template": "run_names", "project_name": "run_names", "run_name": "run_names",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        import importlib

        return getattr(importlib.import_module(f"trackers.configuration.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
