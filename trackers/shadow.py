"""PyPI has another package that imports as ``trackers`` (object tracking). When both are installed, say so plainly."""

from __future__ import annotations

import sys
from importlib import metadata

CURE = "pip uninstall -y trackers trackers-relay && pip install trackers-relay"


def other_version() -> str:
    """Version of the other distribution, where it is installed; else ""."""
    try:
        return metadata.version("trackers")
    except metadata.PackageNotFoundError:
        return ""


def complaint() -> str:
    """One line if the other package is installed or has taken this one's place; else ""."""
    package = sys.modules.get("trackers")
    place = getattr(package, "__file__", None)
    if not hasattr(package, "_PLACES"):
        return f"another package called 'trackers' (object tracking) took this one's place in {place}: {CURE}"
    version = other_version()
    if version:
        return (
            f"the object-tracking package 'trackers' {version} is installed beside trackers-relay, and both use the "
            f"folder of {place}: {CURE}"
        )
    return ""
