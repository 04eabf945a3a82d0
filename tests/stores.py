"""What each destination holds, read without our writers: SQL, the vendors' own loaders, plain parsing.

Each reader takes the run and answers with a ``Stored`` (see ``trackers.testing``), its names as they are stored
there, its numbers as numbers.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from trackers.testing import Point, Stored
from trackers.tracker import RunInfo

NAMED_FLOATS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


def named_float(value: Any) -> Any:
    """A number that was stored under its name, as a number again; anything else as it is."""
    return NAMED_FLOATS.get(value, value) if isinstance(value, str) else value


def read_trackio(info: RunInfo, state: Mapping[str, Any] | None = None) -> Stored:
    """The project's SQLite file below ``TRACKIO_DIR``: rows by their order of insertion, results among the config."""
    database = sqlite3.connect(Path(os.environ["TRACKIO_DIR"], f"{info.project}.db"))
    try:
        stored = Stored(texts={})
        assert stored.texts is not None
        query = "SELECT run_name, step, timestamp, metrics FROM metrics WHERE run_id = ? ORDER BY id"
        for name, step, timestamp, metrics in database.execute(query, [info.id]):
            stored.name = name
            time = datetime.fromisoformat(timestamp).timestamp()
            for key, value in json.loads(metrics).items():
                value = named_float(value)
                if isinstance(value, str):
                    stored.texts.setdefault(key, []).append((step, value))
                elif isinstance(value, (int, float)):
                    stored.metrics.setdefault(key, []).append(Point(step, value, time))
        rows = database.execute("SELECT config FROM configs WHERE run_id = ?", [info.id]).fetchall()
    finally:
        database.close()
    config = json.loads(rows[0][0]) if rows else {}
    stored.status = config.pop("trackers/status", None)
    stored.tags = config.pop("trackers/tags", [])
    stored.group = config.get("_Group")
    stored.summary = {key: named_float(value) for key, value in config.items() if key.startswith("final/")}
    stored.config = {key: value for key, value in config.items() if not key.startswith(("_", "final/", "trackers/"))}
    return stored
