"""Builds W&B's rows from records: which values share a row, and which ``_step`` it gets. Independent of wandb's code.

W&B drops a row whose ``_step`` isn't above the last one's. So each new row gets ``max(training step, last + 1)``,
and the training step itself is logged as ``global_step``, or as ``trackers/step`` in a run that logs a ``global_step``
of its own. Consecutive records of one training step share a row, as W&B would merge them: a row is complete when the
next one begins, so that ``_step`` is the training step wherever steps grow. Its time is that of the last record that
added a name, as W&B's. A name's second value at one step, for which W&B has no place, gets a row where the steps leave
room, or behind all others. Samples of the hardware take no step: they join a row of training, the current one or the
next.

A stream may be delivered again, from any earlier position, in another order, by a process without the previous one's
state. Which of its records the destination has is derived from its rows: their step, time and names
(:class:`DestinationRows`). Records that aren't found there get new rows after all others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from trackers.formats.float_names import listed
from trackers.formats.vendor_system_names import grouped
from trackers.records import MAX_STEP, Media, Metrics, Record, Text, is_sample, nearest_double, unnamed_float
from trackers.tracker import ValueComparison

STEP = "global_step"
OWN_STEP = "trackers/step"
"""The training step's name in a run that logs a ``global_step`` of its own."""
MOST_RESTART_POINTS = 64
MOST_WAITING = 1000
"""Maximum number of samples that wait for a row of training; more become rows of their own."""
MOST_BEHIND = 1000
"""Maximum number of rows that wait for room among the steps."""
MOST_ROWS_BEHIND = 10_000
"""Number of rows for which they wait at most: after a restart all of these are compared with the records."""
MISSES = 10_000
"""Number of consecutive records missing at the destination after which its remaining rows count as another writer's."""
RESERVED = frozenset({"_step", "_runtime", "_timestamp", "_wandb", OWN_STEP})
"""Names in a row that W&B or this module uses: a user's values of these names get the prefix ``logged/``."""


class RestartPoint(msgspec.Struct, array_like=True):
    """Where to send again from: after record number ``seq``, if the destination has the row ``last``.

    since: its rows above this one may have values of those records; -2: those above ``last``.
    """

    seq: int
    last: int
    since: int = -2

    @property
    def first(self) -> int:
        """The first row that may have values of the records after ``seq``."""
        return (self.last if self.since == -2 else self.since) + 1


class HistoryRow(msgspec.Struct):
    """One row. begin: ``seq`` before the first record of its step. number: W&B's ``_step``. step: the training step.
    time: Unix seconds of the last record that added a name. records: those whose values it has. media: whether a value
    has files. held: whether the destination has it. axes: where the step metrics of its values were. since: the
    ``_step`` of the last row before its step. again: its names have values in its step's row already."""

    begin: int
    number: int
    step: int | None
    time: float
    values: dict[str, Any]
    records: list[Metrics | Text | Media]
    media: bool = False
    held: bool = False
    axes: dict[str, Any] = {}
    since: int = -1
    again: bool = False


class DestinationRow(NamedTuple):
    """What identifies a row at the destination. number: its ``_step``. step: the training step. time: Unix seconds of
    the last record that added a name. names: names of its values. words: :func:`word` of those that can be compared,
    by name; None where values aren't compared."""

    number: int
    step: int | None
    time: float
    names: frozenset[str]
    words: Mapping[str, int] | None = None


def word(value: Any) -> int | None:
    """A word that tells a number, a text or a list of such from others; None for what isn't compared, as media."""
    value = unnamed_float(value)
    if isinstance(value, str):
        return hash(value)
    if isinstance(value, list):
        words = tuple(map(word, value))
        return None if None in words else hash(words)
    if not isinstance(value, (int, float)):
        return None
    number = nearest_double(value)
    return hash("nan" if math.isnan(number) else (number + 0.0).hex())


class HistoryComparison(ValueComparison):
    """Compares a run's rows with the records that are delivered again.

    What isn't there, and what is there with another value, is sent in rows after all others.
    """

    def __init__(self) -> None:
        self._sent: dict[int, dict[str, int | None]] = {}

    def send(self, row: HistoryRow) -> None:
        """Note a row that is sent."""
        self._sent[row.number] = {name: word(value) for name, value in row.values.items()}
        self.missing += len(row.values)

    def change(self, count: int) -> None:
        """Note how many of the values that are going to be sent are there with another value."""
        self.changed += count
        self.missing -= count

    def settle(self, rows: Iterable[DestinationRow]) -> None:
        """Count what has been restored. rows: those that are there once everything was sent."""
        self.restored = 0
        for row in rows:
            sent, words = self._sent.get(row.number, {}), row.words or {}
            for name, known in sent.items():
                self.restored += name in row.names if known is None else words.get(name) == known


def training_step(row: Mapping[str, Any]) -> Any:
    """The training step that a row has."""
    return row.get(OWN_STEP, row.get(STEP))


def destination_row(
    row: Mapping[str, Any], names: frozenset[str], words: Mapping[str, int] | None = None
) -> DestinationRow:
    """What identifies a row, from the row as the destination returns it."""
    step, time = training_step(row), row.get("_timestamp")
    return DestinationRow(
        int(row["_step"]),
        step if isinstance(step, (int, float)) else None,  # type: ignore[arg-type]
        float(time) if isinstance(time, (int, float)) else 0.0,
        names,
        words,
    )


class DestinationRows:
    """Matches records that are delivered again with the rows at the destination that have their values.

    A row matches by its training step and the names that no record has claimed yet, or by its time; of several matches,
    the time decides, else the order. A sample that joined a row of training shares neither with it:
    samples of the same names claim such rows in order. Where values are compared, those that a row of its step has come
    first, and ``differing`` has the names of those that no row has, in one that matches else.
    """

    def __init__(self, rows: Iterable[DestinationRow] = ()) -> None:
        self._rows: list[DestinationRow] = []
        self._unclaimed: list[frozenset[str]] = []
        self._by_step: dict[int, list[int]] = {}
        self._by_time: dict[int, list[int]] = {}
        self._by_name: dict[str, list[int]] = {}
        self._equals: set[tuple[int, str]] = set()
        self._open_rows = 0
        self._misses = 0
        self._differs = False
        self.differing: frozenset[str] = frozenset()
        for row in rows:
            names = row.names - RESERVED
            if OWN_STEP not in row.names:
                names -= {STEP}
            index = len(self._rows)
            self._rows.append(row)
            self._unclaimed.append(names)
            self._open_rows += bool(names)
            if row.step is not None:
                self._by_step.setdefault(row.step, []).append(index)
            self._by_time.setdefault(_millisecond(row.time), []).append(index)

    def __bool__(self) -> bool:
        """Whether further records may match."""
        return (self._open_rows > 0 or self._differs) and self._misses < MISSES

    def take(self, record: Record, values: Mapping[str, Any]) -> int | None:
        """Claim a record's values in the rows that have them. The first one's ``_step``; None if no row matches."""
        places = self._equal(record, values)
        rest = frozenset(values.keys() - places.keys())
        index = self._find(record, rest) if rest else None
        self.differing = rest if index is None and places else frozenset()
        if index is None and not places:
            self._misses += 1
            return None
        self._misses = 0
        if index is not None:
            if (words := self._rows[index].words) is not None:
                changed = frozenset(name for name in rest & words.keys() if words[name] != word(values[name]))
                self.differing = changed | {name for name in rest if not self._may_match(index, (name,))}
                self._differs = self._differs or bool(changed)  # what was meant for another record may equal that
            self._claim(index, rest)
        for name, place in places.items():
            self._claim(place, frozenset({name}))
            self._equals.add((place, name))
        return min(self._rows[place].number for place in (*places.values(), *([] if index is None else [index])))

    def _claim(self, index: int, names: frozenset[str]) -> None:
        self._open_rows -= bool(self._unclaimed[index]) and self._unclaimed[index] <= names
        self._unclaimed[index] -= names

    def _equal(self, record: Record, values: Mapping[str, Any]) -> dict[str, int]:
        """The rows near a record that have the very values, by name; none where values aren't compared."""
        near = self._by_time.get(_millisecond(record.time), ())
        found: dict[str, int] = {}
        for index in near if record.step is None else self._by_step.get(record.step, ()):
            words = self._rows[index].words or {}
            for name in words.keys() & values.keys() - found.keys():
                if words[name] == word(values[name]) and (index, name) not in self._equals:
                    found[name] = index
        return found

    def _find(self, record: Record, record_names: frozenset[str]) -> int | None:
        sample = is_sample(record)
        any_step = sample or record.step is None
        candidates = [
            index
            for index in self._by_time.get(_millisecond(record.time), ())
            if (any_step or self._rows[index].step == record.step)
            and not record_names.isdisjoint(self._unclaimed[index])
        ]
        nearest = max(candidates, key=lambda index: self._may_match(index, record_names), default=None)
        if nearest is not None and (
            sample or self._rows[nearest].words is None or self._may_match(nearest, record_names)
        ):  # the server may lack some of its values
            return nearest
        if sample:
            first_name = min(record_names)
            if first_name not in self._by_name:
                self._by_name[first_name] = [index for index, row in enumerate(self._rows) if first_name in row.names]
            while self._by_name[first_name] and first_name not in self._unclaimed[self._by_name[first_name][0]]:
                del self._by_name[first_name][0]
            return next(
                (index for index in self._by_name[first_name] if self._may_have_joined(index, record_names)), None
            )
        rows = () if record.step is None else self._by_step.get(record.step, ())
        return next((index for index in rows if self._may_have_joined(index, record_names)), nearest)

    def _may_have_joined(self, index: int, names: frozenset[str]) -> bool:
        """Whether the values may be in a row that has another record's time: such a row has further names."""
        others = self._rows[index].names - RESERVED - ({STEP} if OWN_STEP not in self._rows[index].names else set())
        return not others <= names and self._may_match(index, names)

    def _may_match(self, index: int, names: Iterable[str]) -> bool:
        # The server may return "a.b" nested, under the name "a".
        unclaimed, nested = self._unclaimed[index], self._rows[index].names
        return all(name in unclaimed or (name not in nested and name.partition(".")[0] in nested) for name in names)


class HistoryRows:
    """Builds rows from records, one after the other.

    Args:
        emit: called with each row that is complete.
        last: the ``_step`` of the destination's last row.
        destination: the rows that the destination has already of the records that are delivered again.
        begin: the restart point from which they are delivered again; it stays the newest while any may still match.
        comparison: gets the values that the destination has otherwise; None: nothing is compared.
        ended: the training step of the destination's last row; None: it isn't known, or has none.
    """

    def __init__(
        self,
        emit: Callable[[HistoryRow], None],
        last: int = -1,
        destination: DestinationRows | None = None,
        begin: RestartPoint | None = None,
        comparison: HistoryComparison | None = None,
        ended: int | None = None,
    ) -> None:
        self._emit = emit
        self.comparison = comparison
        self.destination = destination or DestinationRows()
        self.restart = begin or RestartPoint(0, -1)
        self._row: HistoryRow | None = None
        self._sent = False
        self._begin = RestartPoint(0, last)
        self._waiting: list[tuple[Metrics | Text | Media, dict[str, Any]]] = []
        self._held: list[tuple[int, int]] = []
        self._step: int | None = None
        self._ended = ended
        self._step_begin, self._before = 0, last
        self._seen: dict[str, Any] = {}
        self._again: list[HistoryRow] = []
        self._behind: list[HistoryRow] = []
        self.last = last

    def add(self, record: Metrics | Text | Media, values: dict[str, Any]) -> None:
        """Add a record with its values, by :func:`row_values`. A record that the destination already has begins no row;
        of such records only media are emitted, alone, because their files may not have arrived.

        The previous row is emitted if this record begins a new one.
        """
        if record.step is None or is_sample(record):
            self._add(record, values)
            return
        if record.step != self._step:
            self._seen, self._step_begin = {}, record.seq - 1
        # A name's second value at one step: the same one is there, another one needs another row.
        again = [name for name in self._seen.keys() & values.keys() if not _same(values[name], self._seen[name])]
        new = {name: value for name, value in values.items() if name not in self._seen} if self._seen else values
        self._add(record, new)
        self._seen.update(new)
        self._add(record, {name: values[name] for name in again})

    def _add(self, record: Metrics | Text | Media, values: dict[str, Any]) -> None:
        if not values:
            return
        number = self.destination.take(record, values) if self.destination else None
        if number is not None and self.comparison is not None and self.destination.differing:
            self.comparison.change(len(self.destination.differing))
            values, number = {name: values[name] for name in values if name in self.destination.differing}, None
        if number is not None:
            step = self._step
            self.end()
            for row in self._behind:  # this record comes after theirs
                row.since = min(row.since, number - 1)
            if not is_sample(record):
                self._before = number - 1 if record.step != step else min(self._before, number - 1)
                self._step = record.step
            if isinstance(record, Media):
                self._emit(HistoryRow(record.seq - 1, number, record.step, record.time, values, [record], True, True))
        elif self._row is not None and self._can_join(record, values):
            _join(self._row, record, values)
        elif is_sample(record) and len(self._waiting) < MOST_WAITING:
            self._waiting.append((record, values))
            self._held.append((record.seq, self._begin.last if self.waiting else self.last))
        elif (
            not is_sample(record)
            and record.step is not None
            # of the current step, or of the one whose row came before a pause or an attempt's start
            and record.step == (self._ended if self._step is None else self._step)
        ):
            self._step = record.step
            self._add_again(record, values)
        else:
            self._begin_row(record, values)

    def _add_again(self, record: Metrics | Text | Media, values: dict[str, Any]) -> None:
        """Add values of names that the current step has had already."""
        if self._again and self._again[-1].values.keys().isdisjoint(values):
            _join(self._again[-1], record, values)
        else:
            row = HistoryRow(self._step_begin, -1, record.step, record.time, {}, [], since=self._before, again=True)
            _join(row, record, values)
            self._again.append(row)

    def _make_room(self, below: float) -> None:
        """Emit rows that wait for room, as long as their ``_step`` is below that of the next row."""
        self._behind += self._again
        self._again = []
        oldest = self._behind[0].since if self._behind else self.last
        if len(self._behind) > MOST_BEHIND or self.last - oldest > MOST_ROWS_BEHIND:
            below = math.inf
        while self._behind and self.last + 1 < below:
            row = self._behind.pop(0)
            self.last = row.number = self.last + 1
            self._emit(row)

    def hold(self, seq: int) -> None:
        """Note a record that is part of no row: until a row is sent after it, nobody knows whether it has arrived."""
        if not self.waiting and not self._held:
            self._held.append((seq, self.last))

    def end(self) -> None:
        """Emit the current row: no more values come to it."""
        self.flush()
        self._ended = self._ended if self._step is None else self._step
        self._row, self._sent, self._step = None, False, None
        self._behind, self._again = self._behind + self._again, []

    def send_behind(self) -> None:
        """Emit the current row, and those that wait for room."""
        self.end()
        self._make_room(math.inf)

    def finish(self) -> None:
        """Emit everything: no more records come."""
        self.send_behind()
        waiting, held, self._waiting = self._waiting, self._held, []
        for place, (record, values) in enumerate(waiting):
            self._held = held[place:]
            self._begin_row(record, values)
            self.end()

    def flush(self) -> None:
        """Emit the current row unless it was emitted; further values of its step get another row."""
        if self._row is not None and not self._sent:
            self._emit(self._row)
            self._sent = True

    @property
    def waiting(self) -> bool:
        """True if the current row waits for more values."""
        return self._row is not None and not self._sent

    @property
    def current(self) -> HistoryRow | None:
        """The row that waits for more values."""
        return self._row if self.waiting else None

    def rows_of(self, record: Record) -> list[HistoryRow]:
        """The rows that have values of the newest record and aren't sent."""
        waiting = [*self._again[-1:], *([self._row] if self._row is not None and not self._sent else [])]
        return [row for row in waiting if row.records[-1] is record]

    def restart_point(self, seq: int) -> RestartPoint:
        """Where to restart after ``seq`` was delivered: after it, or where something isn't known to have arrived."""
        if self.destination:
            return self.restart
        if self.waiting:
            return self._begin
        return self._point(seq)

    def _point(self, seq: int) -> RestartPoint:
        """Where to restart between two rows, after record ``seq``."""
        waiting = [(row.begin, row.since) for row in (*self._behind[:1], *self._again[:1])]
        waiting += [(first - 1, since) for first, since in self._held[:1]]
        if not waiting:
            return RestartPoint(seq, self.last)
        return RestartPoint(min(waiting)[0], self.last, min(since for _, since in waiting))

    def take_over(self, other: HistoryRows, step: float) -> None:
        """Take another one's rows that wait for room, of training steps up to this one."""
        self._behind = [row for row in (*other._behind, *other._again) if row.step is None or row.step <= step]
        for row in self._behind:
            row.since = min(row.since, self.last)

    @property
    def behind(self) -> list[HistoryRow]:
        """Rows that wait for room among the steps."""
        return self._behind

    def unsent(self) -> set[int]:
        """The numbers of records whose values wait."""
        rows = [*self._behind, *self._again, *([self._row] if self._row is not None and not self._sent else [])]
        return {record.seq for row in rows for record in row.records}

    def _begin_row(self, record: Metrics | Text | Media, values: dict[str, Any]) -> None:
        # Below the last row it gets another number anyway: what waits comes before it then, as it was logged.
        grows = record.step is not None and record.step > max(self.last, -1 if self._step is None else self._step)
        self.flush()
        self._make_room(record.step if record.step is not None and grows else math.inf)
        self.end()
        self._step = record.step
        self._begin = self._point(record.seq - 1)
        step = self.last + 1 if record.step is None else record.step
        self._before = self.last
        self.last = max(step, self.last + 1) if step <= MAX_STEP else self.last + 1
        self._row = HistoryRow(record.seq - 1, self.last, record.step, record.time, {}, [])
        _join(self._row, record, values)
        places = dict(self._held)
        waiting, self._waiting, self._held = self._waiting, [], []
        for sample, sampled in waiting:
            if self._can_join(sample, sampled):
                _join(self._row, sample, sampled)
            else:
                self._waiting.append((sample, sampled))
                self._held.append((sample.seq, places[sample.seq]))

    def _can_join(self, record: Record, values: Mapping[str, Any]) -> bool:
        row = self.current
        if row is None or not row.values.keys().isdisjoint(values):
            return False
        if is_sample(record):  # of its own step or a later one
            return row.step is not None and (record.step is None or record.step <= row.step)
        return record.step is not None and record.step == row.step


def _join(row: HistoryRow, record: Metrics | Text | Media, values: Mapping[str, Any]) -> None:
    if not is_sample(record) and not row.values.keys() >= values.keys():
        row.time = record.time
    row.values.update(values)
    row.records.append(record)
    row.media = row.media or isinstance(record, Media)


def _same(value: Any, other: Any) -> bool:
    known = word(value)
    return known is not None and known == word(other)


def add_restart_point(points: list[RestartPoint], point: RestartPoint) -> None:
    """Append a point; keep at most :data:`MOST_RESTART_POINTS`, dense for recent rows, sparser for older ones."""
    if points and points[-1] == point:
        return
    points.append(point)
    if len(points) > MOST_RESTART_POINTS:
        half = MOST_RESTART_POINTS // 2
        points[:half] = points[:half:2]


def newest_restart_point(points: Iterable[RestartPoint], last_step: int) -> RestartPoint:
    """The newest point before which the destination has every row, if its last ``_step`` is ``last_step``."""
    return max(
        (point for point in points if point.last <= last_step), key=lambda point: point.seq, default=RestartPoint(0, -1)
    )


def row_values(record: Metrics | Text | Media, media: Any = None) -> dict[str, Any]:
    """A record's values under their names in a row.

    Args:
        media: the value of a Media record, as an object of wandb's.
    """
    if isinstance(record, Media):
        return {_name(_media_name(record)): media}
    values = listed(record) if isinstance(record, Text) else record.values
    return {_name(name): value for name, value in (values if record.step is not None else grouped(values)).items()}


def row_chart(record: Media) -> dict[str, Any] | None:
    """The description of a table's chart, by :mod:`trackers.media.chart`; None if it is no chart."""
    chart = record.items[0].meta.get("chart") if len(record.items) == 1 and record.type == "table" else None
    return chart if isinstance(chart, dict) and isinstance(chart.get("spec"), str) else None


def _media_name(record: Media) -> str:
    """The name of a media record in a row; a custom chart gets the name under which W&B looks for its table."""
    chart = row_chart(record)
    if chart is None or chart.get("panel") == "viz":
        return record.name
    return f"Custom Chart Tables/{record.name}_table" if chart.get("split_table") else f"{record.name}_table"


def _millisecond(time: float) -> int:
    return round(time * 1000)


def _name(name: str) -> str:
    return f"logged/{name}" if name.rpartition("logged/")[2] in {*RESERVED, ""} else name
