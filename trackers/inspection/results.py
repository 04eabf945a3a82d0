"""Results of hooks as values to log: copied to the host in one transfer, and combined there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from trackers.inspection.hooks import Wanted
from trackers.inspection.statistics import MomentSums, Whole, whole
from trackers.reductions import Max, Reduction
from trackers.values.deferred import Vector, number


class Values(NamedTuple):
    """By name. own: this rank's numbers. shared: what is to be logged: the same, or parts of those of all ranks."""

    own: dict[str, Any]
    shared: dict[str, Any]


def values(torch: Any, found: Sequence[tuple[Wanted, MomentSums]], ranks: int) -> Values:
    """The statistics of all that was found in an iteration.

    Several forward passes are taken together. Of several ranks, each has its part of an activation or a gradient; the
    weights are the same on all that have them.
    """
    tensors: dict[tuple[str, str], _Tensor] = {}
    for (wanted, part), (vector, place) in zip(found, _moved(torch, [part for _, part in found]), strict=True):
        tensors.setdefault((wanted.layer, wanted.tensor), _Tensor(wanted)).add(part, vector, place)
    own: dict[str, Any] = {}
    shared: dict[str, Any] = {}
    for tensor in tensors.values():
        for name, statistic in tensor.wanted.statistics:
            full = f"{tensor.wanted.layer}_{tensor.wanted.tensor}_{name}"
            own[full] = shared[full] = tensor.number(statistic.value)
            if ranks > 1:
                alike = tensor.wanted.tensor == "weight"
                kind: type[Reduction] = Max if alike else statistic.kind
                shared[full] = kind(*([own[full]] if alike else map(tensor.number, statistic.parts)))
    return Values(own, shared)


def _moved(torch: Any, parts: Sequence[MomentSums]) -> list[tuple[Vector, int]]:
    """Where each part's numbers will be: one copy to the host for each device."""
    places: list[Any] = [None] * len(parts)
    for device in dict.fromkeys(part.row.device for part in parts):
        here = [number for number, part in enumerate(parts) if part.row.device == device]
        vector = Vector(torch.cat([parts[number].row for number in here]))
        place = 0
        for number_ in here:
            places[number_] = vector, place
            place += len(parts[number_].names)
    return places


class _Tensor:
    """A tensor's numbers, when they have arrived."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self._parts: list[tuple[MomentSums, Vector, int]] = []
        self._whole: Whole | None = None

    def add(self, part: MomentSums, vector: Vector, place: int) -> None:
        """One more part of it, whose numbers begin at this place."""
        self._parts.append((part, vector, place))

    def number(self, of: Any) -> Any:
        """A number made of them, now or later."""
        return number([vector for _, vector, _ in self._parts], lambda: of(self._together()))

    def _together(self) -> Whole:
        if self._whole is None:
            alike: dict[tuple[str, ...], list[Whole]] = {}
            for part, vector, place in self._parts:
                row = {name: vector.value(place + column) for column, name in enumerate(part.names)}
                alike.setdefault(part.names, []).append({"count": part.elements, **row})
            self._whole = {name: one for parts in alike.values() for name, one in whole(parts).items()}
        return self._whole
