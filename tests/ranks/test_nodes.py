"""Two nodes of two ranks that share nothing but a store, or nothing: one run, with values, samples, consoles of all."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import trackers
from tests import forked
from tests.object_storage.support import names
from tests.ranks.support import expected, reduced
from trackers.object_storage import addresses, mirror
from trackers.object_storage.store import Store

SECRET = "a secret of this job"
SCRIPT = """
import os, sys, time
from pathlib import Path
import trackers
from trackers import Mean, Sum

rank = int(os.environ["RANK"])
run = trackers.init("json", project="p", name="nodes")
print("rank", rank, "begins", flush=True)
for step in range(50):
    run.log({"loss": Mean(rank + step, 2), "who": Sum(2**rank), "lr": 0.1}, step=step)
until = time.monotonic() + 60
while rank % 2 == 0 and time.monotonic() < until:  # until this node's sampler has written
    if any("cpu" in path.read_text() for path in Path(os.environ["NODE"]).rglob("sampler-*.jsonl")):
        break
    time.sleep(0.05)
run.finish(timeout=60)
"""


@pytest.mark.parametrize("way", ["store", "network"])
def test_nodes_that_share_no_directory_make_one_run(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values of all ranks at each step, samples of each node under its name, each rank's lines; then the store has no
    more of the launch than its end, and the main node no folder of it."""
    monkeypatch.chdir(tmp_path)
    where = f"file://{tmp_path}/store"
    launched = {
        "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "GROUP_WORLD_SIZE": "2", "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "job", "TRACKER_DIR": where, "TRACKER_STORE_EVERY": "1",
        "TRACKER_SAMPLE": "y", "TRACKER_SAMPLE_RECORD_INTERVAL": "1", "TRACKER_CONSOLE_CAPTURE": "python",
    }  # fmt: skip
    if way == "network":
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        launched |= {
            "TRACKER_NODES": "network", "TRACKER_NODES_SECRET": SECRET, "TRACKER_NODES_ADDRESS": "127.0.0.1",
            "TRACKER_NODES_PORT": str(port),
        }  # fmt: skip
    ranks = [
        forked.Program(
            [sys.executable, "-c", SCRIPT], preload=forked.HELPERS, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={
                **os.environ, **launched, "RANK": str(rank), "LOCAL_RANK": str(rank % 2),
                "GROUP_RANK": str(rank // 2), "NODE": str(tmp_path / f"node{rank // 2}"),
                ("TRACKER_STORE_DIR" if way == "store" else "TRACKER_DIR"): str(tmp_path / f"node{rank // 2}"),
            },
        )
        for rank in range(4)
    ]  # fmt: skip
    said = [rank.communicate(timeout=150)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0] * 4, said
    assert said[1:] == [""] * 3
    root = (
        mirror.update_copy(addresses.normalize(where), str(tmp_path / "reader"))
        if way == "store"
        else tmp_path / "node0"
    )
    (run,) = (path.parent for path in root.glob("p/*/run.json"))
    assert reduced(run) == [(step, expected(step, range(4))) for step in range(50)]
    assert trackers.load(str(run)).metrics()["loss"].to_pylist()[-1] is not None
    for node in (0, 1):
        lines = [json.loads(line) for line in (run / f"streams/sampler-{node}.1.jsonl").read_text().splitlines()]
        assert any(f"system.node{node}.cpu" in line.get("values", {}) for line in lines)
    for rank in range(4):
        assert f"rank {rank} begins" in (run / f"streams/console-{rank}.1.jsonl").read_text()
    if way == "network":
        assert not (root / ".ranks").exists()
        assert not any(SECRET in path.read_text(errors="replace") for path in run.rglob("*") if path.is_file())
        return
    left = [name for name in names(Store(where)) if name.startswith(".ranks/")]
    assert len(left) == 1
    assert left[0].endswith("/nodes/main.json")
