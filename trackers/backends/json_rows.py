"""What becomes of each record in document 1's JSON log: iterations, evaluations, checkpoints, totals.

Names are mapped as users of that log know them: ``train_loss`` or ``loss`` is an iteration's ``loss``, ``lr`` or
``learning_rate`` an evaluation's ``lr``, and a ``val_…`` value makes an evaluation. Every other value keeps its
own name. All values are as JSON holds them: NaN and infinities are strings.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

LOSS_NAMES = ("train_loss", "loss", "train/loss")
RATE_NAMES = ("lr", "learning_rate", "learning-rate", "train/lr", "train/learning_rate")
VAL_LOSS_NAMES = ("val_loss", "val/loss", "eval_loss", "eval/loss", "validation_loss", "validation/loss")
EVAL_PREFIXES = ("val_", "val/", "eval_", "eval/", "validation_", "validation/")
EVAL_SUFFIXES = (" validation", " validation ppl")
MFU_NAMES = ("mfu", "perf/mfu", "throughput/device/mfu")
TIME_NAMES = (("time_ms", 1), ("perf/iter_ms", 1), ("perf/iter_time_sec", 1000), ("iteration-time", 1000))

APART_NAMES = ("evaluation-time", "checkpoint-time")
"""Seconds for which training stood still, as ``run.loop`` logs them: they are in no iteration's time."""

WINDOW = 16
"""Newest iterations that may still grow: values of one step come in several records, some of them late."""

EVAL_WINDOW = 4


class Row(msgspec.Struct):
    """An iteration or an evaluation that may still grow.

    guessed: keys that a later record may overwrite. timed: which of TIME_NAMES its ``time_ms`` is from.
    """

    step: int
    values: dict[str, Any]
    guessed: list[str] = []
    timed: int = len(TIME_NAMES)


class Totals(msgspec.Struct):
    """What the summary is made of, folded over all rows that can't change any more.

    first_ms: time of the first iteration, which includes compilation and is left out of the mean.
    """

    iterations: int = 0
    final_iter: int | None = None
    final_train_loss: Any = None
    best_val_loss: float | None = None
    first_ms: float | None = None
    time_sum_ms: float = 0.0
    times: int = 0
    mfu_sum: float = 0.0
    mfus: int = 0
    evals: int = 0
    checkpoints: int = 0

    def add_iteration(self, values: Mapping[str, Any]) -> None:
        """Fold one iteration in."""
        self.iterations += 1
        step = values["iter"]
        if self.final_iter is None or step >= self.final_iter:
            self.final_iter = step
            self.final_train_loss = values.get("loss", self.final_train_loss)
        time_ms = positive(values.get("time_ms"))
        if time_ms is not None:
            if self.first_ms is None and not self.times:
                self.first_ms = time_ms
            else:
                self.time_sum_ms += time_ms
                self.times += 1
        mfu = positive(values.get("mfu"))
        if mfu is not None:
            self.mfu_sum += mfu
            self.mfus += 1

    def add_eval(self, values: Mapping[str, Any]) -> None:
        """Fold one evaluation in."""
        self.evals += 1
        loss = values.get("val_loss")
        if isinstance(loss, (int, float)) and (self.best_val_loss is None or loss < self.best_val_loss):
            self.best_val_loss = loss

    def summary(self) -> dict[str, Any]:
        """Document 1's summary; what isn't known is absent."""
        mean_ms = self.time_sum_ms / self.times if self.times else self.first_ms
        found = {
            "total_iterations": self.iterations,
            "final_iter": self.final_iter,
            "final_train_loss": self.final_train_loss,
            "best_val_loss": self.best_val_loss,
            "avg_time_ms": mean_ms,
            "avg_mfu": self.mfu_sum / self.mfus if self.mfus else None,
            "total_eval_steps": self.evals,
            "total_checkpoints": self.checkpoints,
        }
        return {name: value for name, value in found.items() if value is not None}


class Rows(msgspec.Struct):
    """The rows that may still grow, and what is carried from one to the next.

    anchor_step, anchor_time: where the time of an iteration begins. loss, rate, val_loss: the last known ones.
    names: the logged name of each that is stored under another, as it came first; ``time_ms`` where it was logged.
    """

    iterations: list[Row] = []
    evals: list[Row] = []
    anchor_step: int | None = None
    anchor_time: float = 0.0
    top: int = 0
    loss: Any = None
    rate: Any = None
    val_loss: Any = None
    names: dict[str, str] = {}

    def add(self, step: int, time: float, values: Mapping[str, Any]) -> None:
        """Take the values of one record at a step."""
        self.top = max(self.top, step)
        training = {name: value for name, value in values.items() if not is_eval(name)}
        if len(training) == len(values):
            self._iteration(step, time, training)
        else:
            measured = {name: value for name, value in values.items() if name not in training}
            self._evaluation(step, time, measured, training)

    def _iteration(self, step: int, time: float, values: Mapping[str, Any]) -> None:
        named = _iteration_names(values, step, self.names)
        timed = _timed(values)
        row = self._find(self.iterations, step, named, timed)
        apart_s = sum(apart for name in APART_NAMES if (apart := positive(values.get(name))) is not None)
        if row is None:
            row = Row(step, {"iter": step}, timed=timed)
            self.iterations.append(row)
            elapsed_ms = self._elapsed_ms(step, time, apart_s)
            if "loss" in named:
                row.values["loss"] = None
            if "time_ms" in named:
                row.values["time_ms"] = None
            elif elapsed_ms is not None:
                row.values["time_ms"] = elapsed_ms
                row.guessed.append("time_ms")
            row.values.update(named)
            row.values["time"] = time
        else:
            if apart_s and step == self.anchor_step:
                self.anchor_time = time
            if timed > row.timed:  # two ways to time one iteration: the better name counts, whichever came first
                named.pop("time_ms", None)
            row.timed = min(timed, row.timed)
            row.values.update(named)
        row.guessed = [name for name in row.guessed if name not in named]
        self.rate = _first(values, RATE_NAMES, self.rate)
        if "loss" in named:
            self.loss = named["loss"]
            for evaluation in self.evals:
                if evaluation.step == step and "train_loss" in evaluation.guessed:
                    evaluation.values["train_loss"] = self.loss
                    evaluation.guessed.remove("train_loss")

    def _evaluation(self, step: int, time: float, measured: Mapping[str, Any], training: Mapping[str, Any]) -> None:
        named = {_eval_name(name): value for name, value in measured.items()}
        for name in measured:
            if _eval_name(name) != name:
                self.names.setdefault(_eval_name(name), name)
        own_loss, own_rate = _first(training, LOSS_NAMES, None), _first(training, RATE_NAMES, None)
        loss = self.loss if own_loss is None else own_loss
        self.rate = self.rate if own_rate is None else own_rate
        row = self._find(self.evals, step, named)
        if row is None:
            head = {"iter": step, "train_loss": loss, "val_loss": named.get("val_loss"), "lr": self.rate}
            row = Row(step, {name: value for name, value in head.items() if value is not None or name == "train_loss"})
            row.values["timestamp"] = iso(time)
            row.guessed = ["train_loss"]
            self.evals.append(row)
        row.values.update(named)
        if own_loss is not None:
            row.values["train_loss"] = own_loss
            row.guessed = []
        self.val_loss = named.get("val_loss", self.val_loss)
        if step == self.anchor_step:
            self.anchor_time = time  # what follows is timed without the evaluation
        self._training_part(step, time, training, row)

    def _training_part(self, step: int, time: float, training: Mapping[str, Any], evaluation: Row) -> None:
        """An evaluation's record may hold training values too: they go to the iteration where it has room."""
        row = next((row for row in reversed(self.iterations) if row.step == step), None)
        named = _iteration_names(training, step, self.names)
        if row is None and "loss" in named:
            self._iteration(step, time, training)
            self.iterations[-1].guessed.append("loss")
            return
        for name, value in named.items():
            if row is not None and (name not in row.values or row.values[name] == value):
                row.values[name] = value
            elif name != "loss" and name not in RATE_NAMES:
                evaluation.values.setdefault(name, value)

    def _elapsed_ms(self, step: int, time: float, apart_s: float) -> float | None:
        """Time per iteration since the last one, in ms, without a pause; None where there was none before it."""
        before, began = self.anchor_step, self.anchor_time
        if before is not None and step <= before:
            return None
        self.anchor_step, self.anchor_time = step, time
        if before is None or time - apart_s <= began:
            return None
        return round((time - apart_s - began) / (step - before) * 1000, 3)

    def takes(self, step: int, values: Mapping[str, Any]) -> bool:
        """Whether there is an iteration of this step that has room for these values."""
        return self._find(self.iterations, step, values) is not None

    def _find(self, rows: list[Row], step: int, named: Mapping[str, Any], timed: int | None = None) -> Row | None:
        """The newest row of a step, if it has none of these names, but for a ``time_ms`` of another name's."""
        for row in reversed(rows):
            if row.step == step:
                free = {*row.guessed, *(("time_ms",) if timed not in (None, row.timed) else ())}
                taken = any(name in row.values and name not in free for name in named)
                return None if taken else row
        return None

    def settled(self, everything: bool = False) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Take out the iterations and evaluations that can't grow any more."""
        keep = 0 if everything else WINDOW
        iterations = self.iterations[: max(0, len(self.iterations) - keep)]
        del self.iterations[: len(iterations)]
        evals = self.evals[: max(0, len(self.evals) - (0 if everything else EVAL_WINDOW))]
        del self.evals[: len(evals)]
        return [row.values for row in iterations], [_without_none(row.values) for row in evals]

    def rewind(self, step: int) -> None:
        """Forget what lies above ``step``."""
        self.iterations = [row for row in self.iterations if row.step <= step]
        self.evals = [row for row in self.evals if row.step <= step]
        self.anchor_step, self.top = None, min(self.top, step)


def is_eval(name: str) -> bool:
    """Whether a metric was measured on data that training doesn't see."""
    return name.startswith(EVAL_PREFIXES) or name.endswith(EVAL_SUFFIXES)


def iso(time: float) -> str:
    """Unix seconds as document 1 writes times: local, with microseconds."""
    return datetime.fromtimestamp(time).isoformat(timespec="microseconds")


def positive(value: Any) -> float | None:
    """A measurement; None where it is missing, or one of the markers that loggers use for "no value" (-100, 0)."""
    return value if isinstance(value, (int, float)) and math.isfinite(value) and value > 0 else None


def _iteration_names(values: Mapping[str, Any], step: int, names: dict[str, str]) -> dict[str, Any]:
    """Values by their names in an iteration: ``loss``, ``time_ms`` and ``mfu`` first, then all others.

    Args:
        names: gets the logged names of those that are stored under another.
    """
    named: dict[str, Any] = {}
    loss = next((name for name in LOSS_NAMES if name in values), None)
    if loss is not None:
        named["loss"] = values[loss]
    for name, factor in TIME_NAMES:
        if name in values:
            value = values[name]
            named["time_ms"] = value * factor if factor != 1 and isinstance(value, (int, float)) else value
            break
    mfu = next((name for name in MFU_NAMES if name in values), None)
    if mfu is not None:
        named["mfu"] = values[mfu]
    for stored, logged in (("loss", loss), ("mfu", mfu)):
        if logged not in (None, stored):
            names.setdefault(stored, str(logged))
    if "time_ms" in values:
        names.setdefault("time_ms", "time_ms")
    for name, value in values.items():
        if name in (loss, mfu, "time_ms") or (name == "iter" and value == step):
            continue
        stored = name
        while stored in named or stored in ("iter", "time"):
            stored += "_"
        if stored != name:
            names.setdefault(stored, name)
        named[stored] = value
    return named


def _timed(values: Mapping[str, Any]) -> int:
    """Which of TIME_NAMES counts among these values; beyond the last where there is none."""
    return next((place for place, (name, _) in enumerate(TIME_NAMES) if name in values), len(TIME_NAMES))


def _eval_name(name: str) -> str:
    if name in VAL_LOSS_NAMES:
        return "val_loss"
    return name


def _first(values: Mapping[str, Any], names: tuple[str, ...], default: Any) -> Any:
    return next((values[name] for name in names if name in values), default)


def _without_none(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
