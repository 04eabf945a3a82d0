"""Clocks that no library replaces. Where freezegun or time-machine have stopped ``time.monotonic``, what waits for a
moment on it waits for ever; both leave ``clock_gettime`` alone, but for time-machine's Unix time.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

_HAS_CLOCKS = hasattr(time, "clock_gettime")
monotonic: Callable[[], float] = (
    functools.partial(time.clock_gettime, time.CLOCK_MONOTONIC) if _HAS_CLOCKS else time.monotonic
)
"""As ``time.monotonic``."""
unix_time: Callable[[], float] = (
    functools.partial(time.clock_gettime, time.CLOCK_REALTIME) if _HAS_CLOCKS else time.time
)
"""As ``time.time``."""
