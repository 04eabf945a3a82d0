"""The store as a tracker: when it sends, and what a copy says of its delivery."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.object_storage.support import contents, grow, run_directory
from trackers.backends.storage import tracker as module
from trackers.backends.storage.tracker import StorageTracker
from trackers.journal.lease import Lease
from trackers.object_storage import mirror, others
from trackers.object_storage.store import Store
from trackers.tracker import Cursor, RunInfo, State, Status


@pytest.fixture
def info(tmp_path: Path) -> RunInfo:
    """A run in a directory, to be sent to a store beside it, with a delivery that has just begun."""
    run = run_directory(tmp_path / "p" / "abc")
    (run / "delivery/storage.json").write_text('{"tracker": "storage", "seq": 3, "closed": ""}')
    options = {"TRACKER_DIR": f"file://{tmp_path}/store", "TRACKER_STORE_EVERY": 5}
    return RunInfo(id="abc", name="a", project="p", trackers=["storage"], directory=str(run), options=options)


def copy(tmp_path: Path) -> Path:
    """The run as a reader gets it."""
    mirror.copy(f"file://{tmp_path}/store", tmp_path / "copy")
    return tmp_path / "copy" / "p" / "abc"


def test_it_sends_as_often_as_it_is_told(info: RunInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first time at once, then each so many seconds, whether records come or not."""
    now = 1000.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    tracker = StorageTracker()
    state = State({})
    tracker.open(info, state)
    assert state["url"] == f"file://{tmp_path}/store/p/abc"
    tracker.write([], Cursor(1))
    before = (copy(tmp_path) / "streams/rank-0.1.jsonl").read_bytes()
    grow(Path(info.directory), 2)
    now += 4.9
    tracker.tick()
    assert (copy(tmp_path) / "streams/rank-0.1.jsonl").read_bytes() == before
    now += 0.2
    tracker.tick()
    assert contents(copy(tmp_path) / "streams") == contents(Path(info.directory, "streams"))


def test_store_knows_of_the_delivery_before_a_long_backlog(info: RunInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    """Media of minutes come first: a reader sees the run, its trackers' place and that it lives, not "not begun"."""
    written: list[str] = []
    put = Store.put
    monkeypatch.setattr(Store, "put", lambda self, name, content: [written.append(name), put(self, name, content)][1])
    tracker = StorageTracker()
    tracker.open(info, State({}))
    tracker.tick()
    assert written[:2] == ["p/abc/run.json", "p/abc/delivery/storage.json"]
    assert written[2] == "p/abc/media/13/13db.npy"


def test_copy_says_what_the_store_has(info: RunInfo, tmp_path: Path) -> None:
    """While the run goes on, and that it has all of it at the end."""
    tracker = StorageTracker()
    tracker.open(info, State({}))
    tracker.tick()
    assert json.loads((copy(tmp_path) / "delivery/storage.json").read_text())["closed"] == ""
    tracker.close(Status("finished", exit_code=0))
    assert json.loads((copy(tmp_path) / "delivery/storage.json").read_text()) == {
        "tracker": "storage", "seq": 3, "closed": "finished",
        "state": {"url": f"file://{tmp_path}/store/p/abc", "others": {}},
    }  # fmt: skip


def test_end_waits_for_the_other_trackers(info: RunInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a copy says that they are complete; not for one that meets with errors, and not for ever."""
    info.trackers = ["json", "storage"]
    path = Path(info.directory, "delivery/json.json")
    path.write_text('{"closed": "", "error": ""}')
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            path.write_text('{"closed": "finished", "error": ""}')

    monkeypatch.setattr(module.time, "sleep", sleep)
    tracker = StorageTracker()
    tracker.open(info, State({}))
    tracker.close(Status("finished"))
    assert len(slept) == 3
    assert json.loads((copy(tmp_path) / "delivery/json.json").read_text())["closed"] == "finished"
    for content in ('{"closed": "", "error": "no route"}', '{"closed": "", "error": "", "stopped": true}'):
        path.write_text(content)
        tracker.open(info, State({}))
        tracker.close(Status("finished"))
        assert len(slept) == 3
    path.write_text('{"closed": "", "error": ""}')
    monkeypatch.setattr(module, "OTHERS_S", 0.0)
    tracker.open(info, State({}))
    tracker.close(Status("finished"))


@pytest.mark.parametrize("awaited", ["delivery/json.json", "code-1.modules"])
def test_end_waits_for_what_the_relay_will_do(
    info: RunInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, awaited: str
) -> None:
    """A delivery that it hasn't started yet, and the code that it keeps; where no relay lives, for neither."""
    info.trackers = ["json", "storage"]
    run = Path(info.directory)
    account, spool = run / "delivery/json.json", run / "code-1.modules"
    if awaited == "code-1.modules":
        account.write_text('{"closed": "finished", "error": ""}')
        spool.write_text("{}")
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            account.write_text('{"closed": "finished", "error": ""}')
            spool.unlink(missing_ok=True)
            (run / "code-1.json").write_text("{}")

    monkeypatch.setattr(module.time, "sleep", sleep)
    tracker = StorageTracker()
    tracker.open(info, State({}))
    tracker.close(Status("finished"))
    assert not slept
    relay = Lease(run / "relay.lease")
    assert relay.acquire()
    tracker.open(info, State({}))
    tracker.close(Status("finished"))
    assert len(slept) == 3
    there = copy(tmp_path)
    assert json.loads((there / "delivery/json.json").read_text())["closed"] == "finished"
    assert (there / "code-1.json").exists()
    assert not (there / "code-1.modules").exists()


def test_store_is_outdated_by_what_others_have_done(info: RunInfo, tmp_path: Path) -> None:
    """How far they are, and that the code is kept; not by another text of the same outage."""
    run, state = Path(info.directory), State({})
    account, spool = run / "delivery/json.json", run / "code-1.modules"
    account.write_text('{"closed": "", "delivered": 3, "error": "no route"}')
    spool.write_text("{}")
    assert not others.outdated(run, state)
    tracker = StorageTracker()
    tracker.open(info, state)
    tracker.close(Status("finished"))
    assert not others.outdated(run, state)
    assert not others.outdated(copy(tmp_path), {**state, "others": {"json": state["others"]["json"]}})
    account.write_text('{"closed": "", "delivered": 3, "error": "refused", "time": 7}')
    (run / "delivery/storage.json").write_text('{"tracker": "storage", "seq": 4, "closed": "finished"}')
    (run / "delivery/json.order").write_text("1")
    assert not others.outdated(run, state)
    account.write_text('{"closed": "finished", "delivered": 3, "error": ""}')
    assert others.outdated(run, state)
    account.write_text('{"closed": "", "delivered": 3, "error": "no route"}')
    spool.unlink()
    assert others.outdated(run, state)
    (run / "delivery/csv.json").write_text("{")
    tracker.open(info, state)
    tracker.close(Status("finished"))
    assert not others.outdated(run, state)
