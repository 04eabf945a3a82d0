"""CSV tables: ours, and those of others (Lightning's ``metrics.csv``, TensorBoard's and W&B's downloads).

A row is a record. The column of steps is the first that is called step, global_step, _step, iteration or iter, else
rows are counted; that of times is the first called time, timestamp, wall_time, _timestamp or created_at, else it is
the file's. Every other column is a metric, its empty cells absent; a cell that is no number is text; the second of two
columns ``loss`` is ``loss.1``. In our own tables, metrics called ``step`` and ``time`` have an underscore behind their
names. Where a table has no comma in its head, semicolons or tabs part its cells, and a comma is a number's point.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trackers.errors import Damaged, NotFound
from trackers.formats.csv_table import rows as table_rows
from trackers.readers import helpers
from trackers.readers.boundary import bounded
from trackers.readers.reader import Reader, SourceRun
from trackers.records import FLOAT_NAMES, Finish, Metrics, Record, Summary, Text

STEPS = ("step", "global_step", "_step", "trainer/global_step", "iteration", "iter")
TIMES = ("time", "timestamp", "wall_time", "wall time", "_timestamp", "created_at")
OURS = ("step", "time")
"""First columns of a table that this package wrote."""


@bounded
class CsvReader(Reader):
    """Reads tables of metrics."""

    scheme = "csv"

    def runs(self, where: str) -> list[SourceRun]:
        """See :class:`trackers.readers.reader.Reader`. A directory stands for the ``metrics.csv`` files in it."""
        paths = helpers.find_paths(self.scheme, where, lambda directory: sorted(directory.rglob("metrics.csv")))
        return helpers.newest_first(paths, _source_run)

    def version(self, run: SourceRun) -> str:
        """See :class:`trackers.readers.reader.Reader`."""
        return helpers.version([Path(run.source.partition(":")[2])])

    def read(self, run: SourceRun, *, files: Path | None = None) -> Iterator[Record]:
        """See :class:`trackers.readers.reader.Reader`."""
        path = Path(run.source.partition(":")[2])
        try:
            yield from _rows(path)
        except FileNotFoundError:
            raise helpers.gone_error(self.scheme, path) from None
        except (csv.Error, UnicodeDecodeError) as error:
            raise Damaged(f"csv: {path} is no table in UTF-8: {error}") from None
        yield from _results(path.with_name("summary.csv"), path.stat().st_mtime)


def _rows(path: Path) -> Iterator[Record]:
    written = path.stat().st_mtime
    with path.open(encoding="utf-8-sig", newline="") as table:
        delimiter = _delimiter(table.readline())
        table.seek(0)
        lines = table_rows(table, delimiter)
        titles = next(lines, [])
        if not titles:
            raise NotFound(f"csv: {path} is empty")
        lower = [title.strip().lower() for title in titles]
        step_at = next((lower.index(name) for name in STEPS if name in lower), None)
        time_at = next((lower.index(name) for name in TIMES if name in lower), None)
        names = _names(titles, path)
        for count, row in enumerate(lines):
            step: int | None = count
            if step_at is not None:
                step = _integer(row[step_at]) if step_at < len(row) else None
            time = helpers.unix(_value(row[time_at])) if time_at is not None and time_at < len(row) else None
            values: dict[str, Any] = {}
            texts: dict[str, str] = {}
            for index, cell in enumerate(row[: len(names)]):
                if index in (step_at, time_at) or cell == "":
                    continue
                value = _value(cell if delimiter == "," else _with_point(cell))
                if isinstance(value, str):
                    texts[names[index]] = cell
                else:
                    values[names[index]] = value
            at = written if time is None else time
            if values:
                yield Metrics(step=step, time=at, values=values)
            if texts:
                yield Text(step=step, time=at, values=texts)


def _results(path: Path, time: float) -> Iterator[Record]:
    if not path.is_file():
        return
    with path.open(encoding="utf-8", newline="") as table:
        rows = {row[0]: _value(row[1]) for row in list(table_rows(table))[1:] if len(row) == 2}
    status, code = rows.pop("status", None), rows.pop("exit_code", None)
    if rows:
        yield Summary(time=time, values=rows)
    if isinstance(status, str):
        yield Finish(time=time, status=status, exit_code=code if isinstance(code, int) else None)


def _delimiter(head: str) -> str:
    return next((delimiter for delimiter in ",;\t" if delimiter in head), ",")


def _with_point(cell: str) -> str:
    """Where cells are parted by something else, a comma is a number's point."""
    return cell.replace(",", ".") if cell.count(",") == 1 else cell


def _names(titles: list[str], path: Path) -> list[str]:
    """Metric names of columns; TensorBoard's download of one tag has ``Value``, and its name in the file's."""
    if [title.lower() for title in titles] == ["wall time", "step", "value"]:
        return [*titles[:2], path.stem]
    if tuple(titles[:2]) != OURS:
        before = [titles[:index].count(title) for index, title in enumerate(titles)]
        return [f"{title}.{count}" if count else title for title, count in zip(titles, before, strict=True)]
    names = list(titles)
    for own in OURS:  # of "step_" and "step__" the longer one is the metric "step"
        candidates = [title for title in titles[2:] if title.rstrip("_") == own and title != own]
        if candidates:
            names[titles.index(max(candidates, key=len))] = own
    return names


def _value(cell: str) -> Any:
    if cell in FLOAT_NAMES:
        return FLOAT_NAMES[cell]
    if cell in ("true", "false", "True", "False"):
        return cell in ("true", "True")
    try:
        return int(cell)
    except ValueError:
        pass
    try:
        return float(cell)
    except ValueError:
        return cell


def _integer(cell: str) -> int | None:
    value = _value(cell)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) else None


def _source_run(path: Path) -> SourceRun:
    name = path.parent.name if path.stem == "metrics" else path.stem
    stat = os.stat(path)
    return SourceRun(source=f"csv:{path}", id=helpers.identity(path), name=name, created=stat.st_mtime)
