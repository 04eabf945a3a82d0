"""A run's numbers as columns: eight bytes a value, read from records once, kept whole, joined when asked for.

Records with the same names in the same order form one block: a matrix with a row for each record. So an ordinary
run is one block, and nothing is stored for names that a record doesn't have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple

from trackers.records import Metrics, nearest_double

STEPLESS = -(2**63)
"""Stands for "no step" in a block's steps."""

STEP_MAX = 2**63 - 1
EXACT = 2**53
"""Integers beyond it have no double of their own."""

FLOAT, INTEGER, BOOLEAN = 0, 1, 2
"""Types of a column's values."""


class Block(NamedTuple):
    """Records that have the same names. All arrays have one row for each record.

    names: in the records' order. kinds: of each name. rows: index of each record in its stream.
    steps: int64, :data:`STEPLESS` where there was none. times: Unix seconds. values: float64, (records, names).
    """

    names: tuple[str, ...]
    kinds: tuple[int, ...]
    rows: Any
    steps: Any
    times: Any
    values: Any


class ColumnBlocks:
    """Collects Metrics records into blocks.

    Attributes:
        count: records taken so far, from the beginning of the stream.
    """

    def __init__(self, count: int = 0) -> None:
        self.count = count
        self._waiting: dict[tuple[str, ...], tuple[list[int], list[Metrics]]] = {}
        self._blocks: list[Block] = []

    def add(self, records: Iterable[Any]) -> list[Any]:
        """Take the metrics among records; returns the other records."""
        records = list(records)
        metrics = [record for record in records if type(record) is Metrics]
        others = [record for record in records if type(record) is not Metrics] if len(metrics) < len(records) else []
        shapes = list(map(tuple, map(_VALUES, metrics)))
        numbers = range(self.count, self.count + len(metrics))
        self.count = numbers.stop
        if shapes and shapes.count(shapes[0]) == len(shapes):
            rows, waiting = self._waiting.setdefault(shapes[0], ([], []))
            rows.extend(numbers)
            waiting.extend(metrics)
            return others
        for number, names, record in zip(numbers, shapes, metrics, strict=True):
            rows, waiting = self._waiting.setdefault(names, ([], []))
            rows.append(number)
            waiting.append(record)
        return others

    def flush(self) -> None:
        """Move records into arrays, to free the memory of their Python objects."""
        for names, (numbers, metrics) in self._waiting.items():
            if names:
                self._blocks.append(_block(names, numbers, metrics))
        self._waiting.clear()

    def blocks(self) -> list[Block]:
        """All blocks, those of one shape joined."""
        self.flush()
        self._blocks = merge_blocks(self._blocks)
        return self._blocks


_VALUES, _TIME, _STEP = attrgetter("values"), attrgetter("time"), attrgetter("step")


def _block(names: tuple[str, ...], numbers: list[int], metrics: list[Metrics]) -> Block:
    import numpy as np

    size = len(metrics)
    rows = np.array(numbers, np.int64)
    times = np.fromiter(map(_TIME, metrics), np.float64, size)
    steps = _steps(metrics)
    kinds = tuple(_kind(name, metrics) for name in names)
    flat = chain.from_iterable(map(dict.values, map(_VALUES, metrics)))
    try:
        values = np.fromiter(flat, np.float64, size * len(names))
    except OverflowError:
        values = np.array([nearest_double(value) for record in metrics for value in record.values.values()], np.float64)
    return Block(names, kinds, rows, steps, times, values.reshape(size, len(names)))


def _steps(metrics: list[Metrics]) -> Any:
    import numpy as np

    try:
        return np.fromiter(map(_STEP, metrics), np.int64, len(metrics))
    except (TypeError, OverflowError):  # one without a step, or beyond 64 bits
        return np.fromiter((_step(record.step) for record in metrics), np.int64, len(metrics))


def _step(step: int | None) -> int:
    if step is None:
        return STEPLESS
    return step if -STEP_MAX <= step <= STEP_MAX else STEP_MAX if step > 0 else -STEP_MAX


def _kind(name: str, metrics: list[Metrics]) -> int:
    kind = type(metrics[0].values[name])
    if kind is float:
        return FLOAT
    values = [record.values[name] for record in metrics]
    if kind is bool:
        return BOOLEAN if all(type(value) is bool for value in values) else FLOAT
    return INTEGER if all(type(value) is int and -EXACT <= value <= EXACT for value in values) else FLOAT


def merge_blocks(blocks: Iterable[Block]) -> list[Block]:
    """Merge blocks of one shape, in the order of their first; a kind stays where all agree."""
    import numpy as np

    shapes: dict[tuple[str, ...], list[Block]] = {}
    for block in blocks:
        shapes.setdefault(block.names, []).append(block)
    merged = []
    for names, parts in shapes.items():
        if len(parts) == 1:
            merged.append(parts[0])
            continue
        kinds = tuple(
            kinds[0] if len(set(kinds)) == 1 else FLOAT for kinds in zip(*(p.kinds for p in parts), strict=True)
        )
        arrays: list[Any] = [np.concatenate([part[field] for part in parts]) for field in (2, 3, 4, 5)]
        merged.append(Block(names, kinds, *arrays))
    return merged


def within(block: Block, until: float | None, limit: int | None) -> Block:
    """The records of a block that still count: not later than ``until``, not above the step ``limit``."""
    import numpy as np

    if until is None and limit is None:
        return block
    mask: Any = np.ones(len(block.rows), bool)
    if until is not None:
        mask &= block.times <= until
    if limit is not None:
        mask &= np.where(block.steps == STEPLESS, 0, block.steps) <= limit
    return block if mask.all() else Block(block.names, block.kinds, *(part[mask] for part in block[2:]))


def to_table(blocks: list[Block]) -> Any:
    """Blocks as one Arrow table, a row for each record; names and kinds are in the schema's metadata."""
    import msgspec
    import numpy as np
    import pyarrow as pa

    shapes = msgspec.json.encode([[block.names, block.kinds] for block in blocks])
    sizes = [len(block.rows) for block in blocks]
    widths: Any = np.repeat([len(block.names) for block in blocks], sizes) if blocks else np.zeros(0, np.int64)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(widths, dtype=np.int64)])
    flat = np.concatenate([block.values.ravel() for block in blocks]) if blocks else np.zeros(0)

    def column(field: int, kind: Any) -> Any:
        return pa.array(np.concatenate([block[field] for block in blocks]) if blocks else np.zeros(0, kind))

    columns = {
        "shape": pa.array(np.repeat(np.arange(len(blocks), dtype=np.int32), sizes)),
        "row": column(2, np.int64),
        "step": column(3, np.int64),
        "time": column(4, np.float64),
        "values": pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(flat)),
    }
    return pa.table(columns).replace_schema_metadata({"shapes": shapes})


def from_table(table: Any) -> Iterator[Block]:
    """The blocks that :func:`to_table` made a table of."""
    import msgspec
    import numpy as np

    shapes = msgspec.json.decode(table.schema.metadata[b"shapes"])
    table = table.combine_chunks()
    shape = table.column("shape").to_numpy()
    arrays = [table.column(name).to_numpy() for name in ("row", "step", "time")]
    values = table.column("values").combine_chunks()
    flat = values.flatten().to_numpy() if table.num_rows else np.zeros(0)
    bounds: Any = np.searchsorted(shape, np.arange(len(shapes) + 1))
    at = 0
    for index, (names, kinds) in enumerate(shapes):
        low, high = int(bounds[index]), int(bounds[index + 1])
        end = at + (high - low) * len(names)
        matrix = flat[at:end].reshape(high - low, len(names))
        rows, steps, times = (array[low:high] for array in arrays)
        yield Block(tuple(names), tuple(kinds), rows, steps, times, matrix)
        at = end
