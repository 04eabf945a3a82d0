"""ClearML's offline sessions: the archive that ``clearml-task --import-offline-session`` takes.

:mod:`trackers_archives` says how it comes to be. A line of ``session.jsonl`` is an event, or what becomes a part of
``task.json`` (configuration, environment, an artifact).
"""

from __future__ import annotations

import hashlib
import json
import math
import mimetypes
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import msgspec
from trackers_archives import ArchiveTracker, CommittedState, ending

from trackers.backends.shared.append_file import READ_BYTES, file_name, unavailable
from trackers.formats import vendor_system_names
from trackers.metrics.unasked import is_unasked
from trackers.records import (
    SUMMARY_PREFIX,
    SYSTEM_PREFIX,
    Alert,
    ArtifactRecord,
    Config,
    Environment,
    Media,
    Metrics,
    Record,
    Text,
    flatten,
    merge,
    name_floats,
    plain_name,
    unnamed_float,
)
from trackers.support import confined
from trackers.tracker import Status
from trackers_clearml import events
from trackers_clearml.precheck import ClearmlPrecheck

TASK, METRICS = "task.json", "metrics.jsonl"
BATCH_EVENTS, BATCH_BYTES = 500, 1_000_000
"""Most events, and about the most bytes, of one request."""


class Line(msgspec.Struct, omit_defaults=True):
    """A line of ``session.jsonl``.

    step: None where a rewind leaves it. event: as ``metrics.jsonl`` has it. file: name beside the lines. path: where it
    lies in the archive. config, environment, artifact: of ``task.json``. whole: as in a record of configuration.
    """

    generation: int = 0
    step: int | None = None
    event: dict[str, Any] = {}
    file: str = ""
    path: str = ""
    config: dict[str, Any] = {}
    whole: bool = False
    environment: dict[str, Any] = {}
    artifact: dict[str, Any] = {}


class ClearmlTracker(ClearmlPrecheck, ArchiveTracker):
    """Writes ``CLEARML_OFFLINE_DIR/<id>.zip``, or ``clearml/<id>.zip`` in the run's directory, as the run ends."""

    machine = "apart"
    lines: ClassVar[str] = "session.jsonl"
    command: ClassVar[str] = "clearml-task --import-offline-session"
    key_prefix: ClassVar[str] = "offline-"

    def _head(self, state: CommittedState) -> bytes:
        return _encoded(Line(generation=state.generation))

    def _lines(self, record: Record, draft: CommittedState) -> Iterator[bytes]:
        if isinstance(record, Metrics):
            for name, value in record.values.items():
                if name.startswith(SUMMARY_PREFIX):
                    draft.results = {**draft.results, name: value}
                else:
                    yield self._value(record, name, value)
        elif isinstance(record, Config):
            yield _encoded(Line(config=record.values, whole=record.whole))
        elif isinstance(record, Environment):
            yield _encoded(Line(environment=record.values))
        elif isinstance(record, Text):
            for name, text in record.values.items():
                yield self._sample(record, events.title(name), text.encode("utf-8", "replace"), "txt", draft)
        elif isinstance(record, Media):
            title, series = events.title(record.name)
            for number, item in enumerate(record.items):
                names = (title, f"{series} {number}" if number else series)
                if record.type in ("table", "histogram"):
                    fields = {**self._fields_of(record, names), "plot_str": events.plot(record, item, self._info)}
                    yield self._event(events.PLOT, record, fields)
                else:
                    content, suffix = events.sample(record, item, self._info)
                    yield self._sample(record, names, content, suffix, draft)
        elif isinstance(record, ArtifactRecord):
            yield from self._artifact(record)
        elif isinstance(record, Alert):
            yield self._log(record, record.line(), events.LEVELS.get(record.level, "info"))

    def _value(self, record: Record, name: str, value: Any) -> bytes:
        """A scalar; NaN and infinities, which are none in ClearML, are lines of the console."""
        if isinstance(value, float) and not math.isfinite(value):
            at = "" if record.step is None else f" at step {record.step}"
            return self._log(record, f"{name} = {name_floats(value)}{at}", "warning")
        if record.step is None:
            machine = vendor_system_names.is_machine(record, name)
            names = (events.GPU if "gpu" in name else events.MACHINE, name.removeprefix(SYSTEM_PREFIX))
            names = names if machine else (events.MACHINE, name)
            return self._event(events.SCALAR, record, events.scalar(names, self._second(record), value))
        return self._event(events.SCALAR, record, events.scalar(events.title(name), record.step, value))

    def _second(self, record: Record) -> int:
        """Where a record without a step lies: at the second since the run began."""
        return max(0, round(record.time - self._info.created))

    def _fields_of(self, record: Record, names: tuple[str, str]) -> dict[str, Any]:
        step = self._second(record) if record.step is None else record.step
        return {"iter": step, "metric": names[0], "variant": names[1]}

    def _event(self, kind: str, record: Record, fields: dict[str, Any]) -> bytes:
        return _encoded(Line(step=record.step, event=events.event(kind, self._key, record.time, fields)))

    def _log(self, record: Record, text: str, level: str) -> bytes:
        fields = {"level": level, "worker": self._info.host or "trackers", "msg": text}
        return self._event(events.LOG, record, fields)

    def _sample(
        self, record: Record, names: tuple[str, str], content: bytes, suffix: str, draft: CommittedState
    ) -> bytes:
        """The event of a file of this content, which is written before."""
        inside = self._keep_content(content, suffix)
        draft.num += 1
        path = f"{self._folder()}/metrics/{draft.num:08d}.{suffix}"
        fields = {**self._fields_of(record, names), "key": path, "url": self._local(path)}
        made = events.event(events.SAMPLE, self._key, record.time, fields)
        return _encoded(Line(step=record.step, event=made, file=inside, path=path))

    def _artifact(self, record: ArtifactRecord) -> Iterator[bytes]:
        about: dict[str, Any] = {"type": record.type, "aliases": ", ".join(record.aliases)}
        about |= {"description": record.description, **record.metadata}
        rows = [[str(key), events.as_text(value)] for key, value in about.items() if value not in (None, "")]
        for index, file in enumerate(record.files):
            parts = confined.parts(file.path) or ["file"]
            name = "/".join((record.name, *parts)) if len(record.files) > 1 else record.name
            entry: dict[str, Any] = {"key": name, "type": "custom", "mode": "output", "timestamp": int(record.time)}
            entry |= {"display_data": rows, "uri": file.uri}
            if not file.file:
                yield _encoded(Line(artifact=entry))
                continue
            inside, local = self._keep_file(record, index)
            size, digest = self._sum(self._directory / inside)
            path = "/".join((self._folder(), "artifacts", file_name(record.name), *map(file_name, parts)))
            kind = mimetypes.guess_type(local.name)[0] or "application/octet-stream"
            entry |= {"uri": self._local(path), "content_size": size, "hash": digest}
            entry["type_data"] = {"content_type": kind, "preview": f"{parts[-1]} - {size:,} bytes"}
            yield _encoded(Line(artifact=entry, file=inside, path=path))

    def _folder(self) -> str:
        """Where the session's files lie in its ``data``: the client puts the new task's id in the place of this one."""
        return f"{file_name(self._info.project)}/{file_name(self._info.id)}.{self._key}"

    def _local(self, path: str) -> str:
        return f"{self._directory.as_posix()}/data/{path}"

    def _sum(self, path: Path) -> tuple[int, str]:
        digest, size = hashlib.sha256(), 0
        try:
            with confined.open_file(path, root=self._root) as file:
                while piece := file.read(READ_BYTES):
                    digest.update(piece)
                    size += len(piece)
        except OSError as error:
            raise unavailable("read", path, error) from error
        return size, digest.hexdigest()

    def _is_superseded(self, line: bytes, last_step: int) -> bool:
        step = _decode(line).step
        return step is not None and step > last_step

    def _file_of(self, line: bytes) -> str:
        return _decode(line).file if b'"file"' in line else ""

    def _fill(self, archive: zipfile.ZipFile, lines: Iterator[bytes], status: Status) -> None:
        config: dict[str, Any] = {}
        environment: dict[str, Any] = {}
        artifacts: dict[str, dict[str, Any]] = {}
        files: dict[str, str] = {}

        def sent() -> Iterator[dict[str, Any]]:
            for line in map(_decode, lines):
                merge(config, line.config, line.whole)
                environment.update(line.environment)
                if line.artifact:
                    artifacts[line.artifact["key"]] = line.artifact
                if line.path:
                    files[line.path] = line.file
                if line.event:
                    yield line.event
            yield from self._results(status)

        self._add(archive, METRICS, _requests(sent()))
        task = self._task(status, config, environment, list(artifacts.values()))
        self._add(archive, TASK, iter([json.dumps(task, indent=2, default=str).encode()]))
        for path, inside in files.items():
            self._add_file(archive, inside, f"data/{path}")

    def _results(self, status: Status) -> Iterator[dict[str, Any]]:
        at = status.time or self._info.created
        for name, value in self._committed.results.items():
            number = unnamed_float(value)
            if _is_single_value(name, number):
                fields = events.scalar((events.SUMMARY, plain_name(name)), events.SUMMARY_STEP, number)
                yield events.event(events.SCALAR, self._key, at, fields)
        if status.name != "finished":
            fields = {"level": "error", "worker": self._info.host or "trackers", "msg": ending(status)}
            yield events.event(events.LOG, self._key, at, fields)

    def _task(
        self, status: Status, config: dict[str, Any], environment: dict[str, Any], artifacts: list[dict[str, Any]]
    ) -> dict[str, Any]:
        """``task.json``: clearml/backend_interface/task/task.py, _save_data_to_offline_dir."""
        state, git = self._committed, self._info.git
        properties: dict[str, Any] = {"trackers/status": status.name, "trackers/run": self._info.id}
        properties |= {"group": state.group} if state.group else {}
        properties |= {"job_type": self._info.job_type} if self._info.job_type else {}
        for name, value in state.results.items():
            number = unnamed_float(value)
            if not _is_single_value(name, number):
                properties[name] = name_floats(value)
        parts = {name: values for name, values in (("config", config), ("environment", environment)) if values}
        script = {
            "repository": git.get("remote"),
            "branch": git.get("branch"),
            "version_num": git.get("commit"),
            "entry_point": Path(self._info.program).name,
            "working_dir": ".",
        }
        return {
            "id": self._key,
            "name": state.name or self._info.id,
            "project_name": self._info.project,
            "type": "training",
            "tags": state.tags,
            "comment": state.notes or "",
            "script": {name: str(value) for name, value in script.items() if value},
            "hyperparams": {
                "General": events.section("General", dict(flatten(config))),
                "properties": events.section("properties", properties),
            },
            "configuration": {name: events.configuration(name, values) for name, values in parts.items()},
            "execution": {"artifacts": artifacts},
            "output": {},
            "offline_folder": self._directory.as_posix(),
            "offline_output_models": [],
        }


def _requests(items: Iterator[dict[str, Any]]) -> Iterator[bytes]:
    """Events as lines of lists, each of a size that one request may have."""
    waiting: list[str] = []
    size = 0
    for event in items:
        text = json.dumps(event)
        if waiting and (len(waiting) >= BATCH_EVENTS or size + len(text) > BATCH_BYTES):
            yield f"[{', '.join(waiting)}]\n".encode()
            waiting, size = [], 0
        waiting.append(text)
        size += len(text)
    if waiting:
        yield f"[{', '.join(waiting)}]\n".encode()


def _is_single_value(name: str, result: Any) -> bool:
    """Whether a result is one of ClearML's single values, which are finite; others are properties of the task."""
    return isinstance(result, (int, float)) and math.isfinite(result) and not is_unasked(name)


def _encoded(line: Line) -> bytes:
    return json.dumps(name_floats(msgspec.to_builtins(line)), default=str).encode() + b"\n"


def _decode(line: bytes) -> Line:
    return msgspec.convert(json.loads(line), Line)
