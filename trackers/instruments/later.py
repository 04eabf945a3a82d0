"""Numbers that are known once a GPU has come so far: logged like any other, and recorded when they are there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from trackers.pending import Transfer
from trackers.records import Number


class Awaited(Protocol):
    """Something that may not be known yet."""

    @property
    def ready(self) -> bool:
        """Asks, never waits."""


class Later(Transfer):
    """A number computed from what is still on its way. ``run.log`` takes it as it takes a tensor."""

    def __init__(self, sources: Sequence[Awaited], compute: Callable[[], Number]) -> None:
        self._sources = sources
        self._compute = compute

    def ready(self) -> bool:
        return all(source.ready for source in self._sources)

    def value(self) -> Number:
        return self._compute()


def number(sources: Sequence[Awaited], compute: Callable[[], Number]) -> Any:
    """The number itself where all is known, else a :class:`Later`."""
    later = Later(sources, compute)
    return later.value() if later.ready() else later
