"""Records that a tracker refused, kept one a line with the reason: ``delivery/<tracker>.rejected.jsonl``."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from trackers import records
from trackers.records import Record


class Rejections:
    """The file of one tracker. ``ids``: of the records in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ids: set[str] = set()
        with contextlib.suppress(OSError), open(path, "rb") as lines:
            for line in lines:
                with contextlib.suppress(msgspec.DecodeError, KeyError, TypeError):
                    self.ids.add(msgspec.json.decode(line)["id"])

    def add(self, record: Record, reason: str) -> None:
        """Keep a record, unless it is kept already.

        Raises:
            OSError: it can't be written.
        """
        if record.id in self.ids:
            return
        line = msgspec.json.encode({"id": record.id, "reason": reason, "record": records.encode(record).decode()})
        with open(self.path, "ab") as file:
            file.write(line + b"\n")
        self.ids.add(record.id)
