"""What a run ran on, gathered beside training because it takes a while: git's state, packages, the machine."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from typing import Any

from trackers.hardware import kernel
from trackers.secret import mask_source
from trackers.tracker import RunInfo

PATCH_BYTES = 1_000_000


def gather(info: RunInfo) -> dict[str, Any]:
    """Nested values for an Environment record; what can't be found out is absent."""
    values: dict[str, Any] = {
        "host": info.host,
        "os": platform.platform(),
        "python": platform.python_version(),
        "executable": info.python,
        "cpu_count": os.cpu_count() or 0,
        "packages": packages(),
        **kernel.gpus(),
    }
    values["git"] = {**info.git, **git_state(info.git.get("root", ""))} if info.git else {}
    return values


def packages() -> dict[str, str]:
    """Installed distributions and their versions, sorted by name."""
    found = {}
    for distribution in metadata.distributions():
        name = distribution.metadata["Name"] if distribution.metadata else None
        if name:
            found[name] = distribution.version
    return dict(sorted(found.items(), key=lambda item: item[0].lower()))


def git_state(root: str) -> dict[str, Any]:
    """``dirty`` and ``patch`` (against HEAD, up to 1 MB) of a repository; {} without git."""
    if not root:
        return {}
    try:
        diff = subprocess.run(
            ["git", "-C", root, "--no-optional-locks", "diff", "--no-ext-diff", "--no-color", "HEAD"],
            capture_output=True, timeout=20, check=True, stdin=subprocess.DEVNULL,
        ).stdout  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return {}
    state: dict[str, Any] = {"dirty": bool(diff)}
    if diff:
        state["patch"] = mask_source(diff[:PATCH_BYTES].decode("utf-8", "replace"))
    return state
