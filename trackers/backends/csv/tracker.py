"""One wide table of a run's metrics: ``metrics.csv``, exact after any restart, and ``summary.csv`` at the end.

Columns are step, time and then the names in the order they first appeared; a row is one record. A new name, or a
rewind to a checkpoint, writes the table anew beside the old one and puts it in its place. Until that is committed
the state doesn't match the file, so a kill right then makes the table be rebuilt from the journal.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from trackers.backends.csv.precheck import CsvPrecheck
from trackers.backends.shared.append_file import (
    DIGESTS,
    FileShrunk,
    OwnedFile,
    digests,
    file_name,
    remove_temporary,
    replace,
    take_with_rewinds,
    unseen,
    verified,
)
from trackers.backends.shared.directory import option_directory
from trackers.formats.csv_cell import guarded
from trackers.formats.csv_table import rows as table_rows
from trackers.formats.ending import lent
from trackers.records import (
    SUMMARY_PREFIX,
    Finish,
    Metrics,
    Record,
    Start,
    Summary,
    Text,
    name_floats,
    plain_name,
    take_results,
)
from trackers.support import confined
from trackers.tracker import Cursor, RunInfo, State, Status, Verified

FIXED = ("step", "time")
"""The first columns. A metric of one of these names gets a column of its own behind them."""


class CsvState(msgspec.Struct):
    """The tracker's state. columns: names of metrics and texts, in order. length: of the file. seq: highest taken."""

    columns: list[str] = []
    length: int = 0
    seq: int = 0
    rewound: int = 0
    results: dict[str, Any] = {}


class CsvTracker(CsvPrecheck):
    """Writes ``metrics.csv`` and ``summary.csv`` to ``CSV_DIR/<name>-<id>``, or to the run's directory.

    Numbers are written so that they read back exactly, NaN and infinities as NaN, Infinity and -Infinity.
    """

    accepts = frozenset({Start, Metrics, Text, Summary, Finish})

    @staticmethod
    def own_files(info: RunInfo, state: State) -> list[Path]:
        """What of the run lies outside of its directory (:class:`trackers.tracker.Tracker`)."""
        chosen = option_directory(info, "CSV_DIR")
        return [] if chosen is None else [chosen / f"{file_name(info.name)}-{file_name(info.id)}"]

    def open(self, info: RunInfo, state: State) -> Cursor | None:
        """Cut the table back to what was committed; one that doesn't match the state is built anew."""
        self._state = state
        chosen = option_directory(info, "CSV_DIR")
        own = f"{file_name(info.name)}-{file_name(info.id)}"
        self._root = Path(info.directory) if chosen is None else chosen
        self._directory = self._root if chosen is None else chosen / own
        self._digests = digests(state)
        self._file = OwnedFile(self._directory / "metrics.csv", self._root, self._digests)
        self._temporary = self._directory / ".metrics.csv.tmp"
        remove_temporary(self._temporary)
        remove_temporary(self._directory / ".summary.csv.tmp")
        self._table = msgspec.convert(dict(state).get("table", {}), CsvState)
        state["url"] = str(self._file.path)
        answer = None
        try:
            if self._table.length:
                self._check_header()
                self._file.open(self._table.length)
                return None
        except FileShrunk:
            answer = Cursor(0)
        self._table = CsvState()
        self._file.open()
        self._file.append(_line((*FIXED,)))
        self._table.length = self._file.length
        return answer

    def write(self, records: Sequence[Record], cursor: Cursor) -> None:
        """Append a row for each record of metrics or texts, all of the batch or nothing."""
        take_with_rewinds(unseen(records, self._table.seq), self._table.rewound, self._take, self._rewind)
        self._state["table"] = name_floats(msgspec.to_builtins(self._table))
        self._state[DIGESTS] = dict(self._digests)

    def verify(self) -> Verified:
        """Read both tables back; see :class:`trackers.tracker.Tracker`."""
        return verified(
            [(self._directory / name, self._root) for name in ("metrics.csv", "summary.csv")], self._digests
        )

    def close(self, status: Status) -> None:
        """Write ``summary.csv``: the results, by name without ``final/``, and how the run ended."""
        self._file.check()
        if status.name != "running":
            results: dict[str, Any] = {lent(name): value for name, value in self._table.results.items()}
            results["status"] = status.name
            if status.exit_code is not None:
                results["exit_code"] = status.exit_code
            rows = [("name", "value"), *((guarded(name), _cell(value)) for name, value in results.items())]
            summary, lines = self._directory / "summary.csv", (_line(row) for row in rows)
            replace(summary, self._directory / ".summary.csv.tmp", lines, self._root, self._digests)
            self._state[DIGESTS] = dict(self._digests)
        self._file.close()

    def _take(self, batch: Sequence[Record]) -> None:
        if not batch:
            return
        rows = []
        results = dict(self._table.results)
        known = dict.fromkeys(self._table.columns)
        for record in batch:
            if isinstance(record, Summary):
                take_results(results, record)
            elif isinstance(record, (Metrics, Text)):
                values: dict[str, Any] = {}
                for name, value in record.values.items():
                    if name.startswith(SUMMARY_PREFIX):
                        results[plain_name(name)] = value
                    else:
                        values[name] = value
                if values:
                    known.update(dict.fromkeys(values))
                    rows.append((record.step, record.time, values))
        columns = list(known)
        if len(columns) > len(self._table.columns):
            self._rewrite(columns, None)
        lines = []
        for step, time, values in rows:
            cells = (_cell(values[name]) if name in values else "" for name in columns)
            lines.append(_line(("" if step is None else str(step), repr(time), *cells)))
        self._file.append(b"".join(lines))
        seq = max(self._table.seq, *(record.seq for record in batch))
        self._table = msgspec.structs.replace(self._table, seq=seq, results=results, length=self._file.length)

    def _rewind(self, step: int, attempt: int) -> None:
        self._rewrite(self._table.columns, step)
        self._table.rewound = attempt

    def _rewrite(self, columns: list[str], last_step: int | None) -> None:
        """The table anew, with more columns, or without rows above ``last_step``."""
        self._file.rewrite(self._rows_anew(columns, last_step), self._temporary)
        self._table = msgspec.structs.replace(self._table, columns=columns, length=self._file.length)

    def _rows_anew(self, columns: list[str], last_step: int | None) -> Iterator[bytes]:
        yield _line((*FIXED, *_headers(columns)))
        added = [""] * (len(columns) - len(self._table.columns))
        with confined.open_text(self._file.path, root=self._root) as old:
            rows = table_rows(old)
            next(rows, None)
            for row in rows:
                if last_step is None or not row[0] or int(row[0]) <= last_step:
                    yield _line((*row, *added))

    def _check_header(self) -> None:
        """Raise Damaged when the file has other columns than the state: a kill came between the two."""
        try:
            with confined.open_text(self._file.path, root=self._root) as table:
                header = next(table_rows(table), [])
                size = table.seek(0, io.SEEK_END)
        except (FileNotFoundError, UnicodeDecodeError, csv.Error) as error:
            raise FileShrunk(str(error)) from error
        if header != [*FIXED, *_headers(self._table.columns)] or size < self._table.length:
            raise FileShrunk(f"{self._file.path} isn't what was committed")


def _headers(columns: Sequence[str]) -> list[str]:
    """Column titles: the names themselves, but for those that would be one of the first columns again."""
    names = {*FIXED, *columns}
    titles = []
    for name in columns:
        title = name
        while title in FIXED or (title != name and title in names):
            title += "_"
        titles.append(guarded(title.replace("\0", "\ufffd").encode("utf-8", "replace").decode()))
    return titles


def _cell(value: Any) -> str:
    """A value as text that reads back exactly, and that no spreadsheet calculates."""
    if isinstance(value, str):
        return guarded(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(name_floats(value))
    return json.dumps(name_floats(value), ensure_ascii=False, default=str)


def _line(cells: Iterable[str]) -> bytes:
    """A row by RFC 4180, but for its end: "\\n", as command-line tools expect. Python's writer leaves "\\r" bare, and
    readers refuse NUL."""
    return (",".join(map(_quoted, cells)) + "\n").replace("\0", "\ufffd").encode("utf-8", "replace")


def _quoted(cell: str) -> str:
    if _special.isdisjoint(cell):
        return cell
    return '"' + cell.replace('"', '""') + '"'


_special = frozenset(',"\r\n')
