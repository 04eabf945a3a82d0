"""Adds runs from any source to a lake: those that are new or have changed, each replaced as a whole.

A run's fingerprint tells whether it has changed. It holds when the run began, a digest of its rows, and the version of
its source: the fingerprint of its files, or what its reader says. Each table is asked for its own fingerprints, so that
the next call does what a killed process did not reach.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from trackers import records
from trackers.analysis.collect import FACTS_VERSION
from trackers.analysis.run_stats import RunStats, facts
from trackers.analysis.sql import runs_table, values_table
from trackers.errors import DeliveryError, NotFound, Unavailable, UsageError
from trackers.journal.fingerprint_cache import fingerprint_of
from trackers.journal.status import observe
from trackers.readers import registry
from trackers.readers.boundary import boundary
from trackers.readers.columns import STEPLESS, STREAM_BITS, Block
from trackers.readers.frames import select_stepless
from trackers.readers.journal import JournalReader, source_run
from trackers.readers.reader import Reader, SourceRun
from trackers.readers.run_data import RunData
from trackers.records import Record, escaped
from trackers.support.failpoints import failpoint
from trackers.support.progress import progress
from trackers_lake import schema
from trackers_lake.delta import Key
from trackers_lake.location import normalize
from trackers_lake.reader import split
from trackers_lake.schema import COLUMNS
from trackers_lake.tables import FILE_ROWS, KEPT_S, Lake

MANY_SHORT = 200
"""Short files that a table may have before they are joined."""
AT_ONCE = 20
"""Runs put in by one call from which on listing all runs is to be cheap."""
MANY_HEADS = 8
"""Those of ``runs`` where many were put in at once: who lists a lake reads all of them."""
BATCH_RUNS = 1000
"""Runs that are put in by one commit of each table, if their numbers don't fill a file before."""
GROWING = ("metrics", "system", "events")
"""Tables in which the new rows of a run that goes on become a file of their own, beside those that are there."""


class Added(NamedTuple):
    """added: runs that were put in. unchanged: those that the lake has. values: numbers of those added.
    problems: why others were left out."""

    added: list[Key]
    unchanged: int
    values: int
    problems: list[str]


class Candidate(NamedTuple):
    """A run of a source. version: differs once the source has changed; "" if only the content can tell.
    load: reads its blocks and its other records."""

    run: SourceRun
    version: str
    load: Callable[[], tuple[Sequence[Block], Sequence[Record]]]

    @property
    def key(self) -> Key:
        """What the run is called in the lake."""
        return escaped(self.run.project), escaped(self.run.id)


def add(
    sources: Sequence[str], where: str | Path, root: Path | None = None, *, replace: bool = False,
    keep_s: float = KEPT_S,
) -> Added:  # fmt: skip
    """Bring a lake up to date with the runs that sources name.

    Args:
        sources: as for :func:`trackers.load_all`. where: the lake; made where nothing is yet.
        root: where our own runs lie; default what ``TRACKER_DIR`` says.
        replace: also where the lake has another run of that project and id.
        keep_s: how long files and logs that were replaced are kept, in seconds.

    Raises:
        NotFound: a source names nothing. UsageError: a source or the lake's place can't be understood.
        Unavailable, Refused: the lake's store fails; what was put in stays, and the same call goes on.
    """
    for source in sources:
        if source.startswith("lake:") and normalize(split(source.removeprefix("lake:"))[0]) == normalize(where):
            raise UsageError(f"{source} is the lake itself: give another place")
    runs = [run for source in sources for run in candidates(source, root)]
    return fill(Lake(where, make=True, keep_s=keep_s), runs, replace=replace)


def fill(lake: Lake, runs: Sequence[Candidate], *, replace: bool = False) -> Added:
    """Bring a lake up to date with runs; see :func:`add`."""
    done = Added([], 0, 0, [])
    known = {table: lake.fingerprints(table) for table in COLUMNS}
    batch = _Batch(lake, known)
    values = unchanged = 0
    seen: dict[Key, str] = {}
    with progress(f"into {lake.where}", "runs") as tell:
        for number, run in enumerate(runs):
            tell(number, len(runs))
            problem = _clash(run, seen, known["runs"], replace=replace)
            if problem:
                done.problems.append(problem)
                continue
            seen[run.key] = run.run.source
            known_fingerprint = known["runs"].get(run.key, "")
            if run.version and known_fingerprint.split(" ", 2)[2:] == [run.version]:
                unchanged += 1
                continue
            try:
                with boundary(run.run.source):
                    rows = _Rows(run, *run.load())
            except (NotFound, Unavailable) as error:
                done.problems.append(str(error))
                continue
            if known_fingerprint.split(" ", 2)[:2] == rows.fingerprints["runs"].split(" ", 2)[:2]:
                unchanged += 1
                if not run.version:
                    continue
            else:
                done.added.append(run.key)
                values += rows.size
            batch.add(rows)
        batch.write()
    if done.added:
        _look_after(lake, len(done.added))
    return done._replace(unchanged=unchanged, values=values)


def _look_after(lake: Lake, added: int) -> None:
    """Join the short files of tables that have many, and delete what is old; what fails, the next call does."""
    most = {table: MANY_HEADS if table == "runs" and added >= AT_ONCE else MANY_SHORT for table in COLUMNS}
    many = [table for table in COLUMNS if len(lake.small_files(table)) >= most[table]]
    with contextlib.suppress(DeliveryError):
        running = lake.running() if many else set()
        for table in many:
            if len(lake.small_files(table, running)) >= most[table]:
                lake.compact(table, running)
        if added >= AT_ONCE:
            lake.sum_up_runs()
        lake.vacuum_daily()


def missing_runs(where: str | Path, folder: Path) -> list[Key]:
    """Runs of a lake that came from a directory of runs and aren't there any more.

    Raises:
        NotFound: there is no such directory, which an unmounted disk may be.
    """
    if not folder.is_dir():
        raise NotFound(f"no directory {folder}: runs are only taken for gone where it is there")
    lake = Lake(where)
    above = folder.resolve()
    missing = []
    for file in lake.snapshot("runs").files.values():
        for row in lake.rows("runs", file, ["project", "run", "source"]).to_pylist():
            path = Path(row["source"] or "")
            if path.is_absolute() and above in path.parents and not (path / "run.json").exists():
                missing.append((row["project"], row["run"]))
    return sorted(missing)


def candidates(source: str, root: Path | None) -> Iterator[Candidate]:
    """The runs that a source names; ``root``: where our own lie."""
    scheme, where = registry.parse(source)
    registry.load(scheme)
    if scheme == registry.OWN:
        reader = JournalReader(root)
        for directory in reader.find(where):
            try:
                run = source_run(directory)
            except (NotFound, OSError):
                continue
            version = fingerprint_of(directory.path)
            state = observe(directory).name
            yield Candidate(
                run, f"{version} {state}" if version else "", partial(reader.columns, run, keep=False, apart=True)
            )
        return
    other, runs = registry.open_source(source, root)
    for run in runs:
        version = other.version(run)
        yield Candidate(run, version, partial(_read, other, run))


def _read(reader: Reader, run: SourceRun) -> tuple[Sequence[Block], Sequence[Record]]:
    data = RunData(reader, run)
    return data.blocks(), data.records()


def _clash(entry: Candidate, seen: dict[Key, str], known: dict[Key, str], *, replace: bool) -> str:
    """Why a run can't be added beside those in the lake, since two runs may have one name; "" if it can."""
    name = "/".join(filter(None, entry.key))
    if entry.key in seen:
        return f"{entry.run.source}: run {name} came from {seen[entry.key]}, too: add them to lakes of their own"
    known_fingerprint = known.get(entry.key, "")
    if known_fingerprint and not replace and known_fingerprint.partition(" ")[0] != repr(entry.run.created):
        return f"{entry.run.source}: the lake has another run {name}, begun at another time; --replace takes this one"
    return ""


class _Rows:
    """A run's rows for all tables.

    fingerprints: by table, a digest of the rows there; of ``runs``: when the run began, a digest of all, and the
    version. So a new tag changes the row in ``runs`` alone. size: how many numbers. goes_on: more is to come.
    """

    def __init__(self, entry: Candidate, blocks: Sequence[Block], others: Sequence[Record]) -> None:
        self.key = entry.key
        self.tables: dict[str, Any] = {
            "metrics": numbers(self.key, select_stepless(blocks, stepless=False)),
            "system": numbers(self.key, select_stepless(blocks, stepless=True)),
            "events": _events(self.key, others),
        }
        self.size = len(self.tables["metrics"]) + len(self.tables["system"])
        self.facts = facts(entry.run, blocks, others, entry.run.status)
        self.goes_on = self.facts.status == "running"
        self.fingerprints = {name: _fingerprint(table) for name, table in self.tables.items()}
        for name, values in (("config", self.facts.config), ("summary", self.facts.summary)):
            self.fingerprints[name] = _hashed(repr(records.storable(values)).encode())
        shared = (self.facts.name, self.facts.group, self.facts.tags, self.facts.notes, self.facts.status)
        all_rows = (*self.fingerprints.values(), *map(records.storable, shared), FACTS_VERSION)
        self.fingerprints["runs"] = f"{entry.run.created!r} {_hashed(repr(all_rows).encode())} {entry.version}"

    def since(self, table: str, known: str) -> Any:
        """The rows that came behind those of which a lake has the fingerprint; None where others changed, too."""
        last = _last_rows(known)
        if not last:
            return None
        import numpy as np

        rows = self.tables[table]
        numbers = rows.column("row").to_numpy()
        streams = numbers >> STREAM_BITS
        before: Any = np.zeros(len(numbers), bool)
        for stream, row in last.items():
            before |= (streams == stream) & (numbers <= row)
        # Its dictionary may have names of the new rows alone.
        same = _fingerprint(schema.coded(schema.without_dictionaries(rows.filter(before)))) == known
        return rows.filter(~before) if same else None


def _fingerprint(table: Any) -> str:
    """A digest of rows, how many they are, and the last row of each stream of the journal."""
    import numpy as np

    numbers = table.column("row").to_numpy()
    streams = numbers >> STREAM_BITS
    last = [int(numbers[streams == stream].max()) for stream in np.unique(streams)]
    return f"{_digest(table)} {len(numbers)} {','.join(map(str, last))}"


def _last_rows(fingerprint: str) -> dict[int, int]:
    """The last row of each stream, by a fingerprint; {} where it says none."""
    words = fingerprint.split(" ")
    rows = [int(row) for row in words[2].split(",") if row.isdecimal()] if len(words) == 3 else []
    return {row >> STREAM_BITS: row for row in rows}


def _digest(table: Any) -> str:
    import pyarrow as pa

    at = table.schema.get_field_index("step")
    table = table.set_column(
        at, "step", table.column("step").fill_null(STEPLESS)
    )  # what lies under gaps may be anything
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return _hashed(sink.getvalue())


def _hashed(content: Any) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


class _Batch:
    """Collects runs until there are enough for a commit."""

    def __init__(self, lake: Lake, known: dict[str, dict[Key, str]]) -> None:
        self._lake, self._known = lake, known
        self._rows: list[_Rows] = []
        self._size = 0

    def add(self, rows: _Rows) -> None:
        """Add a run; write if there are enough."""
        if self._size and self._size + rows.size > FILE_ROWS:
            self.write()
        self._rows.append(rows)
        self._size += rows.size
        if self._size >= FILE_ROWS or len(self._rows) >= BATCH_RUNS:
            self.write()

    def write(self) -> None:
        """Commit what was added, table by table, ``runs`` last."""
        batch, self._rows, self._size = self._rows, [], 0
        if not batch:
            return
        every = [rows.facts for rows in batch]
        keys = [rows.key for rows in batch]
        for table in COLUMNS:
            fingerprints = {rows.key: rows.fingerprints[table] for rows in batch}
            known = self._known[table]
            fresh = {
                key: fingerprint
                for key, fingerprint in fingerprints.items()
                if table == "runs" or known.get(key) != fingerprint
            }
            if table in GROWING:
                fresh = self._append(table, batch, fresh)
            parts: list[Any] = []
            if table in GROWING:
                parts = [rows.tables[table] for rows in batch if rows.key in fresh]
            elif table == "runs":
                parts = [_runs_rows(keys, every)]
            else:
                some = [rows for rows in batch if rows.key in fresh]
                values = [rows.facts.config if table == "config" else rows.facts.summary for rows in some]
                parts = [_value_rows([rows.key for rows in some], values)]
            failpoint("lake.table.before")
            if fresh:
                self._lake.put(table, _joined(table, parts), fresh)

    def _append(self, table: str, batch: Sequence[_Rows], fresh: dict[Key, str]) -> dict[Key, str]:
        """Put in what is new of runs that have only grown; the runs that are left, which are to be replaced."""
        known = self._known[table]
        grown = {
            rows.key: new for rows in batch
            if rows.key in fresh and (new := rows.since(table, known.get(rows.key, ""))) is not None
        }  # fmt: skip
        changes = {key: (known[key], fresh[key]) for key in grown}
        ended = {rows.key for rows in batch if not rows.goes_on}
        if not grown or not self._lake.append(table, _joined(table, list(grown.values())), changes, ended):
            return fresh
        return {key: fingerprint for key, fingerprint in fresh.items() if key not in grown}


def _joined(table: str, parts: Sequence[Any]) -> Any:
    import pyarrow as pa

    empty = schema.coded(schema.arrow_schema(COLUMNS[table]).empty_table())
    return pa.concat_tables([empty, *parts], promote_options="permissive")


def numbers(key: Key, blocks: Any) -> Any:
    """Blocks as rows of ``metrics`` or ``system``, metric by metric, each in its order."""
    import numpy as np
    import pyarrow as pa

    parts: list[tuple[Any, ...]] = []
    words: dict[str, int] = {}
    for block in blocks:
        count, rows = len(block.names), len(block.rows)
        codes = [words.setdefault(escaped(name), len(words)) for name in block.names]
        parts.append((
            np.repeat(np.array(codes, np.int32), rows), np.tile(block.rows, count), np.tile(block.steps, count),
            np.tile(block.times, count), np.ascontiguousarray(block.values.T).ravel(),
            np.repeat(np.array(block.kinds, np.int32), rows),
        ))  # fmt: skip
    kinds = (np.int32, np.int64, np.int64, np.float64, np.float64, np.int32)
    codes, row_numbers, steps, times, values, types = (
        np.concatenate([part[at] for part in parts]) if parts else np.zeros(0, kind) for at, kind in enumerate(kinds)
    )
    zeros = pa.array(np.zeros(len(values), np.int32))

    def constant(word: str) -> Any:
        return pa.DictionaryArray.from_arrays(zeros, pa.array([word], pa.string()))

    return pa.table({
        "project": constant(key[0]), "run": constant(key[1]),
        "name": pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(list(words), pa.string())),
        "row": pa.array(row_numbers), "step": pa.array(steps, mask=steps == STEPLESS), "time": pa.array(times),
        "value": pa.array(values), "kind": pa.array(types),
    })  # fmt: skip


def _events(key: Key, others: Sequence[Record]) -> Any:
    import pyarrow as pa

    steps = [getattr(record, "step", None) for record in others]
    table = pa.table({
        "project": pa.array([key[0]] * len(others), pa.string()), "run": pa.array([key[1]] * len(others), pa.string()),
        "row": pa.array(range(len(others)), pa.int64()),
        "kind": pa.array([str(type(record).__struct_config__.tag) for record in others], pa.string()),
        "step": pa.array([step if step is None or -(2**63) < step < 2**63 else None for step in steps], pa.int64()),
        "time": pa.array([record.time for record in others], pa.float64()),
        "record": pa.array([records.encode(record).decode().rstrip("\n") for record in others], pa.string()),
    })  # fmt: skip
    return schema.coded(table)


def _runs_rows(keys: Sequence[Key], runs: Sequence[RunStats]) -> Any:
    import pyarrow as pa

    table = runs_table([run for _, run in keys], runs)
    at = table.schema.get_field_index("project")
    table = table.set_column(at, "project", pa.array([project for project, _ in keys], pa.string()))
    # Those of a run that goes on are old in a minute, and as long as all that is new, unless many are kept together.
    done = [run.status != "running" or len(runs) >= AT_ONCE for run in runs]
    kept = [msgspec.msgpack.encode(run) if end else b"" for run, end in zip(runs, done, strict=True)]
    table = table.append_column("facts", pa.array(kept, pa.binary()))
    table = table.append_column("facts_version", pa.array([FACTS_VERSION if end else "" for end in done], pa.string()))
    return schema.coded(table.select([name for name, _ in COLUMNS["runs"]]))


def _value_rows(keys: Sequence[Key], mappings: Sequence[dict[str, Any]]) -> Any:
    import pyarrow as pa

    table = values_table([run for _, run in keys], mappings)
    projects = [project for (project, _), mapping in zip(keys, mappings, strict=True) for _ in mapping]
    return schema.coded(table.add_column(0, "project", pa.array(projects, pa.string())))
