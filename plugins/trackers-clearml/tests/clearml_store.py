"""What ClearML's offline session holds, as ZIP and JSON."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.stores import NAMED_FLOATS, named_float, not_json
from trackers.testing import Point, Stored
from trackers.tracker import RunInfo


def read_clearml(info: RunInfo, state: Mapping[str, Any] | None = None, *, directory: Path | None = None) -> Stored:
    """The archive that ClearML's client imports; of a run that goes on, the lines that it will be made of."""
    stored = Stored(summary={}, config={}, texts={}, status="running")
    directory = directory or info.path("clearml")
    archives = list(directory.glob("*.zip"))
    contents: dict[str, bytes] = {}
    if archives:
        with zipfile.ZipFile(archives[0]) as archive:
            contents = {name: archive.read(name) for name in archive.namelist()}
        lines = contents["metrics.jsonl"].splitlines()
        events = [event for line in lines for event in json.loads(line, parse_constant=not_json)]
        task = json.loads(contents["task.json"], parse_constant=not_json)
        assert task["id"] == archives[0].stem
        stored.name, stored.tags = task["name"], task["tags"]
        properties = {name: entry["value"] for name, entry in task["hyperparams"]["properties"].items()}
        stored.status, stored.group = properties["trackers/status"], properties.get("group")
        stored.summary = {name: named_float(value) for name, value in properties.items() if name[:6] == "final/"}
        stored.config = json.loads(task["configuration"].get("config", {"value": "{}"})["value"])
    else:
        (folder,) = directory.iterdir()
        found = [json.loads(line, parse_constant=not_json) for line in (folder / "session.jsonl").open("rb")]
        events = [line["event"] for line in found if "event" in line]
        contents = {f"data/{line['path']}": (folder / line["file"]).read_bytes() for line in found if "path" in line}
        stored.config = None
    assert stored.summary is not None
    assert stored.texts is not None
    for event in events:
        time = event["timestamp"] / 1000
        if event["type"] == "log":
            shown = re.fullmatch("(.*) = (NaN|-?Infinity)(?: at step (-?[0-9]+))?", event["msg"], re.S)
            if shown:
                point = Point(int(shown[3]) if shown[3] else None, NAMED_FLOATS[shown[2]], time)
                stored.metrics.setdefault(shown[1], []).append(point)
            continue
        title, series = event["metric"], event["variant"]
        machine = title.startswith(":monitor:")
        name = f"system.{series}" if machine else title if title == series else f"{title}/{series}"
        if title == "Summary" and event["iter"] == -(2**31):
            stored.summary[series] = event["value"]
        elif event["type"] == "training_stats_scalar":
            point = Point(None if machine else event["iter"], event["value"], time)
            stored.metrics.setdefault(name, []).append(point)
        elif event["type"] == "training_debug_image" and event["key"].endswith(".txt"):
            stored.texts.setdefault(name, []).append((event["iter"], contents[f"data/{event['key']}"].decode()))
    return stored
