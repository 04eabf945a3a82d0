"""What one call of ``log`` adds to values across ranks: its reductions as one flat row of numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trackers.records import Number
from trackers.reductions import Layout, Reduction
from trackers.values import number


class Contribution:
    """The reductions of one call.

    Args:
        reductions: by name, flat.
        move: starts moving a value from an accelerator; None for one that can be read at once.

    Attributes:
        layout: names and kinds. parts: the row's numbers, by place; some may still be on their way.
        problems: one line for each reduction that can't be recorded.
    """

    __slots__ = ("layout", "parts", "problems")

    def __init__(self, reductions: Mapping[str, Reduction], move: Callable[[Any], Any]) -> None:
        self.parts: dict[Any, Any] = {}
        self.problems: list[str] = []
        taken: list[tuple[str, str]] = []
        for name, reduction in reductions.items():
            try:
                moved = [_moved(part, move) for part in reduction.parts]
            except Exception as error:
                self.problems.append(f"{name}: {error}"[:300])
                continue
            taken.append((name, reduction.kind))
            self.parts.update(enumerate(moved, len(self.parts)))
        self.layout = Layout([name for name, _ in taken], [kind for _, kind in taken])

    def row(self, arrived: Mapping[Any, Number]) -> list[Number | None]:
        """The row; of a value with a part that never arrived, every part is None."""
        row: list[Number | None] = [arrived.get(place) for place in range(self.layout.width)]
        return row if None not in row else self.layout.whole(row)


def _moved(part: Any, move: Callable[[Any], Any]) -> Any:
    if type(part) is float or type(part) is int:
        return part
    moving = move(part)
    return number(part) if moving is None else moving
