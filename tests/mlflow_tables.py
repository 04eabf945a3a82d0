"""MLflow's tables in a new SQLite database, without the fifty migrations in which MLflow makes them, but for the first.

Imported by programs that have no package ``tests``: of the standard library alone.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from typing import Any

_schemas: dict[str, str] = {}


def initialize(make: Callable[[Any], None], engine: Any) -> None:
    """In the place of ``mlflow.store.db.utils._initialize_tables``, which is ``make``."""
    if engine.dialect.name != "sqlite" or engine.url.database in (None, ":memory:"):
        make(engine)
        return
    with contextlib.closing(sqlite3.connect(engine.url.database)) as database:
        if database.execute("SELECT 1 FROM sqlite_master").fetchone() is not None:
            make(engine)
        elif "sqlite" in _schemas:
            database.executescript(_schemas["sqlite"])
        else:
            make(engine)
            _schemas["sqlite"] = "\n".join(database.iterdump())
