"""Checks of W&B that ``init`` makes before the first step. Imports nothing else of this tracker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trackers.backends.wandb import login
from trackers.tracker import RunInfo


class WandbPrecheck:
    """W&B: a login, or its offline mode."""

    name = "wandb"
    needs = ("wandb",)

    @classmethod
    def check(cls, options: Mapping[str, Any]) -> None:
        """Raise ConfigError for a project's name that W&B refuses, CredentialsMissing where a login can't be found."""
        login.check(options)

    @classmethod
    def place(cls, info: RunInfo) -> str:
        """The server's name, or that it is W&B's offline mode."""
        return login.host() if login.mode(info.options) == "online" else "offline"
