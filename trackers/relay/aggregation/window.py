"""Values across ranks being gathered: each rank's part of a value at a step, until all are present or late.

Each name is a *series*: its steps in order, each a *cell* that is open until every rank has added its part. A rank's
part belongs to the first cell of its step after the cell that the rank added to last. So steps may repeat and go back,
ranks may leave some out or log other names, and a rank may be behind by thousands of steps. Cells are passed on in
order. A cell is complete when each rank that is known to log the name has added its part, has added to a later cell, or
is gone; after a deadline it is complete without the late ranks, whose later parts are dropped.

Pure arithmetic: reading and writing is done by :mod:`trackers.relay.aggregation.aggregator`.
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
    """Steps in order, stored as ranges: ``[first, last, stride]``."""

    __slots__ = ("spans",)

    def __init__(self, spans: Collection[Sequence[int]] = ()) -> None:
        self.spans: list[list[int]] = [list(span) for span in spans]

    def __bool__(self) -> bool:
        return bool(self.spans)

    def add(self, step: int) -> None:
        """Append a step."""
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
        """Remove a step and all before it. None removes the first. False if the step isn't there."""
        for index, (first, last, stride) in enumerate(self.spans):
            if step is None or (first <= step <= last and (stride == 0 or (step - first) % stride == 0)):
                following = (first if step is None else step) + stride
                rest = [[following, last, stride]] if stride and following <= last else []
                if rest and following == last:
                    rest = [[last, last, 0]]
                self.spans[: index + 1] = rest
                return True
        return False


class Cell:
    """An open value at a step. step: None while only ranks that don't know it have added. main: its time is the main
    rank's. missing: ranks that were waited for in vain."""

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
        awaited: ranks whose part is waited for: all but those that turn out never to log this name.
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
        self._popped = 0
        # By rank: number of the last cell that it added to, counted from the series' first cell.
        self._last_cells: dict[int, int] = dict.fromkeys(ranks, PASSED)

    def add(self, rank: int, step: int | None, time: float, parts: Sequence[Number], line: WindowRow, *, main: bool,
            now: float) -> bool:  # fmt: skip
        """Add a rank's part to its cell. False: that cell was completed without it."""
        self.givers.add(rank)
        self.awaited.add(rank)
        first = max(self._last_cells.get(rank, PASSED) + 1 - self._popped, 0)
        cells = self.cells
        owed = self.owed.get(rank)
        if owed and owed.take(step):
            return False
        for index in range(first, len(cells)):
            cell = cells[index]
            if cell.step == step or cell.step is None or step is None:
                if owed:
                    owed.spans.clear()  # the rank has gone past them
                break
        else:
            index = self._insert_index(first, step)
            cell = Cell(step, time, now)
            if index < len(cells):
                self._shift_later(index)
            cells.insert(index, cell)
        if cell.step is None:
            cell.step = step
        if main and not cell.main:
            cell.main, cell.time = True, time
        cell.parts[rank] = parts, line
        self._last_cells[rank] = self._popped + index
        return True

    def _insert_index(self, first: int, step: int | None) -> int:
        """Index at which to insert a new cell: in the order of steps, within a stretch of ascending steps."""
        before = step
        for index in range(first, len(self.cells) if step is not None else first):
            other = self.cells[index].step
            if other is None or step is None:
                continue
            if other > step or (index > first and before is not None and other < before):
                return index
            before = other
        return len(self.cells)

    def _shift_later(self, index: int) -> None:
        number = self._popped + index
        for rank, last in self._last_cells.items():
            if last >= number:
                self._last_cells[rank] = last + 1

    def waits_for(self) -> list[int]:
        """Ranks that have added neither to the first cell nor to a later one."""
        if not self.cells:
            return []
        parts = self.cells[0].parts
        return [
            rank for rank in self.awaited if rank not in parts and self._last_cells.get(rank, PASSED) < self._popped
        ]

    def complete(self, gone: Collection[int]) -> bool:
        """Whether the first cell waits for no rank. gone: ranks that add nothing any more."""
        if not self.cells:
            return False
        if len(self.cells[0].parts) >= len(self.awaited):
            return True
        return all(rank in gone for rank in self.waits_for())

    def pop(self, missing: Collection[int]) -> Cell:
        """Remove the first cell. missing: ranks that it is completed without; their later parts are dropped."""
        cell = self.cells.pop(0)
        self._popped += 1
        cell.missing = tuple(missing)
        if cell.step is not None:
            for rank in missing:
                self.owed.setdefault(rank, StepRanges()).add(cell.step)
        for _, line in cell.parts.values():
            line.left -= 1
        return cell

    def result(self, cell: Cell, into: dict[str, Number]) -> None:
        """Add the value of all ranks to a mapping by name."""
        ranks = sorted(cell.parts)
        columns = list(zip(*(cell.parts[rank][0] for rank in ranks), strict=True))
        self.kind.reduce(into, self.name, ranks, columns)


class Gathering:
    """All series of an attempt.

    ``seeds``: by name, steps passed on by an earlier reducer whose state is lost: no rank adds to them.
    ``late``: by rank, number of rows that came after their cells were completed.

    Args:
        ranks: all ranks. main: the one that logs.
        say: called with one line about ranks that disagree.
    """

    def __init__(self, ranks: Collection[int], main: int, say: Callable[[str], None]) -> None:
        self.ranks = set(ranks)
        self.main = main
        self.series: dict[str, WindowCells] = {}
        self.seeds: dict[str, StepRanges] = {}
        self.late: dict[int, int] = {}
        self._say = say

    def add(self, rank: int, step: int | None, time: float, line: WindowRow, columns: StreamColumns,
            values: Sequence[float | None], now: float, only: Collection[str] | None = None) -> None:  # fmt: skip
        """Add one row. only: names in it that count; an earlier reducer passed on the others."""
        late = False
        main = rank == self.main
        for name, kind, start, end in columns.slices:
            if values[start] is None or (only is not None and name not in only):
                line.left -= 1
                continue
            series = self.series.get(name)
            if series is None:
                owed = {r: StepRanges(self.seeds[name].spans) for r in self.ranks} if name in self.seeds else None
                series = self.series[name] = WindowCells(name, kind, self.ranks, owed=owed)
            elif series.kind is not kind:
                self._say(
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
            behind: called with a series whose first cell waits, and the time since which it does. Returns the ranks
                that are too late for it, or None to go on waiting.
        """
        ready_cells = []
        for series in self.series.values():
            while series.cells:
                if series.complete(gone):
                    ready_cells.append((series, series.pop([rank for rank in series.waits_for() if rank in gone])))
                    continue
                missing = behind(series, series.cells[0].opened)
                if missing is None:
                    break
                ready_cells.append((series, series.pop(missing)))
        return ready_cells

    def open_names(self, lines: Collection[WindowRow]) -> dict[WindowRow, list[str]]:
        """By row, the names that are still in open cells."""
        names_by_row: dict[WindowRow, list[str]] = {line: [] for line in lines}
        for name, series in self.series.items() if names_by_row else ():
            for cell in series.cells:
                for _, line in cell.parts.values():
                    if line in names_by_row:
                        names_by_row[line].append(name)
        return names_by_row


class StreamColumns:
    """Layout of a stream's rows. slices: name, kind, and first and last index of its parts. width: numbers in a row."""

    __slots__ = ("slices", "width")

    def __init__(self, names: Sequence[str], kinds: Sequence[str]) -> None:
        self.slices: list[tuple[str, type[Reduction], int, int]] = []
        start = 0
        for name, kind_name in zip(names, kinds, strict=True):
            kind = KINDS[kind_name]
            self.slices.append((name, kind, start, start + kind.width))
            start += kind.width
        self.width = start
