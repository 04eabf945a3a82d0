"""Rows of a Parquet file that anybody may have written: a text that repeats takes no room there, and much in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

MOST_BYTES = 1 << 30
PER_BYTE = 200
"""Texts of a file have at most so many bytes, or so many for each of the file's."""
KEYS = frozenset({"project", "run", "name"})
"""Columns that stay dictionaries."""
BATCH_ROWS = 500
"""A text of a megabyte, the longest that trackers log, comes up to so many times before the bytes are counted."""


def most_bytes(size: int) -> int:
    """Maximum number of bytes of the texts of a file of this size."""
    return max(MOST_BYTES, PER_BYTE * size)


def batches(source: Any, size: int, columns: Sequence[str], groups: Sequence[int] | None = None) -> Iterator[Any]:
    """Rows as Arrow has them, some at a time.

    Args:
        source: a ``ParquetFile``. size: its length in bytes. groups: only these row groups.

    Raises:
        ValueError: they have far more bytes than the file, or a column is none that trackers write.
    """
    import pyarrow as pa

    for name in columns:
        kind = source.schema_arrow.field(name).type
        if "dictionary<" in str(kind) and not pa.types.is_dictionary(kind):
            raise ValueError(f"its column {name} has dictionaries inside")
    count = 0
    groups = range(source.num_row_groups) if groups is None else groups
    for batch in source.iter_batches(BATCH_ROWS, row_groups=list(groups), columns=list(columns)):
        arrays = []
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            is_coded = pa.types.is_dictionary(column.type)
            if not (is_coded and name in KEYS):
                column = column.dictionary_decode() if is_coded else column
                count += column.nbytes
            arrays.append(column)
        if count > most_bytes(size):
            raise ValueError(f"its texts have more than {count:,} bytes, in a file of {size:,}")
        yield pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def table(source: Any, size: int, columns: Sequence[str], groups: Sequence[int] | None = None) -> Any:
    """Rows as an Arrow table; see :func:`batches`. Numbers, whose length is known, are read at once."""
    import pyarrow as pa

    kinds = {name: source.schema_arrow.field(name).type for name in columns}
    if not any(_has_texts(name, kind) for name, kind in kinds.items()):
        if groups is None:
            return source.read(columns=list(columns))
        return source.read_row_groups(list(groups), columns=list(columns))
    rows = list(batches(source, size, columns, groups))
    return pa.Table.from_batches(rows).combine_chunks() if rows else source.read_row_groups([], columns=list(columns))


def _has_texts(name: str, kind: Any) -> bool:
    """Whether values of a column can be of any length."""
    import pyarrow as pa

    is_key = name in KEYS and pa.types.is_dictionary(kind)
    return not (is_key or pa.types.is_primitive(kind) or pa.types.is_null(kind))
