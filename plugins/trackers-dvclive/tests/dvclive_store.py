"""What DVCLive's folders hold, by the standard library and PyYAML."""

from __future__ import annotations

import csv
import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trackers.records import flatten
from trackers.testing import Point, Stored
from trackers.tracker import RunInfo


def read_dvclive(info: RunInfo, state: Mapping[str, Any] | None = None, *, directory: Path | None = None) -> Stored:
    """DVCLive's folder by the standard library and PyYAML. Odd names are found by what ``metrics.json`` calls them."""
    import yaml

    if directory is None:
        directory = info.path("dvclive")
    else:
        (directory,) = directory.glob(f"*-{info.id}")
    stored = Stored(summary={}, config={}, texts={})
    assert stored.summary is not None
    assert stored.texts is not None
    known: dict[str, Any] = {}
    if (directory / "metrics.json").exists():
        known = dict(flatten(json.loads((directory / "metrics.json").read_text())))
        stored.summary = {name: value for name, value in known.items() if name.startswith("final/")}
    if (directory / "params.yaml").exists():
        stored.config = yaml.safe_load((directory / "params.yaml").read_text("utf-8"))
    marked = {hashlib.sha256(name.encode()).hexdigest()[:8]: name for name in known}

    def logged(path: Path, folder: str) -> str:
        name = path.relative_to(directory / folder).as_posix().rpartition(".")[0]
        return marked[name[-8:]] if re.search("~[0-9a-f]{8}$", name) else name

    for path in (directory / "plots").rglob("*.tsv"):
        with path.open(encoding="utf-8", newline="") as file:
            head, *rows = csv.reader(file, delimiter="\t")
        folder = "plots/system" if len(head) == 2 else "plots/metrics"
        assert head[:-1] == ["timestamp", "step"][: len(head) - 1]
        points = [Point(int(row[1]) if row[2:] else None, _tsv_number(row[-1]), int(row[0]) / 1000) for row in rows]
        stored.metrics.setdefault(logged(path, folder), []).extend(points)
    for path in (directory / "text").rglob("*.jsonl"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        stored.texts[logged(path, "text")] = [(line["step"], line["text"]) for line in lines]
    return stored


def _tsv_number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        return float(text)
