"""Turns records into entries of the training JSON log: iterations, evaluations, checkpoints, totals.

Names are mapped as users of that log know them: ``train_loss`` or ``loss`` is an iteration's ``loss``, ``lr`` or
``learning_rate`` an evaluation's ``lr``, and a ``val_…`` value makes an evaluation. Every other value keeps its
own name. All values are as JSON holds them: NaN and infinities are strings.
"""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from operator import itemgetter
from typing import Any

import msgspec

LOSS_NAMES = ("train_loss", "loss", "train/loss", "lm loss")
RATE_NAMES = ("lr", "learning_rate", "learning-rate", "train/lr", "train/learning_rate")
VAL_LOSS_NAMES = ("val_loss", "val/loss", "eval_loss", "eval/loss", "validation_loss", "validation/loss",
                  "lm loss validation")  # fmt: skip
EVAL_PREFIXES = ("val_", "val/", "eval_", "eval/", "validation_", "validation/")
EVAL_SUFFIXES = (" validation", " validation ppl")
MFU_NAMES = ("mfu", "perf/mfu", "throughput/device/mfu")
TIME_NAMES = (("time_ms", 1), ("perf/iter_ms", 1), ("perf/iter_time_sec", 1000), ("iteration-time", 1000))

EVALUATION_TIME = "evaluation-time"
"""Stands beside the evaluation that it is of, so that no iteration seems to have lasted as long."""
APART_NAMES = ("evaluation-time", "checkpoint-time")
"""Seconds for which training stood still, as ``run.loop`` logs them: they are in no iteration's time."""

NO_MFU = 0
"""An integer where no MFU was logged: what was logged is a float."""

WINDOW = 16
"""Newest iterations that may still grow: values of one step come in several records, some of them late."""

EVAL_WINDOW = 4


class IterationRow(msgspec.Struct):
    """An iteration or an evaluation that may still grow.

    guessed: keys that a later record may overwrite. timed: which of TIME_NAMES its ``time_ms`` is from. lent: names of
    training's values that came with an evaluation, by key: the iteration is made of them until it has values of its
    own. before: steps to the iteration before it. time: when it was logged, as precisely as evaluations have it.
    order: among the rows of its step and time, where their lists don't tell it.
    """

    step: int
    values: dict[str, Any]
    time: float = 0.0
    guessed: list[str] = []
    timed: int = len(TIME_NAMES)
    lent: dict[str, str] | None = None
    before: int = 0
    order: int = 0


class IterationTotals(msgspec.Struct):
    """Totals of the summary, over all rows that are final. iterations: rows that have a loss; others: that have none.

    repeats: a step came again, as after a restart: rows aren't steps then.
    """

    iterations: int = 0
    others: int = 0
    repeats: bool = False
    final_iter: int | None = None
    final_train_loss: Any = None
    best_val_loss: Any = None
    mfu_sum: float = 0.0
    mfus: int = 0
    evals: int = 0
    checkpoints: int = 0

    def add_iteration(self, values: Mapping[str, Any]) -> None:
        """Fold one iteration in."""
        if values.get("loss") is None:
            self.others += 1
        else:
            self.iterations += 1
        step = values["iter"]
        self.repeats = self.repeats or (self.final_iter is not None and step <= self.final_iter)
        if self.final_iter is None or step >= self.final_iter:
            self.final_iter = step
            self.final_train_loss = values.get("loss", self.final_train_loss)
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

    @property
    def rows(self) -> int:
        """Rows of iterations."""
        return self.iterations + self.others

    def summary(self, step_s: float | None, steps: int | None = None) -> dict[str, Any]:
        """The log's summary; what isn't known is null.

        Args:
            step_s: seconds of a step while stepping. steps: at how many different ones the loss was logged, where rows
                repeat some.
        """
        return {
            "total_iterations": (self.iterations or self.others) if steps is None else steps,
            "final_iter": self.final_iter,
            "final_train_loss": self.final_train_loss,
            "best_val_loss": self.best_val_loss,
            "avg_time_ms": None if step_s is None else step_s * 1000,
            "avg_mfu": self.mfu_sum / self.mfus if self.mfus else None,
            "total_eval_steps": self.evals,
            "total_checkpoints": self.checkpoints,
        }


class IterationRows(msgspec.Struct):
    """The rows that may still grow, and what is carried from one to the next.

    anchor_step, anchor_time: where the time of an iteration begins; began: the start that it is the first of. loss,
    rate, val_loss: the last known ones.
    names: the logged name of each that is stored under another, as it came first; ``time_ms`` where it was logged.
    after: time and step of the newest row that was taken out, and the least order of a further one beside it.
    left: step of the newest evaluation that was taken out: what follows at it gets rows of its own.
    """

    iterations: list[IterationRow] = []
    evals: list[IterationRow] = []
    anchor_step: int | None = None
    anchor_time: float = 0.0
    began: float | None = None
    top: int = 0
    loss: Any = None
    rate: Any = None
    val_loss: Any = None
    names: dict[str, str] = {}
    after: list[Any] = []
    left: int | None = None

    def add(self, step: int, time: float, values: Mapping[str, Any]) -> None:
        """Take the values of one record at a step."""
        self.top = max(self.top, step)
        evaluated = any(map(is_eval, values)) or any(row.step == step for row in self.evals)
        training = {name: value for name, value in values.items()
                    if not is_eval(name) and not (evaluated and name == EVALUATION_TIME)}  # fmt: skip
        at, rows = round(time, 6), [row for row in (*self.iterations, *self.evals) if row.step == step]
        own = step == self.left or self.after[:2] == [at, step]
        if len(training) == len(values) and not rows and not own:
            self._iteration(step, time, training)  # has a row to itself, with room for all
            return
        wanted = self._readable(step)
        before = self._copy(step)
        for name, value in values.items():
            if wanted.setdefault(name, [])[-1:] != [value]:  # an equal one adds nothing
                wanted[name].append(value)
        orders = [row.order for row in rows if row.time == at] + self.after[2:] * (self.after[:2] == [at, step])
        order, last = max(orders, default=0), max(orders, default=-1) + 1
        self._place(step, time, values, training, order, own)
        if not self._reads(step, wanted):  # in rows of their own, after all others
            self._restore(before)
            self._place(step, time, values, training, last, own=True)

    def _place(self, step: int, time: float, values: Mapping[str, Any], training: Mapping[str, Any], order: int,
               own: bool) -> None:  # fmt: skip
        """Put a record's values into rows, own: into none that is there."""
        there = [*self.iterations, *self.evals]
        if len(training) == len(values):
            self._iteration(step, time, training, own)
        else:
            measured = {name: value for name, value in values.items() if name not in training}
            self._evaluation(step, time, measured, training, own)
        for row in (*self.iterations, *self.evals):
            if not any(row is other for other in there):
                row.order = order

    def _copy(self, step: int) -> IterationRows:
        """A copy that what comes at a step doesn't change."""
        made = copy.copy(self)
        made.names = dict(self.names)
        made.iterations = [copy.deepcopy(row) if row.step == step else row for row in self.iterations]
        made.evals = [copy.deepcopy(row) if row.step == step else row for row in self.evals]
        return made

    def _restore(self, before: IterationRows) -> None:
        for field in self.__struct_fields__:
            setattr(self, field, getattr(before, field))

    def _reads(self, step: int, wanted: Mapping[str, list[Any]]) -> bool:
        """Whether a reader finds these values of a step, in their order."""
        found = self._readable(step)
        return all(found.get(name, [])[: len(values)] == values for name, values in wanted.items())

    def _readable(self, step: int) -> dict[str, list[Any]]:
        """What a reader finds of a step in these rows, in its order: the values of each logged name."""
        rows = [(row.time, row.order, 1 if "loss" in row.values else 2, row) for row in self.iterations]
        rows += [(row.time, row.order, 3, row) for row in self.evals]
        readable: dict[str, list[Any]] = {}
        for *_, rank, row in sorted((row for row in rows if row[3].step == step), key=itemgetter(0, 1, 2)):
            logged = row.values.get("logged", {})
            own = {**self.names, **logged, **(row.lent or {})}
            hidden = {"iter", "time", "logged", *(("time_ms",) if row.timed else ())}
            if rank == 3:  # val_loss is null until it is logged
                hidden = {"iter", "timestamp", "logged", "train_loss", "lr"} - {*logged} | {"val_loss"} & {*row.guessed}
            pairs = [(own.get(key, key), value) for key, value in row.values.items() if key not in hidden]
            times = Counter(name for name, _ in pairs)  # of two keys for a name a reader takes the last, in any order
            for name, value in pairs:
                if times[name] == 1:
                    readable.setdefault(name, []).append(value)
        return readable

    def _iteration(self, step: int, time: float, values: Mapping[str, Any], own: bool = False) -> None:
        newest = self.iterations[-1] if self.iterations and self.iterations[-1].step == step else None
        named = _iteration_names(values, self.names)
        has_loss = any(self.names.get(key, key) in LOSS_NAMES for key in named)
        if newest is not None and newest.lent is not None and has_loss and not own:
            self._replace_lent(newest, time, named)
        timed = _timed(values)
        row = None if own else self._find(self.iterations, step, named, timed)
        apart_s = sum(apart for name in APART_NAMES if (apart := positive(values.get(name))) is not None)
        if row is None:
            row = self._begin_row(step, time, named, timed, apart_s)
        else:
            if apart_s and step == self.anchor_step:
                self.anchor_time = time
            _add_to_row(row, named, timed)
        row.guessed = [name for name in row.guessed if name not in named]
        self.rate = _first(values, RATE_NAMES, self.rate)
        for evaluation in self.evals:
            if evaluation.step == step and "loss" in named and "train_loss" in evaluation.guessed:
                evaluation.values["train_loss"] = named["loss"]
                evaluation.guessed.remove("train_loss")
        self.loss = named.get("loss", self.loss)

    def _begin_row(self, step: int, time: float, named: Mapping[str, Any], timed: int, apart_s: float) -> IterationRow:
        """A further row; its time is guessed by the one before, where nobody has measured it."""
        row = IterationRow(step, {"iter": step}, round(time, 6), timed=timed)
        self.iterations.append(row)
        row.before = 0 if self.anchor_step is None else step - self.anchor_step
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
        return row

    def _evaluation(self, step: int, time: float, measured: Mapping[str, Any], training: Mapping[str, Any],
                    own: bool) -> None:  # fmt: skip
        named = _eval_names(measured, self.names)
        own_loss, own_rate = _first(training, LOSS_NAMES, None), _first(training, RATE_NAMES, None)
        loss = self.loss if own_loss is None else own_loss
        self.rate = self.rate if own_rate is None else own_rate
        row = None if own else self._find(self.evals, step, named)
        held = () if row is None else row.values.get("logged", {}).values()
        if row is None or not training.keys().isdisjoint(held):
            values = {"iter": step, "train_loss": loss, "val_loss": None, "lr": self.rate, "timestamp": iso(time)}
            row = IterationRow(step, values, round(time, 6))
            row.guessed = ["train_loss", *(() if "val_loss" in named else ("val_loss",))]
            self.evals.append(row)
        row.values.update(named)
        row.guessed = [name for name in row.guessed if name not in named]
        if own_loss is not None and "train_loss" not in row.values.get("logged", {}):
            row.values["train_loss"] = own_loss
            row.guessed = [name for name in row.guessed if name != "train_loss"]
        self.val_loss = named.get("val_loss", self.val_loss)
        if step == self.anchor_step:
            self.anchor_time = time  # what follows is timed without the evaluation
        self._training_part(step, time, training, row, own)

    def _training_part(self, step: int, time: float, training: Mapping[str, Any], evaluation: IterationRow,
                       own: bool) -> None:  # fmt: skip
        """An evaluation's record may hold training values too: they go to the iteration where it has room."""
        row = None if own else next((row for row in reversed(self.iterations) if row.step == step), None)
        loss = next((name for name in LOSS_NAMES if name in training), None)
        if row is None and not own and loss is not None and self.names.get("loss", loss) == loss:
            names = self.names
            self.names = dict(names)
            self._iteration(step, time, training)
            made = self.iterations[-1]
            made.guessed.append("loss")
            made.lent = {key: self.names.get(key, key) for key in made.values if key not in ("iter", "time")}
            if "time_ms" not in training:
                made.lent.pop("time_ms", None)
            self.names = names
            return
        named = _iteration_names(training, dict(self.names)) if row is not None else {}
        for name, value in training.items():
            key = next((key for key in named if self.names.get(key, key) == name), None)
            if row is not None and key is not None and row.values.get(key, value) == value:
                row.values[key] = value
                row.timed = 0 if key == "time_ms" else row.timed
                self._note_name(key, name)
            else:
                _put_training_value(evaluation, name, value)

    def _give_back(self, at: int) -> bool:
        """Settle the lent values of an iteration that can't grow any more; returns whether there is still one."""
        step, before = self.iterations[at].step, self._copy(self.iterations[at].step)
        wanted = self._readable(step)
        stays = self._is_iteration(self.iterations[at], self._lender(step, self.iterations[at].lent or {}))
        if not stays:
            del self.iterations[at]
        if self._reads(step, wanted):
            return stays
        self._restore(before)
        return self._is_iteration(self.iterations[at], None)

    def _is_iteration(self, row: IterationRow, evaluation: IterationRow | None) -> bool:
        """Whether training values in an evaluation's record form an iteration: not where losses have another name."""
        lent, row.lent = row.lent or {}, None
        if evaluation is not None and self.names.get("loss", lent["loss"]) != lent["loss"]:
            for key, name in lent.items():
                _put_training_value(evaluation, name, row.values.pop(key))
            return bool(row.values.keys() - {"iter", "time", "time_ms"})
        for key, name in lent.items():
            self._note_name(key, name)
        others = {key: name for key, name in lent.items() if self.names.get(key, key) != name}  # others came first
        if others:
            row.values["logged"] = others
        return True

    def _note_name(self, key: str, name: str) -> None:
        if key != name or key in ("loss", "mfu", "time_ms"):
            self.names.setdefault(key, name)

    def _lender(self, step: int, lent: Mapping[str, str]) -> IterationRow | None:
        """The evaluation of a step that training's values came with: one that has none of those names itself."""
        for row in self.evals:
            if row.step == step and not set(lent.values()) & set(row.values.get("logged", {}).values()):
                return row
        return None

    def _replace_lent(self, row: IterationRow, time: float, named: Mapping[str, Any]) -> None:
        """An iteration made of an evaluation's values gets its own: those go back where these take their place."""
        lent, row.lent = row.lent or {}, None
        evaluation = self._lender(row.step, lent)
        for key, name in lent.items():
            same = key in named and named[key] == row.values[key] and self.names.get(key, key) == name
            if key in named and evaluation is not None and not same:
                _put_training_value(evaluation, name, row.values[key])
            elsewhere = any(logged == name and stored != key for stored, logged in self.names.items())
            replaces = key not in named and (key == "loss" or elsewhere or self.names.get(key, name) != name)
            if replaces and evaluation is not None:
                _put_training_value(evaluation, name, row.values.pop(key))
            elif key in named:
                row.values.pop(key)
                row.timed = len(TIME_NAMES) if key == "time_ms" else row.timed
            else:
                self._note_name(key, name)
        if "time_ms" in row.guessed and row.before == 1 and time > row.values["time"]:
            row.values["time_ms"] = round((time - row.values["time"]) * 1000, 3)
        if row.step == self.anchor_step:
            self.anchor_time = time
        row.values["time"], row.time = time, round(time, 6)

    def _elapsed_ms(self, step: int, time: float, apart_s: float) -> float | None:
        """Time per iteration since the last one, in ms, without a pause; None where there was none before it."""
        before, began = self.anchor_step, self.anchor_time
        if before is not None and step <= before:
            return None
        self.anchor_step, self.anchor_time = step, time
        if before is None and self.began is not None and time > self.began:  # the first step, all that it needed
            return round((time - self.began) * 1000, 3)
        if before is None or time - apart_s <= began:
            return None
        return round((time - apart_s - began) / (step - before) * 1000, 3)

    def takes(self, step: int, values: Mapping[str, Any]) -> bool:
        """Whether there is an iteration of this step that has room for these values."""
        return self._find(self.iterations, step, values) is not None

    def _find(
        self, rows: list[IterationRow], step: int, named: Mapping[str, Any], timed: int | None = None
    ) -> IterationRow | None:
        """The newest row of a step, if it has none of these names, but for a ``time_ms`` of another name's."""
        for row in reversed(rows):
            if row.step == step:
                free = {*row.guessed, *(("time_ms",) if timed not in (None, row.timed) else ())}
                return None if any(name in row.values and name not in free for name in named) else row
        return None

    def settled(self, everything: bool = False) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Take out the iterations and evaluations that can't grow any more."""
        keep = 0 if everything else WINDOW
        count = max(0, len(self.iterations) - keep)
        done = max(0, len(self.evals) - (0 if everything else EVAL_WINDOW))
        steps = {row.step for row in self.evals[:done]}
        for at, row in reversed([*enumerate(self.iterations)]):
            if row.lent is not None and (at < count or row.step in steps):
                count -= not self._give_back(at) and at < count
        iterations = self.iterations[:count]
        del self.iterations[:count]
        for row in iterations:
            if row.timed and "time_ms" in row.values and "time_ms" in self.names:
                row.values["logged"] = {**row.values.get("logged", {}), "time_ms": ""}
        evals = self.evals[:done]
        self.left = evals[-1].step if evals else self.left
        del self.evals[:done]
        for row, key in (*((row, "time") for row in iterations), *((row, "timestamp") for row in evals)):
            if row.order:
                row.values["logged"] = {**row.values.get("logged", {}), key: str(row.order)}
            self.after = max(self.after, [row.time, row.step, row.order + 1])
        return [row.values for row in iterations], [row.values for row in evals]

    def rewind(self, step: int) -> None:
        """Forget what lies above ``step``."""
        self.iterations = [row for row in self.iterations if row.step <= step]
        self.evals = [row for row in self.evals if row.step <= step]
        self.anchor_step, self.top = None, min(self.top, step)

    def start(self, time: float) -> None:
        """Training began, maybe again: a pause before it is in no iteration's time."""
        self.anchor_step, self.began = None, time


def is_eval(name: str) -> bool:
    """Whether a metric was measured on data that training doesn't see."""
    return name.startswith(EVAL_PREFIXES) or name.endswith(EVAL_SUFFIXES)


def iso(time: float) -> str:
    """A time in Unix seconds as the log writes it: local, with microseconds."""
    return datetime.fromtimestamp(time).isoformat(timespec="microseconds")


def positive(value: Any) -> float | None:
    """A measurement; None where it is missing, or one of the markers that loggers use for "no value" (-100, 0)."""
    return value if isinstance(value, (int, float)) and math.isfinite(value) and value > 0 else None


def _iteration_names(values: Mapping[str, Any], names: dict[str, str]) -> dict[str, Any]:
    """Values by their names in an iteration: ``loss``, ``time_ms`` and ``mfu`` first, then all others.

    Args:
        names: gets the logged names of those that are stored under another.
    """
    stored_as = {logged: stored for stored, logged in names.items()}
    named: dict[str, Any] = {}
    first = []
    for key, candidates in (("loss", LOSS_NAMES), ("mfu", MFU_NAMES)):
        logged = names.get(key) or next((name for name in candidates if name in values and name not in stored_as), None)
        if logged is not None and logged in values:
            first.append(logged)
            named[key] = values[logged]
            names.setdefault(key, logged)
        if key == "loss":
            for name, factor in TIME_NAMES:
                if name in values:
                    value = values[name]
                    named["time_ms"] = value * factor if factor != 1 and isinstance(value, (int, float)) else value
                    break
    if "time_ms" in values:
        names.setdefault("time_ms", "time_ms")
    for name, value in values.items():
        if name in (*first, "time_ms"):
            continue
        stored = stored_as.get(name, name)
        while stored in named or stored in ("iter", "time", "logged") or names.get(stored, name) != name:
            stored += "_"
        if stored != name:
            names.setdefault(stored, name)
        named[stored] = value
    return named


def with_all_keys(row: Mapping[str, Any]) -> dict[str, Any]:
    """An iteration with all documented keys: what wasn't logged is null, MFU 0, since programs ask for ``mfu > 0``."""
    known = {"iter": row["iter"], "loss": None, "time_ms": None, **row}
    return {**known, "mfu": NO_MFU if known.get("mfu") is None else known["mfu"]}


def _put_training_value(evaluation: IterationRow, name: str, value: Any) -> None:
    """Put a value of training into an evaluation, under a key that tells a reader its name."""
    key = "train_loss" if name in LOSS_NAMES else "lr" if name in RATE_NAMES else name
    logged = evaluation.values.setdefault("logged", {})
    while (key in logged and logged[key] != name) or (
        key not in ("train_loss", "lr") and key in evaluation.values and key not in logged
    ):
        key += "_"
    logged[key] = name
    evaluation.values[key] = value
    evaluation.guessed = [guess for guess in evaluation.guessed if guess != key]


def _timed(values: Mapping[str, Any]) -> int:
    """Which of TIME_NAMES counts among these values; beyond the last where there is none."""
    return next((index for index, (name, _) in enumerate(TIME_NAMES) if name in values), len(TIME_NAMES))


def _eval_names(values: Mapping[str, Any], names: dict[str, str]) -> dict[str, Any]:
    """Values by their names in an evaluation: ``val_loss``, whichever of its names the run uses, and all others."""
    logged = names.get("val_loss") or next((name for name in VAL_LOSS_NAMES if name in values), None)
    if logged is not None:
        names.setdefault("val_loss", logged)
    named = {}
    for name, value in values.items():
        stored = "val_loss" if name == logged else name
        while name != logged and (stored in named or names.get(stored, name) != name):
            stored += "_"
        if stored != name:
            names.setdefault(stored, name)
        named[stored] = value
    return named


def _first(values: Mapping[str, Any], names: tuple[str, ...], default: Any) -> Any:
    return next((values[name] for name in names if name in values), default)


def _add_to_row(row: IterationRow, named: dict[str, Any], timed: int) -> None:
    """Give a row that is there further values; ``named`` loses a time that counts less than the row's."""
    if timed > row.timed:  # two ways to time one iteration: the better name counts, whichever came first
        named.pop("time_ms", None)
    row.timed = min(timed, row.timed)
    row.values.update(named)
