"""The life of a helper process: started when it is due, and again when it dies, at growing distances."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from typing import Any

from trackers.tracker import RunInfo

QUIET_DEATHS = 2
"""Deaths in a row of which the user isn't told: a loaded machine kills one now and then."""
STEADY_S = 60.0
"""Time of work after which earlier deaths don't count any more, in seconds, unless there is a greatest number."""


def avoided_by(info: RunInfo) -> tuple[str, ...]:
    """Directories that must not be on a helper's import path: training's own."""
    return info.cwd, info.home, os.path.dirname(info.program) if info.program else ""


def how_it_died(code: int) -> str:
    """An exit code in words."""
    return f"signal {-code}" if code < 0 else f"exit code {code}"


class Helper:
    """One process. Times are monotonic, and the caller's.

    Args:
        start: starts it, with the number of deaths before; returns what has the methods of a ``subprocess.Popen``.
            Raises OSError.
        pauses_s: before it is started again after its first death, its second, …; the last one from then on.
        jitter: fraction of a pause that chance may take away, so that many machines don't begin at once.
        say: called with one line when it can't live: from its third death in a row on.

    Attributes:
        process: None while there is none. due_at: when it may be started. deaths: in a row.
        most: number of deaths after which it isn't started any more; 0: there is no such number.
    """

    def __init__(
        self, start: Callable[[int], Any], pauses_s: Sequence[float], say: Callable[[str], None], *,
        most: int = 0, jitter: float = 0.0,
    ) -> None:  # fmt: skip
        self._begin, self._pauses_s, self._say, self._jitter = start, pauses_s, say, jitter
        self.most = most
        self.process: Any = None
        self.due_at = 0.0
        self.deaths = 0
        self._started_at = 0.0
        self._is_asked = False

    @property
    def pid(self) -> int:
        """Process id; 0 while there is none."""
        return 0 if self.process is None else int(self.process.pid)

    @property
    def is_given_up(self) -> bool:
        """Whether it has died too often."""
        return bool(self.most) and self.deaths >= self.most

    def is_due(self, now: float) -> bool:
        """Whether it may be started."""
        return self.process is None and now >= self.due_at and not self.is_given_up

    def start(self, now: float, failure: str = "it can't be started") -> bool:
        """Start it; False if that fails, which counts as a death.

        Args:
            failure: beginning of what the user is told then.
        """
        try:
            self.process = self._begin(self.deaths)
        except OSError as error:
            self.died(now, f"{failure}: {error}")
            return False
        self._started_at, self._is_asked = now, False
        return True

    def poll(self, now: float) -> int | None:
        """Its exit code, once, when it has ended; None while it runs, or if there is none."""
        code: int | None = None if self.process is None else self.process.poll()
        if code is not None:
            self.process = None
            if not self.most and now - self._started_at > STEADY_S:
                self.deaths = 0
        return code

    def died(self, now: float, text: str) -> None:
        """It ended as it shouldn't have: it is due again after a pause.

        Args:
            text: what the user is told when this goes on.
        """
        pause_s = self._pauses_s[min(self.deaths, len(self._pauses_s) - 1)]
        self.due_at = now + pause_s * random.uniform(1.0 - self._jitter, 1.0)  # what died together starts apart
        self.deaths += 1
        if self.deaths > QUIET_DEATHS and (not self.most or self.is_given_up):
            self._say(text)

    def ask(self) -> None:
        """Ask it to end, once."""
        if self.process is not None and not self._is_asked:
            self._is_asked = True
            self.process.terminate()

    def kill(self, *, wait: bool = True) -> None:
        """End it in any state.

        Args:
            wait: until it is gone; False for one that may hang in a driver.
        """
        if self.process is not None:
            self.process.kill()
            if wait:
                self.process.wait()
            self.process = None
