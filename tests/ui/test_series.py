"""Views of series: every spike and every NaN of millions of points, smoothed as everywhere, whatever came when."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trackers.plotting import curve_math
from trackers.ui.series import Series


def series(x: object, y: object, parts: int = 1) -> Series:
    """Points that came in parts."""
    found = Series()
    for xs, ys in zip(
        np.array_split(np.asarray(x, float), parts), np.array_split(np.asarray(y, float), parts), strict=True
    ):
        found.append(xs, ys)
    return found


@pytest.mark.heavy
@pytest.mark.parametrize("parts", [1, 7])
def test_long_series_keeps_spikes_and_marks(parts: int) -> None:
    """Of a million points, the single ones that stick out or aren't finite are in a view of 100 parts."""
    y = np.random.default_rng(0).normal(size=1_000_000)
    y[[123_456, 500_001, 777_777, 900_000, 31]] = [99, -99, math.nan, math.inf, -math.inf]
    curve = series(np.arange(len(y)), y, parts).curve(bins=100)
    assert len(curve.x) <= 600
    found = dict(zip(curve.x.tolist(), curve.y.tolist(), strict=True))
    assert (found[123_456], found[500_001]) == (99, -99)
    assert (list(curve.nans), list(curve.highs), list(curve.lows)) == ([777_777], [900_000], [31])


def test_view_of_a_part_is_as_fine_as_its_points() -> None:
    """A view of a hundred of a million points has each of them, and one beyond either end."""
    y = np.random.default_rng(0).normal(size=1_000_000)
    curve = series(np.arange(len(y)), y).curve(low=500_000, high=500_099, bins=400)
    assert curve.x.tolist() == list(range(499_999, 500_101))
    assert curve.y.tolist() == y[499_999:500_101].tolist()


def test_points_in_any_order_are_sorted() -> None:
    """What goes back (a restart, streams of ranks) is put where it belongs."""
    found = series([5, 3, 9, 1], [50, 30, 90, 10])
    found.append(np.array([4.0, 2.0]), np.array([40.0, 20.0]))
    curve = found.curve()
    assert curve.x.tolist() == [1, 2, 3, 4, 5, 9]
    assert curve.y.tolist() == [10, 20, 30, 40, 50, 90]


def test_series_that_grows_is_the_one_that_came_at_once() -> None:
    """Views in between change nothing."""
    y = np.random.default_rng(1).normal(size=300_000)
    whole, grown = series(np.arange(len(y)), y), Series()
    for start in range(0, len(y), 30_000):
        grown.append(np.arange(start, start + 30_000.0), y[start : start + 30_000])
        grown.curve(bins=50)
    one, other = whole.curve(bins=50), grown.curve(bins=50)
    assert max(one.y) == max(other.y) == y.max()
    assert min(one.y) == min(other.y) == y.min()


@pytest.mark.parametrize("size", [1000, 300_000])
@pytest.mark.parametrize("weight", [0.5, 0.9, 0.999])
def test_smoothed_curve_is_the_usual_one(size: int, weight: float) -> None:
    """Each point of the smoothed curve is what the exponential average of all points is there."""
    y = np.random.default_rng(2).normal(size=size)
    curve = series(np.arange(size), y).curve(weight=weight, bins=200)
    wanted = curve_math.smooth(y, weight)
    assert len(curve.smooth_x) > 100
    np.testing.assert_allclose(curve.smooth_y, wanted[curve.smooth_x.astype(int)], rtol=1e-6, atol=1e-9)


def test_logarithmic_view_keeps_the_smallest_positive_value() -> None:
    """Where zeros and negative values are left out, the spike towards zero is still there."""
    y = np.full(200_000, 1.0)
    y[::3] = -1.0
    y[100_000] = 1e-6
    curve = series(np.arange(len(y)), y).curve(bins=50, log_y=True)
    assert np.nanmin(curve.y) == 1e-6


def test_empty_series_has_an_empty_view() -> None:
    """Nothing, with and without smoothing."""
    assert len(Series().curve(weight=0.9).x) == 0


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60), st.floats(0.01, 0.98))
def test_smoothing_by_what_is_around(values: list[float], weight: float) -> None:
    """A running mean is the mean of the values around each, fewer at the ends; both kinds stay between the extremes."""
    y = np.array(values)
    width = curve_math.window_of(weight)
    half = int(width // 2)
    expected = [y[max(0, k - half) : k + half + 1].mean() for k in range(len(y))]
    assert np.allclose(curve_math.running_mean(y, width), expected, atol=1e-6)
    for smoothed in (curve_math.running_mean(y, width), curve_math.gaussian(y, width)):
        assert (smoothed >= y.min()).all()
        assert (smoothed <= y.max()).all()


def test_gaussian_is_a_bell_curve() -> None:
    """One value among zeros becomes a bell of the width that is asked for, whose sum is the value."""
    y = np.zeros(401)
    y[200] = 1.0
    width = 41.0
    bell = curve_math.gaussian(y, width)
    places = np.arange(401) - 200.0
    deviation = width / (2 * math.sqrt(math.pi))
    assert math.isclose(bell.sum(), 1.0, rel_tol=1e-9)
    assert abs(math.sqrt((bell * places**2).sum()) - deviation) < 0.1 * deviation
    exact = np.exp(-(places**2) / 2 / deviation**2) / deviation / math.sqrt(2 * math.pi)
    assert np.abs(bell - exact).max() < 0.08 * exact.max()
