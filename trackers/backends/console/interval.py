"""Values that a run logged between two Megatron training lines, as far as the lines show them.

Losses are means over what there is of them; times and rates are weighted by the steps that each of them covers. So an
interval of any length is true, the first one too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache

from trackers.formats.megatron_line import DECOUPLED_RATE, RATE, STRAGGLER_ENDS, stragglers, summary, traced
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
        found = {ITERATION} if timed else set()
        losses = []
        for name, value in values.items():
            field = field_of(name)
            if not field or (field == TIMER and not timed):
                continue
            found.add(field)
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
        self.fields |= found
        if step == self.step:
            self.latest |= found
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
