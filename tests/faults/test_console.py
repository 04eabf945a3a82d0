"""What training prints is in the journal and at W&B once, whatever of what delivers it is killed."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests import forked
from tests.helpers import wait_for
from trackers.backends.wandb import datastore_writer
from trackers.formats.wandb_datastore import records
from trackers.journal.run_directory import RunDirectory
from trackers.journal.status import last_status
from trackers.readers.console import RunConsole, lines_of
from trackers.relay.delivery.cursor_file import read_account

TRAIN = """
import os, signal, time, psutil, trackers
from pathlib import Path
from trackers.journal.lease import read_holder
run = trackers.init("wandb", project="p", id="r", mode="online")

def kept():
    path = Path(run.path, "streams/console-0.1.jsonl")
    return path.read_text().count("line") if path.exists() else 0

def killed(name):
    holder = read_holder(Path(run.path, name))
    try:
        os.kill(holder.pid, signal.SIGKILL)
        return True
    except (AttributeError, OSError):
        return False

for number in range(60):
    print(f"line {number}")
    run.log({"loss": 1.0}, step=number)
    time.sleep(0.02)
    if number in (20, 40):
        while kept() < number // 2 or not killed("relay.lease" if number == 20 else "delivery/wandb.lease"):
            run.log({"waited": 1.0}, step=number)
            time.sleep(0.05)
run.finish(timeout=120)
"""


@pytest.mark.processes
def test_lines_are_there_once_though_relay_and_delivery_are_killed(tmp_path: Path) -> None:
    """Both go on where the ones before them were."""
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    variables = {**os.environ, "TRACKER_CONSOLE_CAPTURE": "auto", "TRACKER_DIR": str(tmp_path / "runs")}
    done = forked.run([sys.executable, str(script)], preload=forked.HELPERS, env=variables, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    run = RunDirectory(tmp_path / "runs/p/r")
    wait_for(lambda: last_status(run).name == "finished" and read_account(run, "wandb").closed == "finished", 150)
    wanted = [f"line {number}" for number in range(60)]
    assert [line.text for line in lines_of(RunConsole(run).read()) if line.text.startswith("line")] == wanted
    sent = [
        line
        for path in datastore_writer.offline_files(run.path / "wandb", "r")
        for record in records(path)
        if record.WhichOneof("record_type") == "output_raw"
        for line in record.output_raw.line.splitlines()
        if line.startswith("line")
    ]
    assert sent == wanted
