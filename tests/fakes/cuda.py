"""A GPU on paper: what torch.cuda's events and streams promise, with work that is done when a test says so.

Stands below our code where no GPU can be had. It keeps to torch's documentation: an event is passed when all work
queued before it is done; ``query`` tells, ``elapsed_time`` answers in milliseconds, as CUDA's own float of 32 bits, and
only for passed events of one device; an event keeps the device it was first recorded on; asking while a graph is
captured ends the capture.
"""

from __future__ import annotations

import math
import struct


class Event:
    def __init__(self, cuda: Cuda, enable_timing: bool) -> None:
        assert enable_timing, "an event without timing can't be asked for elapsed_time"
        self._cuda = cuda
        self.at_ms = math.nan
        self.device: int | None = None

    def record(self) -> None:
        self._cuda.check()
        if self.device not in (None, self._cuda.device):
            raise RuntimeError(f"Event device {self.device} does not match recording stream's device")
        self.device = self._cuda.device
        self.at_ms = self._cuda.queued_ms
        self._cuda.recorded += 1

    def query(self) -> bool:
        assert not math.isnan(self.at_ms), "an event that was never recorded"
        assert not self._cuda.capturing, "an event was asked while a graph was captured"
        self._cuda.check()
        return self.at_ms <= self._cuda.done_ms

    def elapsed_time(self, end: Event) -> float:
        if not (self.query() and end.query()):
            raise RuntimeError("Both events must be completed before calculating elapsed time.")
        if self.device != end.device:
            raise RuntimeError("Events are of different devices.")
        return float(struct.unpack("f", struct.pack("f", end.at_ms - self.at_ms))[0])


class Cuda:
    """``torch.cuda`` as far as timers use it. ``work`` queues milliseconds of work, ``run`` does some of it."""

    def __init__(self) -> None:
        self.queued_ms = 0.0
        self.done_ms = 0.0
        self.recorded = 0
        self.made = 0
        self.synchronized = 0
        self.capturing = False
        self.device = 0
        self.error = ""

    def check(self) -> None:
        """Raise what a process without this GPU, or with a failed one, gets from every call."""
        if self.error:
            raise RuntimeError(self.error)

    def Event(self, enable_timing: bool = False) -> Event:
        self.made += 1
        return Event(self, enable_timing)

    def work(self, milliseconds: float) -> None:
        self.queued_ms += milliseconds

    def run(self, milliseconds: float = math.inf) -> None:
        self.done_ms = min(self.queued_ms, self.done_ms + milliseconds)

    def synchronize(self) -> None:
        self.check()
        assert not self.capturing, "a wait while a graph was captured"
        self.synchronized += 1
        self.run()

    def is_initialized(self) -> bool:
        return True

    def is_current_stream_capturing(self) -> bool:
        self.check()
        return self.capturing
