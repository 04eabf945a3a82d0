"""Records that a tracker refused, kept one a line with the reason: ``delivery/<tracker>.rejected.jsonl``."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import msgspec

from trackers import records
from trackers.errors import UNDECODABLE
from trackers.records import Record
from trackers.support import confined


class DeadLetters:
    """The file of one tracker. ``ids``: of the records in it.

    Args:
        private: only the owner may read it: a record may be refused for what is in it.
    """

    def __init__(self, path: Path, private: bool = True) -> None:
        self.path = path
        self._mode = 0o600 if private else 0o666
        self.ids: set[str] = set()
        with contextlib.suppress(OSError), confined.open_file(path) as lines:
            for line in lines:
                with contextlib.suppress(*UNDECODABLE, KeyError, TypeError):
                    self.ids.add(msgspec.json.decode(line)["id"])

    def add(self, record: Record, reason: str) -> None:
        """Keep a record, unless it is kept already.

        Raises:
            OSError: it can't be written.
        """
        if record.id in self.ids:
            return
        line = msgspec.json.encode({"id": record.id, "reason": reason, "record": records.encode(record).decode()})
        fd = confined.open_fd(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, self._mode)
        with os.fdopen(fd, "ab") as file:
            file.write(line + b"\n")
        self.ids.add(record.id)
