"""SQL over a lake: the same tables and columns as over runs, read from the lake's files by DuckDB or by Spark.

``events`` comes with them: run, kind, step, time and record (JSON, as the journal has it) of all that isn't a number.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from trackers.errors import UsageError
from trackers.records import SUMMARY_PREFIX
from trackers_lake import schema
from trackers_lake.delta import DataFile, Key
from trackers_lake.reader import choose_runs, split
from trackers_lake.remote import RemoteFile
from trackers_lake.schema import COLUMNS, OWN
from trackers_lake.tables import Lake

SHOWN: dict[str, tuple[str, ...]] = {
    "runs": ("source", "name", "project", *(name for name, _ in COLUMNS["runs"][4:] if name not in OWN)),
    "metrics": ("name", "step", "time", "value"),
    "system": ("name", "time", "value"),
    "config": ("name", "value", "number"),
    "summary": ("name", "value", "number"),
    "events": ("kind", "step", "time", "record"),
}
"""Columns by table as a query sees them, after ``run``."""
RAW, CHOSEN, DOUBLED = "lake_files_of_", "lake_chosen", "lake_doubled"


class View(NamedTuple):
    """A table as an engine is to have it: its files, and what a query makes of their rows."""

    table: str
    files: list[DataFile]
    columns: tuple[tuple[str, str], ...]
    query: str


class LakeViews:
    """The tables of a lake, of all its runs or some.

    Args:
        sources: all of one lake: ``lake:PLACE``, ``lake:PLACE#PROJECT/RUN``.
        words: of the query, in small letters: tables that it doesn't name are empty, and nothing is read of them.
        old_names: results that the query asks for by their names without ``final/``.

    Raises:
        UsageError: they are of several lakes. NotFound: a lake or a run isn't there.
    """

    def __init__(
        self, sources: Sequence[str], words: Collection[str] = tuple(COLUMNS), old_names: Collection[str] = ()
    ) -> None:
        self._words, self._old_names = words, old_names
        parts = [split(source.removeprefix("lake:")) for source in sources]
        if len({text for text, _ in parts}) > 1:
            raise UsageError("sql: these sources are of several lakes: ask one at a time")
        self.lake = Lake(parts[0][0])
        keys = list(self.lake.fingerprints())
        named = f"lake:{parts[0][0]}"
        self.runs: list[Key] = list(dict.fromkeys(key for _, part in parts for key in choose_runs(keys, part, named)))
        self.is_partial = len(self.runs) < len(keys)
        ids = Counter(run for _, run in self.runs)
        self.doubled = sorted(run for run, count in ids.items() if count > 1)

    def views(self) -> list[View]:
        """All tables."""
        return [self._view(table) for table in COLUMNS]

    def _view(self, table: str) -> View:
        runs = set(self.runs)
        files = [
            file for file in (self.lake.snapshot(table).files.values() if table in self._words else ())
            if not self.is_partial or file.runs is None or not runs.isdisjoint(file.runs)
        ]  # fmt: skip
        shown = ", ".join(f"files.{name}" for name in SHOWN[table])
        run, joins = "files.run", ""
        if self.doubled:
            run = "CASE WHEN doubled.run IS NULL THEN files.run ELSE concat(files.project, '/', files.run) END AS run"
            joins = f" LEFT JOIN {DOUBLED} AS doubled ON files.run = doubled.run"
        if self.is_partial:
            joins += f" JOIN {CHOSEN} AS chosen ON files.project = chosen.project AND files.run = chosen.run"
        query = f"SELECT {run}, {shown} FROM {RAW}{table} AS files{joins}"  # noqa: S608
        if table == "summary":
            final = f"concat('{SUMMARY_PREFIX}', files.name)"
            name = f"CASE WHEN files.name LIKE '{SUMMARY_PREFIX}%' THEN files.name ELSE {final} END AS name"
            named = query.replace("files.name", name, 1)
            asked = ", ".join(f"'{old}'" for old in sorted(self._old_names))
            query = f"{named} UNION ALL {query} WHERE files.name IN ({asked})" if asked else named
        return View(table, files, COLUMNS[table], query)

    def helpers(self) -> dict[str, Any]:
        """Small tables that the views join with, as Arrow has them."""
        import pyarrow as pa

        text = pa.string()
        return {
            CHOSEN: pa.table({"project": pa.array([p for p, _ in self.runs], text),
                              "run": pa.array([r for _, r in self.runs], text)}),
            DOUBLED: pa.table({"run": pa.array(self.doubled, text)}),
        }  # fmt: skip


def on_duckdb(connection: Any, views: LakeViews) -> list[str]:
    """Have a connection of DuckDB read a lake; the paths that it must be allowed to read."""
    paths: list[str] = []
    for name, rows in views.helpers().items():
        connection.register(name, rows)
    for view in views.views():
        raw = f"{RAW}{view.table}"
        if not view.files or views.lake.folder is None:
            connection.register(raw, _dataset(views.lake, view))
        else:
            files = [str(views.lake.local_path(view.table, file)) for file in view.files]
            named = [re.sub(r"([*?[])", r"[\1]", file) for file in files]  # else they are patterns
            paths += {*files, *named}
            rows = connection.read_parquet(named, union_by_name=True, hive_partitioning=False)
            lacking = [(name, kind) for name, kind in view.columns if name not in rows.columns]
            rows.create_view(f"{raw}_there" if lacking else raw)
            if lacking:  # an older release wrote all of these files
                empty = schema.arrow_schema(view.columns).empty_table()
                connection.register(f"{raw}_empty", empty)
                connection.execute(f"CREATE VIEW {raw} AS FROM {raw}_there UNION ALL BY NAME FROM {raw}_empty")
        connection.execute(f"CREATE VIEW {view.table} AS {view.query}")
    return paths


def _dataset(lake: Lake, view: View) -> Any:
    """Files as an Arrow dataset, of which an engine reads the columns and row groups that it needs."""
    import pyarrow
    from pyarrow import dataset

    kind = schema.arrow_schema(view.columns)
    if not view.files:
        return kind.empty_table()
    form = dataset.ParquetFileFormat()
    parts = []
    for file in view.files:
        remote = RemoteFile(lake.store, f"{view.table}/{file.path}", file.size)
        parts.append(form.make_fragment(pyarrow.PythonFile(remote, mode="r")))
    return dataset.FileSystemDataset(parts, kind, form)
