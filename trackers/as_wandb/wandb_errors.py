"""``wandb.errors``: the exceptions that scripts catch are those that this package raises."""

from __future__ import annotations

from trackers.as_wandb.names import termerror, termlog, termwarn
from trackers.errors import AuthenticationError, CommError, Error, UsageError

__all__ = [
    "AuthenticationError", "CommError", "Error", "UnsupportedError", "UsageError", "WandbCoreNotAvailableError",
    "termerror", "termlog", "termwarn",
]  # fmt: skip


class UnsupportedError(UsageError):
    """W&B's error of this name; never raised here."""


class WandbCoreNotAvailableError(Error):
    """W&B's error of this name; never raised here."""
