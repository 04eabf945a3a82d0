"""What Comet's archive holds, as ZIP and JSON."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.stores import named_float, not_json
from trackers.testing import Point, Stored
from trackers.tracker import RunInfo


def read_comet(info: RunInfo, state: Mapping[str, Any] | None = None, *, directory: Path | None = None) -> Stored:
    """The archive that ``comet upload`` takes; of a run that goes on, the messages that it will be made of."""
    stored = Stored(summary={}, config={}, texts={}, status="running")
    directory = directory or info.path("comet")
    archives = list(directory.glob("*.zip"))
    if archives:
        with zipfile.ZipFile(archives[0]) as archive:
            contents = {name: archive.read(name) for name in archive.namelist()}
        about = json.loads(contents["experiment.json"])
        assert about["offline_id"] == archives[0].stem
        stored.tags = about["tags"]
    else:
        (folder,) = directory.iterdir()
        contents = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert stored.summary is not None
    assert stored.config is not None
    assert stored.texts is not None
    for number, line in enumerate(contents["messages.json"].splitlines(), 1):
        message = json.loads(line, parse_constant=not_json)
        kind, payload = message["type"], message["payload"]
        if kind == "metric_msg":
            metric = payload["metric"]
            point = Point(metric["step"], named_float(metric["metricValue"]), payload["local_timestamp"] / 1000)
            if metric["metricName"].startswith("final/"):
                stored.summary[metric["metricName"]] = point.value
            else:
                stored.metrics.setdefault(metric["metricName"], []).append(point)
        elif kind == "parameter_msg":
            value = payload["param"]["paramValue"]
            is_json = isinstance(value, str) and value[:1] in ("[", "{")
            stored.config[payload["param"]["paramName"].replace("|", "/")] = json.loads(value) if is_json else value
        elif kind == "log_other":
            if payload["key"] == "Name":
                stored.name = payload["value"]
            elif payload["key"] == "trackers/status":
                stored.status = payload["value"]
            elif payload["key"].startswith("final/"):
                stored.summary[payload["key"]] = payload["value"]
        elif kind == "file_upload":
            content = contents[payload["file_path"]]
            if payload["upload_type"] == "text-sample":
                at = payload["additional_params"]["step"]
                stored.texts.setdefault(payload["metadata"]["name"], []).append((at, content.decode()))
        assert payload["message_id"] >= number
    return stored
