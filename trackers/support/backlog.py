"""Contents of media and files that the disk refused: kept in memory until the run's folder takes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from trackers.errors import UsageError
from trackers.support.clock import monotonic
from trackers.support.interruption import pass_on

HELD_BYTES = 64 * 1024 * 1024
"""Maximum memory for contents that wait, and for the records that wait with them."""
SLICE_S = 0.05
"""Time after which a retry leaves the rest to the next one, in seconds: training waits for it."""
REFUSALS = 3
"""After so many refused contents a retry ends."""

Content = bytes | Callable[[Path], object]
"""A content, or what writes it to a path: a file that memory has no room for, read again from where it lies."""


class NotKept(OSError):
    """The disk refuses a content, and memory has no room for it."""


class Backlog:
    """Contents that wait, by their path relative to the run's directory. Made without I/O.

    Args:
        place: writes a content to such a path (:meth:`trackers.media.base.MediaStore.place`).

    Attributes:
        error: why they wait, or why one was given up.
        record_bytes: of the records that wait with them.
    """

    def __init__(self, place: Callable[[str, Content], object]) -> None:
        self.error: Exception | None = None
        self.record_bytes = 0
        self._place = place
        self._contents: dict[str, Content] = {}
        self._bytes = 0
        self._gone: set[str] = set()

    def __len__(self) -> int:
        return len(self._contents)

    def has_room(self, size: int) -> bool:
        """Whether memory takes so many bytes more."""
        return self._bytes + self.record_bytes + size <= HELD_BYTES

    def take(self, name: str, content: Content, error: OSError) -> None:
        """Keep a content that the disk refused.

        Raises:
            NotKept: there is no room for it.
        """
        size = 0 if callable(content) else len(content)
        if name not in self._contents:
            if not self.has_room(size):
                raise NotKept(error.errno, f"{error.strerror}, and {HELD_BYTES >> 20} MiB wait in memory") from error
            self._contents[name] = content
            self._bytes += size
        self.error = error

    def waits_for(self, names: Iterable[str]) -> bool:
        """Whether a content of these paths waits."""
        return bool(self._contents) and any(name in self._contents for name in names)

    def lacks(self, names: Iterable[str]) -> bool:
        """Whether a content of these paths was given up, because its file changed while it waited."""
        return bool(self._gone) and any(name in self._gone for name in names)

    def retry(self, *, all_of_it: bool = False) -> bool:
        """Write what the disk takes now. True if nothing waits any more.

        Args:
            all_of_it: also the files that are read again from where they lie, and however long it takes.
        """
        until, refused, smallest = monotonic() + SLICE_S, 0, -1
        for name, content in list(self._contents.items()):
            size = -1 if callable(content) else len(content)
            if refused and (refused >= REFUSALS or size >= smallest):  # one that is smaller may fit
                continue
            if not all_of_it and (callable(content) or monotonic() > until):
                continue
            try:
                self._place(name, content)
            except OSError as error:
                pass_on(error)
                self.error, smallest = error, size
                refused += 1
            except UsageError as error:
                pass_on(error)
                self.error = error
                self._gone.add(name)
                self._contents.pop(name, None)
            else:
                self._contents.pop(name, None)
        self._bytes = sum(len(content) for content in list(self._contents.values()) if not callable(content))
        return not self._contents

    def clear(self) -> None:
        """Give up what waits."""
        self._contents.clear()
        self._bytes = self.record_bytes = 0
