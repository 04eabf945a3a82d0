"""Where runs lie, as a command is told."""

from __future__ import annotations

import os
from pathlib import Path


def runs_root(given: Path | None) -> Path:
    """The directory of all runs: the option, else what the configuration says."""
    if given is not None:
        return given
    from trackers import configuration
    from trackers.errors import UsageError

    try:
        return Path(str(configuration.resolve()["TRACKER_DIR"])).expanduser()
    except UsageError:  # a broken .config must not keep anybody from looking at runs
        return Path(os.environ.get("TRACKER_DIR", "runs"))
