"""Runs that ``neptune-exporter`` wrote to disk: Parquet files and the files beside them.

The layout (github.com/neptune-ai/neptune-exporter, README.md, "Data layout on disk"): a directory for each project has
``RUN_part_0.parquet``, ``RUN_part_1.parquet``, … of one run; files lie in a directory of the same name below
``files``, beside ``data``. A row is a value of one attribute. A source is a file of a run, a project's directory, or
``data``.

Neptune's steps have up to six decimals, and steps here are whole numbers: where a run has decimals, all its steps are
multiplied by the same power of ten, and the run's note says so. Neptune doesn't tell settings from results: single
values below ``final/`` are results here, all others are configuration. ``monitoring/…`` are samples of the machine,
without a step. A run's points come ordered by time, up to :data:`ORDERED_ROWS`; those of longer runs as they lie in the
files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from trackers.errors import Damaged
from trackers.readers import helpers
from trackers.readers.boundary import TolerantReader, bounded
from trackers.readers.reader import Reader, SourceRun
from trackers.records import (
    SUMMARY_PREFIX,
    SYSTEM_PREFIX,
    ArtifactFile,
    ArtifactRecord,
    Config,
    Finish,
    Media,
    MediaFile,
    Metrics,
    Record,
    Start,
    Summary,
    Text,
)
from trackers.support import confined

FIRST = "_part_0.parquet"
"""End of the name of a run's first file; a run without it isn't complete."""
MONITORING = "monitoring/"
IMAGES = frozenset({"png", "jpg", "jpeg", "gif", "bmp", "webp"})
SETTINGS = ("int", "float", "string", "bool", "datetime", "string_set")
"""Types of attributes that have one value, in the column that is called so with ``_value``."""
OWN = {"sys/name", "sys/tags", "sys/description", "sys/creation_time", "sys/failed", "sys/state", "sys/experiment/name"}
"""Attributes that are a run's own here, and no settings."""
ORDERED_ROWS = 10_000_000
BATCH_ROWS = 8192
ROWS_PER_BYTE = 20
"""A file may claim so many rows for each of its bytes; a million in any case."""
UNPACKED = 200
"""And so many unpacked bytes for each of them; 64 MiB in any case."""
TEXT_BYTES = 1 << 28
"""Texts of one batch of rows, of which a file holds each that repeats itself once."""
MOST_FILES = 10_000
"""Of one set of files."""
MICRO = 10**6
"""Neptune's steps are decimals with six helpers."""
_COLUMNS = ("project_id", "run_id", "attribute_path", "attribute_type", "step", "timestamp")
_LISTED_ROWS = 200_000
"""How many rows of a run's first file are looked at for what describes it: the exporter writes settings first."""


@bounded
class NeptuneReader(Reader):
    """Reads exports of Neptune."""

    scheme = "neptune"
    needs = ("pyarrow",)

    def runs(self, where: str) -> list[SourceRun]:
        """See :class:`trackers.readers.reader.Reader`. A directory stands for the runs below it."""
        paths = helpers.find_paths(self.scheme, where, lambda directory: sorted(directory.rglob(f"*{FIRST}")))
        return helpers.newest_first(paths, _source_run)

    def version(self, run: SourceRun) -> str:
        """See :class:`trackers.readers.reader.Reader`."""
        return helpers.version(_part_files(Path(run.native["path"])))

    def read(self, run: SourceRun, *, files: Path | None = None) -> Iterator[Record]:
        """See :class:`trackers.readers.reader.Reader`. Files are read where they lie."""
        path = Path(run.native["path"])
        if not path.is_file():
            raise helpers.gone_error(self.scheme, path)
        yield from _Reading(run, path).records()


class _Reading:
    """One reading of one run."""

    def __init__(self, run: SourceRun, path: Path) -> None:
        self._run, self._parts = run, _part_files(path)
        self._root, self._folder = Path(run.directory), path.parent.name
        self._time = run.created
        self._unit = MICRO

    def records(self) -> Iterator[Record]:
        tolerant = TolerantReader(self._run)
        yield Start(time=self._run.created, rank=0)
        self._unit = _unit(self._parts)
        if self._unit < MICRO:
            self._run.note = f"steps are multiplied by {MICRO // self._unit:,}: Neptune's are decimals"
        rows = 0
        settings: dict[str, Any] = {}
        for part in self._parts:
            for row in _rows(part, [*(f"{kind}_value" for kind in SETTINGS)], {*SETTINGS}):
                rows += 1
                for name, value in tolerant.read(_setting(row), row["attribute_path"]):
                    settings[name] = value
        results = {name: settings.pop(name) for name in [*settings] if name.startswith(SUMMARY_PREFIX)}
        if settings:
            yield Config(time=self._run.created, values=settings)
        yield from self._points()
        if results:
            yield Summary(time=self._time, values=results)
        others = {"string_series", "histogram_series", "file", "file_series", "file_set", "artifact"}
        for part in self._parts:
            for row in _rows(part, ["string_value", "histogram_value", "file_value"], others):
                yield from tolerant.read(self._other(row), row["attribute_path"])
        tolerant.add_note()
        if self._run.status in ("finished", "failed"):
            yield Finish(time=self._time, status=self._run.status, exit_code=0 if self._run.status == "finished" else 1)

    def _points(self) -> Iterator[Record]:
        """Values of float series; those of one step and time are one record."""
        row: Metrics | None = None
        for path, micro, time, value in _ordered(self._parts):
            if value is None or path is None:
                continue
            at = self._at(time)
            sample = path.startswith(MONITORING)
            step = None if sample or micro is None else micro // self._unit
            name = SYSTEM_PREFIX + path.removeprefix(MONITORING) if sample else path
            if row is None or (row.step, row.time) != (step, at) or name in row.values:
                if row is not None:
                    yield row
                row = Metrics(step=step, time=at, values={})
            row.values[name] = value
        if row is not None:
            yield row

    def _other(self, row: dict[str, Any]) -> Iterator[Record]:
        name, kind, time = row["attribute_path"], row["attribute_type"], self._at(row["timestamp"])
        micro = _micro(row["step"])
        step = None if micro is None or name.startswith(MONITORING) else micro // self._unit
        if kind == "string_series":
            if row["string_value"] is not None:
                yield Text(step=step, time=time, values={name: row["string_value"]})
        elif kind == "histogram_series":
            if row["histogram_value"] is not None:
                item = _histogram(row["histogram_value"])
                yield Media(name=name, type="histogram", items=[item], step=step, time=time)
        elif row["file_value"] is not None:
            yield from self._file(name, kind, str(row["file_value"]["path"]), step, time)

    def _file(self, name: str, kind: str, path: str, step: int | None, time: float) -> Iterator[Record]:
        """A file that the exporter fetched, if it is there: an image of a series, else an artifact."""
        relative = self._located(path)
        if not relative:
            return
        where = self._root / relative
        if where.is_dir():
            files = [file for file in sorted(where.rglob("*"))[:MOST_FILES] if confined.is_file(file, root=self._root)]
            if files:
                yield ArtifactRecord(name=name, files=[self._artifact_file(file, where) for file in files], time=time)
            return
        ending = where.suffix[1:].lower()
        if kind == "file_series" and ending in IMAGES:
            yield Media(name=name, type="image", items=[MediaFile(format=ending, file=relative)], step=step, time=time)
        else:
            named = name if step is None else f"{name}/{step}"
            metadata = {} if step is None else {"step": step}
            yield ArtifactRecord(
                name=named, files=[self._artifact_file(where, where.parent)], metadata=metadata, time=time
            )

    def _located(self, path: str) -> str:
        """Where a file or a set of files lies below the run's directory; "" where it doesn't, or where a link leads."""
        parts = confined.parts(path)
        for below in ([self._folder, *parts], parts):
            where = self._root.joinpath(*below)
            if parts and (confined.is_file(where, root=self._root) or (where.is_dir() and _real(self._root, below))):
                return "/".join(below)
        return ""

    def _artifact_file(self, file: Path, folder: Path) -> ArtifactFile:
        path, name = file.relative_to(folder).as_posix(), file.relative_to(self._root).as_posix()
        return ArtifactFile(path=path, file=name, size=file.stat().st_size)

    def _at(self, time: Any) -> float:
        if time is not None:
            self._time = time if isinstance(time, float) else time.timestamp()
        return self._time


def _real(root: Path, parts: list[str]) -> bool:
    """Whether no folder on the path is a link."""
    return not any(root.joinpath(*parts[: depth + 1]).is_symlink() for depth in range(len(parts)))


def _part_files(first: Path) -> list[Path]:
    """A run's files, in their order."""
    stem = first.name.removesuffix(FIRST)
    if stem == first.name:
        return [first]
    pattern = re.compile(re.escape(stem) + r"_part_(\d{1,9})\.parquet")
    numbered = [(int(match[1]), path) for path in first.parent.iterdir() if (match := pattern.fullmatch(path.name))]
    return [path for _, path in sorted(numbered) if path.is_file()]


def _open(path: Path) -> Any:
    """A Parquet file whose claims are checked against its length.

    Raises:
        Damaged: it is none, claims more than it can hold, or lacks a column.
    """
    import pyarrow
    from pyarrow import parquet

    helpers.check_size(path)
    size = path.stat().st_size
    try:
        meta = parquet.read_metadata(path)
        names = meta.schema.to_arrow_schema().names
    except pyarrow.ArrowException as error:
        raise Damaged(f"{path} is damaged: {error}") from None
    missing = [name for name in _COLUMNS if name not in names]
    if missing:
        raise Damaged(f"{path} is no export of Neptune: it has no column {missing[0]}")
    groups = [meta.row_group(number) for number in range(meta.num_row_groups)]
    values = max((sum(group.column(at).num_values for group in groups) for at in range(meta.num_columns)), default=0)
    unpacked = sum(group.total_byte_size for group in groups)
    if max(meta.num_rows, values) > max(10**6, ROWS_PER_BYTE * size) or unpacked > max(1 << 26, UNPACKED * size):
        raise Damaged(f"{path} is damaged: it claims {meta.num_rows:,} rows and {unpacked:,} bytes in {size:,}")
    leaves = (meta.schema.column(at) for at in range(meta.num_columns))
    coded = [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"]
    try:
        return parquet.ParquetFile(path, read_dictionary=coded, metadata=meta)
    except (pyarrow.ArrowException, LookupError) as error:
        raise Damaged(f"{path} is damaged: {error}") from None


def _read(path: Path, columns: list[str]) -> Iterator[Any]:
    """Batches of rows, in which repeated texts are held once.

    Raises:
        Damaged: the file is, or its texts would fill the memory once they are taken out.
    """
    import pyarrow

    file = _open(path)
    present = [name for name in columns if name in file.schema_arrow.names]
    try:
        for batch in file.iter_batches(BATCH_ROWS, columns=present):
            size = sum(_text_bytes(column) for column in batch.columns)
            if size > TEXT_BYTES:
                raise Damaged(f"{path} is damaged: it claims texts of {size:,} bytes in {batch.num_rows:,} rows")
            yield batch
    except pyarrow.ArrowException as error:
        raise Damaged(f"{path} is damaged: {error}") from None


def _text_bytes(column: Any) -> int:
    """How long all texts of a column are together."""
    from pyarrow import compute, types

    kind = column.type
    if types.is_list(kind):
        return _text_bytes(column.flatten())
    if types.is_struct(kind):
        return sum(_text_bytes(column.field(at)) for at in range(kind.num_fields))
    if types.is_dictionary(kind):
        return compute.sum(compute.binary_length(column.dictionary).take(column.indices)).as_py() or 0
    return compute.sum(compute.binary_length(column)).as_py() or 0 if types.is_string(kind) else 0


def _batches(path: Path, columns: list[str], kinds: set[str]) -> Iterator[Any]:
    """Rows of some types of attributes, as Arrow's batches."""
    import pyarrow
    from pyarrow import compute

    types = pyarrow.array(sorted(kinds), pyarrow.string())
    for batch in _read(path, [*_COLUMNS[2:], *columns]):
        rows = batch.filter(compute.is_in(batch.column("attribute_type").cast(pyarrow.string()), types))
        if rows.num_rows:
            yield rows


def _rows(path: Path, columns: list[str], kinds: set[str]) -> Iterator[dict[str, Any]]:
    """The same, row by row; a column that a file lacks is None."""
    for batch in _batches(path, columns, kinds):
        for row in batch.to_pylist():
            yield {**dict.fromkeys(columns), **row}


def _micro_steps(batch: Any) -> Any:
    """Steps as whole millionths."""
    import pyarrow
    from pyarrow import compute

    steps = batch.column("step").cast(pyarrow.decimal128(18, 6))
    return compute.multiply(steps, pyarrow.scalar(Decimal(MICRO), pyarrow.decimal128(7, 0))).cast(pyarrow.int64())


def _micro(step: Any) -> int | None:
    return None if step is None else int(Decimal(step) * MICRO)


def _unit(parts: list[Path]) -> int:
    """The largest power of ten of millionths that all steps are multiples of."""
    from pyarrow import compute

    unit = MICRO
    for part in parts:
        for batch in _batches(part, [], {"float_series", "string_series", "histogram_series", "file_series"}):
            steps = _micro_steps(batch)
            while (
                unit > 1
                and compute.any(compute.not_equal(compute.multiply(compute.divide(steps, unit), unit), steps)).as_py()
            ):
                unit //= 10
    return unit


def _ordered(parts: list[Path]) -> Iterator[tuple[str | None, int | None, float | None, float | None]]:
    """Name, step in millionths, time in seconds and value of each point; by time, where they fit into memory."""
    import pyarrow

    tables = []
    rows = sum(_open(part).metadata.num_rows for part in parts)
    for part in parts:
        for batch in _batches(part, ["float_value"], {"float_series"}):
            times = batch.column("timestamp").cast(pyarrow.timestamp("ms", "UTC")).cast(pyarrow.int64())
            names = batch.column("attribute_path").cast(pyarrow.dictionary(pyarrow.int32(), pyarrow.string()))
            columns = [names, _micro_steps(batch), times, batch.column("float_value").cast(pyarrow.float64())]
            table = pyarrow.table(dict(zip(("name", "step", "time", "value"), columns, strict=True)))
            if rows > ORDERED_ROWS:
                yield from _points_of(table)
            else:
                tables.append(table)
    if tables:
        joined = pyarrow.concat_tables(tables).unify_dictionaries()
        yield from _points_of(joined.sort_by([("time", "ascending"), ("step", "ascending")]))


def _points_of(table: Any) -> Iterator[tuple[str | None, int | None, float | None, float | None]]:
    for batch in table.to_batches(BATCH_ROWS):
        known = batch.column(0).dictionary.to_pylist()  # each name once
        names = (None if at is None else known[at] for at in batch.column(0).indices.to_pylist())
        steps, times, values = (batch.column(at).to_pylist() for at in range(1, 4))
        for name, step, time, value in zip(names, steps, times, values, strict=True):
            yield name, step, None if time is None else time / 1000, value


def _setting(row: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """An attribute with one value."""
    name, kind = row["attribute_path"], row["attribute_type"]
    value = row[f"{kind}_value"]
    if value is None or name in OWN:
        return
    if kind == "string_set":
        value = sorted(value)
    elif kind == "datetime":
        value = value.isoformat()
    yield name, value


def _histogram(value: dict[str, Any]) -> MediaFile:
    """Edges and counts.

    Raises:
        ValueError: not one edge more than counts.
    """
    edges, counts = list(value["edges"]), list(value["values"])
    if len(edges) != len(counts) + 1:
        raise ValueError(f"a histogram of {len(counts):,} values and {len(edges):,} edges")
    return MediaFile(format="json", data={"counts": counts, "edges": edges})


def _source_run(path: Path) -> SourceRun:
    project = identity = ""
    own: dict[str, Any] = {}
    rows = 0
    for batch in _head(path):
        for row in batch.to_pylist():
            rows += 1
            if not identity:
                project, identity = str(row["project_id"] or ""), str(row["run_id"] or "")
            if str(row["attribute_path"]).startswith("sys/") and row["attribute_type"] in SETTINGS:
                own.setdefault(row["attribute_path"], row.get(f"{row['attribute_type']}_value"))
        if rows >= _LISTED_ROWS:
            break
    created = own.get("sys/creation_time")
    state = str(own.get("sys/state") or "").lower()
    failed = own.get("sys/failed")
    data = path.parent.parent
    files = next((root for root in (data.parent / "files", data / "files") if root.is_dir()), data)
    tags = own.get("sys/tags")
    return SourceRun(
        source=f"neptune:{path}",
        id=identity or helpers.identity(path),
        name=str(own.get("sys/name") or own.get("sys/custom_run_id") or identity),
        project=project,
        group=own.get("sys/experiment/name") or None,
        tags=sorted(map(str, tags)) if isinstance(tags, list) else [],
        notes=own.get("sys/description") or None,
        created=created.timestamp() if isinstance(created, datetime) else path.stat().st_mtime,
        status="failed" if failed is True else "running" if state in ("active", "running") else "finished",
        directory=str(files),
        native={"path": str(path)},
    )


def _head(path: Path) -> Iterator[Any]:
    """The first file's columns of what describes a run."""
    yield from _read(path, [*_COLUMNS[:4], *(f"{kind}_value" for kind in SETTINGS)])
