"""The losses of an interval, added up as they come: a value that is no number costs itself, never its neighbours."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from typing import Any

from trackers.reductions import Reduction
from trackers.values.coerce import Unrecordable, number, whole


def scalar(value: Any) -> Any:
    """A number, or a tensor of one number without its graph and dimensions: it may be on a GPU.

    Raises:
        Unrecordable: neither.
    """
    if not hasattr(value, "detach"):
        found = number(value)
        try:
            float(found)
        except OverflowError:
            raise Unrecordable("a number beyond all that a float holds") from None
        return found
    found = whole(value).detach()
    if found.numel() != 1:
        raise Unrecordable(f"an array of shape {tuple(found.shape)} is not a scalar: give its mean or its sum")
    if found.is_complex():
        raise Unrecordable("a complex number")
    if getattr(found, "is_meta", False):
        raise Unrecordable("a tensor without data (meta)")
    return found.reshape(())


class Losses:
    """Sums of the losses since they were last taken.

    Args:
        say: called with a line for a loss that is left out.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._sums: dict[str, Any] = {}
        self._counts: dict[str, int] = {}
        self._nans: Any = 0

    def add(self, losses: Any, advanced: bool) -> dict[str, Any]:
        """Add an iteration's losses by name, where it advanced; what of them can be logged."""
        found: dict[str, Any] = {}
        if not isinstance(losses, Mapping):
            if losses is not None:
                self._say(f"training_log: losses of type {type(losses).__name__} aren't logged: give a mapping")
            return found
        bad: Any = False
        for key, value in losses.items():
            name = str(key)
            if value is None:
                continue
            try:
                if isinstance(value, Reduction):  # of all ranks: the trackers have it, no line of this rank's does
                    found[name] = value
                    continue
                loss = scalar(value)
                one, wrong = _float(loss), _is_bad(loss)
                if advanced:
                    self._sums[name] = self._sums[name] + one if name in self._sums else one
                    self._counts[name] = self._counts.get(name, 0) + 1
                bad = bad | wrong
                found[name] = loss
            except Exception as error:
                self._say(f"training_log: loss {name!r} is left out, all else is logged: {_why(error)}")
        try:
            self._nans = self._nans + bad
        except Exception as error:
            self._say(f"training_log: iterations with NaN aren't counted: {_why(error)}")
        return found

    def take(self) -> tuple[dict[str, tuple[Any, int]], Any]:
        """Each loss's sum and how many iterations it is of; how many iterations had one that is no finite number."""
        found = {name: (total, self._counts[name]) for name, total in self._sums.items()}
        nans, self._nans = self._nans, 0
        self._sums, self._counts = {}, {}
        return found, nans


def _float(value: Any) -> Any:
    return value.float() if hasattr(value, "detach") else float(value)


def _is_bad(loss: Any) -> Any:
    """Whether a loss is no finite number; of a tensor a tensor, so that nobody waits."""
    if hasattr(loss, "detach"):
        return ~sys.modules["torch"].isfinite(loss.float())
    return not math.isfinite(float(loss))


def _why(error: Exception) -> str:
    return str(error) if isinstance(error, Unrecordable) else f"{type(error).__name__}: {error}"
