"""Exports of Neptune as ``neptune-exporter`` writes them: its schema, its names of files. It isn't on PyPI."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow
from pyarrow import parquet

T0 = 1_700_000_000.0
SCHEMA = pyarrow.schema([
    ("project_id", pyarrow.string()), ("run_id", pyarrow.string()), ("attribute_path", pyarrow.string()),
    ("attribute_type", pyarrow.string()), ("step", pyarrow.decimal128(18, 6)),
    ("timestamp", pyarrow.timestamp("ms", "UTC")), ("int_value", pyarrow.int64()), ("float_value", pyarrow.float64()),
    ("string_value", pyarrow.string()), ("bool_value", pyarrow.bool_()),
    ("datetime_value", pyarrow.timestamp("ms", "UTC")), ("string_set_value", pyarrow.list_(pyarrow.string())),
    ("file_value", pyarrow.struct([("path", pyarrow.string())])),
    ("histogram_value", pyarrow.struct([("type", pyarrow.string()), ("edges", pyarrow.list_(pyarrow.float64())),
                                        ("values", pyarrow.list_(pyarrow.float64()))])),
])  # fmt: skip
COLUMNS = {
    "float_series": "float_value", "string_series": "string_value", "histogram_series": "histogram_value",
    "file_series": "file_value", "file_set": "file_value", "artifact": "file_value",
}  # fmt: skip


def when(time: float) -> datetime:
    """Unix seconds as Neptune has them."""
    return datetime.fromtimestamp(time, timezone.utc)


def row(path: str, kind: str, value: Any, step: float | str | None = None, time: float | None = None) -> dict[str, Any]:
    """A value of one attribute."""
    return {
        "attribute_path": path,
        "attribute_type": kind,
        "step": None if step is None else Decimal(str(step)).quantize(Decimal("1.000000")),
        "timestamp": None if time is None else when(time),
        COLUMNS.get(kind, f"{kind}_value"): value,
    }


def described(name: str = "base", **more: Any) -> list[dict[str, Any]]:
    """What Neptune says of each run."""
    return [
        row("sys/name", "string", name),
        row("sys/creation_time", "datetime", when(T0)),
        row("sys/tags", "string_set", ["a", "b"]),
        row("sys/description", "string", "why"),
        row("sys/failed", "bool", more.get("failed", False)),
        row("sys/state", "string", more.get("state", "inactive")),
    ]


def export(
    place: Path, parts: Iterable[list[dict[str, Any]]], *, run: str = "RUN-1", project: str = "me/digits"
) -> Path:
    """Write a run below ``place/data``; its first file."""
    folder = place / "data" / safe(project)
    folder.mkdir(parents=True, exist_ok=True)
    first = folder / f"{safe(run)}_part_0.parquet"
    for number, rows in enumerate(parts):
        full = [{**dict.fromkeys(SCHEMA.names), "project_id": project, "run_id": run, **one} for one in rows]
        table = pyarrow.Table.from_pylist(full, schema=SCHEMA)
        parquet.write_table(table, first.with_name(f"{safe(run)}_part_{number}.parquet"), compression="snappy")
    return first


def safe(name: str) -> str:
    """A name of a file, as the exporter makes it."""
    plain = "".join(sign if sign.isalnum() or sign in "_-" else "_" for sign in name)
    return f"{plain}-{hashlib.blake2b(name.encode(), digest_size=8).hexdigest()}"
