"""Records as W&B's rows: which values lie in one row, and which ``_step`` it gets. Nothing of the vendor's here.

W&B drops a row whose ``_step`` isn't above the last one's. So each new row gets ``max(training step, last + 1)``,
and the training step itself goes along as ``global_step``. Consecutive records of one training step whose names
differ are one row, as W&B would merge them. Both depend on the records alone, so that a stream that is delivered
again from an earlier place gives the same rows with the same ``_step``: what the destination has can be told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from trackers.backends.system_names import grouped
from trackers.records import Media, Metrics, Record, Text, is_sample

STEP = "global_step"
MARKS = 64
RESERVED = frozenset({"_step", "_runtime", "_timestamp", "_wandb", STEP})
"""Names in a row that are W&B's, or ours: a user's values of these names get the prefix ``logged/``."""


class Mark(msgspec.Struct, array_like=True):
    """Where a row begins: it holds records after ``seq``, and the row before it has the W&B step ``last``."""

    seq: int
    last: int


class Row(msgspec.Struct):
    """One row. begin: ``seq`` before its first record. number: W&B's ``_step``. step: the training step.
    time: Unix seconds of its first record. media: whether a value has files."""

    begin: int
    number: int
    step: int | None
    time: float
    values: dict[str, Any]
    media: bool = False


class Rows:
    """Builds rows from records, one after the other.

    Args:
        emit: called with each row that is complete.
        last: the ``_step`` of the last row before these records.
        held: the rows that the destination has already, as far as records come again: names by ``_step``. A record
            that isn't in such a row came when that row had been sent, and begins the next.
    """

    def __init__(
        self,
        emit: Callable[[Row], None],
        last: int = -1,
        held: Mapping[int, frozenset[str]] | None = None,
    ) -> None:
        self._emit = emit
        self._held = held or {}
        self._row: Row | None = None
        self._sent = False
        self._begin = Mark(0, last)
        self.last = last

    def add(self, record: Metrics | Text | Media, media: Any = None) -> None:
        """Take the values of one record. The row before it is emitted if this one begins a new row.

        Args:
            media: what a Media record holds, in the vendor's form.
        """
        values = {_name(record.name): media} if isinstance(record, Media) else _values(record)
        if not values:
            return
        row = self._row
        if row is not None and self._fits(row, record, values):
            row.values.update(values)
            row.media = row.media or isinstance(record, Media)
            return
        self.end()
        wanted = self.last + 1 if record.step is None else record.step
        number = max(wanted, self.last + 1)
        self._begin = Mark(record.seq - 1, self.last)
        self.last = number
        self._row = Row(record.seq - 1, number, record.step, record.time, values, isinstance(record, Media))
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

    def mark(self, seq: int) -> Mark:
        """From where to begin again after ``seq`` was delivered: there, or where the row at hand began."""
        return Mark(seq, self.last) if self._row is None else self._begin

    def _fits(self, row: Row, record: Record, values: Mapping[str, Any]) -> bool:
        if self._sent or not (_joins(row, record) if is_sample(record) else _same_step(row, record)):
            return False
        if not row.values.keys().isdisjoint(values):
            return False
        held = self._held.get(row.number)
        # The server may show "a.b" nested, below "a".
        return held is None or all(name in held or name.partition(".")[0] in held for name in values)


def _same_step(row: Row, record: Record) -> bool:
    return record.step is not None and record.step == row.step


def _joins(row: Row, record: Record) -> bool:
    """Samples of the hardware join the training step at hand, which is theirs or later: they take no row from it."""
    return row.step is not None and (record.step is None or record.step <= row.step)


def remember(marks: list[Mark], mark: Mark) -> None:
    """Append a mark; keep at most :data:`MARKS`, dense for recent ones and ever sparser for older ones."""
    if marks and marks[-1] == mark:
        return
    marks.append(mark)
    if len(marks) > MARKS:
        half = MARKS // 2
        marks[:half] = marks[:half:2]


def resume_mark(marks: Iterable[Mark], held: int) -> Mark:
    """The newest mark before which the destination has every row, if its last ``_step`` is ``held``."""
    return max((mark for mark in marks if mark.last <= held), key=lambda mark: mark.seq, default=Mark(0, -1))


def _values(record: Metrics | Text) -> dict[str, Any]:
    values: dict[str, Any] = dict(record.values) if record.step is not None else grouped(record.values)
    own = values.get(STEP)
    return {
        _name(name): value
        for name, value in values.items()
        if name != STEP or isinstance(own, str) or own != record.step
    }


def _name(name: str) -> str:
    return f"logged/{name}" if name in RESERVED or not name else name
