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
    own. other: key of a loss that stands for it as long as the run's usual one isn't there. before: steps to the
    iteration before it.
    """

    step: int
    values: dict[str, Any]
    guessed: list[str] = []
    timed: int = len(TIME_NAMES)
    lent: dict[str, str] | None = None
    other: str = ""
    before: int = 0


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

    def add(self, step: int, time: float, values: Mapping[str, Any]) -> None:
        """Take the values of one record at a step."""
        self.top = max(self.top, step)
        evaluated = any(map(is_eval, values)) or any(row.step == step for row in self.evals)
        training = {name: value for name, value in values.items()
                    if not is_eval(name) and not (evaluated and name == EVALUATION_TIME)}  # fmt: skip
        if len(training) == len(values) and not any(row.step == step for row in (*self.iterations, *self.evals)):
            self._iteration(step, time, training)  # has a row to itself, with room for all
            return
        known = self._readable(step)
        mixed = evaluated or any(row.lent is not None for row in self.iterations)
        again = mixed and any(name in values or len(known[name]) > 1 for name in known)
        before = copy.deepcopy(self) if again else None
        if len(training) == len(values):
            self._iteration(step, time, training)
        else:
            measured = {name: value for name, value in values.items() if name not in training}
            self._evaluation(step, time, measured, training)
        for name, value in values.items():
            if known.setdefault(name, [])[-1:] != [value]:  # an equal one adds nothing
                known[name].append(value)
        found = self._readable(step)
        if before is not None and any(found.get(name, [])[: len(known[name])] != known[name] for name in known):
            for field in self.__struct_fields__:
                setattr(self, field, getattr(before, field))
            found = self._readable(step)
        self.iterations += _spare(step, time, _lost(known, found))

    def _readable(self, step: int, *more: IterationRow) -> dict[str, list[Any]]:
        """What a reader finds of a step in these rows and ``more``, in its order: the values of each logged name."""
        rows = [(row.values["time"], 1 if "loss" in row.values else 2, row) for row in (*self.iterations, *more)]
        for row in self.evals:
            time = datetime.fromisoformat(row.values["timestamp"]).timestamp()
            rows.append((time, 0 if "timestamp" in row.values.get("logged", {}) else 3, row))
        readable: dict[str, list[Any]] = {}
        for _, rank, row in sorted((row for row in rows if row[2].step == step), key=itemgetter(0, 1)):
            logged = row.values.get("logged", {})
            own = {**self.names, **logged, **(row.lent or {})}
            hidden = {"iter", "time", "logged", *(("time_ms",) if row.timed else ())}
            if rank in (0, 3):  # val_loss is null until it is logged
                hidden = {"iter", "timestamp", "logged", "train_loss", "lr"} - {*logged} | {"val_loss"} & {*row.guessed}
            pairs = [(own.get(key, key), value) for key, value in row.values.items() if key not in hidden]
            times = Counter(name for name, _ in pairs)  # of two keys for a name a reader takes the last, in any order
            for name, value in pairs:
                if times[name] == 1:
                    readable.setdefault(name, []).append(value)
        return readable

    def _iteration(self, step: int, time: float, values: Mapping[str, Any]) -> None:
        newest = self.iterations[-1] if self.iterations and self.iterations[-1].step == step else None
        named = _iteration_names(values, self.names)
        losses = [key for key in named if self.names.get(key, key) in LOSS_NAMES]
        other = losses[0] if losses and "loss" not in named else ""
        if newest is not None and newest.lent is not None and losses:
            self._replace_lent(newest, time, named)
        timed = _timed(values)
        row = self._find(self.iterations, step, named, timed)
        apart_s = sum(apart for name in APART_NAMES if (apart := positive(values.get(name))) is not None)
        if row is None:
            row = self._begin_row(step, time, named, timed, apart_s)
        else:
            if apart_s and step == self.anchor_step:
                self.anchor_time = time
            _add_to_row(row, named, timed)
        row.guessed = [name for name in row.guessed if name not in named]
        if other and row.values.get("loss") is None:  # under another name than usually
            named["loss"] = row.values["loss"] = row.values.pop(other)
            row.values.setdefault("logged", {})["loss"] = self.names.get(other, other)
            row.guessed.append("loss")
            row.other = other
        self.rate = _first(values, RATE_NAMES, self.rate)
        self._tell_evals(row, time, values, named)
        self.loss = named.get("loss", self.loss)

    def _tell_evals(self, row: IterationRow, time: float, values: Mapping[str, Any], named: Mapping[str, Any]) -> None:
        """Complete the evaluations of an iteration's step that came before it."""
        for evaluation in [one for one in self.evals if one.step == row.step]:
            logged, at = evaluation.values.get("logged", {}), evaluation.values["timestamp"]
            if values.keys() & set(logged.values()) and at == iso(time) == iso(row.values["time"]):
                logged["timestamp"] = ""  # which came first
            if "loss" in named and "train_loss" in evaluation.guessed:
                evaluation.values["train_loss"] = named["loss"]
                evaluation.guessed.remove("train_loss")

    def _begin_row(self, step: int, time: float, named: Mapping[str, Any], timed: int, apart_s: float) -> IterationRow:
        """A further row; its time is guessed by the one before, where nobody has measured it."""
        row = IterationRow(step, {"iter": step}, timed=timed)
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

    def _evaluation(self, step: int, time: float, measured: Mapping[str, Any], training: Mapping[str, Any]) -> None:
        named = _eval_names(measured, self.names)
        own_loss, own_rate = _first(training, LOSS_NAMES, None), _first(training, RATE_NAMES, None)
        loss = self.loss if own_loss is None else own_loss
        self.rate = self.rate if own_rate is None else own_rate
        row = self._find(self.evals, step, named)
        held = () if row is None else row.values.get("logged", {}).values()
        if row is None or not training.keys().isdisjoint(held):
            row = IterationRow(step, {"iter": step, "train_loss": loss, "val_loss": None, "lr": self.rate})
            row.values["timestamp"] = iso(time)
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
        self._training_part(step, time, training, row)

    def _training_part(self, step: int, time: float, training: Mapping[str, Any], evaluation: IterationRow) -> None:
        """An evaluation's record may hold training values too: they go to the iteration where it has room."""
        row = next((row for row in reversed(self.iterations) if row.step == step), None)
        loss = next((name for name in LOSS_NAMES if name in training), None)
        if row is None and loss is not None and self.names.get("loss", loss) == loss:
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
            room = row is not None and key is not None and not (row.other and key in ("loss", row.other))
            if room and row is not None and key is not None and row.values.get(key, value) == value:
                row.values[key] = value
                row.timed = 0 if key == "time_ms" else row.timed
                self._note_name(key, name)
            else:
                _put_training_value(evaluation, name, value)

    def _split_row(self, row: IterationRow) -> list[IterationRow]:
        """Split a row that can't grow any more into its iterations."""
        if row.lent is None:
            return [row]
        known, time = self._readable(row.step, row), row.values["time"]
        made = [row] if self._is_iteration(row) else []
        return [*made, *_spare(row.step, time, _lost(known, self._readable(row.step, *made)))]

    def _is_iteration(self, row: IterationRow) -> bool:
        """Whether training values in an evaluation's record form an iteration: not where losses have another name."""
        lent, row.lent = row.lent or {}, None
        evaluation = self._lender(row.step, lent)
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
        row.values["time"] = time

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
                occupied = any(name == row.other or (name in row.values and name not in free) for name in named)
                return None if occupied else row
        return None

    def settled(self, everything: bool = False) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Take out the iterations and evaluations that can't grow any more."""
        keep = 0 if everything else WINDOW
        iterations = self.iterations[: max(0, len(self.iterations) - keep)]
        del self.iterations[: len(iterations)]
        iterations = [row for iteration in iterations for row in self._split_row(iteration)]
        for row in iterations:
            if row.timed and "time_ms" in row.values and "time_ms" in self.names:
                row.values["logged"] = {**row.values.get("logged", {}), "time_ms": ""}
        evals = self.evals[: max(0, len(self.evals) - (0 if everything else EVAL_WINDOW))]
        del self.evals[: len(evals)]
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


def _lost(known: Mapping[str, list[Any]], found: Mapping[str, list[Any]]) -> list[tuple[str, Any]]:
    """The values of ``known`` that aren't in ``found``, each with its name."""
    left = Counter((name, value) for name, values in found.items() for value in values)
    left.subtract(pairs := [(name, value) for name, values in known.items() for value in values])
    return [pair for pair in dict.fromkeys(pairs) if left[pair] < 0]


def _spare(step: int, time: float, values: list[tuple[str, Any]]) -> list[IterationRow]:
    """Iterations of values that no other row of their step has room for, each under a key that tells its name."""
    rows: list[IterationRow] = []
    for name, value in values:
        row = next((row for row in rows if name not in row.values["logged"].values()), None)
        if row is None:
            row = IterationRow(step, {"iter": step, "time": time, "logged": {}})
            rows.append(row)
        key = name
        while key in row.values or key in ("loss", "time_ms", "mfu"):
            key += "_"
        row.values[key], row.values["logged"][key] = value, name
    return rows


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
    if "loss" in named and row.other:  # the one that stood for it keeps its own name
        row.values[row.other], row.other = row.values.pop("loss"), ""
        del row.values["logged"]["loss"]
        if not row.values["logged"]:
            del row.values["logged"]
    if timed > row.timed:  # two ways to time one iteration: the better name counts, whichever came first
        named.pop("time_ms", None)
    row.timed = min(timed, row.timed)
    row.values.update(named)
