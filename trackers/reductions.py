"""Values across ranks: each rank logs what it has, and one number of all ranks is recorded.

    run.log({"loss": Mean(total, count), "grad_norm": Max(norm)}, step)      # on every rank

A reduction carries what its result needs, not a result of its own rank: a mean of means can't happen. Parts may be
numbers, NumPy or torch scalars, also on an accelerator: they are read when they are ready, not waited for.
Whether the relay reduces or a collective of torch does, the arithmetic is the one in this module, on the same parts,
so that the numbers are the same. What rank they came from, and in which order, makes no difference: sums are rounded
once (``math.fsum``). A NaN on any rank stays visible in the result.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any, ClassVar

from trackers.records import Number

Parts = Sequence[Sequence[Number]]
"""For each part of a reduction: its value on each rank that gave one, in the order of the ranks."""


class Reduction:
    """One rank's contribution to a value across ranks. ``parts``: as many numbers as the kind is ``width`` wide."""

    __slots__ = ("parts",)
    kind: ClassVar[str] = ""
    width: ClassVar[int] = 1

    def __init__(self, value: Any) -> None:
        self.parts: tuple[Any, ...] = (value,)

    @staticmethod
    def reduce(into: MutableMapping[str, Number], name: str, ranks: Sequence[int], parts: Parts) -> None:
        """Put the result of all ranks ``into`` a mapping, under ``name`` or names that begin so."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(str, self.parts))})"


class Mean(Reduction):
    """The mean over ranks, each by its weight: the sum of ``total`` over the sum of ``count``.

    Args:
        total: the sum of what this rank has: of the losses of its tokens, samples or micro-batches.
        count: of how many; 0 where this rank has none. All 0: the mean is NaN.
    """

    __slots__ = ()
    kind = "mean"
    width = 2

    def __init__(self, total: Any, count: Any = 1) -> None:
        self.parts = (total, count)

    @staticmethod
    def reduce(into: MutableMapping[str, Number], name: str, ranks: Sequence[int], parts: Parts) -> None:
        """See :class:`Reduction`."""
        count = _sum(parts[1])
        into[name] = _sum(parts[0]) / count if count else math.nan


class Known(Mean):
    """The mean over ranks that know it; there is none where every ``count`` is 0.

    For what a rank may be unable to measure: it takes part, so that nobody waits for it, and adds nothing.
    """

    __slots__ = ()
    kind = "known"

    @staticmethod
    def reduce(into: MutableMapping[str, Number], name: str, ranks: Sequence[int], parts: Parts) -> None:
        """See :class:`Reduction`."""
        if _sum(parts[1]):
            Mean.reduce(into, name, ranks, parts)


class Sum(Reduction):
    """The sum over ranks."""

    __slots__ = ()
    kind = "sum"

    @staticmethod
    def reduce(into: MutableMapping[str, Number], name: str, ranks: Sequence[int], parts: Parts) -> None:
        """See :class:`Reduction`."""
        into[name] = _sum(parts[0])


class Min(Reduction):
    """The smallest value of any rank."""

    __slots__ = ()
    kind = "min"

    @staticmethod
    def reduce(into: MutableMapping[str, Number], name: str, ranks: Sequence[int], parts: Parts) -> None:
        """See :class:`Reduction`."""
        into[name] = math.nan if _has_nan(parts[0]) else float(min(parts[0]))


class Max(Reduction):
    """The largest value of any rank."""

    __slots__ = ()
    kind = "max"

    @staticmethod
    def reduce(into: MutableMapping[str, Number], name: str, ranks: Sequence[int], parts: Parts) -> None:
        """See :class:`Reduction`."""
        into[name] = math.nan if _has_nan(parts[0]) else float(max(parts[0]))


class MinMax(Reduction):
    """The smallest and the largest value of any rank, as ``<name>/min`` and ``<name>/max``.

    Args:
        low, high: the range of what this rank has; ``high`` is ``low`` where it has one value.
    """

    __slots__ = ()
    kind = "minmax"
    width = 2

    def __init__(self, low: Any, high: Any = None) -> None:
        self.parts = (low, low if high is None else high)

    @staticmethod
    def reduce(into: MutableMapping[str, Number], name: str, ranks: Sequence[int], parts: Parts) -> None:
        """See :class:`Reduction`."""
        Min.reduce(into, f"{name}/min", ranks, parts[:1])
        Max.reduce(into, f"{name}/max", ranks, parts[1:])


class Std(Reduction):
    """The standard deviation over ranks, of all values together (divided by their number, not one less).

    Args:
        mean: this rank's value, or the mean of several.
        spread: where it has several: the sum of their squared differences from that mean.
        count: how many; 0 where this rank has none. All 0: the result is NaN.

    Source: Chan, Golub, LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances" (1979).
    """

    __slots__ = ()
    kind = "std"
    width = 3

    def __init__(self, mean: Any, spread: Any = 0.0, count: Any = 1) -> None:
        self.parts = (mean, spread, count)

    @staticmethod
    def reduce(into: MutableMapping[str, Number], name: str, ranks: Sequence[int], parts: Parts) -> None:
        """See :class:`Reduction`."""
        nonempty = [(mean, spread, count) for mean, spread, count in zip(*parts, strict=True) if count]
        total = _sum([count for _, _, count in nonempty])
        if not total:
            into[name] = math.nan
            return
        middle = _sum([mean * count for mean, _, count in nonempty]) / total
        squares = _sum([spread + count * (mean - middle) * (mean - middle) for mean, spread, count in nonempty])
        into[name] = math.sqrt(squares / total) if squares >= 0 else math.nan


class SampleStd(Std):
    """As :class:`Std`, divided by one less than the number of values, as ``torch.std`` does. One value: NaN."""

    __slots__ = ()
    kind = "sample_std"

    @staticmethod
    def reduce(into: MutableMapping[str, Number], name: str, ranks: Sequence[int], parts: Parts) -> None:
        """See :class:`Reduction`."""
        Std.reduce(into, name, ranks, parts)
        total = _sum([count for count in parts[2] if count])
        into[name] = into[name] * math.sqrt(total / (total - 1)) if total > 1 else math.nan


class Norm(Reduction):
    """The l2 norm of what the ranks have together: each gives its own part's."""

    __slots__ = ()
    kind = "norm"

    @staticmethod
    def reduce(into: MutableMapping[str, Number], name: str, ranks: Sequence[int], parts: Parts) -> None:
        """See :class:`Reduction`."""
        into[name] = math.nan if _has_nan(parts[0]) else math.hypot(*parts[0])


class Range(Reduction):
    """From the lowest end to the highest one of any rank: the largest ``high`` less the smallest ``low``."""

    __slots__ = ()
    kind = "range"
    width = 2

    def __init__(self, low: Any, high: Any = None) -> None:
        self.parts = (low, low if high is None else high)

    @staticmethod
    def reduce(into: MutableMapping[str, Number], name: str, ranks: Sequence[int], parts: Parts) -> None:
        """See :class:`Reduction`."""
        wrong = _has_nan(parts[0]) or _has_nan(parts[1])
        into[name] = math.nan if wrong else float(max(parts[1]) - min(parts[0]))


class All(Reduction):
    """Every rank's value, as ``<name>/rank_0``, ``<name>/rank_1``, …"""

    __slots__ = ()
    kind = "all"

    @staticmethod
    def reduce(into: MutableMapping[str, Number], name: str, ranks: Sequence[int], parts: Parts) -> None:
        """See :class:`Reduction`."""
        into.update({f"{name}/rank_{rank}": float(value) for rank, value in zip(ranks, parts[0], strict=True)})


KINDS: dict[str, type[Reduction]] = {
    kind.kind: kind for kind in (Mean, Known, Sum, Min, Max, MinMax, Std, SampleStd, Norm, Range, All)
}


class Layout:
    """Values across ranks in one call of ``log``: names and kinds, whose parts lie in one flat row.

    Attributes:
        names, kinds: of the values, in order. width: numbers in a row.
    """

    __slots__ = ("_columns", "kinds", "names", "width")

    def __init__(self, names: Sequence[str], kinds: Sequence[str]) -> None:
        self.names = tuple(names)
        self.kinds = tuple(kinds)
        self._columns: list[tuple[str, type[Reduction], int, int]] = []
        start = 0
        for name, word in zip(self.names, self.kinds, strict=True):
            kind = KINDS[word]
            self._columns.append((name, kind, start, start + kind.width))
            start += kind.width
        self.width = start

    def complete_values(self, row: Sequence[Number | None]) -> list[Number | None]:
        """The same row without values of which parts are missing."""
        complete: list[Number | None] = []
        for _, kind, start, end in self._columns:
            parts = row[start:end]
            complete.extend([None] * kind.width if None in parts else parts)
        return complete

    def reduce(self, rows: Mapping[int, Sequence[Number | None]]) -> dict[str, Number]:
        """The values of all ranks by name.

        Args:
            rows: by rank: a row of this layout. A value whose first part is None isn't there on that rank; one
                that no rank has is left out.
        """
        ranks = sorted(rows)
        columns: list[Any] = list(zip(*(rows[rank] for rank in ranks), strict=True))
        values: dict[str, Number] = {}
        for name, kind, start, end in self._columns:
            parts = columns[start:end]
            if None not in parts[0]:
                kind.reduce(values, name, ranks, parts)
                continue
            present = [index for index, value in enumerate(parts[0]) if value is not None]
            if present:
                chosen = [[part[index] for index in present] for part in parts]
                kind.reduce(values, name, [ranks[index] for index in present], chosen)
        return values


def _sum(values: Sequence[Number]) -> float:
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):  # beyond what a float holds, or infinities of both signs
        return float(sum(float(value) for value in values))


def _has_nan(values: Sequence[Number]) -> bool:
    total = sum(values)  # NaN if any of them is, or where infinities cancel
    return total != total and any(value != value for value in values)
