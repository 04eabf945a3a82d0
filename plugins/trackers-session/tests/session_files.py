"""A session's files, read without our writers: strict JSON, lines by regular expressions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.stores import named_float
from trackers.testing import Point, Stored
from trackers.tracker import RunInfo


class Session:
    """One session's directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.name = directory.name

    def text(self, ending: str) -> str:
        """One of its files: ``text("main.log")``."""
        return (self.directory / f"{self.name}_{ending}").read_text(encoding="utf-8")

    def lines(self, log: str) -> list[str]:
        """The lines of a log that aren't empty."""
        return [line for line in self.text(f"{log}.log").splitlines() if line]

    def json(self) -> dict[str, Any]:
        """The summary, strictly parsed."""
        found: dict[str, Any] = json.loads(self.text("summary.json"), parse_constant=_refuse)
        return found


def sessions(root: Path) -> list[Session]:
    """All sessions in a directory, by name."""
    return [Session(path) for path in sorted(root.glob("training_*"))]


def unix(text: str) -> float:
    """A time of a summary in Unix seconds."""
    return datetime.fromisoformat(text).timestamp()


def read_session(info: RunInfo, state: Mapping[str, Any]) -> Stored:
    """The one session in the run's directory, as the conformance kit wants it."""
    (found,) = sessions(Path(info.directory))
    content = found.json()
    head = content["session"]
    stored = Stored(status=head["status"], name=head["run_name"], group=head["group"], tags=head["tags"])
    stored.summary = {name: named_float(value) for name, value in head["results"].items()}
    for entry in content["training_metrics"]:
        values = dict(entry["metrics"])
        for field, name in head["names"].items():
            if entry[field] is not None:
                values[name] = entry[field]
        for name, value in values.items():
            point = Point(entry["step"], named_float(value), unix(entry["timestamp"]))
            stored.metrics.setdefault(name, []).append(point)
    return stored


def _refuse(constant: str) -> Any:
    raise AssertionError(f"{constant} is no JSON")
