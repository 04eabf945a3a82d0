"""Selection of the steps that get a line, and its contents: a step's values come in several records, some late."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from trackers.backends.session.settings import SessionSettings
from trackers.metrics import roles
from trackers.metrics.groups import group_of
from trackers.records import Number

FIRST = 10
"""Number of first steps that get a line each."""
PARTS = 10
"""And each tenth of the run."""
WINDOW = 16
"""Number of newer steps after which a line no longer waits for its loss: values across ranks come late."""
SLOW_S, FEW_SAMPLES = 10.0, 1.0
"""Warnings: a step longer than this, fewer samples in a second."""
LOSSES = (*roles.LOSSES, "train/lm loss")
_UNSHOWN = (roles.BATCH, roles.SAMPLES_COUNTED, roles.TOKENS_COUNTED)
_STEP_NAMES = ("iteration", "step", "iter", "global_step")
RATES = ("learning_rate", "lr", "learning-rate", "train/learning_rate", "train/lr")
COMMUNICATION = "communication/"


class LinesDue(msgspec.Struct):
    """The lines that a step gets."""

    main: bool = False
    multigpu: bool = False
    performance: bool = False

    @property
    def any(self) -> bool:
        """It gets one."""
        return self.main or self.multigpu or self.performance


class StepRow(msgspec.Struct):
    """A step that gets a line. age: newer steps seen since."""

    step: int
    time: float
    due: LinesDue
    values: dict[str, Number] = {}
    age: int = 0

    def loss(self) -> tuple[str, Number] | None:
        """Its loss, and the name it was logged by."""
        return next(((name, self.values[name]) for name in LOSSES if name in self.values), None)


class StepTime(msgspec.Struct):
    """A step, and when it was logged."""

    step: int
    time: float


class StepSums(msgspec.Struct):
    """Sums over the steps since a line. time_s: the sum of step times, of which there are ``count``."""

    since: StepTime | None = None
    time_s: float = 0.0
    count: int = 0

    def step_s(self, step: int, time: float) -> float | None:
        """Seconds of a step: measured, else by the clock between two lines; None without either."""
        if self.count:
            return self.time_s / self.count
        return between(self.since, step, time)

    def begin(self, step: int, time: float) -> None:
        """A line was written."""
        self.since, self.time_s, self.count = StepTime(step, time), 0.0, 0


class LineSteps(msgspec.Struct):
    """The steps of one attempt, as far as lines matter.

    top: the newest step. rate, batch: samples/s and samples of a step as last logged.
    """

    rows: list[StepRow] = []
    top: int | None = None
    line: StepTime | None = None
    pace: StepSums = msgspec.field(default_factory=StepSums)
    rate: float | None = None
    batch: float | None = None

    def add(
        self, step: int, time: float, values: Mapping[str, Number], settings: SessionSettings, total: int | None
    ) -> None:
        """Take what was logged of training at a step."""
        if self.line is None:
            self.line = StepTime(step, time)
            self.pace.begin(step, time)
        if self.top is None or step > self.top:
            for row in self.rows:
                row.age += 1
            due = due_at(step, self.top, settings, total)
            self.top = step
            if due.any:
                self.rows.append(StepRow(step, time, due))
        for row in reversed(self.rows):
            if row.step == step:
                row.values.update(values)
                break
        for name, value in values.items():
            role = roles.role_of(name)
            if role is not None and value == value and value > 0:
                self._measured(role.kind, float(value) * role.factor)

    def _measured(self, kind: str, value: float) -> None:
        if kind == roles.STEP_TIME:
            self.pace.time_s += value
            self.pace.count += 1
        elif kind == roles.SAMPLES:
            self.rate = value
        elif kind == roles.BATCH:
            self.batch = value

    def ready(self, everything: bool = False, aged: int = 1) -> list[StepRow]:
        """Take out the rows that no later record is waited for.

        Args:
            aged: how many newer steps a row with its loss has to see.
        """
        count = len(self.rows) if everything else 0
        for place, row in enumerate(self.rows[count:], 1):
            if row.age >= WINDOW or (row.age >= aged and row.loss() is not None):
                count = place
        found = self.rows[:count]
        del self.rows[:count]
        return found


def due_at(step: int, before: int | None, settings: SessionSettings, total: int | None) -> LinesDue:
    """The lines of a step, where ``before`` is the newest step so far: at it, or where it went past one that is due."""
    last = max(0, step - 1 if before is None else before)
    tenth = total is not None and step * PARTS // total > last * PARTS // total
    return LinesDue(
        main=step <= FIRST or tenth or _passed(step, last, settings.log_steps) or settings.training_level <= 10,
        multigpu=_passed(step, last, settings.multigpu_steps) or settings.multigpu_level <= 10,
        performance=_passed(step, last, settings.performance_steps),
    )


def _passed(step: int, last: int, every: int) -> bool:
    return step // every > last // every


def between(mark: StepTime | None, step: int, time: float) -> float | None:
    """Seconds of a step since a mark; None where no time has passed, or no step."""
    if mark is None or step <= mark.step or time <= mark.time:
        return None
    return (time - mark.time) / (step - mark.step)


@lru_cache(maxsize=20_000)
def kind_of(name: str) -> str:
    """What a metric is to these logs: loss, rate, evaluation, communication, hardware or training."""
    if name in LOSSES:
        return "loss"
    if name in RATES:
        return "rate"
    if name.startswith(COMMUNICATION):
        return "communication"
    if name.endswith("-time"):  # a timer's: evaluation-time is no result of an evaluation
        return "training"
    group = group_of(name)
    return {"validation": "evaluation", "gpu": "hardware", "system": "hardware"}.get(group, "training")


def beside(row: StepRow, step_s: float | None, batch: float | None) -> dict[str, Any]:
    """What stands on the line below a step: its time and rate, logged or worked out, then all else that was logged."""
    shown: dict[str, Any] = {}
    rest: dict[str, Any] = {}
    for name, value in row.values.items():
        role = roles.role_of(name)
        kind = role.kind if role is not None else ""
        if kind == roles.STEP_TIME and role is not None and "step_duration" not in shown:
            shown["step_duration"] = value * role.factor
        elif kind == roles.SAMPLES and "samples_per_second" not in shown:
            shown["samples_per_second"] = value
        elif kind_of(name) == "training" and kind not in _UNSHOWN and name not in _STEP_NAMES:
            rest[name] = value
    step_s = shown.get("step_duration", step_s)
    if step_s is not None:
        shown.setdefault("step_duration", step_s)
        if batch is not None and step_s > 0:
            shown.setdefault("samples_per_second", batch / step_s)
    order = ("step_duration", "samples_per_second")
    return {**{name: shown[name] for name in order if name in shown}, **rest}


def slow(step_s: Any, samples: Any) -> list[str]:
    """Warnings of a step's time in seconds, and of its samples in a second, where they are known."""
    found = []
    if isinstance(step_s, (int, float)) and step_s > SLOW_S:
        found.append(f"Slow training detected: {step_s:.1f}s per step")
    if isinstance(samples, (int, float)) and 0 <= samples < FEW_SAMPLES:
        found.append(f"Low throughput: {samples:.2f} samples/s")
    return found
