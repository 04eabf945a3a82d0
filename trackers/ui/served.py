"""Media on servers: fetched when somebody looks at them, and kept in a directory of bounded size."""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path

from trackers.errors import Unavailable
from trackers.readers.boundary import boundary
from trackers.readers.reader import ServedMedia
from trackers.records import Media
from trackers.support import confined
from trackers.ui.media import FILE_BYTES

KEPT_BYTES = 1024 * 1024 * 1024
"""Maximum size of all files that are kept; those fetched first are removed."""
WAIT_S = 15.0
"""Maximum wait for another question to the same server."""


@contextlib.contextmanager
def in_turn(lock: threading.Lock, source: str) -> Iterator[None]:
    """Wait until no other thread asks the same server.

    Raises:
        Unavailable: another question has had no answer for :data:`WAIT_S`.
    """
    if not lock.acquire(timeout=WAIT_S):
        raise Unavailable(f"{source}: the server is slow: it hasn't answered another question yet")
    try:
        yield
    finally:
        lock.release()


class FetchedFiles:
    """Files that were fetched, of all runs.

    Args:
        most_bytes: their maximum size together.
    """

    def __init__(self, most_bytes: int = KEPT_BYTES) -> None:
        self._most = most_bytes
        self._sizes: OrderedDict[Path, int] = OrderedDict()
        self._lock = threading.Lock()

    def note_use(self, path: Path, size: int) -> None:
        """Note that a file was fetched or used again; delete the files used longest ago beyond the size limit."""
        with self._lock:
            self._sizes[path] = size
            self._sizes.move_to_end(path)
            while sum(self._sizes.values()) > self._most and len(self._sizes) > 1:
                oldest, _ = self._sizes.popitem(last=False)
                with contextlib.suppress(OSError):
                    oldest.unlink()


class ServedRun:
    """Media of one run on a server. Used by several threads; the server is asked by one of them at a time.

    Args:
        source: what names the run. media: its reader's. files: where files are put.
    """

    def __init__(self, source: str, media: ServedMedia, files: Path, room: FetchedFiles) -> None:
        self.records = media.media
        self._source, self._media, self._files, self._room = source, media, files, room
        self._lock = threading.Lock()

    def has(self, record: Media) -> bool:
        """Whether it is one of ``records``."""
        return any(record is known for known in self.records)

    def whole(self, record: Media) -> Media:
        """The record with captions, and with the content of tables.

        Raises:
            TrackersError: see :class:`trackers.readers.reader.ServedMedia`.
        """
        with in_turn(self._lock, self._source), boundary(self._source):
            return self._media.whole(record, FILE_BYTES)

    def fetch(self, record: Media, number: int) -> None:
        """Have the file of an item be there.

        Raises:
            TrackersError: see :class:`trackers.readers.reader.ServedMedia`.
        """
        with in_turn(self._lock, self._source), boundary(self._source):
            self._media.fetch(record, number, FILE_BYTES)
            self._note_use(record.items[number].file)

    def fetch_cell(self, file: str) -> None:
        """Have the file that a cell of a table names be there. Raises as :meth:`fetch`."""
        with in_turn(self._lock, self._source), boundary(self._source):
            self._media.fetch_cell(file, FILE_BYTES)
            self._note_use(file)

    def _note_use(self, file: str) -> None:
        if confined.is_inside(file):
            path = self._files / file
            if confined.is_file(path, root=self._files):
                self._room.note_use(path, path.stat().st_size)
