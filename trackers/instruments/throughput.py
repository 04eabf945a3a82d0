"""Batches, samples, tokens and floating-point operations per second, and the time that remains.

Rates are those of a window of steps: what lies inside it divided by the time between its first and last reading, on a
clock that leaves evaluation, checkpoints and the first step out. All counts are of all ranks together.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from trackers.errors import UsageError
from trackers.instruments.clock import TrainingClock
from trackers.instruments.timers import TimerReading, TimerSpan
from trackers.values.device_copy import deferred_number

TERA = 1e12


class _Point(NamedTuple):
    reading: TimerReading
    steps: int
    samples: int | None
    tokens: int | None


class Throughput:
    """Measures how much goes through per second.

    Args:
        clock: asked at the end of each step.
        window: steps that the rates are taken over.
        devices: how many GPUs (or processes) train together.
        flops_per_token, flops_per_step: operations, of all ranks together; the first needs counted tokens.
        peak_tflops: one device's, for its utilisation (``throughput/device/mfu``).
        micro_batch_size, global_batch_size: logged as they are, where given.
    """

    def __init__(
        self,
        clock: TrainingClock,
        *,
        window: int = 100,
        devices: int = 1,
        flops_per_token: float | None = None,
        flops_per_step: float | None = None,
        peak_tflops: float | None = None,
        micro_batch_size: int | None = None,
        global_batch_size: int | None = None,
    ) -> None:
        self._clock = clock
        self._devices = max(1, devices)
        self._per_token, self._per_step = flops_per_token, flops_per_step
        self.peak_tflops = peak_tflops
        self._sizes = {"micro_batch_size": micro_batch_size, "global_batch_size": global_batch_size}
        self._points: deque[_Point] = deque(maxlen=max(1, window) + 1)
        self._interval: _Point | None = None

    def step(self, reading: TimerReading, samples: int | None = None, tokens: int | None = None) -> None:
        """A step ended. reading: the clock's; samples, tokens: of this step, None where it isn't known."""
        last = self._points[-1] if self._points else None
        if last is None:  # the end of the first step: where measuring begins
            point = _Point(reading, 0, 0, 0)
            self._interval = point
        else:
            point = _Point(reading, last.steps + 1, _sum(last.samples, samples), _sum(last.tokens, tokens))
        self._points.append(point)

    def values(self) -> dict[str, Any]:
        """What to log now: rates of the window, operations since the last call; nothing before the second step."""
        if len(self._points) < 2:
            return {}
        first, last = self._points[0], self._points[-1]
        span = self._clock.span(first.reading, last.reading)
        counts = {
            "batches": last.steps - first.steps,
            "samples": _difference(last.samples, first.samples),
            "tokens": _difference(last.tokens, first.tokens),
        }
        rates: dict[str, Any] = {f"throughput/{name}": size for name, size in self._sizes.items() if size is not None}
        for name, count in counts.items():
            if count is not None:
                rates[f"throughput/{name}_per_sec"] = rate(span, count)
                rates[f"throughput/device/{name}_per_sec"] = rate(span, count / self._devices)
        rates.update(self._operations(last))
        return rates

    def _operations(self, last: _Point) -> dict[str, Any]:
        first, self._interval = self._interval, last
        if first is None or first is last:
            return {}
        operations = self._counted(first, last)
        if operations is None:
            return {}
        span = self._clock.span(first.reading, last.reading)
        tera = operations / TERA
        rates = {"throughput/tflops": rate(span, tera), "throughput/tflops/device": rate(span, tera / self._devices)}
        if self.peak_tflops:
            rates["throughput/device/mfu"] = rate(span, tera / self._devices / self.peak_tflops)
        return rates

    def _counted(self, first: _Point, last: _Point) -> float | None:
        if self._per_step is not None:
            return self._per_step * (last.steps - first.steps)
        tokens = _difference(last.tokens, first.tokens)
        return None if self._per_token is None or tokens is None else self._per_token * tokens


def rate(span: TimerSpan, count: float) -> Any:
    """Amount per second over a span; the number may be known later. NaN for a span without time."""
    return deferred_number([span], lambda: count / span.elapsed_s if span.elapsed_s > 0 else float("nan"))


def _sum(before: int | None, more: int | None) -> int | None:
    return None if before is None or more is None else before + more


def _difference(last: int | None, first: int | None) -> int | None:
    return None if last is None or first is None else last - first


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

    def shift(self, steps: int) -> None:
        """Take so many steps more, or below 0 fewer, for done before this start."""
        self._start_step += steps

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
        times: dict[str, float] = {"time/batches": step, "time/total": elapsed_s / self._unit_s}
        remaining_s = self.remaining_s(step, elapsed_s)
        if remaining_s is not None:
            times["time/remaining_estimate"] = remaining_s / self._unit_s
        if samples is not None:
            times["time/samples"] = samples
        if tokens is not None:
            times["time/tokens"] = tokens
        return times
