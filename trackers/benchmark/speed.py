"""Speed of a run: the single definition of every speed figure that any tool shows (table in docs/figures.md).

A :class:`Meter` takes what training logged, in the order of time and in memory that doesn't grow with the run;
:func:`figures` makes the figures of it. Steps per second are those while stepping: times of steps as the run measured
them, each as often as it speaks for steps, without the first step of each start, evaluations, checkpoints and pauses.
Where a run measured none, the time between its records counts, without the spans that hold an evaluation or a
checkpoint. The whole time between the first and the last record is the wall clock's: a figure of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from trackers.metrics import roles
from trackers.metrics.groups import group_of
from trackers.records import SUMMARY_PREFIX, finite, nearest_double

MEASURED, WALL_CLOCK, STATED, LOGGED = "measured step time", "wall clock", "stated result", "logged rate"
"""Clocks that a figure can be based on."""
WALL_SAMPLES, WALL_STEPS = "samples/s by the wall clock", "steps/s by the wall clock"
LOOP = "iteration-time"
"""Step times measured by a loop: the slowest rank's."""
FIRST_STEP = "first-step-time"
"""First step's time measured by a loop; no other time includes that step."""
WINDOWED = "throughput/"
"""Rates below this are those of a window of steps, not of the steps that a step time beside them speaks for."""
LOG_FORMAT = "log.format"
"""The setting that says that a run was read from a console log, whose first line may be missing."""
TOLERANCE = 0.02
"""Two figures of the same thing that differ by less agree."""
BREAK_S, BREAK_TIMES, BREAK_AFTER = 60.0, 20.0, 3
"""A gap between records counts as a pause if it is longer than this many seconds and than this multiple of the gaps
before it, of which there must be a minimum number: most stores don't record restarts."""
SAME_S = 1e-3
"""Records of one step that lie so close are one: stores differ in how they part and round them."""
COARSE = 0.1
"""A figure by the clock isn't given where the times of its records leave so large a part of it open."""
ACCUMULATIONS = ("gradient_accumulation_steps", "grad_accum", "accumulate_grad_batches")
EACH = ("per_device_train_batch_size", "train_micro_batch_size_per_gpu")
"""Samples of one pass on one data-parallel rank; nothing else tells how many ranks share a batch."""
TOKENS_OF_STEP = ("tokens_per_iter", "tokens_per_step", "tokens_per_batch")
TRAINED, PAUSED = 1, 2
"""What the time before a record was used for: training a step, or something else (an evaluation)."""
CLOCKS = ("train_time_ms", "step_avg_ms")
"""How long training took so far, which modded-nanogpt's evaluations say, too."""
PAUSES = ("evaluation-time", "checkpoint-time", "checkpoint/iteration")
"""Metrics logged at the end of an activity that isn't a step."""

_TIMED = (roles.STEP_TIME,)
_RATES = (roles.SAMPLES, roles.SAMPLES_PER_GPU, roles.TOKENS, roles.TOKENS_PER_GPU)
_COUNTED = (roles.SAMPLES_COUNTED, roles.TOKENS_COUNTED)
_OF_EACH = (roles.SAMPLES_PER_GPU, roles.TOKENS_PER_GPU)
KINDS = frozenset({*_TIMED, *_RATES, *_COUNTED, roles.BATCH})
"""Kinds of metrics that a meter uses, by role."""


class Speed(msgspec.Struct):
    """None where it can't be known. last_step: the last that training logged.

    steps_per_s: while stepping; basis: by which clock. wall_steps_per_s: steps over seconds, which are the time
    between the first and the last record of each start, evaluations and all. batch, length: samples of one step (of
    all GPUs), tokens of a sample. gpus: how many trained on average, by time, where their number changed; else None.
    samples_per_s, tokens_per_s: while stepping; their own basis, where it is another,
    is :data:`LOGGED` or :data:`STATED`. remarks: what a reader must know.
    """

    steps_per_s: float | None = None
    samples_per_s: float | None = None
    tokens_per_s: float | None = None
    basis: str = ""
    samples_basis: str = ""
    tokens_basis: str = ""
    wall_steps_per_s: float | None = None
    batch: float | None = None
    length: float | None = None
    gpus: float | None = None
    last_step: int | None = None
    seconds: float | None = None
    remarks: list[str] = []


class StepTimes(msgspec.Struct):
    """Step times of one name, in seconds.

    rows: values. steps, seconds: of those that count, each value as often as it speaks for steps. warm_steps,
    warm_seconds: of each start's first, which compiles and warms up; untimed: first steps that no value speaks for.
    start: the first value of all: its step and seconds; interval: steps to the one behind it. attempt, step, reach,
    value, warm: of the last.
    """

    rows: int = 0
    steps: int = 0
    seconds: float = 0.0
    warm_steps: int = 0
    warm_seconds: float = 0.0
    untimed: int = 0
    attempt: int | None = None
    step: int = 0
    start: tuple[int, float] | None = None
    interval: int = 0
    reach: int = 0
    value: float = 0.0
    warm: bool = False

    def add(self, attempt: int, step: int, seconds: float, first_step: int | None = None) -> tuple[int, bool]:
        """Take a value: for how many steps it speaks, and whether that holds the first step of a start.

        A value of the same step takes the place of the one before it.

        Args:
            first_step: the step of this attempt that was timed on its own.
        """
        repeated = attempt == self.attempt and step == self.step and self.rows > 0
        if repeated:
            count, warm = self.reach, self.warm
            self._count(-count, self.value)
        elif attempt == self.attempt:
            count, warm = max(step - self.step, 1), False
            self.interval = self.interval or count
        else:
            warm = first_step is None or first_step >= step
            count = 1 if first_step is None or warm else step - first_step
            self.untimed += not warm
        self.rows += not repeated
        self.attempt, self.step, self.reach, self.warm = attempt, step, count, warm
        self.value = float(seconds) if 0 < seconds < math.inf else 0.0
        if self.start is None:
            self.start = step, self.value if warm else 0.0
        self._count(count, self.value)
        return count, warm

    @property
    def weight_s(self) -> float:
        """Seconds that the last value speaks for; 0 where they warm up, or are unknown."""
        return 0.0 if self.warm else self.reach * self.value

    @property
    def missed(self) -> tuple[int, float] | None:
        """Step and seconds of the first value, of a console log whose first line is missing; None if it isn't."""
        if self.start is None or self.start[0] != 2 * self.interval or self.start[1] <= 0:
            return None
        return self.start[0], self.start[1] * self.interval

    def step_s(self, logged: bool = False) -> float | None:
        """Seconds of a step; None without one.

        Args:
            logged: the values are a console log's, whose first line may be missing: a line at twice the interval was
                the second, and warms nothing up.
        """
        steps, seconds = self.steps, self.seconds
        if logged and (missed := self.missed) is not None:
            steps, seconds = steps + self.interval, seconds + missed[1]
        if not steps:
            steps, seconds = self.warm_steps, self.warm_seconds
        return seconds / steps if steps else None

    def _count(self, count: int, seconds: float) -> None:
        if not seconds:
            return
        if self.warm:
            self.warm_steps += count
            self.warm_seconds += count * seconds
        else:
            self.steps += count
            self.seconds += count * seconds


class StepSpan(NamedTuple):
    """Steps of training without anything between them. end: the last one's number."""

    end: int
    steps: int
    seconds: float


class SpanClock(msgspec.Struct):
    """The times of records. steps, seconds: of spans between steps that hold nothing but steps.

    whole_steps, whole_s: of earlier starts, from the first to the last record; begin, end: of this one. gaps, gaps_s:
    between records. breaks: starts that only a long silence tells of. stretches: spans in a row count as one. shared:
    steps that have the time of the step before them; grain: the shortest time between two steps, then that of a unit in
    which the store counts time.
    """

    steps: int = 0
    seconds: float = 0.0
    stretches: int = 0
    shared: int = 0
    grain: float = 0.0
    whole_steps: int = 0
    whole_s: float = 0.0
    attempt: int | None = None
    begin: tuple[int, float] | None = None
    end: tuple[int, float] | None = None
    anchor: tuple[int, float] | None = None
    trained: int | None = None
    gaps: int = 0
    gaps_s: float = 0.0
    breaks: int = 0
    waiting: tuple[int, int, float, int] | None = None
    last_step: int | None = None
    chained: bool = False

    def add(self, attempt: int, step: int, time: float, flags: int) -> StepSpan | None:
        """Take a record, in the order of time; returns a span between steps that is complete now.

        Args:
            flags: what its metrics say of the time: :func:`flags_of`.
        """
        waiting = self.waiting
        if waiting is not None and waiting[:2] == (attempt, step) and time - waiting[2] <= SAME_S:
            self.waiting = (attempt, step, waiting[2], waiting[3] | flags)
            return None
        finished = self.settle()
        if waiting is not None and attempt == waiting[0]:
            gap_s = time - waiting[2]
            often = self.gaps >= BREAK_AFTER and gap_s > BREAK_TIMES * self.gaps_s / self.gaps
            if often and gap_s > BREAK_S and not flags & PAUSED:
                self.breaks += 1
                self.whole_steps, self.whole_s = self.total()
                self.attempt = self.begin = self.end = None
            elif gap_s > 0:
                self.gaps += 1
                self.gaps_s += gap_s
        self.waiting = (attempt, step, time, flags)
        return finished

    def settle(self) -> StepSpan | None:
        """Take the record that is waiting for parts of it; otherwise as :meth:`add`."""
        if self.waiting is None:
            return None
        (attempt, step, time, flags), self.waiting = self.waiting, None
        training, pause = bool(flags & TRAINED), bool(flags & PAUSED)
        self.last_step = step if self.last_step is None else max(self.last_step, step)
        if attempt != self.attempt:
            self.whole_steps, self.whole_s = self.total()
            self.attempt, self.begin, self.anchor, self.trained = attempt, (step, time), None, None
            self.chained = False
        self.end = step, time
        anchor = self.anchor
        if pause:
            # The span up to here holds the pause; of one for an earlier step, nobody knows how many steps it holds.
            # Behind one that comes before all training there is a start's first step, which warms up.
            self.trained = step if training else self.trained
            known = self.trained is not None and (anchor is None or step >= anchor[0])
            self.anchor = (step, time) if known else None
            self.chained = False
            return None
        if not training or (anchor is not None and step == anchor[0] and step == self.trained):
            return None
        if anchor is not None and step > anchor[0] and time == anchor[1]:
            self.shared += 1  # the next one speaks for this step, too
            self.trained = step
            return None
        self.anchor, self.trained = (step, time), step
        if anchor is None or step <= anchor[0] or time < anchor[1]:
            self.chained = False
            return None
        self.steps += step - anchor[0]
        self.seconds += time - anchor[1]
        self.stretches += not self.chained
        self.chained = True
        self.grain = min(self.grain or math.inf, time - anchor[1])
        return StepSpan(step, step - anchor[0], time - anchor[1])

    def total(self) -> tuple[int, float]:
        """Steps and seconds from the first to the last record of each start, in total."""
        steps = self.end[0] - self.begin[0] if self.begin and self.end else 0
        if not self.begin or not self.end or steps <= 0:
            return self.whole_steps, self.whole_s
        return self.whole_steps + steps, self.whole_s + self.end[1] - self.begin[1]

    def is_coarse(self, seconds: float, stretches: int) -> bool:
        """Whether the times of records leave too much of these seconds open, each stretch's ends a unit of the store's.

        Errors of several stretches cancel each other out as often as they add up.
        """
        return self.shared > 0 and self.grain * math.sqrt(max(stretches, 1)) > COARSE * seconds


class Counted(msgspec.Struct):
    """A counter such as consumed samples: its increase, and the number of steps it covers."""

    more: float = 0.0
    steps: int = 0
    attempt: int | None = None
    step: int = 0
    value: float = 0.0

    def add(self, attempt: int, step: int, value: float) -> None:
        """Take a value; what was counted between two starts is nobody's."""
        if not math.isfinite(value):
            return
        if attempt == self.attempt and step > self.step and value >= self.value:
            self.more += value - self.value
            self.steps += step - self.step
        self.attempt, self.step, self.value = attempt, step, value


class Rate(msgspec.Struct):
    """A logged rate, weighted by the seconds that it covers: by step times logged at its step, else by the clock.

    by_steps: amount and seconds by each metric that steps were timed as. first: step and value of the first of all.

    By the clock, the first value of a start has no time. by_short, short_s: of second values, where they are of fewer
    steps than the third: a program that logs its first step alone completes its first interval with it.
    """

    by_steps: dict[str, tuple[float, float]] = {}
    by_clock: float = 0.0
    clock_s: float = 0.0
    by_short: float = 0.0
    short_s: float = 0.0
    total: float = 0.0
    count: int = 0
    attempt: int | None = None
    step: int = 0
    time: float = 0.0
    second: tuple[int, float, float] | None = None
    first: tuple[int, float] | None = None
    values: int = 0

    def add(self, attempt: int, step: int, time: float, value: float, beside: Mapping[str, float]) -> None:
        """Take a value.

        Args:
            beside: by metric, the seconds that the step time at its step speaks for; 0 for a start's first.
        """
        if not math.isfinite(value):
            return
        self.first = self.first or (step, value)
        for name, seconds in beside.items():
            if seconds:
                amount, all_s = self.by_steps.get(name, (0.0, 0.0))
                self.by_steps[name] = amount + value * seconds, all_s + seconds
        self.values = self.values + 1 if attempt == self.attempt else 1
        if self.values > 1 and time > self.time:
            steps = step - self.step
            if self.values == 2:
                self.settle()
                self.second = steps, value, time - self.time
            else:
                if self.second is not None and 0 < self.second[0] < steps and self.values == 3:
                    self.by_short += self.second[1] * self.second[2]
                    self.short_s += self.second[2]
                    self.second = None
                self.by_clock += value * (time - self.time)
                self.clock_s += time - self.time
        self.total += value
        self.count += 1
        self.attempt, self.step, self.time = attempt, step, time

    def settle(self) -> None:
        """Count the second value of a start of which no third says that it is of fewer steps."""
        if self.second is not None:
            self.by_clock += self.second[1] * self.second[2]
            self.clock_s += self.second[2]
            self.second = None

    def beside(self, basis: str | None, missed: tuple[int, float] | None = None) -> float | None:
        """All that went through over all seconds, by the step times logged at its steps; None where there are none.

        Args:
            basis: the metric that steps are timed by; another counts where that was never logged with it.
            missed: step and seconds of the first value, where it warms nothing up after all.
        """
        name = basis if basis in self.by_steps else min(self.by_steps, default="")
        amount, seconds = self.by_steps.get(name, (0.0, 0.0))
        if missed is not None and self.first is not None and missed[0] == self.first[0]:
            amount, seconds = amount + self.first[1] * missed[1], seconds + missed[1]
        return amount / seconds if seconds > 0 else None

    def mean(self, logged: bool = False) -> float | None:
        """All that went through over all seconds, by the clock; None without a value.

        Args:
            logged: the values are a console log's, whose first interval warms up.
        """
        self.settle()
        amount, seconds = self.by_clock, self.clock_s
        if not logged or seconds <= 0:
            amount, seconds = amount + self.by_short, seconds + self.short_s
        if seconds > 0:
            return amount / seconds
        return self.total / self.count if self.count else None


class BatchMean(msgspec.Struct):
    """Samples of one step on average: each value as often as it speaks for steps, without the first of each start.

    total, steps: of those; alone, count: of values without another before them. attempt, step: of the last; last: the
    last value.
    """

    total: float = 0.0
    steps: int = 0
    alone: float = 0.0
    count: int = 0
    attempt: int | None = None
    step: int = 0
    last: float | None = None

    def add(self, attempt: int, step: int, value: float) -> None:
        """Take a value; one that isn't positive is left out."""
        if not 0 < value < math.inf:
            return
        if attempt == self.attempt and step > self.step:
            self.total += value * (step - self.step)
            self.steps += step - self.step
        else:
            self.alone += value
            self.count += 1
        self.attempt, self.step, self.last = attempt, step, value

    @property
    def value(self) -> float | None:
        """The mean; None without values."""
        if self.steps:
            return self.total / self.steps
        return self.alone / self.count if self.count else None


class Meter(msgspec.Struct):
    """Inputs of speed figures. timed, counted, rates: by metric; counted and rates by kind before that. starts: of
    training, so far, those that only a long silence tells of included. world: ranks of the last start, 0 if unknown;
    worlds: each number that a start had. of_all: the rates of one GPU, times the ranks of their start. ranks, at_work:
    ranks by time and by steps.
    """

    attempt: int = 1
    starts: int = 0
    alone: int | None = None
    timed: dict[str, StepTimes] = {}
    clock: SpanClock = msgspec.field(default_factory=SpanClock)
    batches: dict[str, BatchMean] = {}
    counted: dict[str, dict[str, Counted]] = {}
    rates: dict[str, dict[str, Rate]] = {}
    world: int = 0
    worlds: list[int] = []
    of_all: dict[str, dict[str, Rate]] = {}
    ranks: Rate = msgspec.field(default_factory=Rate)
    at_work: BatchMean = msgspec.field(default_factory=BatchMean)

    def start(self, attempt: int, world: int = 0) -> None:
        """Training began anew, on so many ranks; 0 if unknown."""
        self.attempt, self.alone, self.starts = attempt, None, self.starts + 1
        self.world = world
        if world not in self.worlds:
            self.worlds = [*self.worlds, world]

    @property
    def changed(self) -> bool:
        """Whether training went on with another number of ranks."""
        return len(self.worlds) > 1 and 0 not in self.worlds

    def take(self, step: int, time: float, values: Mapping[str, Any]) -> None:
        """Take what was logged at a step."""
        flags = flags_of(values)
        if flags:
            breaks = self.clock.breaks
            self.clock.add(self.attempt, step, time, flags)
            if self.clock.breaks > breaks:
                self.start(self.attempt, self.world)
        beside = self.measure(step, time, values)
        if flags & TRAINED:
            self.work(self.starts, step, time, self.world, beside)

    def work(self, start: int, step: int, time: float, world: int, beside: Mapping[str, float]) -> None:
        """Take how many ranks trained a step; beside: as :meth:`Rate.add`."""
        if world:
            self.ranks.add(start, step, time, world, beside)
            self.at_work.add(start, step, world)

    def rate(self, kind: str, name: str, start: int, step: int, time: float, value: float, world: int,
             beside: Mapping[str, float]) -> None:  # fmt: skip
        """Take a logged rate, of a start on so many ranks; beside: as :meth:`Rate.add`."""
        near = {} if name.startswith(WINDOWED) else beside
        self.rates.setdefault(kind, {}).setdefault(name, Rate()).add(start, step, time, value, near)
        if world and kind in _OF_EACH:
            self.of_all.setdefault(kind, {}).setdefault(name, Rate()).add(start, step, time, value * world, near)

    def measure(self, step: int, time: float, values: Mapping[str, Any]) -> dict[str, float]:
        """Take what was measured, without the time of the record; returns what :meth:`Rate.add` needs beside it."""
        beside: dict[str, float] = {}
        rates = []
        for name, value in values.items():
            role = roles.role_of(name)
            if role is None or role.kind not in KINDS:
                if name == FIRST_STEP:
                    self.alone = step
                continue
            if not isinstance(value, (int, float)):
                continue
            number = nearest_double(value) * role.factor
            if role.kind == roles.STEP_TIME:
                timed = self.timed.setdefault(name, StepTimes())
                timed.add(self.starts, step, number, self.alone)
                beside[name] = timed.weight_s
            elif role.kind == roles.BATCH:
                self.batches.setdefault(name, BatchMean()).add(self.starts, step, number)
            elif role.kind in _COUNTED:
                self.counted.setdefault(role.kind, {}).setdefault(name, Counted()).add(self.starts, step, number)
            else:
                rates.append((role.kind, name, number))
        for kind, name, number in rates:
            self.rate(kind, name, self.starts, step, time, number, self.world, beside)
        return beside

    def basis(self) -> str | None:
        """The metric that step times are of: the one logged most; of as many the loop's own; None without any."""
        known = sorted(name for name, timed in self.timed.items() if timed.steps or timed.warm_steps)
        return max(known, key=lambda name: (self.timed[name].rows, name == LOOP), default=None)


def begun_on(begun: Sequence[tuple[int, float]], worlds: Sequence[int]) -> Iterator[tuple[int, float, int]]:
    """Starts as their attempt, time and ranks, and one that never comes.

    Args:
        worlds: ranks of the last starts: of those before, an earlier release kept none.
    """
    known = [*[0] * (len(begun) - len(worlds)), *worlds]
    yield from ((attempt, time, ranks) for (attempt, time), ranks in zip(begun, known, strict=True))
    yield 0, math.inf, 0


def starts(begun: Sequence[tuple[int, float]], worlds: Sequence[int]) -> dict[str, Any]:
    """What a log says of a run's starts, where there are several: times between them are nobody's."""
    if len(begun) < 2:
        return {}
    fork = {} if begun[0][0] else {"first_attempt": 0}  # what a fork has of its parent
    return {"starts": [time for _, time in begun], "start_world_sizes": worlds[-len(begun) :], **fork}


@lru_cache(maxsize=20_000)
def flag_of(name: str) -> int:
    """What a metric at a step says of the time: :data:`TRAINED`, :data:`PAUSED`, or nothing (0)."""
    if name in PAUSES:
        return PAUSED
    if name.startswith(SUMMARY_PREFIX):
        return 0
    if name.endswith("-time"):  # a timer's
        return TRAINED
    return {"training": TRAINED, "validation": PAUSED}.get(group_of(name), 0)


def flags_of(names: Iterable[str]) -> int:
    """What all metrics of a record say, together."""
    flags, clocked = 0, False
    for name in names:
        if name in CLOCKS:
            clocked = True
        else:
            flags |= flag_of(name)
    return flags | TRAINED * (clocked and not flags & PAUSED)


def figures(meter: Meter, config: Mapping[str, Any], summary: Mapping[str, Any], gpus: int | None) -> Speed:
    """All figures of a run.

    Args:
        config: flat. summary: results by name. gpus: how many trained it; None: as many as there were ranks.
    """
    meter.clock.settle()
    gpus = gpus or (meter.worlds[0] if len(meter.worlds) == 1 else 0) or None
    speed = Speed(last_step=meter.clock.last_step)
    whole_steps, whole_s = meter.clock.total()
    speed.seconds = whole_s or None
    if whole_steps > 0 and whole_s > 0 and not meter.clock.is_coarse(whole_s, 1):
        speed.wall_steps_per_s = whole_steps / whole_s
    _steps(speed, meter, config, summary)
    if meter.changed:
        speed.gpus = mean_rate(meter, meter.ranks, config)
    speed.batch = batch(meter, config, gpus, speed.remarks)
    speed.length = roles.setting(config, roles.LENGTHS)
    _samples(speed, meter, config, summary, gpus)
    _tokens(speed, meter, config, summary, gpus)
    return speed


def lines(speed: Speed) -> Iterator[str]:
    """Steps, samples and tokens per second, and by which clock: a line each, none where nothing is known."""
    of_samples = "" if speed.samples_basis == speed.basis else f" ({speed.samples_basis})"
    of_tokens = "" if speed.tokens_basis == speed.basis else f" ({speed.tokens_basis})"
    if speed.steps_per_s is not None:
        yield f"Steps/sec: {shown(speed.steps_per_s)}"
    if speed.samples_per_s is not None:
        yield f"Samples/sec: {shown(speed.samples_per_s)}{of_samples}"
    if speed.tokens_per_s is not None:
        yield f"Tokens/sec: {shown(speed.tokens_per_s)}{of_tokens}"
    if speed.basis:
        yield f"Clock: {speed.basis}"
    if speed.basis == MEASURED and speed.wall_steps_per_s is not None:
        yield f"Steps/sec by the wall clock, evaluations included: {shown(speed.wall_steps_per_s)}"


def shown(rate: float) -> str:
    """A rate with two decimals; a slower one than 0.1 with two digits, for it isn't 0.00."""
    return f"{rate:.2f}" if abs(rate) >= 0.1 or rate == 0 else f"{rate:.2g}"


def comparable_speeds(first: Speed, second: Speed) -> tuple[str, float, float] | None:
    """The speed by which two runs can be compared, the same work over the same clock: its name, and both values.

    Samples, since steps may differ in size; steps where neither says its samples. Where one run measured its steps and
    the other did not, both by the wall clock. None where there is no such pair.
    """
    if first.samples_per_s and second.samples_per_s:
        if _same_clock(first.samples_basis, second.samples_basis):
            return "samples/s", first.samples_per_s, second.samples_per_s
        if first.batch and second.batch and first.wall_steps_per_s and second.wall_steps_per_s:
            return WALL_SAMPLES, first.batch * first.wall_steps_per_s, second.batch * second.wall_steps_per_s
        return None
    if first.samples_per_s or second.samples_per_s:
        return None
    if first.steps_per_s and second.steps_per_s and _same_clock(first.basis, second.basis):
        return "steps/s", first.steps_per_s, second.steps_per_s
    if first.wall_steps_per_s and second.wall_steps_per_s:
        return WALL_STEPS, first.wall_steps_per_s, second.wall_steps_per_s
    return None


def _same_clock(first: str, second: str) -> bool:
    stepping = (MEASURED, STATED)
    return first == second or (first in stepping and second in stepping)


def step_s(meter: Meter, config: Mapping[str, Any]) -> tuple[float | None, str]:
    """Seconds of a step while stepping, and by which clock."""
    name = meter.basis()
    if name is not None:
        return meter.timed[name].step_s(LOG_FORMAT in config), MEASURED
    clock = meter.clock
    steps, seconds = clock.total()
    if steps <= 0 or seconds <= 0:
        return None, ""
    if not clock.steps or clock.seconds / clock.steps > seconds / steps:
        return (None, "") if clock.is_coarse(seconds, 1) else (seconds / steps, WALL_CLOCK)
    return (None, "") if clock.is_coarse(clock.seconds, clock.stretches) else (clock.seconds / clock.steps, WALL_CLOCK)


def batch(meter: Meter, config: Mapping[str, Any], gpus: int | None, remarks: list[str] | None = None) -> float | None:
    """Samples of one step, of all GPUs: as logged, else by the settings, else as a counter grew; None if unknown.

    Args:
        remarks: gets a line where the settings leave it open.
    """
    logged = _first(mean.value for _, mean in sorted(meter.batches.items()))
    stated = roles.setting(config, ("average_global_batch_size", *roles.BATCHES))
    if logged is not None:
        return logged
    if stated is not None:
        return stated if 0 < stated < math.inf else None
    accumulated = roles.setting(config, ACCUMULATIONS) or 1.0
    each = roles.setting(config, EACH)
    ranks = meter.at_work.value if meter.changed else gpus
    if each is not None and ranks:
        return each * accumulated * ranks
    counted = growth_per_step(meter, roles.SAMPLES_COUNTED)
    if counted is not None:
        return counted
    tokens, length = roles.setting(config, TOKENS_OF_STEP), roles.setting(config, roles.LENGTHS)
    if tokens and length:
        return tokens / length
    bare = roles.setting(config, ("batch_size",))
    if bare is None or not 0 < bare < math.inf:
        return None
    if gpus is not None and gpus > 1:
        if remarks is not None:
            remarks.append(
                f"batch_size={bare:g} on {gpus} GPUs may be of each or of all: log global_batch_size to have samples/s"
            )
        return None
    return bare * accumulated


def training_gpus(config: Mapping[str, Any], processes: int, seen: int, on_gpus: bool) -> int | None:
    """How many GPUs trained: as the settings say, else one for each process, or as many as were seen at work.

    Args:
        config: flat. processes: of training, at the most. seen: GPUs that were sampled, or that the run named.
        on_gpus: whether anything says that training was on GPUs; None is returned of one process without that.
    """
    stated = roles.setting(config, roles.GPU_COUNTS)
    if stated is not None and stated >= 1:
        return int(stated)
    return max(processes, seen) or None if on_gpus or seen or processes > 1 else None


def sure(meter: Meter, config: Mapping[str, Any]) -> bool:
    """Whether :func:`batch` needn't take a plain ``batch_size``, which may be of one GPU, or of a part of a step."""
    others = {name: value for name, value in config.items() if name.rpartition(".")[2] != "batch_size"}
    return batch(meter, others, 1) is not None


def logged_rate(
    meter: Meter, kinds: tuple[str, str], gpus: int | None, config: Mapping[str, Any], beside: bool
) -> float | None:
    """Total amount over total seconds, from a logged rate of the run: of all GPUs, else of each.

    Where training went on with another number of ranks, each rate of one GPU counts for those of its time.

    Args:
        kinds: of all GPUs, of each. beside: only rates that a step time stands beside.
    """
    of_each = meter.of_all if meter.changed else meter.rates
    factor = 1.0 if meter.changed else float(gpus or 0)
    for named, times in ((meter.rates.get(kinds[0], {}), 1.0), (of_each.get(kinds[1], {}), factor)):
        for name in _by_use(named):
            mean = mean_rate(meter, named[name], config, beside)
            if times and mean is not None:
                return mean * times
    return None


def rate_of_each(meter: Meter, kind: str, config: Mapping[str, Any]) -> float | None:
    """Total amount over total seconds, from a logged rate of one GPU."""
    named = meter.rates.get(kind, {})
    means = (mean_rate(meter, named[name], config) for name in _by_use(named))
    return next((mean for mean in means if mean is not None), None)


def _by_use(named: Mapping[str, Rate]) -> list[str]:
    """Names of rates, those of windows last, the one logged most first."""
    return sorted(named, key=lambda name: (name.startswith(WINDOWED), -named[name].count, name))


def mean_rate(meter: Meter, rate: Rate, config: Mapping[str, Any], beside: bool = False) -> float | None:
    """Total amount over total seconds: by step times beside the rate; else, unless only these count, by the clock."""
    basis, logged = meter.basis(), LOG_FORMAT in config
    mean = rate.beside(basis, meter.timed[basis].missed if basis is not None and logged else None)
    return rate.mean(logged) if mean is None and not beside else mean


def _steps(speed: Speed, meter: Meter, config: Mapping[str, Any], summary: Mapping[str, Any]) -> None:
    # A result of a benchmark has left its warm-up out already; its series has nothing more to leave out.
    stated = _positive(summary.get("avg_step_time_seconds"))
    if stated is not None:
        speed.steps_per_s, speed.basis = 1 / stated, STATED
        return
    seconds, basis = step_s(meter, config)
    wall = speed.wall_steps_per_s
    if basis == MEASURED and seconds and wall is not None and wall * seconds > 1:
        speed.wall_steps_per_s = speed.seconds = None  # the times of its records aren't those of its steps
        if wall * seconds > 1 + COARSE:
            speed.remarks.append(
                f"its step times ({1 / seconds:.4g} steps/s) are longer than the time between its records "
                f"({wall:.4g} steps/s): the first are used"
            )
    if basis != MEASURED and (stated := _positive(summary.get("steps_per_second"))) is not None:
        speed.steps_per_s, speed.basis = stated, STATED
    elif seconds:
        speed.steps_per_s, speed.basis = 1 / seconds, basis


def _samples(
    speed: Speed, meter: Meter, config: Mapping[str, Any], summary: Mapping[str, Any], gpus: int | None
) -> None:
    kinds = (roles.SAMPLES, roles.SAMPLES_PER_GPU)
    speed.samples_per_s, speed.samples_basis = logged_rate(meter, kinds, gpus, config, beside=True), MEASURED
    if speed.samples_per_s is None and speed.batch is not None and speed.steps_per_s is not None:
        speed.samples_per_s, speed.samples_basis = speed.batch * speed.steps_per_s, speed.basis
    if speed.samples_per_s is None:
        speed.samples_per_s, speed.samples_basis = logged_rate(meter, kinds, gpus, config, beside=False), LOGGED
    if speed.samples_per_s is None:
        names = ("samples_per_second", "samples_per_sec", "train_samples_per_second")
        speed.samples_per_s, speed.samples_basis = _stated(summary, names), STATED
    if speed.samples_per_s is None:
        speed.samples_basis = ""


def _tokens(
    speed: Speed, meter: Meter, config: Mapping[str, Any], summary: Mapping[str, Any], gpus: int | None
) -> None:
    """Tokens per second; where a result states another number than follows from it, a remark."""
    kinds = (roles.TOKENS, roles.TOKENS_PER_GPU)
    stated = _stated(summary, ("tokens_per_second", "tokens_per_sec"))
    counted = growth_per_step(meter, roles.TOKENS_COUNTED)
    speed.tokens_per_s, speed.tokens_basis = logged_rate(meter, kinds, gpus, config, beside=True), MEASURED
    if speed.tokens_per_s is None and not counted and speed.basis == WALL_CLOCK:
        speed.tokens_per_s, speed.tokens_basis = logged_rate(meter, kinds, gpus, config, beside=False), LOGGED
    if speed.tokens_per_s is None and speed.steps_per_s is not None:
        each = counted or (speed.batch * speed.length if speed.batch and speed.length else None)
        each = each or roles.setting(config, TOKENS_OF_STEP)
        if each:
            speed.tokens_per_s, speed.tokens_basis = each * speed.steps_per_s, speed.basis
        if not counted and stated is not None and speed.batch and speed.length:
            _contradicted(speed, stated)
            if speed.basis == STATED:
                speed.tokens_per_s = settled(stated, speed.tokens_per_s)
    if speed.tokens_per_s is None:
        speed.tokens_per_s, speed.tokens_basis = logged_rate(meter, kinds, gpus, config, beside=False), LOGGED
    if speed.tokens_per_s is None:
        speed.tokens_per_s, speed.tokens_basis = stated, STATED
    if speed.tokens_per_s is None:
        speed.tokens_basis = ""


def settled(stated: float | None, derived: float | None) -> float | None:
    """A result's figure as it states it, unless it states none or another than follows from the rest of it."""
    return derived if stated is None or (derived and abs(stated - derived) > TOLERANCE * stated) else stated


def _contradicted(speed: Speed, stated: float) -> None:
    batch, length, steps, tokens = speed.batch or 0.0, speed.length or 0.0, speed.steps_per_s, speed.tokens_per_s
    if steps and tokens and abs(stated - tokens) > TOLERANCE * stated:
        speed.remarks.append(
            f"it states {stated:,.0f} tokens/s, but {batch:g} × {length:g} × {steps:.4g} steps/s = {tokens:,.0f}: that "
            f"is used (a length of {stated / batch / steps:,.0f} would explain the other)"
        )


def growth_per_step(meter: Meter, kind: str) -> float | None:
    """By how much a counter of this kind grows in a step."""
    named = meter.counted.get(kind, {})
    return _first(named[name].more / named[name].steps for name in sorted(named) if named[name].steps)


def _first(values: Any) -> float | None:
    return next((value for value in values if value), None)


def _stated(summary: Mapping[str, Any], names: tuple[str, ...]) -> float | None:
    return next((value for name in names if (value := _positive(summary.get(name))) is not None), None)


def _positive(value: Any) -> float | None:
    number = finite(value)
    return number if number is not None and number > 0 else None
