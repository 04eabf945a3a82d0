"""Comet's offline experiments: the archive that ``comet upload`` takes; see :mod:`trackers_archives`.

``messages.json`` holds one message a line.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Iterator
from typing import Any, ClassVar

import msgspec
from trackers_archives import KEY_CHARS, ArchiveTracker, CommittedState, ending

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
    unnamed_float,
)
from trackers.support import confined
from trackers.tracker import Status
from trackers_comet import messages
from trackers_comet.precheck import CometPrecheck

MESSAGES, EXPERIMENT = "messages.json", "experiment.json"


class CometTracker(CometPrecheck, ArchiveTracker):
    """Writes ``COMET_OFFLINE_DIRECTORY/<key>.zip``, or ``comet/<key>.zip`` in the run's directory, as the run ends.

    A key has 32 letters and digits: comet_ml/utils.py, is_valid_experiment_key.
    """

    machine = "apart"
    lines: ClassVar[str] = MESSAGES
    command: ClassVar[str] = "comet upload"

    def _lines(self, record: Record, draft: CommittedState) -> Iterator[bytes]:
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
        elif isinstance(record, Alert):
            fields = {"output": f"{record.line()}\n", "stderr": record.level == "ERROR", "context": None}
            yield messages.message("standard_output", fields, draft, record.time)
        elif isinstance(record, Environment):
            content = messages.as_text(record.values).encode("utf-8", "replace")
            yield self._upload(messages.ASSET, "environment", content, "json", record, draft)

    def _artifact(self, record: ArtifactRecord, draft: CommittedState) -> Iterator[bytes]:
        about = {"type": record.type, "aliases": record.aliases, **record.metadata}
        for index, file in enumerate(record.files):
            parts = confined.parts(file.path)
            name = "/".join((record.name, *parts))
            if not file.file:
                yield messages.message("log_other", {"key": name, "value": file.uri}, draft)
                continue
            inside, local = self._keep_file(record, index)
            kind = messages.MODEL if record.type in messages.MODEL_TYPES else messages.ASSET
            yield self._uploaded(kind, name, inside, "".join(local.suffixes[-1:]), record, draft, about, record.name)

    def _upload(
        self,
        kind: str,
        name: str,
        content: bytes,
        suffix: str,
        record: Record,
        draft: CommittedState,
        metadata: dict[str, Any] | None = None,
    ) -> bytes:
        """The message of a file of this content, which is written before."""
        inside = self._keep_content(content, suffix)
        named = name if kind in (messages.IMAGE, messages.TEXT) else f"{name}.{suffix}"
        return self._uploaded(kind, named, inside, suffix, record, draft, metadata or {})

    def _uploaded(
        self,
        kind: str,
        name: str,
        inside: str,
        suffix: str,
        record: Record,
        draft: CommittedState,
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

    def _head(self, state: CommittedState) -> bytes:
        payload = {"key": "offline_experiment", "value": True, "message_id": 1}
        return messages.encoded({"type": "log_other", "payload": payload, "generation": state.generation})

    def _is_superseded(self, line: bytes, last_step: int) -> bool:
        return messages.superseded(json.loads(line)["payload"], last_step)

    def _file_of(self, line: bytes) -> str:
        return str(json.loads(line)["payload"]["file_path"]) if b'"file_path"' in line else ""

    def _fill(self, archive: zipfile.ZipFile, lines: Iterator[bytes], status: Status) -> None:
        files: set[str] = set()

        def written() -> Iterator[bytes]:
            for line in lines:
                files.add(self._file_of(line))
                yield line
            yield from self._tail(status)

        self._add(archive, MESSAGES, written())
        self._add(archive, EXPERIMENT, iter([messages.encoded(self._experiment(status))]))
        for inside in sorted(files - {""}):
            self._add_file(archive, inside, inside)

    def _tail(self, status: Status) -> Iterator[bytes]:
        draft = msgspec.structs.replace(self._committed)
        at = status.time or self._info.created
        others: dict[str, Any] = {"Name": draft.name or self._info.id, "Notes": draft.notes, "Group": draft.group}
        others["trackers/status"] = status.name
        for name, value in draft.results.items():
            number = unnamed_float(value)
            if isinstance(number, (int, float)) and not is_unasked(name):
                yield messages.metric(name, number, None, at, draft)
            elif isinstance(value, (int, float)):
                others[name] = value
            else:
                others[name] = value if isinstance(value, str) else messages.as_text(value)
        for key, other in others.items():
            if other is not None:
                yield messages.message("log_other", {"key": messages.one_line(key), "value": other}, draft)

    def _experiment(self, status: Status) -> dict[str, Any]:
        """What ``comet upload`` asks first: comet_ml/schemas/offline-experiment.schema.json."""
        failed = status.name in ("failed", "crashed")
        return {
            "offline_id": self._key,
            "project_name": self._info.project,
            "workspace": None,
            "start_time": messages.milliseconds(self._info.created),
            "stop_time": messages.milliseconds(status.time or self._info.created),
            "tags": [messages.one_line(tag) for tag in self._committed.tags],
            "resume_strategy": "create",
            "customer_error_reported": failed,
            "customer_error_message": ending(status) if failed else None,
            "user_provided_experiment_key": True,
            "comet_start_sourced": False,
        }
