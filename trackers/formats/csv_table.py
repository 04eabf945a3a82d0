"""Tables of comma-separated values, with cells of any length."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator

CELL_BYTES = 2**31 - 1
"""The longest cell that Python's reader can be told to take."""


def rows(table: Iterable[str], delimiter: str = ",") -> Iterator[list[str]]:
    """Rows of a table, however long a text in them is.

    Raises:
        csv.Error: a line is no row.
    """
    reader = csv.reader(table, delimiter=delimiter)
    while True:
        limit = csv.field_size_limit(CELL_BYTES)  # the limit is the whole process's
        try:
            row = next(reader, None)
        finally:
            csv.field_size_limit(limit)
        if row is None:
            return
        yield row
