"""What the threads of this process are at."""

from __future__ import annotations

import gc
import os
import sys
import threading
from types import FrameType

_lock = threading.RLock()
if hasattr(os, "register_at_fork"):  # a child has the lock free, and collects
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


def frames() -> dict[int, FrameType]:
    """The frame that each thread is at, by its identifier, as ``sys._current_frames`` has it.

    Up to Python 3.11 that waits for ever where garbage is collected in it (python/cpython#106883): it isn't here.
    """
    if sys.version_info >= (3, 12):
        return sys._current_frames()
    with _lock:
        collects = gc.isenabled()
        try:
            gc.disable()
            return sys._current_frames()
        finally:
            if collects:
                gc.enable()
