"""The order of records over several streams is the same after every restart."""

from __future__ import annotations

import math
import os
import random
import socket
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers import run_info
from trackers.journal.run_directory import RunDirectory, StreamName
from trackers.journal.stream import StreamReader, StreamWriter
from trackers.records import Finish, Metrics, Record, Start, encode
from trackers.relay.delivery.merge_order import Order, OrderLog, Position, Switch
from trackers.support.machines import boot_id
from trackers.support.processes import process_start

T0 = 1_763_688_000.0


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """A run without streams."""
    run = RunDirectory(tmp_path)
    run.make()
    return run


def _writer(run: RunDirectory, name: str) -> StreamWriter:
    parsed = StreamName.parse(name)
    assert parsed is not None
    return StreamWriter(run.stream(parsed))


def _metrics(step: int, time: float) -> bytes:
    return encode(Metrics(step=step, time=time, values={"x": step}))


def _keys(records: list[Record]) -> list[tuple[int, str]]:
    return [(record.seq, record.id) for record in records]


@pytest.mark.heavy
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


def test_order_merges_streams_by_time(run: RunDirectory) -> None:
    """Records that wait in two streams come in the order of their times."""
    rank, node = _writer(run, "rank-0.1"), _writer(run, "node-0.1")
    for k in range(10):
        rank.write(_metrics(k, T0 + k))
    for k in range(3):
        node.write(_metrics(100 + k, T0 + 2.5 + 3 * k))
    records = Order(run, run.delivery / "t.order").read(100)
    assert [record.time for record in records] == sorted(record.time for record in records)
    assert len(records) == 13


def test_ranks_wait_for_values_across_ranks_of_their_step(run: RunDirectory) -> None:
    """What a rank logged later than the first missing one waits; other streams go on, and the end isn't reached."""
    held = T0 + 2.0
    order = Order(run, run.delivery / "t.order", held_from=lambda: held)
    rank, sampler, reducer = (_writer(run, name) for name in ("rank-0.1", "sampler-0.1", "reducer-0.1"))
    for step in range(5):
        rank.write(_metrics(step, T0 + step))
    rank.write(encode(Finish(time=T0 + 5, status="finished")))
    sampler.write(_metrics(10, T0 + 3.5))
    assert _steps(order) == [0, 1, 2, 10]
    assert not order.ended()
    reducer.write(_metrics(20, T0 + 2))
    held = math.inf
    assert _steps(order) == [20, 3, 4]
    assert order.ended()
    order.close()


def test_order_lost_file_begins_anew_without_loss(run: RunDirectory) -> None:
    """If the order's file is gone, reading from the start still gives every record once."""
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


def test_order_ignores_what_a_superseded_attempt_writes_later(run: RunDirectory) -> None:
    """Records of attempt 1 with a time after attempt 2 began don't belong to the run."""
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


def test_order_ended_waits_for_the_relay_that_wrote(run: RunDirectory) -> None:
    """Where a relay has a stream, its finish record is the last word, not the rank's."""
    rank, node = _writer(run, "rank-0.1"), _writer(run, "node-0.1")
    rank.write(encode(Start(time=T0)) + encode(Finish(time=T0 + 1, status="finished")))
    node.write(encode(Start(time=T0)))
    order = Order(run, run.delivery / "t.order")
    order.read(10)
    assert not order.ended()
    node.write(encode(Finish(time=T0 + 2, status="finished")))
    order.read(10)
    assert order.ended()


def test_order_has_not_ended_before_what_stands_behind_nul_bytes(run: RunDirectory) -> None:
    """A delivery that ended there would leave the rest for ever, since each later one would, too."""
    rank = _writer(run, "rank-0.1")
    rank.write(encode(Start(time=T0)) + b"\0" * 40 + b"\n" + encode(Finish(time=T0 + 1, status="finished")))
    order = Order(run, run.delivery / "t.order")
    assert len(order.read(10)) == 1
    assert not order.ended()
    os.utime(run.streams / "rank-0.1.jsonl", (1e9, 1e9))
    assert len(order.read(10)) == 1
    assert order.ended()


@pytest.mark.parametrize("delivered", [False, True])
def test_order_passes_damaged_lines_that_nothing_follows(run: RunDirectory, delivered: bool) -> None:
    """A stream that ends in them is read to its end, whether they came before or after what was delivered: bytes that
    wait for ever would keep the run from being complete."""
    rank = _writer(run, "rank-0.1")
    rank.write(encode(Start(time=T0)) + encode(Finish(time=T0 + 1, status="finished")))
    order = Order(run, run.delivery / "t.order")
    if delivered:
        order.read(10)
    for name in ("rank-0.1", "console-0.1"):
        with (run.streams / f"{name}.jsonl").open("ab") as file:
            file.write(b"no record\n" * 3)
    while order.read(10):
        pass
    assert order.position.offsets == {path.stem: path.stat().st_size for path in run.streams.glob("*.jsonl")}


def _steps(order: Order) -> list[int]:
    found: list[int] = []
    while records := order.read(5):
        found += [record.step for record in records if record.step is not None]
    return found


@pytest.mark.parametrize("keep", [0, 150, 1000])
@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("grown", [3, 100])
def test_order_goes_on_behind_a_cut(keep: int, restart: bool, grown: int, run: RunDirectory) -> None:
    """A stream cut to ``keep`` bytes while it is written and read: what comes later is given once, nothing twice."""
    rank, node = _writer(run, "rank-0.1"), _writer(run, "node-0.1")
    for k in range(50):
        rank.write(_metrics(k, T0 + k))
    node.write(_metrics(1000, T0 + 20.5))
    order = Order(run, run.delivery / "t.order")
    given = _steps(order)
    os.truncate(rank.path, keep)
    assert _steps(order) == []  # nothing new yet: nothing is concluded
    for k in range(50, 50 + grown):
        rank.write(_metrics(k, T0 + k))
    if restart:
        order.close()
        order = Order(run, run.delivery / "t.order", order.position)
    node.write(_metrics(1001, T0 + 49.5))
    given += _steps(order)
    assert sorted(given) == [*range(50 + grown), 1000, 1001]
    assert order.cut == {"rank-0.1"}
    order.seek_seq(10)  # what the destination says it holds: the records that are gone can't come again, others do once
    again = _steps(order)
    assert len(again) == len(set(again))
    assert [step for step in again if step in range(50, 1000)] == list(range(50, 50 + grown))


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(40))
def test_order_of_a_batch_whose_stream_was_cut_before_it_was_committed(seed: int, run: RunDirectory) -> None:
    """What was given out, wasn't committed and is gone gives its numbers to nobody: new records come behind, once."""
    rng = random.Random(seed)
    rank, node = _writer(run, "rank-0.1"), _writer(run, "node-0.1")
    for k in range(60):
        rank.write(_metrics(k, T0 + k))
        if rng.random() < 0.3:
            node.write(_metrics(1000 + k, T0 + k + 0.5))
    order = Order(run, run.delivery / "t.order")
    given = {record.seq: (record.id, record.step) for record in order.read(rng.randint(1, 30))}
    committed = order.position.copy()
    for _ in range(rng.randint(1, 3)):  # given out, and perhaps sent
        given.update({record.seq: (record.id, record.step) for record in order.read(rng.randint(1, 20))})
    settled = max(given)
    order.close()
    least = committed.offsets.get("rank-0.1", 0)
    os.truncate(rank.path, rng.randint(least, rank.path.stat().st_size))
    whole = rank.path.read_bytes()
    kept = whole.count(b"\n")
    sent = [step for _, step in given.values() if step is not None and step < 1000]
    for k in range(60, 60 + rng.choice([1, 5, 80])):
        rank.write(_metrics(k, T0 + k))
    fresh = rank.path.read_bytes()[len(whole) :].count(b"\n")
    again: dict[int, tuple[str, int | None]] = {}
    position = committed
    for _ in range(3):  # it dies twice on the way, once perhaps with nothing committed
        order = Order(run, run.delivery / "t.order", position)
        for _ in range(rng.randint(1, 4)):
            for record in order.read(rng.randint(1, 15)):
                assert again.setdefault(record.seq, (record.id, record.step)) == (record.id, record.step)
            if rng.random() < 0.5:
                position = order.position.copy()
        order.close()
    order = Order(run, run.delivery / "t.order", position)
    while records := order.read(7):
        for record in records:
            assert again.setdefault(record.seq, (record.id, record.step)) == (record.id, record.step)
    for seq, what in again.items():
        assert given.get(seq, what) == what
        assert (what[1] or 0) not in range(60, 1000) or seq > settled
    steps = [step for _, step in again.values() if step is not None and step < 1000]
    assert sorted(steps) == sorted(set(steps))
    assert set(range(60, 60 + fresh)) <= set(steps)
    assert {step for step in range(kept) if step > max(sent)} <= set(steps)


def test_order_of_a_position_beyond_the_journal_waits(run: RunDirectory) -> None:
    """A journal put back from an older copy gives nothing twice, and then what is new."""
    rank = _writer(run, "rank-0.1")
    for k in range(20):
        rank.write(_metrics(k, T0 + k))
    order = Order(run, run.delivery / "t.order")
    assert len(_steps(order)) == 20
    os.truncate(rank.path, 10 * len(_metrics(5, T0 + 5)))
    order.close()
    order = Order(run, run.delivery / "t.order", order.position)
    assert _steps(order) == []
    rank.write(_metrics(20, T0 + 20))
    assert _steps(order) == [20]


@pytest.mark.parametrize("lives", [True, False])
@pytest.mark.parametrize("back", ["from the start", "from the middle"])
def test_order_waits_for_a_deleted_stream_that_is_put_back(
    back: str, lives: bool, run: RunDirectory, tmp_path: Path
) -> None:
    """What was given out comes again whole, though its stream is away for a while; where nobody lives that puts it
    back, the others go on."""
    pid = os.getpid() if lives else 2**22
    here = {"host": socket.gethostname(), "boot_id": boot_id(), "pid": pid, "pid_start": process_start(os.getpid())}
    run.write_info(run_info(tmp_path, **here))
    rank, node = _writer(run, "rank-0.1"), _writer(run, "node-0.1")
    for k in range(20):
        rank.write(_metrics(k, T0 + k))
        if k % 7 == 5:
            node.write(_metrics(1000 + k, T0 + k + 0.5))
    order = Order(run, run.delivery / "t.order")
    given = {record.id: record.seq for record in order.read(100)}
    rank.path.rename(tmp_path / "deleted")
    assert order.awaited() == (["rank-0.1"] if lives else [])
    order.close()
    order = Order(run, run.delivery / "t.order", None if back == "from the start" else order.position)
    if back == "from the middle":
        if not lives:
            return
        with pytest.raises(FileNotFoundError, match="going to be put back"):
            order.seek_seq(22)
        assert order.read(100) == []
        (tmp_path / "deleted").rename(rank.path)
        order.seek_seq(22)
        assert [record.seq for record in order.read(100)] == [23]
        return
    again = {record.id: record.seq for record in order.read(100)}
    assert bool(again) != lives
    (tmp_path / "deleted").rename(rank.path)
    rank.write(_metrics(20, T0 + 20))
    while records := order.read(5):
        again.update({record.id: record.seq for record in records})
    assert not lives or {name: again[name] for name in given} == given
    assert 20 in [record.step for record in [*StreamReader(rank.path).read(100)] if record.id in again]


def test_order_whose_file_cannot_grow_loses_no_record(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk while a change of stream is written down: the same records come when there is space."""
    rank, node = _writer(run, "rank-0.1"), _writer(run, "node-0.1")
    for k in range(12):
        rank.write(_metrics(k, T0 + k))
        node.write(_metrics(100 + k, T0 + k + 0.5))
    order = Order(run, run.delivery / "t.order")
    real, room = os.write, [0]

    def write(fd: int, data: bytes) -> int:
        if fd != order._fd:
            return real(fd, data)
        if room[0] <= 0:
            raise OSError(28, "No space left on device")
        room[0] -= 1
        part = room[0] == 0 and os.lseek(fd, 0, os.SEEK_CUR)  # the last one only in part
        return real(fd, data[:7] if part else data)

    monkeypatch.setattr("trackers.relay.delivery.merge_order.os.write", write)
    for space in range(7):
        room[0] = space
        with pytest.raises(OSError, match="No space"):
            order.read(24)
    monkeypatch.undo()
    keys = [(record.seq, record.id) for record in order.read(24)]
    assert len({key for _, key in keys}) == 24
    order.close()
    order = Order(run, run.delivery / "t.order")
    again = []
    while records := order.read(24):
        again += _keys(records)
    assert again == keys


def test_order_chosen_but_not_given_out_is_chosen_anew(run: RunDirectory) -> None:
    """Changes that a killed process wrote down for records it never gave out don't disturb the next order."""
    rank, node = _writer(run, "rank-0.1"), _writer(run, "node-0.1")
    for k in range(5):
        rank.write(_metrics(k, T0 + k))
    path = run.delivery / "t.order"
    order = Order(run, path)
    order.read(5)
    order.close()
    with path.open("ab") as file:  # as written for records 6 and 9, before the first line was
        file.write(b'{"seq":6,"stream":"node-0.1","start":0}\n{"seq":9,"stream":"rank-0.1","start":999}\n')
    for k in range(6):
        rank.write(_metrics(5 + k, T0 + 5 + k))
    order = Order(run, path, order.position)
    first = _keys(order.read(100))
    node.write(_metrics(100, T0 + 50))
    first += _keys(order.read(100))
    order.close()
    order = Order(run, path)
    again = []
    while records := order.read(4):
        again += _keys(records)
    assert again[5:] == first
    assert len(again) == 12


STREAMS = ("rank-0.1", "node-0.1", "rank-0.2")


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.integers(1, 5), st.sampled_from(STREAMS), st.integers(-30, 100)), max_size=30),
    st.integers(0, 160),
    st.integers(0, 160),
)
def test_answers_are_those_of_a_plain_list(moves: list[tuple[int, str, int]], seq: int, cut: int) -> None:
    """Whatever comes, streams that were cut and step back included: the same index, ends and bounds."""
    plain: list[Switch] = []
    kept = OrderLog()
    place, at = 0, dict.fromkeys(STREAMS, 50)
    for ahead, stream, further in moves:
        place += ahead
        at[stream] = max(0, at[stream] + further)
        plain.append(Switch(place, stream, at[stream]))
        kept.append(plain[-1])
    if cut % 3 == 0:
        assert kept.cut(cut) == any(switch.seq > cut for switch in plain)
        plain = [switch for switch in plain if switch.seq <= cut]
    assert list(kept) == plain
    assert kept.at(seq) == sum(switch.seq <= seq for switch in plain) - 1
    for index, here in enumerate(plain):
        later = [switch.start for switch in plain[index + 1 :] if switch.stream == here.stream]
        assert kept.next_start(index) == (later[0] if later else None)
        assert kept.bound(index) == (min(later) if later else None)
        last = {switch.stream: place for place, switch in enumerate(plain[:index])}
        assert kept.last_before(index) == sorted(last.values())


@pytest.mark.slow
def test_month_of_samples_takes_little_memory() -> None:
    """Half a million changes, as a month of samples each ten seconds makes: below fifty bytes each."""
    kept = OrderLog()
    for number in range(500_000):
        kept.append(Switch(3 * number + 1, STREAMS[number % 2], 100 * number))
    held = sum(sys.getsizeof(value) for value in vars(kept).values())
    assert held < 50 * 500_000
    assert kept[kept.at(900_001)] == Switch(900_001, STREAMS[0], 100 * 300_000)
    assert kept.last_before(400_000) == [399_998, 399_999]
