"""Records of a file in LevelDB's log format are read as they were framed."""

from __future__ import annotations

from pathlib import Path

import pytest
from trackers_swanlab.framing import LevelDbFramer

from trackers.formats import leveldb_log
from trackers.formats.leveldb_log import BLOCK_BYTES, CHUNK, HEADER

MAGIC = (b"TEST", 1, 0)


@pytest.mark.parametrize("before", range(-8, 9))
def test_records_at_the_end_of_a_block_come_back(before: int, tmp_path: Path) -> None:
    """The first record ends a few bytes before or behind the block's end; one is longer than blocks."""
    first = BLOCK_BYTES - HEADER.size - CHUNK.size + before
    payloads = [bytes(first), b"", b"a", bytes(3 * BLOCK_BYTES), b"b"]
    framer = LevelDbFramer(HEADER.size)
    content = HEADER.pack(*MAGIC) + b"".join(map(framer.frame, payloads))
    assert framer.length == len(content)
    path = tmp_path / "records"
    path.write_bytes(content)
    assert [payload for payload, _ in leveldb_log.scan(path, MAGIC, "record")] == payloads
