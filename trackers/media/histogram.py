"""Histograms, counted where the values are."""

from __future__ import annotations

import bisect
import itertools
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, SupportsIndex

from trackers.errors import UsageError
from trackers.media.base import MediaStore, MediaValue, comes_from, made_from
from trackers.media.image import as_numpy, is_array
from trackers.records import MediaFile
from trackers.support.interruption import pass_on

MAX_BINS = 512
"""As in W&B (https://docs.wandb.ai/ref/python/data-types/histogram)."""


class Histogram(MediaValue):
    """A histogram of values.

    Args:
        sequence: values, of any shape: an array, a tensor, a (nested) list. NaN and infinities are left out, and
            their numbers kept as ``nan`` and ``infinite``. A tensor on a GPU is counted there; fetching the
            counts waits for it.
        np_histogram: counts and edges, as ``numpy.histogram`` returns them.
        num_bins: bins of equal width from the least to the greatest value, at most 512.
        counts, edges: the same as np_histogram, by name.

    Raises:
        UsageError: no values and no counts, too many bins, not one more edge than counts, counts that are no
            finite numbers, or edges that fall.
    """

    type = "histogram"

    def __init__(
        self,
        sequence: Any = None,
        np_histogram: Sequence[Any] | None = None,
        num_bins: int = 64,
        *,
        counts: Any = None,
        edges: Any = None,
    ) -> None:
        self.nan = 0
        self.infinite = 0
        if np_histogram is not None:
            if not isinstance(np_histogram, (tuple, list)) or len(np_histogram) != 2:
                raise UsageError("np_histogram is a pair: counts and bin edges")
            counts, edges = np_histogram
        binned = counts is not None or edges is not None
        if binned:
            self.histogram, self.bins = _as_floats("counts", counts), _as_floats("edges", edges)
        elif sequence is None:
            raise UsageError("Histogram needs values, or counts and edges")
        elif not isinstance(num_bins, SupportsIndex) or not 0 < num_bins.__index__() <= MAX_BINS:
            raise UsageError(f"a histogram has 1 to {MAX_BINS} bins, not {num_bins!r:.60}")
        else:
            with made_from("Histogram", sequence):
                self.histogram, self.bins = self._count(sequence, num_bins.__index__())
        if len(self.histogram) > MAX_BINS:
            raise UsageError(f"a histogram has at most {MAX_BINS} bins, not {len(self.histogram)}")
        if len(self.bins) != len(self.histogram) + 1:
            raise UsageError(f"{len(self.histogram)} counts need {len(self.histogram) + 1} edges, not {len(self.bins)}")
        if binned and not all(map(math.isfinite, self.histogram)):
            raise UsageError("the counts of a histogram are finite numbers")
        if binned and not all(low <= high for low, high in itertools.pairwise(self.bins)):  # NaN, too
            raise UsageError("the edges of a histogram are numbers that don't fall")

    def items(self, store: MediaStore) -> list[MediaFile]:
        meta = {name: count for name, count in (("nan", self.nan), ("infinite", self.infinite)) if count}
        return [MediaFile(format="json", data={"counts": self.histogram, "edges": self.bins}, meta=meta)]

    def _count(self, values: Any, bins: int) -> tuple[list[float], list[float]]:
        if comes_from(values, "torch") and values.device.type not in ("cpu", "meta"):
            return self._count_tensor(values, bins)
        if not is_array(values):
            first = next(iter(values), None) if isinstance(values, (list, tuple)) else None
            if first is None or isinstance(first, (int, float)):
                return self._count_numbers(values, bins)
            values = _stack(values)
        import numpy as np

        array = as_numpy(values).ravel()
        if array.dtype.kind in "bO":
            array = array.astype(np.float64)
        if array.dtype.kind not in "iuf":
            raise UsageError(f"Histogram counts real numbers, not {array.dtype}")
        finite = array[np.isfinite(array)]
        self._left_out(int(np.isnan(array).sum()), array.size - finite.size)
        if finite.dtype.kind == "f" and finite.dtype.itemsize < 4:
            finite = finite.astype(np.float32)
        span = float(finite.max()) - float(finite.min()) if finite.dtype.kind == "f" and finite.size else 0.0
        if not math.isfinite(span):  # numpy.histogram would overflow
            return count(finite.tolist(), bins)
        try:
            counts, edges = np.histogram(finite, bins=bins)
        except ValueError as error:  # the values are too close together for so many bins
            pass_on(error)
            wide = widened(float(finite.min()), float(finite.max()), bins)
            counts, edges = np.histogram(finite.astype(np.float64), bins=bins, range=wide)
        return counts.tolist(), edges.tolist()

    def _count_numbers(self, values: Iterable[Any], bins: int) -> tuple[list[float], list[float]]:
        if isinstance(values, (str, bytes, Mapping)):
            raise UsageError(f"Histogram takes numbers, not a {type(values).__name__}")
        numbers = [float(value) for value in values]
        finite = [number for number in numbers if math.isfinite(number)]
        self._left_out(sum(number != number for number in numbers), len(numbers) - len(finite))
        return count(finite, bins)

    def _count_tensor(self, values: Any, bins: int) -> tuple[list[float], list[float]]:
        import torch

        flat = values.detach().reshape(-1)
        if not flat.is_floating_point() or flat.element_size() < 4:
            flat = flat.float()
        finite = flat[torch.isfinite(flat)]
        self._left_out(int(torch.isnan(flat).sum()), flat.numel() - finite.numel())
        if not finite.numel():
            return count([], bins)
        least, greatest = torch.stack(torch.aminmax(finite)).tolist()
        low, high = widened(least, greatest, bins)
        counts = torch.histc(finite, bins, low, high).tolist()
        width = (high - low) / bins
        return [int(count) for count in counts], [low + index * width for index in range(bins)] + [high]

    def _left_out(self, nan: int, all_of_them: int) -> None:
        self.nan, self.infinite = nan, all_of_them - nan


def count(finite: Sequence[float], bins: int) -> tuple[list[float], list[float]]:
    """Counts and edges of finite numbers, as numpy.histogram has them, in plain Python."""
    low, high = widened(min(finite), max(finite), bins) if finite else (0.0, 1.0)
    # Halves, so that a range wider than the largest float doesn't overflow.
    width = (high / 2 - low / 2) / bins * 2
    edges = [low + index * width for index in range(bins)] + [high]
    counts: list[float] = [0] * bins
    for number in finite:
        counts[min(bisect.bisect_right(edges, number) - 1, bins - 1)] += 1
    return counts, edges


def widened(low: float, high: float, bins: int) -> tuple[float, float]:
    """The range to count in: numpy.histogram's, or wider where floats are too coarse for that many bins."""
    least = 4 * bins * math.ulp(max(abs(low), abs(high)))
    pad = max(0.5, least) if low == high else least if high - low < least else 0.0
    limit = sys.float_info.max
    return max(low - pad, -limit), min(high + pad, limit)


def _as_floats(name: str, values: Any) -> list[float]:
    with made_from(f"the {name} of a histogram", values):
        plain = as_numpy(values).tolist() if is_array(values) else list(values or [])
        plain = [item.item() if hasattr(item, "item") else item for item in plain]
        return [item if type(item) in (int, float) else _number(item) for item in plain]


def _number(value: Any) -> float:
    if isinstance(value, (str, bytes)):
        raise TypeError(f"{value!r:.60} is no number")
    return float(value)


def _stack(values: Iterable[Any]) -> Any:
    import numpy as np

    parts = [as_numpy(item) if is_array(item) else np.asarray(item, dtype=np.float64) for item in values]
    return np.concatenate([part.ravel() for part in parts])
