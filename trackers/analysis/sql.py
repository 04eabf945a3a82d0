"""SQL over runs: ``trackers.sql("select name, number from config join runs using (run) where status = 'finished'")``.

DuckDB runs the query in memory. It reads the tables below and nothing else: no file, no network, no Python variable.

========  ============================================================================================================
table     columns
========  ============================================================================================================
runs      run, source, name, project, group_name, tags (list), notes, status, created (timestamp, UTC), steps, attempts,
          gpus, gpu_name, steps_per_s, samples_per_s, tokens_per_s, gpu_percent, memory_gb, memory_kind, energy_j
metrics   run, name, step, time (Unix seconds), value: every number logged with a step
system    run, name, time, value: every number sampled without one
config    run, name (nested ones joined with "."), value (text), number (NULL where it isn't one)
summary   run, name (without ``final/``), value (text), number: the results
========  ============================================================================================================

``run`` is the run's id, or ``project/id`` where two of the runs share one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trackers.analysis.collect import gather
from trackers.analysis.run_stats import RunStats
from trackers.errors import UsageError
from trackers.journal.run_directory import RunDirectory
from trackers.readers import frames, helpers, registry
from trackers.readers.columns import Block
from trackers.readers.frames import Frame
from trackers.readers.journal import JournalReader, source_run
from trackers.readers.run_data import RunData
from trackers.records import double
from trackers.support.optional import need

TABLES = ("runs", "metrics", "system", "config", "summary")
_RUN_FIELDS = ("source", "name", "project", "notes", "status", "steps", "attempts", "gpus", "gpu_name")
_SPEEDS = ("steps_per_s", "samples_per_s", "tokens_per_s")
_USES = ("gpu_percent", "memory_gb", "memory_kind", "energy_j")


def sql(query: str, sources: Iterable[str | Path] | None = None, *, root: Path | None = None) -> Frame:
    """Run a query over runs; the tables are in this module's text.

    Args:
        sources: as for :func:`trackers.load`; None: all runs of ours.
        root: where our own runs lie; default what ``TRACKER_DIR`` says.

    Returns:
        an Arrow table with ``to_pandas()`` and ``to_polars()``; empty for a statement without rows.

    Runs that can't be read are left out, and named in a warning (logger ``trackers.readers``).

    Raises:
        UsageError: the query can't be run. NotFound: a source isn't there. MissingPackage: duckdb isn't installed.
    """
    need("duckdb", "sql")
    need("pyarrow", "sql")
    named = [str(source) for source in sources] if sources is not None else [str(JournalReader(root).root())]
    gathered = gather(named, root)
    for reason in gathered.lost:
        helpers.warn(reason)
    return Frame(_run(query, _tables(query, gathered.runs)))


def _run(query: str, tables: Mapping[str, Any]) -> Any:
    import duckdb
    import pyarrow as pa

    if not query.strip():
        raise UsageError(f"sql: there is no query; tables: {', '.join(TABLES)}")
    with duckdb.connect(":memory:") as connection:
        for name, table in tables.items():
            connection.register(name, table)
        for setting in (
            "python_enable_replacements = false", "temp_directory = ''", "timezone = 'UTC'",
            "enable_external_access = false", "lock_configuration = true",
        ):  # fmt: skip
            connection.execute(f"SET {setting}")
        try:
            result = connection.sql(query)
            return result.to_arrow_table() if result is not None else pa.table({})
        except duckdb.Error as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip() and set(line) - set(" ^~")]
            raise UsageError(f"sql: {' '.join(lines[:3])[:500]}; tables: {', '.join(TABLES)}") from None


def _tables(query: str, runs: Sequence[RunStats]) -> dict[str, Any]:
    """All tables; those of single values are filled only if the query names them: they are large."""
    names = _names(runs)
    words = {word.lower() for word in re.findall(r"\w+", query)}
    wanted = [stepless for table, stepless in (("metrics", False), ("system", True)) if table in words]
    numbers = _numbers(list(zip(names, runs, strict=True)) if wanted else [], wanted)
    return {
        "runs": _runs_table(names, runs),
        "config": _values_table(names, [run.config for run in runs]),
        "summary": _values_table(names, [run.summary for run in runs]),
        "metrics": numbers[False],
        "system": numbers[True].drop_columns(["step"]),
    }


def _names(runs: Sequence[RunStats]) -> list[str]:
    ids = Counter(run.id for run in runs)
    paired = Counter((run.project, run.id) for run in runs)
    return [
        run.id if ids[run.id] == 1 else f"{run.project}/{run.id}" if paired[run.project, run.id] == 1 else run.source
        for run in runs
    ]


def _runs_table(names: list[str], runs: Sequence[RunStats]) -> Any:
    import pyarrow as pa

    texts = {"source", "name", "project", "notes", "status", "gpu_name", "memory_kind"}
    columns: dict[str, Any] = {"run": pa.array(names, pa.string())}
    for field in _RUN_FIELDS:
        values = [getattr(run, field) for run in runs]
        columns[field] = pa.array(values, pa.string() if field in texts else pa.int64())
        if field == "project":
            columns["group_name"] = pa.array([run.group for run in runs], pa.string())
            columns["tags"] = pa.array([run.tags for run in runs], pa.list_(pa.string()))
        elif field == "status":
            stamps = [round(run.created * 1e6) if run.created else None for run in runs]
            columns["created"] = pa.array(stamps, pa.timestamp("us", "UTC"))
    for fields, part in ((_SPEEDS, "speed"), (_USES, "use")):
        for field in fields:
            values = [getattr(getattr(run, part), field) for run in runs]
            columns[field] = pa.array(values, pa.string() if field in texts else pa.float64())
    return pa.table(columns)


def _values_table(names: list[str], mappings: Sequence[Mapping[str, Any]]) -> Any:
    import pyarrow as pa

    rows = [(run, name, value) for run, mapping in zip(names, mappings, strict=True) for name, value in mapping.items()]
    numbers = [double(value) for _, _, value in rows]
    return pa.table({
        "run": pa.array([run for run, _, _ in rows], pa.string()),
        "name": pa.array([name for _, name, _ in rows], pa.string()),
        "value": pa.array([_text(value) for _, _, value in rows], pa.string()),
        "number": pa.array(numbers, pa.float64()),
    })  # fmt: skip


def _text(value: Any) -> str | None:
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def _numbers(runs: Sequence[tuple[str, RunStats]], wanted: Sequence[bool]) -> dict[bool, Any]:
    """Metrics (False) and what was sampled without a step (True) of all runs, below each other."""
    import numpy as np
    import pyarrow as pa

    kind = pa.dictionary(pa.int32(), pa.string())
    schema = pa.schema([("run", kind), ("name", kind), ("step", pa.int64()), ("time", pa.float64()),
                        ("value", pa.float64())])  # fmt: skip
    parts: dict[bool, list[Any]] = {False: [schema.empty_table()], True: [schema.empty_table()]}
    for name, run in runs:
        blocks = _blocks(run)
        for stepless in wanted:
            table = frames.long(list(frames.parted(blocks, stepless)), list(run.folds))
            labels = pa.DictionaryArray.from_arrays(np.zeros(len(table), np.int32), pa.array([name], pa.string()))
            parts[stepless].append(table.add_column(0, "run", labels).cast(schema))
    return {stepless: pa.concat_tables(found).unify_dictionaries() for stepless, found in parts.items()}


def _blocks(run: RunStats) -> list[Block]:
    scheme, _ = registry.parse(run.source)
    if scheme == registry.OWN:
        directory = RunDirectory(run.source)
        blocks, _ = JournalReader().columns(source_run(directory))
        return blocks
    reader, found = registry.open_source(run.source)
    return RunData(reader, found[0]).blocks()
