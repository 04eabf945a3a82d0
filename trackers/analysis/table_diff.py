"""Logged tables of several runs: their rows paired by keys, side by side, and what differs between two."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from trackers.analysis.table_rows import column_index, kind, one_kind
from trackers.errors import UsageError, examples
from trackers.readers.frames import Frame
from trackers.readers.run_data import RunData, load
from trackers.records import name_floats

ROW = "row"
"""The key where none is given: the row's number, from 0."""
STATES = ("changed", "added", "removed", "same")


class Aligned(NamedTuple):
    """Rows of several tables that belong together.

    keys: Arrow arrays by name, of shape (pairs,). indices: of each table the number of its row in each pair, -1 where
    it has none, shape (pairs,). repeated: how many rows of a table, at most, share their key with an earlier one.
    """

    keys: dict[str, Any]
    indices: list[Any]
    repeated: int


class ColumnChange(msgspec.Struct):
    """A column of two tables, over the rows that both have.

    kind: see :func:`trackers.analysis.table_rows.kind`. changed: number of rows. first, second: means, of numbers and
    of truth values (as 0 and 1), None for others and where there are none. largest: the largest change of a number,
    with its sign; None for others.
    """

    name: str
    kind: str
    changed: int
    first: float | None = None
    second: float | None = None
    largest: float | None = None


class TableDiff(msgspec.Struct):
    """What differs between two tables.

    on: the columns that name a row; none: its index. added, removed, changed, same: numbers of rows. columns: those
    that both have. only_first, only_second: names of the others. repeated: rows that share their key with an earlier
    one: the n-th of one table belongs to the n-th of the other. rows: all pairs; see :meth:`frame`. indices: of both
    tables the number of its row in each pair, -1 where it has none, shape (pairs,).
    """

    on: list[str]
    added: int
    removed: int
    changed: int
    same: int
    columns: list[ColumnChange]
    only_first: list[str]
    only_second: list[str]
    repeated: int
    rows: Any
    indices: list[Any]

    def frame(self, *states: str, every: bool = False) -> Frame:
        """Rows that differ, an Arrow table: ``state`` (changed, added, removed, same), the keys, and of each column
        that differs ``NAME -`` and ``NAME +``, of numbers also ``NAME change``, the second minus the first.

        Args:
            states: which rows; default all but those that are the same. every: also columns that nowhere differ. Where
                no row has changed, all columns are there.
        """
        rows = self.rows.take(self.pairs(*states))
        if every:
            return Frame(rows)
        size = 1 + len(self.on or [ROW])
        some = {column.name for column in self.columns if column.changed or not self.changed}
        names = self.rows.column_names[size:]
        columns = [index for index, name in enumerate(names, size) if name.rsplit(" ", 1)[0] in some]
        return Frame(rows.select([*range(size), *columns]))

    def pairs(self, *states: str) -> Any:
        """The numbers of the pairs of rows in these states, as :meth:`frame` has them."""
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        value_set = pa.array(states or STATES[:3])
        return np.flatnonzero(np.asarray(pc.is_in(self.rows.column(0), value_set=value_set)))

    def to_dict(self) -> dict[str, Any]:
        """Numbers of rows and changes by column, without the rows; JSON values."""
        fields = msgspec.structs.asdict(self)
        del fields["rows"], fields["indices"]
        return dict(name_floats({**fields, "columns": [msgspec.structs.asdict(column) for column in self.columns]}))


def aligned(tables: Sequence[Any], on: Sequence[str] = ()) -> Aligned:
    """Pair the rows of Arrow tables.

    Args:
        on: names of columns whose values name a row, in each table; none: the row's index. Numbers are compared as
            numbers, also where one table has integers and the other doubles; null equals null, NaN equals NaN.

    Raises:
        NotFound: a table has no such column.
    """
    import numpy as np
    import pyarrow as pa

    sizes = [table.num_rows for table in tables]
    if not on:
        most = max(sizes, default=0)
        numbers = np.arange(most)
        indices = [np.where(numbers < size, numbers, -1) for size in sizes]
        return Aligned({ROW: pa.array(numbers)}, indices, 0)
    columns = [one_kind([table.column(column_index(table, name)) for table in tables]) for name in on]
    chained = [pa.concat_arrays(parts) for parts in columns]
    codes = np.zeros(sum(sizes), np.int64)
    for column in chained:
        encoded = (
            column.dictionary_encode(null_encoding="encode").indices.to_numpy(zero_copy_only=False).astype(np.int64)
        )
        _, codes = np.unique(codes * (int(encoded.max(initial=0)) + 1) + encoded, return_inverse=True)
    bounds = np.cumsum(sizes)[:-1]
    parts = np.split(codes, bounds)
    turns = [_turns(part) for part in parts]
    repeated = max((int((turn > 0).sum()) for turn in turns), default=0)
    whole = codes * (max((int(turn.max(initial=0)) for turn in turns), default=0) + 1) + np.concatenate(turns)
    _, first, pair = np.unique(whole, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    rank: Any = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    indices = []
    for part in np.split(rank[pair.ravel()], bounds):
        at: Any = np.full(len(order), -1, np.int64)
        at[part] = np.arange(len(part))
        indices.append(at)
    keys = {name: column.take(pa.array(first[order])) for name, column in zip(on, chained, strict=True)}
    return Aligned(keys, indices, repeated)


def join(tables: Sequence[Any], labels: Sequence[str], on: Sequence[str] = ()) -> Frame:
    """Tables side by side: the keys, then each column as ``NAME (LABEL)``, together for all tables; null where a table
    has no such row.

    Args:
        on: see :func:`aligned`.

    Raises:
        NotFound: a table has no such column.
    """
    import pyarrow as pa

    pairing = aligned(tables, on)
    labels = _different(labels)
    columns = dict(pairing.keys)
    names = list(dict.fromkeys(name for table in tables for name in table.column_names if name not in on))
    for name in names:
        for table, label, at in zip(tables, labels, pairing.indices, strict=True):
            if name in table.column_names:
                columns[_free(f"{name} ({label})", columns)] = _take_rows(table.column(name), at)
    return Frame(pa.table(columns))


def diff(first: Any, second: Any, on: Sequence[str] = (), tolerance: float = 0.0) -> TableDiff:
    """What differs between two Arrow tables.

    Args:
        on: see :func:`aligned`. tolerance: numbers that differ by no more are the same.

    Raises:
        NotFound: a table has no such column. UsageError: the tolerance is negative.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    if not tolerance >= 0:
        raise UsageError(f"the tolerance must be 0 or more, not {tolerance}")
    pairing = aligned([first, second], on)
    first_at, second_at = pairing.indices
    paired, removed = (first_at >= 0) & (second_at >= 0), second_at < 0
    names = [name for name in first.column_names if name in second.column_names and name not in on]
    changed: Any = np.zeros(len(first_at), bool)
    columns: dict[str, Any] = {}
    changes = []
    for name in names:
        left, right = one_kind([_take_rows(first.column(name), first_at), _take_rows(second.column(name), second_at)])
        unlike, change = _unlike(left, right, tolerance)
        unlike &= paired
        changed |= unlike
        what = kind(first.column(name).type)
        changes.append(_summed_up(name, what, left, right, int(unlike.sum()), change, paired))
        columns[f"{name} -"], columns[f"{name} +"] = (
            _take_rows(table.column(name), at) for table, at in ((first, first_at), (second, second_at))
        )
        if change is not None:
            columns[f"{name} change"] = pc.if_else(pa.array(paired), change, pa.scalar(None, change.type))
    state = np.where(changed, 0, np.where(paired, 3, np.where(removed, 2, 1)))
    states = pa.DictionaryArray.from_arrays(pa.array(state.astype(np.int8)), pa.array(STATES)).cast(pa.string())
    arrays = [states, *pairing.keys.values(), *columns.values()]
    rows = pa.Table.from_arrays(arrays, names=[_free("state", pairing.keys), *pairing.keys, *columns])
    counts = np.bincount(state, minlength=4).tolist()
    only = [[name for name in table.column_names if name not in other_.column_names]
            for table, other_ in ((first, second), (second, first))]  # fmt: skip
    return TableDiff(
        on=list(on), added=counts[1], removed=counts[2], changed=counts[0], same=counts[3], columns=changes,
        only_first=only[0], only_second=only[1], repeated=pairing.repeated, rows=rows, indices=pairing.indices,
    )  # fmt: skip


def diff_tables(
    first: Any, second: Any = None, name: str = "", on: str | Sequence[str] = (), *, step: int | None = None,
    tolerance: float = 0.0,
) -> TableDiff:  # fmt: skip
    """What differs between the tables of one name of two runs.

    Args:
        first, second: runs, as ``load`` takes or gives them; or tables: of ``load(run).table(name)``, Arrow, pandas. A
            list of two may stand for both.
        name: of the tables; may be left out where no run is given.
        on: the columns that name a row; none: its index.
        step: of the tables; None: the last ones.
        tolerance: numbers that differ by no more are the same.

    Raises:
        NotFound: no such run, table or column. UsageError: a source can't be understood.
    """
    if second is None and isinstance(first, (list, tuple)) and len(first) == 2:
        first, second = first
    return diff(_arrow(first, name, step), _arrow(second, name, step), _names(on), tolerance)


def join_tables(
    runs: Sequence[Any], name: str = "", on: str | Sequence[str] = (), *, step: int | None = None,
    labels: Sequence[str] = (),
) -> Frame:  # fmt: skip
    """The tables of one name of several runs side by side, a row for each key.

    Args:
        runs: one, or a list of them; they and name, on, step: see :func:`diff_tables`.
        labels: what the columns of each are called; default the runs' names.

    Returns:
        the keys, then each column as ``NAME (LABEL)``.

    Raises:
        NotFound: no such run, table or column. UsageError: a source can't be understood, or numbers of labels differ.
    """
    runs = [runs] if isinstance(runs, (str, os.PathLike)) else runs
    datas = [load(source) if isinstance(source, (str, os.PathLike)) else source for source in runs]
    if labels and len(labels) != len(datas):
        raise UsageError(f"{len(labels)} labels for {len(datas)} tables")
    titles = labels or [data.run.name or data.run.id if isinstance(data, RunData) else str(number)
                       for number, data in enumerate(datas, 1)]  # fmt: skip
    return join([_arrow(data, name, step) for data in datas], titles, _names(on))


def _names(on: str | Sequence[str]) -> list[str]:
    return [on] if isinstance(on, str) and on else list(on)


def _arrow(source: Any, name: str, step: int | None) -> Any:
    import pyarrow as pa

    if isinstance(source, (str, os.PathLike, RunData)):
        if not name:
            raise UsageError("which table? Give its name; `trackers tables RUN` lists a run's tables")
        return (source if isinstance(source, RunData) else load(source)).table(name, step).table
    if isinstance(source, Frame):
        return source.table
    if isinstance(source, pa.Table):
        return source
    if hasattr(source, "__arrow_c_stream__"):
        return pa.table(source)
    raise UsageError(
        f"a table is an Arrow table, a data frame, or a run with the table's name, not {type(source).__name__}"
    )


def _turns(codes: Any) -> Any:
    """For each element, the number of equal elements before it."""
    import numpy as np

    order = np.argsort(codes, kind="stable")
    sorted_ = codes[order]
    fresh: Any = np.ones(len(codes), bool)
    fresh[1:] = sorted_[1:] != sorted_[:-1]
    begins = np.flatnonzero(fresh)
    turn: Any = np.empty(len(codes), np.int64)
    turn[order] = np.arange(len(codes)) - np.repeat(begins, np.diff(np.append(begins, len(codes))))
    return turn


def _take_rows(column: Any, indices: Any) -> Any:
    """Rows of a column; null where the index is -1."""
    import pyarrow as pa

    values = column.take(pa.array(indices, mask=indices < 0))
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


def _unlike(left: Any, right: Any, tolerance: float) -> tuple[Any, Any]:
    """Where two columns of one kind differ, shape (rows,), and the change of numbers; None for others."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    absent = np.asarray(left.is_null()) != np.asarray(right.is_null())
    if kind(left.type) not in ("integer", "number"):
        return absent | np.asarray(pc.fill_null(pc.not_equal(left, right), False)), None
    first, second = (pc.cast(side, pa.float64(), safe=False) for side in (left, right))
    change = pc.subtract(second, first)
    exact = np.asarray(pc.fill_null(pc.not_equal(left, right), False))
    nan = [np.asarray(pc.fill_null(pc.is_nan(side), False)) for side in (first, second)]
    if tolerance:
        exact &= ~np.asarray(pc.fill_null(pc.less_equal(pc.abs(change), tolerance), False))
    return absent | (exact & ~(nan[0] & nan[1])), change


def _summed_up(name: str, what: str, left: Any, right: Any, changed: int, change: Any, both: Any) -> ColumnChange:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    summary = ColumnChange(name, what, changed)
    if kind(left.type) in ("integer", "number", "boolean"):
        paired = pa.array(both)
        summary.first, summary.second = (pc.mean(pc.cast(side.filter(paired), pa.float64(), safe=False)).as_py()
                                     for side in (left, right))  # fmt: skip
    if change is not None:
        steps = np.asarray(pc.fill_null(change, 0.0))[both]
        finite = steps[np.isfinite(steps)]
        summary.largest = float(finite[np.argmax(np.abs(finite))]) if len(finite) else None
    return summary


def _different(labels: Sequence[str]) -> list[str]:
    unique: dict[str, None] = {}
    for label in labels:
        unique[_free(label, unique)] = None
    return list(unique)


def _free(name: str, used: Any) -> str:
    number, title = 1, name
    while title in used:
        number += 1
        title = f"{name} ({number})"
    return title


def repeats(difference: TableDiff) -> str:
    """A remark on keys that occur more than once; "" where all are unique."""
    if not difference.repeated:
        return ""
    rows = "row shares" if difference.repeated == 1 else "rows share"
    return f"{difference.repeated:,} {rows} {examples(difference.on)} with an earlier one: paired in their order"
