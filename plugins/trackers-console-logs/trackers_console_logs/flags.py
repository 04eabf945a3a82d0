"""The flag ``--log-format`` of all commands with sources; light, since each of them loads it."""

from __future__ import annotations

import os
from collections.abc import Sequence

VARIABLE = "TRACKER_LOG_FORMAT"
"""Environment variable with the files, separated as ``PATH`` is; the flag adds to it."""


def log_format(file: Sequence[str]) -> None:
    """A format of your own for log:FILE (TOML)."""
    use(file)


def use(paths: Sequence[str]) -> None:
    """Have all readers of this process know these files, before those that the environment names."""
    if paths:
        known = os.environ.get(VARIABLE)
        os.environ[VARIABLE] = os.pathsep.join([*paths, *([known] if known else [])])
