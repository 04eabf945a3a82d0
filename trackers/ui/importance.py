"""Which settings matter for a column: how much each varies, and how far the column goes with it."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from trackers.records import finite
from trackers.ui.table import Row

if TYPE_CHECKING:
    import numpy as np

FEW = 8
"""Fewer runs have no forest."""
MOST_SETTINGS = 60
"""Maximum number of settings that are listed: those that vary most."""
TREES = 60


def importance(rows: Sequence[Row], column: str, *, forest: bool = False) -> list[dict[str, Any]]:
    """Settings of runs that differ, the one with the strongest correlation first.

    Each has ``name`` (of its column), ``runs`` that have it, ``values`` (different ones), ``correlation`` of ranks with
    the column (Spearman's, -1 to 1; of words, and of numbers where it is stronger, the correlation ratio, 0 to 1; None
    where it can't be said), and ``forest``: its share in a random forest of scikit-learn, which takes seconds; None
    where that wasn't asked for or isn't installed, or the runs are too few.
    """
    import numpy as np

    names = dict.fromkeys(name for row in rows for name in row.config)
    given: list[tuple[str, list[Any], int]] = []
    for name in names:
        values = [row.config.get(name) for row in rows]
        different = len({repr(value) for value in values if value is not None})
        if different > 1:
            given.append((name, values, different))
    given.sort(key=lambda entry: (-entry[2], entry[0]))
    given = given[:MOST_SETTINGS]
    y = np.array([_number(row.cell(column)) for row in rows], np.float64)
    known = np.isfinite(y)
    entries = [
        {
            "name": f"config.{name}",
            "runs": sum(value is not None for value in values),
            "values": different,
            "correlation": _correlation(values, y),
            "forest": None,
        }
        for name, values, different in given
    ]
    if forest and entries and known.sum() >= FEW and importlib.util.find_spec("sklearn") is not None:
        from sklearn.ensemble import RandomForestRegressor

        encoded = np.column_stack([_encoded(values)[0] for _, values, _ in given])
        trees = RandomForestRegressor(TREES, random_state=0, max_depth=10, n_jobs=1)
        trees.fit(encoded[known], _ranks(y[known]))
        for entry, share in zip(entries, trees.feature_importances_, strict=True):
            entry["forest"] = float(share)
    return sorted(entries, key=lambda entry: (-abs(entry["correlation"] or 0.0), -entry["values"], entry["name"]))


def _number(value: Any) -> float:
    number = finite(value)
    return math.nan if number is None else number


def _ranks(values: Any) -> np.ndarray[Any, Any]:
    """Ranks of numbers, from 0; of equal ones the mean."""
    import numpy as np

    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    middle: np.ndarray[Any, Any] = (np.cumsum(counts) - (counts + 1) / 2)[place]
    return middle


def _encoded(values: Sequence[Any]) -> tuple[np.ndarray[Any, Any], bool]:
    """A setting as numbers, -1 where a run lacks it; and whether they are numbers rather than words."""
    import numpy as np

    present = [value for value in values if value is not None]
    if all(finite(value) is not None and not isinstance(value, bool) for value in present):
        numbers = np.array([_number(value) for value in values])
        result = np.full(len(values), -1.0)
        result[np.isfinite(numbers)] = _ranks(numbers[np.isfinite(numbers)])
        return result, True
    words = {word: place for place, word in enumerate(sorted({repr(value) for value in present}))}
    return np.array([-1.0 if value is None else words[repr(value)] for value in values]), False


def _correlation(values: Sequence[Any], y: np.ndarray[Any, Any]) -> float | None:
    import numpy as np

    x, numeric = _encoded(values)
    both = np.isfinite(y) & (x >= 0)
    if both.sum() < 3 or len(set(x[both])) < 2 or len(set(y[both])) < 2:
        return None
    ranks = _ranks(y[both])
    ratio = _ratio(x[both], ranks)
    if not numeric:
        return ratio
    rank_correlation = float(np.corrcoef(_ranks(x[both]), ranks)[0, 1])
    return ratio if ratio > abs(rank_correlation) else rank_correlation


def _ratio(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> float:
    """The root of the share of y's variance that lies between the values of x: also of what rises and falls again.

    Chance is taken off (Kelley 1935, https://doi.org/10.1073/pnas.21.9.554): 0 where each x has a value of its own.
    """
    import numpy as np

    _, place, counts = np.unique(x, return_inverse=True, return_counts=True)
    within = ((y - (np.bincount(place, y) / counts)[place]) ** 2).sum()
    free = len(y) - len(counts)
    return math.sqrt(max(0.0, 1 - within / free * (len(y) - 1) / ((y - y.mean()) ** 2).sum())) if free else 0.0
