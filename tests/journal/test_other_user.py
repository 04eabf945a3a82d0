"""Delivering runs of another account from a directory that both can write: whatever lies there, only runs are read."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from tests.analysis.support import write_run
from tests.journal.test_trust import STRANGER, tree
from trackers.journal.run_directory import RunDirectory
from trackers.relay.delivery.cursor_file import read_account
from trackers.relay.sync import Follower

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: files of another account")
ROWS = [(step, step / 10, {"loss": 1 / step}) for step in range(1, 4)]
LEASES = ("relay.lease", "reducer.lease", "delivery/json.lease")
GROWING = ("relay.log", "messages.jsonl", "delivery/json.order", "delivery/json.rejected.jsonl")
STATES = ("delivery/json.json",)


def plant(run: Path, victim: Path) -> None:
    """What an account that knows the names of all files puts in their places; which, the run's name says."""
    kind = run.name
    if kind == "links":
        for name in (*GROWING, *STATES, *LEASES):
            (run / name).symlink_to(victim / "precious.txt")
    elif kind == "dangling":
        for name in (*GROWING, *STATES, *LEASES):
            (run / name).symlink_to(victim / f"new-{Path(name).name}")
    elif kind == "pipes":
        for name in (*GROWING, *STATES, *LEASES):
            os.mkfifo(run / name)
    elif kind == "folders":
        (run / "delivery").rmdir()
        (run / "delivery").symlink_to(victim)
        (run / "json").symlink_to(victim)
    elif kind == "stream":
        (run / "streams/rank-0.1.jsonl").unlink()
        os.mkfifo(run / "streams/rank-0.1.jsonl")
    elif kind == "endless":
        (run / "streams/rank-0.1.jsonl").unlink()
        (run / "streams/rank-0.1.jsonl").symlink_to("/dev/zero")
    elif kind == "identity":
        (run / "run.json").unlink()
        os.mkfifo(run / "run.json")
    elif kind == "nonsense":
        content = json.loads((run / "run.json").read_bytes())
        content |= {"attempts": [{"number": "x"}, {}], "trackers": ["../../victim/x", "json", ""], "pid": 2**70}
        (run / "run.json").write_text(json.dumps(content))
    elif kind == "names":
        (run / "media").rmdir()
        (run / "media").symlink_to(victim)
        state = {"seq": 1, "state": {"book": {"file": str(victim / "precious.txt"), "lengths": {"../../victim/x": 3}}}}
        (run / "delivery/json.json").write_text(json.dumps(state))


@pytest.mark.processes
def test_follow_serves_the_good_and_is_led_nowhere_by_the_rest(tmp_path: Path) -> None:
    """Links, pipes, devices and nonsense in the place of every file: nothing of the reader's is touched or shown, no
    run holds another up, and a plain run of the other account is delivered."""
    victim = tmp_path / "victim"
    victim.mkdir(mode=0o700)
    (victim / "precious.txt").write_text("precious")
    kinds = ("links", "dangling", "pipes", "folders", "stream", "endless", "identity", "nonsense", "names", "plain")
    for kind in kinds:
        run = write_run(kind, ROWS, options={"JSON_DIR": str(victim)}, cwd=str(victim))
        plant(run, victim)
        for path in (run, *run.rglob("*")):
            os.chown(path, STRANGER, STRANGER, follow_symlinks=False)
    before = tree(victim)
    complaints: list[str] = []
    give_up = time.monotonic() + 60

    def plain_is_delivered() -> bool:
        accounts = [read_account(RunDirectory(Path("runs/digits", name)), "json") for name in ("plain", "nonsense")]
        return all(account.closed for account in accounts) or time.monotonic() > give_up

    Follower([Path("runs")], ["json"], lambda work: None, say=complaints.append, jobs=20).serve(plain_is_delivered)
    assert tree(victim) == before
    found = {path.parent.name: path for path in Path("runs").glob("*/*/*_20*.json")}
    assert {"plain", "nonsense"} <= set(found)
    assert "precious" not in "".join(path.read_text() for path in found.values())
    assert json.loads(found["plain"].read_bytes())["summary"]["status"] == "finished"
    assert {path.name for path in tmp_path.iterdir()} <= {"runs", "victim", "home"}
    assert RunDirectory(found["plain"].parent).deliveries() == ["json"]
