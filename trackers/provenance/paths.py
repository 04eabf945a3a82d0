"""Where a program's own files are. Loaded in training, so it is short."""

from __future__ import annotations

import os

RERUN_OF = "TRACKERS_RERUN_OF"
"""Environment variable by which ``trackers rerun`` says which run is run again."""
ENDING = "modules"
"""End of the name of the file in which training tells what was imported (:mod:`trackers.provenance.modules`)."""


def own_root(program: str, cwd: str, git: str, prefix: str) -> str:
    """The directory that a program's own files lie below: its repository, else the working directory, if the script
    lies below it, else the script's directory.

    Only what is imported is ever looked at there, so it may be large.

    Args:
        program, cwd: as a run's identity has them. git: the repository's root; "" for none. prefix: of the Python.
    """
    if git:
        return git
    is_file = os.path.isabs(program) and not is_below(program, prefix)
    if cwd != os.sep and os.path.isabs(cwd) and (not is_file or is_below(program, cwd)):
        return cwd
    return os.path.dirname(program) if is_file else ""


def is_below(path: str, root: str) -> bool:
    """Whether a path lies below a directory, by their names alone."""
    return bool(root) and path.startswith(root if root.endswith(os.sep) else root + os.sep)
