"""A run that is followed has, after each reading, what reading all of it anew gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.analysis.support import T0, write_run
from trackers import records
from trackers.journal.run_directory import RunDirectory
from trackers.readers.columns import merge_blocks
from trackers.readers.following import FollowedRun
from trackers.readers.journal import JournalReader, source_run
from trackers.records import Finish, Metrics, Record, Start, Text


def append(path: Path, *found: Record, stream: str = "rank-0.1") -> None:
    """Write records to a stream."""
    with open(path / "streams" / f"{stream}.jsonl", "ab") as file:
        file.write(b"".join(map(records.encode, found)))


def metrics(step: int, **values: float) -> Metrics:
    """A record of a step, as many seconds after the start."""
    return Metrics(step=step, time=T0 + step, values=dict(values))


def same(followed: FollowedRun, path: Path) -> bool:
    """Whether it has what the run has."""
    blocks, others = JournalReader().columns(source_run(RunDirectory(path)))
    others = [record for record in others if type(record) is not Finish]
    mine = merge_blocks(followed.chunks)
    return followed.others == others and [block.names for block in mine] == [block.names for block in blocks] and all(
        np.array_equal(one.steps, other.steps) and np.array_equal(one.values, other.values, equal_nan=True)
        for one, other in zip(mine, blocks, strict=True)
    )  # fmt: skip


def test_new_lines_are_read_and_old_ones_are_not_again() -> None:
    """A line at a time, torn lines too; what is there already stays the same object."""
    path = write_run("one", [(0, 0, {"loss": 1.0})], status="running")
    followed = FollowedRun(RunDirectory(path))
    assert followed.read()
    assert not followed.read()
    first = followed.chunks[0]
    append(path, metrics(1, loss=0.5), Text(step=1, time=T0, values={"note": "x"}), metrics(2, loss=0.4, accuracy=0.1))
    assert followed.read()
    assert same(followed, path)
    assert followed.chunks[0] is first
    line = records.encode(metrics(3, loss=0.3))
    with open(path / "streams/rank-0.1.jsonl", "ab") as file:
        file.write(line[:20])
        file.flush()
        followed.read()
        assert same(followed, path)
        file.write(line[20:])
    assert followed.read()
    assert followed.generation == 0
    assert [step for block in followed.chunks for step in block.steps.tolist()] == [0, 1, 2, 3]
    assert same(followed, path)


def test_rewind_takes_back_what_was_read() -> None:
    """A later attempt that goes back to a step supersedes what lies above it."""
    path = write_run("one", [(step, step, {"loss": 1.0}) for step in range(10)], status="running")
    followed = FollowedRun(RunDirectory(path))
    followed.read()
    later = Metrics(step=5, time=T0 + 21, values={"loss": 9.0})
    append(path, Start(time=T0 + 20, rank=0, attempt=2, from_step=4), later, stream="rank-0.2")
    assert followed.read()
    assert followed.generation == 1
    assert [step for block in followed.chunks for step in block.steps.tolist()] == [0, 1, 2, 3, 4, 5]
    assert same(followed, path)


def test_file_that_was_replaced_is_read_anew() -> None:
    """A journal that was cut, or put back from elsewhere, is what it is now."""
    path = write_run("one", [(step, step, {"loss": 1.0}) for step in range(10)], status="running")
    followed = FollowedRun(RunDirectory(path))
    followed.read()
    stream = path / "streams/rank-0.1.jsonl"
    stream.write_bytes(b"".join(stream.read_bytes().splitlines(True)[:4]))
    assert followed.read()
    assert same(followed, path)
    write_run("one", [(step, step, {"other": 2.0}) for step in range(50)], status="running")
    assert followed.read()
    assert same(followed, path)
    assert followed.chunks[0].names == ("other",)


def test_new_stream_is_found() -> None:
    """Of a sampler, say, that began later."""
    path = write_run("one", [(0, 0, {"loss": 1.0})], status="running")
    followed = FollowedRun(RunDirectory(path))
    followed.read()
    append(path, Start(time=T0), Metrics(time=T0 + 5, values={"system.cpu": 5.0}), stream="sampler-0.1")
    assert followed.read()
    assert same(followed, path)


def test_file_that_is_there_and_can_not_be_read_is_told(tmp_path: Path) -> None:
    """Not as a traceback: see trackers.readers.boundary."""
    path = write_run("one", [(0, 0, {"loss": 1.0})], status="running")
    (path / "streams/rank-0.1.jsonl").write_bytes(b"no record\n" * 3)
    followed = FollowedRun(RunDirectory(path))
    followed.read()
    assert (followed.chunks, followed.others) == ([], [])
