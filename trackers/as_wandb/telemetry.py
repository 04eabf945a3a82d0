"""``wandb.sdk.lib.telemetry``: W&B's integrations tell its service who uses them; here they tell nobody."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


class TelemetryRecord:
    """Takes any field, and fields of fields."""

    def __getattr__(self, name: str) -> TelemetryRecord:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __setattr__(self, name: str, value: Any) -> None:
        pass


TelemetryImports = TelemetryRecord


@contextlib.contextmanager
def context(run: Any = None, obj: Any = None) -> Iterator[TelemetryRecord]:
    """A record whose fields can be set."""
    yield TelemetryRecord()
