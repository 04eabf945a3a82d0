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

import psutil

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
def place(directory: Path, cold: bool = False) -> Iterator[WandbServer]:
    """The environment that all of them share, in this process too: the stores are read in it.

    Args:
        cold: host agents are used, of which none runs yet.
    """
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
        if cold:
            (directory / "runtime").mkdir(mode=0o700)
            os.environ.update(XDG_RUNTIME_DIR=str(directory / "runtime"), TRACKER_AGENT="y", TRACKER_AGENT_IDLE="1")
        (directory / "home").mkdir(exist_ok=True)
        os.chdir(directory)
        try:
            yield server
        finally:
            os.chdir(here)
            os.environ.clear()
            os.environ.update(kept)


def play(
    directory: Path,
    count: int,
    trackers: Sequence[str],
    start: Any = subprocess.Popen,
    *,
    cold: bool = False,
    kills: int = 0,
) -> Crowd:
    """Start ``count`` runs at the same moment, and look at what is left of them.

    Args:
        start: starts a program as ``subprocess.Popen`` does.
        cold: see :func:`place`. kills: how many agents are killed as soon as they are there.
    """
    with place(directory, cold) as server:
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
        for _ in range(kills):
            _kill_agent(directory / "runtime/trackers")
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
        if cold:
            result.wrong += _left(directory / "runtime/trackers")
        found = sorted(path.name for path in (directory / "runs/crowd").iterdir() if not path.name.startswith("."))
        if len(found) != count:
            result.wrong.append(f"{len(found)} runs instead of {count}: {found}")
        return result


def _agents(folder: Path) -> list[psutil.Process]:
    running = psutil.process_iter(["cmdline"])
    return [process for process in running if (process.info["cmdline"] or [])[3:5] == ["agent", str(folder)]]


def _kill_agent(folder: Path) -> None:
    until = time.monotonic() + LIMIT_S
    while not (found := _agents(folder)):
        if time.monotonic() > until:
            raise TimeoutError(f"no agent within {LIMIT_S:g} s")
        time.sleep(0.05)
    for process in found:
        process.kill()
        process.wait(LIMIT_S)


def _left(folder: Path) -> Iterator[str]:
    """What is left of agents a while after the last run."""
    until = time.monotonic() + LIMIT_S
    while _agents(folder) and time.monotonic() < until:
        time.sleep(0.1)
    if agents := _agents(folder):
        yield f"agents are left: {agents}"
    elif folder.exists():
        yield f"files of agents are left: {sorted(path.name for path in folder.iterdir())}"


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
    parser.add_argument("--cold", action="store_true", help="with host agents, of which none runs before")
    parser.add_argument("--kills", type=int, default=0, help="with --cold: how many agents are killed at once")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="trackers-crowd-", ignore_cleanup_errors=True) as name:
        crowd = play(Path(name).resolve(), options.runs, options.trackers.split(","),
                     cold=options.cold, kills=options.kills)  # fmt: skip
    print(
        f"{options.runs} runs with {options.trackers}: {crowd.seconds:.0f} s, longest init {crowd.init_s:.2f} s, "
        f"longest log {1e3 * crowd.log_s:.0f} ms, {len(crowd.wrong)} things wrong"
    )
    for line in crowd.wrong[:50]:
        print(f"  {line}")
    return int(bool(crowd.wrong))


if __name__ == "__main__":
    sys.exit(main())
