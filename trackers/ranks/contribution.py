"""Contribution of one call of ``log`` to values across ranks: its reductions as one flat row of numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from trackers.errors import reason
from trackers.formats.json_values import MAX_DEPTH, MAX_NAME
from trackers.records import SUMMARY_PREFIX, Finish, Number, Record
from trackers.reductions import KINDS, Layout, Reduction
from trackers.support.interruption import pass_on
from trackers.values.coerce import Unrecordable, flat_name, number
from trackers.values.device_copy import batched, hold

PLAIN = frozenset({float, int, bool, str, type(None)})
"""Types of values that are no reductions and hold none."""
NUMBERS = frozenset({float, int})
REDUCTIONS = frozenset(KINDS.values())
MOST_LAYOUTS = 1000  # names with steps in them must not fill the memory


def reductions(
    values: Mapping[Any, Any], problems: list[str], prefix: str = "", depth: int = 0
) -> dict[str, Reduction]:
    """The reductions among the values of a call, also in nested mappings, by flat name; other values are ignored."""
    if not prefix and nothing_else(values):
        return values  # type: ignore[return-value]
    collected: dict[str, Reduction] = {}
    for key, value in list(values.items()):
        if isinstance(value, Reduction):
            name = flat_name(key, problems, prefix)
            if name.strip("/ "):
                collected[name] = value
        elif type(value) not in PLAIN and isinstance(value, Mapping) and depth < MAX_DEPTH:
            collected.update(reductions(value, problems, flat_name(key, problems, prefix) + "/", depth + 1))
    return collected


_flat: set[tuple[str, ...]] = set()


def nothing_else(values: Mapping[Any, Any]) -> bool:
    """Whether all values are reductions under flat names: the usual case of a call with many, which needs no copy."""
    if not REDUCTIONS.issuperset(map(type, values.values())):
        return False
    names = tuple(values)
    if names in _flat:
        return True
    if not all(type(name) is str and name.isascii() and 0 < len(name) <= MAX_NAME for name in names):
        return False
    if any(not name.strip("/ ") or name == SUMMARY_PREFIX for name in names):
        return False
    if len(_flat) < MOST_LAYOUTS:
        _flat.add(names)
    return True


class ReductionRow:
    """The reductions of one call.

    Args:
        reductions: by name, flat.
        move: starts moving a value from an accelerator; None for one that can be read at once.
        batch: starts moving those that ``move`` left where they are.

    Attributes:
        layout: names and kinds. parts: the row's numbers; some may still be transfers from an accelerator.
        waiting: the parts by index; empty if none is a transfer.
        problems: one line for each reduction that can't be recorded.
    """

    __slots__ = ("layout", "parts", "problems", "waiting")

    def __init__(
        self,
        reductions: Mapping[str, Reduction],
        move: Callable[[Any], Any],
        batch: Callable[[list[Any]], list[Any]] = lambda parts: parts,
    ) -> None:
        self.problems: list[str] = []
        self.waiting: dict[Any, Any] = {}
        self.parts: list[Any] = [part for reduction in reductions.values() for part in reduction.parts]
        if not NUMBERS.issuperset(map(type, self.parts)):
            reductions = self._move(reductions, move)
            self.parts = batch(self.parts)
            if not NUMBERS.issuperset(map(type, self.parts)):
                self.waiting = dict(enumerate(self.parts))
        self.layout = layout(tuple(reductions), tuple([reduction.kind for reduction in reductions.values()]))

    def _move(self, reductions: Mapping[str, Reduction], move: Callable[[Any], Any]) -> Mapping[str, Reduction]:
        accepted: dict[str, Reduction] = {}
        self.parts = []
        for name, reduction in reductions.items():
            try:
                moved = [_move(part, move) for part in reduction.parts]
            except Unrecordable as error:
                self.problems.append(f"{name}: {error}"[:300])
                continue
            except Exception as error:
                pass_on(error)
                self.problems.append(f"{name}: {reason(error)}"[:300])
                continue
            accepted[name] = reduction
            self.parts += moved
        return accepted

    def row(self, arrived: Mapping[Any, Number]) -> list[Number | None]:
        """The row; if a part of a value never arrived, all parts of that value are None."""
        if not self.waiting:
            return self.parts
        row: list[Number | None] = [arrived.get(index) for index in range(self.layout.width)]
        return row if None not in row else self.layout.complete_values(row)


def _move(part: Any, move: Callable[[Any], Any]) -> Any:
    if type(part) in NUMBERS:
        return part
    moving = move(part)
    if moving is not None:
        return moving
    value = number(part)
    return int(value) if type(value) is bool else value


_layouts: dict[tuple[tuple[str, ...], tuple[str, ...]], Layout] = {}


def layout(names: tuple[str, ...], kinds: tuple[str, ...]) -> Layout:
    """The layout of these values: the same object for the same names and kinds."""
    known = _layouts.get((names, kinds))
    if known is None:
        if len(_layouts) >= MOST_LAYOUTS:
            _layouts.clear()
        known = _layouts[names, kinds] = Layout(names, kinds)
    return known


class Transport(Protocol):
    """Sends values from every rank to the main one.

    By files (``trackers.ranks.transport``) or by a collective (``trackers.ranks.collective_transport``).

    No method raises, and none waits for another rank.
    """

    def move(self, value: Any) -> Any:
        """Start the transfer of a value from an accelerator: see :class:`ReductionRow`."""

    def batch(self, parts: list[Any]) -> list[Any]:
        """Start the transfers of several values at once."""

    def quick(self, step: int | None, time: float, values: Mapping[str, Any]) -> bool:
        """Fast path for a call with the layout of an earlier one. False: nothing was done."""

    def begin(self, step: int | None, time: float, added: ReductionRow) -> dict[Any, Any]:
        """Start to send a call's contribution. Returns the transfers to wait for, see ``pending.Waiting``."""

    def end(self, step: int | None, time: float, added: ReductionRow, arrived: Mapping[Any, Any]) -> dict[str, Number]:
        """Send the contribution after its transfers. Returns values of all ranks that this process must record."""

    def note(self, record: Record) -> None:
        """Pass on a record that the reducer needs: a definition."""

    def close(self, finish: Finish) -> None:
        """This rank has ended with this status."""


class LocalTransport:
    """Transport of a single rank: its value is the value of all ranks."""

    move = staticmethod(hold)
    batch = staticmethod(batched)

    def quick(self, step: int | None, time: float, values: Mapping[str, Any]) -> bool:
        """See :class:`Transport`."""
        return False

    def begin(self, step: int | None, time: float, added: ReductionRow) -> dict[Any, Any]:
        """See :class:`Transport`."""
        return added.waiting

    def end(self, step: int | None, time: float, added: ReductionRow, arrived: Mapping[Any, Any]) -> dict[str, Number]:
        """See :class:`Transport`."""
        return added.layout.reduce({0: added.row(arrived)})

    def note(self, record: Record) -> None:
        """Nobody else reduces."""

    def close(self, finish: Finish) -> None:
        """Nothing waits."""


class DisconnectedTransport:
    """Transport of a rank that can't reach the others: reports a problem at each value across ranks, and records none.

    Args:
        say: called with the text.
    """

    def __init__(self, say: Callable[[str], None], text: str) -> None:
        self.move, self.batch = hold, batched
        self._say = say
        self._text = text

    def quick(self, step: int | None, time: float, values: Mapping[str, Any]) -> bool:
        """See :class:`Transport`."""
        return False

    def begin(self, step: int | None, time: float, added: ReductionRow) -> dict[Any, Any]:
        """See :class:`Transport`."""
        self._say(self._text)
        return {}

    def end(self, step: int | None, time: float, added: ReductionRow, arrived: Mapping[Any, Any]) -> dict[str, Number]:
        """See :class:`Transport`."""
        return {}

    def note(self, record: Record) -> None:
        """Nobody reduces."""

    def close(self, finish: Finish) -> None:
        """Nothing waits."""
