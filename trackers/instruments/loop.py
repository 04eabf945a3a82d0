"""One object for a training loop: made once, told of each step, it measures what is asked for and logs it.

    loop = run.loop(total_steps=1000, tokens_per_step=16 * 1024, model=model, optimizer=optimizer)
    for batch in loader:
        ...
        loop.step()

Everything it logs is at the number of finished steps. Nothing in it waits for a GPU, and no fault of its own stops
training: it is said once, and that instrument is left out from then on.

A training loop where nothing is recorded.

What training has gone through: samples, tokens and floating-point operations, those before this start included.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence, Set
from typing import Any

from trackers.instruments import timers as timer_log
from trackers.instruments.clock import TrainingClock
from trackers.instruments.memory import MemoryReader
from trackers.instruments.options import Measure
from trackers.instruments.peaks import Peak
from trackers.instruments.plan import LoopPlan
from trackers.instruments.throughput import Remaining, Throughput, rate
from trackers.instruments.timers import NULL, Interval, NullTimer, TimerReading, Timers, TimerSpan
from trackers.metrics import checkpoint_keys
from trackers.records import Number
from trackers.reductions import Max
from trackers.support.interruption import pass_on
from trackers.support.staying import Stays
from trackers.values.device_copy import deferred_number

ITERATION = "iteration"
NOTHING_KNOWN = LoopPlan()


class StepRate:
    """Rate of steps. Its numbers may be on a GPU and known later; ``run.log`` accepts them as they are.

    Attributes:
        step_s: the mean time of a step, seconds. span, steps: how long, and how many.
    """

    def __init__(self, span: TimerSpan, steps: int) -> None:
        self.span = span
        self.steps = steps
        self.step_s = deferred_number([span], lambda: span.elapsed_s / steps)

    def per_second(self, each: float) -> Any:
        """Amount per second, given the amount per step."""
        return rate(self.span, self.steps * each)


class Loop(Stays):
    """A training loop's measurements. Made by ``run.loop``, or by hand with functions of one's own.

    Args:
        log: called with values and a step. say: called with a line that says what went wrong.
        measure: what to measure. timers: the run's.
        plan: what is known of the training.
        communication: what times collectives, if anything does. energy: what measures energy.
        look: called at the end of each step.

    Attributes:
        steps: finished steps, those before this start included. timers: the run's.
        inspection: an inspector that each step ends an iteration of. profiler: told of each step.
    """

    def __init__(
        self,
        log: Callable[[dict[str, Any], int], Any],
        say: Callable[[str], None],
        measure: Measure,
        timers: Timers,
        plan: LoopPlan = NOTHING_KNOWN,
        *,
        communication: Any = None,
        energy: Any = None,
        look: Callable[[], Any] = lambda: None,
    ) -> None:
        self.steps = start = plan.start_step or 0
        self.timers = timers
        self.inspection: Any = None
        self.profiler: Any = None
        self._log = log
        self._say = say
        self._measure = measure
        self._total_steps = plan.total_steps
        self._ranks = max(1, plan.ranks)
        self._together = self._ranks if plan.together else 1
        self._samples, self._tokens = plan.samples_per_step, plan.tokens_per_step
        self._look = look
        self._consumed = Consumed(plan)
        self._communication, self._energy = communication, energy
        self._broken: set[str] = set()
        self._gradients: dict[str, Any] = {}
        self._looked = self._normed = self._start = start
        self._hooks: list[Any] = []
        self._norms = None
        if (measure.norms or measure.layer_norms or measure.zeros) and plan.model is not None:
            from trackers.instruments.norms import Norms

            self._norms = Norms(plan.model, per_layer=measure.layer_norms, zeros=measure.zeros, group=plan.group)
            self._hook(plan.optimizer)
        self._memory = MemoryReader(measure.memory_keys, say) if measure.memory else None
        total = plan.total_steps
        self._remaining = Remaining(total, start, measure.runtime_unit) if total is not None else None
        self._begun_s = time.monotonic()
        self._clock = TrainingClock(plan.device, say)
        self._interval: Interval = timers.interval()
        self._last: tuple[TimerReading, int] | None = None
        self._paced: tuple[TimerReading, int] | None = None
        self._throughput, self._peak = None, None
        if measure.throughput:
            counted = plan.flops_per_token is not None or plan.flops_per_step is not None
            if measure.peak_tflops is None and counted:
                self._peak = Peak(plan.model, plan.precision, say)
            self._throughput = Throughput(
                self._clock,
                window=measure.window,
                devices=self._ranks,
                flops_per_token=plan.flops_per_token,
                flops_per_step=plan.flops_per_step,
                peak_tflops=measure.peak_tflops,
                micro_batch_size=plan.micro_batch_size,
                global_batch_size=plan.samples_per_step,
            )

    def _elsewhere(self) -> tuple[Any, ...]:
        return NullLoop, ()

    def timer(self, name: str, level: int = 0, device: str = "auto") -> Any:
        """A timer of the run: see ``run.timer``."""
        return self.timers.get(name, level, device)

    @contextlib.contextmanager
    def pause(self, what: str) -> Iterator[None]:
        """Keep the body (an evaluation, a checkpoint) out of what is measured; its own time is ``{what}-time``."""
        if self._energy is not None:
            self._energy.pause()
        try:
            with self._clock.pause(what):
                yield
        finally:
            if self._energy is not None:
                self._energy.resume()
            self._log_apart()

    @contextlib.contextmanager
    def checkpoint(self) -> Iterator[None]:
        """Save a checkpoint in the body, which is kept out of what is measured.

        If the body doesn't raise, the checkpoint is recorded, by values at this step: ``checkpoint/iteration``, and
        what training has gone through (``trackers.metrics.checkpoint_keys``).
        """
        with self.pause("checkpoint"):
            yield
        self._log(dict(self._consumed.at_checkpoint(self.steps)), self.steps)

    def go_on_at(self, steps: int, *, samples: int | None, tokens: int | None, flops: float | None) -> None:
        """Training is elsewhere than it was taken to be: it goes on after ``steps`` steps.

        Args:
            samples, tokens, flops: gone through in them; flops None: by the tokens or the steps.
        """
        self._shift(steps - self.steps)
        self._consumed.go_on_at(steps, samples, tokens, flops)

    def leave_out(self, steps: int, samples: int | None, tokens: int | None) -> None:
        """Training has left out steps, and the samples and tokens that they would have taken."""
        self._shift(steps)
        self._consumed.leave_out(samples, tokens)

    def _shift(self, steps: int) -> None:
        """Count further steps, or fewer, that took no time."""
        self.steps += steps
        self._start, self._looked, self._normed = self._start + steps, self._looked + steps, self._normed + steps
        if self._last is not None:
            self._last = self._last[0], self._last[1] + steps
        if self._remaining is not None:
            self._remaining.shift(steps)

    def pace(self) -> StepRate | None:
        """How quick steps have been since this was last asked; None before the second step. Pauses don't count."""
        reading, before = self._clock.reading(), self._paced
        self._paced = reading, self._clock.steps
        if before is None or self._clock.steps == before[1]:
            return None
        return StepRate(self._clock.span(before[0], reading), self._clock.steps - before[1])

    def step(self, samples: int | None = None, tokens: int | None = None) -> None:
        """A step has ended: the optimizer has stepped. Logs what is due; never raises.

        Args:
            samples, tokens: that went through in it on all ranks together; default as given for every step.
        """
        finished = self.steps + 1
        try:
            self._step(self._samples if samples is None else samples, self._tokens if tokens is None else tokens)
            self._look()
        except Exception as error:
            pass_on(error)
            self._say(f"loop: {type(error).__name__}: {error}")
            self._keep_up(finished)

    def close(self) -> None:
        """Log what is left, and let go of the optimizer."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        if self._peak is not None:
            self._peak.close()
        if self._last is not None and self.steps > self._last[1]:
            # Without norms: their collectives need every rank, and this one may be ending alone.
            self._publish(self._clock.reading(), {"norms"})
        if self._energy is not None:
            self._energy.close()

    def _step(self, samples: int | None, tokens: int | None) -> None:
        reading = self._clock.step()
        if self.inspection is not None:
            self.inspection.step()
        if self.profiler is not None:
            self.profiler.step()
        self.steps += 1
        self._consumed.step(samples, tokens)
        if self._throughput is not None:
            self._throughput.step(reading, samples, tokens)
        if self._remaining is not None:
            self._remaining.stepped(time.monotonic() - self._begun_s)
        if self._last is None:
            self._first(reading)
        elif self._due(self.steps):
            self._publish(reading)
        elif self._measure.memory_interval and (usage := self._measured("memory", self._memory_values)):
            self._log(usage, self.steps)

    def _keep_up(self, step: int) -> None:
        """After a fault: the step counts, and norms that the other ranks take at it are taken here, too."""
        self.steps = step
        try:
            if self._spread and step > self._start + 1 and self._due(step) and self._normed != step:
                self._norm_values()
            self._last = self._last or (self._clock.reading(), step)
        except Exception as error:
            pass_on(error)
            self._say(f"loop: {type(error).__name__}: {error}")

    @property
    def _spread(self) -> bool:
        """Whether norms need every rank: then a rank that failed takes part all the same."""
        return self._norms is not None and self._norms.spread and "norms" not in self._broken

    def _due(self, step: int) -> bool:
        return step % self._measure.interval == 0 or step == self._total_steps

    def _first(self, reading: TimerReading) -> None:
        """The first step compiles and allocates: what it took is logged on its own."""
        self._last = reading, self.steps
        self._paced = reading, self._clock.steps
        values = self._apart()
        if self._measure.timers:
            values.update(timer_log.values(self._interval.take(), 1))
        if self._energy is not None:
            self._energy.take()
        if self._peak is not None and self._throughput is not None:
            self._throughput.peak_tflops = self._peak.settle()
        self._gradients = {}
        self._log(values, self.steps)

    def _publish(self, reading: TimerReading, without: Set[str] = frozenset()) -> None:
        assert self._last is not None
        first, step = self._last
        self._last = reading, self.steps
        steps = self.steps - step
        values: dict[str, Any] = {}
        span = self._clock.span(first, reading)
        if self._measure.timers and self.timers.level >= 0 and steps:
            time_s = deferred_number([span], lambda: span.elapsed_s / steps)
            values.update(self._ranked({f"{ITERATION}{timer_log.SUFFIX}": time_s}))
        for name, measured in (
            ("timers", lambda: self._ranked(timer_log.values(self._interval.take(), steps))),
            ("throughput", lambda: self._throughput.values() if self._throughput is not None else {}),
            ("runtime", self._time_left),
            ("memory", self._memory_values),
            ("norms", self._norm_values),
            ("energy", lambda: self._energy.values(steps, span) if self._energy is not None else {}),
            ("communication", lambda: self._communication.take() if self._communication is not None else {}),
        ):
            if name not in without and (name != "timers" or self._measure.timers):
                values.update(self._measured(name, measured))
        if self._measure.world_size:
            values["world-size"] = self._ranks
        if self._measure.counts:
            values.update(self._consumed.values())
        self._log(values, self.steps)

    def _measured(self, name: str, measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        try:
            return {} if name in self._broken else measure()
        except Exception as error:
            pass_on(error)
            self._failed(name, error)
            return {}

    def _ranked(self, values: dict[str, Any]) -> dict[str, Any]:
        return timer_log.across_ranks(values, self._measure.timing_option, self._together)

    def _apart(self) -> dict[str, Any]:
        """Pauses since the last time, and the first step: seconds each."""
        seconds: dict[str, Any] = {}
        for what, spans in self._clock.take_apart().items():
            name = f"{what}{timer_log.SUFFIX}"
            seconds[name] = deferred_number(spans, lambda spans=spans: sum(span.elapsed_s for span in spans))  # type: ignore[misc]
        return seconds

    def _log_apart(self) -> None:
        """Log pauses where they were, though a loop's step may be far."""
        try:
            seconds = {} if self._last is None else self._apart()
            if seconds:
                self._log(seconds, self.steps)
        except Exception as error:
            pass_on(error)
            self._say(f"loop: {type(error).__name__}: {error}")

    def _time_left(self) -> dict[str, Any]:
        if self._remaining is None or not self._measure.runtime:
            return {}
        gone = self._consumed
        return self._remaining.values(self.steps, time.monotonic() - self._begun_s, gone.samples, gone.tokens)

    def _memory_values(self) -> dict[str, Any]:
        interval = self._measure.memory_interval
        if self._memory is None or (interval and self.steps % interval and self.steps != self._total_steps):
            return {}
        values: dict[str, Any] = dict(self._memory.values())
        return {name: Max(value) for name, value in values.items()} if self._together > 1 else values

    def _norm_values(self) -> dict[str, Any]:
        if self._norms is None:
            return {}
        self._normed = self.steps
        gradients, self._gradients = self._gradients, {}
        try:
            if self._looked != self.steps:  # the optimizer may be wrapped, or its step left out
                gradients = self._norms.gradients()
        finally:  # the other ranks take both
            parameters = self._norms.parameters()
        return {**gradients, **parameters}

    def _failed(self, name: str, error: Exception) -> None:
        if name == "norms" and self._norms is not None and self._norms.joined:
            self._say(f"loop: norms can't be measured ({type(error).__name__}: {error}); all ranks have NaN meanwhile")
            return
        self._broken.add(name)
        self._say(f"loop: {name} can't be measured ({type(error).__name__}: {error}); left out from now on")

    def _hook(self, optimizer: Any) -> None:
        """Look at the gradients just before the first optimizer steps: whoever clips or clears them, they are there."""
        optimizers: Sequence[Any] = optimizer if isinstance(optimizer, (list, tuple)) else [optimizer]
        for part in optimizers:
            register = getattr(part, "register_step_pre_hook", None)
            if register is not None:
                self._hooks.append(register(self._before_update))
            elif part is not None:
                self._say(f"loop: {type(part).__name__} takes no hooks: gradients are looked at in loop.step()")

    def _before_update(self, optimizer: Any, *arguments: Any) -> None:
        step = self.steps + 1
        if self._looked == step or self._norms is None or "norms" in self._broken or not self._due(step):
            return
        self._looked = step
        try:
            self._gradients = self._norms.gradients(getattr(optimizer, "grad_scale", None))
        except Exception as error:
            pass_on(error)
            self._failed("norms", error)


class NullLoop:
    """A loop that measures nothing: see :class:`trackers.instruments.loop.Loop`."""

    steps = 0

    def __init__(self) -> None:
        self.timers = Timers(-1)

    def timer(self, name: str, level: int = 0, device: str = "auto") -> NullTimer:
        """A timer that measures nothing."""
        return NULL

    def pause(self, what: str) -> contextlib.AbstractContextManager[None]:
        """Nothing."""
        return contextlib.nullcontext()

    def checkpoint(self) -> contextlib.AbstractContextManager[None]:
        """Nothing."""
        return contextlib.nullcontext()

    def step(self, samples: int | None = None, tokens: int | None = None) -> None:
        """Counts, and nothing else."""
        self.steps += 1

    def pace(self) -> None:
        """Unknown."""

    def close(self) -> None:
        """Nothing."""


BATCH, SAMPLES, TOKENS = "batch-size", "consumed-samples", "consumed-tokens"


class Consumed:
    """Counts, of all ranks together. What isn't said for a step isn't known from then on.

    Args:
        plan: of the loop; what it had gone through before this start is guessed by its steps where that isn't given,
            and operations per token need counted tokens.

    Attributes:
        batch: samples of the last step. samples, tokens, flops: so far; None where that isn't known.
        job_flops: since this start.
    """

    def __init__(self, plan: LoopPlan) -> None:
        start = plan.start_step or 0
        self._per_token, self._per_step = plan.flops_per_token, plan.flops_per_step
        self.batch = plan.samples_per_step
        samples, tokens, flops = plan.consumed_samples, plan.consumed_tokens, plan.consumed_flops
        self.samples = _times(plan.samples_per_step, start) if samples is None else samples
        self.tokens = _times(plan.tokens_per_step, start) if tokens is None else tokens
        self.flops = self._operations(start, self.tokens) if flops is None else flops
        self.job_flops = self._operations(0, 0)

    def go_on_at(self, steps: int, samples: int | None, tokens: int | None, flops: float | None) -> None:
        """Count on from what was gone through before this start, or at the checkpoint that it goes back to."""
        self.samples, self.tokens = samples, tokens
        self.flops = self._operations(steps, tokens) if flops is None else flops

    def leave_out(self, samples: int | None, tokens: int | None) -> None:
        """Steps were left out: samples and tokens are gone, without operations."""
        self.samples, self.tokens = _plus(self.samples, samples), _plus(self.tokens, tokens)

    def step(self, samples: int | None, tokens: int | None) -> None:
        """A step ended."""
        more = self._operations(1, tokens)
        self.batch = samples
        self.samples, self.tokens = _plus(self.samples, samples), _plus(self.tokens, tokens)
        self.flops = _sum(self.flops, more)
        self.job_flops = _sum(self.job_flops, more)

    def values(self) -> dict[str, Number]:
        """What a loop logs of it."""
        return _known({BATCH: self.batch, SAMPLES: self.samples, TOKENS: self.tokens})

    def at_checkpoint(self, step: int) -> dict[str, Number]:
        """What a checkpoint saved at this step is recorded by."""
        return {
            checkpoint_keys.ITERATION: step,
            **_known(
                {
                    checkpoint_keys.SAMPLES: self.samples,
                    checkpoint_keys.TOKENS: self.tokens,
                    checkpoint_keys.FLOPS: self.flops,
                    checkpoint_keys.JOB_FLOPS: self.job_flops,
                }
            ),
        }

    def _operations(self, steps: int, tokens: int | None) -> float | None:
        if self._per_step is not None:
            return self._per_step * steps
        return None if self._per_token is None or tokens is None else self._per_token * tokens


def _known(values: dict[str, Number | None]) -> dict[str, Number]:
    return {name: value for name, value in values.items() if value is not None}


def _times(each: int | None, steps: int) -> int | None:
    return None if each is None else each * steps


def _plus(count: int | None, more: int | None) -> int | None:
    return more if count is None else None if more is None else count + more


def _sum(before: float | None, more: float | None) -> float | None:
    return None if before is None or more is None else before + more
