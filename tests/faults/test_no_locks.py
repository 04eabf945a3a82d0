"""A run on a filesystem that has neither locks nor links, as many clusters' and all of FAT: all of it works there."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.backends.wandb.support import online_at
from tests.fakes.gpu_drivers.standin import FLAGS, compiler
from tests.fakes.wandb_server import WandbServer
from tests.faults.attempts import FIVE, points, read
from tests.faults.driven import ROOT
from tests.faults.test_far_side import recorded
from tests.helpers import wait_for
from tests.stores import read_csv
from trackers.journal.lease import read_holder
from trackers.journal.run_directory import RunDirectory
from trackers.journal.status import last_status
from trackers.relay.delivery.cursor_file import read_account

TRAIN = """
import os, sys, time, trackers
run = trackers.init(sys.argv[1], project="p", id="r", dir="share", resume="allow")
with open("share/weights.pt", "wb") as file:
    file.write(bytes(100_000))
run.log_artifact("share/weights.pt", policy="link")
first = run.step + 1 if run.resumed else 0
for step in range(first, first + 200):
    run.log({"loss": step / 8}, step=step)
print("logged", flush=True)
if "wait" in sys.argv:
    time.sleep(600)
run.finish(timeout=200)
"""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WandbServer]:
    """W&B's stand-in, in a folder whose part ``share`` refuses locks and links to everybody who is started."""
    cc = compiler()
    if cc is None:
        pytest.skip("needs a C compiler: what refuses locks is compiled")
    if sys.platform != "linux":
        pytest.skip("needs Linux: LD_PRELOAD")
    library = tmp_path / "nolocks.so"
    command = [cc, *FLAGS, "-o", str(library), str(Path(__file__).with_name("nolocks.c")), "-ldl"]
    subprocess.run(command, check=True)
    home = tmp_path / "work"
    (home / "share").mkdir(parents=True)
    with online_at(home) as running:
        (home / "train.py").write_text(TRAIN)
        monkeypatch.setenv("PYTHONPATH", str(ROOT))
        monkeypatch.setenv("NOLOCKS_UNDER", str((home / "share").resolve()))
        monkeypatch.setenv("NOLOCKS_COUNT", str(tmp_path / "refused"))
        monkeypatch.setenv("LD_PRELOAD", str(library))
        yield running


def train(*words: str) -> subprocess.Popen[str]:
    """A training process that has logged its two hundred steps."""
    command = [sys.executable, "train.py", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "logged\n", process.communicate()
    return process


def test_the_filesystem_refuses(server: WandbServer) -> None:
    """Locks by each of their names, and links, are refused below the folder, and nowhere else."""
    code = """
import fcntl, os, sqlite3
def refused(folder):
    made = 0
    with open(f"{folder}/a", "w") as file:
        for what in (lambda: fcntl.flock(file, fcntl.LOCK_EX), lambda: fcntl.lockf(file, fcntl.LOCK_EX),
                     lambda: os.link(f"{folder}/a", f"{folder}/b"), lambda: os.symlink("a", f"{folder}/c"),
                     lambda: sqlite3.connect(f"{folder}/d", timeout=0).execute("CREATE TABLE t (x)")):
            try:
                what()
                made += 1
            except (OSError, sqlite3.Error):
                pass
    return made
print(refused("share"), refused("."))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "0 5\n"


@pytest.mark.soak
def test_run_without_locks_and_links_is_killed_synced_and_resumed(server: WandbServer, tmp_path: Path) -> None:
    """Logged, all killed, brought by two syncs at once, gone on with: each of six trackers has each step once."""
    names = f"{FIVE},csv"
    training = train(names, "wait")
    run = RunDirectory("share/p/r")
    relay = psutil.Process(wait_for(lambda: read_holder(run.path / "relay.lease")).pid)
    wait_for(lambda: read_account(run, "json").delivered)
    for process in [*relay.children(recursive=True), relay]:
        if process.is_running():
            process.kill()
    training.kill()
    training.communicate()
    command = [sys.executable, "-m", "trackers", "sync", str(run.path)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for _ in range(2)]
    said = [process.communicate(timeout=200)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert last_status(run).name == "crashed"
    holds(run, names, server, 200)
    training = train(names)
    _, errors = training.communicate(timeout=300)
    assert training.returncode == 0, errors
    assert "Traceback" not in errors
    holds(run, names, server, 400)
    assert last_status(run).name == "finished"
    wait_for(lambda: not (run.path / "relay.lease").exists())
    assert not [path.name for path in run.path.rglob("*") if path.name.endswith((".tmp", ".taken", ".lease"))]
    refused = (tmp_path / "refused").read_bytes()
    assert b"h" in refused  # policy="link" was tried, and made a copy
    assert b"l" not in refused


def holds(run: RunDirectory, names: str, server: WandbServer, steps: int) -> None:
    """Each tracker holds each step once, in order, with its value."""
    for tracker in names.split(","):
        info = run.read_info()
        stored = read_csv(info, None) if tracker == "csv" else read(tracker, info, dict(server.runs))
        assert points(stored) == [(step, step / 8) for step in range(steps)], tracker


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tracker", "store", "advice"),
    [("mlflow", "mlflow.db", "MLFLOW_TRACKING_URI"), ("trackio", "trackio", "TRACKIO_STORAGE_MODE=jsonl")],
)
def test_store_of_a_tracker_that_needs_locks_says_so(
    tracker: str, store: str, advice: str, server: WandbServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database of MLflow's or trackio's there: the others are delivered, a line names the place and what to do."""
    place = Path("share", store).resolve()
    monkeypatch.setenv("TRACKIO_DIR", str(place))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{place}")
    run = recorded(Path("share/p/r").resolve(), trackers=[tracker])
    code = f"""
from tests.faults.test_far_side import Line
from trackers.journal.run_directory import RunDirectory
line = Line(RunDirectory("share/p/r"), "{tracker}")
line.tries(2)
print(*line.said, sep="\\n")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    assert line.startswith(f"{tracker}: {place} lies on a filesystem without file locks")
    assert advice in line
    assert "training goes on" in line
    assert read_account(run, tracker).delivered == 0


@pytest.mark.slow
def test_trackio_without_locks_by_its_own_way_for_them(server: WandbServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """What that line advises works: trackio's files of lines are written there, each row once."""
    monkeypatch.setenv("TRACKIO_DIR", str(Path("share/trackio").resolve()))
    monkeypatch.setenv("TRACKIO_STORAGE_MODE", "jsonl")
    run = recorded(Path("share/p/r").resolve(), project="p", trackers=["trackio"])
    done = subprocess.run(
        [sys.executable, "-m", "trackers", "sync", str(run.path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [
        json.loads(line) for path in Path("share/trackio").rglob("*.jsonl") for line in path.read_text().splitlines()
    ]
    rows = {line["log_id"]: line["metrics"] for line in lines if "loss" in line["metrics"]}
    assert [row["loss"] for row in rows.values()] == [step / 7 for step in range(40)]
