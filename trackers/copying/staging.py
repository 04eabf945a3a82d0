"""The journal between source and destination: written once, gone on with where a copy was interrupted.

What is staged for the same source and destination lies in the same directory under the same run id, so a copy that
is made again delivers nothing twice. A source that has grown is appended to what is there; one that has changed is
staged as a new attempt, which takes back all of the earlier ones.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from trackers import records
from trackers.copying.destinations import CopyDestination
from trackers.errors import UNDECODABLE
from trackers.journal.attempts import AttemptHistory
from trackers.journal.checksums import ChecksumReader, DamagedLine
from trackers.journal.run_directory import RunDirectory, StreamName, project_folder, read_json, replace_file
from trackers.journal.status import last_status
from trackers.journal.stream import StreamWriter, last_record, lines_of
from trackers.readers.boundary import add_note
from trackers.readers.helpers import is_hollow
from trackers.readers.journal import JournalReader, note_damage
from trackers.readers.reader import PAUSES, Reader, SourceRun
from trackers.records import ArtifactRecord, Console, Finish, Info, Media, MediaFile, Record, Start
from trackers.support import confined, machines, script, user_directories
from trackers.support.redaction import hide
from trackers.support.seekable_zstd import open_file, size_of
from trackers.tracker import RunInfo

BATCH_BYTES = 1 << 18
DEFAULT_PROJECT = "copied"
UNKNOWN_END = "the source doesn't say how the run ended"
SAID_EVERY = 2000
LEFT_OUT = "files that can't be read, or are far longer than what was logged, aren't copied, the first"
_FILES = re.compile(rb'\{"kind":"(media|artifact)"')
"""Start of lines that name files (``records.encode``)."""


class StagedCopy(msgspec.Struct, kw_only=True):
    """``copy.json``: what a run was staged from. complete: its stream is whole. version: see ``Reader``.

    note: what the source said of itself when it was read.
    """

    source: str = ""
    destination: str = ""
    version: str = ""
    complete: bool = False
    records: int = 0
    note: str = ""


class _Differs(Exception):
    """What is staged isn't the beginning of what the source has now."""


def root() -> Path:
    """Where journals between source and tracker lie."""
    return user_directories.of("CACHE") / "copies"


def run_id(run: SourceRun, destination: CopyDestination) -> str:
    """The copy's id: the same whenever this run is copied there."""
    key = f"{run.native.get('identity') or run.source}\0{destination.text}"
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def stage(
    reader: Reader, run: SourceRun, destination: CopyDestination, report: Callable[[int], None] = lambda count: None
) -> RunDirectory:
    """Bring a run into its journal, and return that.

    Args:
        report: called with how many records have been read, now and then.
    """
    info = _info(run, destination)
    digest = hashlib.sha256(destination.text.encode("utf-8", "surrogatepass")).hexdigest()
    folder = Path(destination.directory) if destination.directory else root() / digest[:16]
    directory = RunDirectory(folder / project_folder(info.project) / info.id)
    directory.make()
    file = directory.path / "copy.json"
    known = msgspec.convert(read_json(file), StagedCopy, strict=False)
    version = reader.version(run)
    same = version == known.version if version else run.status not in ("", "running")
    if known.complete and same:
        run.note = run.note or known.note
        return directory
    staged = StagedCopy(source=records.escaped(run.source), destination=destination.text, version=version)
    directory.write_info(_merged(info, directory))
    replace_file(file, msgspec.json.encode(staged))
    if not directory.deliveries() and not destination.directory:  # nothing has left it: it can begin anew
        for name in directory.stream_names():
            directory.stream(name).unlink()
    counted = take_over(run, directory, info) if isinstance(reader, JournalReader) else None
    if counted is not None:
        staged.records, staged.complete = counted, True
    else:
        staged.records, staged.complete = _write(reader, run, directory, info, report)
        info.pauses = run.native.get(PAUSES) or _pauses(reader, run)
        if info.pauses:
            directory.write_info(_merged(info, directory))
    staged.note = records.escaped(run.note)
    replace_file(file, msgspec.json.encode(staged))
    return directory


def _pauses(reader: Reader, run: SourceRun) -> list[tuple[float, float]]:
    """Begin and end of the times between a journal's attempts: a copy's stream has the records of all as one."""
    if not isinstance(reader, JournalReader) or not run.directory:
        return []
    source = RunDirectory(Path(run.directory))
    found = []
    for start in AttemptHistory(source).starts()[1:]:
        streams = [name for name in source.stream_names() if name.writer == "rank" and name.attempt < start.attempt]
        ends = [last_record(source.stream(name)) for name in streams]
        found.append((max((record.time for record in ends if record is not None), default=start.time), start.time))
    return [(begin, end) for begin, end in found if begin < end]


def _write(
    reader: Reader, run: SourceRun, directory: RunDirectory, info: RunInfo, report: Callable[[int], None]
) -> tuple[int, bool]:
    """Write the stream, on from what of it is there. How many records it has, and whether the run has ended."""
    attempt = max(1, directory.attempt())
    try:
        return _stream(reader, run, directory, info, attempt, report)
    except _Differs:
        return _stream(reader, run, directory, info, attempt + 1, report)


def _stream(
    reader: Reader, run: SourceRun, directory: RunDirectory, info: RunInfo, attempt: int, report: Callable[[int], None]
) -> tuple[int, bool]:
    writer = _Writer(directory.stream(StreamName("rank", 0, attempt)))
    printed: dict[int, _Writer] = {}
    count, last, ended = 0, info.created, False
    try:
        begin = Start(time=info.created, attempt=attempt, rank=0, host=info.host)
        if attempt > 1:
            begin.from_step = -1
            begin.time = max(begin.time, _last_time(directory, attempt))
        writer.write(records.encode(begin))
        about = _about(run, info)
        if about:
            writer.write(about)
        for record in _into_journal(reader.read(run, files=_files(directory)), run, directory):
            if isinstance(record, Finish):
                ended = True
            last = max(last, record.time)
            if isinstance(record, Console):
                rank = record.rank or 0
                if rank not in printed:
                    printed[rank] = _Writer(directory.stream(StreamName("console", rank, attempt)))
                printed[rank].write(records.encode(record))
            else:
                writer.write(records.encode(record))
            count += 1
            if count % SAID_EVERY == 0:
                report(count)
        if not ended and run.status != "running":
            finish = Finish(time=last, status=run.status or "finished", reason="" if run.status else UNKNOWN_END)
            writer.write(records.encode(finish))
            ended = True
        for each in (*printed.values(), writer):  # the end of the run last
            each.flush()
    finally:
        for each in (*printed.values(), writer):
            each.close()
    return count, ended


class _Writer:
    """Appends lines to a stream, after comparing those that are there already."""

    def __init__(self, path: Path) -> None:
        self._stream = StreamWriter(path)
        self._existing: Any = path.open("rb")
        self._waiting = bytearray()

    def write(self, line: bytes) -> None:
        if self._existing is not None:
            existing = self._existing.read(len(line))
            if existing == line:
                return
            if existing:
                raise _Differs
            self._existing.close()
            self._existing = None
        self._waiting += line
        if len(self._waiting) >= BATCH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what waits. Raises _Differs where the source has less than what is there."""
        if self._existing is not None and self._existing.read(1):
            raise _Differs
        if self._waiting:
            self._stream.write(bytes(self._waiting))
            self._waiting.clear()
            if self._stream.error is not None:
                raise self._stream.error

    def close(self) -> None:
        if self._existing is not None:
            self._existing.close()
        self._stream.release()


def take_over(run: SourceRun, directory: RunDirectory, info: RunInfo) -> int | None:
    """Copy the streams of a journal that has ended, as they are, which costs no time; how many lines they have.

    Damaged lines are left out, and counted in the run's note: the copy has no checksums by which they would show.

    None, and nothing done, where the streams aren't the run: it goes on, or a later attempt superseded some of it;
    where something was staged already, or something of a stream is lost.
    """
    source = RunDirectory(run.directory)
    names = source.stream_names()
    if directory.stream_names() or last_status(source).name == "running" or any(name.attempt > 1 for name in names):
        return None
    count = 0
    damage: dict[StreamName, Sequence[DamagedLine]] = {}
    for name in names:
        stream = source.stream(name)
        damage[name] = ChecksumReader(stream).damaged(0, size_of(stream))
        with open_file(stream) as content:
            for line in _intact(content, damage[name]):
                count += 1
                if b"\0" in line:  # of a file system that lost what was there
                    return None
                if _FILES.match(line):
                    with contextlib.suppress(records.CorruptLine):
                        record = records.decode(line.strip())
                        if record is not None:
                            deque(_into_journal(iter([record]), run, directory), maxlen=0)
            if content.tell() < size_of(stream):  # a hole
                return None
    note_damage(run, sum(map(len, damage.values())))
    about = _about(run, info)
    for name in names:
        _copy(open_file(source.stream(name)), directory.stream(name), damage[name])
    if about:
        number = 1 + max((name.number for name in names if name.writer == "node"), default=0)
        end = last_status(source)  # a node's stream without its end would keep the run going
        finish = Finish(time=end.time, status=end.name, exit_code=end.exit_code, reason=end.reason)
        replace_file(directory.stream(StreamName("node", number, 1)), about + records.encode(finish))
    return count


def _about(run: SourceRun, info: RunInfo) -> bytes:
    """Tags, group and notes as a record: not every tracker keeps those that ``run.json`` has."""
    about = {"group": run.group, "tags": run.tags or None, "notes": run.notes}
    if not any(about.values()):
        return b""
    # Behind the start of the run, where the streams come by time: TensorBoard forgets what stands before a start.
    return records.encode(Info(time=info.created + 1e-6, **about))  # type: ignore[arg-type]


def _intact(content: BinaryIO, damage: Sequence[DamagedLine]) -> Iterator[bytes]:
    """The lines of a stream without those that are damaged."""
    for wrong in damage:
        while content.tell() < wrong.offset:
            yield content.readline()
        content.seek(wrong.offset + wrong.size)
    yield from lines_of(content)


def _copy(source: BinaryIO, target: Path, damage: Sequence[DamagedLine] = ()) -> None:
    temporary = confined.temporary(target)
    try:
        with source as content, confined.open_file(temporary, "xb") as copied:
            if damage:
                copied.writelines(_intact(content, damage))
            else:
                shutil.copyfileobj(content, copied)
        confined.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            confined.remove(temporary)
        raise


def _into_journal(source_records: Iterator[Record], run: SourceRun, directory: RunDirectory) -> Iterator[Record]:
    """Copy the files of records into this journal, and yield the records; a start in the source is left out."""
    for record in source_records:
        if isinstance(record, Start):
            continue
        match record:
            case Media():
                for item in record.items:
                    item.file = _copy_file(run, item.file, directory) if item.file else ""
                    if record.type == "table":
                        for cell in _cells(item, directory):
                            _copy_file(run, cell, directory)
            case ArtifactRecord():
                for file in record.files:
                    file.file = _copy_file(run, file.file, directory, file.size) if file.file else ""
        yield record


def _copy_file(run: SourceRun, file: str, directory: RunDirectory, logged: int | None = None) -> str:
    """Copy a file into the journal's own folder, under a name that is the same each time. Returns its path there.
    logged: its size then, if it is known. What is far longer, or mostly holes, isn't copied."""
    base, own = Path(run.directory).absolute(), directory.path.absolute()
    source, most = base / file, None if logged is None else max(logged, confined.READ_BYTES)
    usable = run.directory and confined.is_inside(file) and confined.is_file(source, root=base, most=most)
    if not usable or (most is None and is_hollow(source)):
        if run.directory and LEFT_OUT not in run.note:
            add_note(run, f"{LEFT_OUT}: {file}")
        return file  # its tracker will refuse it by name
    if source.is_relative_to(own):
        return str(source.relative_to(own))
    digest = hashlib.sha256(f"{run.source}\0{file}".encode("utf-8", "surrogatepass")).hexdigest()[:40]
    name = f"media/{digest[:2]}/{digest}{source.suffix}"
    if file.startswith("media/"):
        name = file  # a journal's, named by its content; tables name such files, too
    target = directory.path / name
    if not target.exists() or target.stat().st_size != source.stat().st_size:
        confined.make_folder(target.parent, root=directory.path)
        _copy(confined.open_file(source, root=base), target)
    return name


def _cells(item: MediaFile, directory: RunDirectory) -> Iterator[str]:
    """The files that the cells of a table name."""
    data = item.data
    if item.file:
        with contextlib.suppress(OSError, *UNDECODABLE):
            data = msgspec.json.decode(confined.read(directory.path / item.file, root=directory.path))
    waiting = [data]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting.extend(value)
        elif isinstance(value, dict):
            if "_type" in value and isinstance(value.get("file"), str) and value["file"]:
                yield value["file"]
            waiting.extend(entry for entry in value.values() if isinstance(entry, (dict, list)))


def _files(directory: RunDirectory) -> Path:
    folder = directory.media / "fetched"
    confined.make_folder(folder, root=directory.path)
    return folder


def _last_time(directory: RunDirectory, attempt: int) -> float:
    ends = [last_record(directory.stream(name)) for name in directory.stream_names() if name.attempt < attempt]
    return max((record.time + 1e-6 for record in ends if record is not None), default=0.0)


def _info(run: SourceRun, destination: CopyDestination) -> RunInfo:
    return RunInfo(
        id=run_id(run, destination),
        name=run.name or run.id,
        project=destination.project or run.project or DEFAULT_PROJECT,
        trackers=[destination.tracker] if destination.tracker else [],
        group=run.group,
        tags=run.tags,
        notes=run.notes,
        options=hide(destination.options),
        created=run.created,
        cwd=os.getcwd(),
        host=machines.host(),
        user=script.user(),
    )


def _merged(info: RunInfo, directory: RunDirectory) -> RunInfo:
    """The identity that stands: of a journal that is there already, its beginning."""
    with contextlib.suppress(LookupError):
        before = directory.read_info()
        info.created = before.created
    info.attempts = [{"number": max(1, directory.attempt()), "time": info.created, "host": info.host}]
    return info
