"""Tables."""

from __future__ import annotations

import datetime
import decimal
import numbers
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from trackers.errors import UsageError
from trackers.formats import conversations, float_names
from trackers.formats.json_values import known_texts, text
from trackers.media.base import MediaStore, MediaValue, comes_from, made_from
from trackers.records import MediaFile, escaped, name_floats
from trackers.support.interruption import pass_on

INLINE_BYTES = 8192
"""A table whose JSON is larger lies in a file of its own, so that the stream stays quick to read."""

DEFAULT_COLUMNS = ("Input", "Output", "Expected")
"""W&B's, for rows of three without column names."""

LOG_MODES = ("IMMUTABLE", "MUTABLE", "INCREMENTAL")

MAX_DEPTH = 16


class Table(MediaValue):
    """Rows of cells under named columns.

    A cell is a number, text, None, a date, a list, a mapping or media. What is logged is the table as it is then;
    it may be filled further and logged again.

    Args:
        columns: their names. None: taken from ``data`` (a data frame, or rows that are mappings), else numbers.
        data: rows (lists of cells, or mappings by column), a two-dimensional array, lists by column, or a data frame
            (pandas, polars or pyarrow).
        rows: the same as data.
        dataframe: the same as data.
        dtype, optional, allow_mixed_types: accepted as W&B has them; any cell may hold any type here.
        log_mode: IMMUTABLE or MUTABLE: each ``log`` keeps the whole table as it is then. INCREMENTAL: each keeps the
            rows that were added since the one before.

    Raises:
        UsageError: no rows, a row that hasn't one cell for each column, or an unknown ``log_mode``.
    """

    type = "table"
    MAX_ROWS = 10_000
    """W&B's limits, which scripts read and raise; every row is kept here."""
    MAX_ARTIFACT_ROWS = 200_000

    def __init__(
        self, columns: Iterable[Any] | None = None, data: Any = None, rows: Any = None, dataframe: Any = None,
        dtype: Any = None, optional: Any = True, allow_mixed_types: bool = False, log_mode: str | None = "IMMUTABLE",
    ) -> None:  # fmt: skip
        source = next((value for value in (dataframe, data, rows) if value is not None), None)
        with made_from("Table", source):
            found, cells = (None, []) if source is None else _rows(source)
        names: list[Any] | None = found
        if columns is not None and (names is None or dataframe is None):
            if isinstance(columns, (str, bytes)) or not isinstance(columns, Iterable):
                raise UsageError(f"columns are a list of names, not {columns!r:.60}")
            names = [name if isinstance(name, int) else str(name) for name in columns]
        if names is None:
            width = len(cells[0]) if cells else len(DEFAULT_COLUMNS)
            names = list(DEFAULT_COLUMNS) if width == len(DEFAULT_COLUMNS) else [str(index) for index in range(width)]
        if log_mode not in LOG_MODES:
            raise UsageError(f"log_mode={log_mode!r:.60}: known are {', '.join(LOG_MODES)}")
        self.log_mode = log_mode
        self._kept_rows: int | None = None
        self._more: dict[str, Any] = {}
        self.columns: list[Any] = names
        self.data: list[list[Any]] = []
        for row in cells:
            self.add_data(*row)

    def __len__(self) -> int:
        return len(self.data)

    def add_data(self, *data: Any) -> None:
        """Append one row. Raises ValueError unless there is one cell for each column."""
        if len(data) != len(self.columns):
            names = ", ".join(map(str, self.columns))
            raise UsageError(f"a row of {len(data)} cells for {len(self.columns)} columns: {names}")
        self.data.append(list(data))

    def add_row(self, *row: Any) -> None:
        """The same as :meth:`add_data`."""
        self.add_data(*row)

    def add_column(self, name: str, data: Any, optional: bool = False) -> None:
        """Append a column. Raises ValueError if the name is taken or the length isn't that of the table."""
        values = list(data)
        if self.log_mode == "INCREMENTAL":
            raise UsageError("a table that is logged in parts (log_mode='INCREMENTAL') takes rows, no columns")
        if str(name) in self.columns:
            raise UsageError(f"there is a column {name!r} already")
        if self.columns and self.data and len(values) != len(self.data):
            raise UsageError(f"a column of {len(values)} cells for {len(self.data)} rows")
        if not self.data:
            self.data = [[] for _ in values] if not self.columns else [[None] * len(self.columns) for _ in values]
        self.columns.append(str(name))
        for row, value in zip(self.data, values, strict=True):
            row.append(value)

    def get_column(self, name: str, convert_to: str | None = None) -> Any:
        """The cells of a column, as a list, or as an array with ``convert_to="numpy"``.

        Raises:
            ValueError: no such column.
        """
        if name not in self.columns:
            raise UsageError(f"no column {name!r}; there are {', '.join(map(str, self.columns))}")
        index = self.columns.index(name)
        values = [row[index] for row in self.data]
        if convert_to == "numpy":
            import numpy

            return numpy.array(values)
        return values

    def get_index(self) -> list[int]:
        """The rows' numbers."""
        return list(range(len(self)))

    def get_dataframe(self) -> Any:
        """The table as a pandas data frame."""
        import pandas

        return pandas.DataFrame(self.data, columns=self.columns)

    def add_computed_columns(self, fn: Callable[[int, dict[str, Any]], Mapping[str, Any]]) -> None:
        """Append the columns that a function gives for each row.

        Args:
            fn: takes a row's number and its cells by column; gives further cells by column.

        Raises:
            ValueError: the columns of two rows differ, or one is there already.
        """
        made = [dict(fn(index, dict(zip(self.columns, row, strict=True)))) for index, row in self.iterrows()]
        names = list(made[0]) if made else []
        if any(list(row) != names for row in made):
            raise UsageError(f"add_computed_columns: each row needs the same columns, those of the first: {names}")
        for name in names:
            self.add_column(name, [row[name] for row in made])

    def cast(self, col_name: str, dtype: Any, optional: bool = False) -> None:
        """Taken for W&B's sake: any cell may hold any type here."""

    def set_pk(self, col_name: str) -> None:
        """Taken for W&B's sake."""

    def set_fk(self, col_name: str, table: Any, table_col: str) -> None:
        """Taken for W&B's sake."""

    def iterrows(self) -> Iterator[tuple[int, list[Any]]]:
        """Index and cells of each row."""
        yield from enumerate(self.data)

    def cells(self, store: MediaStore, data: list[list[Any]] | None = None) -> tuple[list[str], list[list[Any]]]:
        """Columns and rows as JSON holds them, but for NaN and infinities; the content of media goes into the store."""
        rows = [[cell(value, store) for value in row] for row in (self.data if data is None else data)]
        for index, column in enumerate(zip(*rows, strict=False)):
            for row, value in zip(rows, known_texts(column), strict=True):
                row[index] = value
        return [text(name) for name in self.columns], rows

    def items(self, store: MediaStore) -> list[MediaFile]:
        data = list(self.data)
        if self.log_mode == "INCREMENTAL":
            if self._kept_rows == len(data):
                return []
            data, self._kept_rows = data[self._kept_rows or 0 :], len(data)
        table = name_floats(float_names.content(*self.cells(store, data)))
        content = msgspec.json.encode(table)
        meta: dict[str, Any] = {} if self.log_mode == "IMMUTABLE" else {"log_mode": self.log_mode}
        if conversations.are_samples(self.columns):
            meta[conversations.SAMPLES] = True
        meta |= self._more
        if len(content) <= INLINE_BYTES:
            return [MediaFile(format="json", data=table, meta=meta)]
        return [MediaFile(format="json", file=store.put(content, "json"), meta=meta)]


class EvalTable(Table):
    """A table of a model's answers. Which columns are inputs, outputs and scores is kept with it.

    Args:
        input_columns, output_columns, score_columns: names of columns.
        backend, unsupported_media_mode: taken for W&B's sake. All others: see :class:`Table`.
    """

    def __init__(
        self, columns: Iterable[Any] | None = None, data: Any = None, rows: Any = None, dataframe: Any = None,
        dtype: Any = None, optional: Any = True, allow_mixed_types: bool = False, log_mode: str | None = "IMMUTABLE", *,
        input_columns: list[str] | None = None, output_columns: list[str] | None = None,
        score_columns: list[str] | None = None, backend: Any = None, unsupported_media_mode: str = "stub",
    ) -> None:  # fmt: skip
        super().__init__(columns, data, rows, dataframe, dtype, optional, allow_mixed_types, log_mode)
        by_role = {"inputs": input_columns, "outputs": output_columns, "scores": score_columns}
        self._more = {role: [text(name) for name in names] for role, names in by_role.items() if names}


class SampleTable(Table):
    """A table of samples of a language model, which trackers with a place for conversations show as such.

    Args:
        samples: mappings by column, lists by column, or a data frame: see :class:`Table`.
    """

    def __init__(self, samples: Any) -> None:
        super().__init__(data=samples)
        self._more = {conversations.SAMPLES: True}


class JoinedTable(MediaValue):
    """Two tables whose rows belong together by a column; recorded as one table of the pairs.

    Args:
        table1, table2: tables. join_key: the column's name, or its name in each of both.

    Raises:
        ValueError: no tables, or no such columns.
    """

    type = "table"

    def __init__(self, table1: Any, table2: Any, join_key: Any) -> None:
        keys = [join_key, join_key] if isinstance(join_key, str) else list(join_key)
        if len(keys) != 2 or not isinstance(table1, Table) or not isinstance(table2, Table):
            raise UsageError("JoinedTable takes two tables, and one or two names of columns")
        if keys[0] not in table1.columns or keys[1] not in table2.columns:
            raise UsageError(f"JoinedTable: no columns {keys[0]!r} and {keys[1]!r} to join by")
        self._tables, self._keys = (table1, table2), keys

    def _joined(self) -> Table:
        left, right = self._tables
        own, theirs = left.columns.index(self._keys[0]), right.columns.index(self._keys[1])
        matching: dict[str, list[list[Any]]] = {}
        for row in right.data:
            matching.setdefault(repr(row[theirs]), []).append(row)
        rows = [[*row, *partner] for row in left.data for partner in matching.get(repr(row[own]), ())]
        names = [f"0.{name}" for name in left.columns] + [f"1.{name}" for name in right.columns]
        return Table(names, rows)

    def cells(self, store: MediaStore) -> tuple[list[str], list[list[Any]]]:
        """As of the table of the pairs."""
        return self._joined().cells(store)

    def items(self, store: MediaStore) -> list[MediaFile]:
        return self._joined().items(store)


class PartitionedTable(MediaValue):
    """The tables below a directory of an artifact as one: ``Artifact.add`` takes it, no run.

    Args:
        parts_path: the directory's path in the artifact.
    """

    type = "partitioned-table"

    def __init__(self, parts_path: str) -> None:
        self.parts_path = parts_path
        self._parts: list[Callable[[], Table]] = []

    def of(self, parts: list[Callable[[], Table]]) -> PartitionedTable:
        """This one, with what reads its parts: as ``get`` of an artifact gives it."""
        self._parts = parts
        return self

    def iterrows(self) -> Iterator[tuple[int, list[Any]]]:
        """Index and cells of each row, one part after the other; nothing before ``get`` of an artifact gave it.

        Raises:
            UsageError: two parts have other columns.
        """
        columns: list[Any] | None = None
        count = 0
        for read in self._parts:
            part = read()
            columns = part.columns if columns is None else columns
            if part.columns != columns:
                raise UsageError(f"the parts of {self.parts_path} have other columns: {columns} and {part.columns}")
            for _, row in part.iterrows():
                yield count, row
                count += 1

    def items(self, store: MediaStore) -> list[MediaFile]:
        raise UsageError("a PartitionedTable lies in an artifact: log the tables that are its parts, or the artifact")


def cell(value: Any, store: MediaStore, depth: int = 0) -> Any:
    """A cell as JSON holds it; the content of media goes into the store. What can't be looked at is its type's name.

    Raises:
        ValueError, OSError: media that can't be kept.
    """
    try:
        return _cell(value, store, depth)
    except (ValueError, OSError) as error:
        pass_on(error)
        raise
    except Exception as error:
        pass_on(error)
        return text(value)


def _cell(value: Any, store: MediaStore, depth: int) -> Any:
    if value is None or isinstance(value, (bool, float)):
        return value if value is None or type(value) in (bool, float) else float(value)
    if isinstance(value, int):
        return int(value) if -0x8000_0000_0000_0000 <= value <= 0xFFFF_FFFF_FFFF_FFFF else text(int(value))
    if isinstance(value, str):
        return escaped(value)
    if type(value).__name__ in ("NaTType", "NAType"):
        return None
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, (decimal.Decimal, numbers.Real)) and not isinstance(value, numbers.Integral):
        return float(value)
    if depth > MAX_DEPTH:
        return str(value)
    if isinstance(value, Mapping):
        return {text(key): cell(item, store, depth + 1) for key, item in value.items()}
    media = None if isinstance(value, (list, tuple)) else store.media_of(value)
    if media is not None:
        described = [{"_type": media.type, **msgspec.to_builtins(item)} for item in media.items(store)]
        return described[0] if len(described) == 1 else described
    if isinstance(value, (list, tuple, set, frozenset)):
        return [cell(item, store, depth + 1) for item in value]
    plain = _unboxed(value)
    return text(value) if plain is None else cell(plain, store, depth + 1)


def _unboxed(value: Any) -> Any:
    """Python's own values for NumPy's and torch's, scalars and arrays; None for anything else."""
    if comes_from(value, "numpy") and getattr(getattr(value, "dtype", None), "kind", "") in "mM":
        return None  # as text: their items are bare nanoseconds
    method = getattr(value, "tolist", None) or getattr(value, "item", None)
    plain = method() if callable(method) else None
    return None if type(plain) is type(value) else plain


def _of_frame(source: Any) -> tuple[list[str], list[Sequence[Any]]] | None:
    """Of a data frame: names and rows; None of anything else."""
    if comes_from(source, "polars"):
        return [str(name) for name in source.columns], list(source.rows())
    if comes_from(source, "pandas"):
        columns = [source.iloc[:, index].tolist() for index in range(source.shape[1])]
        return [str(name) for name in source.columns], list(zip(*columns, strict=True))
    if comes_from(source, "pyarrow"):
        columns = [column.to_pylist() for column in source.columns]
        return [str(name) for name in source.column_names], list(zip(*columns, strict=True))
    return None


def _rows(source: Any) -> tuple[list[str] | None, list[Sequence[Any]]]:
    """Column names, where the source has any, and rows."""
    if isinstance(source, Table):
        return list(source.columns), list(source.data)
    if (framed := _of_frame(source)) is not None:
        return framed
    if isinstance(source, Mapping):
        return [str(name) for name in source], list(zip(*map(list, source.values()), strict=True))
    if isinstance(source, (str, bytes)):
        raise TypeError("a table is made from rows")
    rows = list(source.tolist() if hasattr(source, "tolist") else source)
    if rows and all(isinstance(row, Mapping) for row in rows):
        names = list(dict.fromkeys(str(key) for row in rows for key in row))
        return names, [[{str(key): item for key, item in row.items()}.get(name) for name in names] for row in rows]
    for number, row in enumerate(rows):
        if isinstance(row, (str, bytes, Mapping)) or not isinstance(row, Iterable):
            raise UsageError(f"row {number} of a table is a list with a cell for each column, not {row!r:.60}")
    return None, [list(row) for row in rows]
