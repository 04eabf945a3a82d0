"""``wandb.gym``, ``init(monitor_gym=True)``: videos that Gymnasium's recorder has written are logged as ``videos``."""

from __future__ import annotations

import functools
import importlib
import os
import re
from collections.abc import Callable
from typing import Any

from trackers.errors import MissingPackage
from trackers.media import Video
from trackers.training import init as start

__all__ = ["monitor"]

_logged: set[tuple[str, int]] = set()
"""Files that were logged, with the times of their last change: recorders are closed more than once."""


def monitor() -> None:
    """Log each video of ``RecordVideo`` from now on with the run that is open then. Calling it again changes nothing.

    Raises:
        MissingPackage: neither gymnasium nor gym is installed.
    """
    library = _library()
    try:
        old = importlib.import_module(f"{library.__name__}.wrappers.monitoring.video_recorder")
    except ImportError:  # gymnasium 1.0 and later
        kind = importlib.import_module(f"{library.__name__}.wrappers").RecordVideo
        _log_after(kind, "stop_recording", lambda own: os.path.join(own.video_folder, f"{own._video_name}.mp4"))
    else:
        _log_after(old.VideoRecorder, "close", lambda own: own.path)


def _library() -> Any:
    for name in ("gymnasium", "gym"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    raise MissingPackage("monitor_gym: neither gymnasium nor gym is installed: pip install gymnasium")


def _log_after(kind: Any, name: str, path_of: Callable[[Any], str]) -> None:
    original = getattr(kind, name)
    if hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def record(self: Any, *arguments: Any, **more: Any) -> Any:
        path = path_of(self)
        result = original(self, *arguments, **more)
        _log(path)
        return result

    setattr(kind, name, record)


def _log(path: str) -> None:
    run = start.current()
    try:
        written = (os.path.abspath(path), os.stat(path).st_mtime_ns)
    except OSError:  # no frames, or another format
        return
    if run is not None and written not in _logged:
        _logged.add(written)
        numbered = re.search(r"video\.\d+", os.path.basename(path))
        run.log({numbered[0] if numbered else "videos": Video(path)})
