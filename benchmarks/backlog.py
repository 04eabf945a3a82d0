"""What a million records behind a dead server cost in memory: on top of the vendor's own client, and in the relay."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.common import Figure, main
from tests.fakes.wandb_server import Fault, WandbServer
from tests.faults import backlog
from trackers.journal import helper_process
from trackers.journal.run_directory import RunDirectory
from trackers.relay.delivery.cursor_file import read_account
from trackers.support import processes

RECORDS = 1_000_000
ABOVE_MB = 150.0
DEAD = {"MLFLOW_TRACKING_URI": "http://127.0.0.1:9", "TRACKIO_SERVER_URL": "http://127.0.0.1:9/"}
RELAY_S = 10.0
LIMIT_S = 300.0


def _relay(run: RunDirectory) -> float:
    """The most memory of a relay that serves this run, in MB above a Python that has loaded its modules."""
    code = "import trackers.relay.worker, psutil; print(psutil.Process().memory_info().rss)"
    least = int(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
    own = os.getpid()
    options = {"trackers": ["mlflow"], "pid": own, "pid_start": processes.process_start(own), "attempt": 1}
    relay = helper_process.start(run, ["relay", str(run.path), helper_process.dump(options)])
    peak, until = 0, time.monotonic() + RELAY_S
    while time.monotonic() < until and relay.poll() is None:
        peak = max(peak, backlog.resident(psutil.Process(relay.pid)))
        time.sleep(0.05)
    relay.terminate()
    time.sleep(0.5)
    relay.kill()
    relay.wait()
    return (peak - least) / 1e6


def _wandb(place: Path, count: int) -> float:
    """The most memory of a delivery, with W&B's own service, whose server dies while rows are on their way."""
    with WandbServer() as server:
        env = {"WANDB_MODE": "online", "WANDB_BASE_URL": server.url, "WANDB_API_KEY": "k" * 40}
        run = backlog.write(place, "wandb", count, env)
        work = backlog.Delivering(run, "wandb", env)
        until = time.monotonic() + LIMIT_S
        try:
            while work.look() and not read_account(run, "wandb").seq and time.monotonic() < until:
                time.sleep(0.02)
            server.fault = Fault("refuse")
            while work.look() and time.monotonic() < until:
                time.sleep(0.02)
        finally:
            work.end()
        return (max(work.peak, backlog.fail(run, "wandb", env, 4)) - backlog.bare("wandb", env)) / 1e6


def measure(quick: bool) -> Sequence[Figure]:
    """Megabytes above the bare client; with ``--quick`` for a tenth of the records."""
    count = RECORDS // 10 if quick else RECORDS
    figures = []
    place = Path.cwd()
    for tracker in ("mlflow", "trackio"):
        run = backlog.write(place / tracker, tracker, count, DEAD)
        above = (backlog.fail(run, tracker, DEAD, 4) - backlog.bare(tracker, DEAD)) / 1e6
        figures.append(Figure(f"{tracker}, {count:,} records behind", above, "MB", at_most=ABOVE_MB))
        if tracker == "mlflow":
            figures.append(Figure(f"the relay, {count:,} records behind", _relay(run), "MB", at_most=ABOVE_MB))
    figures.append(Figure(f"wandb, {count:,} records behind", _wandb(place / "wandb", count), "MB", at_most=ABOVE_MB))
    return figures


if __name__ == "__main__":
    main(measure, "Memory behind a dead server, above the vendor's own client")
