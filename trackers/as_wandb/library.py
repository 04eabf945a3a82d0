"""The part of ``wandb.sdk.lib`` that scripts and W&B's integrations use."""

from __future__ import annotations

import os
import sys
from typing import Any

from trackers.as_wandb.names import setup, teardown, termerror, termlog, termwarn
from trackers.errors import UsageError
from trackers.formats.json_values import mapping
from trackers.training.disabled import NullRun
from trackers.training.wandb_arguments import Settings, filtered, read_config

__all__ = [
    "ConfigError", "RunDisabled", "dict_from_config_file", "in_jupyter", "in_notebook", "new_printer", "parse_config",
    "setup", "singleton", "teardown",
]  # fmt: skip

RunDisabled = NullRun


class ConfigError(UsageError):
    """W&B's error for a configuration value that changes; here a change is allowed, and this is never raised."""


def dict_from_config_file(filename: str | os.PathLike[str], must_exist: bool = False) -> dict[str, Any] | None:
    """The configuration in a YAML file; None where there is no such file.

    Raises:
        UsageError: the file must exist and doesn't, or isn't valid.
    """
    return read_config(filename) if must_exist or os.path.exists(filename) else None


def parse_config(params: Any, exclude: Any = None, include: Any = None) -> dict[str, Any]:
    """``wandb.helper.parse_config``: a configuration, or the one in a YAML file, with these keys or without them.

    Raises:
        UsageError: both are given; or there is no such file, or it isn't valid.
    """
    if isinstance(params, str):
        params = read_config(params)
    return dict(filtered(mapping(params), include, exclude))


def in_notebook() -> bool:
    """True in a notebook."""
    return "ipykernel" in sys.modules


in_jupyter = in_notebook


class Printer:
    """Prints lines as W&B's integrations do."""

    def display(self, text: Any, *, level: Any = None, **more: Any) -> None:
        """Print one line, or several."""
        lines = [text] if isinstance(text, str) else list(text)
        level = str(level or "").lower()
        for line in lines:
            (termerror if "error" in level else termwarn if "warn" in level else termlog)(line)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda text="", *arguments, **more: str(text)


def new_printer(settings: Any = None) -> Printer:
    """A printer."""
    return Printer()


get_printer = new_printer


def _setup(settings: Any = None, start_service: bool = True, **more: Any) -> Settings:
    return setup(settings)


def singleton() -> Settings:
    """What ``wandb.setup`` was told."""
    return setup()


def warn_and_record_deprecation(*arguments: Any, **more: Any) -> None:
    """Nothing: W&B's own notices."""
