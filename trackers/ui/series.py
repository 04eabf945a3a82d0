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

GROUP = 64
FEW = 60_000
"""Number of points from which a view is made directly."""
LONG = 65_536
"""Longer series are smoothed at the end of each group of points, exactly, rather than at each point."""


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
    ) -> Curve:
        """The curve between two x, at most four points and a NaN per bin, and the next point beyond either end.

        Args:
            weight: of the past in smoothing, 0 to below 1.
        """
        import numpy as np

        scale = Scale(smooth=0, log_x=log_x, log_y=log_y, bins=bins)
        first = max(0, int(np.searchsorted(self.x, low, "left")) - 1)
        last = min(len(self.x), int(np.searchsorted(self.x, high, "right")) + 1)
        kept = self._kept(first, last)
        found = curve_math.line("", self.x[kept], self.y[kept], scale)
        found.count = last - first
        if weight > 0:
            xs, ys = self._smooth(weight)
            start, end = int(np.searchsorted(xs, low, "left")), int(np.searchsorted(xs, high, "right"))
            part = slice(max(0, start - 1), end + 1)
            smoothed = curve_math.line("", xs[part], ys[part], scale)
            found.smooth_x, found.smooth_y = smoothed.x, smoothed.y
        return found

    def _kept(self, first: int, last: int) -> Any:
        """Places of the points that a view between two places is made of."""
        import numpy as np

        if last - first <= FEW:
            return slice(first, last)
        self._group()
        for level in self._levels:
            start, end = int(np.searchsorted(level, first)), int(np.searchsorted(level, last))
            if end - start <= FEW or level is self._levels[-1]:
                tail = np.arange(max(first, self._grouped), last)
                ends = [place for place in (first, last - 1) if place < self._grouped]
                return np.unique(np.concatenate([level[start:end], tail, np.array(ends, np.int64)]))
        return slice(first, last)

    def _group(self) -> None:
        """Group what came since; the highest level has at most :data:`FEW` places."""
        import numpy as np

        whole = len(self.x) // GROUP * GROUP
        if whole - self._grouped < GROUP or (self._levels and whole - self._grouped < FEW // 4):
            return
        fresh = chosen(self.y, np.arange(self._grouped, whole))
        levels = [np.concatenate([self._levels[0], fresh]) if self._levels else fresh]
        while len(levels[-1]) > FEW and (coarser := chosen(self.y, levels[-1])).size < len(levels[-1]) * 3 // 4:
            levels.append(coarser)
        self._levels, self._grouped = levels, whole

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
            heads = y[:whole].reshape(-1, width) @ (powers * ((1 - weight) / -math.expm1(width * math.log(weight))))
            x, y = x[width - 1 : whole : width], curve_math.smooth(heads, weight**width)
        else:
            y = curve_math.smooth(y, weight)
        self._smoothed = (weight, size, x, y)
        return x, y


def chosen(y: Any, places: Any) -> Any:
    """Of each :data:`GROUP` places the first and last one, those of the smallest, the smallest positive and the largest
    value, and the first NaN and infinities; ascending."""
    import numpy as np

    whole = len(places) // GROUP * GROUP
    groups = places[:whole].reshape(-1, GROUP)
    values = y[groups]
    rows = np.arange(len(groups))
    finite = np.abs(values) <= LARGEST
    kept = [groups[:, 0], groups[:, -1]]
    if finite.all():
        kept += [groups[rows, values.argmin(axis=1)], groups[rows, values.argmax(axis=1)]]
    else:
        kept += [
            groups[rows, np.where(finite, values, np.inf).argmin(axis=1)],
            groups[rows, np.where(finite, values, -np.inf).argmax(axis=1)],
        ]
        for odd in (np.isnan(values), values > LARGEST, values < -LARGEST):
            there = odd.any(axis=1)
            kept.append(groups[there, odd[there].argmax(axis=1)])
    positive = finite & (values > 0)
    if not positive.all():
        there = positive.any(axis=1)
        kept.append(groups[there, np.where(positive[there], values[there], np.inf).argmin(axis=1)])
    return np.unique(np.concatenate([*kept, places[whole:]]))
