"""Records as W&B's rows: which values lie in one row, and which ``_step`` it gets. Nothing of the vendor's here.

W&B drops a row whose ``_step`` isn't above the last one's. So each new row gets ``max(training step, last + 1)``,
and the training step itself goes along as ``global_step``. Consecutive records of one training step whose names
differ are one row, as W&B would merge them.

A stream may be delivered again, from any earlier place, in another order, by a process that knows nothing of the one
before it. Which of its records lie at the destination is told by what lies there: a row's step, time and names
(:class:`There`). What isn't found there begins new rows behind all others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from trackers.formats.vendor_system_names import grouped
from trackers.records import MAX_STEP, Media, Metrics, Record, Text, is_sample

STEP = "global_step"
MARKS = 64
MISSES = 10_000
"""Number of consecutive records missing at the destination after which its other rows count as foreign."""
RESERVED = frozenset({"_step", "_runtime", "_timestamp", "_wandb", STEP})
"""Names in a row that are W&B's, or ours: a user's values of these names get the prefix ``logged/``."""


class RowStart(msgspec.Struct, array_like=True):
    """Start of a row: it holds records after ``seq``, and the row before it has the W&B step ``last``."""

    seq: int
    last: int


class HistoryRow(msgspec.Struct):
    """One row. begin: ``seq`` before its first record. number: W&B's ``_step``. step: the training step.
    time: Unix seconds of its first record. media: whether a value has files. held: the destination has it."""

    begin: int
    number: int
    step: int | None
    time: float
    values: dict[str, Any]
    media: bool = False
    held: bool = False


class Held(NamedTuple):
    """A row at the destination: its ``_step``, the training step, Unix seconds of its first record, its names."""

    number: int
    step: int | None
    time: float
    names: frozenset[str]


def held_row(row: Mapping[str, Any], names: frozenset[str]) -> Held:
    """A row as the destination shows it."""
    step, time = row.get(STEP), row.get("_timestamp")
    return Held(
        int(row["_step"]),
        step if isinstance(step, (int, float)) else None,  # type: ignore[arg-type]
        float(time) if isinstance(time, (int, float)) else 0.0,
        names,
    )


class There:
    """Rows at the destination, each of which takes the records that it was made of, and each of these once.

    A row is known by its training step and the names that no record has taken yet, or by the time of its first record;
    where several fit, the time decides, else the order. A sample that joined a row of training has neither: samples of
    the same names take such rows in their order.
    """

    def __init__(self, rows: Iterable[Held] = ()) -> None:
        self._rows: list[Held] = []
        self._left: list[frozenset[str]] = []
        self._by_step: dict[int, list[int]] = {}
        self._by_time: dict[int, list[int]] = {}
        self._by_name: dict[str, list[int]] = {}
        self._open = 0
        self._missed = 0
        for row in rows:
            names = row.names - RESERVED
            place = len(self._rows)
            self._rows.append(row)
            self._left.append(names)
            self._open += bool(names)
            if row.step is not None:
                self._by_step.setdefault(row.step, []).append(place)
            self._by_time.setdefault(_millisecond(row.time), []).append(place)

    def __bool__(self) -> bool:
        """Whether records may still be found here."""
        return self._open > 0 and self._missed < MISSES

    def take(self, record: Record, names: Iterable[str]) -> int | None:
        """The ``_step`` of the row that holds a record's values, which no other record gets then; None if none does."""
        wanted = frozenset(names)
        place = self._find(record, wanted)
        if place is None:
            self._missed += 1
            return None
        self._missed = 0
        self._left[place] -= wanted
        self._open -= not self._left[place]
        return self._rows[place].number

    def _find(self, record: Record, wanted: frozenset[str]) -> int | None:
        sample = is_sample(record)
        same = [
            place
            for place in self._by_time.get(_millisecond(record.time), ())
            if (sample or self._rows[place].step == record.step) and not wanted.isdisjoint(self._left[place])
        ]
        if same:  # of its values the server may lack some
            return max(same, key=lambda place: self._fits(place, wanted))
        if sample:
            first = min(wanted)
            if first not in self._by_name:
                self._by_name[first] = [n for n, row in enumerate(self._rows) if first in row.names]
            while self._by_name[first] and first not in self._left[self._by_name[first][0]]:
                del self._by_name[first][0]
            return next((place for place in self._by_name[first] if self._joined(place, wanted)), None)
        if record.step is None:
            return None
        return next((place for place in self._by_step.get(record.step, ()) if self._joined(place, wanted)), None)

    def _joined(self, place: int, wanted: frozenset[str]) -> bool:
        """Whether values may have come to a row that another record had begun: that one has names there, too."""
        return not self._rows[place].names - RESERVED <= wanted and self._fits(place, wanted)

    def _fits(self, place: int, wanted: frozenset[str]) -> bool:
        # The server may show "a.b" nested, below "a", which then stands for all of them.
        left, nested = self._left[place], self._rows[place].names
        return all(name in left or (name not in nested and _outer(name) in nested) for name in wanted)


class HistoryRows:
    """Builds rows from records, one after the other.

    Args:
        emit: called with each row that is complete.
        last: the ``_step`` of the destination's last row.
        there: the rows that the destination has already, as far as records come again.
        begin: from where they come again: the mark as long as any of them may still be found there.
    """

    def __init__(
        self,
        emit: Callable[[HistoryRow], None],
        last: int = -1,
        there: There | None = None,
        begin: RowStart | None = None,
    ) -> None:
        self._emit = emit
        self.there = there or There()
        self.again = begin or RowStart(0, -1)
        self._row: HistoryRow | None = None
        self._sent = False
        self._begin = RowStart(0, last)
        self.last = last

    def add(self, record: Metrics | Text | Media, values: dict[str, Any]) -> None:
        """Take a record with its values, by :func:`row_values`. What the destination has already begins no row; of it
        only media are emitted, alone, for their files may not have arrived.

        The row before is emitted if this one begins a new row.
        """
        if not values:
            return
        number = self.there.take(record, values) if self.there else None
        if number is not None:
            self.end()
            if isinstance(record, Media):
                self._emit(HistoryRow(record.seq - 1, number, record.step, record.time, values, media=True, held=True))
            return
        row = self._row
        if row is not None and self._fits(row, record, values):
            row.values.update(values)
            row.media = row.media or isinstance(record, Media)
            return
        self.end()
        wanted = self.last + 1 if record.step is None else record.step
        number = max(wanted, self.last + 1) if wanted <= MAX_STEP else self.last + 1
        self._begin = RowStart(record.seq - 1, self.last)
        self.last = number
        self._row = HistoryRow(record.seq - 1, number, record.step, record.time, values, isinstance(record, Media))
        self._sent = False

    def end(self) -> None:
        """No more values come to the row at hand: emit it."""
        self.flush()
        self._row, self._sent = None, False

    def flush(self) -> None:
        """Emit the row at hand, if it wasn't yet; what still comes to its step begins another one."""
        if self._row is not None and not self._sent:
            self._emit(self._row)
            self._sent = True

    @property
    def waiting(self) -> bool:
        """True if a row waits for more values."""
        return self._row is not None and not self._sent

    def mark(self, seq: int) -> RowStart:
        """From where to begin again after ``seq`` was delivered: there, or where the row at hand began."""
        if self.there:
            return self.again
        return RowStart(seq, self.last) if self._row is None or self._sent else self._begin

    def _fits(self, row: HistoryRow, record: Record, values: Mapping[str, Any]) -> bool:
        if self._sent or not (_joins(row, record) if is_sample(record) else _same_step(row, record)):
            return False
        return row.values.keys().isdisjoint(values)


def _same_step(row: HistoryRow, record: Record) -> bool:
    return record.step is not None and record.step == row.step


def _joins(row: HistoryRow, record: Record) -> bool:
    """Samples of the hardware join the training step at hand, which is theirs or later: they take no row from it."""
    return row.step is not None and (record.step is None or record.step <= row.step)


def remember(marks: list[RowStart], mark: RowStart) -> None:
    """Append a mark; keep at most :data:`MARKS`, dense for recent ones and ever sparser for older ones."""
    if marks and marks[-1] == mark:
        return
    marks.append(mark)
    if len(marks) > MARKS:
        half = MARKS // 2
        marks[:half] = marks[:half:2]


def resume_mark(marks: Iterable[RowStart], held: int) -> RowStart:
    """The newest mark before which the destination has every row, if its last ``_step`` is ``held``."""
    return max((mark for mark in marks if mark.last <= held), key=lambda mark: mark.seq, default=RowStart(0, -1))


def row_values(record: Metrics | Text | Media, media: Any = None) -> dict[str, Any]:
    """A record's values under the names that they have in a row.

    Args:
        media: what a Media record holds, in the vendor's form.
    """
    if isinstance(record, Media):
        return {_name(_media_name(record)): media}
    values: dict[str, Any] = dict(record.values) if record.step is not None else grouped(record.values)
    own = values.get(STEP)
    return {
        _name(name): value
        for name, value in values.items()
        if name != STEP or isinstance(own, str) or own != record.step
    }


def row_chart(record: Media) -> dict[str, Any] | None:
    """How a table is drawn, by :mod:`trackers.media.chart`; None where it is no chart."""
    found = record.items[0].meta.get("chart") if len(record.items) == 1 and record.type == "table" else None
    return found if isinstance(found, dict) and isinstance(found.get("spec"), str) else None


def _media_name(record: Media) -> str:
    """A medium's name in a row; that of a custom chart is its table's, where W&B looks for it."""
    chart = row_chart(record)
    if chart is None or chart.get("panel") == "viz":
        return record.name
    return f"Custom Chart Tables/{record.name}_table" if chart.get("split_table") else f"{record.name}_table"


def _outer(name: str) -> str:
    return name.partition(".")[0]


def _millisecond(time: float) -> int:
    return round(time * 1000)


def _name(name: str) -> str:
    return f"logged/{name}" if name in RESERVED or not name else name
