"""What a killed run's spans leave: the table and the sums of tokens, written by whoever says that it was killed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import trackers
from tests import forked
from trackers.formats import gen_ai
from trackers.journal import span_table
from trackers.journal.lease import Lease
from trackers.journal.run_directory import RunDirectory, StreamName
from trackers.journal.stream import StreamWriter
from trackers.records import Media, Start, Summary, encode
from trackers.relay import sync

KILLED = """
import os, signal, trackers
run = trackers.init("json", project="p", id="r", mode="offline", resume="allow", options={"TRACKER_RELAY": False})
for number in range(3):
    with run.span("call", attributes={"gen_ai.usage.input_tokens": 10}):
        run.log({"a": 1.0}, step=number)
never = run.span("open").__enter__()
os.kill(os.getpid(), signal.SIGKILL)
"""


def killed(code: str = KILLED) -> RunDirectory:
    """A run whose process was killed, and which nobody has looked at."""
    forked.run([sys.executable, "-c", code])
    return RunDirectory(Path("runs/p/r").absolute())


def judge(run: RunDirectory) -> None:
    """Say that it was killed, as ``trackers sync`` does."""
    assert sync.record_crash(run, Lease(run.path / "relay.lease"))


@pytest.mark.slow
@pytest.mark.processes
def test_killed_run_has_its_table_and_its_tokens() -> None:
    """Once, however often it is looked at; a run that is resumed sums up all, each attempt with its own table."""
    run = killed()
    judge(run)
    judge(run)
    data = trackers.load(run.path)
    assert data.summary == {gen_ai.INPUT: 30}
    (table,) = data.tables()
    assert (table.name, len(table), table.step) == (span_table.TABLE, 3, 2)
    assert len(data.spans()) == 3
    judge(killed())
    data = trackers.load(run.path)
    assert data.summary == {gen_ai.INPUT: 60}
    assert [len(table) for table in data.tables()] == [3, 3]


@pytest.mark.processes
def test_killed_between_the_table_and_the_end_is_written_once() -> None:
    """Who looks next finds the table, and writes none."""
    run = killed()
    info = run.read_info()
    made = span_table.of_killed(run, 1, 1.0, info)
    assert [type(record) for record in made] == [Summary, Media]
    writer = StreamWriter(run.stream(StreamName("node", 0, 1)))
    writer.write(encode(Start(time=1.0, attempt=1, host="", pid=1)))
    for record in made:
        writer.write(encode(record))
    writer.release()
    assert span_table.of_killed(run, 1, 1.0, info) == []


@pytest.mark.processes
def test_end_is_written_whatever_the_spans_are() -> None:
    """Damaged lines are left out."""
    run = killed()
    stream = next((run.path / "streams").glob("rank-*.jsonl"))
    with stream.open("ab") as file:
        file.write(b'{"kind":"span","name":3}\n{"kind":"span"\n\xff\n')
    judge(run)
    data = trackers.load(run.path)
    assert (data.status, data.summary) == ("crashed", {gen_ai.INPUT: 30})


@pytest.mark.processes
def test_end_is_written_where_the_table_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a full disk."""
    run = killed()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(span_table, "media_record", full)
    judge(run)
    assert trackers.load(run.path).status == "crashed"


def test_finished_run_and_one_without_spans_get_nothing() -> None:
    """Training has written its own."""
    for name, spans in (("with", 1), ("without", 0)):
        run = trackers.init("json", project="p", id=name, mode="offline", options={"TRACKER_RELAY": False})
        for _ in range(spans):
            with run.span("x"):
                pass
        run.finish()
        directory = RunDirectory(Path(run.path))
        assert span_table.of_killed(directory, 1, 1.0, directory.read_info()) == []
