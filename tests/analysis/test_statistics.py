"""Means, spreads, bootstrap intervals and means over time have the values that are known for them."""

from __future__ import annotations

import itertools
import math
import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trackers.analysis.statistics import RESAMPLES, deviation, durations, interval, mean, spread, weighted

numbers = st.floats(-1e12, 1e12, allow_nan=False)


def test_mean_and_deviation_known() -> None:
    """The textbook's 2, 4, 4, 4, 5, 5, 7, 9: mean 5, sample deviation √(32/7)."""
    values = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]
    assert mean(values) == 5.0
    assert deviation(values) == pytest.approx(math.sqrt(32 / 7))


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(st.lists(numbers, min_size=2, max_size=8))
def test_mean_and_deviation_agree_with_the_standard_library(values: list[float]) -> None:
    """Both are what exact rational arithmetic gives, and the mean lies among the values."""
    largest = max(map(abs, values))
    assert mean(values) == pytest.approx(statistics.mean(values), rel=1e-12, abs=1e-12 * largest)
    assert deviation(values) == pytest.approx(statistics.stdev(values), rel=1e-9, abs=1e-9 * largest)
    assert min(values) <= mean(values) <= max(values)


def test_large_numbers_do_not_overflow() -> None:
    """Numbers near the largest double have a mean and a deviation."""
    assert mean([1.7e308, 1.7e308]) == 1.7e308
    assert deviation([1.5e308, 0.5e308]) == pytest.approx(1e308 / math.sqrt(2))


def test_interval_of_two_values_is_known() -> None:
    """Of 0 and 1 the means of all four resamples are 0, ½, ½, 1: a quarter lies at each end."""
    assert interval([0.0, 1.0]) == (0.0, 1.0)
    assert interval([0.0, 1.0], confidence=0.4) == (0.5, 0.5)


def test_interval_of_few_values_is_exact() -> None:
    """Up to six values it is the quantile of every resample there is, not of some."""
    values = [1.0, 2.0, 4.0, 8.0]
    means = sorted(sum(drawn) / 4 for drawn in itertools.product(values, repeat=4))
    low, high = (means[math.ceil(len(means) * fraction) - 1] for fraction in (0.025, 0.975))
    assert interval(values) == (low, high)


@pytest.mark.heavy
def test_interval_of_many_values_is_that_of_the_normal_approximation() -> None:
    """For a thousand values it is mean ± 1.96 standard errors, within a twentieth of one, and the same each time."""
    values = np.random.default_rng(1).normal(5.0, 2.0, 1000).tolist()
    error = statistics.stdev(values) / math.sqrt(len(values))
    found = interval(values)
    assert found is not None
    assert found == interval(values)
    assert found[0] == pytest.approx(mean(values) - 1.96 * error, abs=0.1 * error)
    assert found[1] == pytest.approx(mean(values) + 1.96 * error, abs=0.1 * error)
    assert RESAMPLES == 10_000


@pytest.mark.parametrize(("values", "expected"), [([], None), ([3.0], None), ([3.0, 3.0, 3.0], (3.0, 3.0))])
def test_interval_of_none_one_or_equal_values(values: list[float], expected: tuple[float, float] | None) -> None:
    """One value has no interval; equal values have one without width."""
    assert interval(values) == expected


def test_spread_counts_what_is_missing() -> None:
    """A run without the value, and one that ended in NaN, are counted in ``of`` and averaged nowhere."""
    found = spread([1.0, None, math.nan, 3.0, math.inf])
    assert (found.n, found.of, found.mean, found.deviation) == (2, 5, 2.0, math.sqrt(2))
    assert spread([math.nan]).mean is None


def test_weighted_mean_is_all_over_all() -> None:
    """100 tokens/s for 1 s and 10 tokens/s for 9 s are 190 tokens in 10 s, not 55 tokens/s."""
    assert weighted([100.0, 10.0], [1.0, 9.0]) == 19.0


def test_weighted_mean_without_weight() -> None:
    """NaN and values without time don't count; nothing left gives None, no division by zero."""
    assert weighted([1.0, math.nan, 5.0], [1.0, 7.0, 0.0]) == 1.0
    assert weighted([1.0], [0.0]) is None
    assert weighted([], []) is None


def test_durations_leave_out_pauses_between_attempts() -> None:
    """A value speaks for the time since the last one, or since its attempt began: the pause before is nobody's."""
    assert durations([10.0, 12.0, 103.0, 106.0], [9.0, 100.0]).tolist() == [1.0, 2.0, 3.0, 3.0]
    assert durations([10.0, 12.0]).tolist() == [0.0, 2.0]
    assert durations([10.0, 12.0], [11.0]).tolist() == [0.0, 1.0]
    assert durations([]).tolist() == []
