"""A sync of runs that their trackers have whole: nothing is started for them."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

import trackers
from trackers.journal.run_directory import RunDirectory, StreamName
from trackers.records import Metrics, encode
from trackers.relay import sync as work
from trackers.relay.sync import RunSync


@pytest.fixture
def delivered() -> RunDirectory:
    """A run that two trackers have whole."""
    run = trackers.init("json,csv", mode="offline", project="p", id="r", options={"TRACKER_RELAY": False})
    for step in range(5):
        run.log({"loss": float(step)}, step=step)
    run.finish()
    directory = RunDirectory(Path("runs/p/r"))
    assert work.sync([directory], (), lambda run: None)
    return directory


def resting(run: RunDirectory, *to: str) -> bool:
    """Whether a sync would start nothing for it."""
    return RunSync(run, to, follow=False, echo=False).rest()


@pytest.mark.processes
def test_delivered_runs_start_nothing(delivered: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand of them cost what reading their accounts does: no process, and each tracker's line as before."""
    copies = [RunDirectory(f"runs/p/copy{number}") for number in range(20)]
    for copy in copies:
        shutil.copytree(delivered.path, copy.path)
    monkeypatch.setattr(subprocess, "Popen", None)
    seen: list[tuple[bool, bool, list[str]]] = []

    def show(run: RunSync) -> None:
        seen.append((run.over, run.complete(), [entry["state"] for entry in run.report().values()]))

    assert work.sync([delivered, *copies], (), show)
    assert seen == [(True, True, ["delivered", "delivered"])] * 21


@pytest.mark.processes
def test_run_that_lacks_anything_does_not_rest(delivered: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """More or less in a stream, another ending, a lost identity, a delivery that stopped, another tracker, a tracker
    to read back, an alert that may wait: each is looked at by the delivery itself."""
    assert resting(delivered)
    assert resting(delivered, "csv")
    assert not resting(delivered, "tensorboard")
    assert not RunSync(delivered, (), follow=False, echo=False, verify=True).rest()
    stream, account = delivered.stream(StreamName("rank", 0, 1)), delivered.delivery_state("csv")
    whole, state = stream.read_bytes(), account.read_bytes()
    last = whole.splitlines(keepends=True)[-1]
    for content in (whole[: -len(last)], whole + encode(Metrics(step=9, time=1.0, values={"a": 1.0})), whole + b"{"):
        stream.write_bytes(content)
        assert not resting(delivered)
    stream.write_bytes(whole)
    for changed in ({"closed": "crashed"}, {"stopped": True}, {"verify": True}, {"offsets": {}}):
        account.write_text(json.dumps({**json.loads(state), **changed}))
        assert not resting(delivered)
    account.write_bytes(b"{")
    assert not resting(delivered)
    account.write_bytes(state)
    monkeypatch.setenv("TRACKER_ALERT_TO", "https://127.0.0.1/x")
    assert not resting(delivered)
    monkeypatch.delenv("TRACKER_ALERT_TO")
    assert resting(delivered)
    identity = delivered.identity.read_bytes()
    delivered.identity.unlink()
    assert not resting(delivered)
    assert work.sync([delivered], (), lambda run: None)
    assert delivered.identity.read_bytes() == identity
    account.write_text(json.dumps({**json.loads(account.read_bytes()), "rejected": 2}))
    assert resting(delivered)
    assert not work.sync([delivered], (), lambda run: None)
