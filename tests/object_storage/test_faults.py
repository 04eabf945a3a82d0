"""A run goes through a bucket whose connections break and whose answers are late, wrong or lost."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.s3_proxy import FAULTS, S3Proxy
from tests.object_storage.support import BucketServer, contents, grow, run_directory
from trackers.errors import Fatal, Refused, Unavailable
from trackers.object_storage import mirror, store
from trackers.object_storage.clock import StoreClock
from trackers.object_storage.shipping import Sender, claim_attempt
from trackers.object_storage.store import Store

WHERE = "s3://bucket/runs"
HOME = "p/abc"


@pytest.fixture(scope="module")
def server() -> Iterator[BucketServer]:
    """One server for all: each test has a prefix of its own."""
    found = BucketServer()
    found.start()
    yield found
    found.stop()


@pytest.fixture
def proxy(server: BucketServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Proxy]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setattr(store, "TIMEOUT_S", 5.0)
    monkeypatch.setattr(store, "RETRY_S", 2.0)
    with S3Proxy(server.url) as found:
        monkeypatch.setenv("AWS_ENDPOINT_URL", found.url)
        yield found


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_loses_and_doubles_nothing(fault: str, proxy: S3Proxy, tmp_path: Path) -> None:
    """A third of all requests meets with it, on both sides; the reader always has a beginning of what was written."""
    chance = random.Random(fault)
    where = f"{WHERE}/{fault}"
    run = run_directory(tmp_path / "run")
    sender = None
    proxy.faults = (fault,)
    for turn in range(12):
        grow(run, chance.randrange(20))
        if turn == 6:
            (run / "media/13/late.npy").write_bytes(b"later" * 100)
        proxy.chance = 0.3
        with contextlib.suppress(Unavailable, Refused):
            if sender is None or chance.random() < 0.2:
                sender = Sender(Store(where), run, HOME)
            sender.send()
        with contextlib.suppress(Unavailable, Refused):
            mirror.copy(where, tmp_path / "copy")
        for name, content in contents(tmp_path / "copy" / HOME).items():
            if name.startswith("streams/"):
                assert (run / name).read_bytes().startswith(content)
    proxy.chance = 0.0
    Sender(Store(where), run, HOME).finish()
    if fault == "garbled":  # pieces have a digest; of other files, the reader believes what it gets
        mirror.copy(where, tmp_path / "new")
        assert contents(tmp_path / "new" / HOME) == contents(run)
        run_streams, copied = run / "streams", tmp_path / "copy" / HOME / "streams"
        mirror.copy(where, tmp_path / "copy")
        assert {path.name: path.read_bytes() for path in copied.iterdir()} == {
            path.name: path.read_bytes() for path in run_streams.iterdir()
        }
        return
    mirror.copy(where, tmp_path / "copy")
    assert contents(tmp_path / "copy" / HOME) == contents(run)
    assert proxy.happened[fault] > 0


def test_attempt_whose_claim_was_answered_by_silence_is_this_one_s(proxy: S3Proxy, tmp_path: Path) -> None:
    """The store has created it, the answer was lost: asked again, it says that somebody has it, who is this one."""
    run = run_directory(tmp_path / "run")
    proxy.faults, proxy.chance = ("lost",), 1.0
    with pytest.raises(Unavailable):
        claim_attempt(Store(f"{WHERE}/claim"), run, HOME, 1)
    proxy.chance = 0.0
    claim_attempt(Store(f"{WHERE}/claim"), run, HOME, 1)
    other = run_directory(tmp_path / "other")
    (other / "streams/rank-0.1.jsonl").write_text('{"kind":"start","host":"b"}\n')
    with pytest.raises(Fatal, match="attempt 1 was begun on"):
        claim_attempt(Store(f"{WHERE}/claim"), other, HOME, 1)


def test_bytes_that_were_changed_on_the_way_are_not_taken(proxy: S3Proxy, tmp_path: Path) -> None:
    """A piece's name has its digest."""
    run = run_directory(tmp_path / "run")
    Sender(Store(f"{WHERE}/changed"), run, HOME).send()
    proxy.faults, proxy.chance = ("garbled",), 1.0
    with pytest.raises((Unavailable, Refused)):
        mirror.copy(f"{WHERE}/changed", tmp_path / "copy")
    assert not (tmp_path / "copy" / HOME / "streams/rank-0.1.jsonl").exists()


def test_clock_of_this_machine_that_is_wrong_is_named(proxy: S3Proxy, tmp_path: Path) -> None:
    """S3 refuses requests that are more than 15 minutes off: keys aren't what is wrong then."""
    proxy.skewed = True
    with pytest.raises(Refused, match="this machine's clock"):
        Store(f"{WHERE}/skew").put("a", b"b")


def test_store_with_another_clock_is_compared_with(proxy: S3Proxy) -> None:
    """What it says of when it wrote an object is enough."""
    proxy.ahead_s = 7200.0
    held, clock = Store(f"{WHERE}/clock"), StoreClock()
    for _ in range(3):
        began = time.time()
        held.put("now", b"x")
        clock.add(began, time.time(), held.written_at("now"))
    assert abs(clock.ahead_s + 7200) <= clock.within_s + 0.01
    assert clock.within_s < 2
