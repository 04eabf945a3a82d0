"""What ``trackers sql QUERY lake:PLACE`` asks: DuckDB or Spark, over the views of :mod:`trackers_lake.sql`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from trackers.analysis.sql import TABLES, SqlTables
from trackers_lake import spark
from trackers_lake.sql import LakeViews, on_duckdb


class LakeTables(SqlTables):
    """A lake's tables for ``trackers sql QUERY lake:PLACE``."""

    tables = (*TABLES, "events")
    engines = ("spark",)

    def __init__(self, sources: Sequence[str], words: Collection[str], old_names: Collection[str]) -> None:
        self._views = LakeViews(sources, words, old_names)

    def register(self, connection: Any) -> list[str]:
        return on_duckdb(connection, self._views)

    def run(self, engine: str, query: str, master: str) -> Any:
        return spark.run(query, self._views, master)
