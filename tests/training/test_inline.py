"""``inline=True``: the same trackers inside the training process, isolated from each other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import trackers
from tests.fakes.scripted import Scripted, got
from tests.stores import read_csv, read_json, read_trackio, wandb_files, wandb_records
from trackers import errors
from trackers.backends import registry
from trackers.journal.run_directory import RunDirectory, StreamName
from trackers.records import Record
from trackers.relay.delivery import delivery as module
from trackers.relay.delivery.cursor_file import read_account


@pytest.fixture(autouse=True)
def _scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.BUILT_IN, "scripted", "tests.fakes.scripted:Scripted")
    monkeypatch.setattr(module, "RETRY_S", (0.0, 0.0))
    monkeypatch.setattr(Scripted, "plan", staticmethod(lambda call, records: None))


@pytest.mark.slow
def test_inline_delivers_without_a_relay() -> None:
    """Every record reaches every tracker, in this process; no relay and no message file appears."""
    with trackers.init("json,trackio,scripted", project="p", inline=True) as run:
        for step in range(20):
            run.log({"loss": 1.0 / (step + 1)}, step=step)
        run.log({"final/best": 0.05})
    assert not Path(run.dir, "relay.lease").exists()
    assert [entry["step"] for entry in got(Path(run.dir)) if entry.get("step") is not None][:20] == list(range(20))
    assert got(Path(run.dir))[-1] == {"closed": "finished", "exit_code": 0}
    stored = read_trackio(run._info, {})
    assert [point.step for point in stored.metrics["loss"]] == list(range(20))
    (path,) = Path(run.dir).glob("*_*_*.json")
    assert json.loads(path.read_text())["summary"]["best"] == 0.05
    assert {entry["state"] for entry in run.status().values()} == {"delivered"}


def test_inline_says_at_the_end_what_was_not_delivered(capsys: pytest.CaptureFixture[str]) -> None:
    """A server that was down all the time is named at the finish, with the command that delivers the rest."""
    with trackers.init("json,mlflow", inline=True, options={"MLFLOW_TRACKING_URI": "http://127.0.0.1:9"}) as run:
        run.log({"loss": 1.0})
    lines = [line for line in capsys.readouterr().err.splitlines() if "not delivered" in line]
    assert len(lines) == 1
    assert lines[0].startswith("trackers: mlflow: not delivered")
    assert lines[0].endswith(f"deliver with: trackers sync {run.dir}")


def test_inline_tracker_that_raises_harms_nobody(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A tracker that breaks is named once; training and the other trackers don't notice."""

    def plan(call: str, records: Sequence[Record]) -> None:
        raise errors.Fatal("broken")

    monkeypatch.setattr(Scripted, "plan", staticmethod(plan))
    with trackers.init("scripted,json", project="p", inline=True) as run:
        for step in range(5):
            run.log({"loss": float(step)}, step=step)
    (path,) = Path(run.dir).glob("*_*_*.json")
    assert len(json.loads(path.read_text())["training_iterations"]) == 5
    assert capsys.readouterr().err.count("scripted: broken") == 1
    assert run.status()["scripted"]["state"] == "stopped"


def test_inline_unavailable_tracker_does_not_make_training_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a destination is away its records wait in the journal; when it is back they arrive, in order."""
    away = [True]

    def plan(call: str, records: Sequence[Record]) -> None:
        if away[0]:
            raise errors.Unavailable("away")

    monkeypatch.setattr(Scripted, "plan", staticmethod(plan))
    run = trackers.init("scripted", project="p", inline=True)
    for step in range(10):
        run.log({"a": float(step)}, step=step)
    assert got(Path(run.dir)) == []
    away[0] = False
    run.log({"a": 10.0}, step=10)
    run.finish()
    assert [entry["step"] for entry in got(Path(run.dir)) if entry.get("step") is not None][:11] == list(range(11))


@pytest.mark.slow
def test_console_runs_inside_and_the_others_beside(capsys: pytest.CaptureFixture[str]) -> None:
    """``console`` prints from the training process; ``json`` is delivered by the relay."""
    with trackers.init("console,json", project="p", options={"TRACKER_LOG_INTERVAL": 1}) as run:
        for step in range(3):
            run.log({"train_loss": 1.0 / (step + 1)}, step=step)
    err = capsys.readouterr().err
    assert sum("train_loss" in line for line in err.splitlines()) == 3
    assert run.status()["json"]["state"] == "delivered"


def test_boxes_and_masks_keep_their_class_labels() -> None:
    """W&B takes class labels by number; the journal has them as JSON keys; the image arrives whole."""
    overlay = {"box_data": [{"position": {"minX": 0.1, "maxX": 0.5, "minY": 0.1, "maxY": 0.5}, "class_id": 1}]}
    image = trackers.Image(
        np.zeros((16, 16, 3), np.uint8),
        boxes={"pred": {**overlay, "class_labels": {1: "cat"}}},
        masks={"seg": {"mask_data": np.zeros((16, 16), np.uint8), "class_labels": {0: "sky"}}},
    )
    with trackers.init("wandb", project="p", inline=True) as run:
        run.log({"picture": image}, step=0)
    assert run.status()["wandb"]["rejected"] == 0
    (path,) = wandb_files(run._info)
    rows = [record for record in wandb_records(path) if record.WhichOneof("record_type") == "history"]
    assert "boxes2D" in str(rows)
    assert "mask" in str(rows)


FORKING = """
import os, sys, time, trackers
from trackers.backends import registry
registry.BUILT_IN["scripted"] = "tests.fakes.scripted:Scripted"
run = trackers.init("csv,json,scripted", project="p", id="forked", inline=True)
run.log({"parent": 0.0}, step=0)
leaves = sys.argv[1] == "leaves"
child = os.fork()
if child and leaves:
    os._exit(0)
if child == 0:
    if leaves:
        os.setsid()
        if os.fork():
            os._exit(0)
    step, until = 0, time.monotonic() + 100
    while step < 5 or (leaves and run._recorder.pid != os.getpid()):
        step += 1
        run.log({"child": float(step), f"new/{step % 5}": 1}, step=step)
        time.sleep(0.01 * leaves)
        assert time.monotonic() < until
    if leaves:
        run.log({"child": -1.0}, step=step + 1)
        run.finish()
    os._exit(0)
os.waitpid(child, 0)
for step in range(6, 9):
    run.log({"parent": float(step)}, step=step)
run.finish()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: daemons")
@pytest.mark.parametrize("parent", ["waits", "leaves"])
def test_inline_row_of_a_forked_child_is_delivered_once(parent: str) -> None:
    """By its parent, which has the same files open; or by a daemon once its parent is gone and the run is its own."""
    Path("train.py").write_text(FORKING)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with open("said.txt", "w") as said:
        done = subprocess.Popen([sys.executable, "train.py", parent], env=environment, stdout=said, stderr=said)
    assert done.wait(120) == 0, Path("said.txt").read_text()
    run = RunDirectory(Path("runs/p/forked"))
    until = time.monotonic() + 120
    while read_account(run, "scripted").closed != "finished":
        assert time.monotonic() < until, Path("said.txt").read_text()
        time.sleep(0.02)
    logged = [json.loads(line) for line in run.stream(StreamName("rank", 0, 1)).read_text().splitlines()]
    rows = [line["step"] for line in logged if line["kind"] == "metrics"]
    assert len(rows) > 5
    for stored in (read_csv(run.read_info()), read_json(run.read_info())):
        points = [point for name in ("parent", "child") for point in stored.metrics[name]]
        assert sorted(point.step or 0 for point in points) == sorted(rows)
    ids = [entry["id"] for entry in got(run.path) if "id" in entry]
    assert len(ids) == len(set(ids))
