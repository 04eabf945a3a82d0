"""JSON lines: an object a line, as LLaMA-Factory (``trainer_log.jsonl``), MMEngine (``scalars.json``), verl, RLlib
(``result.json``), detectron2 (``metrics.json``) and many a script write them.

Nested objects are joined with "/"; a number in quotes is a number; null is no value. What is the step and what the
time, :mod:`trackers.readers.row_layout` finds out, and the run's note says what was assumed. verl's rows, a ``step``
and all else in ``data``, have the names that verl gave the values. An object ``config`` is the run's configuration.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from trackers.errors import NotFound
from trackers.formats import text_file
from trackers.readers import helpers
from trackers.readers.boundary import add_note, escape_surrogates, one_line, reason
from trackers.readers.reader import SourceRun
from trackers.readers.row_layout import EPOCHS, SAMPLE, STEPS, RowLayout, from_end, layout_of, plain_name, say_odd
from trackers.records import Config, Metrics, Record, check_depth, flatten, unnamed_float

LINE_BYTES = 1 << 26
"""Longest line that is read."""
CONFIG = "config"
NAMES = ("trainer_log.jsonl", "scalars.json", "metrics.jsonl", "result.json")
"""Files of JSON lines that a directory stands for."""
FOLDERS_NAME = ("trainer_log", "scalars", "metrics", "result", "progress", "training", "train", "log")
"""Files that every run calls so."""
_NONE = re.compile(r"[+-]?(?:nan|inf(?:inity)?)\Z", re.IGNORECASE)
_VERL = frozenset({"step", "data"})


class JudgedLines(NamedTuple):
    """A file, judged. layout: what its keys mean. began: Unix seconds of its first row, or of the file."""

    layout: RowLayout
    began: float


class _Count:
    """What of a file isn't read: lines that are no objects, lists by name, and a last line without its end."""

    def __init__(self) -> None:
        self.bad, self.first, self.torn = 0, "", 0
        self.lists: dict[str, None] = {}

    def say(self, run: SourceRun) -> None:
        if self.bad:
            lines = "a line is" if self.bad == 1 else f"{self.bad:,} lines are"
            add_note(run, f"{lines} left out, the first: {self.first}")
        if self.torn:
            add_note(run, f"its last line ({self.torn:,}) is left out: it is cut off, or still being written")
        if self.lists:
            named = ", ".join(itertools.islice(self.lists, 3)) + (", …" if len(self.lists) > 3 else "")
            add_note(run, f"lists are left out: {one_line(escape_surrogates(named), 200)}")


def is_lines(path: Path) -> bool:
    """Whether a file has a row on its first line: an object with a step, or with another object on the line behind it.

    Raises:
        FileNotFoundError: it has gone. PackedError: it is packed, and damaged.
    """
    with text_file.open_bytes(path) as file:
        found = (line for _ in range(100) if (line := file.readline(LINE_BYTES)).strip() or not line)
        first, second = next(found, b""), next(found, b"")
    try:
        row = decode(first)
    except (ValueError, RecursionError):
        return False
    if not row or not row.keys().isdisjoint(("training_iterations", "performance_metrics", "training_config")):
        return False
    return second.startswith(b"{") or not {plain_name(name) for name in row}.isdisjoint((*STEPS, *EPOCHS))


def judged(path: Path) -> JudgedLines:
    """Find out what a file's rows are like, from the first; all are read only where times count from a start.

    Raises:
        NotFound: no row has a number.
    """
    written = path.stat().st_mtime
    sample = list(itertools.islice(text_file.undamaged(_rows(path, _Count(), {})), SAMPLE))
    if not any(helpers.is_number(value) for row in sample for value in row.values()):
        raise NotFound(f"json: {path} has no row with a number: it is no log of a training")
    names = list(dict.fromkeys(name for row in sample for name in row))
    layout = layout_of(names, sample, written)
    clock = layout.clock
    if clock is not None and clock.elapsed:
        rows = text_file.undamaged(_rows(path, _Count(), {}))
        last = max((clock.seconds(row.get(clock.name)) or 0.0 for row in rows), default=0.0)
        layout = from_end(layout, last)
    first = next(layout.records(sample[:1]), None) if clock is not None else None
    return JudgedLines(layout, written if first is None else first.time)


def read(path: Path, run: SourceRun) -> Iterator[Record]:
    """A file's records; the run's note says what was assumed, and what isn't read."""
    layout, began = judged(path)
    count, config = _Count(), dict[str, Any]()
    shown = False
    odd: Counter[str] = Counter()
    for record in layout.records(_rows(path, count, config), odd):
        if config and not shown:
            yield Config(time=began, values=dict(config))
            shown = True
        odd["stepless"] += isinstance(record, Metrics) and record.step is None
        yield record
    for text in layout.said:
        add_note(run, text)
    count.say(run)
    say_odd(run, odd)


def _rows(path: Path, count: _Count, config: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Rows with their values by flat names. config: is filled with what rows hold of it."""
    with text_file.open_bytes(path) as file:
        for number in itertools.count(1):
            line = file.readline(LINE_BYTES)
            if not line:
                return
            if not line.strip(b" \t\r\n\0"):
                continue
            try:
                row = decode(line)
                check_depth(row)
            except (ValueError, RecursionError) as error:
                if line.endswith(b"\n") or len(line) == LINE_BYTES:
                    count.bad += 1
                    count.first = count.first or f"line {number}: {reason(error)}"
                else:
                    count.torn = number
                continue
            settings = row.pop(CONFIG, None)
            if isinstance(settings, dict):
                config.update(settings)
            elif settings is not None:
                row[CONFIG] = settings
            if row.keys() == _VERL and isinstance(row["data"], dict):
                row = {**row["data"], "step": row["step"]}
            values = {}
            for name, value in flatten(row):
                if isinstance(value, (list, dict)):
                    count.lists.setdefault(name, None)
                elif value is not None:
                    values[name] = _number(value) if isinstance(value, str) else value
            if values:
                yield values


def decode(line: bytes) -> dict[str, Any]:
    """The object of a line.

    Raises:
        ValueError: there is none.
    """
    text = line.strip(b" \t\r\n\0").removesuffix(b",")
    try:
        row = msgspec.json.decode(text)
    except msgspec.DecodeError:  # NaN, which Python writes
        row = json.loads(text)
    if not isinstance(row, dict):
        raise ValueError("no object on this line")
    return row


def _number(text: str) -> Any:
    """The number that a text is, as fairseq and Python's ``str`` write them; else the text."""
    value, plain = unnamed_float(text), text.strip()
    if isinstance(value, str) and len(text) < 40 and "_" not in text and (plain[-1:].isdigit() or _NONE.match(plain)):
        for kind in (int, float):
            try:
                return kind(text)
            except ValueError:
                continue
    return value


def source_run(path: Path) -> SourceRun:
    """A file as a run, called as its folder where all runs call the file so."""
    stem = Path(text_file.bare_name(path.name)).stem
    name = path.parent.name if stem in FOLDERS_NAME else stem
    began = judged(path).began
    return SourceRun(source=f"json:{path}", id=helpers.identity(path), name=name, created=began,
                     native={"lines": True}, directory=str(path.parent))  # fmt: skip
