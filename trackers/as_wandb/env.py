"""``wandb.env``: names of W&B's environment variables, and what they say."""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from typing import Any

Environment = MutableMapping[str, str]
_OTHERWISE = {
    "IGNORE": "WANDB_IGNORE_GLOBS",
    "DISABLE_SSL": "WANDB_INSECURE_DISABLE_SSL",
    "USE_V1_ARTIFACTS": "_WANDB_USE_V1_ARTIFACTS",
}
TRUE = ("1", "y", "yes", "t", "true", "on")


def __getattr__(name: str) -> Any:
    if name.isupper():
        return _OTHERWISE.get(name, f"WANDB_{name}")
    if name.startswith("get_") and (not name.endswith("_dir") or name == "get_dir"):
        return lambda default=None, env=None: _of(env).get(f"WANDB_{name[4:].upper()}", default)
    raise AttributeError(f"module 'wandb.env' of trackers has no {name!r}")


def _of(environment: Environment | None) -> Environment:
    return os.environ if environment is None else environment


def _says(name: str, environment: Environment | None = None) -> bool:
    return _of(environment).get(name, "").strip().lower() in TRUE


def is_debug(default: str | None = None, env: Environment | None = None) -> bool:
    """Whether WANDB_DEBUG is set."""
    return _says("WANDB_DEBUG", env) or (default or "").lower() in TRUE


def is_offline(env: Environment | None = None) -> bool:
    """Whether WANDB_MODE is offline."""
    return _of(env).get("WANDB_MODE") == "offline"


def is_quiet() -> bool:
    """Whether WANDB_QUIET is set."""
    return _says("WANDB_QUIET")


def is_silent() -> bool:
    """Whether WANDB_SILENT is set."""
    return _says("WANDB_SILENT")


def get_run(default: str | None = None, env: Environment | None = None) -> str | None:
    """WANDB_RUN_ID."""
    return _of(env).get("WANDB_RUN_ID", default)


def set_entity(value: str, env: Environment | None = None) -> None:
    """Set WANDB_ENTITY."""
    _of(env)["WANDB_ENTITY"] = value


def set_project(value: str, env: Environment | None = None) -> None:
    """Set WANDB_PROJECT, or ``uncategorized`` where there is none."""
    _of(env)["WANDB_PROJECT"] = value or "uncategorized"
