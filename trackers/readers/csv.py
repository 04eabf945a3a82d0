"""CSV tables: ours, and those of others (Lightning's ``metrics.csv``, TensorBoard's and W&B's downloads, …).

A row is a record. A table of ours is read as it was written: its metrics called ``step`` and ``time`` have an
underscore behind their names. Of all others the dialect is found out (:class:`Dialect`), as pandas and Python's ``csv``
do, and what the columns mean (:mod:`trackers.readers.row_layout`); the run's note says what was assumed. Every other
column is a metric, its empty cells absent; a cell that is no number is text; the second column ``loss`` is ``loss.1``.
"""

from __future__ import annotations

import contextlib
import csv
import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from trackers.errors import Damaged, NotFound
from trackers.formats import text_file
from trackers.formats.csv_cell import unguarded
from trackers.formats.csv_table import rows as table_rows
from trackers.formats.ending import given_back
from trackers.formats.yaml_text import load_yaml
from trackers.readers import helpers
from trackers.readers.boundary import add_note, bounded, one_line
from trackers.readers.reader import Reader, SourceRun
from trackers.readers.row_layout import SAMPLE, RowLayout, TimeColumn, from_end, layout_of, say_odd, whole
from trackers.records import FLOAT_NAMES, Config, Finish, Metrics, Record, Summary, Text
from trackers.support import confined

OURS = ("step", "time")
"""First columns of a table that this package wrote."""
SETTINGS = ("hparams.yaml", "args.yaml", "params.json")
"""Files beside a table that hold its run's configuration: Lightning's, Ultralytics', RLlib's."""
FOLDERS_NAME = ("metrics", "results", "progress", "monitor")
"""Tables that every run calls so: the run is called as its folder."""
SETTINGS_BYTES = 1 << 24
HEAD_LINES = 1000
"""Comments and lines of a table that its dialect is found out by."""
HEAD_CHARS = 1 << 20
LONG_KEYS, LONG_RUNS = ("key", "metric", "metric_name", "tag"), ("run_name", "run", "group", "run_id")
"""Columns of a table that has one value a row, in ``value``: its metric, and its run, as MLflow's have ``Run ID``."""
DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars", " ": "blanks"}
MISSING = frozenset({"", "NA", "N/A", "n/a", "#N/A", "<NA>", "null", "NULL", "None", "-", "--"})
"""Cells of others' tables that stand for no value."""
_GERMAN = re.compile(r"-?\d+,\d+(?:[eE][+-]?\d+)?|-?\d{1,3}(?:\.\d{3})+,\d+")
_GROUPED = {
    ".": re.compile(r"-?[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?"),
    ",": re.compile(r"-?[1-9]\d{0,2}(?:[. '\u00a0\u202f]\d{3})+(?:,\d+)?"),
}
_SECOND = re.compile(r"\s*\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d")
_PARTS = re.compile(r"\d{3}")
_UNCLEAR = re.compile(r"-?[1-9]\d{0,2}\.\d{3}")
"""Beside decimal commas it may be a thousand, or a number with a point."""
_MILLIONS = re.compile(r"-?[1-9]\d{0,2}(?:\.\d{3}){2,}")
_DECIMAL = re.compile(r"-?\d+,\d+(?:[eE][+-]?\d+)?")


class Dialect(NamedTuple):
    """delimiter: between cells. point: of numbers, "." or ",". grouped: with separators of thousands, as in 1,234.5.

    skipped: lines before the head; names: the head, where the table has none. units: what a row below the head says
    of the columns, which is left out. parted: number of a column of times whose parts of seconds stand in a cell of
    their own; misfit: all rows have more cells than the head, so that nothing says which is what.
    """

    delimiter: str = ","
    point: str = "."
    grouped: bool = False
    skipped: int = 0
    names: tuple[str, ...] = ()
    units: tuple[str, ...] = ()
    parted: int | None = None
    misfit: bool = False

    def rows(self, lines: Iterable[str]) -> Iterator[list[str]]:
        """The table's rows, its head first; lines before it, and units below it, are left out."""
        lines = itertools.islice(iter(lines), self.skipped, None)
        if self.delimiter == " ":
            lines = (line.strip() for line in lines)
        for number, row in enumerate(table_rows(lines, self.delimiter)):
            cells = [cell for cell in row if cell] if self.delimiter == " " else row
            if self.parted is not None and number and len(cells) > self.parted + 1:
                cells[self.parted : self.parted + 2] = [".".join(cells[self.parted : self.parted + 2])]
            if number != 1 or not self.units or tuple(cells) != self.units:
                yield cells

    def value(self, cell: str) -> Any:
        """A cell's number, truth value or text; None where it is empty."""
        cell = cell.strip()
        if cell in MISSING:
            return None
        if cell.startswith(("'-", "'+")) and _is_number(number := self.value(cell[1:])):  # spreadsheets are kept off so
            return number
        if self.grouped and _GROUPED[self.point].fullmatch(cell):
            cell = re.sub(r"[. '\u00a0\u202f]" if self.point == "," else ",", "", cell)
        if self.point == "," and _DECIMAL.fullmatch(cell):
            cell = cell.replace(",", ".")
        elif self.point == "," and not self.grouped and _UNCLEAR.fullmatch(cell):
            return cell
        return _value(cell)

    def fits(self, row: Sequence[str], width: int) -> bool:
        """Whether a row's cells are those of the head: blanks don't say which are missing."""
        return (self.delimiter != " " and not self.misfit) or len(row) == width

    @property
    def said(self) -> list[str]:
        """What of it was assumed and isn't usual, in a few words each."""
        said = [f"cells are parted by {DELIMITERS[self.delimiter]}"] if self.delimiter != "," else []
        said += ["a comma is a number's point"] if self.point == "," else []
        said += ["thousands are grouped"] if self.grouped else []
        said += [f"the row below the head has units: {' '.join(self.units).strip()}"] if self.units else []
        return said + (["it has no head: columns are numbered"] if self.names else [])


class JudgedTable(NamedTuple):
    """A file, judged. layout: of another's table; None of ours. settings: from a comment before it."""

    dialect: Dialect
    names: list[str]
    layout: RowLayout | None
    settings: dict[str, Any]
    began: float


@bounded
class CsvReader(Reader):
    """Reads tables of metrics."""

    scheme = "csv"
    form = 7

    def runs(self, where: str) -> list[SourceRun]:
        """See :class:`trackers.readers.reader.Reader`. A directory stands for the ``metrics.csv`` files in it."""
        paths = helpers.find_paths(self.scheme, where, lambda directory: sorted(directory.rglob("metrics.csv")))
        return helpers.newest_first(paths, _source_run)

    def version(self, run: SourceRun) -> str:
        """See :class:`trackers.readers.reader.Reader`."""
        path = helpers.path(run)
        beside = [path.with_name(name) for name in ("summary.csv", *SETTINGS)]
        return helpers.version([path, *(other for other in beside if other.is_file())])

    def read(self, run: SourceRun, *, files: Path | None = None) -> Iterator[Record]:
        """See :class:`trackers.readers.reader.Reader`."""
        path = helpers.path(run)
        written = _written(path)
        with _as_table(path):
            table = judged(path)
        settings = {**_settings(path, run), **table.settings}
        if settings:
            yield Config(time=table.began, values=settings)
        with _as_table(path):
            if table.layout is None:
                yield from _ours(path, table.names, written, run)
                yield from _results(path.with_name("summary.csv"), written)
            else:
                odd: Counter[str] = Counter()
                yield from table.layout.records(_foreign_rows(path, table, odd), odd)
                say_odd(run, odd)
                for text in (*table.dialect.said, *table.layout.said):
                    add_note(run, text)


@contextlib.contextmanager
def _as_table(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise helpers.gone_error("csv", path) from None
    except (csv.Error, UnicodeDecodeError) as error:
        raise Damaged(f"csv: {path} is no table in UTF-8: {error}") from None


def judged(path: Path) -> JudgedTable:
    """Find out what a file's table is like, from its beginning; all of it is read only where times count from a start.

    Raises:
        NotFound: it is empty.
    """
    written = _written(path)
    lines, cut = _head(path)
    comments = list(itertools.takewhile(lambda line: line.startswith("#") or not line.strip(), lines))
    lines = lines[len(comments) :]
    if not lines:
        raise NotFound(f"csv: {path} is empty")
    ours = _judged_as_ours(lines, written) if not comments else None
    if ours is not None:
        return ours
    settings = _commented(comments)
    dialect = _dialect(lines, len(comments))
    content = list(dialect.rows([*comments, *lines]))
    names = list(dialect.names) or _foreign_names(content.pop(0), path)
    if cut and len(content) > 1:
        content.pop()
    if not dialect.names and _counts_rows(names, content):
        names[0] = ""
    elif not names[0]:
        names[0] = "column 1"
    content = [row for row in content if dialect.fits(row, len(names))]
    cells = [cells for row in content[:SAMPLE] if (cells := _cells(names, row, dialect))]
    long, runs = _long_columns(names), dict[tuple[Any, ...], str]()
    sample = [_long(row, long, runs) for row in cells] if long is not None else cells
    layout = _known(names, settings) or layout_of([name for name in names if name], sample, written)
    table = JudgedTable(dialect, names, layout, settings, written)
    return table if layout.clock is None else _with_beginning(path, table, layout, layout.clock, sample)


def _judged_as_ours(lines: Sequence[str], written: float) -> JudgedTable | None:
    """A table that this package wrote, by its first two columns and their times, which are stamps; None: it isn't."""
    if "," not in lines[0]:
        return None
    rows = table_rows(lines)
    titles = next(rows, [])
    if titles[:2] != list(OURS):
        return None
    sample = [dict(zip(titles, map(_value, row), strict=False)) for row in itertools.islice(rows, SAMPLE - 1)]
    clock = layout_of(titles, sample, written).clock
    if sample and (clock is None or clock.elapsed):
        return None
    began = helpers.unix(sample[0].get("time")) if sample else None
    return JudgedTable(Dialect(), _own_names(titles), None, {}, written if began is None else began)


def _with_beginning(
    path: Path, table: JudgedTable, layout: RowLayout, clock: TimeColumn, sample: Sequence[Mapping[str, Any]]
) -> JudgedTable:
    """A table that has times with when it began: by its first row, or back from its end where they count from a start
    that it doesn't say."""
    if clock.elapsed and layout.began == table.began:
        last = 0.0
        for row in text_file.undamaged(_foreign_rows(path, table, Counter())):
            last = max(last, clock.seconds(row.get(clock.name)) or 0.0)
        layout = from_end(layout, last)
    first = next(layout.records(sample[:1]), None)
    return table._replace(layout=layout, began=table.began if first is None else first.time)


def _known(names: Sequence[str], settings: Mapping[str, Any]) -> RowLayout | None:
    """Tables whose columns don't say what they are, by their signature."""
    began = helpers.unix(settings.get("t_start"))
    if list(names[:3]) == ["r", "l", "t"] and began is not None:  # stable_baselines3/common/monitor.py
        clock = TimeColumn("t", elapsed=True, kept=True)
        return RowLayout("l", clock, True, None, began, ("steps are the sum of its 'l'",))
    return None


def _head(path: Path) -> tuple[list[str], bool]:
    """The first lines of a file, and whether there are more."""
    lines: list[str] = []
    left = HEAD_CHARS
    with text_file.open_text(path) as file:
        while left > 0 and len(lines) < HEAD_LINES:
            try:
                line = file.readline(left)
            except text_file.PackedError:
                return lines, True
            if not line:
                return lines, False
            lines.append(line)
            left -= len(line)
    return lines, True


def _commented(comments: Sequence[str]) -> dict[str, Any]:
    """Settings that stand before a table, as an object of JSON in a comment."""
    for line in comments:
        with contextlib.suppress(ValueError, RecursionError):
            value = json.loads(line.lstrip("#").strip())
            if isinstance(value, dict):
                return value
    return {}


def _dialect(lines: Sequence[str], comments: int) -> Dialect:
    """The way in which these lines are a table, by which delimiter gives most of them as many cells as the head."""
    stated = re.fullmatch(r"sep=(.)\s*", lines[0])
    skipped = comments + (stated is not None)
    lines = lines[stated is not None :]
    found: list[tuple[float, int, str, list[list[str]]]] = []
    for delimiter in DELIMITERS if stated is None else (stated[1],):
        try:
            rows = [row for row in Dialect(delimiter).rows(lines) if row]
        except csv.Error:
            continue
        width = len(rows[0]) if rows else 0
        found.append((_share(rows, width, delimiter), width, delimiter, rows))
    if not found:
        return Dialect(skipped=skipped)
    share, _, delimiter, rows = max(found, key=lambda each: (round(each[0], 1), each[2] != " ", each[1]))
    if not share:
        delimiter, rows = next(((each[2], each[3]) for each in found if each[2] == ","), (delimiter, rows))
    delimiter = delimiter if delimiter in DELIMITERS else ","
    point, grouped = _numbers([cell.strip().removeprefix("'") for row in rows[1:] for cell in row], delimiter)
    dialect = Dialect(delimiter, point, grouped, skipped, (), (), *_misfit(rows))
    titles = rows[0] if rows else []
    if titles and all(_is_number(dialect.value(title)) for title in titles):
        return dialect._replace(names=tuple(f"column {number}" for number in range(1, len(titles) + 1)))
    return dialect._replace(units=tuple(rows[1])) if _has_units(rows[1:], dialect) else dialect


def _misfit(rows: Sequence[Sequence[str]]) -> tuple[int | None, bool]:
    """Which column's times have a comma before the parts of a second, as Python's logging writes them, where that makes
    one cell more than the head has; and whether all rows have more, and not for that."""
    width = len(rows[0]) if rows else 0
    body = [row for row in rows[1:] if row]
    if not body or not all(any(cell.strip() for cell in row[width:]) for row in body):
        return None, False
    parted = (place for place in range(width) if all(
        len(row) == width + 1 and _SECOND.fullmatch(row[place]) and _PARTS.fullmatch(row[place + 1]) for row in body
    ))  # fmt: skip
    found = next(parted, None)
    return found, found is None


def _share(rows: Sequence[Sequence[str]], width: int, delimiter: str) -> float:
    """Share of the rows that have as many cells as the head; 0.0 where that is no table."""
    share = sum(len(row) == width for row in rows) / len(rows) if width > 1 else 0.0
    if delimiter != " " or share == 1.0:
        return share
    told = share >= 0.5 and all(map(_is_number, map(_value, itertools.chain(*rows[1:]))))
    return share if told else 0.0  # else it is prose


def _has_units(rows: Sequence[Sequence[str]], dialect: Dialect) -> bool:
    """Whether the first row has no number, and a word where all others have one."""
    if len(rows) < 3:
        return False
    first, *others = ([dialect.value(cell) for cell in row] for row in rows)
    if any(helpers.is_number(value) for value in first):
        return False
    columns = ([row[place] for row in others if len(row) > place] for place in range(len(first)))
    return any(isinstance(value, str) and len(column) == len(others) and all(map(_is_number, column))
               for value, column in zip(first, columns, strict=True))  # fmt: skip


def _numbers(cells: Sequence[str], delimiter: str) -> tuple[str, bool]:
    """A number's point, and whether its thousands are grouped."""
    commas = [cell for cell in cells if "," in cell and cell[-1:].isdigit()]
    if not commas:
        return ".", False
    english = sum(_GROUPED["."].fullmatch(cell) is not None for cell in commas)
    german = sum(_GERMAN.fullmatch(cell) is not None for cell in commas)
    if german and (german > english or (german == english and delimiter != ",")):
        return ",", any(_GROUPED[","].fullmatch(cell) for cell in commas) or any(map(_MILLIONS.fullmatch, cells))
    return ".", english > 0


def _counts_rows(names: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first column is the index that pandas writes: without a name, and each row's number."""
    return names[0] in ("", "Unnamed: 0") and all(row[:1] == [str(number)] for number, row in enumerate(rows))


class _Long(NamedTuple):
    """Columns of a table that has a value a row: of metrics' names, of their values, of what says whose they are."""

    keys: list[str]
    value: str
    runs: list[str]


def _long_columns(names: Sequence[str]) -> _Long | None:
    """Those of a table with such a head; None where it is another's."""
    plain = {name.lower().replace(" ", "_"): name for name in reversed(names)}
    keys, runs = ([plain[each] for each in known if each in plain] for known in (LONG_KEYS, LONG_RUNS))
    is_long = keys and "value" in plain and not plain.keys().isdisjoint(("step", "timestamp"))
    return _Long(keys, plain["value"], runs) if is_long else None


def _long(cells: dict[str, Any], columns: _Long, runs: dict[tuple[Any, ...], str]) -> dict[str, Any]:
    """A row of such a table, as MLflow's page downloads it, by the metric's name.

    Args:
        runs: gets what stands before the names of each run's values: nothing for the first row's, else what it is
            called that no other is.
    """
    key = next((name for name in columns.keys if isinstance(cells.get(name), str)), None)
    if key is None or not _is_number(cells.get(columns.value)):
        return cells
    run = tuple(cells.get(name) for name in columns.runs)
    if run not in runs:
        taken = {str(known) for other in runs for known in other}
        called = [str(part) for part in run if part is not None]
        runs[run] = f"{next((part for part in called if part not in taken), '/'.join(called))}/" if runs else ""
    rest = {name: value for name, value in cells.items() if name not in (key, columns.value, *columns.runs)}
    return {**rest, f"{runs[run]}{cells[key]}": cells[columns.value]}


def _is_number(value: Any) -> bool:
    return helpers.is_number(value) and not isinstance(value, bool)


def _foreign_names(titles: list[str], path: Path) -> list[str]:
    """Metric names of columns, "" of one that only numbers rows; TensorBoard's download of one tag has ``Value``."""
    titles = [title.strip() for title in titles]
    if [title.lower() for title in titles] == ["wall time", "step", "value"]:
        return [*titles[:2], path.stem]
    names: list[str] = []
    counts: Counter[str] = Counter()
    for number, title in enumerate(titles, 1):
        name = title or (f"column {number}" if number > 1 else "")
        names.append(f"{name}.{counts[name]}" if name and counts[name] else name)
        counts[title] += 1
    return names


def _own_names(titles: list[str]) -> list[str]:
    names = list(titles)
    for own in OURS:  # of "step_" and "step__" the longer one is the metric "step"
        candidates = [title for title in titles[2:] if title.rstrip("_") == own and title != own]
        if candidates:
            names[titles.index(max(candidates, key=len))] = own
    return list(map(unguarded, names))


def _cells(names: Sequence[str], row: Sequence[str], dialect: Dialect) -> dict[str, Any]:
    """A row's values by name; empty where it is the head again."""
    if not dialect.names and [cell.strip() for cell in row] == list(names):
        return {}
    value = dialect.value
    return {name: found for name, cell in zip(names, row, strict=False) if name and (found := value(cell)) is not None}


def _watched(lines: Iterable[str], ended: list[bool]) -> Iterator[str]:
    """Lines; ``ended`` is whether the latest has its end."""
    for line in lines:
        ended[:] = [line.endswith(("\n", "\r"))]
        yield line


def _without_cut(row: list[str], ended: list[bool], width: float, odd: Counter[str]) -> None:
    """Count a row whose line has no end, and leave out its last cell, but for one of as many cells as the head."""
    if row and not all(ended) and row[-1].strip():
        odd["endless" if len(row) >= width else "cut"] += 1
        del row[-1 if len(row) < width else len(row) :]


def _foreign_rows(path: Path, table: JudgedTable, odd: Counter[str]) -> Iterator[dict[str, Any]]:
    """A table's rows. odd: counts what of them isn't read."""
    dialect, step = table.dialect, table.layout.step if table.layout is not None else None
    may_be_unclear = dialect.point == "," and not dialect.grouped
    long, runs = _long_columns(table.names), dict[tuple[Any, ...], str]()
    with text_file.open_text(path) as file:
        ended: list[bool] = []
        rows = dialect.rows(_watched(file, ended))
        if not dialect.names:
            next(rows, None)
        width = len(table.names)
        for row in rows:
            _without_cut(row, ended, width, odd)
            if row and not dialect.fits(row, width):
                odd["other"] += 1
                continue
            cells = _cells(table.names, row, dialect)
            if cells:
                odd["longer"] += any(cell.strip() for cell in row[width:])
                odd["stepless"] += step is not None and whole(cells.get(step)) is None
                odd["unclear"] += may_be_unclear and any(map(_UNCLEAR.fullmatch, map(str.strip, row)))
                yield cells if long is None else _long(cells, long, runs)


def _ours(path: Path, names: Sequence[str], written: float, run: SourceRun) -> Iterator[Record]:
    odd: Counter[str] = Counter()
    with text_file.open_text(path) as file:
        ended: list[bool] = []
        rows = table_rows(_watched(file, ended))
        next(rows, None)
        for row in rows:
            _without_cut(row, ended, math.inf, odd)
            step = whole(_value(row[0])) if row else None
            odd["longer"] += any(row[len(names) :])
            odd["stepless"] += step is None and any(row[:1])
            time = helpers.unix(_value(row[1])) if len(row) > 1 else None
            values: dict[str, Any] = {}
            texts: dict[str, str] = {}
            for name, cell in zip(names[2:], row[2:], strict=False):
                if cell == "":
                    continue
                value = _value(cell)
                if isinstance(value, str):
                    texts[name] = unguarded(cell)
                else:
                    values[name] = value
            at = written if time is None else time
            if values:
                yield Metrics(step=step, time=at, values=values)
            if texts:
                yield Text(step=step, time=at, values=texts)
    say_odd(run, odd)


def _results(path: Path, time: float) -> Iterator[Record]:
    if not path.is_file():
        return
    with text_file.open_text(path) as table:
        rows = {unguarded(row[0]): _value(unguarded(row[1])) for row in list(table_rows(table))[1:] if len(row) == 2}
    status, code = rows.pop("status", None), rows.pop("exit_code", None)
    if rows:
        yield Summary(time=time, values={given_back(name): value for name, value in rows.items()})
    if isinstance(status, str):
        yield Finish(time=time, status=status, exit_code=code if isinstance(code, int) else None)


def _settings(path: Path, run: SourceRun) -> dict[str, Any]:
    """What lies beside a table as its run's configuration."""
    beside = next((other for name in SETTINGS if (other := path.with_name(name)).is_file()), None)
    if beside is None:
        return {}
    try:
        if not confined.is_file(beside):
            raise ValueError("it is a link, and may lead to anything")
        if beside.stat().st_size > SETTINGS_BYTES:
            raise ValueError("it is too long")
        text = text_file.read_text(beside)
        content = json.loads(text) if beside.suffix == ".json" else load_yaml(text)
    except ImportError:
        add_note(run, f"{beside.name} isn't read: pip install pyyaml")
        return {}
    except (ValueError, OSError, RecursionError) as error:
        add_note(run, f"{beside.name} isn't read: {one_line(str(error), 120)}")
        return {}
    return {str(name): value for name, value in content.items()} if isinstance(content, dict) else {}


def _value(cell: str) -> Any:
    if cell in FLOAT_NAMES:
        return FLOAT_NAMES[cell]
    if cell in ("true", "false", "True", "False"):
        return cell in ("true", "True")
    if "_" in cell:  # which Python takes in numbers
        return cell
    try:
        return int(cell)
    except ValueError:
        pass
    try:
        number = float(cell)
    except ValueError:
        return cell
    beyond = math.isinf(number) and any(character.isdigit() for character in cell)
    return cell if beyond else number  # "1e400" isn't infinite, and is kept as it is written


def _written(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        raise helpers.gone_error("csv", path) from None


def _source_run(path: Path) -> SourceRun:
    with _as_table(path):
        table = judged(path)
    stem = Path(text_file.bare_name(path.name)).stem
    name = path.parent.name if stem in FOLDERS_NAME else stem
    return SourceRun(source=f"csv:{path}", id=helpers.identity(path), name=name, created=table.began)
