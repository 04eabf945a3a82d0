"""Adds runs from any source to a lake: those that are new or have changed, each replaced as a whole.

A run's fingerprint tells whether it has changed. It holds when the run began, a digest of its rows, and the version of
its source: the fingerprint of its files, or what its reader says. Each table is asked for its own fingerprints, so that
the next call does what a killed process did not reach.

The digest of rows is a sum of one number for each. So that of a run that has grown follows from the digest of what the
lake has and from the new rows, and a collector reads those alone: what it keeps of a run is a :class:`Look`.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from trackers import records
from trackers.analysis.collect import FACTS_VERSION
from trackers.analysis.run_stats import MetricStats, RunStats, facts
from trackers.analysis.sql import runs_table, values_table
from trackers.errors import DeliveryError, NotFound, Unavailable, UsageError
from trackers.journal.fingerprint_cache import fingerprint_of
from trackers.journal.run_directory import RunDirectory
from trackers.readers import registry
from trackers.readers.boundary import boundary
from trackers.readers.columns import STEPLESS
from trackers.readers.frames import select_stepless
from trackers.readers.journal import JournalReader, source_run
from trackers.readers.reader import Reader, SourceRun
from trackers.readers.run_data import RunData
from trackers.records import Record, escaped
from trackers.support.failpoints import failpoint
from trackers.support.progress import progress
from trackers_lake import journals, schema
from trackers_lake.delta import Key
from trackers_lake.journals import STREAM_BITS, Content, End
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
NO_ROWS = f"{0:016x} 0 "
"""Fingerprint of a run in a table that has no rows of it."""
UNKNOWN = "?"
"""Version of a source that has none."""
WHOLE_AGAIN = 1.5
"""A run that goes on is read whole when it is so many times as long as it was the last time, for its speed and use."""


class Added(NamedTuple):
    """added: runs that were put in. unchanged: those that the lake has. values: numbers of those added.
    problems: why others were left out. left_out: those."""

    added: list[Key]
    unchanged: int
    values: int
    problems: list[str]
    left_out: tuple[Key, ...] = ()


class Candidate(NamedTuple):
    """A run of a source. version: differs once the source has changed; "" if only the content can tell.
    load: reads it whole. load_new: what came since; None where there is no such thing."""

    run: SourceRun
    version: str
    load: Callable[[], Content]
    load_new: Callable[[End], Content | None] = lambda end: None

    @property
    def key(self) -> Key:
        """What the run is called in the lake."""
        return escaped(self.run.project), escaped(self.run.id)

    @property
    def mark(self) -> str:
        """Version and status, as a lake keeps them."""
        return f"{self.version or UNKNOWN} {self.run.status}"


class Look(NamedTuple):
    """What is kept of a run that goes on until the next look at it.

    end: how far it was read. fingerprints: in the tables of :data:`GROWING`. facts: by all of it, but for speed and
    use. size, whole: its numbers, and how many it had when it was read whole.
    """

    end: End
    fingerprints: dict[str, str]
    facts: RunStats
    size: int
    whole: int


Looks = MutableMapping[Key, Look]


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


def fill(lake: Lake, runs: Sequence[Candidate], *, replace: bool = False, looks: Looks | None = None) -> Added:
    """Bring a lake up to date with runs; see :func:`add`.

    Args:
        looks: of the last call, by a process that calls again: of runs that have only grown what is new is read.
    """
    done = Added([], 0, 0, [])
    known = {table: lake.fingerprints(table) for table in COLUMNS}
    lives, looks = looks is not None, {} if looks is None else looks
    batch = _Batch(lake, known, looks, {run.key for run in runs if run.run.status == "running"}, lives=lives)
    values = unchanged = 0
    seen: dict[Key, str] = {}
    left_out: list[Key] = []
    with progress(f"into {lake.where}", "runs") as tell:
        for number, run in enumerate(runs):
            tell(number, len(runs))
            problem = _clash(run, seen, known["runs"], replace=replace)
            if problem:
                done.problems.append(problem)
                left_out.append(run.key)
                continue
            seen[run.key] = run.run.source
            known_fingerprint = known["runs"].get(run.key, "")
            if run.version and known_fingerprint.split(" ", 2)[2:] == [run.mark]:
                unchanged += 1
                continue
            try:
                with boundary(run.run.source):
                    rows = _read_rows(run, known, looks.pop(run.key, None))
            except (NotFound, Unavailable) as error:
                done.problems.append(str(error))
                left_out.append(run.key)
                continue
            if known_fingerprint.split(" ", 2)[:2] == rows.fingerprints["runs"].split(" ", 2)[:2]:
                unchanged += 1
                if not run.version:
                    rows.keep(looks)
                    continue
            else:
                done.added.append(run.key)
                values += rows.size
            batch.add(rows)
        batch.write()
    if done.added:
        _look_after(lake, len(done.added))
    return done._replace(unchanged=unchanged, values=values, left_out=tuple(left_out))


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
        yield from filter(None, map(candidate, reader.find(where)))
        return
    other, runs = registry.open_source(source, root)
    for run in runs:
        version = other.version(run)
        yield Candidate(run, version, partial(_read, other, run))


def candidate(directory: RunDirectory) -> Candidate | None:
    """A run of ours; None where it can't be told which one it is."""
    try:
        run = source_run(directory)
    except (NotFound, OSError):
        return None
    version = fingerprint_of(directory.path)
    loads = partial(journals.read_whole, run), partial(journals.read_new, run)
    return Candidate(run, version, *loads)


def _read(reader: Reader, run: SourceRun) -> Content:
    data = RunData(reader, run)
    others = data.records()
    return Content(data.blocks(), others, range(len(others)))


def _read_rows(entry: Candidate, known: dict[str, dict[Key, str]], look: Look | None) -> _Rows:
    """A run's rows: those that came since the last look, if all tables have what there was then."""
    goes_on = look is not None and entry.run.status == "running" and look.size < WHOLE_AGAIN * look.whole
    if look is not None and goes_on:
        there = {table: known[table].get(entry.key, NO_ROWS) for table in GROWING}
        if there == look.fingerprints and (content := entry.load_new(look.end)) is not None:
            return _Rows(entry, content, look)
    return _Rows(entry, entry.load())


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
    """A run's rows for all tables, or those that came since a look.

    fingerprints: by table, a digest of the rows there; of ``runs``: when the run began, a digest of all, and the
    version. So a new tag changes the row in ``runs`` alone. size: how many numbers. goes_on: more is to come.
    """

    def __init__(self, entry: Candidate, content: Content, look: Look | None = None) -> None:
        self.key = entry.key
        self._entry, self._end, self._look = entry, content.end, look
        self.tables: dict[str, Any] = {
            "metrics": numbers(self.key, select_stepless(content.blocks, stepless=False)),
            "system": numbers(self.key, select_stepless(content.blocks, stepless=True)),
            "events": _events(self.key, content.others, content.rows),
        }
        self.size = len(self.tables["metrics"]) + len(self.tables["system"])
        self._sums = {name: _sums(table) for name, table in self.tables.items()}
        before = dict.fromkeys(GROWING, NO_ROWS) if look is None else look.fingerprints
        self.fingerprints = {
            name: _fingerprint(table, self._sums[name], before[name]) for name, table in self.tables.items()
        }
        if look is None or content.end is None:
            self.facts = facts(entry.run, content.blocks, content.others, entry.run.status)
        else:
            new = facts(entry.run, content.blocks, content.end.heads, entry.run.status)
            self.facts = _grown_facts(look.facts, new)
        self.goes_on = self.facts.status == "running"
        for name, values in (("config", self.facts.config), ("summary", self.facts.summary)):
            self.fingerprints[name] = _hashed(repr(records.storable(values)).encode()) if values else NO_ROWS
        shared = (self.facts.name, self.facts.group, self.facts.tags, self.facts.notes, self.facts.status)
        all_rows = (*self.fingerprints.values(), *map(records.storable, shared), FACTS_VERSION)
        self.fingerprints["runs"] = f"{entry.run.created!r} {_hashed(repr(all_rows).encode())} {entry.mark}"

    def since(self, table: str, known: str) -> Any:
        """The rows that came behind those of which a lake has the fingerprint; None where others changed, too."""
        rows = self.tables[table]
        if self._look is not None:
            return rows if known == self._look.fingerprints[table] else None
        if known == NO_ROWS:
            return rows
        last = _last_rows(known)
        if not last:
            return None
        import numpy as np

        numbers = rows.column("row").to_numpy()
        streams = numbers >> STREAM_BITS
        before: Any = np.zeros(len(numbers), bool)
        for stream, row in last.items():
            before |= (streams == stream) & (numbers <= row)
        same = _fingerprint(rows.filter(before), self._sums[table][before], NO_ROWS) == known
        return rows.filter(~before) if same else None

    def whole(self) -> _Rows:
        """All of the run's rows: these, or read anew where these are new ones alone."""
        if self._look is None:
            return self
        with boundary(self._entry.run.source):
            return _Rows(self._entry, self._entry.load())

    def keep(self, looks: Looks) -> None:
        """Keep what the next look needs, if that can go on from here."""
        if self._end is not None and self.goes_on:
            fingerprints = {table: self.fingerprints[table] for table in GROWING}
            size, whole = (self.size, self.size) if self._look is None else (self._look.size, self._look.whole)
            size += 0 if self._look is None else self.size
            looks[self.key] = Look(self._end, fingerprints, self.facts, size, whole)


def _grown_facts(before: RunStats, new: RunStats) -> RunStats:
    """The facts of a run that goes on, by those of what there was and of what is new. Speed and use are as they were,
    but for the last step."""
    same_loss = new.loss in ("", before.loss)
    new.iterations = before.iterations + new.iterations if same_loss else before.iterations
    new.loss, new.avg_mfu, new.use = before.loss or new.loss, before.avg_mfu, before.use
    new.steps = max((step for step in (before.steps, new.steps) if step is not None), default=None)
    new.speed = msgspec.structs.replace(before.speed, last_step=new.steps)
    new.gpus = max((count for count in (before.gpus, new.gpus) if count is not None), default=None)
    new.goals = {**before.goals, **new.goals}
    folds = dict(before.folds)
    for name, fold in new.folds.items():
        folds[name] = _grown_fold(folds[name], fold) if name in folds else fold
    new.folds = folds
    return new


def _grown_fold(before: MetricStats, new: MetricStats) -> MetricStats:
    def first(choose: Callable[[Any], Any], *values: Any) -> Any:
        there = [value for value in values if value is not None]
        return choose(there) if there else None

    counts = before.count - before.nans, new.count - new.nans
    total = sum((fold.mean or 0.0) * count for fold, count in zip((before, new), counts, strict=True))
    low = new if before.low is None or (new.low is not None and new.low < before.low) else before
    high = new if before.high is None or (new.high is not None and new.high > before.high) else before
    return MetricStats(
        count=before.count + new.count, nans=before.nans + new.nans, last=new.last,
        first_step=first(min, before.first_step, new.first_step), last_step=first(max, before.last_step, new.last_step),
        low=low.low, low_step=low.low_step, high=high.high, high_step=high.high_step,
        mean=total / sum(counts) if sum(counts) else None,
    )  # fmt: skip


def _fingerprint(table: Any, sums: Any, before: str) -> str:
    """A digest of rows, how many they are, and the last row of each stream of the journal.

    Args:
        sums: of the rows. before: the fingerprint of those that precede them.
    """
    import numpy as np

    digest, count, _ = before.split(" ")
    numbers = table.column("row").to_numpy()
    streams = numbers >> STREAM_BITS
    last = _last_rows(before) | {int(stream): int(numbers[streams == stream].max()) for stream in np.unique(streams)}
    total = (int(digest, 16) + int(sums.sum(dtype=np.uint64))) % 2**64
    return f"{total:016x} {int(count) + len(numbers)} {','.join(str(last[stream]) for stream in sorted(last))}"


def _last_rows(fingerprint: str) -> dict[int, int]:
    """The last row of each stream, by a fingerprint; {} where it says none."""
    words = fingerprint.split(" ")
    rows = [int(row) for row in words[2].split(",") if row.isdecimal()] if len(words) == 3 else []
    return {row >> STREAM_BITS: row for row in rows}


def _sums(table: Any) -> Any:
    """A number for each row that its values decide, so that their sum tells rows apart in whatever order they are."""
    import numpy as np
    import pyarrow as pa

    with np.errstate(over="ignore"):
        mixed: Any = np.zeros(len(table), np.uint64)
        for name in table.schema.names:
            if name in ("project", "run"):
                continue
            column = table.column(name).combine_chunks()
            kind = column.type
            if pa.types.is_dictionary(kind) or pa.types.is_string(kind):
                coded = column if pa.types.is_dictionary(kind) else column.dictionary_encode()
                coded = coded.combine_chunks() if isinstance(coded, pa.ChunkedArray) else coded
                words = b"".join(_word(word) for word in coded.dictionary.to_pylist())
                values = np.frombuffer(words, np.uint64)[coded.indices.to_numpy()] if words else mixed
            elif pa.types.is_floating(kind):
                values = column.fill_null(0.0).to_numpy().view(np.uint64)
            else:
                values = column.cast(pa.int64()).fill_null(STEPLESS).to_numpy().view(np.uint64)
            mixed = _mixed(mixed ^ values)
    return mixed


def _mixed(values: Any) -> Any:
    """Numbers of 64 bits, each bit of which depends on all bits: SplitMix64, https://prng.di.unimi.it/splitmix64.c."""
    values = values + 0x9E3779B97F4A7C15
    values = (values ^ (values >> 30)) * 0xBF58476D1CE4E5B9
    values = (values ^ (values >> 27)) * 0x94D049BB133111EB
    return values ^ (values >> 31)


def _word(word: str) -> bytes:
    return hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest()


def _hashed(content: Any) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


class _Batch:
    """Collects runs until there are enough for a commit."""

    def __init__(
        self, lake: Lake, known: dict[str, dict[Key, str]], looks: Looks, going: set[Key], *, lives: bool
    ) -> None:
        self._lake, self._known, self._looks, self._going, self._lives = lake, known, looks, going, lives
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
        for table in COLUMNS:
            known = self._known[table]
            fresh = {
                rows.key: rows.fingerprints[table] for rows in batch
                if table == "runs" or known.get(rows.key, NO_ROWS) != rows.fingerprints[table]
            }  # fmt: skip
            if table in GROWING:
                fresh = self._append(table, batch, fresh)
                batch = [rows.whole() if rows.key in fresh else rows for rows in batch]
                fresh = {rows.key: rows.fingerprints[table] for rows in batch if rows.key in fresh}
                parts = [rows.tables[table] for rows in batch if rows.key in fresh]
            elif table == "runs":
                parts = [_runs_rows([rows.key for rows in batch], [rows.facts for rows in batch], every=self._lives)]
            else:
                some = [rows for rows in batch if rows.key in fresh]
                values = [rows.facts.config if table == "config" else rows.facts.summary for rows in some]
                parts = [_value_rows([rows.key for rows in some], values)]
            failpoint("lake.table.before")
            if fresh:
                self._lake.put(table, _joined(table, parts), fresh)
        for rows in batch:
            rows.keep(self._looks)

    def _append(self, table: str, batch: Sequence[_Rows], fresh: dict[Key, str]) -> dict[Key, str]:
        """Put in what is new of runs that have only grown; the runs that are left, which are to be replaced."""
        known = self._known[table]
        grown = {
            rows.key: new for rows in batch
            if rows.key in fresh and (new := rows.since(table, known.get(rows.key, NO_ROWS))) is not None
        }  # fmt: skip
        changes = {key: (known.get(key), fresh[key]) for key in grown}
        ended = {rows.key for rows in batch if not rows.goes_on}
        new = list(grown.values())
        if not grown or not self._lake.append(table, _joined(table, new), changes, ended, self._going - ended):
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


def _events(key: Key, others: Sequence[Record], rows: Sequence[int]) -> Any:
    import pyarrow as pa

    steps = [getattr(record, "step", None) for record in others]
    table = pa.table({
        "project": pa.array([key[0]] * len(others), pa.string()), "run": pa.array([key[1]] * len(others), pa.string()),
        "row": pa.array(rows, pa.int64()),
        "kind": pa.array([str(type(record).__struct_config__.tag) for record in others], pa.string()),
        "step": pa.array([step if step is None or -(2**63) < step < 2**63 else None for step in steps], pa.int64()),
        "time": pa.array([record.time for record in others], pa.float64()),
        "record": pa.array([records.encode(record).decode().rstrip("\n") for record in others], pa.string()),
    })  # fmt: skip
    return schema.coded(table)


def _runs_rows(keys: Sequence[Key], runs: Sequence[RunStats], *, every: bool) -> Any:
    """Rows of ``runs``. every: those that go on have facts, too."""
    import pyarrow as pa

    table = runs_table([run for _, run in keys], runs)
    at = table.schema.get_field_index("project")
    table = table.set_column(at, "project", pa.array([project for project, _ in keys], pa.string()))
    # Those of a run that goes on are old in a minute, and as long as all that is new, unless several are kept together.
    done = [run.status != "running" or every or len(runs) >= AT_ONCE for run in runs]
    kept = [msgspec.msgpack.encode(run) if end else b"" for run, end in zip(runs, done, strict=True)]
    table = table.append_column("facts", pa.array(kept, pa.binary()))
    table = table.append_column("facts_version", pa.array([FACTS_VERSION if end else "" for end in done], pa.string()))
    return schema.coded(table.select([name for name, _ in COLUMNS["runs"]]))


def _value_rows(keys: Sequence[Key], mappings: Sequence[dict[str, Any]]) -> Any:
    import pyarrow as pa

    table = values_table([run for _, run in keys], mappings)
    projects = [project for (project, _), mapping in zip(keys, mappings, strict=True) for _ in mapping]
    return schema.coded(table.add_column(0, "project", pa.array(projects, pa.string())))
