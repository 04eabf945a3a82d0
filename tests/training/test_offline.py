"""Offline: nothing is asked of a network, and without the relay nothing is started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TRAIN = """
import sys
told = []
WATCHED = ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto")
STARTS = ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system", "os.exec")
sys.addaudithook(lambda event, args: told.append(event) if event in WATCHED + STARTS else None)
import trackers
run = trackers.init("wandb,trackio,tensorboard,mlflow,json", project="p", config={"lr": 0.1}, tags=["t"])
run.log({"loss": 1.0, "image": trackers.Image([[0, 255]]), "final/best": 0.5}, step=1)
open("model.pt", "wb").write(b"weights")
run.log_artifact("model.pt", name="model", type="model")
run.alert("title", "text")
run.finish()
print(sorted(set(told)))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("relay", "expected"), [("n", "[]\n"), ("y", "['subprocess.Popen']\n")])
def test_offline_run_asks_nobody(relay: str, expected: str, tmp_path: Path) -> None:
    """No connection, no name looked up; with TRACKER_RELAY=n no process, in a git repository either."""
    (tmp_path / "train.py").write_text(TRAIN)
    for command in (["init", "-q"], ["add", "-A"], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "m"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    (tmp_path / "train.py").write_text(TRAIN + "\n# changed\n")
    env = {**os.environ, "TRACKER_MODE": "offline", "TRACKER_RELAY": relay}
    env.pop("WANDB_MODE", None)
    done = subprocess.run(
        [sys.executable, "train.py"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == expected
