"""What the columns of a foreign table mean: which is the step, which the time and in which unit, what its rows count.

A table is a CSV file's rows or the objects of JSON lines. It is judged by its names and its first :data:`SAMPLE` rows,
and what was assumed is said (:attr:`RowLayout.said`), because a file doesn't say it itself.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from trackers.readers import helpers
from trackers.readers.boundary import add_note
from trackers.readers.reader import SourceRun
from trackers.records import MAX_STEP, TIME_MAX, Metrics, Record, Text

SAMPLE = 1000
"""Rows that a table is judged by."""
STEPS = ("step", "global_step", "_step", "trainer/global_step", "iteration", "iter", "current_steps", "num_updates",
         "time/total_timesteps", "timesteps_total", "total_timesteps", "num_env_steps_sampled_lifetime",
         "training_iteration", "steps", "iterations")  # fmt: skip
EPOCHS = ("epoch", "epochs")
"""Steps of a table that has no others, where they grow by whole numbers. They stay a metric, too."""
TIMES = ("time", "timestamp", "wall_time", "wall time", "walltime", "_timestamp", "created_at", "datetime", "date",
         "ts")  # fmt: skip
ELAPSED = ("elapsed_time", "elapsed time", "elapsed", "elapsed_s", "elapsed_seconds", "time_elapsed", "time elapsed",
           "time/time_elapsed", "time_total_s", "_runtime", "runtime", "relative time", "wall")  # fmt: skip
"""Seconds since the start, used where no column has times. They stay metrics, too."""
DURATIONS = ("_time", " time", "elapsed", "eta", "duration", "remaining")
"""Ends of names whose texts ("0:00:35") are durations: seconds."""
_UNIT = re.compile(r"[(\[](?P<unit>[^()\[\]]{1,20})[)\]]$")
_UNIT_LENGTH = 22
_SECONDS = {"s": 1.0, "sec": 1.0, "secs": 1.0, "second": 1.0, "seconds": 1.0, "ms": 1e-3, "milliseconds": 1e-3,
            "min": 60.0, "mins": 60.0, "minutes": 60.0, "h": 3600.0, "hours": 3600.0}  # fmt: skip
_CLOCK = re.compile(
    r"(?:(?P<days>\d{1,6}) days?, )?(?P<hours>\d{1,6}):(?P<minutes>\d\d):(?P<seconds>\d\d(?:\.\d{1,9})?)"
)
_STAMPS = ((1e8, 1.0, "s"), (1e11, 1e-3, "ms"), (1e14, 1e-6, "µs"), (1e17, 1e-9, "ns"))
"""From where on a number is a stamp of Unix time, and its unit: 1e8 s are in 1973, 1e11 ms as well."""
GROWTH = 0.5
"""Of the first value: by so much the times of a table grow at least that are counted from its start."""
_DATES = ("%Y-%m-%d_%H-%M-%S", *(
    f"{day} %H:%M{seconds}" for seconds in (":%S", "") for day in ("%Y/%m/%d", "%d.%m.%Y", "%m/%d/%Y")
))  # fmt: skip


class TimeColumn(NamedTuple):
    """A column of times. factor: seconds of its unit. elapsed: it counts from the start. kept: it is a metric, too."""

    name: str
    factor: float = 1.0
    elapsed: bool = False
    kept: bool = False

    def seconds(self, value: Any) -> float | None:
        """A cell as Unix seconds, or as seconds from the start; None where it is neither."""
        if isinstance(value, str):
            return clock_seconds(value) if self.elapsed else date_seconds(value)
        if not helpers.is_number(value) or isinstance(value, bool):
            return None
        seconds = float(value) * self.factor if abs(value) < 1e30 else math.inf
        return seconds if abs(seconds) < TIME_MAX else None


class RowLayout(NamedTuple):
    """step, clock: columns; None where there is none. summed: the step is the sum of this column so far.

    per_epoch: rows without this column have an epoch's number as their step. began: Unix seconds from which a clock
    counts, or of rows without a time. said: what was assumed, each in a few words.
    """

    step: str | None = None
    clock: TimeColumn | None = None
    summed: bool = False
    per_epoch: str | None = None
    began: float = 0.0
    said: tuple[str, ...] = ()

    def records(self, rows: Iterable[Mapping[str, Any]], odd: Counter[str] | None = None) -> Iterator[Record]:
        """The rows as records: numbers and truth values as metrics, text as text; None and lists are no values.

        Args:
            odd: counts how often steps fall.
        """
        at, before = self.began, -1
        for step, row in self._steps(rows):
            if odd is not None and step is not None:
                odd["falls"] += step < before
                before = step
            if self.clock is not None and (seconds := self.clock.seconds(row.get(self.clock.name))) is not None:
                at = self.began + seconds if self.clock.elapsed else seconds
            numbers, texts = self._values(row)
            if numbers:
                yield Metrics(step=step, time=at, values=numbers)
            if texts:
                yield Text(step=step, time=at, values=texts)

    def _steps(self, rows: Iterable[Mapping[str, Any]]) -> Iterator[tuple[int | None, Mapping[str, Any]]]:
        """Each row with its step."""
        if self.step is None:
            yield from enumerate(rows)
            return
        total, highest = 0, -1
        for row in rows:
            step = whole(row.get(self.step))
            if self.summed:
                total += step or 0
                step = total
            elif self.per_epoch is not None and self.per_epoch not in row and step is not None and step < highest:
                step = highest
            elif step is not None:
                highest = max(step, highest)
            yield step, row

    def _values(self, row: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
        """A row's numbers, durations among them in seconds, and its texts; its step and time where they are kept."""
        numbers, texts = {}, {}
        for name, value in row.items():
            if value is None or (name == self.step and not self._is_kept(name)):
                continue
            if self.clock is not None and name == self.clock.name and not self.clock.kept:
                continue
            if isinstance(value, str):
                seconds = clock_seconds(value) if plain_name(name).endswith(DURATIONS) else None
                if seconds is None:
                    texts[name] = value
                else:
                    numbers[name] = seconds
            elif helpers.is_number(value):
                numbers[name] = value
        return numbers, texts

    def _is_kept(self, name: str) -> bool:
        return self.summed or self.per_epoch == name or plain_name(name) in EPOCHS


def layout_of(names: Sequence[str], sample: Sequence[Mapping[str, Any]], written: float) -> RowLayout:
    """Judge a table.

    Args:
        sample: its first rows. written: when it was last written, in Unix seconds: the time of rows without one, or
            the end of those that count from a start that the table doesn't say; see :func:`from_end`.
    """
    said = []
    plain = [plain_name(name) for name in names]
    step = next((found for each in STEPS for found in _named(each, names, plain) if _is_step(found, sample)), None)
    if step is None:
        step = next((found for each in EPOCHS for found in _named(each, names, plain) if _grows(found, sample)), None)
        said += [f"steps are its {step!r}"] if step is not None else ["it has no steps: rows are counted"]
    per_epoch = "iter" if {"iter", "step", "data_time", "time"} <= set(names) else None  # MMEngine's logs
    clock = _clock(names, plain, sample, timed="data_time" not in names)  # beside that it is what a row took
    if clock is not None and clock.elapsed:
        said.append(f"times are its {clock.name!r}, counted from the start, back from when the file was last written")
    elif clock is not None and clock.factor != 1.0:
        said.append(f"times are its {clock.name!r}, in units of {clock.factor:g} s")
    return RowLayout(step, clock, False, per_epoch, written, tuple(said))


_ODD = {
    "longer": "more cells than the head, which aren't read",
    "other": "not as many cells as the head, and nothing says which: none of that is read",
    "stepless": "no step that can be read: the values are kept without one",
    "falls": "a lower step than the row before: the values of both are kept",
    "unclear": "a number like 1.234, which beside decimal commas may be a thousand: it is kept as text",
    "endless": "no line end: its last cell is read, and may be cut",
    "cut": "no line end: its last cell may be cut, and isn't read",
}
"""What some of a table's rows have."""


def say_odd(run: SourceRun | None, odd: Counter[str]) -> None:
    """Note how many rows have what."""
    for what, count in odd.items():
        if count and run is not None:
            add_note(run, f"{'a row has' if count == 1 else f'{count:,} rows have'} {_ODD[what]}")


def from_end(layout: RowLayout, last: float) -> RowLayout:
    """A layout whose clock counts from a start, when that was: ``last`` seconds before the file was written."""
    return layout._replace(began=layout.began - last)


def plain_name(name: str) -> str:
    """A column's name in small letters, without the unit in brackets behind it."""
    return _parted(name)[0].strip().lower()


def _parted(name: str) -> tuple[str, str]:
    """A column's name without its unit, and the unit; "" where it has none."""
    bare = name.rstrip()
    match = _UNIT.search(bare, max(0, len(bare) - _UNIT_LENGTH))
    return (name, "") if match is None else (bare[: match.start()], match["unit"])


def whole(value: Any) -> int | None:
    """A step: a whole number, also one that a table has as a float."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if type(value) is int and abs(value) <= MAX_STEP else None


def clock_seconds(text: str) -> float | None:
    """The seconds of a duration as Python writes one ("1 day, 0:00:35")."""
    match = _CLOCK.fullmatch(text.strip())
    if match is None:
        return None
    days, hours, minutes = (int(match[part] or 0) for part in ("days", "hours", "minutes"))
    return ((days * 24 + hours) * 60 + minutes) * 60 + float(match["seconds"])


def date_seconds(text: str) -> float | None:
    """A date as Unix seconds: ISO 8601, or one of :data:`_DATES`; local time where it names no zone."""
    if len(text) < 8 or not text[:1].isdigit():
        return None
    seconds = helpers.unix(text.strip())
    for form in _DATES if seconds is None else ():
        try:
            return datetime.strptime(text.strip(), form).timestamp()
        except (ValueError, OverflowError, OSError):
            continue
    return seconds


def _named(plain: str, names: Sequence[str], plains: Sequence[str]) -> list[str]:
    """The column of that name, if any: the first."""
    return [names[plains.index(plain)]] if plain in plains else []


def _is_step(name: str, sample: Sequence[Mapping[str, Any]]) -> bool:
    values = [row[name] for row in sample if row.get(name) is not None]
    return not values or any(whole(value) is not None for value in values)


def _grows(name: str, sample: Sequence[Mapping[str, Any]]) -> bool:
    values = [whole(row.get(name)) for row in sample]
    known = [value for value in values if value is not None]
    return bool(known) and len(known) == len(values) and all(a < b for a, b in itertools.pairwise(known))


def _clock(
    names: Sequence[str], plain: Sequence[str], sample: Sequence[Mapping[str, Any]], *, timed: bool
) -> TimeColumn | None:
    for each in TIMES:
        for name in _named(each, names, plain):
            known = _judged(name, sample, each == "time" and timed)
            if known is not None:
                return known
    for each in ELAPSED:
        for name in _named(each, names, plain):
            values = [value for row in sample if (value := row.get(name)) is not None]
            if values and all(isinstance(value, str) and clock_seconds(value) is not None for value in values):
                return TimeColumn(name, elapsed=True, kept=True)
            if _rises(values):
                return TimeColumn(name, _factor(name), elapsed=True, kept=True)
    return None


def _judged(name: str, sample: Sequence[Mapping[str, Any]], may_be_elapsed: bool) -> TimeColumn | None:
    """A column that is called as times are: by its values it is that, or seconds from the start, or something else."""
    values = [value for row in sample if (value := row.get(name)) is not None]
    texts = [value for value in values if isinstance(value, str)]
    if texts:
        return TimeColumn(name) if any(date_seconds(text) is not None for text in texts) else None
    numbers = [float(value) for value in values if not isinstance(value, bool) and abs(value) < 1e30]
    stamps = [value for value in numbers if value >= _STAMPS[0][0]]
    if stamps:
        return TimeColumn(name, next(factor for least, factor, _ in reversed(_STAMPS) if stamps[0] >= least))
    if may_be_elapsed and _rises(numbers):
        return TimeColumn(name, _factor(name), elapsed=True)
    return None


def _rises(values: Sequence[Any]) -> bool:
    """Whether they are seconds from a start rather than what each row took: they never fall, and grow."""
    numbers = [value for value in values if helpers.is_number(value) and not isinstance(value, bool)]
    if len(numbers) != len(values) or not numbers or not all(map(math.isfinite, numbers)) or numbers[0] < 0:
        return False
    rising = all(a <= b for a, b in itertools.pairwise(numbers))
    return rising and len(numbers) > 1 and numbers[-1] - numbers[0] >= GROWTH * numbers[0] and numbers[-1] > 0


def _factor(name: str) -> float:
    return _SECONDS.get(_parted(name)[1].strip().lower(), 1.0)
