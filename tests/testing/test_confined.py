"""A tracker that stores what isn't the run's is told, one that rejects it passes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from trackers.errors import Rejected
from trackers.records import ArtifactRecord, Record
from trackers.support import confined
from trackers.testing import ConfinedError, check_confined
from trackers.tracker import Cursor, RunInfo, State, Status, Tracker


class Careful(Tracker):
    """Reads files of artifacts through no link, below the run's directory."""

    name = "careful"
    accepts = frozenset({ArtifactRecord})

    def open(self, info: RunInfo, state: State) -> None:
        self.run = Path(info.directory)

    def write(self, records: Sequence[Record], cursor: Cursor) -> None:
        for record in records:
            if isinstance(record, ArtifactRecord):
                for file in record.files:
                    self.store(file.file or "")

    def store(self, name: str) -> None:
        try:
            confined.read(self.run / name, root=self.run)
        except OSError as error:
            raise Rejected(str(error)) from error

    def close(self, status: Status) -> None:
        pass


class OnlyPlain(Careful):
    """Looks at the name alone, and follows links."""

    def store(self, name: str) -> None:
        if ".." in name or name.startswith("/"):
            raise Rejected(name)
        (self.run / name).read_bytes()


def test_careful_tracker_passes(tmp_path: Path) -> None:
    """Each of the three files is rejected."""
    check_confined(Careful, directory=tmp_path)


def test_link_that_is_followed_is_told(tmp_path: Path) -> None:
    """By the name that the record has for it."""
    with pytest.raises(ConfinedError, match="only takes the file 'link' of an artifact"):
        check_confined(type("Only", (OnlyPlain,), {"name": "only"}), directory=tmp_path)
