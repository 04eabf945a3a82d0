"""Values across ranks being gathered: what each rank adds to a value at a step, until all are there or late.

Each name is a *series*: its steps in order, each a *cell* that is open until every rank has added its part. Which cell
a rank's part belongs to follows from its step and from what that rank added before: the first one of that step behind
its last one. So steps may repeat and go back, ranks may leave some out or log other names, and a rank that is behind by
thousands of steps finds its place. Cells are passed on in order. A cell is complete when each rank that is known to
log the name has added its part, has added to a later cell, or is gone; when it has waited too long, it is complete
without those who are late, and what they add later is dropped.

Pure arithmetic: who reads and writes is :mod:`trackers.relay.aggregation.aggregator`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from trackers.records import Number
from trackers.reductions import KINDS, Reduction

PASSED = -1


class WindowRow:
    """One row of a rank's stream. width: values in it. left: how many of them are still in open cells."""

    __slots__ = ("left", "offset", "width")

    def __init__(self, offset: int, width: int) -> None:
        self.offset = offset
        self.width = width
        self.left = width


class StepRanges:
    """Steps in order, in few bytes where they follow a pattern: ``[first, last, stride]`` for each stretch."""

    __slots__ = ("spans",)

    def __init__(self, spans: Collection[Sequence[int]] = ()) -> None:
        self.spans: list[list[int]] = [list(span) for span in spans]

    def __bool__(self) -> bool:
        return bool(self.spans)

    def add(self, step: int) -> None:
        """One more step behind the others."""
        if self.spans:
            first, last, stride = self.spans[-1]
            if first == last and step > last:
                self.spans[-1] = [first, step, step - last]
                return
            if step == last + stride and stride > 0:
                self.spans[-1][1] = step
                return
        self.spans.append([step, step, 0])

    def take(self, step: int | None) -> bool:
        """Take a step out, with all before it. None takes the first. False if it isn't there."""
        for place, (first, last, stride) in enumerate(self.spans):
            if step is None or (first <= step <= last and (stride == 0 or (step - first) % stride == 0)):
                following = (first if step is None else step) + stride
                rest = [[following, last, stride]] if stride and following <= last else []
                if rest and following == last:
                    rest = [[last, last, 0]]
                self.spans[: place + 1] = rest
                return True
        return False


class Cell:
    """A value at a step, open. step: None while only ranks that don't know it have added. main: its time is the main
    rank's. missing: ranks that it was completed without, though they were waited for."""

    __slots__ = ("main", "missing", "opened", "parts", "step", "time")

    def __init__(self, step: int | None, time: float, opened: float) -> None:
        self.step = step
        self.time = time
        self.opened = opened
        self.main = False
        self.parts: dict[int, tuple[Sequence[Number], WindowRow]] = {}
        self.missing: tuple[int, ...] = ()


class WindowCells:
    """One name's cells.

    Args:
        ranks: all there are.
        owed: by rank, the steps completed without it that it may still add to.

    Attributes:
        awaited: ranks whose part is waited for: all, until it is seen that one never logs this name.
        givers: ranks that ever added a part.
    """

    def __init__(
        self,
        name: str,
        kind: type[Reduction],
        ranks: Collection[int],
        *,
        givers: Collection[int] = (),
        owed: dict[int, StepRanges] | None = None,
    ) -> None:
        self.name = name
        self.kind = kind
        self.awaited = set(ranks)
        self.givers = set(givers)
        self.owed = owed or {}
        self.cells: list[Cell] = []
        self._done = 0
        # By rank: the number of the last cell that it added to, counted over all cells there ever were.
        self._marks: dict[int, int] = dict.fromkeys(ranks, PASSED)

    def add(self, rank: int, step: int | None, time: float, parts: Sequence[Number], line: WindowRow, *, main: bool,
            now: float) -> bool:  # fmt: skip
        """Put a rank's part where it belongs. False: its cell was completed without it."""
        self.givers.add(rank)
        self.awaited.add(rank)
        first = max(self._marks.get(rank, PASSED) + 1 - self._done, 0)
        cells = self.cells
        owed = self.owed.get(rank)
        if owed and owed.take(step):
            return False
        for place in range(first, len(cells)):
            cell = cells[place]
            if cell.step == step or cell.step is None or step is None:
                if owed:
                    owed.spans.clear()  # it has gone past them
                break
        else:
            place = self._place(first, step)
            cell = Cell(step, time, now)
            if place < len(cells):
                self._make_room(place)
            cells.insert(place, cell)
        if cell.step is None:
            cell.step = step
        if main and not cell.main:
            cell.main, cell.time = True, time
        cell.parts[rank] = parts, line
        self._marks[rank] = self._done + place
        return True

    def _place(self, first: int, step: int | None) -> int:
        """Where a step that no other rank has added to yet goes: in order among those that follow one another."""
        before = step
        for place in range(first, len(self.cells) if step is not None else first):
            other = self.cells[place].step
            if other is None or step is None:
                continue
            if other > step or (place > first and before is not None and other < before):
                return place
            before = other
        return len(self.cells)

    def _make_room(self, place: int) -> None:
        here = self._done + place
        for rank, mark in self._marks.items():
            if mark >= here:
                self._marks[rank] = mark + 1

    def waits_for(self) -> list[int]:
        """Ranks that the first cell lacks and that have added to none behind it."""
        if not self.cells:
            return []
        parts = self.cells[0].parts
        return [rank for rank in self.awaited if rank not in parts and self._marks.get(rank, PASSED) < self._done]

    def complete(self, gone: Collection[int]) -> bool:
        """Whether nobody needs to be waited for with the first cell. gone: ranks that add nothing any more."""
        if not self.cells:
            return False
        if len(self.cells[0].parts) >= len(self.awaited):
            return True
        return all(rank in gone for rank in self.waits_for())

    def pop(self, missing: Collection[int]) -> Cell:
        """Take the first cell out. missing: ranks that it is completed without; they may still add to it, too late."""
        cell = self.cells.pop(0)
        self._done += 1
        cell.missing = tuple(missing)
        if cell.step is not None:
            for rank in missing:
                self.owed.setdefault(rank, StepRanges()).add(cell.step)
        for _, line in cell.parts.values():
            line.left -= 1
        return cell

    def result(self, cell: Cell, into: dict[str, Number]) -> None:
        """The value of all ranks, into a mapping of names."""
        ranks = sorted(cell.parts)
        columns = list(zip(*(cell.parts[rank][0] for rank in ranks), strict=True))
        self.kind.reduce(into, self.name, ranks, columns)


class Gathering:
    """All series of an attempt.

    ``seeds``: by name, steps that were passed on in a life that left nothing but its results: no rank adds to them.
    ``late``: by rank, rows that came after their cells were completed.

    Args:
        ranks: all there are. main: which one logs.
        complain: called with one line about ranks that disagree.
    """

    def __init__(self, ranks: Collection[int], main: int, complain: Callable[[str], None]) -> None:
        self.ranks = set(ranks)
        self.main = main
        self.series: dict[str, WindowCells] = {}
        self.seeds: dict[str, StepRanges] = {}
        self.late: dict[int, int] = {}
        self._complain = complain

    def add(self, rank: int, step: int | None, time: float, line: WindowRow, columns: StreamColumns,
            values: Sequence[float | None], now: float, only: Collection[str] | None = None) -> None:  # fmt: skip
        """Take one row. only: the names in it that count; the others were passed on in an earlier life."""
        late = False
        main = rank == self.main
        for name, kind, start, end in columns.places:
            if values[start] is None or (only is not None and name not in only):
                line.left -= 1
                continue
            series = self.series.get(name)
            if series is None:
                owed = {r: StepRanges(self.seeds[name].spans) for r in self.ranks} if name in self.seeds else None
                series = self.series[name] = WindowCells(name, kind, self.ranks, owed=owed)
            elif series.kind is not kind:
                self._complain(
                    f"{name}: rank {rank} logs it as {kind.__name__}, another rank as {series.kind.__name__}: "
                    f"what rank {rank} has is left out"
                )
                line.left -= 1
                continue
            parts: Sequence[Number] = values[start:end]  # type: ignore[assignment]
            if not series.add(rank, step, time, parts, line, main=main, now=now):
                line.left -= 1
                late = True
        if late:
            self.late[rank] = self.late.get(rank, 0) + 1

    def ready(
        self, gone: Collection[int], behind: Callable[[WindowCells, float], Collection[int] | None]
    ) -> list[tuple[WindowCells, Cell]]:
        """Cells that are complete, in order.

        Args:
            gone: ranks that add nothing any more.
            behind: asked with a series whose first cell waits, and since when: the ranks that are too late for it, or
                None to go on waiting.
        """
        found = []
        for series in self.series.values():
            while series.cells:
                if series.complete(gone):
                    found.append((series, series.pop([rank for rank in series.waits_for() if rank in gone])))
                    continue
                missing = behind(series, series.cells[0].opened)
                if missing is None:
                    break
                found.append((series, series.pop(missing)))
        return found

    def open_names(self, lines: Collection[WindowRow]) -> dict[WindowRow, list[str]]:
        """Of some lines, the names that are still in open cells."""
        found: dict[WindowRow, list[str]] = {line: [] for line in lines}
        for name, series in self.series.items() if found else ():
            for cell in series.cells:
                for _, line in cell.parts.values():
                    if line in found:
                        found[line].append(name)
        return found


class StreamColumns:
    """Layout of a stream's rows. places: name, kind, and where its parts lie. width: numbers in a row."""

    __slots__ = ("places", "width")

    def __init__(self, names: Sequence[str], kinds: Sequence[str]) -> None:
        self.places: list[tuple[str, type[Reduction], int, int]] = []
        start = 0
        for name, word in zip(names, kinds, strict=True):
            kind = KINDS[word]
            self.places.append((name, kind, start, start + kind.width))
            start += kind.width
        self.width = start
