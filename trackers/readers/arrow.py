"""Arrow arrays from lists and NumPy arrays by their memory: ``pyarrow.array`` imports pandas, which takes longer than
a query over ten thousand runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

MOST_BYTES = 2**31 - 1
"""Of the texts of an array: its offsets have 32 bits."""


def texts(values: Sequence[str | None]) -> Any:
    """A column of texts, which must be UTF-8."""
    import numpy as np
    import pyarrow as pa

    encoded = [b"" if value is None else value.encode() for value in values]
    if sum(map(len, encoded)) > MOST_BYTES:
        return pa.array(values, pa.string())
    offsets: Any = np.zeros(len(encoded) + 1, np.int32)
    np.cumsum([len(value) for value in encoded], out=offsets[1:])
    present: Any = np.array([value is not None for value in values], bool)
    valid = None if present.all() else pa.py_buffer(np.packbits(present, bitorder="little"))
    return pa.StringArray.from_buffers(len(encoded), pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded)), valid)


def codes(values: Any) -> Any:
    """A column of 32-bit integers. values: a NumPy array."""
    import numpy as np
    import pyarrow as pa

    return pa.Array.from_buffers(pa.int32(), len(values), [None, pa.py_buffer(np.ascontiguousarray(values, np.int32))])


def empty(schema: Any) -> Any:
    """A table without rows."""
    import pyarrow as pa

    return pa.Table.from_batches([], schema=schema)
