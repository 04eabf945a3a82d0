"""Estimate of the remaining training time, from the speed since this start, so that it is right after a resume."""

from __future__ import annotations

from trackers.errors import UsageError

UNITS = {"seconds": 1.0, "minutes": 60.0, "hours": 3600.0, "days": 86400.0}


class Remaining:
    """Estimates the time left, as ``time/…`` values.

    The remaining time is elapsed ÷ fraction × (1 - fraction), both counted since this start. Pauses for evaluation
    and checkpoints count, since more of them will come; the first step, which compiles, doesn't as soon as there is
    a second.

    Args:
        total_steps: where training ends. start_step: how many steps were done before this start.
        unit: seconds, minutes, hours or days: of ``time/remaining_estimate`` and ``time/total``.

    Raises:
        UsageError: an unknown unit.
    """

    def __init__(self, total_steps: int, start_step: int = 0, unit: str = "hours") -> None:
        if unit not in UNITS:
            raise UsageError(f"runtime unit {unit!r}: known are {', '.join(UNITS)}")
        self._total_steps = total_steps
        self._start_step = start_step
        self._unit_s = UNITS[unit]
        self._first_s: float | None = None

    def stepped(self, elapsed_s: float) -> None:
        """Record the end of a step, by seconds since the start."""
        if self._first_s is None:
            self._first_s = elapsed_s

    def remaining_s(self, step: int, elapsed_s: float) -> float | None:
        """Seconds left; None before a step was done.

        Args:
            step: steps done, those before this start included. elapsed_s: seconds since this start.
        """
        done = step - self._start_step
        if done < 1:
            return None
        first_s = self._first_s or 0.0
        pace_s = elapsed_s / done if done == 1 else (elapsed_s - first_s) / (done - 1)
        return max(0, self._total_steps - step) * pace_s

    def values(self, step: int, elapsed_s: float, samples: int | None, tokens: int | None) -> dict[str, float]:
        """What to log. samples, tokens: gone through so far, those before this start included."""
        found: dict[str, float] = {"time/batches": step, "time/total": elapsed_s / self._unit_s}
        remaining_s = self.remaining_s(step, elapsed_s)
        if remaining_s is not None:
            found["time/remaining_estimate"] = remaining_s / self._unit_s
        if samples is not None:
            found["time/samples"] = samples
        if tokens is not None:
            found["time/tokens"] = tokens
        return found
