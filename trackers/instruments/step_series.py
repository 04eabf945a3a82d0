"""Compact series of a callback's measurements of each step: GPU times, loss, learning rate, memory.

Nothing waits for a GPU: times and losses are read once it has come so far, and for certain in
:meth:`StepSeries.settle`.
"""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from trackers.instruments.clock import TrainingClock
from trackers.instruments.timers import TimerReading, TimerSpan, cuda_in_use
from trackers.records import Metrics, Number, Record
from trackers.values.device_copy import Scalar, deferred_number

SECONDS, LOSS, RATE = "perf/iter_time_sec", "train_loss", "learning_rate"
MEMORY = ("allocated", "max-allocated", "reserved", "max-reserved")
GB = 1e9
APART_EACH = 256
"""Steps between two times that the clock's list of pauses is emptied."""


class _Pending(NamedTuple):
    span: TimerSpan
    loss: Scalar | None


class StepSeries:
    """The steps of one start of training, from when it is made.

    Args:
        device: "cuda", "cpu" or "auto", as for timers. say: called with a line that says what went wrong.
        now: Unix seconds. start_step: steps done before this start.
    """

    def __init__(self, device: str, say: Callable[[str], None], now: Callable[[], float], start_step: int = 0) -> None:
        self.steps = start_step
        self._first = start_step
        self._now = now
        self._clock = TrainingClock(device, say)
        self._last: TimerReading = self._clock.reading()
        self._pending: deque[_Pending] = deque()
        self._seconds = array("d")
        self._losses: list[Number | None] = []
        self._rates: list[float | None] = []
        self._times = array("d")
        self._memory = {name: array("d") for name in MEMORY}

    def step(self, loss: Any = None, rate: float | None = None) -> dict[str, Any]:
        """A step has ended; what it measured, by the names that are logged. Some may be known later.

        Args:
            loss: a number or a scalar tensor, on a GPU or not.
        """
        reading = self._clock.step()
        span = self._clock.span(self._last, reading)
        self._last = reading
        self.steps += 1
        values: dict[str, Any] = {SECONDS: deferred_number([span], lambda: span.elapsed_s)}
        if loss is not None:
            values[LOSS] = loss
        if rate is not None:
            values[RATE] = rate
        values.update(self._read_memory())
        self._pending.append(_Pending(span, None if loss is None else Scalar(loss)))
        self._rates.append(rate)
        self._times.append(self._now())
        self._drain()
        if self.steps % APART_EACH == 0:
            self._clock.take_apart()
        return values

    def pause(self, what: str) -> AbstractContextManager[None]:
        """Keep the body out of the steps' times."""
        return self._clock.pause(what)

    def settle(self) -> None:
        """Wait for the GPU, once, so that everything is known."""
        cuda = cuda_in_use()
        if self._pending and cuda is not None:
            cuda.synchronize()
        self._drain()

    def records(self) -> Iterator[Record]:
        """A record for each step that is known."""
        for index, second in enumerate(self._seconds):
            values: dict[str, Number] = {SECONDS: second} if math.isfinite(second) else {}
            loss, rate = self._losses[index], self._rates[index]
            if loss is not None:
                values[LOSS] = loss
            if rate is not None:
                values[RATE] = rate
            for name, series in self._memory.items():
                if index < len(series):
                    values[_memory_name(name)] = series[index]
            yield Metrics(step=self._first + index + 1, time=self._times[index], values=values)

    def _drain(self) -> None:
        while self._pending:
            head = self._pending[0]
            if not head.span.ready or (head.loss is not None and not head.loss.ready):
                return
            self._seconds.append(head.span.elapsed_s)
            self._losses.append(None if head.loss is None else head.loss.value())
            self._pending.popleft()

    def _read_memory(self) -> dict[str, float]:
        """Of the CUDA allocator, whose books are on the host: no GPU is asked."""
        cuda = cuda_in_use()
        if cuda is None:
            return {}
        books = cuda.memory_stats_as_nested_dict()
        usage = {}
        for name in MEMORY:
            kind, which = name.removeprefix("max-"), "peak" if name.startswith("max-") else "current"
            value = books.get(f"{kind}_bytes", {}).get("all", {}).get(which)
            if value is None:
                continue
            self._memory[name].append(value / GB)
            usage[_memory_name(name)] = value / GB
        return usage


def _memory_name(name: str) -> str:
    return f"memory/mem-{name}-gigabytes"
