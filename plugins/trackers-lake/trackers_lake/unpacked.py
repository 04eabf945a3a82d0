"""Rows of a Parquet file that anybody may have written: what repeats takes no room there, and much in memory."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

MOST_BYTES = 1 << 28
PER_BYTE = 200
"""Rows of files have at most so many bytes in memory, or so many for each of the files'."""
KEYS = frozenset({"project", "run", "name"})
"""Columns that stay dictionaries."""
HEAD_BYTES, LONG_HEAD_BYTES = 4096, 1 << 24
"""What of a page's head is read first, and at most, as Arrow does."""
BATCH_ROWS = 500
"""A text of a megabyte, the longest that trackers log, comes up to so many times before the bytes are counted."""


class Budget:
    """What files that are held at the same time take of memory. Threads may share it."""

    def __init__(self, size: int = 0) -> None:
        self._lock = threading.Lock()
        self._size, self._taken = size, 0

    def open(self, size: int) -> Budget:
        """One more file, of so many bytes."""
        with self._lock:
            self._size += size
        return self

    def take(self, count: int, what: str) -> None:
        """So many bytes more are to be held.

        Raises:
            ValueError: they are far more than the files.
        """
        with self._lock:
            self._taken += count
            most = max(MOST_BYTES, PER_BYTE * self._size)
            if self._taken > most:
                raise ValueError(f"its {what} have more than {most:,} bytes, in files of {self._size:,}")


def check_pages(metadata: Any, source: Any) -> None:
    """See that no page of a file unpacks to far more than the file has: Arrow unpacks a page at once.

    Args:
        metadata: of the file. source: an Arrow file, or bytes in memory, of the same content.

    Raises:
        ValueError: one does, or its head is none.
    """
    size = source.size()
    most = max(MOST_BYTES, PER_BYTE * size)
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        for number in range(row_group.num_columns):
            column = row_group.column(number)
            starts = [column.data_page_offset]
            if column.has_dictionary_page and column.dictionary_page_offset:
                starts.append(column.dictionary_page_offset)
            at = min(starts)
            end = min(size, at + column.total_compressed_size)
            while at < end:
                for most_read in (HEAD_BYTES, LONG_HEAD_BYTES):
                    with contextlib.suppress(IndexError):
                        length, unpacked, packed = _page(source.read_at(most_read, at))
                        break
                else:
                    raise ValueError("a page's head has no end")
                if unpacked > most:
                    raise ValueError(f"its pages have more than {most:,} bytes, in a file of {size:,}")
                at += length + max(packed, 0)


def _page(content: bytes) -> tuple[int, int, int]:
    """The length of a page's head, and of the page unpacked and packed, in bytes.

    https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift: PageHeader, in Thrift's compact
    protocol.

    Raises:
        IndexError: it goes on behind these bytes. ValueError: it is none.
    """
    lengths = {2: 0, 3: 0}
    fields, at = [0], 0  # the last one of each structure that hasn't ended
    while fields:
        head = content[at]
        at += 1
        kind = head & 15
        if not head:
            fields.pop()
            continue
        if head >> 4:
            fields[-1] += head >> 4
        else:
            fields[-1], at = _number(content, at)
        if kind == 8:
            length, at = _number(content, at)
            at += length
        elif kind in (4, 5, 6):
            value, at = _number(content, at)
            if len(fields) == 1 and fields[0] in lengths:
                lengths[fields[0]] = value >> 1
        elif kind == 12:
            fields.append(0)
        elif kind not in (1, 2):  # those are truth values, and a page's head has nothing else
            raise ValueError("a page's head is none")
    return at, lengths[2], lengths[3]


def _number(content: bytes, at: int) -> tuple[int, int]:
    """A number of variable length, and where it ends."""
    value = 0
    for shift in range(0, 70, 7):
        byte = content[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise ValueError("a page's head is none")


def batches(source: Any, budget: Budget, columns: Sequence[str], groups: Sequence[int] | None = None) -> Iterator[Any]:
    """Rows as Arrow has them, some at a time.

    Args:
        source: a ``ParquetFile``. groups: only these row groups.

    Raises:
        ValueError: they have far more bytes than the file, or a column is none that trackers write.
    """
    import pyarrow as pa

    for name in columns:
        kind = source.schema_arrow.field(name).type
        if "dictionary<" in str(kind) and not pa.types.is_dictionary(kind):
            raise ValueError(f"its column {name} has dictionaries inside")
    groups = range(source.num_row_groups) if groups is None else groups
    for batch in source.iter_batches(BATCH_ROWS, row_groups=list(groups), columns=list(columns)):
        arrays = []
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            is_coded = pa.types.is_dictionary(column.type)
            if is_coded and name not in KEYS:
                column = column.dictionary_decode()
            budget.take((column.indices if is_coded and name in KEYS else column).nbytes, "texts")
            arrays.append(column)
        yield pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def table(source: Any, budget: Budget, columns: Sequence[str], groups: Sequence[int] | None = None) -> Any:
    """Rows as an Arrow table; see :func:`batches`. Numbers, whose length is known, are read at once."""
    import pyarrow as pa

    groups = list(range(source.num_row_groups) if groups is None else groups)
    widths = [_width(name, source.schema_arrow.field(name).type) for name in columns]
    if None not in widths:
        count = sum(source.metadata.row_group(group).num_rows for group in groups)
        budget.take(int(count * sum(width or 0 for width in widths)), "rows")
        return source.read_row_groups(groups, columns=list(columns))
    rows = list(batches(source, budget, columns, groups))
    return pa.Table.from_batches(rows).combine_chunks() if rows else source.read_row_groups([], columns=list(columns))


def _width(name: str, kind: Any) -> float | None:
    """Bytes of a value of a column; None where they can be of any length."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return kind.index_type.bit_width / 8 if name in KEYS else None
    if pa.types.is_null(kind):
        return 1 / 8
    return kind.bit_width / 8 if pa.types.is_primitive(kind) else None
