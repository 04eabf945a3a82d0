"""Objects of this process that users keep in their own, which can be copied and pickled all the same."""

from __future__ import annotations

from typing import Any


class Stays:
    """A deep copy of what holds one shares it. A pickled one is :meth:`_elsewhere`'s, which does nothing."""

    __slots__ = ()

    def _elsewhere(self) -> tuple[Any, ...]:
        """What to call, and with what, for one that does nothing."""
        raise NotImplementedError

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self

    def __reduce__(self) -> Any:
        return self._elsewhere()
