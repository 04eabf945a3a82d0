"""The tables of a lake: their columns, and how rows lie in their files.

Rows of ``metrics`` and ``system`` come in row groups of up to a million, each with whole runs as far as they fit, in
the order of name, run and row. So one metric of many runs is a few stretches of a row group, one run is in a row group
or two, and the times that a run's metrics share are compressed away. All other tables are in the order of runs.
"""

from __future__ import annotations

import functools
import inspect
import io
from collections.abc import Iterator, Sequence
from typing import Any

NUMBERS: tuple[tuple[str, str], ...] = (
    ("project", "string"), ("run", "string"), ("name", "string"), ("row", "long"), ("step", "long"),
    ("time", "double"), ("value", "double"), ("kind", "integer"),
)  # fmt: skip
VALUES: tuple[tuple[str, str], ...] = (
    ("project", "string"), ("run", "string"), ("name", "string"), ("value", "string"), ("number", "double"),
)  # fmt: skip
COLUMNS: dict[str, tuple[tuple[str, str], ...]] = {
    "metrics": NUMBERS,
    "system": NUMBERS,
    "config": VALUES,
    "summary": VALUES,
    "events": (
        ("project", "string"), ("run", "string"), ("row", "long"), ("kind", "string"), ("step", "long"),
        ("time", "double"), ("record", "string"),
    ),
    "runs": (
        ("project", "string"), ("run", "string"), ("source", "string"), ("name", "string"), ("group_name", "string"),
        ("tags", "array<string>"), ("notes", "string"), ("status", "string"), ("created", "timestamp"),
        ("steps", "long"), ("attempts", "long"), ("gpus", "long"), ("gpu_name", "string"), ("steps_per_s", "double"),
        ("samples_per_s", "double"), ("tokens_per_s", "double"), ("gpu_percent", "double"), ("memory_gb", "double"),
        ("memory_kind", "string"), ("energy_j", "double"), ("facts", "binary"), ("facts_version", "string"),
    ),
}  # fmt: skip
"""Columns by table, ``runs`` last: it is written last, so that a run that is listed is there whole.

project, run: which run; both together name one. row: the record's index among the run's records. kind of a number: 0
a double, 1 an integer, 2 a truth value. record: as the journal has it. facts: what comparisons need, as msgpack.
"""
OWN = ("facts", "facts_version")
"""Columns of ``runs`` that queries don't show."""
SORTED_BY_NAME = ("metrics", "system")
GROUP_ROWS = 1 << 20
PAGE_BYTES = 16 * 1024 * 1024
LEVEL = 9
_TEXTS_GROUP_ROWS = 50_000
_STRETCHES = ("project", "run", "name")
_RISING = ("row", "step")


def arrow_schema(columns: Sequence[tuple[str, str]]) -> Any:
    """Columns as Arrow has them.

    Raises:
        ValueError: a type that no table of ours has.
    """
    import pyarrow as pa

    kinds = {
        "string": pa.string(), "long": pa.int64(), "integer": pa.int32(), "double": pa.float64(),
        "timestamp": pa.timestamp("us", "UTC"), "array<string>": pa.list_(pa.string()), "boolean": pa.bool_(),
        "binary": pa.binary(),
    }  # fmt: skip
    unknown = [f"{name} ({kind})" for name, kind in columns if kind not in kinds]
    if unknown:
        raise ValueError(f"column {unknown[0]} is of a type that no lake of runs has")
    return pa.schema([(name, kinds[kind]) for name, kind in columns])


def to_parquet(table: str, rows: Any) -> bytes:
    """Encode rows as a Parquet file, in the order that the module's docstring describes.

    Args:
        rows: an Arrow table of all columns; texts may be dictionaries.
    """
    from pyarrow import parquet

    sink = io.BytesIO()
    names = rows.schema.names
    numbers = table in SORTED_BY_NAME
    stretches = [name for name in (*_STRETCHES, *(("kind",) if numbers or table == "events" else ())) if name in names]
    options: dict[str, Any] = {
        "compression": "zstd", "compression_level": LEVEL, "use_dictionary": stretches, "store_schema": False,
        "data_page_size": PAGE_BYTES,
        "column_encoding": {name: "DELTA_BINARY_PACKED" for name in _RISING if name in names},
    }  # fmt: skip
    if _limits_rows_of_pages():
        options["max_rows_per_page"] = GROUP_ROWS
    most = GROUP_ROWS if numbers else _TEXTS_GROUP_ROWS
    groups = list(ordered(rows, by_name=numbers))
    with parquet.ParquetWriter(sink, groups[0].schema, **options) as writer:
        for group in groups:
            writer.write_table(group, row_group_size=most)
    return sink.getvalue()


@functools.cache
def _limits_rows_of_pages() -> bool:
    """Whether this pyarrow ends a page after 20,000 rows unless it is told otherwise."""
    from pyarrow import parquet

    return "max_rows_per_page" in inspect.signature(parquet.write_table).parameters


def coded(rows: Any) -> Any:
    """The same rows, with what tells runs and names apart as dictionaries."""
    import pyarrow as pa

    kind = pa.dictionary(pa.int32(), pa.string())
    for name in _STRETCHES:
        if name in rows.schema.names and not pa.types.is_dictionary(rows.schema.field(name).type):
            at = rows.schema.get_field_index(name)
            rows = rows.set_column(at, name, rows.column(at).cast(pa.string()).dictionary_encode().cast(kind))
    return rows.unify_dictionaries().combine_chunks()


def without_dictionaries(rows: Any) -> Any:
    """The same rows, without dictionaries."""
    import pyarrow as pa

    for at, field in enumerate(rows.schema):
        if pa.types.is_dictionary(field.type):
            rows = rows.set_column(at, field.name, rows.column(at).cast(field.type.value_type))
    return rows


def ordered(rows: Any, *, by_name: bool) -> Iterator[Any]:
    """Rows as row groups; never none, so that an empty table is an empty file."""
    import numpy as np

    rows = coded(rows)
    if not len(rows):
        yield rows
        return
    runs, order = _by_run(rows)
    if not by_name:
        yield rows.take(order)
        return
    names = _ranks(rows, "name")
    row_numbers = rows.column("row").to_numpy()
    ends: Any = np.flatnonzero(np.append(runs[order][1:] != runs[order][:-1], True)) + 1
    start = 0
    while start < len(order):
        # Whole runs until there are enough rows; a longer run alone makes several groups.
        inside = ends[(ends > start) & (ends <= start + GROUP_ROWS)]
        end = int(inside[-1]) if len(inside) else int(ends[ends > start][0])
        part = order[start:end]
        yield rows.take(part[np.lexsort((row_numbers[part], runs[part], names[part]))])
        start = end


def run_codes(rows: Any) -> tuple[Any, list[tuple[str, str]]]:
    """A number for each row that tells its run, and the runs by number; the order of numbers is that of the runs."""
    import numpy as np

    projects, ids = rows.column("project").chunk(0), rows.column("run").chunk(0)
    codes = projects.indices.to_numpy().astype(np.int64) * max(len(ids.dictionary), 1) + ids.indices.to_numpy()
    distinct, numbers = np.unique(codes, return_inverse=True)
    names, words = projects.dictionary.to_pylist(), ids.dictionary.to_pylist()
    keys = [(names[code // len(words)], words[code % len(words)]) for code in distinct.tolist()]
    order = sorted(range(len(keys)), key=keys.__getitem__)
    ranks: Any = np.empty(len(keys), np.int64)
    ranks[order] = np.arange(len(keys))
    return ranks[numbers], [keys[at] for at in order]


def _by_run(rows: Any) -> tuple[Any, Any]:
    import numpy as np

    runs, _ = run_codes(rows)
    rises = bool((runs[1:] >= runs[:-1]).all())
    return runs, np.arange(len(runs)) if rises else np.argsort(runs, kind="stable")


def _ranks(rows: Any, name: str) -> Any:
    import numpy as np

    column = rows.column(name).chunk(0)
    words = column.dictionary.to_pylist()
    ranks: Any = np.empty(max(len(words), 1), np.int32)
    ranks[sorted(range(len(words)), key=words.__getitem__)] = np.arange(len(words))
    return ranks[column.indices.to_numpy()]
