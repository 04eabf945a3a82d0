"""How a run lies in a store: which of its files are sent, when, and under which names.

A file that only grows is sent in *pieces*, ``streams/rank-0.1.jsonl/@<begin>-<end>-<digest>``: bytes ``begin`` to
``end`` of it, and the beginning of their SHA-256. A piece never changes. The last one is replaced by a longer one with
the same beginning until it is :data:`PIECE_BYTES` long, so that a run has few objects; for a moment, or after a kill,
both are there, which harms nobody: bytes at an offset in the file are always the same. All other files are sent whole.

``@claims/000002`` says which process has attempt 2: it can be created once.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from trackers.support import confined

PIECE_BYTES = 256 * 1024
"""A piece of this length isn't replaced by a longer one any more."""
MOST_BYTES = 16 * 1024 * 1024
"""Maximum length of a piece: after an outage there may be much to send."""
SMALL_BYTES = 1024 * 1024
"""A file that is sent whole and is longer is sent when the run ends, unless it is one that never changes."""
CLAIMS = "@claims"
MARKS = ".catalogue/marks"
"""Below it an object of its own name says of a run that it was changed: a catalogue has it as it was before."""
REQUESTS = "@requests"
"""What was asked of the run from elsewhere: a line each, as in its ``requests.jsonl``."""
SPOOL = "console/"
"""What training printed, before secrets are masked in it: it is sent as the journal has it."""
CODE_SPOOL = ".modules"
"""End of the name in which training says what it imported, until the relay has kept that code."""
CHECKSUMS = ".sums"
"""End of the name of a stream's checksums. A piece has its own digest: these are sent at the end."""
GROWING, SMALL, FIXED, HEARTBEAT = "growing", "small", "fixed", "heartbeat"
_DIGEST = 12
_ATTEMPT = re.compile(r"rank-\d{1,9}\.(\d{1,10})\.jsonl(\.zst)?")
_PIECE = re.compile(r"@(?P<begin>\d{12,})-(?P<end>\d{12,})-(?P<digest>[0-9a-f]{12})")


class Piece(NamedTuple):
    """A part of a growing file: its offsets in bytes, and the beginning of its SHA-256."""

    begin: int
    end: int
    digest: str

    @classmethod
    def of(cls, begin: int, content: bytes) -> Piece:
        return cls(begin, begin + len(content), hashlib.sha256(content).hexdigest()[:_DIGEST])

    @classmethod
    def parse(cls, name: str) -> Piece | None:
        match = _PIECE.fullmatch(name)
        if match is None:
            return None
        piece = cls(int(match["begin"]), int(match["end"]), match["digest"])
        return piece if piece.begin < piece.end <= piece.begin + MOST_BYTES else None

    def __str__(self) -> str:
        return f"@{self.begin:012d}-{self.end:012d}-{self.digest}"

    def holds(self, content: bytes) -> bool:
        """Whether this is the piece's content."""
        return self == Piece.of(self.begin, content)


def kind(path: str) -> str | None:
    """How a file of a run is sent; None: it stays here.

    Args:
        path: from the run's directory, with "/" between its parts.
    """
    name = path.rpartition("/")[2]
    if name.startswith((".", "@")) or name.endswith((".tmp", ".part")) or not confined.is_inside(path):
        return None
    if path == "relay.lease":
        return HEARTBEAT
    if path.startswith(SPOOL) or name.endswith(".lease") or path in ("delivery/storage.json", "delivery/storage.order"):
        return None
    if "/" not in path and name.endswith(CODE_SPOOL):
        return None
    if path.startswith("streams/") and path.endswith((".jsonl", CHECKSUMS)):
        return GROWING
    return FIXED if path.startswith("media/") else SMALL


def claim(attempt: int) -> str:
    """The name of the object that says which process has an attempt."""
    return f"{CLAIMS}/{attempt:06d}"


def mark(home: str) -> str:
    """The name of a new mark of the run ``<project>/<run id>``: who reads the run anew removes what was there before
    that alone."""
    return f"{MARKS}/{home}/{os.urandom(8).hex()}"


def first_stream(attempt: int) -> str:
    """The stream whose first line identifies an attempt."""
    return f"streams/rank-0.{attempt}.jsonl"


def newest_attempt(streams: Iterable[str]) -> int:
    """The newest attempt's number, by the names of the files in ``streams``; 0 before the first."""
    return max((int(match[1]) for name in streams if (match := _ATTEMPT.fullmatch(name))), default=0)


def attempt_in(run: Path) -> int:
    """The same of a run's directory, which need not be there."""
    try:
        return newest_attempt(os.listdir(run / "streams"))
    except OSError:
        return 0


def path_of(name: str, size: int) -> tuple[str, Piece | None] | None:
    """The file that an object belongs to, and which piece of it, if it is one; None: to none, or to one outside.

    Args:
        name: of the object, below the run's. size: its length in bytes: a piece has as many as its name says.
    """
    above, _, last = name.rpartition("/")
    piece = Piece.parse(last) if above else None
    path = above if piece is not None else name
    if not confined.is_inside(path) or any(part.startswith(("@", ".")) for part in path.split("/")):
        return None
    if piece is not None and size != piece.end - piece.begin:
        return None
    return path, piece


def chain(pieces: list[Piece], begin: int = 0) -> list[Piece]:
    """The fewest pieces that cover the bytes from an offset on without a gap."""
    connected: list[Piece] = []
    ordered, at = sorted(pieces), 0
    best: Piece | None = None
    while True:
        while at < len(ordered) and ordered[at].begin <= begin:
            best = ordered[at] if best is None or ordered[at].end > best.end else best
            at += 1
        if best is None or best.end <= begin:
            return connected
        connected.append(best)
        begin = best.end
