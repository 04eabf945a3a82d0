"""Blocks of a run's metrics as tables: wide, outer-joined on step, or long; and each metric's own line."""

from __future__ import annotations

import html
import importlib.util
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from trackers.errors import MissingPackage
from trackers.readers.columns import BOOLEAN, FLOAT, INTEGER, STEPLESS, Block
from trackers.records import Number, Span, name_floats
from trackers.support import terminal
from trackers.support.optional import need


class MetricOverview(msgspec.Struct):
    """One metric at a glance. count: its points. first, last: their smallest and largest step, None without steps.
    value: the last one logged. time: when."""

    count: int = 0
    first: int | None = None
    last: int | None = None
    value: Number | None = None
    time: float = 0.0


HTML_ROWS = 50
"""Maximum number of rows that a notebook shows."""


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.6g}" if isinstance(value, float) else str(value)[:300]


class Frame:
    """An Arrow table (``table``), also as pandas or polars have it; everything else is the Arrow table's own."""

    def __init__(self, table: Any) -> None:
        self.table = table

    def to_pandas(self, **options: Any) -> Any:
        """A pandas DataFrame; absent values are NaN there.

        Raises:
            MissingPackage: pandas isn't installed.
        """
        need("pandas", "to_pandas")
        return self.table.to_pandas(**options)

    def to_polars(self) -> Any:
        """A polars DataFrame.

        Raises:
            MissingPackage: polars isn't installed.
        """
        if importlib.util.find_spec("polars") is None:
            raise MissingPackage("to_polars needs the polars package: pip install polars")
        import polars

        return polars.from_arrow(self.table)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.table.__arrow_c_stream__(requested_schema)

    def __getattr__(self, name: str) -> Any:
        if name == "table":  # not there yet: while it is unpickled
            raise AttributeError(name)
        return getattr(self.table, name)

    def __getitem__(self, key: Any) -> Any:
        return self.table[key]

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __repr__(self) -> str:
        """The table's first and last rows, as Arrow shows them; texts come from runs, so without terminal escapes."""
        return terminal.lines(repr(self.table).replace("\t", "    "))

    def _repr_html_(self) -> str:
        """In a notebook: the first rows."""
        columns = [column.to_pylist() for column in self.table.slice(0, HTML_ROWS).columns]
        return html_rows(self.table.column_names, list(zip(*columns, strict=True)), len(self))


def html_rows(headers: Sequence[str], rows: Sequence[Sequence[Any]], total: int) -> str:
    """A table for a notebook; what it holds is shown as text.

    Args:
        rows: the first :data:`HTML_ROWS`. total: how many there are.
    """
    head = "".join(f"<th>{html.escape(terminal.lines(name))}</th>" for name in headers)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(terminal.lines(_cell(value)))}</td>" for value in row) + "</tr>"
        for row in rows[:HTML_ROWS]
    )
    more = f"<p>{HTML_ROWS} of {total:,} rows</p>" if total > HTML_ROWS else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


class _Column(NamedTuple):
    """One metric's values in one block, of which only ``mask`` belongs to it; None: all."""

    block: int
    column: int
    kind: int


def series(blocks: Sequence[Block]) -> dict[str, MetricOverview]:
    """Each metric at a glance, in the order of first appearance."""
    import numpy as np

    overviews: dict[str, MetricOverview] = {}
    newest: dict[str, int] = {}
    for block in sorted(blocks, key=lambda block: int(block.rows[0])):
        stepped = block.steps[block.steps != STEPLESS]
        low, high = (int(stepped.min()), int(stepped.max())) if len(stepped) else (None, None)
        end = int(np.argmax(block.rows))
        for column, name in enumerate(block.names):
            overview = overviews.setdefault(name, MetricOverview())
            overview.count += len(block.rows)
            if low is not None and high is not None:
                overview.first = low if overview.first is None else min(overview.first, low)
                overview.last = high if overview.last is None else max(overview.last, high)
            if int(block.rows[end]) > newest.get(name, -1):
                newest[name] = int(block.rows[end])
                overview.value, overview.time = (
                    _number(block.values[end, column], block.kinds[column]),
                    float(block.times[end]),
                )
    return overviews


def _number(value: Any, kind: int) -> Number:
    return bool(value) if kind == BOOLEAN else int(value) if kind == INTEGER else float(value)


def select_stepless(blocks: Iterable[Block], stepless: bool) -> Iterator[Block]:
    """The part of each block without steps if ``stepless``, else the part with steps."""
    for block in blocks:
        mask = (block.steps == STEPLESS) == stepless
        if mask.all():
            yield block
        elif mask.any():
            yield Block(block.names, block.kinds, *(part[mask] for part in block[2:]))


def long_table(blocks: Sequence[Block], names: Sequence[str]) -> Any:
    """A row for each value: name, step, time, value (a double), ordered as logged."""
    need("pyarrow", "a table of a run's values")
    import numpy as np
    import pyarrow as pa

    code = {name: number for number, name in enumerate(names)}
    parts: list[tuple[Any, ...]] = []
    for block in blocks:
        columns = [column for column, name in enumerate(block.names) if name in code]
        if columns:
            count = len(columns)
            codes = np.tile(np.array([code[block.names[column]] for column in columns], np.int32), len(block.rows))
            repeated: list[Any] = [np.repeat(part, count) for part in block[2:5]]
            parts.append((codes, *repeated, block.values[:, columns].ravel()))
    kinds = (np.int32, np.int64, np.int64, np.float64, np.float64)
    codes, rows, steps, times, values = (
        np.concatenate([part[field] for part in parts]) if parts else np.zeros(0, kind)
        for field, kind in enumerate(kinds)
    )
    if len(parts) > 1:
        order = np.argsort(rows, kind="stable")
        codes, steps, times, values = codes[order], steps[order], times[order], values[order]
    return pa.table(
        {
            "name": pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(list(names), pa.string())),
            "step": pa.array(steps, mask=steps == STEPLESS),
            "time": pa.array(times),
            "value": pa.array(values),
        }
    )


def wide(blocks: Sequence[Block], names: Sequence[str], *, by_time: bool = False) -> Any:
    """A row for each step, outer-joined: step, time (of the row's first value) and a column for each name.

    A metric with several values at one step has as many rows there; the n-th values of all stand together. What a
    metric doesn't have is null. A column is of integers or truth values where all of it is, else of doubles.

    Args:
        by_time: join on the time instead (what has no step); without the column step.
    """
    need("pyarrow", "a table of a run's values")
    import numpy as np
    import pyarrow as pa

    families = _families(blocks, names)
    keys = [_keys(blocks, family, by_time) for family in families]
    rows, positions = _union([key for key, _ in keys])
    times = np.full(len(rows), np.inf)
    columns: dict[str, Any] = {}
    for (family, members), (_, order), at in zip(families.items(), keys, positions, strict=True):
        stamps = np.concatenate([blocks[block].times for block in family])[order]
        whole = len(at) == len(rows)
        if whole:
            np.minimum(times, stamps, out=times)
        else:
            times[at] = np.minimum(times[at], stamps)
        for name, parts in members:
            values = np.concatenate([blocks[block].values[:, column] for block, column, _ in parts])[order]
            kind = parts[0].kind if len({part.kind for part in parts}) == 1 else FLOAT
            columns[name] = _array(values, kind, None if whole else at, len(rows))
    head: dict[str, Any] = {} if by_time else {"step": pa.array(rows[:, 0].astype(np.int64))}
    head["time"] = pa.array(times)
    titles = {name: name if name not in ("step", "time") else f"{name}_" for name in names}
    return pa.table({**head, **{titles[name]: columns[name] for name in names if name in columns}})


def _families(blocks: Sequence[Block], names: Sequence[str]) -> dict[tuple[int, ...], list[tuple[str, list[_Column]]]]:
    """Names by the blocks that they are in: those of one family have the same steps."""
    parts: dict[str, list[_Column]] = {name: [] for name in names}
    for number, block in enumerate(blocks):
        for column, name in enumerate(block.names):
            if name in parts:
                parts[name].append(_Column(number, column, block.kinds[column]))
    families: dict[tuple[int, ...], list[tuple[str, list[_Column]]]] = {}
    for name, members in parts.items():
        if members:
            families.setdefault(tuple(part.block for part in members), []).append((name, members))
    return families


def _keys(blocks: Sequence[Block], family: tuple[int, ...], by_time: bool) -> tuple[Any, Any]:
    """The rows of a family: step (or time) and which value at that step it is; and how its records come in order."""
    import numpy as np

    field = 4 if by_time else 3
    keys = np.concatenate([blocks[block][field] for block in family])
    rows = np.concatenate([blocks[block].rows for block in family])
    order = np.lexsort((rows, keys)) if len(keys) > 1 and not (keys[1:] > keys[:-1]).all() else np.arange(len(keys))
    keys = keys[order]
    same: Any = np.zeros(len(keys), np.int64)
    if len(keys) > 1 and (repeated := keys[1:] == keys[:-1]).any():
        first = np.concatenate([[0], np.flatnonzero(~repeated) + 1])
        same = np.arange(len(keys)) - np.repeat(first, np.diff(np.append(first, len(keys))))
    return np.column_stack([keys, same]) if not by_time else _pairs(keys, same), order


def _pairs(keys: Any, same: Any) -> Any:
    import numpy as np

    pairs: Any = np.empty((len(keys), 2), np.float64)
    pairs[:, 0], pairs[:, 1] = keys, same
    return pairs


def _union(keys: Sequence[Any]) -> tuple[Any, list[Any]]:
    """All rows of all families, in order, and where in them each family's are."""
    import numpy as np

    if not keys:
        return np.zeros((0, 2), np.int64), []
    if all(key.shape == keys[0].shape and (key == keys[0]).all() for key in keys[1:]):
        return keys[0], [np.arange(len(keys[0]))] * len(keys)
    stacked = np.concatenate(keys)
    order = np.lexsort((stacked[:, 1], stacked[:, 0]))
    stacked = stacked[order]
    fresh: Any = np.ones(len(stacked), bool)
    fresh[1:] = (stacked[1:] != stacked[:-1]).any(axis=1)
    at: Any = np.empty(len(stacked), np.int64)
    at[order] = np.cumsum(fresh) - 1
    bounds = np.cumsum([len(key) for key in keys])[:-1]
    return stacked[fresh], np.split(at, bounds)


def _array(values: Any, kind: int, at: Any, size: int) -> Any:
    import numpy as np
    import pyarrow as pa

    typed = values.astype({FLOAT: np.float64, INTEGER: np.int64, BOOLEAN: bool}[kind])
    if at is None:
        return pa.array(typed, from_pandas=False)
    filled: Any = np.zeros(size, typed.dtype)
    absent: Any = np.ones(size, bool)
    filled[at], absent[at] = typed, False
    return pa.array(filled, mask=absent, from_pandas=False)


def of_spans(spans: Sequence[Span]) -> Frame:
    """A row for each span: see :meth:`trackers.readers.run_data.RunData.spans`."""
    need("pyarrow", "a table of a run's spans")
    import pyarrow as pa

    def written(value: Any) -> str | None:
        return None if value is None else msgspec.json.encode(name_floats(value)).decode()

    text = pa.string()
    return Frame(
        pa.table({
            "trace": pa.array([span.trace for span in spans], text),
            "span": pa.array([span.span for span in spans], text),
            "parent": pa.array([span.parent or None for span in spans], text),
            "name": pa.array([span.name for span in spans], text),
            "kind": pa.array([span.type for span in spans], text),
            "step": pa.array([span.step for span in spans], pa.int64()),
            "start": pa.array([span.start for span in spans], pa.float64()),
            "seconds": pa.array([span.seconds for span in spans], pa.float64()),
            "status": pa.array([span.status for span in spans], text),
            "error": pa.array([span.error or None for span in spans], text),
            "inputs": pa.array([written(span.inputs) for span in spans], text),
            "outputs": pa.array([written(span.outputs) for span in spans], text),
            "attributes": pa.array([written(span.attributes or None) for span in spans], text),
        })
    )  # fmt: skip
