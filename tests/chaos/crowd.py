"""Many runs that start at the same moment in one directory and one project: ``make chaos-crowd``.

``python -m tests.chaos.crowd --runs 64 --trackers json,tensorboard`` starts them, waits for them, and looks into
every store: each run must have its own values, all of them, once.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests import stores
from tests.conftest import environment
from tests.fakes.wandb_server import WandbServer
from trackers.journal.run_directory import RunDirectory
from trackers.relay.delivery.cursor_file import delivery_report

ROOT = Path(__file__).resolve().parents[2]
STEPS = 100
LIMIT_S = 600.0

TRAIN = """
import json, os, sys, time
import trackers
number, names, steps = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
while not os.path.exists("go"):
    time.sleep(0.01)
began = time.monotonic()
run = trackers.init(names, project="crowd", name="same", id=f"r{number}", config={"number": number})
init_s, longest_s = time.monotonic() - began, 0.0
for step in range(steps):
    before = time.monotonic()
    run.log({"loss": number * 1000.0 + step, "note": f"run {number}"}, step=step)
    longest_s = max(longest_s, time.monotonic() - before)
run.finish(timeout=500)
print(json.dumps([init_s, longest_s]))
"""


@dataclasses.dataclass
class Crowd:
    """How it went. wrong: what isn't as it must be, in words. init_s, log_s: the longest of all."""

    wrong: list[str]
    init_s: float
    log_s: float
    seconds: float


@contextlib.contextmanager
def place(directory: Path) -> Iterator[WandbServer]:
    """The environment that all of them share, in this process too: the stores are read in it."""
    kept, here = dict(os.environ), Path.cwd()
    with WandbServer() as server:
        os.environ.update(environment(directory / "home"))
        os.environ.update(
            WANDB_MODE="online",
            WANDB_BASE_URL=server.url,
            WANDB_API_KEY="k" * 40,
            MLFLOW_TRACKING_URI=f"sqlite:///{directory}/mlflow.db",
            TRACKER_SAMPLE="n",
            PYTHONPATH=str(ROOT),
        )
        os.environ.pop("WANDB_DIR", None)
        (directory / "home").mkdir(exist_ok=True)
        os.chdir(directory)
        try:
            yield server
        finally:
            os.chdir(here)
            os.environ.clear()
            os.environ.update(kept)


def play(directory: Path, count: int, trackers: Sequence[str], start: Any = subprocess.Popen) -> Crowd:
    """Start ``count`` runs at the same moment, and look at what is left of them.

    Args:
        start: starts a program as ``subprocess.Popen`` does.
    """
    with place(directory) as server:
        (directory / "train.py").write_text(TRAIN)
        crowd = [
            start(
                [sys.executable, "train.py", str(number), ",".join(trackers), str(STEPS)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for number in range(count)
        ]
        began = time.monotonic()
        Path("go").touch()
        result = Crowd([], 0.0, 0.0, 0.0)
        try:
            for number, process in enumerate(crowd):
                out, said = process.communicate(timeout=LIMIT_S)
                if process.returncode:
                    result.wrong.append(f"r{number}: ended with {process.returncode}: {said[-500:]}")
                    continue
                init_s, log_s = json.loads(out.splitlines()[-1])
                result.init_s, result.log_s = max(result.init_s, init_s), max(result.log_s, log_s)
                # A line of the run's address, one of its start; a complaint would be one more.
                complaints = [line for line in said.splitlines() if "/runs/" not in line and " → " not in line]
                result.wrong += [f"r{number}: said {line}" for line in complaints]
        finally:
            for process in crowd:
                process.kill()
                process.wait()
        result.seconds = time.monotonic() - began
        for number in range(count):
            run = RunDirectory(directory / "runs/crowd" / f"r{number}")
            result.wrong += [f"r{number}: {line}" for line in _examine(run, number, trackers, server.runs)]
        found = sorted(path.name for path in (directory / "runs/crowd").iterdir())
        if len(found) != count:
            result.wrong.append(f"{len(found)} runs instead of {count}: {found}")
        return result


def _examine(run: RunDirectory, number: int, trackers: Sequence[str], wandb_runs: Mapping[str, Any]) -> Iterator[str]:
    if not run.identity.exists():
        yield "it isn't there"
        return
    info = run.read_info()
    states = {name: entry["state"] for name, entry in delivery_report(run, trackers).items()}
    if set(states.values()) != {"delivered"}:
        yield f"states are {states}"
    for tracker in trackers:
        if tracker == "wandb":
            stored = stores.read_wandb_server(wandb_runs)(info, {})
        else:
            stored = getattr(stores, f"read_{tracker}")(info, {})
        points = [(point.step, point.value) for point in stored.metrics.get("loss", [])]
        if points != [(step, number * 1000.0 + step) for step in range(STEPS)]:
            yield f"{tracker} has {len(points)} points, from {points[:2]} to {points[-2:]}"
        if str(stored.status).lower() != "finished":
            yield f"{tracker} says {stored.status}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.crowd", description=__doc__)
    parser.add_argument("--runs", type=int, default=64)
    parser.add_argument("--trackers", default="json,tensorboard")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="trackers-crowd-", ignore_cleanup_errors=True) as name:
        crowd = play(Path(name).resolve(), options.runs, options.trackers.split(","))
    print(
        f"{options.runs} runs with {options.trackers}: {crowd.seconds:.0f} s, longest init {crowd.init_s:.2f} s, "
        f"longest log {1e3 * crowd.log_s:.0f} ms, {len(crowd.wrong)} things wrong"
    )
    for line in crowd.wrong[:50]:
        print(f"  {line}")
    return int(bool(crowd.wrong))


if __name__ == "__main__":
    sys.exit(main())
