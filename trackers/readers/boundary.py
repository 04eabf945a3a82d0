"""The boundary around every reader: damaged or hostile input ends in one line that names it, never in a traceback.

What a reader yields is checked here: a record that a journal couldn't hold is left out. Where a reader fails after
some records, those count, and the run's ``note`` says what happened; where it fails before, :class:`Damaged` is raised.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import math
import struct
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from trackers import records
from trackers.errors import Damaged, NotFound, TrackersError, Unavailable
from trackers.readers.reader import SourceRun
from trackers.records import TIME_MAX, Metrics, Record

R = TypeVar("R")
T = TypeVar("T")

LONGEST = 200
"""Maximum length of a reason, in characters; it may quote the input."""
WHAT_LONGEST = 1000
"""Maximum length of the name of what is read: a path, or an address that contains names from the input."""
STEP_MAX = 2**63 - 1
DATA_ERRORS = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, MemoryError,
               EOFError, struct.error)  # fmt: skip
"""Exceptions that Python raises for invalid data."""

_BOUNDED = "__bounded__"


def reason(error: BaseException) -> str:
    """The reason that an error gives for damaged input, in a few words on one line."""
    text = str(error)
    if isinstance(error, RecursionError):
        text = "it is nested too deeply"
    elif isinstance(error, MemoryError):
        text = "it claims more than fits into memory"
    elif isinstance(error, UnicodeError):
        text = f"text that isn't UTF-8: {text}"
    elif isinstance(error, KeyError):
        text = f"{text} is missing"
    elif not isinstance(error, (ValueError, OSError)) or not text:
        text = f"{text} ({type(error).__name__})" if text else type(error).__name__
    return one_line(text, LONGEST)


def one_line(text: str, most: int) -> str:
    """The text with whitespace joined into single blanks, cut to ``most`` characters."""
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1] + "…"


@contextlib.contextmanager
def boundary(what: str) -> Iterator[None]:
    """Translate whatever goes wrong while ``what`` is read into one of our errors.

    Raises:
        Damaged: anything but our own errors. NotFound: the operating system refused. Unavailable: a database is busy.
    """
    what = one_line(what, WHAT_LONGEST)
    try:
        yield
    except TrackersError:
        raise
    except (ImportError, NameError):  # ours, or of an installation
        raise
    except OSError as error:
        file = f"{error.filename}: " if error.errno != errno.ENOENT and error.filename else ""  # planted, or another's
        raise NotFound(f"{what} can't be read: {file}{error.strerror or reason(error)}") from error
    except Exception as error:
        sqlite3 = sys.modules.get("sqlite3")  # who didn't import it has no such error
        if sqlite3 is not None and isinstance(error, sqlite3.OperationalError) and "locked" in str(error):
            raise Unavailable(f"{what} can't be read now: {error}") from error
        raise Damaged(f"{what} is damaged: {reason(error)}") from error


def bounded(reader: type[R]) -> type[R]:
    """Put the boundary around a reader's methods; class decorator. Applied twice it does nothing."""
    for name, wrap in (("runs", _runs), ("read", _read), ("columns", _of_run), ("version", _of_run)):
        method = getattr(reader, name, None)
        if method is not None and not hasattr(method, _BOUNDED):
            wrapped = wrap(method)
            setattr(wrapped, _BOUNDED, True)
            setattr(reader, name, wrapped)
    return reader


def _runs(method: Callable[..., list[SourceRun]]) -> Callable[..., list[SourceRun]]:
    @functools.wraps(method)
    def runs(self: Any, where: str) -> list[SourceRun]:
        with boundary(f"{self.scheme}:{where}"):
            return [_plain_run(run) for run in method(self, where)]

    return runs


def _of_run(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def of_run(self: Any, run: SourceRun, **how: Any) -> Any:
        with boundary(run.source):
            return method(self, run, **how)

    return of_run


def _read(method: Callable[..., Iterator[Record]]) -> Callable[..., Iterator[Record]]:
    @functools.wraps(method)
    def read(self: Any, run: SourceRun, **how: Any) -> Iterator[Record]:
        check = _RecordCheck(run)
        try:
            with boundary(run.source):
                for record in method(self, run, **how):
                    fitting = check.check(record)
                    if fitting is not None:
                        yield fitting
        except Damaged as error:
            if not check.count:
                raise
            add_note(run, f"{error}; the {check.count:,} records before are read")
        if check.left_out:
            add_note(
                run, f"{run.source} is damaged: {check.left_out:,} records are left out, the first: {check.reason}"
            )

    return read


class TolerantReader:
    """Reads a run part by part: what is damaged is left out and counted, the others go on.

    Args:
        run: whose ``note`` says what was left out. unit: what a part is called, in the plural.
        also: errors besides :data:`DATA_ERRORS` that mean damage. Others end the reading: a server's, a database's.
    """

    def __init__(self, run: SourceRun, unit: str = "records", also: tuple[type[Exception], ...] = ()) -> None:
        self._run, self._unit = run, unit
        self._errors: tuple[type[Exception], ...] = (*DATA_ERRORS, *also)
        self._count, self._first = 0, ""

    def read(self, part: Iterable[T], name: str = "") -> Iterator[T]:
        """The records of a part, until it fails.

        Args:
            name: of the part, for the message.
        """
        try:
            yield from part
        except TrackersError:
            raise
        except self._errors as error:
            self.lose(reason(error), name)

    def lose(self, why: str, name: str = "") -> None:
        """Count a part that isn't read."""
        self._count += 1
        self._first = self._first or (f"{name}: " if name else "") + why

    def add_note(self) -> None:
        """Add what was left out to the run's note."""
        if self._count:
            left_out = f"{self._count:,} {self._unit} are left out, the first: {self._first}"
            add_note(self._run, f"{self._run.source} is damaged: {left_out}")


def add_note(run: SourceRun, text: str) -> None:
    """Add to what a reader of the data must know, unless it is said already."""
    if text not in run.note:
        run.note = f"{run.note}; {text}" if run.note else text


class _RecordCheck:
    """Checks the records of one reading. count: valid ones. left_out: invalid ones, reason: why."""

    def __init__(self, run: SourceRun) -> None:
        self.count = self.left_out = 0
        self.reason = ""
        self._time = run.created
        self._names: set[str] = set()

    def check(self, record: Record) -> Record | None:
        """The record itself, corrected where that is possible; None where no journal could hold it."""
        try:
            step, time = record.step, record.time
            if step is not None and (type(step) is not int or not -STEP_MAX <= step <= STEP_MAX):
                record.step = _whole_step(step)
            if type(time) is not float or not -TIME_MAX < time < TIME_MAX:
                record.time = self._sane_time(time)
            self._time = record.time
            if type(record) is Metrics:
                if not record.values.keys() <= self._names:
                    record.values = self._learn(record.values)
                with contextlib.suppress(OverflowError):  # an integer beyond any float is a number, too
                    sum(record.values.values())
            else:
                record = _storable(record)
        except DATA_ERRORS as error:
            self.left_out += 1
            self.reason = self.reason or reason(error)
            return None
        self.count += 1
        return record

    def _sane_time(self, time: Any) -> float:
        """The time, or that of the record before where it is out of range."""
        known = isinstance(time, (int, float)) and math.isfinite(time) and abs(time) < TIME_MAX
        return float(time) if known else self._time

    def _learn(self, values: dict[str, Any]) -> dict[str, Any]:
        """Values under names that can be written as UTF-8."""
        named = {escape_surrogates(name): value for name, value in values.items()}
        self._names.update(named)
        return named


def _whole_step(step: Any) -> int:
    if isinstance(step, (int, float)) and -STEP_MAX <= step <= STEP_MAX and step == int(step):
        return int(step)
    raise ValueError(f"step {str(step)[:40]!r} is no whole number of 64 bits")


def _storable(record: Record) -> Record:
    """A record as a journal gives it back; raises where a journal can't hold it."""
    records.check_record(record)
    try:
        records.encode_lines([record])
    except UnicodeEncodeError:
        record = records.sound(record)
    line = records.encode(record)
    if records.decode(line[:-1]) is None:
        raise ValueError("no record of a kind that is known")
    return record


def escape_surrogates(text: Any) -> str:
    """Text that can be written as UTF-8: lone surrogates, which JSON can name, are escaped."""
    return records.escaped(str(text))


def _plain_run(run: SourceRun) -> SourceRun:
    """A run whose attributes, which come from the input as they lay there, are of the kinds that they must be."""
    for name in ("id", "name", "project", "status"):
        value = getattr(run, name)
        setattr(run, name, "" if value is None else escape_surrogates(value))
    for name in ("group", "notes"):
        value = getattr(run, name)
        setattr(run, name, None if value is None else escape_surrogates(value))
    run.tags = [escape_surrogates(tag) for tag in run.tags]
    created = run.created
    known = isinstance(created, (int, float)) and math.isfinite(created) and abs(created) < TIME_MAX
    run.created = float(created) if known else 0.0
    return run
