"""What doesn't belong to a run is waited for by nobody: late lines of a superseded attempt, torn tails."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos import prepared
from tests.helpers import T0, made_run
from trackers.journal.run_directory import RunDirectory, StreamName
from trackers.journal.stream import StreamWriter
from trackers.records import Environment, Finish, Metrics, Record, Start, encode
from trackers.relay.delivery.cursor_file import delivery_report
from trackers.relay.delivery.delivery import Delivery, read_account


def write(run: RunDirectory, name: StreamName, *records: Record) -> None:
    writer = StreamWriter(run.stream(name))
    for record in records:
        writer.write(encode(record))
    writer.release()


@pytest.mark.parametrize("late", ["before", "amid", "after"])
def test_late_line_of_a_superseded_attempt_leaves_nothing_waiting(late: str, tmp_path: Path) -> None:
    """A relay that describes its machine after the next attempt began doesn't keep the run from being delivered."""
    run = made_run(tmp_path / "run", trackers=["csv"])

    def describe() -> None:
        write(run, StreamName("node", 0, 1), Environment(time=T0 + 11, values={"gpu": None}))

    def deliver() -> None:
        work = Delivery(run, "csv", say=lambda text: None, alone=False)
        for _ in range(20):
            if work.step() is None:
                break
        work._order.close()

    write(run, StreamName("rank", 0, 1), Start(time=T0), Metrics(step=0, time=T0 + 1, values={"x": 1.0}))
    write(run, StreamName("node", 0, 1), Start(time=T0))
    if late == "before":
        describe()
    write(run, StreamName("rank", 0, 2), Start(time=T0 + 10, attempt=2))
    write(run, StreamName("node", 0, 2), Start(time=T0 + 10, attempt=2))
    if late == "amid":
        deliver()
        describe()
    write(run, StreamName("rank", 0, 2), Metrics(step=1, time=T0 + 12, values={"x": 2.0}))
    for writer in ("rank", "node"):
        write(run, StreamName(writer, 0, 2), Finish(time=T0 + 13, status="finished", exit_code=0))
    deliver()
    if late == "after":
        describe()
        deliver()
    entry = delivery_report(run, ["csv"])["csv"]
    assert (entry["state"], entry["waiting_bytes"]) == ("delivered", 0)
    assert read_account(run, "csv").closed == "finished"
    assert (run.path / "metrics.csv").read_text().count("\n") == 3


@pytest.mark.slow
def test_torn_tail_of_killed_training_leaves_nothing_waiting(tmp_path: Path) -> None:
    """Training killed within a write, and never resumed: one sync says that all is delivered."""
    journal = prepared.train(tmp_path / "run", changes=["torn_journal"])
    assert not journal.run.stream(StreamName("rank", 0, 1)).read_bytes().endswith(b"\n")
    assert prepared.sync(journal, "json") == 0, (journal.directory / "output.txt").read_text()
    assert delivery_report(journal.run, ["json"])["json"]["closed"] == "crashed"


def test_torn_tail_is_no_size(tmp_path: Path) -> None:
    """Complete lines count, however long the tail behind them is, and a file without any counts nothing."""
    run = RunDirectory(tmp_path / "run")
    run.make()
    for number, (content, size) in enumerate(
        [(b"", 0), (b"a\n", 2), (b"a\nb", 2), (b"b" * 200_000, 0), (b"a\n" + b"b" * 200_000, 2)]
    ):
        run.stream(StreamName("rank", number, 1)).write_bytes(content)
        assert run.sizes()[f"rank-{number}.1"] == size
