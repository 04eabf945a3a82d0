"""PyPI has another package that imports as ``trackers`` (object tracking). When both are installed, say so plainly."""

from __future__ import annotations

import os
import sys

CURE = "pip uninstall -y trackers trackers-relay && pip install trackers-relay"


def other_version() -> str:
    """Version of the other distribution, where it is installed; else "".

    Looks at names of files only: importing importlib.metadata would be a fifth of all that ``init`` takes.
    """
    for folder in sys.path:
        try:
            names = os.listdir(folder or os.curdir)
        except OSError:  # not there, or an archive
            continue
        for name in names:
            if name.startswith("trackers-") and name.endswith((".dist-info", ".egg-info")):
                return name.removeprefix("trackers-").rpartition(".")[0].partition("-")[0]
    return ""


def complaint() -> str:
    """One line if the other package is installed or has taken this one's place; else ""."""
    package = sys.modules.get("trackers")
    file = getattr(package, "__file__", None)
    if not hasattr(package, "_MODULE_OF"):
        return f"another package called 'trackers' (object tracking) took this one's place in {file}: {CURE}"
    version = other_version()
    if version:
        return (
            f"the object-tracking package 'trackers' {version} is installed beside trackers-relay, and both use the "
            f"folder of {file}: {CURE}"
        )
    return ""
