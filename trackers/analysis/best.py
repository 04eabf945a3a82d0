"""The best runs by a metric, and conditions on runs: ``config.lr < 1e-3 and "ablation" in tags``.

Conditions are parsed, looked up and compared; nothing is executed. They have comparisons (chained too), ``in``,
``and``, ``or``, ``not``, ``+ - * /``, numbers, texts, lists, ``None`` and brackets. What a run lacks is None: no
comparison with it holds, but ``is None`` and ``is not None`` do ask for it.
"""

from __future__ import annotations

import ast
import difflib
import operator
import re
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from trackers import records
from trackers.analysis.comparison import differing_settings
from trackers.analysis.run_stats import RunStats
from trackers.errors import NotFound, UsageError
from trackers.readers.helpers import is_number
from trackers.records import plain_name

LONGEST = 4000
FIELDS = ("name", "id", "project", "group", "tags", "notes", "status", "source", "created", "steps", "attempts", "gpus",
          "gpu_name")  # fmt: skip
SPEEDS = ("steps_per_s", "samples_per_s", "tokens_per_s")
USES = ("gpu_percent", "memory_gb", "energy_j")
NAMED = ("config", "final", "summary", "last", "min", "max", "best")
"""Prefixes that are followed by a name: ``config.model.depth``, ``final.best_val_loss``, ``min["val/loss"]``."""

_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Eq: operator.eq,
    ast.NotEq: operator.ne, ast.In: lambda value, values: value in values,
    ast.NotIn: lambda value, values: value not in values,
}  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
}  # fmt: skip
_Evaluate = Callable[[RunStats], Any]


def ranked_names(runs: Sequence[RunStats]) -> list[str]:
    """Names of results and metrics of which a small or a large value is better: results first, then what most have."""
    results = Counter(records.final_name(name) for run in runs for name in run.summary if run.direction(name))
    metrics = Counter(name for run in runs for name in run.folds if run.direction(name))
    return [name for counts in (results, metrics) for name, _ in counts.most_common()]


class RunFilter:
    """A condition that a run fulfils or doesn't.

    Args:
        text: as typed.

    Raises:
        UsageError: it can't be understood; the message says where, and what is known.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        if len(text) > LONGEST:
            raise UsageError(f"a condition of {len(text)} characters; at most {LONGEST}")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # "1in tags" is a matter between Python and its programs
                tree = ast.parse(text.strip(), mode="eval")
            self._evaluate = _compile(tree.body)
        except SyntaxError as error:
            raise UsageError(f"can't read {text!r}: {error.msg} at character {error.offset or 0}") from None
        except (ValueError, RecursionError, MemoryError) as error:  # NUL bytes; signs nested without end
            if isinstance(error, UsageError):
                raise
            raise UsageError(f"can't read {text[:100]!r}: {type(error).__name__}") from None

    def __call__(self, run: RunStats) -> bool:
        """Whether the run fulfils it."""
        return bool(self._evaluate(run))


def _compile(node: ast.expr) -> _Evaluate:
    if isinstance(node, ast.Constant) and isinstance(node.value, (str, int, float, type(None))):
        value = node.value
        return lambda run: value
    if isinstance(node, (ast.List, ast.Tuple)):
        items = [_compile(item) for item in node.elts]
        return lambda run: [item(run) for item in items]
    if isinstance(node, ast.BoolOp):
        parts = [_compile(part) for part in node.values]
        if isinstance(node.op, ast.And):
            return lambda run: all(part(run) for part in parts)
        return lambda run: any(part(run) for part in parts)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        inner = _compile(node.operand)
        return lambda run: not inner(run)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        return _arithmetic(
            ast.BinOp(ast.Constant(0), ast.Sub() if isinstance(node.op, ast.USub) else ast.Add(), node.operand)
        )
    if isinstance(node, ast.Compare):
        return _comparison(node)
    if isinstance(node, ast.BinOp) and not _is_result(node):
        return _arithmetic(node)
    return _name(node)


def _comparison(node: ast.Compare) -> _Evaluate:
    operands = [_compile(operand) for operand in (node.left, *node.comparators)]
    operators: list[Callable[[Any, Any], bool]] = []
    for op, right in zip(node.ops, node.comparators, strict=True):
        if isinstance(op, (ast.Is, ast.IsNot)):
            if not (isinstance(right, ast.Constant) and right.value is None):
                raise UsageError(f"{ast.unparse(node)!r}: `is` is for None alone; compare with ==")
            operators.append(operator.is_ if isinstance(op, ast.Is) else operator.is_not)
        else:
            operators.append(_safely(_COMPARE[type(op)]))

    def evaluate(run: RunStats) -> bool:
        values = [operand(run) for operand in operands]
        return all(compare(values[at], values[at + 1]) for at, compare in enumerate(operators))

    return evaluate


def _safely(compare: Callable[[Any, Any], Any]) -> Callable[[Any, Any], bool]:
    def holds(left: Any, right: Any) -> bool:
        try:
            return left is not None and right is not None and bool(compare(left, right))
        except TypeError:  # a text and a number
            return False

    return holds


def _arithmetic(node: ast.BinOp) -> _Evaluate:
    work = _ARITHMETIC.get(type(node.op))
    if work is None:
        raise UsageError(f"{ast.unparse(node)!r}: known are + - * /")
    left, right = _compile(node.left), _compile(node.right)

    def evaluate(run: RunStats) -> Any:
        first, second = left(run), right(run)
        if not is_number(first) or not is_number(second):
            return None
        try:
            return work(float(first), float(second))
        except (ZeroDivisionError, OverflowError):
            return None

    return evaluate


def _is_result(node: ast.BinOp) -> bool:
    """``final/best_val_loss``, as results are called everywhere else."""
    return isinstance(node.op, ast.Div) and isinstance(node.left, ast.Name) and node.left.id == "final"


def _name(node: ast.expr) -> _Evaluate:
    parts: list[str] = []
    inner: ast.expr = node
    while True:
        match inner:
            case ast.Attribute():
                parts.insert(0, inner.attr)
                inner = inner.value
            case ast.Subscript() if isinstance(inner.slice, ast.Constant):
                parts.insert(0, str(inner.slice.value))
                inner = inner.value
            case ast.BinOp() if _is_result(inner) and isinstance(inner.right, ast.Name):
                parts.insert(0, inner.right.id)
                inner = inner.left
            case _:
                break
    if not isinstance(inner, ast.Name):
        raise UsageError(f"{ast.unparse(node)!r} can't stand in a condition: names, numbers, texts and comparisons can")
    head, name = inner.id, ".".join(parts)
    if head in NAMED and parts:
        return _lookup(head, name)
    if not parts and head in FIELDS:
        return lambda run: getattr(run, head)
    if not parts and head in SPEEDS:
        return lambda run: getattr(run.speed, head)
    if not parts and head in USES:
        return lambda run: getattr(run.use, head)
    known = (*(f"{word}.NAME" for word in NAMED), *FIELDS, *SPEEDS, *USES)
    near = difflib.get_close_matches(head, [*NAMED, *FIELDS, *SPEEDS, *USES], n=1)
    hint = f": did you mean {near[0]!r}?" if near and near[0] != head else f"; a setting is config.{head}."
    raise UsageError(f"unknown name {ast.unparse(node)!r}{hint} Known: {', '.join(known)}")


def _lookup(head: str, name: str) -> _Evaluate:
    if head == "config":
        return lambda run: run.config.get(name, run.config.get(name.replace("/", ".")))
    if head in ("final", "summary"):
        return lambda run: run.summary.get(name)
    return lambda run: run.value(name, head)


MODES = ("min", "max")


class Ranked(msgspec.Struct):
    """run: its facts. value: its best. step: where it had it; None for results. config: what differs among all."""

    run: RunStats
    value: float
    step: int | None
    config: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        run = {name: getattr(self.run, name) for name in ("source", "id", "name", "project", "group", "tags", "status")}
        fields = {**run, "value": self.value, "step": self.step, "config": self.config}
        return dict(records.name_floats(fields))


def best(
    runs: Sequence[RunStats], metric: str, mode: str | None = None, where: str | None = None, top: int | None = 1
) -> list[Ranked]:
    """Runs in order of a metric, the best first.

    Args:
        metric: a result (``final/best_val_loss``), or a logged metric, of which each run's best value counts.
        mode: "min" or "max"; None: as ``define_metric`` said, else by the name.
        where: a condition on runs (:mod:`trackers.analysis.best`).
        top: so many; None: all.

    Raises:
        UsageError: a mode that isn't known or can't be told, a condition that can't be read.
        NotFound: no run fulfils the condition, or none of them has a number under that name.
    """
    if mode not in (None, *MODES):
        raise UsageError(f"unknown mode {mode!r}: known are {', '.join(MODES)}")
    chosen = [run for run in runs if condition(run)] if where and (condition := RunFilter(where)) else list(runs)
    if not chosen:
        raise unfulfilled(runs, where) if where else NotFound("no runs")
    if not any(metric in run.folds or plain_name(metric) in run.summary for run in chosen):
        raise NotFound(_nothing(chosen, metric))
    mode = mode or next((word for run in chosen if (word := run.direction(plain_name(metric)))), None)
    if mode is None:
        raise UsageError(f"is a small or a large {metric!r} better? Give --mode min or --mode max")
    ranked = [(value, step, run) for run in chosen for value, step in _value(run, metric, mode)]
    if not ranked:
        raise NotFound(_nothing(chosen, metric))
    ranked.sort(key=lambda entry: entry[0], reverse=mode == "max")
    settings = differing_settings([run.config for _, _, run in ranked])
    return [
        Ranked(run, value, step, {name: run.config[name] for name in settings if name in run.config})
        for value, step, run in ranked[:top]
    ]


def unfulfilled(runs: Sequence[RunStats], where: str) -> NotFound:
    """The error where no run fulfils a condition."""
    return NotFound(f"none of {len(runs)} runs fulfils {where!r}{_unknown(runs, where)}")


def _value(run: RunStats, metric: str, mode: str) -> list[tuple[float, int | None]]:
    """The run's value and its step, if it has a number that isn't NaN."""
    fold = run.folds.get(metric)
    if fold is not None:
        value, step = (fold.low, fold.low_step) if mode == "min" else (fold.high, fold.high_step)
    else:
        value, step = run.summary.get(plain_name(metric)), None
    known = isinstance(value, (int, float)) and not isinstance(value, bool) and value == value
    return [(value, step)] if known and value is not None else []


def _unknown(runs: Sequence[RunStats], where: str) -> str:
    """Of a condition that nobody fulfils, the first setting that no run has, and what there is instead."""
    settings = sorted({name for run in runs for name in run.config})
    for name in re.findall(r"\bconfig\.([A-Za-z_][\w.]*)", where):
        if name not in settings:
            near = difflib.get_close_matches(name, settings, n=3, cutoff=0.4) or settings[:10]
            return f": no run has the setting {name!r}; there is {', '.join(near) or 'none'}"
    return ""


def _nothing(runs: Sequence[RunStats], metric: str) -> str:
    names = sorted({name for run in runs for name in (*run.folds, *(f"final/{result}" for result in run.summary))})
    if metric in names:
        return f"{metric!r} is nowhere a number in {len(runs)} runs"
    near = difflib.get_close_matches(metric, names, n=3, cutoff=0.4) or names[:10]
    return f"no run of {len(runs)} has {metric!r}; there is {', '.join(near) or 'no metric at all'}"
