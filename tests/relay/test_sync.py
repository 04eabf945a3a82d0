"""A sync of runs that their trackers have whole: nothing is started for them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import trackers
from tests.stores import read_json
from trackers.cli.app import app
from trackers.journal.checksums import ChecksumWriter
from trackers.journal.run_directory import RunDirectory, StreamName
from trackers.records import Metrics, encode
from trackers.relay import sync as work
from trackers.relay.delivery.cursor_file import delivery_report
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


@pytest.mark.processes
def test_flipped_bit_is_left_out_and_named() -> None:
    """A digit of a value that a disk has changed is in no tracker; the delivery and the check name its line."""
    run = trackers.init("json", mode="offline", project="p", id="rot", options={"TRACKER_RELAY": False})
    for step in range(50):
        run.log({"loss": step + 0.25}, step=step)
    run.finish()
    directory = RunDirectory("runs/p/rot")
    stream = directory.stream(StreamName("rank", 0, 1))
    content = stream.read_bytes()
    begin = content.index(b'{"kind":"metrics","values":{"loss":31.25}')
    stream.write_bytes(content.replace(b'"loss":31.25', b'"loss":71.25'))
    assert work.sync([directory], (), lambda run: None)
    assert f"1 damaged line of the journal skipped (rank-0.1.jsonl at byte {begin})" in directory.messages.read_text()
    points = read_json(directory.read_info(), None).metrics["loss"]
    assert [point.step for point in points] == [step for step in range(50) if step != 31]
    done = CliRunner().invoke(app, ["sync", str(directory.path), "--verify"])
    assert done.exit_code == 1
    assert f"records, 1 damaged line is left out (rank-0.1.jsonl at byte {begin:,})" in done.stdout
    checked = CliRunner().invoke(app, ["doctor"]).stdout
    assert re.search(r"✗ journals .* 1 damaged line is left out", checked)
    stream.write_bytes(content[:begin])
    gone = f"; {len(content) - begin:,} bytes are gone from the end of rank-0.1.jsonl"
    assert gone in CliRunner().invoke(app, ["doctor"]).stdout
    stream.write_bytes(content)
    lost = directory.streams / "rank-3.1.jsonl"
    lost.write_bytes(content[:begin])
    while ChecksumWriter(lost).poll(final=True):
        pass
    lost.unlink()
    verify = [sys.executable, "-m", "trackers", "sync", str(directory.path), "--verify"]
    checked_anew = subprocess.run(verify, capture_output=True, text=True)
    assert f"none damaged; {begin:,} bytes are gone from the end of rank-3.1.jsonl" in checked_anew.stdout
    assert checked_anew.returncode == 1
    lost.with_suffix(".sums").unlink()
    assert re.search(r"✓ journals .* no line of 1 runs is damaged", CliRunner().invoke(app, ["doctor"]).stdout)


@pytest.mark.parametrize("kind", ["gone", "damaged", "link", "folder"])
def test_progress_that_cannot_be_read_is_said(kind: str, delivered: RunDirectory) -> None:
    """A delivery whose state can't be read isn't one that never began."""
    path = delivered.delivery_state("json")
    path.unlink()
    if kind == "damaged":
        path.write_bytes(b"{")
    elif kind == "link":
        path.symlink_to("elsewhere")
    elif kind == "folder":
        path.mkdir()
    entry = delivery_report(delivered, ["json"])["json"]
    assert entry["state"] == ("not begun" if kind == "gone" else "unknown")
    said = {"gone": "", "damaged": "its progress can't be read: it is damaged"}
    assert entry["error"].startswith(said.get(kind, "its progress can't be read: "))
    assert bool(entry["error"]) == (kind != "gone")
