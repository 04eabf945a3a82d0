"""Named timers by level, as Megatron has them: below a microsecond each, and nothing at all above the level.

Levels are Megatron's: 0 the whole iteration, 1 what happens once in each, 2 what happens often, -1 no timer. A
timer adds up what it measures for as long as it lives. Whoever reads does so through an :class:`Interval` of his own,
so that the console's, the trackers' and a user's readings don't disturb each other.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
import itertools
import math
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

from trackers.errors import UsageError
from trackers.reductions import All, Max, Min
from trackers.support.interruption import pass_on, suppress
from trackers.support.launcher import torch_distributed
from trackers.support.staying import Stays
from trackers.values.device_copy import deferred_number

Function = TypeVar("Function", bound=Callable[..., Any])
LEVELS = (-1, 0, 1, 2)
DEVICES = ("auto", "cpu", "cuda")
MAX_PENDING = 4096
"""Pairs of events that may wait for the GPU; CUDA queues about a thousand kernels before a launch blocks."""
MS_PER_S = 1000.0


class TimerReading:
    """A timer's sums at one moment. On a GPU they are known (``ready``) once it has come so far.

    ``closed`` is known at once: how many measurements were queued on a GPU.
    """

    __slots__ = ("closed", "count", "interrupted", "ready", "total_s")

    def __init__(
        self, total_s: float = 0.0, count: int = 0, interrupted: int = 0, closed: int = 0, ready: bool = True
    ) -> None:
        self.closed = closed
        self.total_s = total_s
        self.count = count
        self.interrupted = interrupted
        self.ready = ready


class Timer(Stays):
    """Measures with the processor's clock: a context manager, a decorator, or ``start`` and ``stop``.

    Belongs to one thread. Misuse never raises; it is said once. A body that ends by an exception is stopped and
    counted in ``interrupted``; its time isn't added, since it wasn't the whole.

    Attributes:
        name, level: as given. total_s: seconds measured so far. count: how many times.
    """

    __slots__ = ("_begun", "_depth", "_group", "_home", "_reset", "count", "interrupted", "level", "name", "total_s")

    def __init__(self, name: str, level: int, home: Timers) -> None:
        self.name = name
        self.level = level
        self.total_s = 0.0
        self.count = 0
        self.interrupted = 0
        self._home = home
        self._begun: Any = None
        self._depth = 0
        self._group: Any = None
        self._reset = TimerReading()

    def _elsewhere(self) -> tuple[Any, ...]:
        return NullTimer, ()

    def __enter__(self) -> Timer:
        if self._begun is not None:
            self._nested()
            return self
        now = time.perf_counter()
        if now > self._home.look_at_s:
            self._home.look(now)
            now = time.perf_counter()
        self._begun = now
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        now = time.perf_counter()
        if kind is None and self._begun is not None and not self._depth:
            self.total_s += now - self._begun
            self.count += 1
            self._begun = None
        else:
            self._unusual(kind is not None)

    def start(self, barrier: bool = False) -> None:
        """Begin to measure. barrier: wait first until every rank of the barrier group has come here, too."""
        if barrier:
            self._home.wait_for_all(self._group)
        if self._begun is not None:
            self._home.say(f"timer {self.name!r} was started again without a stop: the first start is dropped")
            self._begun, self._depth = None, 0
        self.__enter__()

    def stop(self, barrier: bool = False) -> None:
        """Stop, and add what was measured. barrier: as for ``start``, before it stops."""
        if barrier:
            self._home.wait_for_all(self._group)
        self.__exit__(None, None, None)

    def set_barrier_group(self, barrier_group: Any) -> None:
        """The process group whose ranks ``barrier`` waits for; None: all ranks."""
        self._group = barrier_group

    def reset(self) -> None:
        """Count ``elapsed`` from here; a timer that runs is stopped. ``active_time`` goes on, and so does what is
        logged: that has readings of its own."""
        self._begun, self._depth = None, 0
        self._reset = self.reading()

    def elapsed(self, reset: bool = True, barrier: bool = False) -> float:
        """Seconds measured since the last reset; a timer that runs counts up to now, and runs on.

        Waits for a GPU, where it is the GPU's time: whoever calls this wants a number now.

        Args:
            reset: count from here the next time. barrier: as for ``start``.
        """
        if barrier:
            self._home.wait_for_all(self._group)
        span = self.lap(reset)
        self.settle()
        return span.elapsed_s

    def set_elapsed(self, value: float) -> None:
        """Set the seconds that ``elapsed`` returns; further measurements are added."""
        reading = self.reading()
        self.settle()
        self._reset = TimerReading(reading.total_s - float(value), reading.count, reading.interrupted, reading.closed)

    def active_time(self) -> float:
        """Seconds measured so far, whatever was reset. Waits as ``elapsed`` does."""
        self.reading()
        self.settle()
        return self.total_s

    def lap(self, reset: bool = True) -> TimerSpan:
        """What was measured since the last reset, without waiting: it may be known later."""
        reading = self.reading()
        span = TimerSpan(self, self._reset, reading)
        if reset:
            self._reset = reading
        return span

    def settle(self) -> None:
        """Wait until all that was measured is known."""

    def __call__(self, function: Function) -> Function:
        """The function, measured at each call; a coroutine's whole run, and what a generator does for each item."""
        if inspect.isgeneratorfunction(function):

            @functools.wraps(function)
            def measured_items(*arguments: Any, **more: Any) -> Any:
                made = function(*arguments, **more)
                go_on = functools.partial(next, made)
                while True:
                    try:
                        with self:
                            item = go_on()
                    except StopIteration as end:
                        return end.value
                    try:
                        go_on = functools.partial(made.send, (yield item))
                    except GeneratorExit:
                        made.close()
                        raise
                    except BaseException as error:  # the generator's to deal with
                        go_on = functools.partial(made.throw, error)

            return measured_items  # type: ignore[return-value]
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def measured_run(*arguments: Any, **more: Any) -> Any:
                with self:
                    return await function(*arguments, **more)

            return measured_run  # type: ignore[return-value]

        @functools.wraps(function)
        def measured(*arguments: Any, **more: Any) -> Any:
            with self:
                return function(*arguments, **more)

        return measured  # type: ignore[return-value]

    @property
    def running(self) -> bool:
        """Started and not stopped yet."""
        return self._begun is not None

    def reading(self) -> TimerReading:
        """The sums now; a timer that runs is counted up to here, and again from here on."""
        if self._begun is not None:
            now = time.perf_counter()
            self.total_s += now - self._begun
            self._begun = now
        return TimerReading(self.total_s, self.count, self.interrupted)

    def drain(self) -> None:
        """Take in what has been measured meanwhile, without waiting."""

    def _nested(self) -> None:
        self._depth += 1
        self._home.say(f"timer {self.name!r} is used inside itself: only the outer one is measured")

    def _unusual(self, failed: bool) -> None:
        if self._begun is None:
            self._home.say(f"timer {self.name!r} was stopped without being started: nothing is measured")
        elif self._depth:
            self._depth -= 1
        else:
            self._begun = None
            if failed:
                self.interrupted += 1


class SyncTimer(Timer):
    """Megatron's way: waits for the GPU before each reading of the clock."""

    __slots__ = ("_cuda",)

    def __init__(self, name: str, level: int, home: Timers, cuda: Any) -> None:
        super().__init__(name, level, home)
        self._cuda = cuda

    def __enter__(self) -> Timer:
        self._synchronize()
        return super().__enter__()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if kind is None:
            self._synchronize()
        super().__exit__(kind, error, tb)

    def _synchronize(self) -> None:
        try:
            if not self._cuda.is_current_stream_capturing():
                self._cuda.synchronize()
                return
            why = "a CUDA graph is captured"
        except RuntimeError as error:  # a forked process, or a GPU that has failed
            pass_on(error)
            why = str(error)
        self._home.say(f"timer {self.name!r} doesn't wait for the GPU: {why}")


class _Pair(NamedTuple):
    first: Any
    last: Any
    whole: bool


class EventTimer(Timer):
    """Measures what the GPU did between start and stop, on the stream that was current at each, and waits for nothing.

    Two events surround the work and are read when the GPU has passed them. torch's documentation
    (https://docs.pytorch.org/docs/stable/generated/torch.cuda.Event.html): ``record`` puts an event into the current
    stream, ``query`` tells without waiting whether all work before it is done, ``elapsed_time`` gives milliseconds
    between two recorded events. An event belongs to the device that it was first recorded on. While a CUDA graph is
    captured, no event is asked: that would end the capture. ROCm's torch has the same under the same names.
    """

    __slots__ = ("_closed", "_cuda", "_free", "_pending")

    def __init__(self, name: str, level: int, home: Timers, cuda: Any) -> None:
        super().__init__(name, level, home)
        self._cuda = cuda
        self._free: list[Any] = []
        self._closed = 0
        self._pending: deque[_Pair | TimerReading] = deque()

    def __enter__(self) -> Timer:
        if self._begun is not None:
            self._nested()
            return self
        now = time.perf_counter()
        if now > self._home.look_at_s:
            self._home.look(now)
        self._begun = self._record()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if kind is not None or self._begun is None or self._depth:
            self._unusual(kind is not None)
            return
        self._close(whole=True)
        self._begun = None

    def reading(self) -> TimerReading:
        """The sums now; known once the GPU has come so far."""
        if self._begun is not None:
            self._close(whole=False)
            self._begun = self._record()
        reading = TimerReading(interrupted=self.interrupted, closed=self._closed, ready=False)
        self._pending.append(reading)
        self.drain()
        return reading

    def drain(self) -> None:
        """Add up the pairs that the GPU has passed, in order."""
        if self._capturing():  # CUDA refuses queries meanwhile
            return
        while self._pending:
            head = self._pending[0]
            if isinstance(head, TimerReading):
                head.total_s, head.count, head.ready = self.total_s, self.count, True
            elif not self._add(head):
                return
            self._pending.popleft()

    def settle(self) -> None:
        """Wait until the GPU has passed all that was measured."""
        try:
            if not self._capturing():
                for pair in [entry for entry in self._pending if isinstance(entry, _Pair)][-1:]:
                    pair.last.synchronize()
        except RuntimeError as error:
            pass_on(error)
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
            pass_on(error)
            self._home.say(f"timer {self.name!r} couldn't be read: {error}")
            return True
        self._free.extend((pair.first, pair.last))
        return True

    def _capturing(self) -> bool:
        try:
            return bool(self._cuda.is_current_stream_capturing())
        except RuntimeError as error:  # a forked process, which has no GPU
            pass_on(error)
            return True

    def _record(self) -> Any:
        """An event that is recorded now; False where none can be."""
        try:
            if self._cuda.is_current_stream_capturing():
                self._home.say(f"timer {self.name!r} is used while a CUDA graph is captured: that isn't measured")
                return False
            if self._free:
                event = self._free.pop()
                with suppress(RuntimeError):  # it was of another device than the one in use now
                    event.record()
                    return event
            event = self._cuda.Event(enable_timing=True)
            event.record()
        except RuntimeError as error:  # a forked process, or a GPU that has failed
            pass_on(error)
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


class NullTimer:
    """A timer above the level: measures nothing, touches no GPU, costs some 50 ns."""

    __slots__ = ()
    name = ""
    level = -1
    total_s = 0.0
    count = 0
    interrupted = 0
    running = False

    # C functions that take anything: a call of a Python function costs twice as much. The empty text that this one
    # returns is false, as __exit__ has to answer.
    __exit__ = staticmethod("".format)

    def __enter__(self) -> NullTimer:
        return self

    def start(self, barrier: bool = False) -> None:
        """Nothing: no rank is waited for either."""

    def stop(self, barrier: bool = False) -> None:
        """Nothing."""

    def set_barrier_group(self, barrier_group: Any) -> None:
        """Nothing."""

    def reset(self) -> None:
        """Nothing."""

    def set_elapsed(self, value: float) -> None:
        """Nothing."""

    def elapsed(self, reset: bool = True, barrier: bool = False) -> float:
        """0.0: it measures nothing."""
        return 0.0

    def active_time(self) -> float:
        """0.0: it measures nothing."""
        return 0.0

    def __call__(self, function: Function) -> Function:
        """The function itself."""
        return function


NULL = NullTimer()
NullTimer.__enter__ = staticmethod(itertools.repeat(NULL).__next__)  # type: ignore[method-assign, assignment]


class Interval:
    """One reader's place: what was measured since it last took. Others don't notice that it reads."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._readings = {timer: timer.reading() for timer in timers}

    def take(self) -> dict[str, TimerSpan]:
        """What each timer measured since the last call (or since the interval was made), by its name."""
        spans = {}
        for timer in self._timers:
            reading = timer.reading()
            span = TimerSpan(timer, self._readings.get(timer) or TimerReading(), reading)
            self._readings[timer] = reading
            if span.used:
                spans[timer.name] = span
        return spans


class TimerSpan:
    """Measurements of one timer between two moments."""

    __slots__ = ("_first", "_last", "_timer")

    def __init__(self, timer: Timer, first: TimerReading, last: TimerReading) -> None:
        self._timer = timer
        self._first = first
        self._last = last

    @property
    def used(self) -> bool:
        """Whether anything was measured, or is still on its way."""
        if self._last.closed > self._first.closed or self._last.interrupted > self._first.interrupted:
            return True
        return self.ready and self.elapsed_s > 0

    @property
    def ready(self) -> bool:
        """Whether the GPU has come so far; asks it, never waits."""
        if not self._last.ready:
            self._timer.drain()
        return self._last.ready

    @property
    def elapsed_s(self) -> float:
        """Seconds, all times together; NaN until ``ready``."""
        return self._last.total_s - self._first.total_s if self.ready else math.nan

    @property
    def count(self) -> int:
        """How many times it was stopped in it."""
        return self._last.count - self._first.count if self.ready else 0

    @property
    def interrupted(self) -> int:
        """How many times its body ended by an exception."""
        return self._last.interrupted - self._first.interrupted


class Timers(Stays):
    """The timers of a process, by name.

    Args:
        level: timers above it measure nothing. sync: wait for the GPU at each reading, as Megatron does.
        say: called with a line that says what was misused.

    Attributes:
        look_at_s: when, on ``perf_counter``, the next start of a timer calls ``look``.

    Raises:
        UsageError: an unknown level.
    """

    def __init__(self, level: int = 0, *, sync: bool = False, say: Callable[[str], None] = lambda line: None) -> None:
        if level not in LEVELS:
            raise UsageError(f"timing level {level!r}: known are -1 (no timer), 0, 1 and 2")
        self.level = level
        self.sync = sync
        self.say = say
        self.look_at_s = math.inf
        self.look: Callable[[float], None] = lambda now: None
        self._timers: dict[str, Timer] = {}

    def _elsewhere(self) -> tuple[Any, ...]:
        return Timers, (-1,)

    def get(self, name: str, level: int = 0, device: str = "auto") -> Timer | NullTimer:
        """The timer of this name, made if it isn't there yet.

        Args:
            level: 0, 1 or 2; above ``TRACKER_TIMING_LEVEL`` the answer is a timer that measures nothing.
            device: "cuda": the GPU's own time, by events that are read later; "cpu": the processor's clock; "auto":
                the GPU's where CUDA is in use when the timer is made. Make handles after the model is on its device.

        Never raises: a device that can't be had is said, and the processor's clock is taken.
        """
        try:
            if level > self.level:
                return NULL
            timer = self._timers.get(name)
            return timer if timer is not None else self._make(str(name), level, device)
        except TypeError as error:
            pass_on(error)
            self.say(f"timer {name!r} of level {level!r} isn't measured: give a name, and a level of 0, 1 or 2")
            return NULL

    def wait_for_all(self, group: Any = None) -> None:
        """Wait until every rank of a process group (None: all) has come here; alone, or without torch, nothing."""
        distributed = torch_distributed()
        try:
            if distributed is not None:
                distributed.barrier(group=group)
        except Exception as error:
            pass_on(error)
            self.say(f"timers: barrier: {type(error).__name__}: {error}: no rank was waited for")

    def interval(self) -> Interval:
        """A reading place of one's own, which begins now."""
        return Interval(self)

    def __iter__(self) -> Iterator[Timer]:
        return iter(tuple(self._timers.values()))

    def _make(self, name: str, level: int, device: str) -> Timer:
        if device not in DEVICES:
            self.say(f"timer {name!r}: device {device!r} is unknown (known: auto, cpu, cuda); auto is taken")
        cuda = None if device == "cpu" else cuda_in_use()
        if cuda is None and device == "cuda":
            self.say(f"timer {name!r}: {_why_not()}; the processor's clock is taken")
        timer: Timer
        if cuda is None:
            timer = Timer(name, level, self)
        elif self.sync:
            timer = SyncTimer(name, level, self, cuda)
        else:
            timer = EventTimer(name, level, self, cuda)
        self._timers[name] = timer
        return timer


def cuda_in_use() -> Any:
    """``torch.cuda`` where this process has begun to use it; else None. Imports nothing and starts no CUDA."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    return cuda if cuda is not None and cuda.is_initialized() else None


def _why_not() -> str:
    if importlib.util.find_spec("torch") is None:
        return "its device cuda needs torch: pip install 'trackers-relay[torch]'"
    return "CUDA isn't in use yet: make the timer once the model is on the GPU"


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
    seconds: dict[str, Any] = {}
    for name, span in spans.items():
        if span.count or not span.interrupted or span.elapsed_s > 0 or not span.ready:
            seconds[name + SUFFIX] = deferred_number([span], lambda span=span: span.elapsed_s / iterations)  # type: ignore[misc]
        if span.interrupted:
            seconds[name + INTERRUPTED] = span.interrupted
    return seconds


def across_ranks(seconds: Mapping[str, Any], option: str, ranks: int) -> dict[str, Any]:
    """Times as values of all ranks: ``{timer}-time`` is always the slowest rank's.

    Args:
        option: "max": nothing else; "minmax": the fastest one's too, as ``{timer}-time-min``; "all": every rank's, as
            ``{timer}-time-ranks/rank_0``, …
        ranks: with one, everything is as it is.
    """
    if ranks <= 1:
        return dict(seconds)
    shared: dict[str, Any] = {}
    for name, value in seconds.items():
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
        seconds = values(self._interval.take(), iterations)
        if seconds:
            self._log(across_ranks(seconds, self._option, self._ranks), step)

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
