"""A long journal, a delivery that can't get rid of it, and how much memory that takes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import psutil

from tests.helpers import T0, begun_run
from trackers.journal.helper_process import command
from trackers.journal.run_directory import RunDirectory
from trackers.records import Metrics, encode
from trackers.relay.delivery.cursor_file import read_account
from trackers.relay.parts.plans import DeliveryPlan, arguments

CHUNK = 10_000
BARE = {
    "mlflow": "from mlflow import MlflowClient\nimport mlflow.store.tracking.rest_store",
    "trackio": "import trackio\nfrom trackio.remote_client import RemoteClient",
    "wandb": "import wandb\nfrom wandb.apis import public",
}
"""What a process that uses a vendor's client loads at least."""


def write(directory: Path, tracker: str, count: int, options: Mapping[str, str]) -> RunDirectory:
    """A run that goes on, with ``count`` records of two values behind its start."""
    run, writer = begun_run(directory, id=f"backlog{count}", project="backlog", trackers=[tracker], options=options)
    for first in range(0, count, CHUNK):
        steps = range(first, min(first + CHUNK, count))
        rows = [Metrics(step=s, time=T0 + s / 1000, values={"loss": s / 7, "rate": 0.1}) for s in steps]
        writer.write(b"".join(encode(row) for row in rows))
    writer.release()
    return run


class Delivering:
    """One delivery process, and the most memory that it and its children had, in bytes."""

    def __init__(self, run: RunDirectory, tracker: str, env: Mapping[str, str]) -> None:
        self.run, self.tracker = run, tracker
        self.peak = 0
        with open(run.path / "output.txt", "ab") as out:
            self.process = subprocess.Popen(
                command(arguments("delivery", run.path, DeliveryPlan(tracker, os.getpid()))),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={**os.environ, **env},
            )

    def look(self) -> bool:
        """Measure; False when the process has ended."""
        if self.process.poll() is not None:
            return False
        try:
            own = psutil.Process(self.process.pid)
            self.peak = max(self.peak, sum(resident(p) for p in (own, *own.children(recursive=True))))
        except psutil.Error:
            return self.process.poll() is None
        return True

    def end(self) -> None:
        """Kill it and what it started."""
        try:
            children = psutil.Process(self.process.pid).children(recursive=True)
        except psutil.Error:
            children = []
        self.process.kill()
        self.process.wait()
        for child in children:
            try:
                child.kill()
            except psutil.Error:
                continue


def resident(process: psutil.Process) -> int:
    """What a process has in memory for itself: shared libraries are in it once for all processes of a kind."""
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


def fail(run: RunDirectory, tracker: str, env: Mapping[str, str], failures: int, limit_s: float = 120.0) -> int:
    """Have deliveries, restarted as the relay does, fail so often; the most memory that one of them took."""
    peak, deadline = 0, time.monotonic() + limit_s
    while read_account(run, tracker).failures < failures:
        work = Delivering(run, tracker, env)
        try:
            while work.look() and read_account(run, tracker).failures < failures:
                assert time.monotonic() < deadline, (run.path / "output.txt").read_text()[-2000:]
                time.sleep(0.02)
        finally:
            work.end()
        peak = max(peak, work.peak)
    return peak


def bare(tracker: str, env: Mapping[str, str]) -> int:
    """What a process takes that only loads the vendor's client."""
    code = f"{BARE[tracker]}\nimport psutil\nprint(psutil.Process().memory_info().rss)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ, **env}
    )
    return int(done.stdout.split()[-1])
