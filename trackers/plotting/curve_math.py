"""Arithmetic of curves: thinning that keeps every spike, smoothing, bands over runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

BINS = 1200
"""Number of bins of the x axis, which keep first, smallest, largest and last value: more than a picture's pixels."""
FEW = 100
"""Curves of fewer points aren't smoothed unless that is asked for."""
SHARE = 50
"""A curve is smoothed over this fraction of its points."""


LARGEST = 1e305
"""Beyond it a value is marked as infinity is: an axis around it would end beyond the largest double."""


class Curve(msgspec.Struct):
    """One curve, thinned. x ascends; y is NaN where the curve is broken.

    smooth_x, smooth_y: the smoothed curve, empty for none. low, high: a band around y. nans, highs, lows: the x of
    values that are NaN, infinity, minus infinity (or beyond :data:`LARGEST`). count: points before thinning. style:
    which colour and dashes; lines of one run have the same. dashed: the second line of a run. hidden: not in the
    legend.
    """

    label: str
    x: Any
    y: Any
    smooth_x: Any = ()
    smooth_y: Any = ()
    low: Any = ()
    high: Any = ()
    nans: Any = ()
    highs: Any = ()
    lows: Any = ()
    count: int = 0
    style: int = 0
    dashed: bool = False
    hidden: bool = False


class Scale(NamedTuple):
    """Options of a curve. smooth: weight of the past, 0 to 1; None: :data:`SHARE` of the points, if there are many.

    log_x, log_y: a logarithmic axis has no place for values below or at zero. bins: see :data:`BINS`.
    """

    smooth: float | None = None
    log_x: bool = False
    log_y: bool = False
    bins: int = BINS


def line(label: str, x: Any, y: Any, scale: Scale, *, style: int = 0, dashed: bool = False) -> Curve:
    """A curve from all its points, in any order; an x that isn't finite, or has no place on the axis, is left out."""
    import numpy as np

    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    valid = np.isfinite(x) & (x > 0 if scale.log_x else True)
    x, y = x[valid], y[valid]
    if len(x) > 1 and (np.diff(x) < 0).any():
        order = np.argsort(x, kind="stable")
        x, y = x[order], y[order]
    nan = np.isnan(y)
    high, low = y > LARGEST, y < -LARGEST
    finite = (np.abs(y) <= LARGEST) & (y > 0 if scale.log_y else True)
    curve = Curve(label, x[:0], y[:0], count=len(x), style=style, dashed=dashed)
    if not len(x):
        return curve
    bins = bins_of(x, scale)
    curve.nans, curve.highs, curve.lows = (x[mask][_first(bins[mask])] for mask in (nan, high, low))
    indices = thin(bins[finite], y[finite])
    xs, ys = x[finite][indices], y[finite][indices]
    if not finite.all():
        breaks = np.flatnonzero(~finite)[_first(np.cumsum(finite)[~finite])]
        breaks = breaks[_first(bins[breaks])]
        xs, ys = np.concatenate([xs, x[breaks]]), np.concatenate([ys, np.full(len(breaks), np.nan)])
        positions = np.concatenate([np.flatnonzero(finite)[indices], breaks])
        order = np.argsort(positions, kind="stable")
        xs, ys = xs[order], ys[order]
    curve.x, curve.y = xs, ys
    weight = weight_of(int(finite.sum()), scale.smooth)
    if weight > 0 and finite.sum() > 2:
        smoothed = smooth(y[finite], weight)
        indices = thin(bins[finite], smoothed)
        curve.smooth_x, curve.smooth_y = x[finite][indices], smoothed[indices]
    return curve


def thinner(curve: Curve, bins: int, log_x: bool) -> Curve:
    """A curve with fewer points, chosen in the same way; bands stay as they are."""
    scale = Scale(smooth=0, log_x=log_x, bins=bins)
    thinned = msgspec.structs.replace(curve)
    if not len(curve.low):
        raw = line("", curve.x, curve.y, scale)
        thinned.x, thinned.y = raw.x, raw.y
    if len(curve.smooth_x):
        smoothed = line("", curve.smooth_x, curve.smooth_y, scale)
        thinned.smooth_x, thinned.smooth_y = smoothed.x, smoothed.y
    for name in ("nans", "highs", "lows"):
        xs = getattr(curve, name)
        if len(xs):
            setattr(thinned, name, xs[_first(bins_of(xs, scale))])
    return thinned


def bins_of(x: Any, scale: Scale) -> Any:
    """Which part of the axis each x lies in; x ascends."""
    import numpy as np

    position = np.log(x) if scale.log_x else x
    span = position[-1] - position[0]
    if not (span > 0 and math.isfinite(span)):
        return np.zeros(len(x), np.int64)
    return np.minimum(((position - position[0]) / span * scale.bins).astype(np.int64), scale.bins - 1)


def thin(bins: Any, y: Any) -> Any:
    """Indices of the points of a curve that are kept: of each part of the axis the first, smallest, largest and last.

    So no spike is lost, however narrow, and lines between parts join as they did.

    Args:
        bins: ascending, one for each value. y: finite.
    """
    import numpy as np

    if len(y) <= 4 * (len(_first(bins)) or 1):
        return np.arange(len(y))
    starts = _first(bins)
    counts = np.diff(np.concatenate([starts, [len(y)]]))
    indices = [starts, starts + counts - 1]
    for extreme in (np.minimum, np.maximum):
        ends = np.flatnonzero(y == np.repeat(extreme.reduceat(y, starts), counts))
        indices.append(ends[_first(bins[ends])])
    return np.unique(np.concatenate(indices))


def _first(groups: Any) -> Any:
    """Indices at which an ascending array has a new value."""
    import numpy as np

    if not len(groups):
        return np.zeros(0, np.int64)
    return np.concatenate([[0], np.flatnonzero(np.diff(groups)) + 1])


def weight_of(count: int, smooth: float | None) -> float:
    """Weight of the past in smoothing a curve, given its number of points."""
    if smooth is not None:
        return smooth
    return 0.0 if count < FEW else 1 - 2 / (count / SHARE + 1)


def smooth(values: Any, weight: float) -> Any:
    """The exponential moving average, without its bias towards zero at the start, as TensorBoard and W&B draw it.

    s[t] = (1 - w) * sum(w^(t-k) * y[k]) / (1 - w^(t+1)) (Kingma and Ba, 2015, section 3).

    Args:
        values: finite. weight: w, 0 or more and below 1.
    """
    import numpy as np

    size = len(values)
    if weight <= 0 or not size:
        return np.array(values, np.float64)
    width = max(1, min(size, int(18 / -math.log(weight))))  # powers of the weight stay above e**-18
    rows = -(-size // width)
    padded = np.zeros(rows * width)
    padded[:size] = values
    powers = weight ** np.arange(width + 1.0)
    with np.errstate(over="ignore", invalid="ignore"):
        local = np.cumsum(padded.reshape(rows, width) / powers[:-1], axis=1) * powers[:-1] * (1 - weight)
        carried, carry, past = [], 0.0, float(powers[-1])
        for end in local[:, -1].tolist():
            carried.append(carry)
            carry = end + carry * past
        whole = (local + np.array(carried)[:, None] * powers[1:]).ravel()[:size]
        means = whole / -np.expm1(np.arange(1.0, size + 1) * math.log(weight))
        return np.clip(means, np.min(values), np.max(values))  # rounding makes no curve of what is constant


def window_of(weight: float) -> float:
    """Number of points whose plain mean has as little noise as an exponential average with this weight of the past."""
    return (1 + weight) / (1 - weight)


def running_mean(values: Any, width: float) -> Any:
    """The mean of the values around each, fewer at the ends.

    Args:
        values: finite. width: number of points, made odd.
    """
    import numpy as np

    size = len(values)
    half = min(int(width // 2), size)
    if half < 1:
        return np.array(values, np.float64)
    middle = float(np.mean(values))  # sums of what lies around zero keep their digits
    sums = np.concatenate([[0.0], np.cumsum(np.asarray(values, np.float64) - middle)])
    places = np.arange(size)
    first, last = np.maximum(places - half, 0), np.minimum(places + half + 1, size)
    return np.clip((sums[last] - sums[first]) / (last - first) + middle, np.min(values), np.max(values))


def gaussian(values: Any, width: float) -> Any:
    """The mean of the values around each, weighted by a bell curve: by three running means, whose weights come near it.

    Args:
        values: finite. width: number of points of the plain mean that has as little noise.
    """
    import numpy as np

    deviation = width / (2 * math.sqrt(math.pi))
    box = math.sqrt(4 * deviation**2 + 1)
    smoothed = np.asarray(values, np.float64)
    for _ in range(3):
        smoothed = running_mean(smoothed, box)
    return smoothed


def percent_of(base: tuple[Any, Any], x: Any, y: Any) -> Any:
    """How far values are from a base curve's at the same x, in percent of it; NaN beyond its ends and where it is 0."""
    import numpy as np

    finite = np.isfinite(base[1])
    if not len(x) or not finite.any():
        return np.full(len(x), np.nan)
    there = np.interp(x, base[0][finite], base[1][finite], left=np.nan, right=np.nan)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        percent = (np.asarray(y) - there) / np.abs(there) * 100
    return np.where(np.isfinite(percent), percent, np.nan)


def band(
    label: str, lines: Sequence[Curve], *, style: int = 0, bins: int = 400, log_x: bool = False, log_y: bool = False
) -> Curve:
    """Mean and standard deviation (n - 1) of several runs' curves, where at least one of them is.

    Runs are interpolated between their points, never beyond them; smoothed curves are taken where there are any.
    Where they have many points, those are taken at which, in each part of the axis, the runs are highest and lowest.
    On a logarithmic y axis a mean at or below zero is a gap; the runs' own values at or below zero count in the mean.
    """
    import numpy as np

    pairs = [(np.asarray(curve.smooth_x), np.asarray(curve.smooth_y)) if len(curve.smooth_x) else (curve.x, curve.y)
             for curve in lines]  # fmt: skip
    pairs = [(x[np.isfinite(y)], y[np.isfinite(y)]) for x, y in pairs]
    pairs = [(x, y) for x, y in pairs if len(x)]
    mean_curve = Curve(label, np.zeros(0), np.zeros(0), count=sum(curve.count for curve in lines), style=style)
    for name in ("nans", "highs", "lows"):
        setattr(
            mean_curve,
            name,
            np.unique(np.concatenate([np.asarray(getattr(curve, name), np.float64) for curve in lines])),
        )
    if not pairs:
        return mean_curve
    points, values = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
    grid = np.unique(points)
    if len(grid) > 2 * bins:
        order = np.argsort(points, kind="stable")
        points = points[order]
        grid = np.unique(points[thin(bins_of(points, Scale(log_x=log_x, bins=bins)), values[order])])
    table = np.array([np.interp(grid, x, y, left=np.nan, right=np.nan) for x, y in pairs])
    known = (~np.isnan(table)).sum(axis=0)
    covered = known > 0
    grid, table, known = grid[covered], table[:, covered], known[covered]
    mean = np.nansum(table, axis=0) / known
    with np.errstate(over="ignore"):
        spread = np.sqrt(np.nansum((table - mean) ** 2, axis=0) / np.maximum(known - 1, 1))
    mean_curve.x, mean_curve.low, mean_curve.high = grid, mean - spread, mean + spread
    mean_curve.y = np.where(mean > 0, mean, np.nan) if log_y else mean
    return mean_curve
