"""The stand-in for S3 that counts: objects and ranges, creation that one writer wins, pages, parts, deletions."""

from __future__ import annotations

import pytest

from tests.fakes.counting_s3 import PAGE, CountingS3
from trackers.errors import NotFound
from trackers.object_storage.store import Store


@pytest.mark.processes
def test_store_has_what_it_was_given_and_says_what_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store's client gets back what it put, however long and under whatever name, and each request is counted."""
    long = bytes(range(256)) * 4096 * 12
    with CountingS3() as server:
        for name, value in server.variables("me").items():
            monkeypatch.setenv(name, value)
        store = Store("s3://bucket/a b")
        store.put("x/y&z", b"hello")
        assert (store.get("x/y&z", 10), store.part("x/y&z", 1, 3), store.exists("nope")) == (b"hello", b"el", False)
        assert (store.create("c", b"1"), store.create("c", b"2")) == (True, False)
        assert server.counts()["me"] == {"PUT": 3, "GET": 2, "HEAD": 1, "in": 6, "out": 7, "refused": 1}
        store.put("long", long)
        assert store.get("long", len(long)) == long
        for number in range(PAGE + 3):
            store.put(f"many/{number:05d}", b"x")
        assert len(list(store.objects("many"))) == PAGE + 3
        assert [one.name for one in store.objects("many", f"many/{PAGE:05d}")] == [
            f"many/0{PAGE + 1}",
            f"many/0{PAGE + 2}",
        ]
        store.delete(["c", "x/y&z"])
        assert sorted(one.name for one in store.objects() if not one.name.startswith("many/")) == ["long"]
        with pytest.raises(NotFound):
            store.get("c", 10)
