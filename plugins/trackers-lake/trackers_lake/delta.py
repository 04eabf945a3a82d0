"""The log of a Delta table: which Parquet files it consists of, changed by one atomic commit at a time.

A table's log is ``_delta_log/00000000000000000007.json`` and so on, a line of JSON for each action. A commit creates
the next file; of two writers one is told that the file exists, looks at what the other did, and tries again. So a table
needs no server and no catalog, only a store that refuses to create what exists. From time to time the log is summed up
in a checkpoint. The format is https://github.com/delta-io/delta/blob/master/PROTOCOL.md, reader version 1 and writer
version 2, which every engine that knows Delta tables reads.

Files of a lake may come from anybody: names that lead out of the table, sizes and versions out of all proportion, and
features that this release doesn't know end in one line that names the table.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import re
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, NamedTuple
from urllib.parse import quote, unquote

import msgspec

from trackers._version import __version__
from trackers.errors import UNDECODABLE, Damaged, NotFound, examples
from trackers.object_storage.store import Longer, Store
from trackers.support import confined
from trackers.support.failpoints import failpoint
from trackers_lake import location, unpacked

LOG = "_delta_log"
MOST_LOG_BYTES = 256 * 1024 * 1024
"""Maximum length of a commit or a checkpoint, and of commits that are held at the same time."""
MOST_LINE_BYTES = 32 * 1024 * 1024
MOST_NAMED = 2_500_000
"""Maximum number of a table's files with the runs that they hold, a file as two; and of those that were removed."""
LEAST_ACTION_BYTES = 8
"""Minimum length of an action in a checkpoint of more than MOST_ACTIONS: each names a file, by a random number."""
MOST_ACTIONS = 1_000_000
MOST_VERSION = 10**15
LEAST_LINE_BYTES = 32
"""Minimum length of a line of a commit of more than MOST_ACTIONS, on average: each names a file, or removes one."""
MOST_COMMITS = 100_000
"""Maximum number of commits that are read after a checkpoint."""
CHECKPOINT_EVERY = 50
FEW = 4
"""Newer commits that are read one by one; of more, which writers on many machines make, all names are asked for."""
READ_TRIES = 5
"""A log is read so often while another process removes the part of it that a checkpoint sums up."""
SWEEP = "VACUUM START"
"""Operation of a commit that announces the deletion of files that the table hasn't."""
READS = 1
WRITES = 2
TAG = "trackers.runs"
"""A file's tag with the runs whose rows it holds: JSON, a list of project, id and fingerprint."""
THREADS = 8
TOGETHER = 16
"""Commits that are held at a time."""

Key = tuple[str, str]
"""A run: its project and its id."""
_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10}))?\.parquet")


class DataFile(NamedTuple):
    """A Parquet file of a table.

    path: below the table. size: in bytes. rows: None where the log doesn't say. runs: those whose rows it holds, with
    the fingerprint of each; None where another program wrote the file. low, high: the smallest and largest project
    and id.
    """

    path: str
    size: int
    rows: int | None
    runs: Mapping[Key, str] | None
    low: Mapping[str, Any]
    high: Mapping[str, Any]


class Snapshot(NamedTuple):
    """A table at a version. version: -1 before the first commit. gone: removed files, and when, in Unix seconds.

    columns: names and types, as Delta calls them. since: the version of the checkpoint that it was read from, or -1.
    swept: no older file that a later version doesn't have may be added by a later one: see :meth:`DeltaTable.sweep`.
    """

    version: int
    files: Mapping[str, DataFile]
    gone: Mapping[str, float]
    columns: tuple[tuple[str, str], ...]
    identity: str
    created: int
    since: int
    swept: int


NOTHING = Snapshot(-1, {}, {}, (), "", 0, -1, -1)


_Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class _Add(msgspec.Struct):
    path: str
    size: _Count
    partitionValues: dict[str, str | None] = {}
    stats: str | None = None
    tags: dict[str, str | None] | None = None
    deletionVector: Any = None


class _Remove(msgspec.Struct):
    path: str
    deletionTimestamp: _Count | None = None


class _Metadata(msgspec.Struct):
    schemaString: str
    id: str = ""
    createdTime: _Count | None = None
    partitionColumns: list[str] = []
    configuration: dict[str, Any] = {}


class _Protocol(msgspec.Struct):
    minReaderVersion: int = 1
    minWriterVersion: int = 2
    readerFeatures: list[str] | None = None


class _Info(msgspec.Struct):
    operation: Any = ""


class _Action(msgspec.Struct):
    commitInfo: _Info | None = None
    add: _Add | None = None
    remove: _Remove | None = None
    metaData: _Metadata | None = None
    protocol: _Protocol | None = None


class _Stats(msgspec.Struct):
    numRecords: _Count | None = None
    minValues: dict[str, Any] = {}
    maxValues: dict[str, Any] = {}


class _Field(msgspec.Struct):
    name: str
    type: Any


class _Schema(msgspec.Struct):
    fields: list[_Field]


_actions = msgspec.json.Decoder(_Action)
_stats = msgspec.json.Decoder(_Stats)
_schema = msgspec.json.Decoder(_Schema)
_runs = msgspec.json.Decoder(list[tuple[str, str, str]])


class DeltaTable:
    """A table in a store.

    Args:
        name: its folder below the store's address.
        keep_s: how long a checkpoint says of a removed file when it was removed, in seconds: who reads an older version
            has that long.
    """

    def __init__(self, store: Store, name: str, keep_s: float) -> None:
        self.store = store
        self.name = name
        self.keep_s = keep_s
        self.seen = NOTHING

    def snapshot(self) -> Snapshot:
        """The table as it is now; what was read before isn't read again.

        Raises:
            Damaged: the log can't be read. Unavailable, Refused: the store can't.
        """
        if self.seen.version >= 0:
            newer = self._newer(self.seen.version)
            if newer or (newer is not None and self._exists(self.seen.version)):
                self.seen = self._folded(self.seen, newer)
                return self.seen
        self.seen = self._read()
        return self.seen

    def commit(
        self,
        base: Snapshot,
        adds: Sequence[DataFile],
        removes: Iterable[str],
        operation: str,
        columns: Sequence[tuple[str, str]] = (),
        *,
        same_data: bool = False,
    ) -> bool:
        """Make the next version; whether that was possible: False where another writer has made it.

        A number is free again once its commit was removed from the log, which a checkpoint then sums up. Such a commit
        would be read by nobody: it is taken back.

        Args:
            columns: those that the table is to have, where they aren't those it has.
            same_data: rows were only put into other files.

        Raises:
            Unavailable, Refused: it isn't known whether the version was made.
        """
        now = int(time.time() * 1000)
        lines: list[dict[str, Any]] = [
            {"commitInfo": {"timestamp": now, "operation": operation, "engineInfo": f"trackers {__version__}"}}
        ]
        if base.version < 0:
            lines.append({"protocol": {"minReaderVersion": READS, "minWriterVersion": WRITES}})
        if columns and tuple(columns) != base.columns:
            lines.append({"metaData": _metadata(base, columns, now)})
        gone = [base.files[path] for path in removes if path in base.files]
        lines += [
            {"remove": {"path": quote(file.path), "deletionTimestamp": now, "dataChange": not same_data,
                        "extendedFileMetadata": True, "partitionValues": {}, "size": file.size}} for file in gone
        ]  # fmt: skip
        lines += [{"add": {**_added(file), "modificationTime": now, "dataChange": not same_data}} for file in adds]
        failpoint("lake.commit.before")
        content = b"\n".join(map(msgspec.json.encode, lines)) + b"\n"
        made = self.store.create(self._commit_name(base.version + 1), content)
        failpoint("lake.commit.after")
        if made and self._is_passed_over(base.version + 1, adds, gone):
            self.store.delete([self._commit_name(base.version + 1)])
            return False
        return made

    def _is_passed_over(self, version: int, adds: Sequence[DataFile], removes: Sequence[DataFile]) -> bool:
        """Whether a commit came after a checkpoint of a later version."""
        if self._announced() < version:
            return False
        now = self._read()
        return any(file.path not in now.files and file.path not in now.gone for file in adds) or any(
            file.path in now.files for file in removes
        )

    def sweep(self) -> Snapshot | None:
        """Announce the deletion of files that the table hasn't; returns its next version. None: another was quicker.

        A writer may be about to commit a file that it has written. Its commit is planned upon this one then, and it
        sees by ``swept`` that it must write the file anew (:meth:`trackers_lake.tables.Lake.put`).
        """
        base = self.snapshot()
        return self.snapshot() if self.commit(base, [], [], SWEEP) else None

    def checkpoint(self, snapshot: Snapshot) -> None:
        """Sum up the log until a version, so that a reader needn't read every commit.

        Raises:
            Unavailable, Refused: it wasn't written; the table is as before.
        """
        content, count = _checkpoint(snapshot, self.keep_s)
        self.store.put(f"{self.name}/{LOG}/{snapshot.version:020d}.checkpoint.parquet", content)
        if self._announced() > snapshot.version:
            return
        last = {"version": snapshot.version, "size": count}
        self.store.put(f"{self.name}/{LOG}/_last_checkpoint", json.dumps(last).encode())

    def forget_log(self, before: int, written_before: float) -> None:
        """Remove commits and checkpoints from before a version that has a checkpoint.

        Args:
            written_before: only those that are older, in Unix seconds by the store's clock.
        """
        old = [
            entry.name for entry in self.store.objects(f"{self.name}/{LOG}")
            if 0 <= _version(entry.name) < before and entry.time <= written_before
        ]  # fmt: skip
        self.store.delete(old)

    def _announced(self) -> int:
        """The version of the newest checkpoint by ``_last_checkpoint``; -1 without a readable one."""
        try:
            last = msgspec.json.decode(self.store.get(f"{self.name}/{LOG}/_last_checkpoint", 65536))
            return max(int(last["version"]), 0)
        except (NotFound, *UNDECODABLE, KeyError, TypeError, OverflowError):
            return -1

    def _read(self) -> Snapshot:
        for tries in range(READ_TRIES):
            try:
                return self._read_once()
            except NotFound as error:  # removed while it was read: a newer checkpoint sums it up
                if tries == READ_TRIES - 1:
                    raise Damaged(str(error)) from None
                time.sleep(0.01 * 2**tries)
        raise AssertionError("unreachable")

    def _read_once(self) -> Snapshot:
        announced = self._announced()
        after = f"{self.name}/{LOG}/{max(announced - 1, 0):020d}" if announced >= 0 else ""
        listing = self._list_versions(after)
        if after and not listing[1]:  # it names a checkpoint that isn't there
            listing = self._list_versions("")
        commits, checkpoints = listing
        if not commits and not checkpoints:
            return NOTHING
        base = NOTHING
        if checkpoints:
            version = max(checkpoints)
            base = self._checkpointed(version, checkpoints[version])
        newer = [version for version in sorted(commits) if version > base.version]
        if newer and newer != list(range(base.version + 1, newer[-1] + 1)):
            raise NotFound(f"{self}: its log lacks a commit before version {newer[-1]:,}")
        return self._folded(base, self._commits(newer))

    def _list_versions(self, after: str) -> tuple[set[int], dict[int, list[str]]]:
        """Versions of commits, and names of checkpoints' parts by version, of those that are whole."""
        commits: set[int] = set()
        parts: dict[int, dict[str, int]] = {}
        self._need_files()
        for entry in self.store.objects(f"{self.name}/{LOG}", after):
            name = entry.name.rpartition("/")[2]
            if _version(name) > MOST_VERSION:
                raise Damaged(f"{self}: {examples([name])} in its log is of no version that there can be")
            if match := _COMMIT.fullmatch(name):
                commits.add(int(match[1]))
            elif match := _CHECKPOINT.fullmatch(name):
                parts.setdefault(int(match[1]), {})[entry.name] = int(match[3] or 1)
        if len(commits) > MOST_COMMITS:
            raise Damaged(f"{self}: its log has more than {MOST_COMMITS:,} commits")
        return commits, {v: sorted(names) for v, names in parts.items() if set(names.values()) == {len(names)}}

    def _need_files(self) -> None:
        """See that all that the log of a directory names is a file: a listing leaves out links and pipes, and the table
        would look older without them, or empty.

        Raises:
            Damaged: one is none.
        """
        folder = location.local_path(self.store.where)
        if folder is None or not (folder / self.name / LOG).is_dir():
            return
        with os.scandir(folder / self.name / LOG) as entries:
            for entry in entries:
                if _version(entry.name) >= 0 and not entry.is_file(follow_symlinks=False):
                    raise Damaged(f"{self}: {examples([entry.name])} in its log isn't a regular file")

    def _newer(self, version: int) -> list[tuple[int, bytes]] | None:
        """The commits after a version: some one by one, more by a listing, several at once; None where one is gone, or
        they are too long to be held together."""
        newer = _together(itertools.islice(self._after(version), FEW))
        if newer is None or len(newer) < FEW:
            return newer
        last = newer[-1][0]
        more = sorted(at for at in self._list_versions(self._commit_name(last))[0] if at > last)
        if more != list(range(last + 1, last + 1 + len(more))):
            return None
        with contextlib.suppress(NotFound):
            if (others := _together(self._commits(more))) is not None:
                return newer + others
        return None

    def _after(self, version: int) -> Iterator[tuple[int, bytes]]:
        while True:
            version += 1
            try:
                content = self.store.get(self._commit_name(version), MOST_LOG_BYTES)
            except NotFound:
                return
            yield version, content

    def _exists(self, version: int) -> bool:
        return self.store.exists(self._commit_name(version))

    def _commits(self, versions: Sequence[int]) -> Iterator[tuple[int, bytes]]:
        """Their contents: some at once, and long ones one by one."""

        def short(version: int) -> bytes | None:
            try:
                return self.store.get(self._commit_name(version), MOST_LOG_BYTES // TOGETHER)
            except Longer:
                return None

        for first in range(0, len(versions), TOGETHER):
            some = versions[first : first + TOGETHER]
            # Not around the yield: what is left half read would end the threads where garbage is collected.
            with ThreadPoolExecutor(THREADS) as pool:
                contents = list(pool.map(short, some))
            for version, content in zip(some, contents, strict=True):
                yield (
                    version,
                    content if content is not None else self.store.get(self._commit_name(version), MOST_LOG_BYTES),
                )

    def _commit_name(self, version: int) -> str:
        return f"{self.name}/{LOG}/{version:020d}.json"

    def _folded(self, base: Snapshot, commits: Iterable[tuple[int, bytes]]) -> Snapshot:
        files, gone = dict(base.files), dict(base.gone)
        version, columns, identity, created = base.version, base.columns, base.identity, base.created
        swept = base.swept
        named = sum(2 + len(file.runs or ()) for file in files.values())
        for version, content in commits:
            if content.count(b"\n") > max(MOST_ACTIONS, len(content) // LEAST_LINE_BYTES):
                raise Damaged(f"{self}: version {version:,} of its log is damaged: its lines have nothing in them")
            for line in io.BytesIO(content):
                if not line.strip():
                    continue
                if len(line) > MOST_LINE_BYTES:
                    raise Damaged(f"{self}: version {version:,} of its log has a line of {len(line):,} bytes")
                try:
                    action = _actions.decode(line)
                except UNDECODABLE as error:
                    raise Damaged(f"{self}: version {version:,} of its log is damaged: {_one_line(error)}") from None
                if action.commitInfo is not None and action.commitInfo.operation == SWEEP:
                    swept = version
                if action.protocol is not None:
                    self._check(action.protocol)
                if action.metaData is not None:
                    columns, identity, created = self._described(action.metaData)
                if action.remove is not None:
                    path = unquote(action.remove.path)
                    old = files.pop(path, None)
                    named -= 2 + len(old.runs or ()) if old is not None else 0
                    gone[path] = (action.remove.deletionTimestamp or 0) / 1000
                if action.add is not None:
                    file = self._file(action.add)
                    files[file.path] = file
                    gone.pop(file.path, None)
                    named += 2 + len(file.runs or ())
                if max(named, len(gone)) > MOST_NAMED:
                    raise Damaged(f"{self}: its log names more than {MOST_NAMED:,} runs, or files")
        if version >= 0 and not columns:
            raise Damaged(f"{self}: its log says nothing of its columns")
        return Snapshot(version, files, gone, columns, identity, created, base.since, swept)

    def _check(self, protocol: _Protocol) -> None:
        if protocol.minReaderVersion > READS:
            features = examples(protocol.readerFeatures or [f"version {protocol.minReaderVersion}"], 4)
            raise Damaged(f"{self} needs features of Delta tables that this release doesn't read: {features}")

    def _described(self, metadata: _Metadata) -> tuple[tuple[tuple[str, str], ...], str, int]:
        if metadata.partitionColumns:
            raise Damaged(f"{self} is partitioned by {examples(metadata.partitionColumns, 4)}, as no lake of runs is")
        try:
            fields = _schema.decode(metadata.schemaString).fields
        except UNDECODABLE as error:
            raise Damaged(f"{self}: its columns can't be read: {_one_line(error)}") from None
        columns = tuple((field.name, type_name(field.type)) for field in fields)
        return columns, metadata.id, metadata.createdTime or 0

    def _file(self, add: _Add) -> DataFile:
        path = unquote(add.path)
        if not confined.is_inside(path):
            raise Damaged(f"{self}: its log names {examples([path])}, which lies elsewhere")
        if add.deletionVector is not None or add.partitionValues:
            raise Damaged(f"{self}: {examples([path])} has deletion vectors or partitions, as no lake of runs has")
        try:
            stats = _stats.decode(add.stats) if add.stats else _Stats()
            tag = (add.tags or {}).get(TAG)
            runs = {(project, run): fingerprint for project, run, fingerprint in _runs.decode(tag)} if tag else None
        except UNDECODABLE as error:
            raise Damaged(f"{self}: what its log says of {examples([path])} is damaged: {_one_line(error)}") from None
        return DataFile(path, add.size, stats.numRecords, runs, stats.minValues, stats.maxValues)

    def _checkpointed(self, version: int, names: Sequence[str]) -> Snapshot:
        import pyarrow
        from pyarrow import parquet

        def parts() -> Iterator[tuple[int, bytes]]:
            for name in names:
                content = self.store.get(name, MOST_LOG_BYTES)
                file = parquet.ParquetFile(io.BytesIO(content))
                if sum(file.metadata.row_group(n).total_byte_size for n in range(file.num_row_groups)) > MOST_LOG_BYTES:
                    raise Damaged(f"{self}: checkpoint {version:,} claims more than {MOST_LOG_BYTES:,} bytes")
                if (count := file.metadata.num_rows) > max(MOST_ACTIONS, len(content) // LEAST_ACTION_BYTES):
                    raise Damaged(f"{self}: checkpoint {version:,} claims {count:,} actions in {len(content):,} bytes")
                columns = [
                    name for name in ("add", "remove", "metaData", "protocol") if name in file.schema_arrow.names
                ]
                unpacked.check_pages(file.metadata, pyarrow.BufferReader(content))
                budget = unpacked.Budget(len(content))
                for batch in unpacked.batches(file, budget, columns):
                    actions = ({n: _as_in_commit(v) for n, v in row.items() if v} for row in batch.to_pylist())
                    lines = b"\n".join(map(msgspec.json.encode, actions))
                    budget.take(len(lines), "actions")
                    yield version, lines

        try:
            snapshot = self._folded(NOTHING._replace(since=version), parts())
        except (pyarrow.ArrowException, OSError, ValueError, TypeError, AttributeError) as error:
            raise Damaged(f"{self}: checkpoint {version:,} is damaged: {_one_line(error)}") from None
        return snapshot._replace(since=version, swept=version)  # a checkpoint doesn't say what was announced before it

    def __str__(self) -> str:
        return f"table {self.name} of {self.store.where}"


def _together(commits: Iterable[tuple[int, bytes]]) -> list[tuple[int, bytes]] | None:
    """Commits as a list; None where they are too long to be held."""
    held, length = [], 0
    for version, content in commits:
        length += len(content)
        if length > MOST_LOG_BYTES:
            return None
        held.append((version, content))
    return held


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


def type_name(kind: Any) -> str:
    """A column's type as Delta writes it, as one word: ``long``, ``array<string>``."""
    if isinstance(kind, dict) and kind.get("type") == "array":
        return f"array<{type_name(kind.get('elementType'))}>"
    return kind if isinstance(kind, str) else json.dumps(kind)


def _type(word: str) -> Any:
    if word.startswith("array<"):
        return {"type": "array", "elementType": word[6:-1], "containsNull": True}
    return json.loads(word) if word.startswith("{") else word


def _metadata(base: Snapshot, columns: Sequence[tuple[str, str]], now: int) -> dict[str, Any]:
    fields = [{"name": name, "type": _type(kind), "nullable": True, "metadata": {}} for name, kind in columns]
    return {
        "id": base.identity or str(uuid.uuid4()), "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}), "partitionColumns": [],
        "configuration": {}, "createdTime": base.created or now,
    }  # fmt: skip


def _added(file: DataFile) -> dict[str, Any]:
    stats = {"numRecords": file.rows, "minValues": file.low, "maxValues": file.high, "nullCount": {}}
    added: dict[str, Any] = {
        "path": quote(file.path), "partitionValues": {}, "size": file.size,
        "stats": json.dumps(stats if file.rows is not None else {}),
    }  # fmt: skip
    if file.runs is not None:
        runs = [(project, run, fingerprint) for (project, run), fingerprint in file.runs.items()]
        added["tags"] = {TAG: msgspec.json.encode(runs).decode()}
    return added


def _version(name: str) -> int:
    last = name.rpartition("/")[2]
    match = _COMMIT.fullmatch(last) or _CHECKPOINT.fullmatch(last)
    return int(match[1]) if match else -1


def _as_in_commit(value: Any) -> Any:
    """A value of a checkpoint in the form of a commit's: Arrow gives mappings as pairs."""
    fields = {name: item for name, item in value.items() if item is not None}
    for name in ("partitionValues", "tags", "configuration"):
        if isinstance(fields.get(name), list):
            fields[name] = dict(fields[name])
    return fields


def _checkpoint(snapshot: Snapshot, keep_s: float) -> tuple[bytes, int]:
    """A checkpoint's content, and how many actions it has."""
    import pyarrow as pa
    from pyarrow import parquet

    texts = pa.map_(pa.string(), pa.string())
    now = int(time.time() * 1000)
    rows: list[dict[str, Any]] = [
        {"protocol": {"minReaderVersion": READS, "minWriterVersion": WRITES}},
        {"metaData": {**_metadata(snapshot, snapshot.columns, now), "configuration": []}},
    ]
    for path, when in snapshot.gone.items():
        if now - when * 1000 < keep_s * 1000:
            removed = {"path": quote(path), "deletionTimestamp": int(when * 1000), "dataChange": False}
            rows.append({"remove": removed})
    for file in snapshot.files.values():
        added = _added(file)
        tags = list((added.get("tags") or {}).items()) or None
        rows.append({"add": {**added, "partitionValues": [], "tags": tags, "modificationTime": now,
                             "dataChange": False}})  # fmt: skip
    schema = pa.schema([
        ("protocol", pa.struct([("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32())])),
        ("metaData", pa.struct([
            ("id", pa.string()), ("format", pa.struct([("provider", pa.string()), ("options", texts)])),
            ("schemaString", pa.string()), ("partitionColumns", pa.list_(pa.string())), ("configuration", texts),
            ("createdTime", pa.int64())])),
        ("remove", pa.struct([("path", pa.string()), ("deletionTimestamp", pa.int64()), ("dataChange", pa.bool_())])),
        ("add", pa.struct([
            ("path", pa.string()), ("partitionValues", texts), ("size", pa.int64()), ("modificationTime", pa.int64()),
            ("dataChange", pa.bool_()), ("stats", pa.string()), ("tags", texts)])),
    ])  # fmt: skip
    for row in rows:
        if "metaData" in row:
            row["metaData"]["format"] = {"provider": "parquet", "options": []}
    sink = io.BytesIO()
    parquet.write_table(pa.Table.from_pylist(rows, schema), sink, compression="snappy")
    return sink.getvalue(), len(rows)
