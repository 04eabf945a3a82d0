"""A timer on a GPU's own clock: two events around the work, read when the GPU has passed them. Nothing waits.

torch's documentation (https://docs.pytorch.org/docs/stable/generated/torch.cuda.Event.html): ``record`` puts an event
into the current stream, ``query`` tells without waiting whether all work before it is done, ``elapsed_time`` gives
milliseconds between two recorded events. An event belongs to the device that it was first recorded on. While a CUDA
graph is captured, no event is asked: that would end the capture. ROCm's torch has the same under the same names.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from trackers.instruments.timers import Mark, Timer

if TYPE_CHECKING:
    from trackers.instruments.timers import Timers

MAX_PENDING = 4096
"""Pairs of events that may wait for the GPU; CUDA queues about a thousand kernels before a launch blocks."""
MS_PER_S = 1000.0


class _Pair(NamedTuple):
    first: Any
    last: Any
    whole: bool


class EventTimer(Timer):
    """Measures what the GPU did between start and stop, on the stream that was current at each."""

    __slots__ = ("_closed", "_cuda", "_free", "_pending")

    def __init__(self, name: str, level: int, home: Timers, cuda: Any) -> None:
        super().__init__(name, level, home)
        self._cuda = cuda
        self._free: list[Any] = []
        self._closed = 0
        self._pending: deque[_Pair | Mark] = deque()

    def __enter__(self) -> Timer:
        if self._begun is not None:
            self._nested()
            return self
        now = time.perf_counter()
        if now > self._home.look_at_s:
            self._home.look(now)
        self._begun = self._record()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None or self._begun is None or self._depth:
            self._unusual(kind is not None)
            return
        self._close(whole=True)
        self._begun = None

    def mark(self) -> Mark:
        """The sums now; known once the GPU has come so far."""
        if self._begun is not None:
            self._close(whole=False)
            self._begun = self._record()
        mark = Mark(interrupted=self.interrupted, closed=self._closed, ready=False)
        self._pending.append(mark)
        self.drain()
        return mark

    def drain(self) -> None:
        """Add up the pairs that the GPU has passed, in order."""
        if self._capturing():
            return
        while self._pending:
            head = self._pending[0]
            if isinstance(head, Mark):
                head.total_s, head.count, head.ready = self.total_s, self.count, True
            elif not self._add(head):
                return
            self._pending.popleft()

    def settle(self) -> None:
        """Wait until the GPU has passed all that was measured."""
        try:
            if not self._capturing():
                for pair in [one for one in self._pending if isinstance(one, _Pair)][-1:]:
                    pair.last.synchronize()
        except RuntimeError as error:
            self._home.say(f"timer {self.name!r} couldn't be waited for: {error}")
        self.drain()

    def _add(self, pair: _Pair) -> bool:
        """Add a pair; False if the GPU isn't there yet."""
        try:
            if not pair.last.query():
                return False
            self.total_s += pair.first.elapsed_time(pair.last) / MS_PER_S
            self.count += pair.whole
        except RuntimeError as error:  # recorded on two GPUs, or the driver failed
            self._home.say(f"timer {self.name!r} couldn't be read: {error}")
            return True
        self._free.extend((pair.first, pair.last))
        return True

    def _capturing(self) -> bool:
        try:
            return bool(self._cuda.is_current_stream_capturing())
        except RuntimeError:  # a forked process, which has no GPU
            return True

    def _record(self) -> Any:
        """An event that is recorded now; False where none can be."""
        try:
            if self._cuda.is_current_stream_capturing():
                self._home.say(f"timer {self.name!r} is used while a CUDA graph is captured: that isn't measured")
                return False
            if self._free:
                event = self._free.pop()
                with contextlib.suppress(RuntimeError):  # it was of another device than the one in use now
                    event.record()
                    return event
            event = self._cuda.Event(enable_timing=True)
            event.record()
        except RuntimeError as error:  # a forked process, or a GPU that has failed
            self._home.say(f"timer {self.name!r} can't be used here: {error}")
            return False
        return event

    def _close(self, whole: bool) -> None:
        last = self._record() if self._begun is not False else False
        if last is False or self._begun is False:
            return
        if len(self._pending) >= MAX_PENDING:
            self.drain()
        if len(self._pending) >= MAX_PENDING:
            self._home.say(f"timer {self.name!r}: {MAX_PENDING} measurements wait for the GPU: more are left out")
            self._free.extend((self._begun, last))
            return
        self._closed += 1
        self._pending.append(_Pair(self._begun, last, whole))
        if len(self._pending) % 64 == 0:
            self.drain()
