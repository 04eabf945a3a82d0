"""Files that are made whole or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from trackers.errors import UsageError


def write(path: Path, make: Callable[[Path], object]) -> None:
    """Let ``make`` write a file beside the path, then put it there; the directory is made.

    Raises:
        UsageError: it can't be written.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        make(partial)
        os.replace(partial, path)
    except OSError as error:
        raise UsageError(f"{path} can't be written: {error.strerror or error}") from None
    finally:
        with contextlib.suppress(OSError):
            partial.unlink()
