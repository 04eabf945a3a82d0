"""One metric's points, kept so that a view of any part of ten million of them takes milliseconds.

Points are sorted by x. Of each :data:`GROUP` points the first, last, smallest and largest one, and one of each value
that isn't finite, are known; of those again, and so on. A view is made from the level that has enough points for it,
so no spike and no NaN is lost.
"""

from __future__ import annotations

import math
from typing import Any

from trackers.plotting import curve_math
from trackers.plotting.curve_math import LARGEST, Curve, Scale

GROUP, NEXT = 64, 16
"""Points of a group, and of a group of those that are known of groups."""
FEW = 10_000
"""Number of points from which a view is made directly."""
ENOUGH = 6
"""Minimum number of points that a view is made of, for each part of the axis."""
LONG = 16_384
"""Longer series are smoothed at the end of each group of points, exactly, rather than at each point."""
NEAR = 50_000
"""Number of points in a part of a long series which is smoothed at each of its points."""
AROUND = {"gaussian": curve_math.gaussian, "mean": curve_math.running_mean}
"""Kinds of smoothing by the values around: a mean weighted by a bell curve; a plain running mean."""
SMOOTHINGS = ("ema", *AROUND)
"""These, and the exponential moving average."""
AT_ONCE = GROUP * 16_384
"""Points that are grouped at a time."""
PAST = 18.0
"""Points count in smoothing until their weight is below e to the minus this."""


class Series:
    """Points of one metric over one x axis. x: finite, ascending. y: any numbers."""

    def __init__(self) -> None:
        import numpy as np

        self.x: Any = np.zeros(0)
        self.y: Any = np.zeros(0)
        self._buffers: tuple[Any, Any] = (np.zeros(0), np.zeros(0))
        self._levels: list[Any] = []
        self._grouped = 0
        self._smoothed: tuple[float, int, Any, Any] | None = None
        self._finite: tuple[int, Any, Any] | None = None
        self._around: tuple[str, float, int, Any, Any] | None = None

    def append(self, x: Any, y: Any) -> None:
        """Take further points, in any order."""
        import numpy as np

        if not len(x):
            return
        if len(x) > 1 and (np.diff(x) < 0).any():
            order = np.argsort(x, kind="stable")
            x, y = x[order], y[order]
        size = len(self.x)
        if size and x[0] < self.x[-1]:
            x, y = np.concatenate([self.x, x]), np.concatenate([self.y, y])
            order = np.argsort(x, kind="stable")
            self.__init__()  # type: ignore[misc]
            x, y, size = x[order], y[order], 0
        whole = size + len(x)
        if whole > len(self._buffers[0]):
            room = max(whole, 2 * size)
            old = self.x, self.y
            self._buffers = np.empty(room), np.empty(room)
            for buffer, values in zip(self._buffers, old, strict=True):
                buffer[:size] = values
        self._buffers[0][size:whole], self._buffers[1][size:whole] = x, y
        self.x, self.y = self._buffers[0][:whole], self._buffers[1][:whole]

    def curve(
        self,
        *,
        low: float = -math.inf,
        high: float = math.inf,
        bins: int = 400,
        weight: float = 0.0,
        log_x: bool = False,
        log_y: bool = False,
        kind: str = "ema",
    ) -> Curve:
        """The curve between two x, at most four points and a NaN per bin, and the next point beyond either end.

        Args:
            weight: of the past in smoothing, 0 to below 1. kind: one of :data:`SMOOTHINGS`.
        """
        import numpy as np

        scale = Scale(smooth=0, log_x=log_x, log_y=log_y, bins=bins)
        first = max(0, int(np.searchsorted(self.x, low, "left")) - 1)
        last = min(len(self.x), int(np.searchsorted(self.x, high, "right")) + 1)
        indices = self._thinned(first, last, ENOUGH * bins)
        curve = curve_math.line("", self.x[indices], self.y[indices], scale)
        curve.count = last - first
        if weight > 0:
            xs, ys = self.smoothed(first, last, weight, kind)
            smoothed = curve_math.line("", xs, ys, scale)
            curve.smooth_x, curve.smooth_y = smoothed.x, smoothed.y
        return curve

    def _thinned(self, first: int, last: int, enough: int) -> Any:
        """Indices of the points that a view between two indices is made of, not many more than ``enough``."""
        import numpy as np

        if last - first <= FEW:
            return slice(first, last)
        self._group()
        for level in reversed(self._levels):
            start, end = int(np.searchsorted(level, first)), int(np.searchsorted(level, last))
            if end - start >= enough:
                tail = np.arange(max(first, self._grouped), last)
                head = [first] if first < min(self._grouped, level[start]) else []
                ends = [last - 1] if level[end - 1] < last - 1 < self._grouped else []
                return np.concatenate([np.array(head, np.int64), level[start:end], np.array(ends, np.int64), tail])
        return slice(first, last)

    def _group(self) -> None:
        """Group what came since."""
        import numpy as np

        whole = len(self.x) // GROUP * GROUP
        if whole - self._grouped < GROUP or (self._levels and whole - self._grouped < FEW // 4):
            return
        parts = [self._levels[0]] if self._levels else []
        for start in range(self._grouped, whole, AT_ONCE):
            parts.append(representative_indices(self.y, np.arange(start, min(whole, start + AT_ONCE)), GROUP))
        levels = [np.concatenate(parts)]
        while len(levels[-1]) > FEW // 4:
            coarser = representative_indices(self.y, levels[-1], NEXT)
            if coarser.size > len(levels[-1]) * 3 // 4:
                break
            levels.append(coarser)
        self._levels, self._grouped = levels, whole

    def smoothed(self, first: int, last: int, weight: float, kind: str = "ema") -> tuple[Any, Any]:
        """The smoothed curve between two indices."""
        import numpy as np

        start = max(0, first - int(PAST / -math.log(weight)) - 1)
        if kind in AROUND:
            x, y = self._smooth_around(weight, kind)
        elif len(self.x) > LONG and last - start <= NEAR:
            x, y = self.x[start:last], self.y[start:last]
            finite = np.abs(y) <= LARGEST
            x, y = x[finite], curve_math.smooth(y[finite], weight)
        else:
            x, y = self._smooth(weight)
        if first < last:
            begin, end = np.searchsorted(x, self.x[first], "left"), np.searchsorted(x, self.x[last - 1], "right")
            x, y = x[max(0, int(begin) - 1) : int(end) + 1], y[max(0, int(begin) - 1) : int(end) + 1]
        return x, y

    def _smooth_around(self, weight: float, kind: str) -> tuple[Any, Any]:
        """Smoothed by the values before and after each."""
        import numpy as np

        size = len(self.x)
        if self._around is None or self._around[:3] != (kind, weight, size):
            finite = np.abs(self.y) <= LARGEST
            x, y = (self.x, self.y) if finite.all() else (self.x[finite], self.y[finite])
            self._around = kind, weight, size, x, AROUND[kind](y, curve_math.window_of(weight))
        return self._around[3], self._around[4]

    def _smooth(self, weight: float) -> tuple[Any, Any]:
        """The smoothed curve: see :func:`trackers.plotting.curve_math.smooth`."""
        import numpy as np

        size = len(self.x)
        if self._smoothed is not None and self._smoothed[:2] == (weight, size):
            return self._smoothed[2], self._smoothed[3]
        if self._finite is None or self._finite[0] != size:
            finite = np.abs(self.y) <= LARGEST
            self._finite = (size, self.x, self.y) if finite.all() else (size, self.x[finite], self.y[finite])
        _, x, y = self._finite
        if len(y) > LONG:
            width = -(-len(y) // LONG)
            whole = len(y) // width * width
            powers = weight ** np.arange(width - 1.0, -1, -1)
            shares = powers * ((1 - weight) / -math.expm1(width * math.log(weight)))
            heads = np.einsum("ij,j->i", y[:whole].reshape(-1, width), shares)  # @ would start threads for it
            x, y = x[width - 1 : whole : width], curve_math.smooth(heads, weight**width)
        else:
            y = curve_math.smooth(y, weight)
        self._smoothed = (weight, size, x, y)
        return x, y


def representative_indices(y: Any, indices: Any, size: int) -> Any:
    """Of each ``size`` indices the first and the last, those of the smallest, the smallest positive and the largest
    value, and the first NaN and infinities; ascending."""
    import numpy as np

    whole = len(indices) // size * size
    groups = indices[:whole].reshape(-1, size)
    values = y[groups]
    rows = np.arange(len(groups))
    finite = np.abs(values) <= LARGEST
    parts = [groups[:, 0], groups[:, -1]]
    if finite.all():
        parts += [groups[rows, values.argmin(axis=1)], groups[rows, values.argmax(axis=1)]]
    else:
        parts += [
            groups[rows, np.where(finite, values, np.inf).argmin(axis=1)],
            groups[rows, np.where(finite, values, -np.inf).argmax(axis=1)],
        ]
        for odd in (np.isnan(values), values > LARGEST, values < -LARGEST):
            mask = odd.any(axis=1)
            parts.append(groups[mask, odd[mask].argmax(axis=1)])
    positive = finite & (values > 0)
    if not positive.all():
        mask = positive.any(axis=1)
        parts.append(groups[mask, np.where(positive[mask], values[mask], np.inf).argmin(axis=1)])
    return np.unique(np.concatenate([*parts, indices[whole:]]))
