"""What a run ran on, gathered by its relay because that is slow: machine, packages, repository, container."""

from __future__ import annotations

import os
import platform
import threading
from collections.abc import Callable
from typing import Any

from trackers.hardware import host
from trackers.journal.run_directory import RunDirectory
from trackers.provenance import packages, paths, repository, surroundings
from trackers.support import confined, plugins
from trackers.tracker import RunInfo

LOOK_S = 0.1


def gather_environment(info: RunInfo) -> dict[str, Any]:
    """Nested values for an Environment record; values that can't be determined are absent."""
    values: dict[str, Any] = {
        "host": info.host,
        "os": platform.platform(),
        "python": platform.python_version(),
        "executable": info.python,
        "cpu_count": os.cpu_count() or 0,
        "packages": packages.installed(),
        **host.gpus(),
    }
    if brought := {plugin.name: plugin.version for plugin in plugins.brought() if plugin.allowed}:
        values["plugins"] = brought
    if container := surroundings.container():
        values["container"] = container
    if rerun_of := os.environ.get(paths.RERUN_OF):
        values["rerun_of"] = rerun_of[:200]
    values["git"] = {**info.git, **repository.state(info.git.get("root", ""))} if info.git else {}
    return values


def gathered(info: RunInfo, run: RunDirectory, node: int, meanwhile: Callable[[], object]) -> dict[str, Any]:
    """The environment's values, the machine's among them, as those of the node with this number.

    Args:
        meanwhile: called ten times a second: it takes tenths of a second of CPU time, during which training may end.
    """
    found: list[dict[str, Any]] = []
    if not info.git and packages.is_cached():  # a fork: what takes long is known
        found.append(gather_environment(info))
    else:
        thread = threading.Thread(target=lambda: found.append(gather_environment(info)))
        thread.start()
        while thread.is_alive():
            thread.join(LOOK_S)
            meanwhile()
    return found[0] | {"machines": {f"node{node}": host.properties(str(run.path))}}


def keep_patch(values: dict[str, Any], run: RunDirectory, attempt: int) -> None:
    """Move the patch out of the values into a file of the run that only its owner may read, and name that instead."""
    patch = values.get("git", {}).pop("patch", None)
    if patch is None:
        return
    path = run.path / f"git-{attempt}.patch"
    try:
        with os.fdopen(confined.open_fd(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(patch.encode("utf-8", "replace"))
    except OSError:  # a full disk: training's records come first
        return
    values["git"]["patch_file"] = path.name


def preload() -> None:
    """Cache what is the same for all forks of this process; a host agent ends when packages change."""
    packages.installed()
    platform.platform()
