"""Runs in a bucket of moto's server: S3's own protocol, conditional requests, faults, and a server that is away."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import trackers
from tests.object_storage import cloud_check
from tests.object_storage.support import BucketServer, contents, grow, run_directory
from trackers.errors import NotFound, Refused, Unavailable
from trackers.object_storage import addresses, mirror
from trackers.object_storage.shipping import Sender, claim_attempt
from trackers.object_storage.store import Store

WHERE = "s3://bucket/runs of mine"
HOME = "p%2Fq/abc"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[BucketServer]:
    found = BucketServer()
    found.start()
    for name, value in found.variables().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TRACKER_STORE_DIR", str(tmp_path / "node-a"))
    monkeypatch.chdir(tmp_path)
    try:
        yield found
    finally:
        found.stop()


def test_run_goes_through_a_bucket_as_it_is(server: BucketServer, tmp_path: Path) -> None:
    """Names with spaces and percent signs, pieces, media; what is new alone; what was deleted."""
    run = run_directory(tmp_path / "p%2Fq" / "abc")
    sender = Sender(Store(WHERE), run, HOME)
    for _ in range(5):
        grow(run, 3)
        sender.send()
    sender.finish()
    mirror.copy(WHERE, tmp_path / "copy")
    assert contents(tmp_path / "copy" / HOME) == contents(run)
    assert sum("/streams/" in one.name for one in Store(WHERE).objects()) == 1


def test_attempt_can_be_claimed_once(server: BucketServer, tmp_path: Path) -> None:
    """By S3's ``If-None-Match``."""
    store = Store(WHERE)
    assert store.create("claim", b"a")
    assert not store.create("claim", b"b")
    run = run_directory(tmp_path / "abc")
    claim_attempt(store, run, HOME, 1)
    claim_attempt(store, run, HOME, 1)  # it is this one's


def test_missing_things_are_named(server: BucketServer) -> None:
    """An object, a bucket, a server."""
    with pytest.raises(NotFound):
        b"".join(Store(WHERE).chunks("nothing", 10))
    with pytest.raises(Refused, match="no such bucket"):
        list(Store("s3://other/runs").objects())
    with pytest.raises(Refused, match="no such bucket"):
        Store("s3://other/runs").put("a", b"b")
    server.stop()
    with pytest.raises(Unavailable) as said:
        list(Store(WHERE).objects())
    because = "HTTP error: error sending request: connection refused"
    assert str(said.value) == f"{WHERE} can't be reached, or fails: {because}"


def test_thousand_objects_are_listed_page_by_page(server: BucketServer) -> None:
    """S3 answers with a thousand names at a time."""
    store = Store(WHERE)
    for number in range(1100):
        store.put(f"p/{number}/run.json", b"{}")
    assert len(mirror.stored_runs(store)) == 1100
    assert len(mirror.stored_runs(store, "p/7")) == 1


def test_promises_are_kept_on_this_server(server: BucketServer) -> None:
    """All steps of ``make cloud-check``, which tries them on a real cloud's store."""
    said: list[str] = []
    assert cloud_check.check("s3://bucket/check", said.append) == 0, "\n".join(said)
    assert list(Store("s3://bucket/check").objects()) == []


def test_run_is_written_through_an_outage_and_continued_elsewhere(
    server: BucketServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``init``, ``log`` and ``finish`` with the relay; the server comes when training is half done."""
    server.stop()
    monkeypatch.setenv("TRACKER_STORE_EVERY", "1")
    monkeypatch.setenv("TRACKER_AGENT", "n")
    run = trackers.init("json", project="digits", name="outage", dir=WHERE)
    run_id = run.id
    for step in range(20):
        run.log({"loss": float(step)}, step=step)
    server.start()
    for step in range(20, 40):
        run.log({"loss": float(step)}, step=step)
    run.finish(timeout=120)
    assert run.status()["storage"]["state"] == "delivered"
    monkeypatch.setenv("TRACKER_STORE_DIR", str(tmp_path / "node-b"))
    later = trackers.init("json", project="digits", id=run_id, resume="must", dir=WHERE)
    assert later.step == 39
    later.log({"loss": 40.0}, step=40)
    later.finish(timeout=120)
    root = mirror.update_copy(addresses.normalize(WHERE), str(tmp_path / "reader"))
    frame = trackers.load(str(root / "digits" / run_id)).metrics()
    assert frame["loss"].to_pylist() == [float(step) for step in range(41)]
