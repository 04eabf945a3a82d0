"""torchrun with a changing number of nodes: one run throughout, values of those ranks that there are."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import trackers
from tests.helpers import wait_for
from trackers.journal.run_directory import find_runs

pytest.importorskip("torch")
pytestmark = [pytest.mark.soak, pytest.mark.processes]

SCRIPT = """
import os, time
import trackers

start = int(open("step").read()) if os.path.exists("step") else 0
run = trackers.init("json", project="elastic", name="job", resume="auto", step=start - 1 if start else None)
world = int(os.environ["WORLD_SIZE"])
with open(f"{os.environ['NODE']}.pid", "w") as file:
    file.write(str(os.getpid()))
for step in range(start, 10_000):
    run.log({"ranks": trackers.Sum(1.0), "world": world}, step=step)
    if os.environ["RANK"] == "0":
        with open("new", "w") as file:
            file.write(str(step + 1))
        os.replace("new", "step")
        if os.path.exists("end"):
            break
    elif os.path.exists("end"):
        break
    if os.path.exists("fail") and os.environ["NODE"] == "first":
        os.unlink("fail")
        raise SystemExit("a collective failed")
    time.sleep(0.05)
run.finish()
"""
RENDEZVOUS = "last_call_timeout=2,keep_alive_interval=1,keep_alive_max_attempt=3"


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Any]:
    """Starts torchrun as another node would, each time under a name."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (tmp_path / "train.py").write_text(SCRIPT)
    options = ["--nnodes=1:2", "--nproc-per-node=1", "--max-restarts=3", "--rdzv-backend=c10d", "--rdzv-id=job"]
    place = [f"--rdzv-endpoint=127.0.0.1:{port}", "--local-addr=127.0.0.1", f"--rdzv-conf={RENDEZVOUS}"]
    # torch 2.13 shares the rendezvous' store with the workers by default, and then no node can join later.
    environ = {**os.environ, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str) -> subprocess.Popen[bytes]:
        with open(tmp_path / f"{name}.log", "wb") as log:
            command = [sys.executable, "-m", "torch.distributed.run", *options, *place, "train.py"]
            process = subprocess.Popen(
                command, env={**environ, "NODE": name}, cwd=tmp_path, stdout=log, stderr=log, start_new_session=True
            )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    for file in tmp_path.glob("*.pid"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(file.read_text()), signal.SIGKILL)


def test_world_that_grows_and_shrinks_is_one_run(nodes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One rank, then two, then the second's node dies: each step once, with as many ranks as there were."""
    monkeypatch.chdir(tmp_path)

    def worlds() -> list[tuple[float, float]]:
        (run,) = find_runs(tmp_path / "runs")
        values = trackers.load(str(run.path)).metrics().to_pydict()
        assert values["step"] == sorted(set(values["step"]))
        return list(zip(values["world"], values["ranks"], strict=True))

    first = nodes("first")
    wait_for(lambda: Path("step").exists() and int(Path("step").read_text()) > 20, 60)
    second = nodes("second")
    wait_for(lambda: Path("second.pid").exists() and (2, 2.0) in worlds(), 90)
    os.killpg(second.pid, signal.SIGKILL)
    os.kill(int(Path("second.pid").read_text()), signal.SIGKILL)
    before = int(Path("step").read_text())
    Path("fail").touch()
    wait_for(lambda: int(Path("step").read_text()) > before + 40 and worlds()[-1] == (1, 1.0), 90)
    Path("end").touch()
    assert first.wait(60) == 0
    (run,) = find_runs(tmp_path / "runs")
    assert trackers.load(str(run.path)).status == "finished"
    found = [pair for pair, before in zip(worlds(), [None, *worlds()], strict=False) if pair != before]
    assert found[:2] == [(1, 1.0), (2, 2.0)]
    assert found[-1] == (1, 1.0)
    assert set(found) <= {(1, 1.0), (2, 2.0), (2, 1.0)}, "of two, one was dead"
