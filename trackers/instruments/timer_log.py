"""Timers' values for the trackers: ``{timer}-time`` in seconds per iteration, as Megatron names them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from trackers.instruments.timers import Timers, TimerSpan
from trackers.reductions import All, Max, Min
from trackers.values.deferred import number

SUFFIX = "-time"
INTERRUPTED = "-interrupted"
EVERY_S = 1.0
"""Minimum interval at which a single rank without a loop logs its timers, in seconds, after a new step was logged."""


def values(spans: Mapping[str, TimerSpan], iterations: int) -> dict[str, Any]:
    """What to log: by timer, the seconds it measured divided by the iterations of that time.

    A timer whose body ended by an exception has ``{timer}-interrupted``, how many times, too; or alone, if no body
    ended well.
    """
    iterations = max(1, iterations)
    found: dict[str, Any] = {}
    for name, span in spans.items():
        if span.count or not span.interrupted or span.elapsed_s > 0 or not span.ready:
            found[name + SUFFIX] = number([span], lambda span=span: span.elapsed_s / iterations)  # type: ignore[misc]
        if span.interrupted:
            found[name + INTERRUPTED] = span.interrupted
    return found


def across_ranks(found: Mapping[str, Any], option: str, ranks: int) -> dict[str, Any]:
    """Times as values of all ranks: ``{timer}-time`` is always the slowest rank's.

    Args:
        option: "max": nothing else; "minmax": the fastest one's too, as ``{timer}-time-min``; "all": every rank's, as
            ``{timer}-time-ranks/rank_0``, …
        ranks: with one, everything is as it is.
    """
    if ranks <= 1:
        return dict(found)
    shared: dict[str, Any] = {}
    for name, value in found.items():
        shared[name] = Max(value)
        if name.endswith(SUFFIX) and option == "minmax":
            shared[f"{name}-min"] = Min(value)
        elif name.endswith(SUFFIX) and option == "all":
            shared[f"{name}-ranks"] = All(value)
    return shared


class TimerLog:
    """Logs timers as training goes on, by an interval of its own.

    Args:
        log: called with values and a step. step: the step that training logged last.
        option, ranks: see ``across_ranks``.
        interval: with several ranks, steps between two logs: they must all log at the same steps.
    """

    def __init__(
        self,
        timers: Timers,
        log: Callable[[dict[str, Any], int], Any],
        step: Callable[[], int],
        option: str = "minmax",
        ranks: int = 1,
        interval: int = 10,
    ) -> None:
        self._timers = timers
        self._log = log
        self._step = step
        self._option, self._ranks = option, ranks
        self._every = interval if ranks > 1 else 1
        self._interval = timers.interval()
        self._logged = step()
        timers.look = self.look
        timers.look_at_s = 0.0

    def look(self, now: float) -> None:
        """Log, if training has come further. Called by a timer before it starts; now: on ``perf_counter``.

        The first step, which compiles, is logged on its own. Before a start is where one iteration's work ends, if
        training logs at its end.
        """
        if self._advance() and self._ranks <= 1:
            self._timers.look_at_s = now + EVERY_S

    def log(self, step: int, iterations: int) -> None:
        """Log the times measured since the last call, over the given number of iterations."""
        self._logged = step
        found = values(self._interval.take(), iterations)
        if found:
            self._log(across_ranks(found, self._option, self._ranks), step)

    def leave(self) -> None:
        """Somebody else logs the timers from now on."""
        self._timers.look_at_s = math.inf
        self._step = lambda: -1

    def close(self) -> None:
        """Log the rest."""
        self._timers.look_at_s = math.inf
        self._every = 1
        self._advance()

    def _advance(self) -> bool:
        step = self._step()
        if step <= self._logged or (self._logged >= 0 and step // self._every == self._logged // self._every):
            return False
        # Steps are counted from 0 or from 1: the first one seen is one step either way.
        self.log(step, step - max(self._logged, 0) if step > 1 else 1)
        return True
