"""The conformance kit for readers: does a source give back what it holds, all of it, however often it is asked?

from trackers.testing import check_reader

def test_my_reader():
    check_reader(MyReader, "runs/one.log", info, records, limits=Limits(float32=True))
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path

from trackers.errors import NotFound, UsageError
from trackers.readers.reader import Reader, SourceRun, as_reader
from trackers.records import ALL_KINDS, ArtifactRecord, Finish, Media, Record, encode
from trackers.testing.stored import Limits, Stored, differences, expected
from trackers.tracker import RunInfo, Status


class ReaderError(AssertionError):
    """A reader doesn't hold to the contract; the message says in what, with what was expected and what was found."""


def read_back(reader: Reader, run: SourceRun, files: Path | None = None) -> Stored:
    """What a reader yields of a run, as :class:`Stored`."""
    records = list(reader.read(run, files=files))
    finish = next((record for record in reversed(records) if isinstance(record, Finish)), None)
    name = finish.status if finish is not None else run.status or "running"
    info = RunInfo(id=run.id, name=run.name, project=run.project, group=run.group, tags=run.tags, notes=run.notes)
    status = Status(name, finish.exit_code if finish is not None else None)  # type: ignore[arg-type]
    return expected(info, records, Limits(), status)


def check_reader(
    reader: type[Reader],
    where: str,
    info: RunInfo,
    records: Sequence[Record],
    *,
    status: Status | None = None,
    limits: Limits | None = None,
    accepts: frozenset[type[Record]] = ALL_KINDS,
    attributes: Sequence[str] = ("name", "group", "tags", "status"),
    missing: str = "nothing-of-this-name",
    files: Path | None = None,
) -> SourceRun:
    """Read a source that holds one run, and compare with what was put there.

    Args:
        where: the source without its scheme; names one run.
        info: who the run is.
        records: what it holds, in order.
        status: how it ended, default by its Finish record.
        limits: how the source changes values, beyond which it must not.
        accepts: kinds of records that it can hold; others aren't compared.
        attributes: which of the run's own attributes the source keeps.
        missing: a ``where`` that names nothing.
        files: where the reader may put files; default it fetches none.

    Returns:
        the run, as the reader found it.

    Raises:
        ReaderError: at the first promise that isn't kept.
    """
    __tracebackhide__ = True
    limits = limits or Limits()
    if status is None:
        finish = next((record for record in reversed(records) if isinstance(record, Finish)), None)
        status = Status(finish.status, finish.exit_code) if finish is not None else Status("running")  # type: ignore[arg-type]
    try:
        reader = as_reader(reader.scheme, reader)
    except UsageError as error:
        raise ReaderError(str(error)) from None
    instance: Reader = reader()
    _require(bool(instance.scheme), "it has no scheme")
    runs = instance.runs(where)
    _require(len(runs) == 1, f"{where!r} holds one run, it found {len(runs)}")
    (run,) = runs
    scheme, _, alone = run.source.partition(":")
    ids = [entry.id for entry in reader().runs(alone if scheme == instance.scheme else run.source)]
    _require(ids == [run.id], f"{run.source!r} must name the run alone, it names {ids}")
    try:
        nothing = reader().runs(missing)
    except NotFound:
        pass
    else:
        raise ReaderError(f"{missing!r} must be NotFound, it found {[entry.id for entry in nothing]}")
    stored = read_back(instance, run, files)
    want = expected(info, [record for record in records if type(record) in accepts], limits, status)
    for name in {"name", "group", "tags", "status"} - set(attributes):
        setattr(stored, name, None)
        setattr(want, name, None)
    if "status" not in attributes:
        limits = dataclasses.replace(limits, statuses=None)
    lines = list(differences(want, stored, limits, accepts))
    _require(not lines, "\n".join(lines[:10]))
    _check_records(reader, run, files)
    return run


def _check_records(reader: type[Reader], run: SourceRun, files: Path | None) -> None:
    first = [encode(record) for record in reader().read(run, files=files)]
    second = list(reader().read(run, files=files))
    _require(first == [encode(record) for record in second], "the same run, read twice, gave different records")
    for record in second:
        _require(math.isfinite(record.time), f"a record without a time: {record}")
        names = [item.file for item in record.items] if isinstance(record, Media) else []
        names += [file.file for file in record.files] if isinstance(record, ArtifactRecord) else []
        for name in filter(None, names):
            _require(Path(run.directory, name).is_file(), f"{name!r} isn't in {run.directory}")
    ends = [index for index, record in enumerate(second) if isinstance(record, Finish)]
    _require(ends in ([], [len(second) - 1]), "a Finish record stands once, at the end")


def _require(holds: bool, text: str) -> None:
    if not holds:
        raise ReaderError(text)
