"""Detects a stream that was truncated after it was read, even if it has grown again since."""

from __future__ import annotations

import os
from pathlib import Path

from trackers.journal.stream import decode_lines
from trackers.support import confined

LOOK_BACK_BYTES = 65536


def holds(path: Path, offset: int, time: float) -> bool:
    """Whether the lines before ``offset`` end there, with a record of this time; True where that can't be seen."""
    try:
        with confined.open_file(path) as file:
            if os.fstat(file.fileno()).st_size < offset:
                return False
            start = max(0, offset - LOOK_BACK_BYTES)
            file.seek(start)
            block = file.read(offset - start)
    except OSError:
        return True
    found = decode_lines(block, whole=start == 0)
    return block.endswith(b"\n") and (not found or any(record.time == time for record in found))
