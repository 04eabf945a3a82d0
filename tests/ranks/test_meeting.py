"""How nodes find the main node: through torch's store, without waiting for it, or by options."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import wait_for
from trackers.errors import UsageError
from trackers.ranks import launch, meeting
from trackers.ranks.meeting import Announcing, Finding, Meeting

HERE = Meeting(["10.0.0.1"], 29_000, "0123456789abcdef", "0f" * 32)
MOVED = Meeting(["10.0.0.2"], 29_001, "0123456789abcdef")


class Store:
    """Torch's, as far as it is used: a get of a key that isn't there waits, and keeps others waiting."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.calls: list[str] = []

    def check(self, keys: list[str]) -> bool:
        self.calls.append("check")
        return all(key in self.values for key in keys)

    def get(self, key: str) -> bytes:
        self.calls.append("get")
        assert key in self.values, "would wait"
        return self.values[key]

    def set(self, key: str, value: bytes) -> None:
        self.calls.append("set")
        self.values[key] = bytes(value)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Store]]:
    """What torch's store is now: none, or the one in the list."""
    now: list[Store] = []
    monkeypatch.setattr(meeting, "_store", lambda: now[0] if now else None)
    monkeypatch.setattr(meeting, "FIRST_S", 0.001)
    monkeypatch.setattr(meeting, "LAST_S", 0.01)
    before = set(threading.enumerate())
    yield now
    now.append(Store())
    for thread in set(threading.enumerate()) - before:
        thread.join(20.0)


def folders(tmp_path: Path) -> tuple[Path, Path]:
    """A launch's folder on the main node and on another one."""
    found = tmp_path / "a/.ranks/launch", tmp_path / "b/.ranks/launch"
    for folder in found:
        folder.mkdir(parents=True)
    return found


def test_address_goes_through_the_store_of_torch(store: list[Store], tmp_path: Path) -> None:
    """Whichever side is first, and torch.distributed last: one set, and no get that could wait."""
    main, other = folders(tmp_path)
    said: list[str] = []
    announcing, finding = Announcing(main), Finding(other, said.append)
    meeting.write(main, HERE)
    store.append(Store())
    wait_for(lambda: meeting.read(other) is not None)
    assert meeting.read(other) == HERE
    wait_for(lambda: announcing._announced is not None)
    for _ in range(100):
        announcing.poll()
        finding.poll()
    finding._thread.join(20.0)
    assert store[0].calls.count("set") == store[0].calls.count("get") == 1
    assert said == []


def test_main_node_that_moved_is_found_again(store: list[Store], tmp_path: Path) -> None:
    """A helper that listens at another port after a restart is announced anew; a node that lost it asks once more."""
    main, other = folders(tmp_path)
    store.append(Store())
    meeting.write(main, HERE)
    announcing, finding = Announcing(main), Finding(other, print)
    wait_for(lambda: meeting.read(other) == HERE and announcing._announced is not None)
    meeting.write(main, MOVED)
    wait_for(lambda: announcing.poll() or MOVED.addresses[0].encode() in next(iter(store[0].values.values())))  # type: ignore[func-returns-value]
    finding._thread.join(20.0)
    finding.poll()
    assert meeting.read(other) == HERE
    (other / launch.LOST_MAIN).touch()
    finding.poll()
    wait_for(lambda: meeting.read(other) == MOVED)
    assert not (other / launch.LOST_MAIN).exists()


def test_main_node_that_cannot_be_found_is_said_once(store: list[Store], tmp_path: Path) -> None:
    """With the reason, and what to set."""
    said: list[str] = []
    _, other = folders(tmp_path)
    finding = Finding(other, said.append, unfound_s=0.0)
    wait_for(lambda: said)
    finding.end()
    finding._thread.join(20.0)
    (text,) = said
    assert "torch.distributed isn't initialised" in text
    assert "set TRACKER_NODES_SECRET, TRACKER_NODES_PORT and MASTER_ADDR" in text


@pytest.mark.parametrize("content", [b"", b"[" * 5000, b"{}", b'{"addresses":[],"port":1,"secret":"0123456789abcdef"}'])
def test_what_the_store_says_is_data(content: bytes, store: list[Store], tmp_path: Path) -> None:
    """Something that is no address isn't noted; it is looked for further."""
    _, other = folders(tmp_path)
    store.append(Store())
    store[0].values["trackers/nodes/launch"] = content
    finding = Finding(other, print)
    wait_for(lambda: store[0].calls.count("get") > 2)
    assert meeting.read(other) is None
    finding.end()


def test_options_that_name_the_main_node_go_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """What lacks is said before the first step."""
    secret = "0123456789abcdef"
    monkeypatch.setenv("TRACKER_NODES_SECRET", "short")
    with pytest.raises(UsageError, match="has 5 characters: give 16 or more"):
        meeting.check({})
    monkeypatch.setenv("TRACKER_NODES_SECRET", secret)
    with pytest.raises(UsageError, match="needs TRACKER_NODES_PORT"):
        meeting.check({})
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with pytest.raises(UsageError, match="needs TRACKER_NODES_ADDRESS, or MASTER_ADDR"):
        meeting.check({"TRACKER_NODES_PORT": 29_000})
    whole: dict[str, Any] = {"TRACKER_NODES_PORT": 29_000, "TRACKER_NODES_ADDRESS": "fd00::1"}
    meeting.check(whole)
    assert meeting.from_options(whole) == Meeting(["fd00::1"], 29_000, secret)
    monkeypatch.setenv("MASTER_ADDR", "gpu-1")
    assert meeting.from_options(whole | {"TRACKER_NODES_ADDRESS": ""}) == Meeting(["gpu-1"], 29_000, secret)
    monkeypatch.delenv("TRACKER_NODES_SECRET")
    assert meeting.from_options(whole) is None


def test_order_to_listen_holds_a_new_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the loopback where the launcher names it; at all addresses where others must come in."""
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    meeting.listen(tmp_path, {}, True)
    one = meeting.read_order(tmp_path)
    monkeypatch.setenv("MASTER_ADDR", "gpu-1")
    meeting.listen(tmp_path, {}, True)
    two = meeting.read_order(tmp_path)
    assert one is not None
    assert two is not None
    assert (one.address, one.named) == ("127.0.0.1", ["127.0.0.1"])
    assert (two.address, two.named) == ("", ["gpu-1"])
    assert len(one.secret) == 64
    assert one.secret != two.secret
    assert one.tls
    assert meeting.addresses(one) == ["127.0.0.1"]
    plain = {"TRACKER_NODES_TLS": "off"}
    meeting.listen(tmp_path, plain, False)  # the main rank is elsewhere: MASTER_ADDR names another machine
    other = meeting.read_order(tmp_path)
    assert other is not None
    assert (other.named, other.towards, other.tls) == ([], "gpu-1", False)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    assert socket.gethostname() in meeting.addresses(other)
