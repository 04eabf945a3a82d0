"""Comet's offline experiments: the archive that ``comet upload`` takes, written without its client and exact.

``<key>/messages.json`` grows by whole batches, and its committed length is in the state, so that it is cut back to it
when it is opened again. ``<key>.zip`` is made from it when the run ends: with what only the end can tell (name, tags,
results, status), and with the files that the messages name. A run that goes on after its end gets another archive in
its place. A rewind to a checkpoint writes the messages anew: each such file has a number, its generation, in its first
message, so that a kill before the commit is seen.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shlex
import time
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import msgspec

from trackers.backends.comet import messages
from trackers.backends.comet.precheck import CometPrecheck
from trackers.backends.shared import media_files
from trackers.backends.shared.append_file import (
    DIGESTS,
    READ_BYTES,
    FileShrunk,
    OwnedFile,
    digests,
    make_folder,
    path_key,
    remove_temporary,
    take_with_rewinds,
    unavailable,
    unseen,
    verified,
)
from trackers.backends.shared.directory import option_directory
from trackers.backends.shared.kept_file import keep
from trackers.formats import vendor_system_names
from trackers.records import (
    ALL_KINDS,
    SUMMARY_PREFIX,
    SYSTEM_PREFIX,
    Alert,
    ArtifactRecord,
    Config,
    Environment,
    Info,
    Media,
    MediaFile,
    Metrics,
    Record,
    Summary,
    Text,
    final_name,
    flatten,
    name_floats,
    unnamed_float,
)
from trackers.support import confined
from trackers.tracker import Cursor, RunInfo, State, Status, Verified

MESSAGES, EXPERIMENT = "messages.json", "experiment.json"
KEY_CHARS = 32
"""Length of an experiment's key, of letters and digits: comet_ml/utils.py, is_valid_experiment_key."""


class Marks(msgspec.Struct):
    """The tracker's state, from which a new process continues.

    length, generation: of the messages, committed. seq: highest record taken. num: of the last message. rewound: the
    newest attempt whose rewind was written. name, group, tags, notes: the run's newest ones. archived: the status and
    the length that the archive was made of.
    """

    length: int = 0
    generation: int = 0
    seq: int = 0
    num: int = 0
    rewound: int = 0
    name: str = ""
    group: str | None = None
    tags: list[str] = []
    notes: str | None = None
    results: dict[str, Any] = {}
    archived: list[Any] = []


class CometTracker(CometPrecheck):
    """Writes ``COMET_OFFLINE_DIRECTORY/<key>.zip``, or ``comet/<key>.zip`` in the run's directory, as the run ends."""

    deadline_s = 1800.0
    accepts: ClassVar[frozenset[type[Record]]] = ALL_KINDS

    def open(self, info: RunInfo, state: State) -> Cursor | None:
        """Cut the messages back to what was committed; those that don't match the state are written anew."""
        self._info, self._state = info, state
        chosen = option_directory(info, "COMET_OFFLINE_DIRECTORY")
        self._root = Path(info.directory) if chosen is None else chosen
        parent = info.path("comet") if chosen is None else chosen
        self._key = hashlib.sha256(f"{info.project}\0{info.id}\0{info.created}".encode()).hexdigest()[:KEY_CHARS]
        self._directory, self._archive = parent / self._key, parent / f"{self._key}.zip"
        self._digests = digests(state)
        self._file = OwnedFile(self._directory / MESSAGES, self._root, self._digests)
        self._temporary = self._directory / ".messages.tmp"
        for temporary in (self._temporary, self._archive.with_name(f".{self._key}.tmp")):
            remove_temporary(temporary)
        self._marks = msgspec.convert(dict(state).get("marks", {}), Marks)
        state["url"] = f"comet upload {shlex.quote(str(self._archive))}"
        answer = None
        try:
            if self._marks.length:
                self._check_generation()
                self._file.open(self._marks.length)
                return None
        except FileShrunk:
            answer = Cursor(0)
        self._marks = Marks(name=info.name, group=info.group, tags=list(info.tags), notes=info.notes)
        self._marks.generation, self._marks.num = time.time_ns(), 1
        self._file.open()
        self._file.append(self._head(self._marks))
        self._marks.length = self._file.length
        return answer

    def write(self, records: Sequence[Record], cursor: Cursor) -> None:
        """Append the batch's messages, all of them or none."""
        take_with_rewinds(unseen(records, self._marks.seq), self._marks.rewound, self._take, self._rewind)
        self._commit()

    def verify(self) -> Verified:
        """Read messages, files and archive back; see :class:`trackers.tracker.Tracker`. Damage has all of it written
        anew."""
        places = [(self._file.path, self._root)]
        if self._marks.archived:
            places.append((self._archive, self._root))
        found = verified(places, self._digests)
        bad = list(found.damaged)
        if not bad:
            bad = [str(path) for path in self._named_files() if not self._holds(path)]
        if bad:
            with contextlib.suppress(FileNotFoundError):
                confined.remove(self._file.path, root=self._root)
        return Verified(found.checked, bad, Cursor(0) if bad else None)

    def close(self, status: Status) -> None:
        """Make the archive, unless the run goes on or it is there already."""
        self._file.check()
        if status.name != "running":
            made_of = [status.name, self._marks.length]
            if self._marks.archived != made_of or not confined.is_file(self._archive, root=self._root):
                self._make_archive(status)
                self._marks = msgspec.structs.replace(self._marks, archived=made_of)
                self._commit()
        self._file.close()

    def _named_files(self) -> Iterator[Path]:
        """The files that the messages name."""
        with confined.open_file(self._file.path, root=self._root) as lines:
            for line in lines:
                if b'"file_path"' in line:
                    yield self._directory / json.loads(line)["payload"]["file_path"]

    def _holds(self, path: Path) -> bool:
        """Whether a file is there; that it is what its name says, where the name is its checksum."""
        try:
            with confined.open_file(path, root=self._root) as file:
                if not path.suffix:
                    return True
                digest = hashlib.sha256()
                for piece in _pieces(file):
                    digest.update(piece)
        except OSError:
            return False
        return digest.hexdigest()[:KEY_CHARS] == path.stem

    def _commit(self) -> None:
        self._state["marks"] = name_floats(msgspec.to_builtins(self._marks))
        self._state[DIGESTS] = dict(self._digests)

    def _take(self, batch: Sequence[Record]) -> None:
        if not batch:
            return
        draft = msgspec.structs.replace(self._marks)
        lines = [line for record in batch for line in self._lines(record, draft)]
        draft.seq = max(draft.seq, *(record.seq for record in batch))
        self._file.append(b"".join(lines))
        draft.length = self._file.length
        self._marks = draft

    def _lines(self, record: Record, draft: Marks) -> Iterator[bytes]:
        """A record as messages; ``draft`` is what the state becomes."""
        if isinstance(record, Metrics):
            for name, value in record.values.items():
                if name.startswith(SUMMARY_PREFIX):
                    draft.results = {**draft.results, name: value}
                    continue
                machine = vendor_system_names.is_machine(record, name)
                named = messages.SYSTEM + name.removeprefix(SYSTEM_PREFIX) if machine else name
                yield messages.metric(named, value, record.step, record.time, draft)
        elif isinstance(record, Config):
            for name, value in flatten(record.values, messages.NESTED):
                shown = value if isinstance(value, (str, int, float)) or value is None else messages.as_text(value)
                param = {"paramName": messages.one_line(name), "paramValue": shown, "step": None, "source": "manual"}
                yield messages.message("parameter_msg", {"param": param}, draft, record.time)
        elif isinstance(record, Text):
            for name, text in record.values.items():
                content = text.encode("utf-8", "replace")
                yield self._upload(messages.TEXT, name, content, "txt", record, draft, metadata={"name": name})
        elif isinstance(record, Media):
            for item in record.items:
                kind, content, suffix = messages.medium(record, item, self._info)
                about = {"caption": item.caption} if item.caption else {}
                yield self._upload(kind, record.name, content, suffix, record, draft, metadata=about)
        elif isinstance(record, ArtifactRecord):
            yield from self._artifact(record, draft)
        elif isinstance(record, Summary):
            draft.results = {**draft.results, **{final_name(name): value for name, value in record.values.items()}}
        elif isinstance(record, Alert):
            fields = {"output": f"{record.line()}\n", "stderr": record.level == "ERROR", "context": None}
            yield messages.message("standard_output", fields, draft, record.time)
        elif isinstance(record, Environment):
            content = messages.as_text(record.values).encode("utf-8", "replace")
            yield self._upload(messages.ASSET, "environment", content, "json", record, draft)
        elif isinstance(record, Info):
            for name, value in record.given().items():
                setattr(draft, name, value)

    def _artifact(self, record: ArtifactRecord, draft: Marks) -> Iterator[bytes]:
        about = {"type": record.type, "aliases": record.aliases, **record.metadata}
        for place, file in enumerate(record.files):
            parts = confined.parts(file.path)
            name = "/".join((record.name, *parts))
            if not file.file:
                yield messages.message("log_other", {"key": name, "value": file.uri}, draft)
                continue
            local = media_files.path(self._info, MediaFile(format="file", file=file.file))
            mark = f"{record.id}\0{record.seq}\0{place}\0{file.file}"
            inside = hashlib.sha256(mark.encode("utf-8", "replace")).hexdigest()[:KEY_CHARS]
            keep(self._info, local, self._directory / inside, self._root, self._temporary)
            kind = messages.MODEL if record.type in messages.MODEL_TYPES else messages.ASSET
            yield self._uploaded(kind, name, inside, "".join(local.suffixes[-1:]), record, draft, about, record.name)

    def _upload(
        self,
        kind: str,
        name: str,
        content: bytes,
        suffix: str,
        record: Record,
        draft: Marks,
        metadata: dict[str, Any] | None = None,
    ) -> bytes:
        """The message of a file of this content, which is written before."""
        inside = f"{hashlib.sha256(content).hexdigest()[:KEY_CHARS]}.{suffix}"
        path = self._directory / inside
        try:
            make_folder(self._directory, self._root)
            confined.write_whole(path, content, root=self._root)
        except OSError as error:
            raise unavailable("write", path, error) from error
        named = name if kind in (messages.IMAGE, messages.TEXT) else f"{name}.{suffix}"
        return self._uploaded(kind, named, inside, suffix, record, draft, metadata or {})

    def _uploaded(
        self,
        kind: str,
        name: str,
        inside: str,
        suffix: str,
        record: Record,
        draft: Marks,
        metadata: dict[str, Any],
        model: str = "",
    ) -> bytes:
        """The message of a file: comet_ml/file_uploader.py has the fields of each kind."""
        name = messages.one_line(name)
        asset = hashlib.sha256(f"{self._key}{draft.num}".encode()).hexdigest()[:KEY_CHARS]
        fields: dict[str, Any] = {"context": None, "overwrite": False, "runId": None, "step": record.step}
        fields["extension"] = suffix.lstrip(".")
        if kind == messages.IMAGE:
            fields |= {"figName": name, "figCounter": draft.num, "imageId": asset}
        else:
            fields |= {"fileName": "auto-generated-in-the-backend" if kind == messages.TEXT else name, "assetId": asset}
            fields |= {"type": kind} if kind != messages.ASSET else {}
            fields |= {"groupingName": messages.one_line(model)} if kind == messages.MODEL else {}
        upload = {
            "additional_params": fields,
            "clean": True,
            "file_path": inside,
            "metadata": metadata,
            "upload_type": kind,
        }
        return messages.message("file_upload", upload, draft, record.time)

    def _head(self, marks: Marks) -> bytes:
        payload = {"key": "offline_experiment", "value": True, "message_id": 1}
        return messages.encoded({"type": "log_other", "payload": payload, "generation": marks.generation})

    def _check_generation(self) -> None:
        """Raise FileShrunk when the messages are others than the state's: a kill came between the two."""
        try:
            with confined.open_file(self._file.path, root=self._root) as file:
                first = json.loads(file.readline(READ_BYTES))
                generation = first["generation"]
        except FileNotFoundError as error:
            raise FileShrunk(str(error)) from error
        except (ValueError, LookupError, TypeError, AttributeError):
            generation = None
        except OSError as error:
            raise unavailable("read", self._file.path, error) from error
        if generation != self._marks.generation:
            raise FileShrunk(f"{self._file.path} isn't what was committed")

    def _rewind(self, last_step: int, attempt: int) -> None:
        """The messages anew, without those above ``last_step``."""
        marks = msgspec.structs.replace(self._marks, rewound=attempt, generation=time.time_ns())
        self._file.rewrite(self._anew(marks, last_step), self._temporary)
        self._marks = msgspec.structs.replace(marks, length=self._file.length)

    def _anew(self, marks: Marks, last_step: int) -> Iterator[bytes]:
        yield self._head(marks)
        with confined.open_file(self._file.path, root=self._root) as lines:
            left = self._marks.length - len(lines.readline())
            for line in lines:
                left -= len(line)
                if left < 0:
                    return
                if not messages.superseded(json.loads(line)["payload"], last_step):
                    yield line

    def _make_archive(self, status: Status) -> None:
        """Write the archive beside the old one and put it in its place.

        Raises:
            Unavailable: it can't be written.
        """
        temporary = confined.temporary(self._archive)
        at = time.gmtime(max(self._info.created, _FIRST_ZIP_TIME))[:6]
        try:
            make_folder(self._archive.parent, self._root)
            try:
                with (
                    confined.open_file(temporary, "xb", root=self._root) as out,
                    zipfile.ZipFile(out, "w") as archive,
                    confined.open_file(self._file.path, root=self._root) as written,
                ):
                    files = self._copy_messages(written, archive, at, status)
                    archive.writestr(zipfile.ZipInfo(EXPERIMENT, at), messages.encoded(self._experiment(status)))
                    for name in sorted(files):
                        with confined.open_file(self._directory / name, root=self._root) as file:
                            _add(archive, zipfile.ZipInfo(name, at), _pieces(file))
                with confined.open_file(temporary, root=self._root) as made:
                    crc = size = 0
                    for piece in _pieces(made):
                        crc, size = zlib.crc32(piece, crc), size + len(piece)
                confined.replace(temporary, self._archive, root=self._root)
                self._digests[path_key(self._archive)] = (size, crc)
            except BaseException:
                confined.remove(temporary, root=self._root)
                raise
        except OSError as error:
            raise unavailable("write", self._archive, error) from error

    def _copy_messages(self, written: Any, archive: zipfile.ZipFile, at: Any, status: Status) -> set[str]:
        """Put the messages into the archive, and behind them what only the end can tell; the files that they name."""
        files: set[str] = set()

        def lines() -> Iterator[bytes]:
            left = self._marks.length
            for line in written:
                left -= len(line)
                if left < 0:
                    break
                if b'"file_path"' in line:
                    files.add(json.loads(line)["payload"]["file_path"])
                yield line
            yield from self._tail(status)

        info = zipfile.ZipInfo(MESSAGES, at)
        info.compress_type = zipfile.ZIP_DEFLATED
        _add(archive, info, lines())
        return files

    def _tail(self, status: Status) -> Iterator[bytes]:
        draft = msgspec.structs.replace(self._marks)
        at = status.time or self._info.created
        others: dict[str, Any] = {"Name": draft.name or self._info.id, "Notes": draft.notes, "Group": draft.group}
        others["trackers/status"] = status.name
        for name, value in draft.results.items():
            number = unnamed_float(value)
            if isinstance(number, (int, float)):
                yield messages.metric(name, number, None, at, draft)
            else:
                others[name] = value if isinstance(value, str) else messages.as_text(value)
        for key, other in others.items():
            if other is not None:
                yield messages.message("log_other", {"key": messages.one_line(key), "value": other}, draft)

    def _experiment(self, status: Status) -> dict[str, Any]:
        """What ``comet upload`` asks first: comet_ml/schemas/offline-experiment.schema.json."""
        failed = status.name in ("failed", "crashed")
        code = "" if status.exit_code is None else f" (exit code {status.exit_code})"
        return {
            "offline_id": self._key,
            "project_name": self._info.project,
            "workspace": None,
            "start_time": messages.milliseconds(self._info.created),
            "stop_time": messages.milliseconds(status.time or self._info.created),
            "tags": [messages.one_line(tag) for tag in self._marks.tags],
            "resume_strategy": "create",
            "customer_error_reported": failed,
            "customer_error_message": f"{status.name}{code}: {status.reason}".rstrip(": ") if failed else None,
            "user_provided_experiment_key": True,
            "comet_start_sourced": False,
        }


_FIRST_ZIP_TIME = 315619200.0
"""1980, before which no archive has times."""


def _add(archive: zipfile.ZipFile, info: zipfile.ZipInfo, pieces: Iterator[bytes]) -> None:
    with archive.open(info, "w", force_zip64=True) as member:
        for piece in pieces:
            member.write(piece)


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    while piece := file.read(READ_BYTES):
        yield piece
