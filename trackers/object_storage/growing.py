"""Files that only grow, sent to a store in pieces (:mod:`trackers.object_storage.layout`)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from trackers.errors import Fatal
from trackers.object_storage import layout
from trackers.object_storage.layout import MOST_BYTES, PIECE_BYTES, Piece
from trackers.object_storage.store import Store
from trackers.support import confined


class GrowingFiles:
    """Sends files to one prefix.

    Args:
        home: the prefix below the store's address.
        meanwhile: called before each piece: an outage may have left many.

    Attributes:
        pieces: that the store has, by file, as far as is known.
        is_new: whether it had nothing at all below the prefix when that was listed last.
    """

    def __init__(self, store: Store, home: str, meanwhile: Callable[[], None] = lambda: None) -> None:
        self._store, self._home, self._meanwhile = store, home, meanwhile
        self.pieces: dict[str, list[Piece]] = {}
        self.is_new = True

    def list_objects(self) -> dict[str, int]:
        """List the pieces that the store has. Returns the lengths of the files that were sent whole, in bytes.

        Raises:
            Unavailable, Refused: the store can't be listed.
        """
        pieces: dict[str, list[Piece]] = {}
        whole = {}
        self.is_new = True
        for entry in self._store.objects(self._home):
            self.is_new, part = False, None
            if entry.name.startswith(f"{self._home}/"):
                part = layout.path_of(entry.name[len(self._home) + 1 :], entry.size)
            if part is not None and part[1] is not None:
                pieces.setdefault(part[0], []).append(part[1])
            elif part is not None:
                whole[part[0]] = entry.size
        self.pieces = pieces
        return whole

    def ends(self) -> dict[str, int]:
        """Up to where the store has each file, in bytes, as far as is known."""
        return {path: [0, *(piece.end for piece in layout.chain(pieces))][-1] for path, pieces in self.pieces.items()}

    def remove_replaced(self) -> None:
        """Remove pieces that longer ones replaced, and those that a kill or a lost answer has left behind.

        Raises:
            Unavailable, Refused: some may be there still.
        """
        for path, pieces in self.pieces.items():
            needed = layout.chain(pieces)
            end = needed[-1].end if needed else 0
            spent = [piece for piece in pieces if piece not in needed and piece.end <= end]
            self._store.delete([f"{self._home}/{path}/{piece}" for piece in spent])
            self.pieces[path] = [piece for piece in pieces if piece not in spent]

    def send(self, path: str, file: Path, root: Path) -> int:
        """Send complete lines behind the last piece, up to the file's present end. Returns how many objects that took.

        What is added meanwhile is for the next call: this one would else end when nothing comes during a request.

        Args:
            path: the file's, below the prefix. root: the directory that it must lie beneath.

        Raises:
            OSError: it can't be read. Unavailable, Refused: not everything was sent. Fatal: what was sent isn't the
                file's beginning.
        """
        pieces = self.pieces.setdefault(path, [])
        objects = 0
        with confined.open_file(file, root=root) as lines:
            size_now = os.fstat(lines.fileno()).st_size
            while True:
                last = max(layout.chain(pieces), default=None, key=lambda piece: piece.end)
                end = last.end if last is not None else 0
                replaced = last if last is not None and end - last.begin < PIECE_BYTES else None
                begin = replaced.begin if replaced is not None else end
                content = _read_lines(lines, begin, size_now)
                if replaced is not None and not replaced.holds(content[: end - begin]):
                    raise Fatal(f"{file} was changed: its bytes from {begin:,} aren't those in the store")
                if replaced is not None and len(content) <= end - begin:  # a very long line comes next, or nothing
                    replaced, begin, content = None, end, _read_lines(lines, end, size_now)
                if not content:
                    return objects
                self._meanwhile()
                piece = Piece.of(begin, content)
                self._store.put(f"{self._home}/{path}/{piece}", content)
                pieces.append(piece)
                objects += 1
                if replaced is not None:
                    self._store.delete([f"{self._home}/{path}/{replaced}"])
                    pieces.remove(replaced)


def _read_lines(file: BinaryIO, begin: int, end: int) -> bytes:
    """Read complete lines between two offsets, or a part of one that is longer than a piece can be."""
    file.seek(begin)
    content = file.read(max(0, min(MOST_BYTES, end - begin)))
    if b"\n" in content or len(content) < MOST_BYTES:
        content = content[: content.rfind(b"\n") + 1]
    return content
