"""Expressions over the last values of a metric: ``mean(loss[50]) > 2 * mean(loss[500])``.

A window holds a metric's last values that are finite, in the order in which they were logged. It says nothing until it
is full. Over ranks, ``quantile(step_time/rank_*, 0.9)``, it is of the finite values that one record has of the metrics
that a pattern means. All of it is arithmetic on lists, so that a rule says the same beside training and when it is
replayed.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

MOST_VALUES = 10_000
"""Maximum length of a window."""
Expression = tuple[Any, ...]
"""``("number", 2.0)``, ``("window", "mean", "loss", 50, 0.0)``, over ranks of length 0, or ``("*", left, right)``."""
SIGNS = ("+", "-", "*", "/")


def slope(values: Sequence[float]) -> float:
    """By how much the values rise from one to the next, by least squares."""
    middle, mean = (len(values) - 1) / 2, math.fsum(values) / len(values)
    over = math.fsum((place - middle) * (value - mean) for place, value in enumerate(values))
    return over / math.fsum((place - middle) ** 2 for place in range(len(values)))


def zscore(values: Sequence[float]) -> float:
    """By how many standard deviations the last value is off the mean of those before it; 0 where these are all equal
    and the last one too, infinite where it isn't."""
    *before, last = values
    mean, deviation = math.fsum(before) / len(before), statistics.pstdev(before)
    if deviation:
        return (last - mean) / deviation
    return 0.0 if last == mean else math.copysign(math.inf, last - mean)


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which a share of the values lies, between two of them where it has to."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


FUNCTIONS: dict[str, Callable[[Sequence[float], float], float]] = {
    "mean": lambda values, _: math.fsum(values) / len(values), "median": lambda values, _: statistics.median(values),
    "min": lambda values, _: min(values), "max": lambda values, _: max(values),
    "std": lambda values, _: statistics.pstdev(values), "slope": lambda values, _: slope(values),
    "zscore": lambda values, _: zscore(values), "quantile": quantile, "last": lambda values, _: values[-1],
}  # fmt: skip
"""By name, of a window's values and a share of them."""
LEAST = {"slope": 2, "zscore": 2}
"""Minimum length of some windows; these need an order, and are none over ranks."""


def lengths(expression: Expression) -> dict[str, int]:
    """How many values an expression needs of each metric; 0 of a pattern: those of one record."""
    if expression[0] == "number":
        return {}
    if expression[0] == "window":
        _, function, name, length, _ = expression
        return {name: length + (function == "zscore")}
    left, right = lengths(expression[1]), lengths(expression[2])
    return {name: max(left.get(name, 0), right.get(name, 0)) for name in {**left, **right}}


def value(expression: Expression, windows: Mapping[str, Sequence[float]]) -> float | None:
    """An expression's value; None where a window isn't full yet, and for what can't be computed."""
    if expression[0] == "number":
        return float(expression[1])
    if expression[0] == "window":
        _, function, name, length, share = expression
        need = length + (function == "zscore")
        values = windows.get(name, ())
        return FUNCTIONS[function](values[-need:], share) if len(values) >= max(need, 1) else None
    left, right = value(expression[1], windows), value(expression[2], windows)
    if left is None or right is None:
        return None
    if expression[0] == "/":
        return left / right if right else None
    return left + right if expression[0] == "+" else left - right if expression[0] == "-" else left * right


def text(expression: Expression) -> str:
    """An expression as it is written."""
    if expression[0] == "number":
        return f"{expression[1]:g}"
    if expression[0] == "window":
        _, function, name, length, share = expression
        if function == "last":
            return str(name)
        more = f", {share:g}" if function == "quantile" else ""
        return f"{function}({name}{f'[{length}]' if length else ''}{more})"
    return f"{text(expression[1])} {expression[0]} {text(expression[2])}"
