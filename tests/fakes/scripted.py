"""A tracker for tests of the delivery: it keeps what it got in a file, and fails where a test says so."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

from trackers.records import ALL_KINDS, Record
from trackers.tracker import Cursor, RunInfo, State, Status, Tracker


class Scripted(Tracker):
    """Appends ``id`` and ``step`` of each record to ``got.jsonl``; ``plan`` is asked before each call."""

    name = "scripted"
    accepts = ALL_KINDS
    plan: ClassVar[Callable[[str, Sequence[Record]], None]] = staticmethod(lambda call, records: None)
    answer: ClassVar[Cursor | None] = None
    url: ClassVar[str] = ""

    def open(self, info: RunInfo, state: State) -> Cursor | None:
        type(self).plan("open", [])
        self.path = Path(info.directory) / "got.jsonl"
        if self.url:
            state["url"] = self.url
        state["opened"] = int(state.get("opened", 0)) + 1
        return self.answer

    def write(self, records: Sequence[Record], cursor: Cursor) -> None:
        type(self).plan("write", records)
        with self.path.open("a") as file:
            for record in records:
                file.write(json.dumps({"id": record.id, "seq": record.seq, "step": record.step}) + "\n")

    def close(self, status: Status) -> None:
        type(self).plan("close", [])
        with self.path.open("a") as file:
            file.write(json.dumps({"closed": status.name, "exit_code": status.exit_code}) + "\n")


def got(directory: Path) -> list[dict[str, object]]:
    """What the tracker kept."""
    path = directory / "got.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
