"""Samples taken now and then as one number over a time: time-weighted means, minima, maxima, last values."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class SampleMean(msgspec.Struct):
    """Summary of one name's samples. weight_s: the time that they cover."""

    mean: float
    minimum: float
    maximum: float
    last: float
    weight_s: float


class Window:
    """Folds samples until it is closed. A name that a sample lacks has no part in that sample's time."""

    def __init__(self) -> None:
        self._folds: dict[str, SampleMean] = {}
        self.samples = 0

    def add(self, values: Mapping[str, float], weight_s: float) -> None:
        """Take one sample, which speaks for ``weight_s`` seconds, more than 0."""
        self.samples += 1
        for name, value in values.items():
            fold = self._folds.get(name)
            if fold is None:
                self._folds[name] = SampleMean(value, value, value, value, weight_s)
                continue
            total_s = fold.weight_s + weight_s
            # As a step from the mean so far, which stays between minimum and maximum whatever the weights.
            mean = fold.mean + (value - fold.mean) * (weight_s / total_s)
            fold.minimum, fold.maximum = min(fold.minimum, value), max(fold.maximum, value)
            fold.mean = min(max(mean, fold.minimum), fold.maximum)
            fold.last, fold.weight_s = value, total_s

    def close(self) -> dict[str, SampleMean]:
        """What was folded, by name; the window is then empty."""
        folds, self._folds, self.samples = self._folds, {}, 0
        return folds
