"""What SwanLab's directories hold, read by its own description of the records."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from swanlab_protocol import record_class

from tests.stores import leveldb_records
from trackers.testing import Point, Stored
from trackers.tracker import RunInfo


def read_swanlab(info: RunInfo, state: Mapping[str, Any] | None = None, *, directory: Path | None = None) -> Stored:
    """The run's file of records by SwanLab's own description of them, and its configuration by PyYAML."""
    (path,) = (directory or info.path("swanlab")).glob(f"run-*-{info.id}/run-*.swanlab")
    return swanlab_stored(path.parent, map(record_class().FromString, leveldb_records(path)))


def swanlab_stored(directory: Path, records: Iterable[Any]) -> Stored:
    """What ``swanlab sync`` finds in a run's directory with these records."""
    import yaml

    config = yaml.safe_load((directory / "files/config.yaml").read_text("utf-8"))
    stored = Stored(config={name: entry["value"] for name, entry in config.items()}, summary={}, texts={})
    assert stored.summary is not None
    assert stored.texts is not None
    stored.status = "running"
    columns: dict[str, int] = {}
    for record in records:
        kind = record.WhichOneof("record_type")
        if kind == "start":
            stored.name, stored.tags, stored.group = record.start.name, list(record.start.tags), record.start.group
        elif kind == "column":
            assert record.column.column_key not in columns, f"{record.column.column_key} is declared twice"
            columns[record.column.column_key] = record.column.column_type
        elif kind == "scalar":
            item = record.scalar
            assert columns[item.key] == item.type == 1
            point = Point(item.step, item.value.number, item.timestamp.seconds + item.timestamp.nanos / 1e9)
            if item.key.startswith("final/"):
                stored.summary[item.key] = point.value
            else:
                stored.metrics.setdefault(item.key, []).append(point)
        elif kind == "media":
            item = record.media
            assert columns[item.key] == item.type
            for file in item.value.items:
                content = (directory / "media" / SWANLAB_MEDIA[item.type] / file.filename).read_bytes()
                assert (len(content), hashlib.sha256(content).hexdigest()) == (file.size, file.sha256)
                if item.type == 4:
                    stored.texts.setdefault(item.key, []).append((item.step, content.decode()))
        elif kind == "save":
            assert Path(record.save.source_path).is_file()
        elif kind == "finish":
            word = ("running", "finished", "crashed", "aborted")[record.finish.state]
            stored.status = record.finish.error.split()[0] if record.finish.error else word
    return stored


SWANLAB_MEDIA = {2: "image", 3: "audio", 4: "text", 6: "echarts", 9: "html"}
"""Folders of media by the type of their column: swanlab/sdk/internal/pkg/adapter."""
