"""Numbers that are known once a GPU has come so far: logged like any other, and recorded when they are there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from trackers.records import Number
from trackers.values.coerce import number as plain_number
from trackers.values.device_copy import TorchTransfer, Transfer, transfer


class Awaited(Protocol):
    """Something that may not be known yet."""

    @property
    def ready(self) -> bool:
        """Asks, never waits."""


class DeferredNumber(Transfer):
    """A number computed from what is still on its way. ``run.log`` takes it as it takes a tensor."""

    def __init__(self, sources: Sequence[Awaited], compute: Callable[[], Number]) -> None:
        self._sources = sources
        self._compute = compute

    def ready(self) -> bool:
        return all(source.ready for source in self._sources)

    def value(self) -> Number:
        return self._compute()


def number(sources: Sequence[Awaited], compute: Callable[[], Number]) -> Any:
    """The number itself where all is known, else a :class:`DeferredNumber`."""
    later = DeferredNumber(sources, compute)
    return later.value() if later.ready() else later


class Vector:
    """Many numbers in one tensor: one copy brings them all to the host."""

    def __init__(self, tensor: Any) -> None:
        self._moving = TorchTransfer(tensor) if getattr(tensor, "is_cuda", False) else None
        self._values: list[Number] | None = tensor.tolist() if self._moving is None else None

    @property
    def ready(self) -> bool:
        return self._moving is None or self._moving.ready()

    def value(self, place: int) -> Number:
        """One of the numbers, once ``ready``."""
        if self._values is None:
            assert self._moving is not None
            self._values = self._moving.host.tolist()
        return self._values[place]


def elements(names: Sequence[str], tensor: Any) -> dict[str, Any]:
    """The numbers of a one-dimensional tensor by name; :class:`DeferredNumber` for those on a GPU."""
    vector = Vector(tensor)
    return {name: number([vector], lambda place=place: vector.value(place)) for place, name in enumerate(names)}  # type: ignore[misc]


class Scalar:
    """A number, or a scalar tensor that may be on its way from a GPU."""

    def __init__(self, value: Any) -> None:
        moving = transfer(value)
        self._moving = moving
        self._value = plain_number(value) if moving is None else None

    @property
    def ready(self) -> bool:
        return self._moving is None or self._moving.ready()

    def value(self) -> Number:
        """The number, once ``ready``."""
        if self._value is None:
            assert self._moving is not None
            self._value = self._moving.value()
        return self._value
