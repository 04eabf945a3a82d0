"""Lakes for tests: rows of runs on paper, and what a lake's tables hold."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from trackers_lake import schema
from trackers_lake.delta import Key
from trackers_lake.into_lake import numbers
from trackers_lake.tables import Lake

from trackers.readers.columns import FLOAT, Block


def points(key: Key, count: int = 5, value: float = 1.0, names: tuple[str, ...] = ("loss", "lr")) -> Any:
    """Rows of ``metrics``: ``count`` records with a value for each name."""
    rows = np.arange(count)
    values = np.full((count, len(names)), value) + rows[:, None]
    return numbers(key, [Block(names, (FLOAT,) * len(names), rows, rows * 10, rows + 0.5, values)])


def many(runs: Mapping[Key, int]) -> Any:
    """Rows of several runs, by the number of their records."""
    empty = schema.coded(schema.arrow_schema(schema.COLUMNS["metrics"]).empty_table())
    return pa.concat_tables([empty, *(points(key, count) for key, count in runs.items())])


def held(where: Path | str) -> dict[Key, int]:
    """How many rows of ``metrics`` a lake's files have of each run."""
    lake = Lake(where)
    found: dict[Key, int] = {}
    for file in lake.snapshot("metrics").files.values():
        for row in lake.rows("metrics", file, ["project", "run"]).to_pylist():
            key = (row["project"], row["run"])
            found[key] = found.get(key, 0) + 1
    return found
