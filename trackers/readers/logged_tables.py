"""Tables that runs logged, as Arrow tables with typed columns."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from trackers.errors import Damaged, NotFound
from trackers.formats import float_names
from trackers.readers.boundary import boundary
from trackers.readers.frames import Frame
from trackers.readers.reader import ServedMedia
from trackers.records import FLOAT_NAMES, Media, MediaFile, Record, escaped
from trackers.support import confined
from trackers.support.optional import need

STEP = "step"
"""The first column of a table over steps; a column of the table's own that is called so is ``step_`` there."""
_NUMBERS = frozenset({int, float})
_FOREIGN = {"image-file": "image", "audio-file": "audio", "video-file": "video", "html-file": "html"}
"""What W&B's table files call media."""


class TableContent(NamedTuple):
    """columns: names, each once. cells: of each column, one for each row, as JSON has them."""

    columns: list[str]
    cells: list[list[Any]]

    @property
    def size(self) -> int:
        """The number of rows."""
        return len(self.cells[0]) if self.cells else 0


class LoggedTable:
    """One table as it was logged; its content is read when it is asked for.

    name, step (None: logged without one), time (Unix seconds). before: of a table that is logged in parts
    (``log_mode="INCREMENTAL"``) the parts before this one, whose rows are the table's first.
    """

    def __init__(self, record: Media, read: Callable[[], Any], before: Sequence[LoggedTable] = ()) -> None:
        self.name, self.step, self.time = record.name, record.step, record.time
        self.before = before
        self._read = read

    @cached_property
    def new(self) -> TableContent:
        """The content that was logged at this step: of a part, its own rows.

        Raises:
            NotFound: its file isn't there. Damaged: it holds no table.
        """
        with boundary(f"table {self.name!r}"):
            return _content(self._read())

    @cached_property
    def content(self) -> TableContent:
        """Names of columns, and cells.

        Raises:
            NotFound: its file isn't there. Damaged: it holds no table.
        """
        return _together([table.new for table in (*self.before, self)]) if self.before else self.new

    @property
    def columns(self) -> list[str]:
        """Names of columns; a name that comes again has its number behind it: ``score (2)``."""
        return self.content.columns

    def __len__(self) -> int:
        return self.content.size

    def frame(self) -> Frame:
        """The table with typed columns, whose shape is rows x columns.

        A column is of truth values, integers (64 bits), doubles, texts, or lists of one of these, where all its cells
        are; None is null, NaN and infinities are doubles. Media are a struct: ``type`` (image, audio, video, …),
        ``file`` (relative to the run's directory), ``format``, ``caption``. Cells of different kinds in one column,
        mappings and lists of them are texts, as JSON writes them.

        Raises:
            NotFound: its file isn't there. Damaged: it holds no table.
        """
        with boundary(f"table {self.name!r}"):
            return Frame(_arrow(self.content))

    def to_pandas(self) -> Any:
        """A pandas DataFrame."""
        return self.frame().to_pandas()

    def __repr__(self) -> str:
        return f"<trackers.LoggedTable {self.name!r} at step {self.step}>"


def of_records(
    records: Iterable[Record], directory: str, whole: Callable[[Media], Media] = lambda record: record
) -> list[LoggedTable]:
    """The tables among records, in their order.

    Args:
        directory: what their files are relative to; "": there are none. whole: gives a record with its content.
    """
    tables = []
    parts: dict[str, list[LoggedTable]] = {}
    for record in records:
        if isinstance(record, Media) and record.type == "table":
            before = parts.setdefault(record.name, []) if is_part(record) else []
            for number in range(len(record.items)):
                tables.append(LoggedTable(record, _reading(record, number, directory, whole), before[:]))
            if is_part(record):
                before.append(tables[-1])
    return tables


def is_part(record: Media) -> bool:
    """Whether a record is a table's part: its rows follow those of the records before it of that name."""
    return len(record.items) == 1 and record.items[0].meta.get("log_mode") == "INCREMENTAL"


def of_served(served: ServedMedia, files: tempfile.TemporaryDirectory[str]) -> list[LoggedTable]:
    """The tables that lie on a server: each is fetched when it is asked for.

    Args:
        files: where they are put; there for as long as the tables are.
    """

    def whole(record: Media, files: object = files) -> Media:
        return served.whole(record, confined.READ_BYTES)

    return of_records(served.media, "", whole)


def _reading(record: Media, number: int, directory: str, whole: Callable[[Media], Media]) -> Callable[[], Any]:
    def read() -> Any:
        items = whole(record).items
        if not number < len(items):
            raise NotFound(f"table {record.name!r} was removed meanwhile")
        return payload(items[number], Path(directory) if directory else None)

    return read


def payload(item: MediaFile, root: Path | None, most_bytes: int = confined.READ_BYTES) -> Any:
    """What an item of type table holds, as JSON has it.

    Args:
        root: the directory that its file is relative to; None: there is none. most_bytes: of the file.

    Raises:
        NotFound: its file isn't there, is larger, or lies outside.
    """
    if not item.file:
        return item.data
    if root is None or not confined.is_inside(item.file):
        raise NotFound(f"{item.file} isn't on this disk")
    root = root.absolute()
    try:
        return msgspec.json.decode(confined.read(root / item.file, root=root, most=most_bytes))
    except OSError as error:
        raise NotFound(f"{item.file} can't be read: {error.strerror or error}") from error


def choose_tables(tables: Sequence[LoggedTable], name: str, run: str, step: int | None = None) -> list[LoggedTable]:
    """Choose the tables of a name, and of a step if one is given; never an empty list.

    Args:
        run: what the run is called.

    Raises:
        NotFound: there is none; the message names those that there are.
    """
    from trackers.errors import did_you_mean, examples

    named = [table for table in tables if table.name == name]
    if not named:
        known = list(dict.fromkeys(table.name for table in tables))
        if not known:
            raise NotFound(f"run {run!r} has no tables")
        near = did_you_mean(name, known, f"; its tables: {examples(known)}")
        raise NotFound(f"run {run!r} has no table {name!r}{near}")
    matching = [table for table in named if step is None or table.step == step]
    if not matching:
        steps = examples((table.step for table in named if table.step is not None), 20)
        raise NotFound(f"table {name!r} of run {run!r} wasn't logged at step {step}; its steps: {steps}")
    return matching


def over_steps(tables: Sequence[LoggedTable]) -> Frame:
    """All rows of tables of one name below each other, with the column :data:`STEP` first.

    A column that some of them lack is null there. For types see :meth:`LoggedTable.frame`.

    Raises:
        NotFound: a file isn't there. Damaged: it holds no table.
    """
    together = _together([table.new for table in tables])
    steps = [table.step for table in tables for _ in range(table.new.size)]
    titles = _unique([STEP, *(f"{name}_" if name == STEP else name for name in together.columns)])
    with boundary("the table over steps"):
        return Frame(_arrow(TableContent(titles, [steps, *together.cells])))


def media_cell(value: Any) -> dict[str, Any] | None:
    """A cell that is media as ``type``, ``file``, ``format``, ``caption``; None for any other value."""
    if not isinstance(value, dict):
        return None
    kind = value.get("_type")
    file = value.get("file") or value.get("path")
    if kind is None and value.get("type") == "image" and isinstance(value.get("filepath"), str):  # MLflow's log_table
        kind, file = "image", value["filepath"]
    if not isinstance(kind, str):
        return None
    file = file if isinstance(file, str) else ""
    form = value.get("format")
    form = form if isinstance(form, str) and form else file.rpartition(".")[2].lower() if "." in file else ""
    caption = value.get("caption")
    return {
        "type": _FOREIGN.get(kind, kind),
        "file": file,
        "format": form,
        "caption": caption if isinstance(caption, str) else None,
    }


def _content(data: Any) -> TableContent:
    """A table of our shape, or of W&B's and MLflow's, whose rows are called "data"."""
    rows = data.get("rows", data.get("data")) if isinstance(data, dict) else None
    columns = data.get("columns") if isinstance(data, dict) else None
    if not isinstance(columns, list) or not isinstance(rows, list) or any(type(row) is not list for row in rows):
        raise Damaged("it holds no table: columns and rows are lists")
    width = len(columns)
    if any(len(row) != width for row in rows):
        rows = [[*row[:width], *[None] * (width - len(row))] for row in rows]
    rows = float_names.rows_of({**data, "rows": rows})
    cells = [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in columns]
    names = [escaped(column if isinstance(column, str) else json.dumps(column)) for column in columns]
    return TableContent(_unique(names), cells)


def _together(contents: Sequence[TableContent]) -> TableContent:
    """The rows of several tables below each other; a column that one lacks is None there."""
    columns: dict[str, list[Any]] = {name: [] for content in contents for name in content.columns}
    for content in contents:
        by_name = dict(zip(content.columns, content.cells, strict=True))
        for name, cells in columns.items():
            cells.extend(by_name.get(name) or [None] * content.size)
    return TableContent(list(columns), list(columns.values()))


def _unique(names: Sequence[str]) -> list[str]:
    titles: dict[str, None] = {}
    for name in names:
        number, title = 1, name
        while title in titles:
            number += 1
            title = f"{name} ({number})"
        titles[title] = None
    return list(titles)


def _arrow(content: TableContent) -> Any:
    need("pyarrow", "a logged table")
    import pyarrow as pa

    arrays = [_column(cells) for cells in content.cells]
    return pa.Table.from_arrays(arrays, names=content.columns)


def _column(cells: list[Any]) -> Any:
    import pyarrow as pa

    kinds = set(map(type, cells)) - {type(None)}
    if kinds == {bool}:
        return pa.array(cells, pa.bool_())
    if kinds == {int} and all(value is None or -(2**63) <= value < 2**63 for value in cells):
        return pa.array(cells, pa.int64())
    if kinds and kinds <= {*_NUMBERS, str} and _is_float(cells, kinds):
        return pa.array([_double(value) for value in cells], pa.float64(), from_pandas=False)
    if kinds == {dict}:
        converted = [None if value is None else media_cell(value) for value in cells]
        if all(cell is not None for cell, value in zip(converted, cells, strict=True) if value is not None):
            return pa.array(converted, _media_type())
    if kinds == {list}:
        listed = _lists(cells)
        if listed is not None:
            return listed
    try:
        return pa.array([_as_text(value) for value in cells], pa.string())
    except UnicodeEncodeError:  # half a pair of surrogates, from a file that isn't ours
        return pa.array([None if value is None else escaped(_as_text(value) or "") for value in cells], pa.string())


def _is_float(cells: list[Any], kinds: set[type]) -> bool:
    """Whether all are numbers, or names of what JSON has no number for."""
    return str not in kinds or all(value in FLOAT_NAMES for value in cells if type(value) is str)


def _double(value: Any) -> float | None:
    if value is None or type(value) is float:
        return value
    if type(value) is str:
        return FLOAT_NAMES[value]
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _media_type() -> Any:
    import pyarrow as pa

    return pa.struct([(name, pa.string()) for name in ("type", "file", "format", "caption")])


def _lists(cells: list[Any]) -> Any:
    """Lists of one kind of plain values; None if they hold anything else."""
    import pyarrow as pa

    kinds = {str if isinstance(item, str) else type(item) for cell in cells if cell is not None for item in cell}
    kinds.discard(type(None))
    inner = {frozenset({int}): pa.int64(), frozenset({bool}): pa.bool_(), frozenset({str}): pa.string()}.get(
        frozenset(kinds), pa.float64() if kinds and kinds <= _NUMBERS else None
    )
    try:
        return pa.array(cells, pa.list_(inner)) if inner is not None else None
    except (pa.ArrowException, OverflowError, UnicodeEncodeError):
        return None


def _as_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)
