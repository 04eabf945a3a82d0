"""Temporary directories that libraries made as they were imported, in a process that was forked since.

W&B's client makes two, and deletes them at its process's end. In forks they would be the parent's: the first one that
ends would take them from all others.
"""

from __future__ import annotations

import os
import secrets
import tempfile
import weakref
from typing import Any

_RANDOM = len("tmp") + 8
"""Length of what ``tempfile`` puts before a suffix."""
_taken: list[tuple[tempfile.TemporaryDirectory[str], Any, dict[str, Any], str]] = []


def leave() -> None:
    """In a fork: leave the directories to the parent. Until :func:`make`, libraries find none where theirs were."""
    for finalizer in list(weakref.finalize._registry):  # type: ignore[attr-defined]
        entry = finalizer.peek()
        if entry is not None and isinstance(entry[0], tempfile.TemporaryDirectory):
            directory, remove, _, options = finalizer.detach()
            suffix = os.path.basename(directory.name)[_RANDOM:]
            directory.name = os.path.join(tempfile.gettempdir(), f"none-{secrets.token_hex(8)}")
            _taken.append((directory, remove, options, suffix))


def make() -> None:
    """Make this process's own, which end with it."""
    while _taken:
        directory, remove, options, suffix = _taken.pop()
        directory.name = tempfile.mkdtemp(suffix)
        directory._finalizer = weakref.finalize(directory, remove, directory.name, **options)  # type: ignore[attr-defined]
