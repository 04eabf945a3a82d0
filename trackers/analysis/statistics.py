"""Means, spreads and intervals of few numbers, and means over time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import msgspec

CONFIDENCE = 0.95
RESAMPLES = 10_000
EXACT = 6
"""Maximum number of values for which all n^n resamples give an exact interval; for more, :data:`RESAMPLES`."""
SEED = 0
"""The same values always give the same interval."""


class Spread(msgspec.Struct):
    """Several runs' values of one quantity.

    n: values that are finite numbers. of: runs asked. mean, deviation: the sample's (n - 1); None where there are too
    few. low, high: the bootstrap interval of the mean, None below two values.
    """

    n: int
    of: int
    mean: float | None = None
    deviation: float | None = None
    low: float | None = None
    high: float | None = None


def spread(values: Sequence[float | None]) -> Spread:
    """Sum up runs' values; what is missing or isn't finite is counted, not averaged."""
    known = [float(value) for value in values if value is not None and math.isfinite(value)]
    result = Spread(n=len(known), of=len(values))
    if known:
        result.mean = mean(known)
        result.deviation = deviation(known)
        ends = interval(known)
        if ends is not None:
            result.low, result.high = ends
    return result


def mean(values: Sequence[float]) -> float:
    """The arithmetic mean of at least one number; never outside them by rounding."""
    largest = max(map(abs, values))
    if not 0 < largest < math.inf:
        return math.fsum(values) / len(values)
    total = math.fsum(value / largest for value in values)  # a sum of large numbers may be none
    return min(max(values), max(min(values), total / len(values) * largest))


def deviation(values: Sequence[float]) -> float | None:
    """The sample's standard deviation (divided by n - 1); None of a single value."""
    if len(values) < 2:
        return None
    middle = mean(values)
    largest = max(abs(value - middle) for value in values)
    if largest == 0:
        return 0.0
    return largest * math.sqrt(math.fsum(((value - middle) / largest) ** 2 for value in values) / (len(values) - 1))


def interval(values: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float] | None:
    """The percentile bootstrap's interval of the mean (Efron, 1979); None below two values.

    It lies inside the values, so with few of them it is rather too narrow than too wide.
    """
    if len(values) < 2:
        return None
    if min(values) == max(values):
        return values[0], values[0]
    tail = (1 - confidence) / 2
    if len(values) <= EXACT:
        means = sorted(mean(drawn) for drawn in itertools.product(values, repeat=len(values)))
        return _quantile(means, tail), _quantile(means, 1 - tail)
    import numpy as np

    source = np.random.default_rng(SEED)
    sample = np.asarray(values, np.float64)
    drawn = np.sort(sample[source.integers(0, len(sample), (RESAMPLES, len(sample)))].mean(axis=1))
    return _quantile(drawn, tail), _quantile(drawn, 1 - tail)


def _quantile(ordered: Any, fraction: float) -> float:
    """The smallest value that at least this fraction of all doesn't exceed."""
    index = math.ceil(round(fraction * len(ordered), 9)) - 1
    return float(ordered[min(len(ordered) - 1, max(0, index))])


def weighted(values: Any, weights: Any) -> float | None:
    """The mean of an array of values, each as often as its weight says; NaN and weightless values don't count.

    None where nothing is left.
    """
    import numpy as np

    values, weights = np.asarray(values, np.float64), np.asarray(weights, np.float64)
    counts = np.isfinite(values) & (weights > 0)
    total = float(weights[counts].sum())
    return float((values[counts] * weights[counts]).sum() / total) if total > 0 else None


def durations(times: Any, starts: Sequence[float] = ()) -> Any:
    """How long each value of a rate speaks for: the time since the one before it, in seconds.

    Args:
        times: Unix seconds of the values, ascending.
        starts: when each attempt of the run began: the pause before it is nobody's. The first value of the run
            speaks for the time since the last start before it; without one it has no duration.
    """
    import numpy as np

    times = np.asarray(times, np.float64)
    before = np.concatenate([times[:1], times[:-1]])
    if len(starts):
        begun = np.sort(np.asarray(starts, np.float64))
        index = np.searchsorted(begun, times, side="right") - 1
        started = np.where(index >= 0, begun[index], -np.inf)
        before = np.maximum(before, started)
        if len(times):
            before[0] = started[0] if started[0] > -np.inf else times[0]
    return np.maximum(times - before, 0.0)
