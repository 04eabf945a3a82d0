"""Which files ``run.log_code`` takes: those that W&B takes too."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from trackers.support.interruption import pass_on

Choice = Callable[..., bool]
"""Of a path, or of a path and the root that it lies below."""

WANDB_FOLDERS = ("wandb", ".wandb")


def is_code(path: str) -> bool:
    """Python, a Dockerfile or requirements.txt."""
    name = os.path.basename(path)
    return name.endswith(".py") or name.startswith("Dockerfile") or name == "requirements.txt"


def in_wandb_folder(path: str, root: str) -> bool:
    """Whether a path lies in W&B's folder below the root."""
    return os.path.relpath(path, root).startswith(tuple(f"{name}{os.sep}" for name in WANDB_FOLDERS))


def code_files(root: str, include: Choice, exclude: Choice, runs: Path) -> Iterator[tuple[str, Path]]:
    """Files below a directory that are included and not excluded, with their paths relative to it, sorted.

    Args:
        runs: a directory that is left out: runs hold snapshots of code themselves.
    """
    chosen, left_out = _with_root(include), _with_root(exclude)
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if Path(folder, name) != runs)
        for name in sorted(names):
            path = os.path.join(folder, name)
            if chosen(path, root) and not left_out(path, root) and os.path.isfile(path):
                yield os.path.relpath(path, root), Path(path)


def _with_root(choice: Choice) -> Choice:
    try:
        two = len(inspect.signature(choice).parameters) == 2
    except (TypeError, ValueError) as error:
        pass_on(error)
        two = False
    return choice if two else lambda path, root: choice(path)
