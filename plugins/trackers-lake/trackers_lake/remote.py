"""An object of a store as a file, of which only what is read is loaded."""

from __future__ import annotations

import io
from typing import Any

from trackers.object_storage.store import Store


class RemoteFile(io.RawIOBase):
    """A binary file that can be sought in.

    Args:
        size: its length in bytes, as a lake's log has it. Reading raises as :meth:`Store.part`.
    """

    def __init__(self, store: Store, name: str, size: int) -> None:
        super().__init__()
        self._store, self._name, self._size, self._at = store, name, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = min(max(base + offset, 0), self._size)
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        end = min(self._at + len(buffer), self._size)
        if end == self._at:
            return 0
        content = self._store.part(self._name, self._at, end)
        buffer[: len(content)] = content
        self._at += len(content)
        return len(content)
