"""A lake of runs: ``lake:PLACE`` is all of it, ``lake:PLACE#PROJECT/RUN`` one run.

A run is as it was when it was put in: numbers with their types, configuration, results, texts, how it ended. Files of
media and artifacts are not in a lake.
"""

from __future__ import annotations

import fnmatch
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from trackers import records
from trackers.errors import Damaged, NotFound, UsageError, did_you_mean
from trackers.object_storage.addresses import is_address
from trackers.readers.boundary import bounded
from trackers.readers.columns import BOOLEAN, FLOAT, INTEGER, STEPLESS, Block
from trackers.readers.reader import Reader, SourceRun
from trackers.records import ArtifactRecord, Finish, Media, Metrics, Record, Summary
from trackers_lake.delta import Key
from trackers_lake.tables import Lake

MOST_ROWS = 1 << 29
"""Maximum number of numbers of one run."""


@bounded
class LakeReader(Reader):
    """Reads the runs of a lake."""

    scheme = "lake"
    needs: ClassVar[tuple[str, ...]] = ("obstore", "pyarrow", "numpy")

    def __init__(self) -> None:
        self._lakes: dict[str, Lake] = {}
        self._facts: dict[str, dict[Key, tuple[str, bytes]]] = {}
        self._listed: dict[str, tuple[int, list[SourceRun]]] = {}

    def runs(self, where: str) -> list[SourceRun]:
        """See :class:`trackers.readers.reader.Reader`."""
        text, selection = split(where)
        lake = self._lake(text)
        named = f"lake:{lake.folder or lake.where}"
        runs = []
        fingerprints = lake.fingerprints()
        version = lake.tables["runs"].seen.version
        if self._listed.get(where, (-1, []))[0] == version >= 0:  # a page asks every few seconds
            return list(self._listed[where][1])
        keys = set(choose_runs(list(fingerprints), selection, named))
        facts = self._facts[lake.where] = {}
        for row in lake.all_rows("runs", [*_COLUMNS, "facts", "facts_version"]):
            key = (row["project"], row["run"])
            if key in keys:
                runs.append(_source_run(named, row, fingerprints[key]))
                if row.get("facts"):
                    facts[key] = (row.get("facts_version") or "", row["facts"])
        if not runs:
            raise NotFound(f"no runs in {named}")
        runs.sort(key=lambda run: run.created, reverse=True)
        self._listed[where] = version, runs
        return list(runs)

    def version(self, run: SourceRun) -> str:
        """See :class:`trackers.readers.reader.Reader`."""
        return str(run.native.get("mark", ""))

    def facts(self, run: SourceRun, version: str) -> bytes | None:
        """What comparisons need of a run, as it was put in; None where that is of another version.

        Args:
            version: of what is kept: see :mod:`trackers.analysis.collect`.
        """
        lake = self._lake(split(run.native["lake"])[0])
        entry = self._facts.get(lake.where, {}).get(_key(run))
        return entry[1] if entry is not None and entry[0] == version else None

    def columns(self, run: SourceRun) -> tuple[list[Block], list[Record]]:
        """The run's numbers as blocks, and its other records."""
        lake = self._lake(run.native["lake"])
        key = _key(run)
        blocks = [block for table in ("metrics", "system") for block in _blocks(lake.rows_of(table, key))]
        lines = lake.rows_of("events", key, ["row", "record"]).sort_by("row").column("record").to_pylist()
        decoded = [record for line in lines if (record := records.decode(line.encode())) is not None]
        return blocks, [record for record in decoded if not _has_files(record)]

    def read(self, run: SourceRun, *, files: Path | None = None) -> Iterator[Record]:
        """See :class:`trackers.readers.reader.Reader`."""
        blocks, others = self.columns(run)
        yield from (record for record in others if not isinstance(record, (Summary, Finish)))
        yield from _records(blocks)
        yield from (record for record in others if isinstance(record, (Summary, Finish)))

    def _lake(self, text: str) -> Lake:
        if text not in self._lakes:
            self._lakes[text] = Lake(text)
        return self._lakes[text]


_COLUMNS = ["project", "run", "name", "group_name", "tags", "notes", "status", "created"]


def split(where: str) -> tuple[str, str]:
    """A lake's address, and what is asked for of it: what follows "#".

    Raises:
        UsageError: nothing was named.
    """
    if not where.strip():
        raise UsageError("lake: needs a place: lake:DIR or lake:s3://bucket/prefix, and #PROJECT/RUN for one run")
    if "#" in where and not is_address(where):
        if Path(where).expanduser().is_dir():
            return where, ""
        at = -1
        while (at := where.find("#", at + 1)) >= 0:  # a directory's name may have one, too
            if Path(where[:at]).expanduser().is_dir():
                return where[:at], where[at + 1 :]
    text, _, selection = where.partition("#")
    return text, selection


def choose_runs(keys: Sequence[Key], selection: str, named: str) -> list[Key]:
    """Choose the runs that ``PROJECT/RUN``, an id, a project or a pattern names; "" names all.

    Raises:
        NotFound: none.
    """
    if not selection:
        return list(keys)
    names = {key: "/".join(key) for key in keys}
    for fits in (
        lambda key: names[key] == selection, lambda key: key[1] == selection, lambda key: key[0] == selection,
        lambda key: fnmatch.fnmatchcase(names[key], selection) or fnmatch.fnmatchcase(key[1], selection),
    ):  # fmt: skip
        matching = [key for key in keys if fits(key)]
        if matching:
            return matching
    hint = did_you_mean(selection, [*names.values(), *(run for _, run in keys)])
    raise NotFound(f"{named} has no run {selection!r}{hint}")


def _source_run(named: str, row: dict[str, Any], fingerprint: str) -> SourceRun:
    return SourceRun(
        source=f"{named}#{row['project']}/{row['run']}",
        id=row["run"],
        name=row["name"] or row["run"],
        project=row["project"],
        group=row["group_name"],
        tags=list(row["tags"] or []),
        notes=row["notes"],
        created=_created(row["created"], fingerprint),
        status=row["status"] or "",
        native={"lake": named.removeprefix("lake:"), "key": [row["project"], row["run"]], "mark": fingerprint},
    )


def _created(stored: Any, fingerprint: str) -> float:
    """When a run began, in Unix seconds: exactly as its fingerprint says, else to the microsecond."""
    try:
        return float(fingerprint.partition(" ")[0])
    except ValueError:
        return float(stored.timestamp()) if stored is not None else 0.0


def _key(run: SourceRun) -> Key:
    project, name = run.native["key"]
    return str(project), str(name)


def _has_files(record: Record) -> bool:
    if isinstance(record, ArtifactRecord):
        return True
    return isinstance(record, Media) and any(item.file for item in record.items)


def _blocks(rows: Any) -> list[Block]:
    """Rows of one run as blocks: records with the same names together."""
    import numpy as np

    if len(rows) > MOST_ROWS:
        raise Damaged(f"a run with {len(rows):,} numbers: at most {MOST_ROWS:,} are read")
    if not len(rows):
        return []
    empty = [name for name in ("name", "row", "time", "value", "kind") if rows.column(name).null_count]
    if empty:
        raise Damaged(f"the column {empty[0]} of a run's numbers has gaps")
    rows = rows.combine_chunks()
    names = rows.column("name").dictionary_encode().combine_chunks()
    if hasattr(names, "chunk"):
        names = names.chunk(0)
    words = names.dictionary.to_pylist()
    codes = names.indices.to_numpy()
    row_numbers = rows.column("row").to_numpy()
    order = np.lexsort((codes, row_numbers))
    codes, row_numbers = codes[order], row_numbers[order]
    steps = rows.column("step").fill_null(STEPLESS).to_numpy()[order]
    times, values, kinds = (rows.column(name).to_numpy()[order] for name in ("time", "value", "kind"))
    first = np.flatnonzero(np.append(True, row_numbers[1:] != row_numbers[:-1]))
    # What names a record has, as one number: the sum of one for each name.
    digests = [hashlib.blake2b(word.encode(), digest_size=8).digest() for word in words]
    salt = np.frombuffer(b"".join(digests), np.uint64)
    shapes = np.add.reduceat(salt[codes], first)
    widths: Any = np.diff(np.append(first, len(codes)))
    blocks = []
    for shape in dict.fromkeys(shapes.tolist()):
        heads = np.flatnonzero(shapes == shape)
        starts, width = first[heads], int(widths[heads[0]])
        if (widths[heads] != width).any():
            raise ValueError("records with the same names have different numbers of values")
        at = starts[:, None] + np.arange(width)
        record_names = [words[code] for code in codes[at[0]].tolist()]
        columns = kinds[at]
        types = tuple(
            int(column[0]) if column[0] in (INTEGER, BOOLEAN) and (column == column[0]).all() else FLOAT
            for column in columns.T
        )
        blocks.append(Block(tuple(record_names), types, row_numbers[starts], steps[starts], times[starts], values[at]))
    return blocks


def _records(blocks: Sequence[Block]) -> Iterator[Metrics]:
    """Blocks as records, in their order."""
    numbered: list[tuple[int, Metrics]] = []
    for block in blocks:
        types: dict[int, Any] = {FLOAT: float, INTEGER: int, BOOLEAN: bool}
        for row, step, time, values in zip(
            block.rows.tolist(), block.steps.tolist(), block.times.tolist(), block.values.tolist(), strict=True
        ):
            numbers = {
                name: types[kind](value) for name, kind, value in zip(block.names, block.kinds, values, strict=True)
            }
            numbered.append((row, Metrics(step=None if step == STEPLESS else step, time=time, values=numbers)))
    numbered.sort(key=lambda entry: entry[0])
    yield from (record for _, record in numbered)
