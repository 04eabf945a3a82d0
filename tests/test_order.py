"""The order of records over several streams is the same after every restart."""

from __future__ import annotations

import random
from pathlib import Path

from trackers.journal import StreamWriter
from trackers.records import Finish, Metrics, Record, Start, encode
from trackers.relay.order import Order, Position
from trackers.rundir import RunDirectory, StreamName

T0 = 1_763_688_000.0


def _writer(run: RunDirectory, name: str) -> StreamWriter:
    parsed = StreamName.parse(name)
    assert parsed is not None
    return StreamWriter(run.stream(parsed))


def _metrics(step: int, time: float) -> bytes:
    return encode(Metrics(step=step, time=time, values={"x": step}))


def _keys(records: list[Record]) -> list[tuple[int, str]]:
    return [(record.seq, record.id) for record in records]


def test_order_is_stable_when_killed_anywhere(tmp_path: Path) -> None:
    """Whatever was given out under a number before a restart is given out under it again."""
    for seed in range(40):
        rng = random.Random(seed)
        run = RunDirectory(tmp_path / str(seed))
        run.make()
        writers = [_writer(run, "rank-0.1"), _writer(run, "node-0.1")]
        given: dict[int, str] = {}
        committed = Position()
        order = Order(run, run.delivery / "t.order", committed)
        written = 0
        for _ in range(60):
            action = rng.random()
            if action < 0.5:
                for _ in range(rng.randint(1, 20)):
                    # node records come late: older times than what rank records already had
                    late = rng.random() < 0.3
                    writers[late].write(_metrics(written, T0 + written - (15 if late else 0)))
                    written += 1
            elif action < 0.9:
                for record in order.read(rng.randint(1, 15)):
                    assert given.setdefault(record.seq, record.id) == record.id
                if rng.random() < 0.5:
                    committed = Position(order.position.seq, dict(order.position.offsets))
            else:
                order.close()
                order = Order(run, run.delivery / "t.order", committed)
                if rng.random() < 0.5:
                    order.seek_seq(rng.randint(0, committed.seq))
        while records := order.read(7):
            for record in records:
                assert given.setdefault(record.seq, record.id) == record.id
        assert sorted(given) == list(range(1, written + 1))
        assert len(set(given.values())) == written


def test_order_merges_streams_by_time(tmp_path: Path) -> None:
    """Records that wait in two streams come in the order of their times."""
    run = RunDirectory(tmp_path)
    run.make()
    rank, node = _writer(run, "rank-0.1"), _writer(run, "node-0.1")
    for k in range(10):
        rank.write(_metrics(k, T0 + k))
    for k in range(3):
        node.write(_metrics(100 + k, T0 + 2.5 + 3 * k))
    records = Order(run, run.delivery / "t.order").read(100)
    assert [record.time for record in records] == sorted(record.time for record in records)
    assert len(records) == 13


def test_order_lost_file_begins_anew_without_loss(tmp_path: Path) -> None:
    """If the order's file is gone, reading from the start still gives every record once."""
    run = RunDirectory(tmp_path)
    run.make()
    rank = _writer(run, "rank-0.1")
    for k in range(30):
        rank.write(_metrics(k, T0 + k))
    order = Order(run, run.delivery / "t.order")
    order.read(20)
    position = order.position
    order.close()
    (run.delivery / "t.order").unlink()
    order = Order(run, run.delivery / "t.order", position)
    assert [record.step for record in order.read(100)] == list(range(20, 30))
    order.seek_seq(5)
    assert order.position.seq == 0
    assert [record.step for record in order.read(100)] == list(range(30))


def test_order_ignores_what_a_superseded_attempt_writes_later(tmp_path: Path) -> None:
    """Records of attempt 1 with a time after attempt 2 began don't belong to the run."""
    run = RunDirectory(tmp_path)
    run.make()
    old = _writer(run, "rank-0.1")
    old.write(encode(Start(time=T0)) + _metrics(0, T0 + 1))
    new = _writer(run, "rank-0.2")
    new.write(encode(Start(time=T0 + 10, attempt=2)) + _metrics(1, T0 + 11))
    old.write(_metrics(99, T0 + 12))
    order = Order(run, run.delivery / "t.order")
    steps = [record.step for record in order.read(100) if isinstance(record, Metrics)]
    assert steps == [0, 1]
    assert not order.ended()
    new.write(encode(Finish(time=T0 + 13, status="finished")))
    assert not order.ended()
    order.read(10)
    assert order.ended()


def test_order_ended_waits_for_the_relay_that_wrote(tmp_path: Path) -> None:
    """Where a relay has a stream, its finish record is the last word, not the rank's."""
    run = RunDirectory(tmp_path)
    run.make()
    rank, node = _writer(run, "rank-0.1"), _writer(run, "node-0.1")
    rank.write(encode(Start(time=T0)) + encode(Finish(time=T0 + 1, status="finished")))
    node.write(encode(Start(time=T0)))
    order = Order(run, run.delivery / "t.order")
    order.read(10)
    assert not order.ended()
    node.write(encode(Finish(time=T0 + 2, status="finished")))
    order.read(10)
    assert order.ended()
