"""SQL over runs: ``trackers.sql("select name, number from config join runs using (run) where status = 'finished'")``.

DuckDB runs the query in memory. It reads the tables below and nothing else: no file, no network, no Python variable. It
writes nothing: only statements are run that ask, or that make and change tables of the query's own.

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

import os
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from trackers.analysis.collect import Gathered, gather
from trackers.analysis.number_index import NumberIndex
from trackers.analysis.run_stats import RunKey, RunStats
from trackers.errors import Damaged, MissingPackage, UsageError, did_you_mean
from trackers.journal.run_directory import RunDirectory
from trackers.readers import arrow, frames, helpers, registry
from trackers.readers.columns import Block
from trackers.readers.frames import Frame
from trackers.readers.journal import JournalReader, source_run
from trackers.readers.run_data import RunData
from trackers.records import SUMMARY_PREFIX, double, escaped, final_name
from trackers.support import plugins
from trackers.support.optional import need
from trackers.support.progress import counted

TABLES = ("runs", "metrics", "system", "config", "summary")
GROUP = "trackers.sql"
"""Entry-point group of sources that engines read where they lie: scheme = "package.module:Class"."""
DUCKDB = "duckdb"
OURS = ("spark",)
"""Engines that distributions of ours bring, each by an extra of its name."""
_RUN_FIELDS = ("source", "name", "project", "notes", "status", "steps", "attempts", "gpus", "gpu_name")
_SPEEDS = ("steps_per_s", "samples_per_s", "tokens_per_s")
_USES = ("gpu_percent", "memory_gb", "memory_kind", "energy_j")


def sql(
    query: str, *sources: helpers.Sources, root: Path | None = None, engine: str = "duckdb", master: str = ""
) -> Frame:
    """Run a query over runs; the tables are in this module's text.

    Args:
        sources: as for :func:`trackers.load`, one by one or in a list; without any: all runs of ours.
        root: where our own runs lie; default what ``TRACKER_DIR`` says.
        engine: ``duckdb``, or one that a plug-in brings for its sources: ``spark`` for a lake, in Spark's dialect.
        master: Spark's, as in ``local[4]``; default all cores of this machine.

    Returns:
        an Arrow table with ``to_pandas()`` and ``to_polars()``; empty for a statement without rows.

    Runs that can't be read are left out, and named in a warning (logger ``trackers.readers``).

    Raises:
        UsageError: the query can't be run. NotFound: a source isn't there. MissingPackage: duckdb isn't installed, or
            pyspark.
    """
    need("duckdb pyarrow", "sql")
    given = any(source is not None for source in sources)
    named = helpers.source_names(sources) if given else [str(JournalReader(root).root())]
    brought = _brought(named)
    if engine != DUCKDB and (brought is None or engine not in brought.engines):
        raise _no_engine(engine)
    if master and engine == DUCKDB:
        raise UsageError("sql: a master is Spark's: engine spark")
    if brought is not None:
        made = brought(named, _words(query), _old_names(query))
        if engine != DUCKDB:
            return Frame(made.run(engine, query, master))
        return Frame(_run(query, made.register, made.tables, brought.engines))
    return Frame(by_readers(query, named, root))


def by_readers(query: str, sources: Sequence[str], root: Path | None = None) -> Any:
    """What a query answers over tables that the sources' readers make, whatever a plug-in brings for them."""
    words, old_names = _words(query), _old_names(query)
    gathered = gather(sources, root, RunStats if words & {"runs", "config", "summary"} else RunKey)
    for reason in gathered.problems:
        helpers.warn(reason)
    tables = _tables(words, gathered, old_names)

    def register(connection: Any) -> list[str]:
        for name, table in tables.items():
            connection.register(name, table)
        return []

    return _run(query, register, TABLES)


class SqlTables(ABC):
    """The tables of one kind of source, as engines read them where they lie: a plug-in's. Derive, and name the class.

    Args:
        sources: all of this kind, ``scheme:WHERE``. words: of the query, in small letters: a table that it doesn't name
            need not be filled. old_names: results that it asks for by their names without ``final/``.

    Raises:
        UsageError: they can't be asked together. NotFound: one isn't there.
    """

    tables: ClassVar[tuple[str, ...]] = TABLES
    """Names of the tables, for messages."""
    engines: ClassVar[tuple[str, ...]] = ()
    """Engines besides DuckDB that :meth:`run` takes."""

    @abstractmethod
    def __init__(self, sources: Sequence[str], words: Collection[str], old_names: Collection[str]) -> None: ...

    @abstractmethod
    def register(self, connection: Any) -> list[str]:
        """Have a connection of DuckDB know the tables; paths of the files that a query may read."""

    def run(self, engine: str, query: str, master: str) -> Any:
        """The result of a query on another engine, as an Arrow table. master: where it runs; "" for its default.

        Raises:
            UsageError: the query can't be run, or does more than ask these tables. MissingPackage: of the engine.
        """
        raise NotImplementedError


def load(scheme: str) -> type[SqlTables]:
    """The class that a plug-in names for a scheme.

    Raises:
        UsageError: it can't be loaded, or isn't such a class.
    """
    what = f"SQL of {scheme!r}"
    return plugins.implementation(SqlTables, what, plugins.load(what, plugins.targets(GROUP)[scheme]))


def _brought(named: Sequence[str]) -> type[SqlTables] | None:
    """What a plug-in brings for these sources, if they are all of its kind."""
    kinds = {source.partition(":")[0] for source in named}
    scheme = kinds.pop() if len(kinds) == 1 else ""
    return load(scheme) if scheme in plugins.targets(GROUP) else None


def _no_engine(engine: str) -> UsageError:
    """Why these sources can't be asked by an engine."""
    reading = {scheme: load(scheme).engines for scheme in plugins.targets(GROUP)}
    for scheme, engines in reading.items():
        if engine in engines:
            return UsageError(f"sql: {engine} reads sources {scheme}: alone: ask {scheme}:PLACE")
    if engine in OURS:
        return MissingPackage(
            f"engine {engine!r} is a distribution's of its own: pip install 'trackers-relay[{engine}]'"
        )
    known = [DUCKDB, *OURS, *(name for engines in reading.values() for name in engines)]
    listed = ", ".join(dict.fromkeys(known))
    return UsageError(f"sql: unknown engine {engine!r}{did_you_mean(engine, known)} Known: {listed}")


def _words(query: str) -> set[str]:
    return {word.lower() for word in re.findall(r"\w+", query)}


def _old_names(query: str) -> set[str]:
    """Texts of a query that may be names of results without ``final/``, as they were called in earlier releases."""
    texts = set(re.findall(r"'([\w./@() +-]{1,200})'", query))
    return {text for text in texts if not text.startswith(SUMMARY_PREFIX)}


def _run(
    query: str, prepare: Callable[[Any], list[str]], tables: Sequence[str], engines: Sequence[str] = ()
) -> Any:  # fmt: skip
    """Run a query on a connection of its own.

    Args:
        prepare: makes the tables there; returns paths of files that the query may read. engines: that can be asked
            instead.
    """
    import duckdb
    import pyarrow as pa

    if not query.strip():
        raise UsageError(f"sql: there is no query; tables: {', '.join(tables)}")
    with duckdb.connect(":memory:") as connection:
        try:
            paths = prepare(connection)
        except duckdb.Error as error:
            raise Damaged(f"sql: a file can't be read: {' '.join(str(error).split())[:400]}") from None
        if paths:
            connection.execute("SET allowed_paths = $paths", {"paths": paths})
        for setting in (
            "python_enable_replacements = false", "temp_directory = ''", "timezone = 'UTC'",
            "enable_external_access = false", "lock_configuration = true",
        ):  # fmt: skip
            connection.execute(f"SET {setting}")
        try:
            for statement in duckdb.extract_statements(query):
                _need_harmless(statement)
            result = connection.sql(query)
            return result.to_arrow_table() if result is not None else pa.table({})
        except duckdb.OutOfMemoryException:
            instead = f": engine {' or '.join(engines)} puts on disk what doesn't fit" if engines else ""
            raise UsageError(f"sql: the query takes more memory than this machine leaves it{instead}") from None
        except duckdb.Error as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip() and set(line) - set(" ^~")]
            raise UsageError(f"sql: {' '.join(lines[:3])[:500]}; tables: {', '.join(tables)}") from None


_COMMENTS = re.compile(r"\s+|--[^\n]*(?:\n|$)|/\*.*?\*/", re.DOTALL)
_HARMLESS = re.compile(
    r"(?:explain(?:\s+analyze)?\s+)?(?:\(|(?:select|with|from|values|table|summarize|pivot|unpivot)\b)|"
    r"(?:show|describe|desc|insert|update|delete|drop|alter|begin|commit|rollback)\b|"
    r"create\s+(?:or\s+replace\s+)?(?:temp(?:orary)?\s+)?(?:table|view|macro|function|type|schema|sequence)\b",
    re.IGNORECASE,
)
"""How a statement begins that reaches nothing but tables in memory. Files that a query may read (a lake's), DuckDB
would also write to (``COPY … TO``), and ``CREATE SECRET`` writes to the home."""
_HARMLESS_KINDS = frozenset({
    "SELECT", "EXPLAIN", "CREATE", "INSERT", "UPDATE", "DELETE", "DROP", "ALTER", "MULTI", "TRANSACTION",
})  # fmt: skip


def _need_harmless(statement: Any) -> None:
    """Raise UsageError unless a statement asks, or makes and changes tables of its own."""
    text = statement.query
    while (skipped := _COMMENTS.match(text)) is not None:
        text = text[skipped.end() :]
    try:
        kind = statement.type.name
    except ValueError:  # a kind that DuckDB knows and its package doesn't
        kind = ""
    if kind not in _HARMLESS_KINDS or _HARMLESS.match(text) is None:
        raise UsageError(f"sql: {' '.join(text.split()[:2])[:60]!r} isn't run: a query reads these tables, and no more")


def _results(summary: Mapping[str, Any], old_names: Collection[str]) -> dict[str, Any]:
    """A run's results by the names that they have everywhere, ``final/…``; those asked for without it by that, too."""
    old = {name: value for name, value in summary.items() if name in old_names}
    return {**{final_name(name): value for name, value in summary.items()}, **old}


def _tables(words: set[str], gathered: Gathered, old_names: Collection[str]) -> dict[str, Any]:
    """All tables. They are filled only if the query's words name them: they are large."""
    import pyarrow as pa

    runs = gathered.runs
    names = _names(runs)
    named = list(zip(names, runs, strict=True))
    values: dict[str, list[Mapping[str, Any]]] = {
        "config": [run.config for run in runs] if "config" in words else [],
        "summary": [_results(run.summary, old_names) for run in runs] if "summary" in words else [],
    }
    return {
        "runs": runs_table(names, runs) if "runs" in words else arrow.empty(pa.schema(_runs_fields())),
        **{
            name: values_table(names, mappings) if name in words else arrow.empty(pa.schema(_values_fields()))
            for name, mappings in values.items()
        },
        "metrics": _numbers(named if "metrics" in words else [], gathered.fingerprints, stepless=False),
        "system": _numbers(named if "system" in words else [], gathered.fingerprints, stepless=True).drop_columns(
            ["step"]
        ),
    }


def _runs_fields() -> list[tuple[str, Any]]:
    """The columns of the table ``runs``."""
    import pyarrow as pa

    text, number, count = pa.string(), pa.float64(), pa.int64()
    return [
        ("run", text), ("source", text), ("name", text), ("project", text), ("group_name", text),
        ("tags", pa.list_(text)), ("notes", text), ("status", text), ("created", pa.timestamp("us", "UTC")),
        ("steps", count), ("attempts", count), ("gpus", count), ("gpu_name", text),
        *((name, number) for name in _SPEEDS), *((name, text if name == "memory_kind" else number) for name in _USES),
    ]  # fmt: skip


def _values_fields() -> list[tuple[str, Any]]:
    """The columns of the tables ``config`` and ``summary``."""
    import pyarrow as pa

    return [("run", pa.string()), ("name", pa.string()), ("value", pa.string()), ("number", pa.float64())]


def _names(runs: Sequence[RunStats]) -> list[str]:
    ids = Counter(run.id for run in runs)
    paired = Counter((run.project, run.id) for run in runs)
    return [
        run.id if ids[run.id] == 1 else f"{run.project}/{run.id}" if paired[run.project, run.id] == 1 else run.source
        for run in runs
    ]


def runs_table(names: Sequence[str], runs: Sequence[RunStats]) -> Any:
    """The table ``runs`` as Arrow has it.

    Args:
        names: what each run is called in the column ``run``.
    """
    import pyarrow as pa

    texts = {"source", "name", "project", "notes", "status", "gpu_name", "memory_kind"}
    columns: dict[str, Any] = {"run": _texts(names)}
    for field in _RUN_FIELDS:
        values = [getattr(run, field) for run in runs]
        columns[field] = _texts(values) if field in texts else pa.array(values, pa.int64())
        if field == "project":
            columns["group_name"] = _texts([run.group for run in runs])
            columns["tags"] = pa.array([list(map(escaped, run.tags)) for run in runs], pa.list_(pa.string()))
        elif field == "status":
            stamps = [round(run.created * 1e6) if run.created else None for run in runs]
            columns["created"] = pa.array(stamps, pa.timestamp("us", "UTC"))
    for fields, part in ((_SPEEDS, "speed"), (_USES, "use")):
        for field in fields:
            values = [getattr(getattr(run, part), field) for run in runs]
            columns[field] = pa.array(values, pa.string() if field in texts else pa.float64())
    return pa.table(columns)


def values_table(names: Sequence[str], mappings: Sequence[Mapping[str, Any]]) -> Any:
    """The table ``config`` or ``summary`` as Arrow has it; see :func:`runs_table`."""
    import pyarrow as pa

    rows = [(run, name, value) for run, mapping in zip(names, mappings, strict=True) for name, value in mapping.items()]
    numbers = [double(value) for _, _, value in rows]
    return pa.table({
        "run": pa.array([run for run, _, _ in rows], pa.string()),
        "name": pa.array([name for _, name, _ in rows], pa.string()),
        "value": pa.array([_as_text(value) for _, _, value in rows], pa.string()),
        "number": pa.array(numbers, pa.float64()),
    })  # fmt: skip


def _texts(values: Sequence[str | None]) -> Any:
    """A column of texts; what isn't UTF-8 in the name of a directory is escaped."""
    return arrow.texts([None if value is None else escaped(value) for value in values])


def _as_text(value: Any) -> str | None:
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def _numbers(runs: Sequence[tuple[str, RunStats]], fingerprints: Mapping[str, str], *, stepless: bool) -> Any:
    """Metrics, or what was sampled without a step, of all runs below each other.

    Args:
        runs: with their names. fingerprints: as in :class:`Gathered`.
    """
    import numpy as np
    import pyarrow as pa

    kind = pa.dictionary(pa.int32(), pa.string())
    schema = pa.schema([("run", kind), ("name", kind), ("step", pa.int64()), ("time", pa.float64()),
                        ("value", pa.float64())])  # fmt: skip
    parts = [arrow.empty(schema)]
    folders: dict[str, list[tuple[str, RunStats]]] = {}
    for name, run in runs:
        indexed = run.source in fingerprints and escaped(run.source) == run.source  # an index holds UTF-8 alone
        folders.setdefault(os.path.dirname(os.path.dirname(run.source)) if indexed else "", []).append((name, run))
    for folder, members in folders.items():
        index = NumberIndex(folder, stepless=stepless) if folder else None
        tables, known = (
            index.tables({run.source: name for name, run in members}, fingerprints) if index else ([], set())
        )
        parts += [table if table.schema.equals(schema) else table.cast(schema) for table in tables]
        fresh = []
        unknown = [(name, run) for name, run in members if run.source not in known]
        for name, run in counted(unknown, "indexing", "runs"):
            table = frames.long_table(list(frames.select_stepless(_blocks(run), stepless)), list(run.folds))
            fresh.append((run.source, fingerprints.get(run.source, "") if run.status != "running" else "", table))
            labels = pa.DictionaryArray.from_arrays(np.zeros(len(table), np.int32), _texts([name]))
            parts.append(table.add_column(0, "run", labels).cast(schema))
        if index is not None and fresh:
            index.add(fresh, fingerprints)
    return pa.concat_tables(parts).unify_dictionaries()


def _blocks(run: RunStats) -> list[Block]:
    scheme, _ = registry.parse(run.source)
    if scheme == registry.OWN:
        directory = RunDirectory(run.source)
        blocks, _ = JournalReader().columns(source_run(directory))
        return blocks
    reader, runs = registry.open_source(run.source)
    return RunData(reader, runs[0]).blocks()
