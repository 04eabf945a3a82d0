"""SwanLab's offline runs: the directory that ``swanlab sync`` uploads, written without its client and exact.

The file of records grows by whole batches, and its committed length is in the state, so that it is cut back to it when
it is opened again. What only the end of a run can tell (results, status) is written behind the committed length: a run
that goes on after its end loses that tail, and gets a new one. A rewind to a checkpoint, and a change of the run's name
or tags, which stand in the first record, write the file anew: each such file has a number, its generation. While that
isn't committed the state names another one than the file, so that a kill right then makes the file be rebuilt from the
journal.
"""

from __future__ import annotations

import copy
import fnmatch
import hashlib
import json
import shlex
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from trackers.backends.shared import media_files
from trackers.backends.shared.append_file import (
    DIGESTS,
    FileShrunk,
    OwnedFile,
    digests,
    file_name,
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
from trackers.errors import NotFound
from trackers.formats import leveldb_log, vendor_system_names
from trackers.metrics.unasked import parted
from trackers.records import (
    ALL_KINDS,
    MAX_STEP,
    SUMMARY_PREFIX,
    SYSTEM_PREFIX,
    Alert,
    ArtifactRecord,
    Config,
    Define,
    Environment,
    Info,
    Media,
    Metrics,
    Record,
    Summary,
    Text,
    final_name,
    merge,
    name_floats,
    nearest_double,
    take_results,
    unnamed_float,
)
from trackers.support import confined
from trackers.tracker import Cursor, RunInfo, State, Status, Verified
from trackers_swanlab import run_files as form
from trackers_swanlab.framing import LevelDbFramer
from trackers_swanlab.precheck import SwanlabPrecheck

OWN = "trackers/"
"""How the names of texts begin that hold what SwanLab has no place for."""
ARTIFACTS, ENVIRONMENT, UNASKED = f"{OWN}artifacts/", f"{OWN}environment", f"{OWN}results"

_STATES = {
    "finished": form.FINISHED,
    "failed": form.CRASHED,
    "crashed": form.CRASHED,
    "preempted": form.ABORTED,
    "stopped": form.ABORTED,
}


class SwanLabState(msgspec.Struct):
    """The tracker's state, from which a new process continues.

    length: of the file, committed. generation: of the file. seq: highest record taken. num: of the last record in the
    file. lines: logged so far. unplaced: records so far that have no step. top: the highest step. rewound: the newest
    attempt whose rewind was written. columns: type by stored name. axes: step metric by name, a glob. hidden: globs.
    name, group, tags, notes: the run's newest ones. ended: the status in the tail, and the length and the CRC-32 of the
    file with it.
    """

    length: int = 0
    generation: int = 0
    seq: int = 0
    num: int = 0
    lines: int = 0
    unplaced: int = 0
    top: int = 0
    rewound: int = 0
    columns: dict[str, int] = {}
    axes: dict[str, str] = {}
    hidden: list[str] = []
    name: str = ""
    group: str | None = None
    tags: list[str] = []
    notes: str | None = None
    config: dict[str, Any] = {}
    results: dict[str, Any] = {}
    ended: list[Any] = []


class SwanlabTracker(SwanlabPrecheck):
    """Writes ``SWANLAB_LOG_DIR/run-<time>-<id>``, or ``swanlab/run-<time>-<id>`` in the run's directory.

    Numbers are doubles, as SwanLab holds them. A record without a step gets the number of such records before it.
    """

    machine = "apart"
    deadline_s = 1800.0
    accepts = ALL_KINDS

    def __init__(self) -> None:
        self._began = False

    @staticmethod
    def own_files(info: RunInfo, state: State) -> list[Path]:
        """What of the run lies outside of its directory (:class:`trackers.tracker.Tracker`)."""
        chosen = option_directory(info, "SWANLAB_LOG_DIR")
        return [] if chosen is None else [chosen / _folder(info)]

    def open(self, info: RunInfo, state: State) -> Cursor | None:
        """Cut the file back to what was committed; one that doesn't match the state is built anew."""
        self._info, self._state = info, state
        chosen = option_directory(info, "SWANLAB_LOG_DIR")
        self._root = Path(info.directory) if chosen is None else chosen
        own = file_name(info.id)
        self._directory = (info.path("swanlab") if chosen is None else chosen) / _folder(info)
        self._digests = digests(state)
        self._file = OwnedFile(self._directory / f"run-{own}{form.SUFFIX}", self._root, self._digests)
        self._temporary = self._directory / f".run-{own}.tmp"
        remove_temporary(self._temporary)
        self._file_temporary = self._directory / ".file.tmp"
        remove_temporary(self._file_temporary)
        self._committed = msgspec.convert(dict(state).get("marks", {}), SwanLabState)
        state["url"] = f"swanlab sync {shlex.quote(str(self._directory))}"
        answer = None
        try:
            if self._committed.length:
                self._check_generation()
                return None
        except FileShrunk:
            answer = Cursor(0)
        self._committed = SwanLabState(name=info.name, group=info.group, tags=list(info.tags), notes=info.notes)
        self._committed.generation = time.time_ns()
        self._save_config({})
        self._file.open()
        framer = LevelDbFramer(leveldb_log.HEADER.size)
        head = leveldb_log.HEADER.pack(*form.MAGIC)
        self._file.append(head + b"".join(framer.frame(content) for content in self._head(self._committed)))
        self._committed.length = self._file.length
        self._began = True
        return answer

    def write(self, records: Sequence[Record], cursor: Cursor) -> None:
        """Append the batch's records, all of them or none."""
        fresh = unseen(records, self._committed.seq)
        if fresh:
            self._begin()
        take_with_rewinds(fresh, self._committed.rewound, self._take, self._rewind)
        self._commit()

    def verify(self) -> Verified:
        """Read the directory back; see :class:`trackers.tracker.Tracker`. Damage has all of it written anew."""
        known = dict(self._digests)
        if self._committed.ended and not self._began:
            _, length, crc = self._committed.ended
            known[path_key(self._file.path)] = (length, crc)
        result = verified([(self._file.path, self._root)], known)
        if result.damaged:
            return result
        bad = [str(path) for path, size, digest in self._named_files() if not self._holds(path, size, digest)]
        if bad:
            confined.remove(self._file.path, root=self._root)
        return Verified(result.checked, bad, Cursor(0) if bad else None)

    def close(self, status: Status) -> None:
        """Write results and status behind what is committed; nothing for a run that goes on."""
        if status.name != "running" and (self._began or self._committed.ended[:1] != [status.name]):
            self._begin()
            self._file.check()
            known = dict(self._digests)
            framer = LevelDbFramer(self._file.length)
            self._file.append(b"".join(framer.frame(content) for content in self._tail(status)))
            ended = [status.name, *self._digests.get(path_key(self._file.path), (0, 0))]
            self._committed = msgspec.structs.replace(self._committed, ended=ended)
            self._digests.update(known)  # of what is committed: the tail is another one after each end
            self._commit()
        elif self._began:
            self._file.check()
        self._file.close()
        self._began = False

    def _begin(self) -> None:
        """Open the file, cut back to its committed length."""
        if not self._began:
            self._file.open(self._committed.length)
            self._began = True
            self._committed = msgspec.structs.replace(self._committed, ended=[])
            self._save_config(self._committed.config)

    def _commit(self) -> None:
        self._state["marks"] = name_floats(msgspec.to_builtins(self._committed))
        self._state[DIGESTS] = dict(self._digests)

    def _named_files(self) -> Iterator[tuple[Path, int, str]]:
        """The files that belong to the records: path, length, and SHA-256 where it is known."""
        config = form.config_text(self._committed.config).encode()
        yield self._directory / "files/config.yaml", len(config), hashlib.sha256(config).hexdigest()
        for record in form.records(self._file.path):
            media = record.get("media", {})
            for item in media.get("value", {}).get("items", []):
                path = self._directory / "media" / form.FOLDERS[media["type"]] / item["filename"]
                yield path, item.get("size", 0), item["sha256"]

    def _holds(self, path: Path, size: int, digest: str) -> bool:
        try:
            with confined.open_file(path, root=self._root) as file:
                content = file.read(size + 1)
        except OSError:
            return False
        return len(content) == size and hashlib.sha256(content).hexdigest() == digest

    def _take(self, batch: Sequence[Record]) -> None:
        if not batch:
            return
        draft = self._draft()
        identity = _identity(draft)
        contents = [content for record in batch for content in self._contents(record, draft)]
        draft.seq = max(draft.seq, *(record.seq for record in batch))
        if draft.config is not self._committed.config:
            self._save_config(draft.config)
        if _identity(draft) != identity:
            self._rewrite(msgspec.structs.replace(self._committed, **_identity(draft)), None)
            draft.generation = self._committed.generation
        framer = LevelDbFramer(self._file.length)
        self._file.append(b"".join(map(framer.frame, contents)))
        draft.length = self._file.length
        self._committed = draft

    def _draft(self) -> SwanLabState:
        """A copy of the state, to be changed."""
        return msgspec.structs.replace(self._committed, columns=dict(self._committed.columns))

    def _contents(self, record: Record, draft: SwanLabState) -> Iterator[bytes]:
        """A record as SwanLab's; ``draft`` is what the state becomes."""
        if isinstance(record, Metrics):
            yield from self._scalars(record, draft)
        elif isinstance(record, Text):
            for name, text in record.values.items():
                yield from self._media(name, [_text(text)], record, draft)
        elif isinstance(record, Media):
            from trackers_swanlab import media

            yield from self._media(record.name, media.media_items(record, self._info), record, draft)
        elif isinstance(record, Config):
            draft.config = merge(copy.deepcopy(draft.config), record.values, record.whole)
        elif isinstance(record, Summary):
            draft.results = take_results(dict(draft.results), record, final_name)
        elif isinstance(record, ArtifactRecord):
            yield from self._artifact(record, draft)
        elif isinstance(record, Define):
            if record.step_metric:
                draft.axes = {**draft.axes, record.name: record.step_metric}
            if record.hidden:
                draft.hidden = [*draft.hidden, record.name]
        elif isinstance(record, Alert):
            level = int(record.level == "ERROR")
            for part in record.line().splitlines():
                draft.lines += 1
                log = {"line": part, "level": level, "timestamp": form.timestamp(record.time), "epoch": draft.lines}
                yield self._record(draft, record.time, log=log)
        elif isinstance(record, Environment):
            yield from self._media(ENVIRONMENT, [_text(_indented(record.values))], record, draft)
        elif isinstance(record, Info):
            for name, value in record.changes().items():
                setattr(draft, name, value)

    def _scalars(self, record: Metrics, draft: SwanLabState) -> Iterator[bytes]:
        step, mark = self._step_and_mark(record, draft)
        for name, value in record.values.items():
            if name.startswith(SUMMARY_PREFIX):
                draft.results = {**draft.results, name: value}
            elif vendor_system_names.is_machine(record, name):
                key = form.SYSTEM_PREFIX + name.removeprefix(SYSTEM_PREFIX)
                yield from self._system_column(key, name, record.time, draft)
                yield self._scalar(key, nearest_double(value), step, mark, record.time, draft)
            else:
                key = form.stored_name(name)
                if draft.columns.get(key, form.SCALAR) != form.SCALAR:
                    key += "/scalar"
                yield from self._column(key, form.SCALAR, name, record.time, draft)
                yield self._scalar(key, nearest_double(value), step, mark, record.time, draft)

    def _scalar(self, key: str, value: float, step: int, mark: int, time: float, draft: SwanLabState) -> bytes:
        stamp, number = form.timestamp(time), {"number": value}
        scalar = {"key": key, "step": step, "type": form.SCALAR, "timestamp": stamp, "value": number}
        return self._record(draft, time, mark, scalar=scalar)

    def _media(self, name: str, files: Sequence[Any], record: Record, draft: SwanLabState) -> Iterator[bytes]:
        """A media record, its files written before it."""
        if not files:
            return
        step, mark = self._step_and_mark(record, draft)
        kind = files[0].kind
        key = form.stored_name(name)
        if draft.columns.get(key, kind) != kind:
            key += f"/{form.FOLDERS[kind]}"
        items = []
        for file in files:
            checksum = hashlib.sha256(file.content).hexdigest()
            named = f"{step:03d}-{checksum[:16]}.{file.suffix}"
            self._save(Path("media", form.FOLDERS[kind], named), file.content)
            item = {"filename": named, "sha256": checksum, "size": len(file.content)}
            items.append({**item, "caption": file.caption} if file.caption else item)
        yield from self._column(key, kind, name, record.time, draft)
        stamp = form.timestamp(record.time)
        media = {"key": key, "step": step, "type": kind, "timestamp": stamp, "value": {"items": items}}
        yield self._record(draft, record.time, mark, media=media)

    def _artifact(self, record: ArtifactRecord, draft: SwanLabState) -> Iterator[bytes]:
        """An artifact's files, and a text that tells the rest of it."""
        folder = file_name(record.name)
        fields = {name: value for name, value in msgspec.to_builtins(record).items() if name not in ("id", "seq")}
        fields["folder"] = folder
        yield from self._media(ARTIFACTS + record.name, [_text(_indented(fields))], record, draft)
        for file in record.files:
            if file.file:
                parts = confined.parts(file.path)
                local = media_files.path(self._info, file)
                name = "/".join((folder, *parts))
                copy = (self._directory / "files" / name).absolute()
                keep(self._info, local, copy, self._root, self._file_temporary)
                save = {"name": name, "source_path": str(copy), "type": form.SAVE_CUSTOM}
                yield self._record(draft, record.time, save=save)

    def _step_and_mark(self, record: Record, draft: SwanLabState) -> tuple[int, int]:
        """The step and the field ``mark`` of a record."""
        if record.step is None:
            draft.unplaced += 1
            return draft.unplaced - 1, form.NO_STEP
        step = max(-MAX_STEP, min(record.step, MAX_STEP))
        draft.top = max(draft.top, step)
        return step, form.OURS

    def _column(self, key: str, kind: int, name: str, time: float, draft: SwanLabState) -> Iterator[bytes]:
        """The declaration of a column, before its first value."""
        if key in draft.columns:
            return
        draft.columns[key] = kind
        group, slash, _ = key.partition("/")
        column = {
            "column_class": form.CUSTOM_CLASS,
            "column_type": kind,
            "column_key": key,
            "section_name": group if slash else "",
            "section_type": form.PUBLIC_SECTION,
        }
        axis = next((axis for glob, axis in reversed(draft.axes.items()) if fnmatch.fnmatchcase(name, glob)), "")
        if axis and axis != name:
            column["x_axis"] = form.stored_name(axis)
        if any(fnmatch.fnmatchcase(name, glob) for glob in draft.hidden):
            column["hidden"] = 1
        yield self._record(draft, time, column=column)

    def _system_column(self, key: str, name: str, time: float, draft: SwanLabState) -> Iterator[bytes]:
        """As swanlab/sdk/internal/probe_python/monitor/builder.py declares the machine's metrics."""
        if key in draft.columns:
            return
        draft.columns[key] = form.SCALAR
        column = {
            "column_class": form.SYSTEM_CLASS,
            "column_type": form.SCALAR,
            "column_key": key,
            "column_name": name,
            "section_type": form.SYSTEM_SECTION,
            "chart_index": name,
            "chart_name": name,
            "chart_type": form.LINE_CHART,
            "metric_name": name,
        }
        yield self._record(draft, time, column=column)

    def _record(self, draft: SwanLabState, time: float, mark: int = form.OURS, **fields: Any) -> bytes:
        draft.num += 1
        return form.encode({"num": draft.num, "timestamp": form.timestamp(time), **fields, "mark": mark})

    def _head(self, state: SwanLabState) -> Iterator[bytes]:
        """The first records: who the run is, and where its configuration lies."""
        created = form.timestamp(self._info.created)
        start: dict[str, Any] = {
            "project": file_name(_project(self._info.project), "project", form.PROJECT_CHARS),
            "name": _short(state.name or self._info.id),
            "tags": [_short(tag) for tag in state.tags],
            "id": file_name(self._info.id),
            "started_at": created,
        }
        start |= {"description": state.notes[: form.NOTES_CHARS]} if state.notes else {}
        start |= {"group": _short(state.group)} if state.group else {}
        start |= {"job_type": _short(self._info.job_type)} if self._info.job_type else {}
        own = {"mark": form.OURS, "generation": state.generation}
        yield form.encode({"num": form.START_NUM, "timestamp": created, "start": start, **own})
        save = {
            "name": "config",
            "source_path": str((self._directory / "files/config.yaml").absolute()),
            "type": form.SAVE_CONFIG,
        }
        yield form.encode({"num": form.CONFIG_NUM, "timestamp": created, "save": save, "mark": form.OURS})

    def _tail(self, status: Status) -> Iterator[bytes]:
        at = status.time or self._info.created
        draft = self._draft()
        asked, unasked = parted(draft.results)
        for name, value in asked.items():
            number_or_text = unnamed_float(value)
            if isinstance(number_or_text, (int, float)):
                yield from self._column(name, form.SCALAR, name, at, draft)
                yield self._scalar(name, nearest_double(number_or_text), draft.top, form.OURS, at, draft)
            else:
                text = _text(number_or_text if isinstance(number_or_text, str) else _indented(number_or_text))
                yield from self._media(name, [text], Text(step=draft.top, time=at, values={}), draft)
        if unasked:
            yield from self._media(
                UNASKED, [_text(_indented(unasked))], Text(step=draft.top, time=at, values={}), draft
            )
        finish: dict[str, Any] = {"state": _STATES[status.name], "finished_at": form.timestamp(at)}
        if status.name != "finished":
            code = "" if status.exit_code is None else f" (exit code {status.exit_code})"
            finish["error"] = f"{status.name}{code}" + (f": {status.reason}" if status.reason else "")
        yield form.encode(
            {"num": form.FINISH_NUM, "timestamp": form.timestamp(at), "finish": finish, "mark": form.OURS}
        )

    def _rewind(self, step: int, attempt: int) -> None:
        top = min(self._committed.top, step)
        self._rewrite(msgspec.structs.replace(self._committed, rewound=attempt, top=top), step)

    def _rewrite(self, state: SwanLabState, last_step: int | None) -> None:
        """The file anew, under the name and tags in ``state``, and without what lies above ``last_step``."""
        state = msgspec.structs.replace(state, generation=time.time_ns())
        self._file.rewrite(self._anew(state, last_step), self._temporary)
        self._committed = msgspec.structs.replace(state, length=self._file.length)

    def _anew(self, state: SwanLabState, last_step: int | None) -> Iterator[bytes]:
        yield leveldb_log.HEADER.pack(*form.MAGIC)
        framer = LevelDbFramer(leveldb_log.HEADER.size)
        heads = list(self._head(state))
        for content in heads:
            yield framer.frame(content)
        for index, (content, end) in enumerate(leveldb_log.scan(self._file.path, form.MAGIC, form.SUFFIX)):
            if end > self._committed.length:
                return
            if index >= len(heads) and (last_step is None or not _superseded(content, last_step)):
                yield framer.frame(content)

    def _check_generation(self) -> None:
        """Raise FileShrunk when the file is another one than the state's: a kill came between the two."""
        try:
            confined.open_file(self._file.path, root=self._root).close()
            first = next(form.records(self._file.path), {})
        except (FileNotFoundError, NotFound, ValueError) as error:
            raise FileShrunk(str(error)) from error
        except OSError as error:
            raise unavailable("read", self._file.path, error) from error
        if (
            first.get("generation") != self._committed.generation
            or self._file.path.stat().st_size < self._committed.length
        ):
            raise FileShrunk(f"{self._file.path} isn't what was committed")

    def _save_config(self, config: dict[str, Any]) -> None:
        self._save(Path("files/config.yaml"), form.config_text(config).encode())

    def _save(self, name: Path, content: bytes) -> None:
        """Write a file of the run's directory whole.

        Raises:
            Unavailable: it can't be written.
        """
        path = self._directory / name
        try:
            make_folder(path.parent, self._root)
            confined.write_whole(path, content, root=self._root)
        except OSError as error:
            raise unavailable("write", path, error) from error


def _superseded(content: bytes, last_step: int) -> bool:
    record = form.decode(content)
    value = record.get("scalar") or record.get("media")
    return value is not None and record.get("mark") != form.NO_STEP and value.get("step", 0) > last_step


def _identity(state: SwanLabState) -> dict[str, Any]:
    return {field: getattr(state, field) for field in ("name", "group", "tags", "notes")}


def _text(content: str) -> Any:
    from trackers_swanlab import media

    return media.text(content)


def _indented(values: Any) -> str:
    return json.dumps(name_floats(values), indent=2, ensure_ascii=False, default=str)


def _short(text: str) -> str:
    return text[: form.TEXT_CHARS]


def _project(name: str) -> str:
    """A project's name of the characters that SwanLab takes."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "_-+.") else "_" for c in name)


def _folder(info: RunInfo) -> str:
    stamp = time.strftime("%Y%m%d_%H%M%S", time.gmtime(info.created))
    return f"run-{stamp}-{file_name(info.id)}"
