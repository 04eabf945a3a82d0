"""A lake's tables: adding, replacing and removing the rows of runs, each table by one commit; joining small files.

A file holds the rows of one run or of many. To replace a run's rows, one commit replaces the files that hold some of
them by files without them, and adds files with the new rows. If another writer commits first, the commit is planned
again on top of that one. Each file's entry in the log names the runs that it holds, with their fingerprints: so no
writer adds a run twice, and the next process does what a killed one did not reach. ``runs`` is changed last when runs
are added, and first when they are removed.
"""

from __future__ import annotations

import contextlib
import math
import random
import time
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from trackers.errors import UNDECODABLE, Damaged, DeliveryError, NotFound, Unavailable
from trackers.object_storage.store import Store
from trackers.support import confined
from trackers.support.failpoints import failpoint
from trackers_lake import location as location
from trackers_lake import schema, unpacked
from trackers_lake.delta import CHECKPOINT_EVERY, DataFile, DeltaTable, Key, Snapshot
from trackers_lake.remote import RemoteFile
from trackers_lake.schema import COLUMNS

TRIES = 50
MOST_PAUSE_S = 1.0
"""Maximum pause before a commit is tried again after another writer committed first, in seconds."""
FILE_ROWS = 4 * schema.GROUP_ROWS
"""Maximum number of rows of numbers in a joined file, and in a file of new rows."""
LOGS_OF_RUNS = 4
"""Commits of ``runs`` that who lists a lake reads one by one, where one writer puts in many runs at once."""
RUNS_IN_FILE = 2500
"""Maximum number of rows of a joined file of ``runs``: an edited run has the whole file written anew."""
SMALL_BYTES = 4 * 1024 * 1024
"""A file that is shorter is joined with others."""
RECENT_S = 1.0
READ_THREADS = 8
MOST_FILE_BYTES = 8 * 1024**3
ROWS_PER_BYTE = 100
"""Maximum number of rows per byte of a file that is longer than what trackers write: a million rows of a constant
metric take some kilobytes."""
LONGEST_IN_STATS = 200
MANY_PARTS = 128
"""Short files that a run that goes on has before they are joined."""
MANY_FILES = 1000
"""Short files of a table from which on :data:`SHARE_OF_A_PART` of a run are enough: many writers bring them."""
SHARE_OF_A_PART = 8
"""They are joined if they have less than this part of the bytes that its short files have together."""
DAY_S = 86400.0
KEPT_S = 7 * DAY_S
VACUUMED = "vacuumed.json"
"""A file beside the tables that says when old files were last deleted by themselves, in Unix seconds."""


class Put(NamedTuple):
    """What a change did to a table. version: of the table afterwards. files, rows: added. rewritten: rows of other
    runs that had to be put into new files."""

    version: int
    files: int = 0
    rows: int = 0
    rewritten: int = 0


class Joined(NamedTuple):
    """Files of a table before and after they were joined."""

    before: int
    after: int


class Lake:
    """The tables of one lake.

    Args:
        where: a directory, or a store's address. make: begin a lake where nothing is yet.
        keep_s: how long files and logs that were replaced are kept, in seconds.

    Raises:
        NotFound: no lake is there. UsageError: something else is. Unavailable, Refused: the store can't be read.
    """

    def __init__(self, where: str | Path, *, make: bool = False, keep_s: float = KEPT_S) -> None:
        self.store: Store = location.open_store(where, make=make)
        self.where = self.store.where
        self.folder = location.local_path(self.where)
        self.keep_s = keep_s
        self._fresh: dict[str, float] = {}
        self.tables = {name: DeltaTable(self.store, name, keep_s) for name in COLUMNS}

    def snapshot(self, table: str) -> Snapshot:
        """A table as it is now."""
        seen = self.tables[table].snapshot()
        self._fresh[table] = time.monotonic()
        return seen

    def recent(self, table: str) -> Snapshot:
        """A table as it was less than :data:`RECENT_S` ago, for who reads run after run."""
        if time.monotonic() - self._fresh.get(table, -math.inf) > RECENT_S:
            return self.snapshot(table)
        return self.tables[table].seen

    def fingerprints(self, table: str = "runs") -> dict[Key, str]:
        """The runs of which a table has rows, and their fingerprints; "" where another program wrote the file."""
        return _newest(self.runs_in(table, file) for file in self.snapshot(table).files.values())

    def all_runs(self) -> list[Key]:
        """All runs of which any table has rows: also those that a killed process put into some only."""
        return sorted({key for table in self.tables for key in self.fingerprints(table)})

    def runs_in(self, table: str, file: DataFile) -> Mapping[Key, str]:
        """The runs whose rows a file holds."""
        if file.runs is not None:
            return file.runs
        rows = schema.coded(self.rows(table, file, ["project", "run"]))
        return dict.fromkeys(schema.run_codes(rows)[1], "") if len(rows) else {}

    def put(self, table: str, rows: Any, runs: Mapping[Key, str]) -> Put:
        """Replace the rows that a table has of some runs.

        Args:
            rows: an Arrow table; empty: the runs' rows are only taken out. runs: with their fingerprints.

        Raises:
            Unavailable, Refused: the store fails; what a table has of each run is then all or nothing.
        """
        log = self.tables[table]
        added: list[DataFile] = []
        without: dict[str, tuple[list[DataFile], int]] = {}
        written = -2
        for tries in range(TRIES):
            base = log.snapshot()
            if added and all(file.path in base.files for file in added):  # an answer was lost on its way
                affected = []
                break
            if written < base.swept or written == -2:
                without, written = {}, base.version
                added = [self._write(table, rows, runs)] if len(rows) else []
                failpoint("lake.files.written")
            affected = [file for file in base.files.values() if not runs.keys().isdisjoint(self.runs_in(table, file))]
            try:
                for file in affected:
                    if file.path not in without:
                        without[file.path] = self._without(table, file, runs.keys())
            except NotFound:  # another has replaced the file, and a vacuum has deleted it
                if log.snapshot().version == base.version:
                    raise
                continue
            remaining = [new for file in affected for new in without[file.path][0]]
            if not added and not affected:
                return Put(base.version)
            columns = _extended(base.columns, COLUMNS[table])
            try:
                if log.commit(base, [*added, *remaining], [file.path for file in affected], "WRITE", columns):
                    break
            except Unavailable:
                if log.snapshot().version == base.version:
                    raise
            _let_others(tries)
        else:
            raise Unavailable(f"{log}: {TRIES} others were quicker: try again")
        self._sum_up(log)
        rewritten = sum(without[file.path][1] for file in affected)
        return Put(log.snapshot().version, len(added), len(rows), rewritten)

    def append(
        self, table: str, rows: Any, runs: Mapping[Key, tuple[str | None, str]], ended: Collection[Key] = (),
        going: Collection[Key] = (),
    ) -> bool:  # fmt: skip
        """Add rows of runs beside those that a table has; False, and nothing is done, where it has others meanwhile.

        Args:
            runs: with the fingerprint that a table has, None where it has no rows, and the new one.
            ended: those to which no more is to come. going: runs to which it is, perhaps others: files that have some
            of them aren't joined for those that have ended.

        Raises:
            see :meth:`put`.
        """
        log = self.tables[table]
        added: list[DataFile] = []
        written = -1
        for tries in range(TRIES):
            base = log.snapshot()
            if added and all(file.path in base.files for file in added):  # an answer was lost on its way
                break
            there = _newest(self.runs_in(table, file) for file in base.files.values())
            if any(there.get(key) != old for key, (old, _) in runs.items()):
                return False
            if not added or written < base.swept:
                added = [self._write(table, rows, {key: new for key, (_, new) in runs.items()})]
                written = base.version
            try:
                if log.commit(base, added, [], "WRITE", _extended(base.columns, COLUMNS[table])):
                    break
            except Unavailable:
                if log.snapshot().version == base.version:
                    raise
            _let_others(tries)
        else:
            raise Unavailable(f"{log}: {TRIES} others were quicker: try again")
        base = log.snapshot()
        for key in runs:
            if self._join_parts(table, key, base, going if key in ended else None):
                base = log.snapshot()
        self._sum_up(log)
        return True

    def _join_parts(self, table: str, key: Key, base: Snapshot, going: Collection[Key] | None) -> bool:
        """Join the short files of a run that has ended, or has many; whether it did. What is left, a later call does.

        Args:
            going: other runs, if this one has ended: files that have some of them stay.
        """
        ended = going is not None
        short = [file for file in base.files.values() if file.size < SMALL_BYTES]
        parts = [file for file in short if file.runs and key in file.runs]
        if going is not None:
            parts = [file for file in parts if not any(run in going for run in file.runs or ())]
        most = sum(file.size for file in parts) / SHARE_OF_A_PART
        if not ended or len(parts) > SHARE_OF_A_PART:
            parts = [file for file in parts if file.size < most]
        many = SHARE_OF_A_PART if len(short) >= MANY_FILES else MANY_PARTS
        if len(parts) < (2 if ended else many):
            return False
        parts = _first_group(parts, _most_rows(table))
        return bool(parts) and self._swap(table, base, parts, "lake.parts.before")

    def _swap(self, table: str, base: Snapshot, files: Sequence[DataFile], point: str) -> bool:
        """Put the rows of files into one, whatever else others commit meanwhile; False where they took one of these
        files out, or are deleting files that the table hasn't.

        Args:
            base: the table before. point: a failpoint before the commit.
        """
        log, written = self.tables[table], base.version
        added = self._join(table, files)
        failpoint(point)
        for tries in range(TRIES):
            if added and all(file.path in base.files for file in added):  # an answer was lost on its way
                return True
            if base.swept > written or any(file.path not in base.files for file in files):
                return False
            try:
                if log.commit(base, added, [file.path for file in files], "OPTIMIZE", same_data=True):
                    return True
            except Unavailable:
                if log.snapshot().version == base.version:
                    raise
            _let_others(tries)
            base = log.snapshot()
        return False

    def remove(self, keys: Iterable[Key]) -> dict[Key, int]:
        """Remove runs from all tables; returns how many tables had each. :meth:`vacuum` deletes their files.

        Raises:
            see :meth:`put`.
        """
        requested = dict.fromkeys(keys, "")
        counts = dict.fromkeys(requested, 0)
        for table in reversed(COLUMNS):
            present = [key for key in requested if key in self.fingerprints(table)]
            if present:
                failpoint("lake.remove.before")
                self.put(table, schema.arrow_schema(COLUMNS[table]).empty_table(), dict.fromkeys(present, ""))
            for key in present:
                counts[key] += 1
        return counts

    def running(self) -> set[Key]:
        """Runs that were still running when they were put in, as their fingerprints say: they will be replaced soon."""
        return {key for key, fingerprint in self.fingerprints().items() if fingerprint.endswith(" running")}

    def small_files(self, table: str, apart: Collection[Key] = ()) -> list[DataFile]:
        """The files of a table that :meth:`compact` joins, by their runs."""
        return _small_files(self.snapshot(table), apart, _most_rows(table))

    def compact(self, table: str, apart: Collection[Key] = ()) -> Joined:
        """Put the rows of short files into few longer ones, runs in their order, and sum up the log.

        Args:
            apart: files that hold these runs alone stay as they are.

        Raises:
            Unavailable, Refused: the store fails, or others were always quicker.
        """
        log = self.tables[table]
        first = None
        slower = 0
        while slower < TRIES:
            base = log.snapshot()
            first = len(base.files) if first is None else first
            group = _first_group(_small_files(base, apart, _most_rows(table)), _most_rows(table))
            if not group:
                if base.version > base.since:
                    log.checkpoint(base)
                return Joined(first, len(base.files))
            try:
                slower += not self._swap(table, base, group, "lake.compact.before")
            except NotFound:  # another has replaced a file, and a vacuum has deleted it
                if log.snapshot().version == base.version:
                    raise
                slower += 1
        raise Unavailable(f"{log}: {TRIES} others were quicker: try again")

    def vacuum(self, older_than_s: float | None = None) -> list[tuple[str, int]]:
        """Delete files that no table has any more; their names and sizes.

        Args:
            older_than_s: only those that are unused for longer: somebody may still read them. Less than a day: writers
                that are about to commit one write it anew. 0: all, for data that must go. More than what the lake
                keeps, which is the default: from when they were written, as the log doesn't say any more when they were
                replaced.

        Raises:
            Unavailable, Refused: the store fails, or others were always quicker; the rest goes with the next call.
        """
        now = time.time()
        older_than_s = self.keep_s if older_than_s is None else older_than_s
        self._note_vacuum(now)
        deleted: list[tuple[str, int]] = []
        for name, log in self.tables.items():
            if log.snapshot().version < 0:
                continue
            objects = list(self.store.objects(name))  # before the announcement: what is written after it isn't among it
            base = log.snapshot() if older_than_s >= DAY_S else self._swept(log)
            old: list[tuple[str, int]] = []
            for entry in objects:
                path = entry.name.removeprefix(f"{name}/")
                if path.startswith("_") or path in base.files:
                    continue
                if now - base.gone.get(path, entry.time) >= older_than_s:
                    old.append((entry.name, entry.size))
            self.store.delete([path for path, _ in old])
            deleted += old
            remembered = {path: when for path, when in base.gone.items() if now - when < max(older_than_s, 1.0)}
            log.checkpoint(base._replace(gone=remembered))
            log.forget_log(base.version, now - older_than_s if older_than_s else math.inf)
        return deleted

    def vacuum_daily(self) -> None:
        """:meth:`vacuum`, if something was replaced and nobody did for a day."""
        if not any(self.snapshot(name).gone for name in self.tables):
            return
        try:
            before = float(msgspec.json.decode(self.store.get(VACUUMED, 100)))
        except (NotFound, *UNDECODABLE, TypeError):
            before = 0.0
        if not 0 <= time.time() - before < DAY_S:
            self.vacuum()

    def _note_vacuum(self, now: float) -> None:
        self.store.put(VACUUMED, msgspec.json.encode(now))

    def _swept(self, log: DeltaTable) -> Snapshot:
        for tries in range(TRIES):
            if (base := log.sweep()) is not None:
                return base
            _let_others(tries)
        raise Unavailable(f"{log}: {TRIES} others were quicker: try again")

    def reading(self, table: str, file: DataFile) -> Any:
        """A Parquet file, its claims checked against its length.

        Raises:
            Damaged: it is none, or claims more than it can hold. NotFound: it isn't there.
        """
        import pyarrow
        from pyarrow import parquet

        name = f"{table}/{file.path}"
        try:
            if self.folder is not None:
                source: Any = pyarrow.OSFile(str(self.local_path(table, file)))
            elif file.size < SMALL_BYTES:  # one request, where its parts would take several
                source = pyarrow.BufferReader(self.store.get(name, file.size))
            else:
                source = pyarrow.PythonFile(RemoteFile(self.store, name, file.size), mode="r")
            parquet_file = parquet.ParquetFile(source)
            if not isinstance(source, pyarrow.PythonFile):  # each would be a request
                unpacked.check_pages(parquet_file.metadata, source)
            columns = [name for name in ("project", "run", "name") if name in parquet_file.schema_arrow.names]
            parquet_file = parquet.ParquetFile(source, read_dictionary=columns, metadata=parquet_file.metadata)
        except (pyarrow.ArrowException, OSError, ValueError) as error:
            raise Damaged(f"{self.where}/{name} can't be read: {' '.join(str(error).split())[:200]}") from None
        rows = parquet_file.metadata.num_rows
        size = file.size if self.folder is None else source.size()
        if rows > max(4 * FILE_ROWS, ROWS_PER_BYTE * size):
            raise Damaged(f"{self.where}/{name} is damaged: it claims {rows:,} rows in {size:,} bytes")
        return parquet_file

    def local_path(self, table: str, file: DataFile) -> Path:
        """A file's path on this machine.

        Raises:
            NotFound: it isn't there, or is no plain file of the lake.
        """
        assert self.folder is not None
        path = self.folder / table / file.path
        if not confined.is_file(path, root=self.folder):
            raise NotFound(f"{path} isn't there, or is no plain file, though the lake's log names it")
        return path

    def rows(
        self, table: str, file: DataFile, columns: Sequence[str] | None = None, run: Key | None = None,
        budget: unpacked.Budget | None = None,
    ) -> Any:  # fmt: skip
        """Rows of a file as an Arrow table, which lacks the columns that the file lacks.

        Args:
            run: only its rows: other row groups aren't read. budget: of all files that are held meanwhile.
        """
        import pyarrow
        from pyarrow import compute

        source = self.reading(table, file)
        existing = source.schema_arrow.names
        selected = [name for name in (columns or existing) if name in existing]
        size = file.size if self.folder is None else self.local_path(table, file).stat().st_size
        budget = (budget or unpacked.Budget()).open(size)
        try:
            if run is None:
                return unpacked.table(source, budget, selected)
            groups = [at for at in range(source.num_row_groups) if _may_hold(source, at, run)]
            group_rows = unpacked.table(source, budget, list(dict.fromkeys([*selected, "project", "run"])), groups)
            mask = compute.and_(compute.equal(group_rows["project"], run[0]), compute.equal(group_rows["run"], run[1]))
            return group_rows.filter(mask).select(selected)
        except (pyarrow.ArrowException, OSError, KeyError, ValueError) as error:
            text = " ".join(str(error).split())[:200]
            raise Damaged(f"{self.where}/{table}/{file.path} is damaged: {text}") from None

    def all_rows(self, table: str, columns: Sequence[str]) -> list[dict[str, Any]]:
        """Some columns of a table's rows, from all files, several at once.

        Raises:
            Damaged, NotFound: a file can't be read. Unavailable, Refused: the store fails.
        """
        budget = unpacked.Budget()
        with ThreadPoolExecutor(READ_THREADS) as pool:
            files = list(self.recent(table).files.values())
            tables = pool.map(lambda file: self.rows(table, file, columns, budget=budget), files)
            return [row for rows in tables for row in rows.to_pylist()]

    def rows_of(self, table: str, run: Key, columns: Sequence[str] | None = None) -> Any:
        """A run's rows of a table, from all files that may hold some."""
        import pyarrow as pa

        parts, budget = [], unpacked.Budget()
        for file in self.recent(table).files.values():
            if (run in file.runs) if file.runs is not None else _in_range(file, run):
                parts.append(self.rows(table, file, columns, run, budget))
        kind = schema.arrow_schema(COLUMNS[table])
        if columns is not None:
            kind = pa.schema([kind.field(name) for name in columns])
        return pa.concat_tables([kind.empty_table(), *(_as(part, kind) for part in parts)])

    def _write(self, table: str, rows: Any, runs: Mapping[Key, str]) -> DataFile:
        rows = schema.coded(rows)
        keys = schema.run_codes(rows)[1]
        content = schema.to_parquet(table, rows)
        path = f"part-{uuid.uuid4()}.parquet"
        failpoint("lake.file.before")
        self.store.put(f"{table}/{path}", content)
        low: dict[str, Any] = {}
        high: dict[str, Any] = {}
        for at, name in enumerate(("project", "run")):
            words = [key[at] for key in keys]
            if max(map(len, words)) <= LONGEST_IN_STATS:
                low[name], high[name] = min(words), max(words)
        return DataFile(path, len(content), len(rows), {key: runs.get(key, "") for key in keys}, low, high)

    def _without(self, table: str, file: DataFile, gone: Iterable[Key]) -> tuple[list[DataFile], int]:
        """Write a file's rows without those of some runs; the new files, and their number of rows."""
        import numpy as np

        out = set(gone)
        runs = self.runs_in(table, file)
        remaining = {key: fingerprint for key, fingerprint in runs.items() if key not in out}
        if not remaining:
            return [], 0
        rows = schema.coded(self.rows(table, file))
        codes, keys = schema.run_codes(rows)
        stays = np.array([key in remaining for key in keys])
        rows = schema.coded(
            schema.without_dictionaries(rows.filter(stays[codes]))
        )  # a dictionary would name those that are gone
        return ([self._write(table, rows, remaining)] if len(rows) else []), len(rows)

    def _join(self, table: str, files: Sequence[DataFile]) -> list[DataFile]:
        import pyarrow as pa

        runs, budget = _newest(self.runs_in(table, file) for file in files), unpacked.Budget()
        with ThreadPoolExecutor(READ_THREADS) as pool:
            parts = list(pool.map(lambda file: self.rows(table, file, budget=budget), files))
        rows = pa.concat_tables(parts, promote_options="permissive")
        return [self._write(table, rows, runs)] if len(rows) else []

    def _sum_up(self, log: DeltaTable) -> None:
        """Write a checkpoint after every CHECKPOINT_EVERY commits; without one, a table is only slower to read."""
        snapshot = log.snapshot()
        if snapshot.version and snapshot.version % CHECKPOINT_EVERY == 0:
            with contextlib.suppress(DeliveryError):
                log.checkpoint(snapshot)

    def sum_up_runs(self) -> None:
        """Write a checkpoint of ``runs`` if there are :data:`LOGS_OF_RUNS` commits behind the last one.

        Raises:
            Unavailable, Refused: the store fails.
        """
        snapshot = self.recent("runs")
        if snapshot.version - snapshot.since >= LOGS_OF_RUNS:
            self.tables["runs"].checkpoint(snapshot)


def _newest(files: Iterable[Mapping[Key, str]]) -> dict[Key, str]:
    """The fingerprints of runs, by those of files; of a run that lies in several, the one of the most rows."""
    found: dict[Key, str] = {}
    for runs in files:
        for key, fingerprint in runs.items():
            before = found.get(key)
            if before is None or _rows_said(fingerprint) > _rows_said(before):
                found[key] = fingerprint
    return found


def _rows_said(fingerprint: str) -> int:
    words = fingerprint.split(" ")
    return int(words[1]) if len(words) == 3 and words[1].isdecimal() else -1


def _let_others(tries: int) -> None:
    """Wait for a random time, longer after each lost race, so that writers don't collide again."""
    time.sleep(random.uniform(0.0, min(0.005 * 2**tries, MOST_PAUSE_S)))


def _as(rows: Any, kind: Any) -> Any:
    """Rows with the columns of a schema; those that a file lacks are null."""
    import pyarrow as pa

    columns = [
        rows.column(field.name).cast(field.type) if field.name in rows.schema.names
        else pa.nulls(len(rows), field.type) for field in kind
    ]  # fmt: skip
    return pa.table(columns, schema=kind)


def _extended(existing: Sequence[tuple[str, str]], required: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """A table's columns, and after them those that it lacks."""
    known = {name for name, _ in existing}
    return [*existing, *((name, kind) for name, kind in required if name not in known)]


def _most_rows(table: str) -> int:
    return RUNS_IN_FILE if table == "runs" else FILE_ROWS


def _small_files(base: Snapshot, apart: Collection[Key], most_rows: int) -> list[DataFile]:
    small = [
        file for file in base.files.values()
        if file.size < SMALL_BYTES and (file.rows or 0) < most_rows
        and not (file.runs and all(key in apart for key in file.runs))
    ]  # fmt: skip
    return sorted(small, key=lambda file: (str(file.low.get("project")), str(file.low.get("run"))))


def _first_group(small: Sequence[DataFile], most_rows: int) -> list[DataFile]:
    """The first short files that are joined into one; [] where no two can be."""
    rows = 0
    group: list[DataFile] = []
    for file in small:
        if group and rows + (file.rows or 0) > most_rows:
            if len(group) > 1:
                break
            rows, group = 0, []
        rows += file.rows or 0
        group.append(file)
    return group if len(group) > 1 else []


def _in_range(file: DataFile, run: Key) -> bool:
    for name, word in zip(("project", "run"), run, strict=True):
        low, high = file.low.get(name), file.high.get(name)
        if isinstance(low, str) and isinstance(high, str) and not low <= word <= high:
            return False
    return True


def _may_hold(source: Any, group: int, run: Key) -> bool:
    """Whether a row group's statistics leave room for a run."""
    metadata = source.metadata.row_group(group)
    for at in range(metadata.num_columns):
        column = metadata.column(at)
        if column.path_in_schema in ("project", "run") and column.is_stats_set and column.statistics.has_min_max:
            low, high = column.statistics.min, column.statistics.max
            word = run[column.path_in_schema == "run"]
            low, high = (text.decode("utf-8", "replace") if isinstance(text, bytes) else text for text in (low, high))
            if not low <= word <= high:
                return False
    return True
