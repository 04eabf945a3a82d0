"""Megatron training lines, one for each interval of steps, printed as soon as all values of the line have arrived.

Values across ranks come late. With several ranks, an interval that lacks a field which the one before had waits for
it, but not for long; training doesn't wait at all.

Losses are means over the interval's values; times and rates are weighted by the steps that each of them covers. So an
interval of any length is true, the first one too.
"""

from __future__ import annotations

import math
import re
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache

from trackers.backends.shared.step_rows import is_eval
from trackers.formats.megatron_line import DECOUPLED_RATE, RATE, STRAGGLER_ENDS, stragglers, summary, traced, validation
from trackers.formats.megatron_line import report as timer_report
from trackers.metrics import roles
from trackers.records import Number

MOST_OTHERS = 8
"""Maximum number of values on a line beyond those of Megatron's own."""

ITERATION = "iteration-time"
LOSS, TIMER, OTHER, TIME = "loss", "timer", "other", "elapsed_ms"

_FIELDS = {
    "learning-rate": RATE, "learning_rate": RATE, "lr": RATE, "train/lr": RATE, "train/learning_rate": RATE,
    "decoupled-learning-rate": DECOUPLED_RATE, "decoupled_learning_rate": DECOUPLED_RATE,
    "throughput/tflops/device": "tflops", "perf/tflops_per_gpu": "tflops",
    "iter-energy/gpu": "energy_j", "perf/energy_per_gpu_j": "energy_j",
    "power/gpu": "power_w", "perf/power_per_gpu_w": "power_w",
    "skipped-train-samples": "skipped_samples", "skipped_samples": "skipped_samples",
    "loss-scale": "loss_scale", "loss_scale": "loss_scale",
    "grad-norm": "grad_norm", "grad_norm": "grad_norm", "train/grad_norm": "grad_norm",
    "num-zeros": "zeros", "num_zeros": "zeros",
    "params-norm": "params_norm", "params_norm": "params_norm",
    "max-attention-logit": "max_attention_logit",
    "skipped-iterations": "skipped", "skipped_iterations": "skipped",
    "nan-iterations": "nans", "nan_iterations": "nans",
}  # fmt: skip
_ROLES = {roles.STEP_TIME: TIME, roles.BATCH: "batch_size", roles.SAMPLES_COUNTED: "consumed_samples"}
_MEANS = frozenset({"tflops", "energy_j", "power_w"})
_COUNTS = frozenset({"skipped", "nans"})
_WORTH = frozenset({LOSS, TIME, RATE, "tflops"})
_RANKED = re.compile(r"(?P<name>.+)-time-ranks/rank_(?P<rank>\d+)")
_NOT_OTHERS = re.compile(r".*/.*|iter(ation)?|(global_)?step|.*[-_](time|interrupted)|world[-_]size|perf.*", re.DOTALL)


@lru_cache(maxsize=20_000)
def field_of(name: str) -> str:
    """Where on the line a name's value goes; "" for the many that have no place there."""
    if name in _FIELDS:
        return _FIELDS[name]
    if name == ITERATION:
        return TIME
    if name.endswith(("-time", "-time-min")) or _RANKED.fullmatch(name):
        return TIMER
    role = roles.role_of(name)
    if role is not None:
        return _ROLES.get(role.kind, "")
    if name.lower().endswith("loss"):
        return LOSS
    return "" if _NOT_OTHERS.fullmatch(name) else OTHER


class WeightedMean:
    """A mean of values with weights."""

    __slots__ = ("total", "weight")

    def __init__(self) -> None:
        self.total = self.weight = 0.0

    def add(self, value: Number, weight: float = 1.0) -> None:
        """Add a value."""
        self.total += float(value) * weight
        self.weight += weight

    @property
    def value(self) -> float:
        """The mean of what was added."""
        return self.total / self.weight


class ConsoleInterval:
    """The steps after ``since`` up to ``step``.

    Attributes:
        time: of the last record. fields: that it has a value for, by where on the line they go; and ITERATION, where
            the loop has told its times. latest: likewise, at its last step alone.
    """

    def __init__(self, since: int) -> None:
        self.since = self.step = since
        self.time = 0.0
        self.fields: set[str] = set()
        self.latest: set[str] = set()
        self._last: dict[str, Number] = {}
        self._means: dict[str, WeightedMean] = {}
        self._losses: dict[str, WeightedMean] = {}
        self._others: dict[str, Number] = {}
        self._timers: dict[str, WeightedMean] = {}
        self._step_time = ""
        self._rows = self._bad = 0

    @property
    def worth(self) -> bool:
        """Whether it has enough for a line."""
        return not _WORTH.isdisjoint(self.fields)

    def add(self, step: int, time: float, values: Mapping[str, Number], covers: Callable[[str, int], int]) -> None:
        """Take a record's values. covers: tells the steps that a value at a step covers, asked once for each."""
        if step > self.step:
            self.step, self.latest = step, set()
        self.time = max(self.time, time)
        timed = ITERATION in values  # else a time of its own is that of a pause: an evaluation, a checkpoint
        fields = {ITERATION} if timed else set()
        losses = []
        for name, value in values.items():
            field = field_of(name)
            if not field or (field == TIMER and not timed):
                continue
            fields.add(field)
            if field == LOSS:
                losses.append(value)
                self._losses.setdefault(name, WeightedMean()).add(value)
            elif field == OTHER:
                self._others[name] = value
            elif field == TIMER:
                self._timers.setdefault(name, WeightedMean()).add(value, covers(name, step))
            elif field == TIME:
                self._add_time(name, value, covers(name, step))
            elif field in _MEANS:
                seconds = float(values[ITERATION]) if timed and field != "energy_j" else 1.0
                self._means.setdefault(field, WeightedMean()).add(value, covers(name, step) * (seconds or 1.0))
            elif field in _COUNTS:
                self._last[field] = self._last.get(field, 0) + value
            else:
                self._last[field] = value
        self.fields |= fields
        if step == self.step:
            self.latest |= fields
        if losses:
            self._rows += 1
            self._bad += not all(map(math.isfinite, losses))

    def lines(self, iterations: int | None, timing_option: str, ends: int = STRAGGLER_ENDS) -> Iterator[str]:
        """The line, the timers' report and the stragglers'.

        Args:
            iterations: where training ends, if that is known. timing_option: "max", "minmax" or "all".
            ends: how many slow and quick ranks the stragglers' report names; 0: there is none.
        """
        last = dict(self._last)
        if "nans" not in last and self._rows == self.step - self.since:  # each iteration has told its loss
            last["nans"] = self._bad
        yield summary(
            time=self.time,
            iteration=self.step,
            iterations=iterations,
            consumed_samples=last.get("consumed_samples"),
            skipped_samples=last.get("skipped_samples", 0),
            elapsed_ms=self._mean(TIME),
            tflops=self._mean("tflops"),
            energy_j=self._mean("energy_j"),
            power_w=self._mean("power_w"),
            rates={name: last[name] for name in (RATE, DECOUPLED_RATE) if name in last},
            batch_size=last.get("batch_size"),
            losses={name: mean.value for name, mean in self._losses.items()},
            loss_scale=last.get("loss_scale"),
            grad_norm=last.get("grad_norm"),
            zeros=last.get("zeros"),
            params_norm=last.get("params_norm"),
            max_attention_logit=last.get("max_attention_logit"),
            others=dict(list(self._others.items())[:MOST_OTHERS]),
            skipped=last.get("skipped"),
            nans=last.get("nans"),
        )
        times, ranks = self._by_rank(timing_option)
        report = timer_report(times, timing_option)
        if report:
            yield from report.splitlines()
        if ends and len(ranks) > 1:
            yield from stragglers([None if ms is None else {"rtt_ms": ms} for ms in ranks], ends)

    def _add_time(self, name: str, value: Number, steps: int) -> None:
        """The loop's own time of an iteration, or the first other one that the run names."""
        if name == ITERATION and self._step_time != ITERATION:
            self._step_time = name
            self._means.pop(TIME, None)
        self._step_time = self._step_time or name
        if name == self._step_time:
            role = roles.role_of(name)
            self._means.setdefault(TIME, WeightedMean()).add(
                float(value) * 1000 * (role.factor if role else 1.0), steps
            )

    def _mean(self, field: str) -> float | None:
        return self._means[field].value if field in self._means else None

    def _by_rank(self, option: str) -> tuple[dict[str, list[float | None]], list[float | None]]:
        """Milliseconds of each timer as its report wants them, and by rank of what tells slow ranks from quick ones."""
        ranked: dict[str, dict[int, float]] = {}
        for name, mean in self._timers.items():
            match = _RANKED.fullmatch(name)
            if match:
                ranked.setdefault(match["name"], {})[int(match["rank"])] = mean.value * 1000
        times: dict[str, list[float | None]] = {}
        for name, mean in self._timers.items():
            timer = name.removesuffix("-time")
            if timer == name or name == ITERATION:
                continue
            slowest = mean.value * 1000
            least = self._timers.get(f"{name}-min")
            by_rank = ranked.get(timer)
            if option == "all" and by_rank:
                times[timer] = [by_rank.get(rank) for rank in range(max(by_rank) + 1)]
            else:
                times[timer] = [slowest if least is None else least.value * 1000, slowest]
        count = max((max(by_rank) + 1 for by_rank in ranked.values()), default=0)
        rows = [{timer: by_rank[rank] for timer, by_rank in ranked.items() if rank in by_rank} for rank in range(count)]
        worked, _ = traced(rows)
        if not any(worked):  # nothing but the iteration, whose times differ where ranks don't wait for each other
            worked = [row.get(ITERATION.removesuffix("-time")) for row in rows]
        return times, worked


WAIT_S = 5.0
"""Maximum wait for missing values of a line's interval, in seconds."""
MOST_WAITING = 8

FIRST = "first-step-time"
MARKERS = frozenset({ITERATION, FIRST, "lm loss"})
"""Names that the logging of a whole training loop brings along: runs that have one get these lines."""


class ConsoleLines:
    """The lines of one attempt.

    Args:
        every: steps between two lines. timing_option: "max", "minmax" or "all". timed: the run's loop tells times.
        ends: how many slow and quick ranks are named; 0: stragglers aren't reported.

    Attributes:
        iterations: where training ends, if that is known. ranks: how many train together.
    """

    clock = staticmethod(time.monotonic)

    def __init__(
        self, every: int, timing_option: str = "minmax", *, timed: bool = True, ends: int = STRAGGLER_ENDS
    ) -> None:
        self.iterations: int | None = None
        self.ranks = 1
        self._every = every
        self._option = timing_option
        self._timed = timed
        self._ends = ends
        self._now: ConsoleInterval | None = None
        self._waiting: deque[tuple[ConsoleInterval, float]] = deque()
        self._expected: set[str] = set()
        self._covered: dict[str, int] = {}
        self._due_s: float | None = None

    def add(self, step: int, time: float, values: Mapping[str, Number], late: bool = False) -> Iterator[str]:
        """Take a record's values; the lines that are due. late: it is of all ranks, so training may be ahead of it."""
        if self._now is None or (not late and step < self._now.since and any(field_of(n) == LOSS for n in values)):
            self._now = ConsoleInterval(step - 1)  # the second: training itself goes back
        if FIRST in values:
            self._covered[""] = step
            if self._timed:
                self._expected.add(ITERATION)
        measured = {name: value for name, value in values.items() if is_eval(name)}
        training = {name: value for name, value in values.items() if name not in measured} if measured else values
        if training and step > self._now.step and self._is_due():
            self._set_aside()
        if training:
            self._fold(step, time, training)
        yield from self._complete_lines()
        if self._is_due() and LOSS in self._now.latest and self._expected <= self._now.latest:
            self._set_aside()
            yield from self._complete_lines()
        if measured:
            yield validation(step, measured)

    def tick(self) -> Iterator[str]:
        """The lines that have waited long enough. Called behind what has come, for it may be what they wait for."""
        if self._now is not None and self._is_due():
            self._due_s = self.clock() if self._due_s is None else self._due_s
            if self.clock() - self._due_s >= WAIT_S:
                self._set_aside()
                yield from self._complete_lines(everything=True)
        yield from self._complete_lines(late=True)

    def close(self) -> Iterator[str]:
        """What is left: the last interval may be a short one."""
        if self._now is not None and self._now.worth and self._now.step > self._now.since:
            self._set_aside()
        yield from self._complete_lines(everything=True)

    def _is_due(self) -> bool:
        now = self._now
        return now is not None and now.worth and now.step // self._every > now.since // self._every

    def _set_aside(self) -> None:
        """The interval is over: its line waits for what is late."""
        assert self._now is not None
        self._waiting.append((self._now, self.clock()))
        self._now = ConsoleInterval(self._now.step)
        self._due_s = None

    def _fold(self, step: int, time: float, values: Mapping[str, Number]) -> None:
        assert self._now is not None
        interval = next((pending for pending, _ in self._waiting if pending.since < step <= pending.step), None)
        if interval is None and step > self._now.since:
            interval = self._now
        if interval is not None:
            interval.add(step, time, values, self._covers)
        else:  # its line is out already: the next one waits for such a value
            fields = {field_of(name) for name in values} - {"", TIMER}
            self._expected |= fields | {ITERATION} if ITERATION in values else fields

    def _covers(self, name: str, step: int) -> int:
        """The steps since a name's last value, or since the first step, which is timed apart."""
        since = self._covered.get(name, self._covered.get(""))
        self._covered[name] = max(step, since or 0)
        return max(1, step - since) if since is not None else 1

    def _complete_lines(self, late: bool = False, everything: bool = False) -> Iterator[str]:
        """The lines of the intervals that are complete, in order; late: also of those that waited long enough."""
        while self._waiting:
            interval, since_s = self._waiting[0]
            whole = self.ranks <= 1 or self._expected <= interval.latest
            over = late and (len(self._waiting) > MOST_WAITING or self.clock() - since_s >= WAIT_S)
            if not (whole or over or everything):
                return
            self._waiting.popleft()
            self._expected = set(interval.latest)
            yield from interval.lines(self.iterations, self._option, self._ends)
