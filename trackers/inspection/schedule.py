"""When a feature looks at tensors: every so many iterations, within bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trackers.errors import UsageError

KEYS = ("freq", "start_step", "end_step", "start_end_list")


@dataclass(frozen=True)
class InspectionSchedule:
    """The iterations at which to look: multiples of ``freq`` within any of the spans.

    Attributes:
        freq: 1 or more. spans: first and last iteration; None: no last one.
    """

    freq: int = 1
    spans: tuple[tuple[int, int | None], ...] = ((0, None),)

    def due(self, iteration: int) -> bool:
        """Whether to look at this iteration."""
        if iteration % self.freq:
            return False
        return any(start <= iteration and (end is None or iteration <= end) for start, end in self.spans)

    @classmethod
    def read(cls, settings: Mapping[str, Any], where: str, *, base: bool = False) -> InspectionSchedule:
        """From a feature's settings.

        Args:
            where: what error messages begin with.
            base: a feature of nvdlfw-inspect's own, whose ``start_end_list`` excludes each end; TransformerEngine's
                includes it. ``end_step`` is included in both, and -1 is no end.

        Raises:
            UsageError: a value that makes no sense.
        """
        freq = _whole(settings.get("freq"), 1, f"{where}: freq")
        if freq < 1:
            raise UsageError(f"{where}: freq={freq}: give 1 or more")
        listed = settings.get("start_end_list")
        if not listed:
            start = _whole(settings.get("start_step"), 0, f"{where}: start_step")
            return cls(freq, ((start, _end(settings.get("end_step"), f"{where}: end_step")),))
        if not isinstance(listed, list) or not all(isinstance(one, (list, tuple)) and len(one) == 2 for one in listed):
            raise UsageError(f"{where}: start_end_list={listed!r}: give pairs, as in [[0, 20], [80, 100]]")
        spans = []
        for first, last in listed:
            end = _end(last, f"{where}: start_end_list")
            spans.append((_whole(first, 0, f"{where}: start_end_list"), end if end is None or not base else end - 1))
        return cls(freq, tuple(spans))


def _whole(value: Any, default: int, where: str) -> int:
    if value is None:
        return default
    if type(value) is not int:
        raise UsageError(f"{where}={value!r}: give a whole number")
    return value


def _end(value: Any, where: str) -> int | None:
    end = _whole(value, -1, where)
    return None if end == -1 else end
